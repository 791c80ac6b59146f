"""Attributes of the XeTile dialect: ownership maps, the tile's encoding, cache hints.

Every attribute prints in one canonical form (that of the dialect's implementation) and reads the
RFCs' variants besides: `wg` / `sg` for `wg_map` / `sg_map`, keywords in any order, nested maps with
or without their `#xetile.` name.
"""

from __future__ import annotations

from collections.abc import Iterable
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
from xdsl.ir import Attribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.attribute_fields import (
    Angled,
    FieldsAttr,
    int_array,
    integer,
    ints,
    nested,
    parse_bool,
    parse_int_array,
    truth,
)
from tilewright.dialects.cache_hints import CacheHint

IntPair = tuple[int, int]
ROW_MAJOR: IntPair = (1, 0)


def _check_pair(array: Attribute, name: str, minimum: int = 1) -> None:
    """Two-dimensional maps only: the dialect's tiles are 2-D."""
    assert isinstance(array, ArrayAttr)
    values = ints(array)
    if len(values) != 2:
        raise VerifyException(f"expect integer array of size 2 for {name}")
    if min(values) < minimum:
        raise VerifyException(f"expect integers of at least {minimum} for {name}, got {[*values]}")


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


@irdl_attr_definition
class SgMapAttr(FieldsAttr):
    """`#xetile.sg_map<wi_layout = [2, 8], wi_data = [1, 2]>`: which work item owns which elements.

    `wi_layout` is the grid of work items of a subgroup, `wi_data` the block that each owns.
    """

    name = "xetile.sg_map"

    wi_layout: ArrayAttr[IntAttr]
    wi_data: ArrayAttr[IntAttr]

    READERS: ClassVar = {"wi_layout": parse_int_array, "wi_data": parse_int_array}
    NEEDED: ClassVar = ("wi_layout", "wi_data")

    def __init__(self, wi_layout: Iterable[int], wi_data: Iterable[int]):
        super().__init__(int_array(wi_layout), int_array(wi_data))

    def verify(self) -> None:
        _check_pair(self.wi_layout, "wi_layout")
        _check_pair(self.wi_data, "wi_data")


@irdl_attr_definition
class WgMapAttr(FieldsAttr):
    """`#xetile.wg_map<sg_layout = [8, 4], sg_data = [32, 64]>`: which subgroup owns which block.

    `sg_layout` is the grid of subgroups of a workgroup, in row-major order of subgroup ids;
    `sg_data` the block of elements that a subgroup owns. `inst_data` (an extension: the
    instruction-sized part of a block) and `broadcast_size` (RFC: contiguous copies along the broadcast dimension of
    the map's tile) are optional.
    """

    name = "xetile.wg_map"

    sg_layout: ArrayAttr[IntAttr]
    sg_data: ArrayAttr[IntAttr]
    inst_data: ArrayAttr[IntAttr] | NoneAttr
    broadcast_size: IntegerAttr | NoneAttr

    READERS: ClassVar = {
        "sg_layout": parse_int_array,
        "sg_data": parse_int_array,
        "inst_data": parse_int_array,
        "broadcast_size": _parse_int,
    }
    NEEDED: ClassVar = ("sg_layout", "sg_data")
    UNTYPED: ClassVar = ("broadcast_size",)

    def __init__(
        self,
        sg_layout: Iterable[int],
        sg_data: Iterable[int],
        inst_data: Iterable[int] | None = None,
        broadcast_size: int | None = None,
    ):
        super().__init__(
            int_array(sg_layout), int_array(sg_data), int_array(inst_data), integer(broadcast_size)
        )

    def verify(self) -> None:
        _check_pair(self.sg_layout, "sg_layout")
        _check_pair(self.sg_data, "sg_data")
        if isinstance(self.inst_data, ArrayAttr):
            _check_pair(self.inst_data, "inst_data")
        size = self.broadcast_size
        if isinstance(size, IntegerAttr) and size.value.data < 1:
            raise VerifyException("expect integer greater than 0 for broadcast_size")


@irdl_attr_definition
class XeMapAttr(FieldsAttr):
    """`#xetile.xe_map<wg = #wg_map, sg = #sg_map>`: the early RFC's pair of maps.

    As the encoding of a tile it is read as `tile_attr<sg_map = ..., wg_map = ...>`.
    """

    name = "xetile.xe_map"

    wg: WgMapAttr | NoneAttr
    sg: SgMapAttr | NoneAttr

    READERS: ClassVar = {"wg": nested(WgMapAttr), "sg": nested(SgMapAttr)}
    ALIASES: ClassVar = {"wg_map": "wg", "sg_map": "sg"}

    def __init__(self, wg: WgMapAttr | None = None, sg: SgMapAttr | None = None):
        super().__init__(wg or NoneAttr(), sg or NoneAttr())


def _canonical_order(order: Attribute) -> Attribute:
    """The default order has one representation, absence, so that equal types compare equal."""
    if isinstance(order, ArrayAttr) and ints(order) == ROW_MAJOR:
        return NoneAttr()
    return order


@irdl_attr_definition
class TileAttr(FieldsAttr):
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

    ROW_MAJOR: ClassVar[IntPair] = ROW_MAJOR

    READERS: ClassVar = {
        "sg_map": nested(SgMapAttr),
        "wg_map": nested(WgMapAttr),
        "order": lambda parser: _canonical_order(parse_int_array(parser)),
        "array_length": _parse_int,
        "memory_space": _parse_typed_int,
        "scattered": parse_bool,
    }
    ALIASES: ClassVar = {"sg": "sg_map", "wg": "wg_map"}

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
            _canonical_order(int_array(order)),
            integer(array_length),
            integer(memory_space),
            truth(scattered),
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


READ_HINTS = frozenset({"cached", "uncached", "streaming", "read_invalidate"})
WRITE_HINTS = frozenset({"cached", "uncached", "streaming", "write_back", "write_through"})


@irdl_attr_definition
class CacheHintAttr(Angled, EnumAttribute[CacheHint]):
    """`#xetile.cache_hint<cached>`; `CacheHintAttr("cached")` in Python."""

    name = "xetile.cache_hint"
