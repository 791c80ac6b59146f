"""Attributes of XeGPU that say how memory is reached: hints, spaces, scopes, descriptor encodings.

Each prints as today's upstream dialect does; the RFC's spellings (`scope`, bare enumerators, keywords
in any order) are read as well. Ownership attributes (`layout`, `slice`, `sg_map`) are in layouts.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar, cast

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, IntAttr, IntegerAttr, NoneAttr, i64
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from tilewright.dialects.cache_hints import CacheHint
from tilewright.dialects.xetile.attrs import (
    FieldParser,
    checked,
    ints,
    parse_fields,
    parse_int_array,
)

CHUNK_SIZES = (1, 2, 3, 4, 8, 16, 32, 64)
"""Elements that one lane of a gather may read in a row (RFC, `scatter_tdesc_attr`)."""


class MemorySpace(StrEnum):
    """Where memory lives: 0 device memory, 3 the workgroup's shared local memory."""

    GLOBAL = "global"
    SLM = "slm"

    @property
    def number(self) -> int:
        return 3 if self is MemorySpace.SLM else 0


class FenceScope(StrEnum):
    """Who sees the writes that a fence orders."""

    WORKGROUP = "workgroup"
    LOCAL = "local"
    TILE = "tile"
    GPU = "gpu"
    SYSTEM = "system"


class FenceOpFlush(StrEnum):
    """What a fence does to cache lines."""

    NONE = "none"
    EVICT = "evict"
    INVALIDATE = "invalidate"
    DISCARD = "discard"


_Enum = TypeVar("_Enum", bound=StrEnum)


def _parse_enum(parser: AttrParser, enum: type[_Enum]) -> _Enum:
    with parser.in_angle_brackets():
        return parser.parse_str_enum(enum)


@irdl_attr_definition
class CacheHintAttr(EnumAttribute[CacheHint]):
    """`#xegpu.cache_hint<cached>`."""

    name = "xegpu.cache_hint"

    def __init__(self, data: CacheHint | str):
        super().__init__(CacheHint(data))

    @property
    def kind(self) -> str:
        return self.data.value

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{self.data.value}>")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> CacheHint:
        return _parse_enum(parser, CacheHint)


@irdl_attr_definition
class MemorySpaceAttr(EnumAttribute[MemorySpace]):
    """`#xegpu.memory_space<slm>`."""

    name = "xegpu.memory_space"

    def __init__(self, data: MemorySpace | str):
        super().__init__(MemorySpace(data))

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{self.data.value}>")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> MemorySpace:
        return _parse_enum(parser, MemorySpace)


@irdl_attr_definition
class FenceScopeAttr(EnumAttribute[FenceScope]):
    """`#xegpu.fence_scope<workgroup>`."""

    name = "xegpu.fence_scope"

    def __init__(self, data: FenceScope | str):
        super().__init__(FenceScope(data))

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{self.data.value}>")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> FenceScope:
        return _parse_enum(parser, FenceScope)


@irdl_attr_definition
class FenceOpFlushAttr(EnumAttribute[FenceOpFlush]):
    """`#xegpu.fence_op_flush<evict>`."""

    name = "xegpu.fence_op_flush"

    def __init__(self, data: FenceOpFlush | str):
        super().__init__(FenceOpFlush(data))

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{self.data.value}>")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> FenceOpFlush:
        return _parse_enum(parser, FenceOpFlush)


def parse_int(parser: AttrParser) -> IntegerAttr:
    """`2`, `2 : i64`, `2 : i32`: the type is not part of the meaning."""
    value = parser.parse_integer(allow_boolean=False)
    if parser.parse_optional_punctuation(":") is not None:
        parser.parse_type()
    return _checked_int(parser, value)


def _checked_int(parser: AttrParser, value: int) -> IntegerAttr:
    if not -(2**63) <= value < 2**63:
        parser.raise_error(f"{value} does not fit 64 bits")
    return IntegerAttr(value, i64)


def _parse_bool(parser: AttrParser) -> BoolAttr:
    value = BoolAttr.from_bool(parser.parse_boolean())
    if parser.parse_optional_punctuation(":") is not None:
        parser.parse_type()
    return value


