"""Multi-buffers: buffers in shared memory that asynchronous copies fill in turn.

A multi-buffer has `slots` slots; each holds one tile per part, at addresses that the part's order and swizzle give. A
pipeline state is a position in the multi-buffer: it counts fills, and names slot `count mod slots`. For every fill, in
this order:

    stage.copy.issue    waits until the slot is free, then starts copies into it
    stage.copy.wait     waits until those copies are done; gives the tiles, which stay in the slot
    stage.copy.release  the tiles are not read any more: the slot is free again

The tiles that a wait gives are values of the workgroup, and undefined once their slot was released.

The copy engine fills a multi-buffer (TMA), or, with `by_threads`, the threads that run the program do (cp.async).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from xdsl.dialects import func, gpu
from xdsl.dialects.builtin import FloatTF32Type, MemRefType, VectorType, f32, i1
from xdsl.ir import Attribute, BlockArgument, SSAValue
from xdsl.irdl import AttrSizedOperandSegments, ParsePropInAttrDict, VarConstraint, base, traits_def
from xdsl.traits import MemoryAllocEffect, MemoryReadEffect, Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.effects import ORDER, Acts, Writes
from tilewright.dialects.fields import (
    Flag,
    Inferred,
    Int,
    Ints,
    Op,
    Operand,
    Operands,
    OptOperand,
    Result,
    Results,
    op_definition,
)
from tilewright.dialects.nesting import enclosing
from tilewright.dialects.stage.types import MultiBufferType, PipelineStateType
from tilewright.dialects.xetile.types import TileType


@op_definition
class MultiBufferOp(Op):
    """`%r = stage.multi_buffer : !stage.multi_buffer<...>`: all slots free, for the life of a workgroup.

    With `by_threads`, all threads take part in each copy, and a fill is one group of their copies.
    """

    name = "stage.multi_buffer"
    result: Result[MultiBufferType] = Result(MultiBufferType)
    by_threads: Flag = Flag()
    traits = traits_def(MemoryAllocEffect())
    assembly_format = "attr-dict `:` type($result)"


@op_definition
class DeallocOp(Op):
    """`stage.dealloc %r : !stage.multi_buffer<...>`: no copy into it is under way, and its memory is free.

    All slots are free; the multi-buffer is filled by threads.
    """

    name = "stage.dealloc"
    buffer: Operand[MultiBufferType] = Operand(MultiBufferType)
    traits = traits_def(Acts(ORDER))
    assembly_format = "$buffer attr-dict `:` type($buffer)"

    def verify_(self) -> None:
        if not is_by_threads(self.buffer):
            raise VerifyException(f"{self.name}: its buffer is filled by the copy engine")


@op_definition
class PipelineStateOp(Op):
    """`%c = stage.pipeline_state : !stage.pipeline_state<4>`: the first fill of a multi-buffer."""

    name = "stage.pipeline_state"
    result: Result[PipelineStateType] = Result(PipelineStateType)
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"

    def __init__(self, slots: int):
        super().__init__(PipelineStateType(slots))


@op_definition
class AdvanceOp(Op):
    """`%d = stage.advance %c : !stage.pipeline_state<4>`: the fill after that of `c`."""

    name = "stage.advance"
    T: ClassVar = VarConstraint("T", base(PipelineStateType))
    state: Operand = Operand(T)
    result = Inferred(T, "state")
    traits = traits_def(Pure())
    assembly_format = "$state attr-dict `:` type($state)"


def buffer_type(value: SSAValue) -> MultiBufferType:
    """The type of a multi-buffer."""
    assert isinstance(value.type, MultiBufferType)
    return value.type


def is_by_threads(buffer: SSAValue) -> bool:
    """Do threads fill a multi-buffer, and not the copy engine?"""
    return isinstance(buffer.owner, MultiBufferOp) and buffer.owner.by_threads


def is_gathered(buffer: SSAValue) -> bool:
    """Do threads of another role copy single lines into a multi-buffer?"""
    return any(isinstance(use.operation, GatherIssueOp) for use in buffer.uses)


def check_state(
    op: CopyIssueOp | GatherIssueOp | CopyWaitOp | CopyReleaseOp | LocalStoreOp,
) -> None:
    """The pipeline state belongs to a multi-buffer of as many slots."""
    have, want = op.state.type.slots.data, buffer_type(op.buffer).slots.data
    if have != want:
        raise VerifyException(f"{op.name}: a state of {have} slots in a buffer of {want} slots")


def check_parts(name: str, buffer: MultiBufferType, given: Sequence[Attribute]) -> None:
    """The tiles or vectors given are the parts of the multi-buffer."""
    if len(given) != len(buffer.parts):
        raise VerifyException(
            f"{name}: {len(given)} tiles for a buffer of {len(buffer.parts)} parts"
        )
    for type, part in zip(given, buffer.parts, strict=True):
        assert isinstance(type, TileType | VectorType)
        same = type.element_type == part.element_type or (
            # The copy engine rounds f32 to tf32 on the way.
            isinstance(type, TileType)
            and type.element_type == f32
            and isinstance(part.element_type, FloatTF32Type)
        )
        if type.get_shape() != part.get_shape() or not same:
            raise VerifyException(f"{name}: {type} is not the part {part}")


@op_definition
class CopyIssueOp(Op):
    """Waits until the slot of `state` is free, then starts the copies of tiles into it.

    ```mlir
    stage.copy.issue %r[%c], %a, %b
      : !stage.multi_buffer<..>, !stage.pipeline_state<4>, !xetile.tile<128x64xbf16>, !xetile.tile<64x256xbf16>
    ```
    With `%r[%c] when %runs`, only if that holds; if not, nothing waits for this fill. Elements outside an array are
    zero; those of a tile of f32 are rounded where the part has tf32. Each four numbers of `stored` are a tile, one of
    its dimensions, an array argument of the kernel and a dimension of it: elements from the coordinate on that this
    array ends at are undefined, for nothing sees them.
    """

    name = "stage.copy.issue"
    buffer: Operand[MultiBufferType] = Operand(MultiBufferType)
    state: Operand[PipelineStateType] = Operand(PipelineStateType)
    tiles: Operands[TileType] = Operands(TileType)
    stored: Ints = Ints(default=(), implicit=True)
    condition: OptOperand = OptOperand(i1, default=None)
    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    traits = traits_def(MemoryReadEffect(), Acts(ORDER))
    assembly_format = (
        "$buffer `[` $state `]` (`when` $condition^)? `,` $tiles attr-dict "
        "`:` type($buffer) `,` type($state) `,` type($tiles)"
    )

    def bounds(self, tile: int) -> Iterator[tuple[int, BlockArgument, int]]:
        """(dimension of a tile, array, dimension of it) of what `stored` says of one of the tiles."""
        arrays = self._arguments()
        for at in range(0, len(self.stored), 4):
            if self.stored[at] == tile:
                dim, argument, dimension = self.stored[at + 1 : at + 4]
                yield dim, arrays[argument], dimension

    def _arguments(self) -> Sequence[BlockArgument]:
        """Of the kernel that the op stands in; none where it stands in no function."""
        around = enclosing(self, gpu.FuncOp, func.FuncOp)
        return () if around is None else around.body.block.args

    def _is_bound(self, tile: int, dim: int, argument: int, dimension: int) -> bool:
        arrays = self._arguments()
        if not (0 <= tile < len(self.tiles) and 0 <= dim < 2 and 0 <= argument < len(arrays)):
            return False
        type = arrays[argument].type
        return isinstance(type, MemRefType) and 0 <= dimension < type.get_num_dims()

    def verify_(self) -> None:
        check_state(self)
        check_parts(self.name, buffer_type(self.buffer), [t.type for t in self.tiles])
        if len(self.stored) % 4:
            raise VerifyException(f"{self.name}: `stored` has no four numbers for each bound")
        for at in range(0, len(self.stored), 4):
            if not self._is_bound(*self.stored[at : at + 4]):
                raise VerifyException(
                    f"{self.name}: `stored` names no dimension of a tile and of an array: {self.stored[at : at + 4]}"
                )
        if is_by_threads(self.buffer):
            return
        if self.condition is not None:
            raise VerifyException(f"{self.name}: the copy engine takes no condition")
        for tile, part in zip(self.tiles, buffer_type(self.buffer).parts, strict=True):
            if not part.swizzle.data:
                raise VerifyException(
                    f"{self.name}: the copy engine fills no {part}, without panels"
                )
            if tile.type.order != tuple(n.data for n in part.order):
                raise VerifyException(f"{self.name}: {tile.type} is not in the order of {part}")


@op_definition
class GatherIssueOp(Op):
    """Waits until the slot of `state` is free, then all threads that run the op start to copy a tile into it: elements
    at offsets of their own, or lines that the copy engine cannot address.

    ```mlir
    stage.gather.issue %r[%c], %t, %mask : !stage.multi_buffer<..>, !stage.pipeline_state<4>,
      !xetile.tile<128x64xbf16, #scattered>, vector<128x64xi1>
    ```
    The multi-buffer has one part. Elements that are masked off or outside of the array are zero. `stage.copy.wait`
    gives the tile.
    """

    name = "stage.gather.issue"
    buffer: Operand[MultiBufferType] = Operand(MultiBufferType)
    state: Operand[PipelineStateType] = Operand(PipelineStateType)
    tile: Operand[TileType] = Operand(TileType)
    mask: OptOperand[VectorType] = OptOperand(VectorType, default=None)
    traits = traits_def(MemoryReadEffect(), Acts(ORDER))
    assembly_format = (
        "$buffer `[` $state `]` `,` $tile (`,` $mask^)? attr-dict "
        "`:` type($buffer) `,` type($state) `,` type($tile) (`,` type($mask)^)?"
    )

    def verify_(self) -> None:
        check_state(self)
        check_parts(self.name, buffer_type(self.buffer), [self.tile.type])


@op_definition
class CopyWaitOp(Op):
    """Waits until the copies into the slot of `state` are done; its tiles.

    ```mlir
    %a, %b = stage.copy.wait %r[%c]
      : !stage.multi_buffer<..>, !stage.pipeline_state<4> -> vector<128x64xbf16>, vector<64x256xbf16>
    ```
    Copies by threads are waited for in the order of their issues: all but the last `pending` fills of the program are
    done then. The copy engine says of each fill when it is done.
    """

    name = "stage.copy.wait"
    buffer: Operand[MultiBufferType] = Operand(MultiBufferType)
    state: Operand[PipelineStateType] = Operand(PipelineStateType)
    values: Results[VectorType] = Results(VectorType)
    pending: Int = Int(default=0, implicit=True)
    traits = traits_def(Acts(ORDER))
    assembly_format = (
        "$buffer `[` $state `]` attr-dict `:` type($buffer) `,` type($state) `->` type($values)"
    )

    def __init__(self, buffer: SSAValue, state: SSAValue, pending: int = 0):
        assert isinstance(buffer.type, MultiBufferType)
        super().__init__(buffer, state, [p.vector for p in buffer.type.parts], pending)

    def verify_(self) -> None:
        check_state(self)
        most = self.pending if is_by_threads(self.buffer) else 0
        if not 0 <= self.pending <= most:
            raise VerifyException(f"{self.name}: {self.pending} fills cannot stay pending")
        check_parts(self.name, buffer_type(self.buffer), [v.type for v in self.values])


@op_definition
class ReadOp(Op):
    """`%v = stage.read %a : vector<128x64xbf16>`: a tile that lies in a slot, as a value that threads hold."""

    name = "stage.read"
    T: ClassVar = VarConstraint("T", base(VectorType))
    tile: Operand = Operand(T)
    result = Inferred(T, "tile")
    traits = traits_def(MemoryReadEffect())
    assembly_format = "$tile attr-dict `:` type($tile)"

    def verify_(self) -> None:
        if not isinstance(self.tile.owner, CopyWaitOp):
            raise VerifyException(f"{self.name}: reads what a stage.copy.wait gave")


@op_definition
class ReadPartOp(Op):
    """A part of a tile that lies in a slot, as a value that threads hold.

    ```mlir
    %v = stage.read.part %a {offsets = array<i64: 0, 16>} : vector<128x64xi8> -> vector<128x16xi8>
    ```
    """

    name = "stage.read.part"
    tile: Operand[VectorType] = Operand(VectorType)
    offsets: Ints = Ints()
    """The first element's place in the tile."""
    result: Result[VectorType] = Result(VectorType)
    traits = traits_def(MemoryReadEffect())
    assembly_format = "$tile attr-dict `:` type($tile) `->` type($result)"

    def verify_(self) -> None:
        if not isinstance(self.tile.owner, CopyWaitOp):
            raise VerifyException(f"{self.name}: reads what a stage.copy.wait gave")
        whole, part = self.tile.type, self.result.type
        ends = [o + n for o, n in zip(self.offsets, part.get_shape(), strict=False)]
        inside = all(e <= n for e, n in zip(ends, whole.get_shape(), strict=False))
        same = whole.element_type == part.element_type and len(self.offsets) == 2
        if not same or not inside or min(self.offsets) < 0:
            raise VerifyException(
                f"{self.name}: {part} at {list(self.offsets)} is not a part of {whole}"
            )


