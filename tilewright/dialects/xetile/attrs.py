"""Attributes of the XeTile dialect: ownership maps, the tile's encoding, cache hints.

Every attribute prints in one canonical form (that of the dialect's implementation) and reads the
RFCs' variants besides: `wg` / `sg` for `wg_map` / `sg_map`, keywords in any order, nested maps with
or without their `#xetile.` name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    IntAttr,
    IntegerAttr,
    IntegerType,
    NoneAttr,
    i64,
)
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.cache_hints import CacheHint

IntPair = tuple[int, int]
Fields = dict[str, Attribute]
FieldParser = Callable[[AttrParser], Attribute]


def _int_array(values: Iterable[int]) -> ArrayAttr[IntAttr]:
    return ArrayAttr(IntAttr(int(value)) for value in values)


def ints(array: ArrayAttr[IntAttr]) -> tuple[int, ...]:
    """The Python integers of an array attribute."""
    return tuple(element.data for element in array)


def _print_int_array(printer: Printer, array: ArrayAttr[IntAttr]) -> None:
    printer.print_string("[" + ", ".join(str(v) for v in ints(array)) + "]")


def _check_pair(array: Attribute, name: str, minimum: int = 1) -> None:
    """Two-dimensional maps only: the dialect's tiles are 2-D."""
    assert isinstance(array, ArrayAttr)
    values = ints(array)
    if len(values) != 2:
        raise VerifyException(f"expect integer array of size 2 for {name}")
    if min(values) < minimum:
        raise VerifyException(f"expect integers of at least {minimum} for {name}, got {[*values]}")


def parse_int_array(parser: AttrParser) -> ArrayAttr[IntAttr]:
    """`[1, 2]`, an `array<i64: 1, 2>`, or a typed list `[1 : i64, 2 : i64]`."""
    if parser.parse_optional_keyword("array") is not None:
        with parser.in_angle_brackets():
            parser.parse_type()
            values: list[int] = []
            if parser.parse_optional_punctuation(":") is not None:
                values = parser.parse_comma_separated_list(
                    parser.Delimiter.NONE, lambda: parser.parse_integer(allow_boolean=False)
                )
        return _int_array(values)

    def element() -> int:
        value = parser.parse_integer(allow_boolean=False)
        if parser.parse_optional_punctuation(":") is not None:
            parser.parse_type()
        return value

    return _int_array(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, element))


def parse_fields(
    parser: AttrParser, what: str, readers: dict[str, FieldParser], aliases: dict[str, str]
) -> Fields:
    """`<name = value, ...>` with the names of `readers` in any order, each at most once."""
    fields: Fields = {}

    def entry() -> None:
        start = parser.pos
        word = parser.parse_identifier(f" naming a field of {what}")
        name = aliases.get(word, word)
        if name not in readers:
            known = ", ".join(readers)
            parser.raise_error(
                f"unknown field '{word}' of {what}, expected one of {known}", start, parser.pos
            )
        if name in fields:
            parser.raise_error(f"field '{word}' of {what} is given twice", start, parser.pos)
        parser.parse_punctuation("=", f" after '{word}'")
        fields[name] = readers[name](parser)

    parser.parse_comma_separated_list(parser.Delimiter.ANGLE, entry, f" in {what}")
    return fields


def checked(
    parser: AttrParser, cls: type[ParametrizedAttribute], params: Sequence[Attribute], start: int
) -> Sequence[Attribute]:
    """Parameters of an attribute whose text began at `start`; what its verifier refuses is an
    error in that text."""
    try:
        return cls.new(params).parameters
    except VerifyException as error:
        parser.raise_error(str(error), start, parser.pos)


def _require(parser: AttrParser, fields: Fields, what: str, *names: str) -> None:
    for name in names:
        if name not in fields:
            parser.raise_error(f"{what} needs the field '{name}'")


