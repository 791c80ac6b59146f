"""Attributes of XeGPU that say how memory is reached: hints, spaces, scopes, descriptor encodings.

Each prints as today's upstream dialect does; the RFC's spellings (`scope`, bare enumerators, keywords
in any order) are read as well. Ownership attributes (`layout`, `slice`, `sg_map`) are in layouts.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, BoolAttr, IntAttr, IntegerAttr, NoneAttr, i64
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute, ParametrizedAttribute, SpacedOpaqueSyntaxAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from tilewright.dialects.attribute_fields import (
    Angled,
    FieldsAttr,
    Spaced,
    int_array,
    integer,
    ints,
    parse_bool,
    parse_int_array,
    truth,
)
from tilewright.dialects.cache_hints import CacheHint

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


@irdl_attr_definition
class CacheHintAttr(Angled, EnumAttribute[CacheHint]):
    """`#xegpu.cache_hint<cached>`."""

    name = "xegpu.cache_hint"


@irdl_attr_definition
class MemorySpaceAttr(Spaced, EnumAttribute[MemorySpace], SpacedOpaqueSyntaxAttribute):
    """`#xegpu<memory_space slm>`."""

    name = "xegpu.memory_space"


@irdl_attr_definition
class FenceScopeAttr(Spaced, EnumAttribute[FenceScope], SpacedOpaqueSyntaxAttribute):
    """`#xegpu<fence_scope workgroup>`."""

    name = "xegpu.fence_scope"


@irdl_attr_definition
class FenceOpFlushAttr(Angled, EnumAttribute[FenceOpFlush]):
    """`#xegpu.fence_op_flush<evict>`."""

    name = "xegpu.fence_op_flush"


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


def _parse_memory_space(parser: AttrParser) -> MemorySpaceAttr:
    """`slm`, `#xegpu.memory_space<slm>`, or the number 3."""
    attribute = parser.parse_optional_attribute()
    match attribute:
        case None:
            return MemorySpaceAttr(parser.parse_str_enum(MemorySpace))
        case MemorySpaceAttr():
            return attribute
        case IntegerAttr() if attribute.value.data in (0, 3):
            return MemorySpaceAttr(MemorySpace.SLM if attribute.value.data else MemorySpace.GLOBAL)
        case _:
            parser.raise_error(f"expected the memory space global or slm, got {attribute}")


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


class TensorDescAttr(FieldsAttr):
    """What the encodings of a descriptor share."""

    ALIASES: ClassVar = {"memory_scope": "memory_space"}
    """Spellings of the first implementation."""

    @property
    def space(self) -> MemorySpace:
        space = getattr(self, "memory_space", None)
        return space.data if isinstance(space, MemorySpaceAttr) else MemorySpace.GLOBAL


@irdl_attr_definition
class BlockTensorDescAttr(TensorDescAttr):
    """`#xegpu.block_tdesc_attr<memory_space = slm, array_length = 2 : i64, boundary_check = false>`.

    `array_length`: blocks side by side that one load reads. `boundary_check`: elements outside of the
    base matrix read as 0 and are not written (the default); without it touching them is undefined.
    """

    name = "xegpu.block_tdesc_attr"

    memory_space: MemorySpaceAttr | NoneAttr
    array_length: IntegerAttr | NoneAttr
    boundary_check: BoolAttr | NoneAttr

    READERS: ClassVar = {
        "memory_space": _parse_memory_space,
        "array_length": parse_int,
        "boundary_check": parse_bool,
    }

    def __init__(
        self,
        memory_space: str | None = None,
        array_length: int | None = None,
        boundary_check: bool | None = None,
    ):
        super().__init__(
            NoneAttr() if memory_space is None else MemorySpaceAttr(MemorySpace(memory_space)),
            integer(array_length),
            truth(boundary_check),
        )

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


@irdl_attr_definition
class ScatterTensorDescAttr(TensorDescAttr):
    """`#xegpu.scatter_tdesc_attr<memory_space = slm, chunk_size = 2 : i64>`.

    Every lane has an offset of its own and reads `chunk_size` elements in a row from there.
    """

    name = "xegpu.scatter_tdesc_attr"

    memory_space: MemorySpaceAttr | NoneAttr
    chunk_size: IntegerAttr | NoneAttr

    READERS: ClassVar = {"memory_space": _parse_memory_space, "chunk_size": parse_int}

    def __init__(self, memory_space: str | None = None, chunk_size: int | None = None):
        super().__init__(
            NoneAttr() if memory_space is None else MemorySpaceAttr(MemorySpace(memory_space)),
            integer(chunk_size),
        )

    @property
    def chunk(self) -> int:
        chunk = self.chunk_size
        return chunk.value.data if isinstance(chunk, IntegerAttr) else 1

    def verify(self) -> None:
        if self.chunk not in CHUNK_SIZES:
            allowed = ", ".join(str(size) for size in CHUNK_SIZES)
            raise VerifyException(f"invalid chunk size {self.chunk}, expected one of {allowed}")


@irdl_attr_definition
class MemLayoutAttr(FieldsAttr):
    """`#xegpu.mem_layout<stride = [1, 32], block = [16, 16]>`: how a matrix lies in shared memory.

    `stride` gives the distance in elements of neighbours in each dimension, were the matrix stored
    plainly; it orders the dimensions. `block` cuts the matrix into blocks that are stored contiguously, ordered
    inside and among each other as `stride` says. Both are optional: row-major and unblocked.
    """

    name = "xegpu.mem_layout"

    stride: ArrayAttr[IntAttr] | NoneAttr
    block: ArrayAttr[IntAttr] | NoneAttr

    READERS: ClassVar = {"stride": parse_int_array, "block": parse_int_array}

    def __init__(self, stride: Iterable[int] | None = None, block: Iterable[int] | None = None):
        super().__init__(int_array(stride), int_array(block))

    def verify(self) -> None:
        for name, value in (("stride", self.stride), ("block", self.block)):
            if isinstance(value, ArrayAttr) and (not ints(value) or min(ints(value)) < 1):
                raise VerifyException(f"expected positive integers for {name} of mem_layout")