def _parse_memory_space(parser: AttrParser) -> MemorySpaceAttr:
    """`slm`, `#xegpu.memory_space<slm>`, or the number 3."""
    attribute = parser.parse_optional_attribute()
    match attribute:
        case None:
            return MemorySpaceAttr(parser.parse_str_enum(MemorySpace))
        case MemorySpaceAttr():
            return attribute
        case IntegerAttr() if attribute.value.data in (0, 3):
            return MemorySpaceAttr("slm" if attribute.value.data else "global")
        case _:
            parser.raise_error(f"expected the memory space global or slm, got {attribute}")


# Spellings of the first implementation.
_OLD_NAMES = {"memory_scope": "memory_space"}


def _print_fields(printer: Printer, fields: Sequence[tuple[str, Attribute]]) -> None:
    """`<a = .., b = ..>` of the fields that are present, in the given order."""

    def one(field: tuple[str, Attribute]) -> None:
        name, value = field
        printer.print_string(f"{name} = ")
        match value:
            case EnumAttribute():
                printer.print_string(value.data.value)
            case ArrayAttr():
                printer.print_string(
                    f"[{', '.join(str(v.data) for v in cast(ArrayAttr[IntAttr], value))}]"
                )
            case IntegerAttr() if value.type == i64:
                printer.print_string(f"{value.value.data} : i64")
            case _:
                printer.print_attribute(value)

    with printer.in_angle_brackets():
        printer.print_list([f for f in fields if not isinstance(f[1], NoneAttr)], one)


@irdl_attr_definition
class RangeAttr(ParametrizedAttribute):
    """`#xegpu.range<[2, 18]>`: a run of subgroups, the second number not included.

    `sg_id_range` on an scf.if says which subgroups do its region; layouts inside distribute to them alone.
    """

    name = "xegpu.range"

    first: IntegerAttr
    end: IntegerAttr

    def __init__(self, first: int | IntegerAttr, end: int | IntegerAttr):
        numbers = (IntegerAttr(n, i64) if isinstance(n, int) else n for n in (first, end))
        super().__init__(*numbers)

    @property
    def bounds(self) -> tuple[int, int]:
        return self.first.value.data, self.end.value.data

    def verify(self) -> None:
        first, end = self.bounds
        if not 0 <= first < end:
            raise VerifyException(f"expected a range of subgroups, got [{first}, {end}]")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets(), parser.in_square_brackets():
            first = parse_int(parser)
            parser.parse_punctuation(",")
            return [first, parse_int(parser)]

    def print_parameters(self, printer: Printer) -> None:
        first, end = self.bounds
        printer.print_string(f"<[{first}, {end}]>")


@irdl_attr_definition
class BlockTensorDescAttr(ParametrizedAttribute):
    """`#xegpu.block_tdesc_attr<memory_space = slm, array_length = 2 : i64, boundary_check = false>`.

    `array_length`: blocks side by side that one load reads. `boundary_check`: elements outside of the
    base matrix read as 0 and are not written (the default); without it touching them is undefined.
    """

    name = "xegpu.block_tdesc_attr"

    memory_space: MemorySpaceAttr | NoneAttr
    array_length: IntegerAttr | NoneAttr
    boundary_check: BoolAttr | NoneAttr

    def __init__(
        self,
        memory_space: str | None = None,
        array_length: int | None = None,
        boundary_check: bool | None = None,
    ):
        super().__init__(
            NoneAttr() if memory_space is None else MemorySpaceAttr(memory_space),
            NoneAttr() if array_length is None else IntegerAttr(array_length, i64),
            NoneAttr() if boundary_check is None else BoolAttr.from_bool(boundary_check),
        )

    @property
    def space(self) -> MemorySpace:
        space = self.memory_space
        return space.data if isinstance(space, MemorySpaceAttr) else MemorySpace.GLOBAL

    @property
    def length(self) -> int:
        length = self.array_length
        return length.value.data if isinstance(length, IntegerAttr) else 1

    @property
    def checks_boundary(self) -> bool:
        check = self.boundary_check
        return True if isinstance(check, NoneAttr) else bool(check.value.data)

    def is_default(self) -> bool:
        return self.space is MemorySpace.GLOBAL and self.length == 1 and self.checks_boundary

    def verify(self) -> None:
        if self.length < 1:
            raise VerifyException(
                f"expect integer greater than 0 for array_length, got {self.length}"
            )

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        start = parser.pos
        readers: dict[str, FieldParser] = {
            "memory_space": _parse_memory_space,
            "array_length": parse_int,
            "boundary_check": _parse_bool,
        }
        fields = parse_fields(parser, "block_tdesc_attr", readers, _OLD_NAMES)
        return checked(parser, cls, [fields.get(name, NoneAttr()) for name in readers], start)

    def print_parameters(self, printer: Printer) -> None:
        fields = [
            ("memory_space", self.memory_space),
            ("array_length", self.array_length),
            ("boundary_check", self.boundary_check),
        ]
        _print_fields(printer, fields)


