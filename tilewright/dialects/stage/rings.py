"""Rings: buffers in shared memory that asynchronous copies fill in turn.

A ring has `slots` slots; each holds one tile per part, at addresses that the part's order and swizzle give. A cursor is
a position in the ring: it counts fills, and names slot `count mod slots`. For every fill, in this order:

    stage.copy.issue    waits until the slot is free, then starts copies into it
    stage.copy.wait     waits until those copies are done; gives the tiles, which stay in the slot
    stage.copy.release  the tiles are not read any more: the slot is free again

The tiles that a wait gives are values of the workgroup, and undefined once their slot was released.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, ClassVar

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    FloatTF32Type,
    IntAttr,
    UnitAttr,
    VectorType,
    f32,
    i1,
    i64,
)
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    VarConstraint,
    base,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import MemoryAllocEffect, MemoryReadEffect, Pure
from xdsl.utils.exceptions import VerifyException

from tilewright import dtypes
from tilewright.dialects.effects import ORDER, Acts, Writes
from tilewright.dialects.xetile.types import TileType, parse_shape_and_element

if TYPE_CHECKING:
    from tilewright.dialects.stage.puts import PutOp

SWIZZLES = (0, 32, 64, 128)


@irdl_attr_definition
class PartAttr(ParametrizedAttribute):
    """`#stage.part<128x64xbf16, order = [1, 0], swizzle = 128>`: one tile of a slot.

    `order` is the tile's, (1, 0) for rows that are contiguous. With a swizzle, panels of that many bytes of the
    contiguous dimension stand one after the other, and 16-byte chunks of a panel are XORed with its line.
    """

    name = "stage.part"

    shape: ArrayAttr[IntAttr]
    element_type: Attribute
    order: ArrayAttr[IntAttr]
    swizzle: IntAttr

    def __init__(
        self, shape: Sequence[int], element: Attribute, order: Sequence[int], swizzle: int
    ):
        super().__init__(
            ArrayAttr(IntAttr(n) for n in shape),
            element,
            ArrayAttr(IntAttr(n) for n in order),
            IntAttr(swizzle),
        )

    def get_shape(self) -> tuple[int, int]:
        rows, columns = (n.data for n in self.shape)
        return rows, columns

    @property
    def row_major(self) -> bool:
        return self.order.data[0].data == 1

    @property
    def itemsize(self) -> int:
        return dtypes.from_mlir(self.element_type).itemsize

    @property
    def bytes(self) -> int:
        return prod(self.get_shape()) * self.itemsize

    @property
    def lines(self) -> tuple[int, int]:
        """(number of lines, elements of a line), a line being contiguous in the array."""
        rows, columns = self.get_shape()
        return (rows, columns) if self.row_major else (columns, rows)

    @property
    def vector(self) -> VectorType:
        return VectorType(self.element_type, self.get_shape())

    def verify(self) -> None:
        if len(self.shape) != 2 or sorted(n.data for n in self.order) != [0, 1]:
            raise VerifyException("a part of a ring is a matrix, its order [1, 0] or [0, 1]")
        swizzle = self.swizzle.data
        if swizzle not in SWIZZLES:
            raise VerifyException(f"a swizzle spans 0, 32, 64 or 128 bytes, not {swizzle}")
        if swizzle and self.lines[1] * self.itemsize % swizzle:
            raise VerifyException(
                f"lines of {self.lines[1] * self.itemsize} bytes are no multiple of a swizzle of {swizzle} bytes"
            )

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            shape, element = parse_shape_and_element(parser)
            order, swizzle = [1, 0], 0
            while parser.parse_optional_punctuation(",") is not None:
                if parser.parse_optional_keyword("order") is not None:
                    parser.parse_punctuation("=")
                    order = parser.parse_comma_separated_list(
                        parser.Delimiter.SQUARE, parser.parse_integer
                    )
                else:
                    parser.parse_keyword("swizzle")
                    parser.parse_punctuation("=")
                    swizzle = parser.parse_integer()
        return [
            ArrayAttr(IntAttr(n) for n in shape),
            element,
            ArrayAttr(IntAttr(n) for n in order),
            IntAttr(swizzle),
        ]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_dimension_list(self.get_shape())
            printer.print_string("x")
            printer.print_attribute(self.element_type)
            slow, fast = (n.data for n in self.order)
            printer.print_string(f", order = [{slow}, {fast}], swizzle = {self.swizzle.data}")


@irdl_attr_definition
class RingType(ParametrizedAttribute, TypeAttribute):
    """`!stage.ring<4, [#stage.part<..>, #stage.part<..>]>`: slots, and the tiles of each."""

    name = "stage.ring"

    slots: IntAttr
    parts: ArrayAttr[PartAttr]

    def __init__(self, slots: int, parts: Sequence[PartAttr]):
        super().__init__(IntAttr(slots), ArrayAttr(parts))

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot; parts follow one another, each at a multiple of 1024 bytes."""
        return sum(-(-part.bytes // 1024) * 1024 for part in self.parts)

    def verify(self) -> None:
        if self.slots.data < 1 or not self.parts.data:
            raise VerifyException("a ring has at least one slot of at least one part")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            slots = parser.parse_integer()
            parser.parse_punctuation(",")
            parts = parser.parse_comma_separated_list(
                parser.Delimiter.SQUARE, parser.parse_attribute
            )
        return [IntAttr(slots), ArrayAttr(parts)]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"{self.slots.data}, [")
            printer.print_list(self.parts, printer.print_attribute)
            printer.print_string("]")


@irdl_attr_definition
class CursorType(ParametrizedAttribute, TypeAttribute):
    """`!stage.cursor<4>`: a position in a ring of that many slots."""

    name = "stage.cursor"

    slots: IntAttr

    def __init__(self, slots: int):
        super().__init__(IntAttr(slots))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return [IntAttr(parser.parse_integer())]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(str(self.slots.data))


@irdl_op_definition
class RingOp(IRDLOperation):
    """`%r = stage.ring : !stage.ring<...>`: a ring, all slots free. It lives as long as the workgroup."""

    name = "stage.ring"
    result = result_def(RingType)
    traits = traits_def(MemoryAllocEffect())
    assembly_format = "attr-dict `:` type($result)"

    def __init__(self, type: RingType):
        super().__init__(result_types=[type])


@irdl_op_definition
class CursorOp(IRDLOperation):
    """`%c = stage.cursor : !stage.cursor<4>`: the first fill of a ring."""

    name = "stage.cursor"
    result = result_def(CursorType)
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"

    def __init__(self, slots: int):
        super().__init__(result_types=[CursorType(slots)])


@irdl_op_definition
class AdvanceOp(IRDLOperation):
    """`%d = stage.advance %c : !stage.cursor<4>`: the fill after that of `c`."""

    name = "stage.advance"
    T: ClassVar = VarConstraint("T", base(CursorType))
    cursor = operand_def(T)
    result = result_def(T)
    traits = traits_def(Pure())
    assembly_format = "$cursor attr-dict `:` type($cursor)"

    def __init__(self, cursor: SSAValue):
        super().__init__(operands=[cursor], result_types=[cursor.type])


def ring_type(value: SSAValue) -> RingType:
    """The type of a ring."""
    assert isinstance(value.type, RingType)
    return value.type


def check_cursor(op: CopyIssueOp | CopyWaitOp | CopyReleaseOp | PutOp) -> None:
    """The cursor belongs to a ring of as many slots."""
    assert isinstance(op.cursor.type, CursorType)
    have, want = op.cursor.type.slots.data, ring_type(op.ring).slots.data
    if have != want:
        raise VerifyException(f"{op.name}: a cursor of {have} slots in a ring of {want} slots")


def check_parts(name: str, ring: RingType, given: Sequence[Attribute]) -> None:
    """The tiles or vectors given are the parts of the ring."""
    if len(given) != len(ring.parts):
        raise VerifyException(f"{name}: {len(given)} tiles for a ring of {len(ring.parts)} parts")
    for type, part in zip(given, ring.parts, strict=True):
        assert isinstance(type, TileType | VectorType)
        same = type.element_type == part.element_type or (
            # The copy engine rounds f32 to tf32 on the way.
            isinstance(type, TileType)
            and type.element_type == f32
            and isinstance(part.element_type, FloatTF32Type)
        )
        if type.get_shape() != part.get_shape() or not same:
            raise VerifyException(f"{name}: {type} is not the part {part}")


@irdl_op_definition
class CopyIssueOp(IRDLOperation):
    """Waits until the slot of `cursor` is free, then starts the copies of tiles into it.

    ```mlir
    stage.copy.issue %r[%c], %a, %b
      : !stage.ring<..>, !stage.cursor<4>, !xetile.tile<128x64xbf16>, !xetile.tile<64x256xbf16>
    ```
    Elements outside an array are zero; those of a tile of f32 are rounded where the part has tf32. `multicast` has a 1
    for each tile that all workgroups of the cluster copy alike, at the same fill: each brings a part of it to all, and
    its slot is free when all have released it.
    """

    name = "stage.copy.issue"
    ring = operand_def(RingType)
    cursor = operand_def(CursorType)
    tiles = var_operand_def(TileType)
    multicast = opt_prop_def(DenseArrayBase.constr(i64))
    traits = traits_def(MemoryReadEffect(), Acts(ORDER))
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = (
        "$ring `[` $cursor `]` `,` $tiles attr-dict "
        "`:` type($ring) `,` type($cursor) `,` type($tiles)"
    )

    def __init__(
        self,
        ring: SSAValue,
        cursor: SSAValue,
        tiles: Sequence[SSAValue],
        multicast: Sequence[bool] = (),
    ):
        shared = DenseArrayBase.from_list(i64, [int(m) for m in multicast])
        super().__init__(
            operands=[ring, cursor, tiles],
            properties={"multicast": shared if any(multicast) else None},
        )

    @property
    def shared(self) -> tuple[bool, ...]:
        """For each tile, whether all workgroups of the cluster copy it alike."""
        if self.multicast is None:
            return (False,) * len(self.tiles)
        return tuple(bool(v) for v in self.multicast.get_values())

    def verify_(self) -> None:
        check_cursor(self)
        if len(self.shared) != len(self.tiles):
            raise VerifyException(f"{self.name}: multicast has one entry for each tile")
        check_parts(self.name, ring_type(self.ring), [t.type for t in self.tiles])
        for tile, part in zip(self.tiles, ring_type(self.ring).parts, strict=True):
            assert isinstance(tile.type, TileType)
            if tile.type.order != tuple(n.data for n in part.order):
                raise VerifyException(f"{self.name}: {tile.type} is not in the order of {part}")


@irdl_op_definition
class CopyWaitOp(IRDLOperation):
    """Waits until the copies into the slot of `cursor` are done; its tiles.

    ```mlir
    %a, %b = stage.copy.wait %r[%c]
      : !stage.ring<..>, !stage.cursor<4> -> vector<128x64xbf16>, vector<64x256xbf16>
    ```
    """

    name = "stage.copy.wait"
    ring = operand_def(RingType)
    cursor = operand_def(CursorType)
    values = var_result_def(VectorType)
    traits = traits_def(Acts(ORDER))
    assembly_format = (
        "$ring `[` $cursor `]` attr-dict `:` type($ring) `,` type($cursor) `->` type($values)"
    )

    def __init__(self, ring: SSAValue, cursor: SSAValue):
        assert isinstance(ring.type, RingType)
        super().__init__(
            operands=[ring, cursor], result_types=[[p.vector for p in ring.type.parts]]
        )

    def verify_(self) -> None:
        check_cursor(self)
        check_parts(self.name, ring_type(self.ring), [v.type for v in self.values])


@irdl_op_definition
class ReadOp(IRDLOperation):
    """`%v = stage.read %a : vector<128x64xbf16>`: a tile that lies in a slot, as a value that threads hold."""

    name = "stage.read"
    T: ClassVar = VarConstraint("T", base(VectorType))
    tile = operand_def(T)
    result = result_def(T)
    traits = traits_def(MemoryReadEffect())
    assembly_format = "$tile attr-dict `:` type($tile)"

    def __init__(self, tile: SSAValue):
        super().__init__(operands=[tile], result_types=[tile.type])

    def verify_(self) -> None:
        if not isinstance(self.tile.owner, CopyWaitOp):
            raise VerifyException(f"{self.name}: reads what a stage.copy.wait gave")


@irdl_op_definition
class ReadPartOp(IRDLOperation):
    """A part of a tile that lies in a slot, as a value that threads hold.

    ```mlir
    %v = stage.read.part %a {offsets = array<i64: 0, 16>} : vector<128x64xi8> -> vector<128x16xi8>
    ```
    """

    name = "stage.read.part"
    tile = operand_def(VectorType)
    offsets = prop_def(DenseArrayBase.constr(i64))
    result = result_def(VectorType)
    traits = traits_def(MemoryReadEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$tile attr-dict `:` type($tile) `->` type($result)"

    def __init__(self, tile: SSAValue, offsets: Sequence[int], result: VectorType):
        super().__init__(
            operands=[tile],
            properties={"offsets": DenseArrayBase.from_list(i64, list(offsets))},
            result_types=[result],
        )

    @property
    def start(self) -> tuple[int, ...]:
        """The first element's place in the tile."""
        return tuple(int(v) for v in self.offsets.get_values())

    def verify_(self) -> None:
        if not isinstance(self.tile.owner, CopyWaitOp):
            raise VerifyException(f"{self.name}: reads what a stage.copy.wait gave")
        whole, part = self.tile.type, self.result.type
        assert isinstance(whole, VectorType) and isinstance(part, VectorType)
        ends = [o + n for o, n in zip(self.start, part.get_shape(), strict=False)]
        inside = all(e <= n for e, n in zip(ends, whole.get_shape(), strict=False))
        same = whole.element_type == part.element_type and len(self.start) == 2
        if not same or not inside or min(self.start) < 0:
            raise VerifyException(
                f"{self.name}: {part} at {list(self.start)} is no part of {whole}"
            )


@irdl_op_definition
class CopyReleaseOp(IRDLOperation):
    """The tiles of the slot of `cursor` are not read any more: it is free for the next copies.

    ```mlir
    stage.copy.release %r[%c] when %again : !stage.ring<..>, !stage.cursor<4>
    ```
    With `when`, only if that holds.
    """

    name = "stage.copy.release"
    ring = operand_def(RingType)
    cursor = operand_def(CursorType)
    condition = opt_operand_def(i1)
    traits = traits_def(Acts(ORDER))
    assembly_format = (
        "$ring `[` $cursor `]` (`when` $condition^)? attr-dict `:` type($ring) `,` type($cursor)"
    )

    def __init__(self, ring: SSAValue, cursor: SSAValue, condition: SSAValue | None = None):
        super().__init__(operands=[ring, cursor, condition])

    def verify_(self) -> None:
        check_cursor(self)


@irdl_op_definition
class StoreOp(IRDLOperation):
    """Stores a value to a tile through staging buffers, beside the program.

    ```mlir
    stage.store %v, %t through %r : vector<128x256xbf16>, !xetile.tile<128x256xbf16>, !stage.ring<..>
    stage.store %v, %t through %r {transpose} : vector<128x48xbf16>, !xetile.tile<48x128xbf16>, !stage.ring<..>
    ```
    `transpose`: columns of the value are rows of the tile. `r` belongs to stores alone: its parts are the panels that a
    warpgroup writes before the copy engine takes them. The store is done when the kernel ends.
    """

    name = "stage.store"
    value = operand_def(VectorType)
    tile = operand_def(TileType)
    ring = operand_def(RingType)
    transpose = opt_prop_def(UnitAttr)
    traits = traits_def(Writes("tile"), Acts(ORDER))
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = (
        "$value `,` $tile `through` $ring attr-dict "
        "`:` type($value) `,` type($tile) `,` type($ring)"
    )

    def __init__(self, value: SSAValue, tile: SSAValue, ring: SSAValue, transpose: bool = False):
        properties = {"transpose": UnitAttr()} if transpose else {}
        super().__init__(operands=[value, tile, ring], properties=properties)

    def verify_(self) -> None:
        value, tile = self.value.type, self.tile.type
        assert isinstance(value, VectorType) and isinstance(tile, TileType)
        shape = value.get_shape()
        stored = shape if self.transpose is None else shape[::-1]
        if stored != tile.get_shape() or value.element_type != tile.element_type:
            across = "" if self.transpose is None else ", transposed,"
            raise VerifyException(f"{self.name}: {value}{across} is not the tile {tile}")
