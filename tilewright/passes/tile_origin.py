"""Where a tile comes from: the init_tile behind moves, loops, branches and selections."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import arith, scf
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from tilewright.dialects import xetile
from tilewright.passes.induction import same_view


def tile_origin(tile: SSAValue) -> xetile.InitTileOp | None:
    """The init_tile that a tile goes back to.

    Several of the same memref, type, sizes and strides count as one; None where they differ, or where
    a tile comes from something else.
    """
    found = _reachable(tile)
    same = found and all(_same_base(found[0], o) for o in found)
    return found[0] if same else None


def _reachable(tile: SSAValue) -> list[xetile.InitTileOp]:
    """The init_tile ops that a tile may go back to; empty where one source is of another kind."""
    found: list[xetile.InitTileOp] = []
    seen: set[SSAValue] = set()
    pending = [tile]
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value, OpResult) and isinstance(value.op, xetile.InitTileOp):
            found.append(value.op)
            continue
        sources = list(_tile_sources(value))
        if not sources:
            return []
        pending += reversed(sources)
    return found


def _tile_sources(tile: SSAValue) -> Iterator[SSAValue]:
    """The tiles that a tile may be a moved copy of."""
    if isinstance(tile, BlockArgument):
        op = tile.block.parent_op()
        if isinstance(op, scf.ForOp):
            yield op.iter_args[tile.index - 1]
            yield _last(tile.block).operands[tile.index - 1]
        elif isinstance(op, scf.WhileOp) and tile.block is op.before_region.block:
            yield op.arguments[tile.index]
            yield _last(op.after_region.block).operands[tile.index]
        elif isinstance(op, scf.WhileOp):
            yield _last(op.before_region.block).operands[tile.index + 1]
        return
    assert isinstance(tile, OpResult)
    match tile.op:
        case xetile.UpdateTileOffsetOp() as op:
            yield op.tile
        case arith.SelectOp() as op:
            yield from (op.lhs, op.rhs)
        case scf.ForOp() as op:
            yield op.body.block.args[tile.index + 1]
        case scf.WhileOp() as op:
            yield _last(op.before_region.block).operands[tile.index + 1]
        case scf.IfOp() as op:
            for region in (op.true_region, op.false_region):
                yield _last(region.block).operands[tile.index]
        case _:
            return


def _same_base(a: xetile.InitTileOp, b: xetile.InitTileOp) -> bool:
    return (
        same_view(a.source) is same_view(b.source)
        and a.tile_type == b.tile_type
        and a.mixed_sizes == b.mixed_sizes
        and a.mixed_strides == b.mixed_strides
    )


def _last(block: Block) -> Operation:
    assert block.last_op is not None
    return block.last_op