@op_definition
class CopyReleaseOp(Op):
    """The tiles of the slot of `state` are not read any more: it is free for the next copies.

    ```mlir
    stage.copy.release %r[%c] when %again : !stage.multi_buffer<..>, !stage.pipeline_state<4>
    ```
    With `when`, only if that holds.
    """

    name = "stage.copy.release"
    buffer: Operand[MultiBufferType] = Operand(MultiBufferType)
    state: Operand[PipelineStateType] = Operand(PipelineStateType)
    condition: OptOperand = OptOperand(i1, default=None)
    traits = traits_def(Acts(ORDER))
    assembly_format = (
        "$buffer `[` $state `]` (`when` $condition^)? attr-dict `:` type($buffer) `,` type($state)"
    )

    CHECK = check_state


@op_definition
class CopyStoreOp(Op):
    """Stores a value to a tile through staging buffers, beside the program.

    ```mlir
    stage.copy.store %v, %t through %r : vector<128x256xbf16>, !xetile.tile<128x256xbf16>, !stage.multi_buffer<..>
    stage.copy.store %v, %t through %r {transpose} : vector<128x48xbf16>, !xetile.tile<48x128xbf16>,
    !stage.multi_buffer<..>
    ```
    `transpose`: columns of the value are rows of the tile. `r` belongs to stores alone: its parts are the panels that a
    warpgroup writes before the copy engine takes them. The store is done when the kernel ends.
    """

    name = "stage.copy.store"
    value: Operand[VectorType] = Operand(VectorType)
    tile: Operand[TileType] = Operand(TileType)
    buffer: Operand[MultiBufferType] = Operand(MultiBufferType)
    transpose: Flag = Flag()
    traits = traits_def(Writes("tile"), Acts(ORDER))
    assembly_format = (
        "$value `,` $tile `through` $buffer attr-dict "
        "`:` type($value) `,` type($tile) `,` type($buffer)"
    )

    def verify_(self) -> None:
        value, tile = self.value.type, self.tile.type
        shape = value.get_shape()
        stored = shape[::-1] if self.transpose else shape
        if stored != tile.get_shape() or value.element_type != tile.element_type:
            across = ", transposed," if self.transpose else ""
            raise VerifyException(f"{self.name}: {value}{across} is not the tile {tile}")


@op_definition
class LocalStoreOp(Op):
    """Waits until the slot of `state` is free, then writes a value into it: a fill by threads.

    ```mlir
    stage.local_store %r[%c], %v : !stage.multi_buffer<..>, !stage.pipeline_state<2>, vector<64x128xbf16>
    ```
    The multi-buffer has one part, of the value's type. `stage.copy.wait` gives the value as it lies there.
    """

    name = "stage.local_store"
    buffer: Operand[MultiBufferType] = Operand(MultiBufferType)
    state: Operand[PipelineStateType] = Operand(PipelineStateType)
    value: Operand[VectorType] = Operand(VectorType)
    traits = traits_def(Acts(ORDER))
    assembly_format = (
        "$buffer `[` $state `]` `,` $value attr-dict `:` type($buffer) `,` type($state) `,` "
        "type($value)"
    )

    def verify_(self) -> None:
        check_state(self)
        check_parts(self.name, self.buffer.type, [self.value.type])
