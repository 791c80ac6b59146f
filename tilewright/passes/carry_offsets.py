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

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import IndexType, VectorType
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.dialects import xetile
from tilewright.passes.emit import Before
from tilewright.passes.tile_origin import tile_origin


def carry_offsets(kernel: gpu.FuncOp) -> None:
    """Rewrites a kernel, in place."""
    moved = [tile for tile in _scattered(kernel) if not isinstance(tile.owner, xetile.InitTileOp)]
    carried = [t for t in moved if not isinstance(t.owner, xetile.UpdateTileOffsetOp)]
    origins = {tile: tile_origin(tile) for tile in moved}
    if not carried or not all(o is not None and _known(o, kernel) for o in origins.values()):
        return
    offsets: dict[SSAValue, SSAValue] = {}
    made_by: dict[SSAValue, xetile.InitTileOp] = {}
    for tile in carried:
        origin, kind = origins[tile], tile.type
        assert origin is not None and isinstance(kind, xetile.TileType)
        vector = VectorType(IndexType(), kind.get_shape())
        new = Rewriter.replace_value_with_new_type(tile, vector)
        offsets[new], made_by[new] = new, origin
    updates: list[Operation] = []
    for op in list(kernel.walk()):
        if isinstance(op, xetile.InitTileOp) and op.offset_vector is not None:
            offsets[op.results[0]], made_by[op.results[0]] = op.offset_vector, op
        for place, operand in enumerate(op.operands):
            if operand not in offsets:
                continue
            at, origin = Before(op), made_by[operand]
            if isinstance(op, xetile.UpdateTileOffsetOp):
                assert op.offset_vector is not None
                further = at.add(arith.AddiOp(offsets[operand], op.offset_vector))
                offsets[op.result], made_by[op.result] = further, origin
                updates.append(op)
            elif op.name.startswith("scf.") or isinstance(op, arith.SelectOp):
                op.operands[place] = offsets[operand]
            elif operand.owner is not origin:
                op.operands[place] = at.add(_again(origin, offsets[operand]))
    for op in reversed(updates):
        Rewriter.erase_op(op)


def _scattered(kernel: gpu.FuncOp) -> Iterator[SSAValue]:
    """The scattered tiles of a kernel."""
    for op in kernel.walk():
        for value in (*op.results, *(a for r in op.regions for b in r.blocks for a in b.args)):
            if isinstance(value.type, xetile.TileType) and value.type.scattered:
                yield value


def _known(origin: xetile.InitTileOp, kernel: gpu.FuncOp) -> bool:
    """Whether all but the offsets is there in the whole kernel."""
    return all(
        isinstance(x, BlockArgument) and x.block.parent_op() is kernel
        for x in origin.operands
        if x is not origin.offset_vector
    )


def _again(origin: xetile.InitTileOp, offsets: SSAValue) -> Operation:
    """The tile with other offsets."""
    given = [offsets if x is origin.offset_vector else x for x in origin.operands]
    return xetile.InitTileOp.create(
        operands=given, result_types=[origin.results[0].type], properties=dict(origin.properties)
    )