@irdl_attr_definition
class SgMapAttr(ParametrizedAttribute):
    """`#xetile.sg_map<wi_layout = [2, 8], wi_data = [1, 2]>`: which work item owns which elements.

    `wi_layout` is the grid of work items of a subgroup, `wi_data` the block that each owns.
    """

    name = "xetile.sg_map"

    wi_layout: ArrayAttr[IntAttr]
    wi_data: ArrayAttr[IntAttr]

    def __init__(self, wi_layout: Iterable[int], wi_data: Iterable[int]):
        super().__init__(_int_array(wi_layout), _int_array(wi_data))

    def verify(self) -> None:
        _check_pair(self.wi_layout, "wi_layout")
        _check_pair(self.wi_data, "wi_data")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        start = parser.pos
        readers: dict[str, FieldParser] = {"wi_layout": parse_int_array, "wi_data": parse_int_array}
        fields = parse_fields(parser, "sg_map", readers, {})
        _require(parser, fields, "sg_map", *readers)
        return checked(parser, cls, [fields["wi_layout"], fields["wi_data"]], start)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string("wi_layout = ")
            _print_int_array(printer, self.wi_layout)
            printer.print_string(", wi_data = ")
            _print_int_array(printer, self.wi_data)


@irdl_attr_definition
class WgMapAttr(ParametrizedAttribute):
    """`#xetile.wg_map<sg_layout = [8, 4], sg_data = [32, 64]>`: which subgroup owns which block.

    `sg_layout` is the grid of subgroups of a workgroup, in row-major order of subgroup ids;
    `sg_data` the block of elements that a subgroup owns. `inst_data` (ours: the instruction-sized
    piece of a block) and `broadcast_size` (RFC: contiguous copies along the broadcast dimension of
    the map's tile) are optional.
    """

    name = "xetile.wg_map"

    sg_layout: ArrayAttr[IntAttr]
    sg_data: ArrayAttr[IntAttr]
    inst_data: ArrayAttr[IntAttr] | NoneAttr
    broadcast_size: IntegerAttr | NoneAttr

    def __init__(
        self,
        sg_layout: Iterable[int],
        sg_data: Iterable[int],
        inst_data: Iterable[int] | None = None,
        broadcast_size: int | None = None,
    ):
        super().__init__(
            _int_array(sg_layout),
            _int_array(sg_data),
            NoneAttr() if inst_data is None else _int_array(inst_data),
            NoneAttr() if broadcast_size is None else IntegerAttr(broadcast_size, i64),
        )

    def verify(self) -> None:
        _check_pair(self.sg_layout, "sg_layout")
        _check_pair(self.sg_data, "sg_data")
        if isinstance(self.inst_data, ArrayAttr):
            _check_pair(self.inst_data, "inst_data")
        size = self.broadcast_size
        if isinstance(size, IntegerAttr) and size.value.data < 1:
            raise VerifyException("expect integer greater than 0 for broadcast_size")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        start = parser.pos
        readers: dict[str, FieldParser] = {
            "sg_layout": parse_int_array,
            "sg_data": parse_int_array,
            "inst_data": parse_int_array,
            "broadcast_size": _parse_int,
        }
        fields = parse_fields(parser, "wg_map", readers, {})
        _require(parser, fields, "wg_map", "sg_layout", "sg_data")
        params = [fields.get(name, NoneAttr()) for name in readers]
        return checked(parser, cls, params, start)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string("sg_layout = ")
            _print_int_array(printer, self.sg_layout)
            printer.print_string(", sg_data = ")
            _print_int_array(printer, self.sg_data)
            if isinstance(self.inst_data, ArrayAttr):
                printer.print_string(", inst_data = ")
                _print_int_array(printer, self.inst_data)
            if isinstance(self.broadcast_size, IntegerAttr):
                printer.print_string(f", broadcast_size = {self.broadcast_size.value.data}")


