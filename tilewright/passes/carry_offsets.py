"""carry-offsets: what loops and branches carry of a scattered tile is its offsets.

    scf.for .. iter_args(%t = %tile) -> !xetile.tile<16xf32, ..> {      scf.for .. iter_args(%o = %offsets) -> .. {
      %v = xetile.load %t                                                 %t = xetile.init_tile %a, %o
      %u = xetile.update_tile_offset %t, %by                        ->    %v = xetile.load %t
      scf.yield %u }                                                      %p = arith.addi %o, %by
                                                                          scf.yield %p }

Requires: a workgroup's program. Guarantees: the same results; a scattered tile is made where it is read or written.
A kernel with a tile that may lie in one of several arrays, or in one that is not known everywhere, stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import gpu
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from tilewright.dialects import xetile
from tilewright.dialects.xetile.assembly import Index
from tilewright.passes.emit import Before
from tilewright.passes.induction import same_view
from tilewright.passes.positions import Placed, PositionRewriter
from tilewright.passes.tile_origin import tile_origin


def carry_offsets(kernel: gpu.FuncOp) -> None:
    """Lets loops carry the offsets of scattered tiles."""
    moved = [tile for tile in _tiles(kernel) if not isinstance(tile.owner, xetile.InitTileOp)]
    carried = any(not isinstance(t.owner, xetile.UpdateTileOffsetOp) for t in moved)
    if carried and all(_known(tile_origin(tile), kernel) for tile in moved):
        PositionRewriter(_ScatteredTiles()).run(kernel.body)


class _ScatteredTiles:
    """What XeTile's ops are to the splitting of scattered tiles into array and offsets."""

    def is_moving(self, type: Attribute) -> bool:
        return isinstance(type, xetile.TileType) and type.scattered

    def root(self, op: Operation) -> Placed | None:
        if not isinstance(op, xetile.InitTileOp) or op.offset_vector is None:
            return None
        return Placed(same_view(op.source), [op.offset_vector])

    def moved(self, op: Operation, operand: Placed) -> list[Index] | None:
        if isinstance(op, xetile.UpdateTileOffsetOp) and op.offset_vector is not None:
            return [op.offset_vector]
        return None

    def access(self, op: Operation, placed: dict[int, Placed]) -> None:
        """The tile is made again, where it is not that of an init_tile."""
        for place, at in placed.items():
            tile, (offsets,) = op.operands[place], at.parts
            if not isinstance(tile.owner, xetile.InitTileOp):
                assert isinstance(tile.type, xetile.TileType) and isinstance(offsets, SSAValue)
                new = xetile.InitTileOp(at.root, tile.type, offset_vector=offsets)
                op.operands[place] = Before(op).add(new)


def _tiles(kernel: gpu.FuncOp) -> Iterator[SSAValue]:
    """The scattered tiles of a kernel."""
    for op in kernel.walk():
        for value in (*op.results, *(a for r in op.regions for b in r.blocks for a in b.args)):
            if isinstance(value.type, xetile.TileType) and value.type.scattered:
                yield value


def _known(origin: xetile.InitTileOp | None, kernel: gpu.FuncOp) -> bool:
    """Whether the array of a tile is there in the whole kernel."""
    source = None if origin is None else same_view(origin.source)
    return isinstance(source, BlockArgument) and source.block.parent_op() is kernel