@irdl_attr_definition
class ScatterTensorDescAttr(ParametrizedAttribute):
    """`#xegpu.scatter_tdesc_attr<memory_space = slm, chunk_size = 2 : i64>`.

    Every lane has an offset of its own and reads `chunk_size` elements in a row from there.
    """

    name = "xegpu.scatter_tdesc_attr"

    memory_space: MemorySpaceAttr | NoneAttr
    chunk_size: IntegerAttr | NoneAttr

    def __init__(self, memory_space: str | None = None, chunk_size: int | None = None):
        super().__init__(
            NoneAttr() if memory_space is None else MemorySpaceAttr(memory_space),
            NoneAttr() if chunk_size is None else IntegerAttr(chunk_size, i64),
        )

    @property
    def space(self) -> MemorySpace:
        space = self.memory_space
        return space.data if isinstance(space, MemorySpaceAttr) else MemorySpace.GLOBAL

    @property
    def chunk(self) -> int:
        chunk = self.chunk_size
        return chunk.value.data if isinstance(chunk, IntegerAttr) else 1

    def verify(self) -> None:
        if self.chunk not in CHUNK_SIZES:
            allowed = ", ".join(str(size) for size in CHUNK_SIZES)
            raise VerifyException(f"invalid chunk size {self.chunk}, expected one of {allowed}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        start = parser.pos
        readers: dict[str, FieldParser] = {
            "memory_space": _parse_memory_space,
            "chunk_size": parse_int,
        }
        fields = parse_fields(parser, "scatter_tdesc_attr", readers, _OLD_NAMES)
        return checked(parser, cls, [fields.get(name, NoneAttr()) for name in readers], start)

    def print_parameters(self, printer: Printer) -> None:
        _print_fields(
            printer, [("memory_space", self.memory_space), ("chunk_size", self.chunk_size)]
        )


@irdl_attr_definition
class MemLayoutAttr(ParametrizedAttribute):
    """`#xegpu.mem_layout<stride = [1, 32], block = [16, 16]>`: how a matrix lies in shared memory.

    `stride` gives the distance in elements of neighbours in each dimension, were the matrix stored
    plainly; it orders the dimensions. `block` cuts the matrix into pieces that are stored whole, ordered
    inside and among each other as `stride` says. Both are optional: row-major and unblocked.
    """

    name = "xegpu.mem_layout"

    stride: ArrayAttr[IntAttr] | NoneAttr
    block: ArrayAttr[IntAttr] | NoneAttr

    def __init__(self, stride: Iterable[int] | None = None, block: Iterable[int] | None = None):
        super().__init__(
            NoneAttr() if stride is None else ArrayAttr(IntAttr(v) for v in stride),
            NoneAttr() if block is None else ArrayAttr(IntAttr(v) for v in block),
        )

    def verify(self) -> None:
        for name, value in (("stride", self.stride), ("block", self.block)):
            if isinstance(value, ArrayAttr) and (not ints(value) or min(ints(value)) < 1):
                raise VerifyException(f"expected positive integers for {name} of mem_layout")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        start = parser.pos
        readers: dict[str, FieldParser] = {"stride": parse_int_array, "block": parse_int_array}
        fields = parse_fields(parser, "mem_layout", readers, {})
        return checked(parser, cls, [fields.get(name, NoneAttr()) for name in readers], start)

    def print_parameters(self, printer: Printer) -> None:
        _print_fields(printer, [("stride", self.stride), ("block", self.block)])