def _parse_int(parser: AttrParser) -> IntegerAttr:
    """A size: whatever type is written, it is held as i64."""
    return IntegerAttr(_parse_typed_int(parser).value, i64)


def _parse_typed_int(parser: AttrParser) -> IntegerAttr:
    """`3`, `3 : i64` or `3 : i32`, each kept as written."""
    start = parser.pos
    value = parser.parse_integer(allow_boolean=False)
    kind = parser.parse_type() if parser.parse_optional_punctuation(":") is not None else i64
    if not isinstance(kind, IntegerType):
        parser.raise_error(f"expected an integer type, got {kind}", start, parser.pos)
    try:
        return IntegerAttr(value, kind)
    except VerifyException as error:
        parser.raise_error(str(error), start, parser.pos)


def _nested(cls: type[ParametrizedAttribute]) -> FieldParser:
    """A nested map: bare `<...>`, `#xetile.wg_map<...>`, or an alias of one."""

    def parse(parser: AttrParser) -> Attribute:
        start = parser.pos
        attribute = parser.parse_optional_attribute()
        if attribute is None:
            return cls.new(cls.parse_parameters(parser))
        if not isinstance(attribute, cls):
            parser.raise_error(f"expected a #{cls.name}, got {attribute}", start, parser.pos)
        return attribute

    return parse


@irdl_attr_definition
class XeMapAttr(ParametrizedAttribute):
    """`#xetile.xe_map<wg = #wg_map, sg = #sg_map>`: the early RFC's pair of maps.

    As the encoding of a tile it is read as `tile_attr<sg_map = ..., wg_map = ...>`.
    """

    name = "xetile.xe_map"

    wg: WgMapAttr | NoneAttr
    sg: SgMapAttr | NoneAttr

    def __init__(self, wg: WgMapAttr | None = None, sg: SgMapAttr | None = None):
        super().__init__(wg or NoneAttr(), sg or NoneAttr())

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        readers: dict[str, FieldParser] = {"wg": _nested(WgMapAttr), "sg": _nested(SgMapAttr)}
        aliases = {"wg_map": "wg", "sg_map": "sg"}
        fields = parse_fields(parser, "xe_map", readers, aliases)
        return [fields.get("wg", NoneAttr()), fields.get("sg", NoneAttr())]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            parts = [("wg", self.wg), ("sg", self.sg)]
            _print_maps(printer, [(key, attr) for key, attr in parts if attr != NoneAttr()])


def _print_maps(printer: Printer, parts: Sequence[tuple[str, Attribute]]) -> None:
    def one(part: tuple[str, Attribute]) -> None:
        name, attribute = part
        assert isinstance(attribute, ParametrizedAttribute)
        printer.print_string(f"{name} = ")
        attribute.print_parameters(printer)

    printer.print_list(parts, one)


def _parse_bool(parser: AttrParser) -> BoolAttr:
    value = BoolAttr.from_bool(parser.parse_boolean())
    if parser.parse_optional_punctuation(":") is not None:
        parser.parse_type()
    return value


@irdl_attr_definition
class TileAttr(ParametrizedAttribute):
    """`#xetile.tile_attr<...>`: what a tile type says beside its shape and element type.

    `order`: dimensions of the tile from the slowest to the fastest in memory, `[1, 0]` (row-major,
    the default, never printed) or `[0, 1]` (column-major). `array_length`: number of tiles, side by
    side along the fastest dimension, that one load reads. `memory_space`: 0 global, 3 shared local
    memory. `scattered`: every element has an offset of its own.
    """

    name = "xetile.tile_attr"

    sg_map: SgMapAttr | NoneAttr
    wg_map: WgMapAttr | NoneAttr
    order: ArrayAttr[IntAttr] | NoneAttr
    array_length: IntegerAttr | NoneAttr
    memory_space: IntegerAttr | NoneAttr
    scattered: BoolAttr | NoneAttr

    ROW_MAJOR: ClassVar[IntPair] = (1, 0)

    def __init__(
        self,
        sg_map: SgMapAttr | None = None,
        wg_map: WgMapAttr | None = None,
        order: Iterable[int] | None = None,
        array_length: int | None = None,
        memory_space: int | None = None,
        scattered: bool | None = None,
    ):
        super().__init__(
            sg_map or NoneAttr(),
            wg_map or NoneAttr(),
            _canonical_order(NoneAttr() if order is None else _int_array(order)),
            NoneAttr() if array_length is None else IntegerAttr(array_length, i64),
            NoneAttr() if memory_space is None else IntegerAttr(memory_space, i64),
            NoneAttr() if scattered is None else BoolAttr.from_bool(scattered),
        )

    def verify(self) -> None:
        if isinstance(self.order, ArrayAttr):
            _check_pair(self.order, "order", minimum=0)
            if sorted(ints(self.order)) != [0, 1]:
                raise VerifyException(
                    f"expect order to be [1, 0] or [0, 1], got {[*ints(self.order)]}"
                )
        if isinstance(self.array_length, IntegerAttr):
            if self.scattered == BoolAttr.from_bool(True):
                raise VerifyException("array_length cannot be used with scattered attribute")
            if self.array_length.value.data < 1:
                raise VerifyException("expect integer greater than 0 for array_length")
        if isinstance(self.memory_space, IntegerAttr) and self.memory_space.value.data < 0:
            raise VerifyException("expect a non-negative integer for memory_space")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        start = parser.pos
        readers: dict[str, FieldParser] = {
            "sg_map": _nested(SgMapAttr),
            "wg_map": _nested(WgMapAttr),
            "order": parse_int_array,
            "array_length": _parse_int,
            "memory_space": _parse_typed_int,
            "scattered": _parse_bool,
        }
        fields = parse_fields(parser, "tile_attr", readers, {"sg": "sg_map", "wg": "wg_map"})
        params = [fields.get(name, NoneAttr()) for name in readers]
        params[2] = _canonical_order(params[2])
        return checked(parser, cls, params, start)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            maps = [("sg_map", self.sg_map), ("wg_map", self.wg_map)]
            present = [(key, attr) for key, attr in maps if attr != NoneAttr()]
            _print_maps(printer, present)
            separator = ", " if present else ""
            if isinstance(self.order, ArrayAttr):
                printer.print_string(separator + "order = ")
                _print_int_array(printer, self.order)
                separator = ", "
            if isinstance(self.array_length, IntegerAttr):
                length = self.array_length.value.data
                printer.print_string(f"{separator}array_length = {length} : i64")
                separator = ", "
            if isinstance(self.memory_space, IntegerAttr):
                printer.print_string(f"{separator}memory_space = ")
                printer.print_attribute(self.memory_space)
                separator = ", "
            if not isinstance(self.scattered, NoneAttr):
                word = "true" if self.scattered.value.data else "false"
                printer.print_string(f"{separator}scattered = {word}")


def _canonical_order(order: Attribute) -> Attribute:
    """The default order has one representation, absence, so that equal types compare equal."""
    if isinstance(order, ArrayAttr) and ints(order) == TileAttr.ROW_MAJOR:
        return NoneAttr()
    return order


READ_HINTS = frozenset({"cached", "uncached", "streaming", "read_invalidate"})
WRITE_HINTS = frozenset({"cached", "uncached", "streaming", "write_back", "write_through"})


@irdl_attr_definition
class CacheHintAttr(EnumAttribute[CacheHint]):
    """`#xetile.cache_hint<cached>`; `CacheHintAttr("cached")` in Python."""

    name = "xetile.cache_hint"

    def __init__(self, data: CacheHint | str):
        super().__init__(CacheHint(data))

    @property
    def kind(self) -> str:
        return self.data.value

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.data.value)

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> CacheHint:
        with parser.in_angle_brackets():
            return parser.parse_str_enum(CacheHint)
