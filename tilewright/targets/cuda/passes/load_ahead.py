"""load-ahead: what threads load of rows and columns beside a loop's products is loaded an iteration ahead.

    for i {                                         %s = load_tile %scales[first]
      %a, %b = stage.copy.wait %buffer[..]          for i carrying %s {
      %s = load_tile %scales[i] : 128x1      ->       %next = load_tile %scales[i + 1]
      %p = stage.mma.issue f(%a, %s), %b              %a, %b = stage.copy.wait %buffer[..]
    }                                                 %p = stage.mma.issue f(%a, %s), %b
                                                      yield %next }

Requires: products issued. Guarantees: the same values. A load beyond the loop's last iteration reads what the array has
there, or nothing where that is outside of it, and is dropped.

And a tile that is met by the sums of a loop behind it is loaded in front of that loop.

So a warpgroup that has waited for its tiles does not wait again, for scales by group or the weights of a norm. Takes
part: loads of one row or one column of an array that the
kernel only reads, whose place depends on the counter and on nothing else in the loop, as far as registers hold them.
Not in loops that gather: numbers of rows are loaded by the role that copies, which waits for nothing else. Tiles are
loaded in front of a loop (residuals, in what follows a product) where registers hold them beside its sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from xdsl.dialects import gpu, scf
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Block, Operation
from xdsl.rewriter import InsertPoint

from tilewright.dialects import stage, xetile
from tilewright.dialects.movement import shape_of
from tilewright.dialects.nesting import move, ops_behind
from tilewright.dialects.stage.products import vector_of
from tilewright.dialects.upstream.arith import element, element_bytes
from tilewright.passes.carried import operands_of, reached
from tilewright.passes.loop_pipeliner import PipelineSchedule, expand_ahead
from tilewright.passes.loops import depends
from tilewright.passes.memory_objects import is_pure
from tilewright.passes.tile_origin import is_read_only
from tilewright.targets.cuda.passes.multi_buffering import place_ops
from tilewright.targets.cuda.passes.wgmma_legality import warpgroups
from tilewright.uarch.nvidia import LANES, WARPGROUP

MOST_HELD, MOST_BESIDE = 32, 192
"""Registers of a thread for what is loaded ahead; for sums and what is loaded in front of their loop."""
KINDS = (VectorType, stage.PendingType)


def load_ahead(function: gpu.FuncOp) -> int:
    """Loads rows and columns that threads need beside products, such as scales, an iteration ahead. Returns how
    many."""
    count = 0
    # Inner ones first: a loop that is expanded is made anew, with all that is in it.
    for loop in reversed([op for op in function.walk() if isinstance(op, scf.ForOp)]):
        block = loop.body.block
        kinds = {type(op) for op in block.ops}
        if stage.ProductIssueOp not in kinds or stage.GatherIssueOp in kinds:
            continue
        found: dict[xetile.LoadTileOp, list[Operation]] = {}
        for op in block.ops:
            if isinstance(op, xetile.LoadTileOp) and _is_small(op):
                places = _places(op, block)
                if places is not None:
                    found[op] = places
        if not found or sum(map(_held, found)) > MOST_HELD:
            continue
        ahead: set[Operation] = {op for places in found.values() for op in places} | set(found)
        order = [op for op in block.ops if op not in ahead and op is not block.last_op]
        order[(at := _place(found, order, block)) : at] = [op for op in block.ops if op in ahead]
        stages = dict.fromkeys((op for op in order if op not in ahead), 1)
        expand_ahead(PipelineSchedule(loop, stages, order, counts=1), lambda op, _: op)
        count += len(found)
    return count + sum(
        _load_above(loop, WARPGROUP * LANES * warpgroups(function))
        for loop in [op for op in function.walk() if isinstance(op, scf.ForOp)]
        if any(isinstance(op, stage.ProductIssueOp) for op in loop.body.block.ops)
    )


def _load_above(loop: scf.ForOp, threads: int) -> int:
    """Loads in front of a loop of products the tiles of arrays that are only read which stand behind it, as far as
    registers hold them beside its sums. Returns how many."""
    block, count = loop.parent, 0
    assert block is not None
    sums = [vector_of(r.type) for r in loop.results if isinstance(r.type, KINDS)]
    held = sum(4 * prod(kind.get_shape()) for kind in sums)
    for op in list(ops_behind(loop)):
        if (
            not isinstance(op, xetile.LoadTileOp)
            or len(op.values) != 1
            or 1 in shape_of(op.values[0])
        ):
            continue
        size = prod(shape_of(op.values[0])) * element_bytes(element(op.values[0].type))
        places = place_ops(op)
        if places is None or held + size > 4 * MOST_BESIDE * threads:
            continue
        if op.tile_type.memory_space != 0 or not is_read_only(op.tile):
            continue
        for each in [*places, op]:
            if loop.is_before_in_block(each):
                move([each], InsertPoint.before(loop))
        held, count = held + size, count + 1
    return count


def _place(loads: Iterable[Operation], order: Sequence[Operation], block: Block) -> int:
    """Where in an iteration the next one's loads stand: in front, where products read what is computed with them; else
    behind the products, for what the places take to compute is then done beside these."""
    readers = [op for op in order if isinstance(op, stage.ProductIssueOp | stage.LocalStoreOp)]
    values = [value for load in loads for value in load.results]
    if any(depends(read, v, block) for op in readers for read in op.operands for v in values):
        return 0
    return next((i for i, op in enumerate(order) if isinstance(op, stage.ProductWaitOp)), 0)


def _is_small(load: xetile.LoadTileOp) -> bool:
    """Is it of one row or one column of an array that nothing writes?"""
    if len(load.values) != 1 or 1 not in shape_of(load.values[0]):
        return False
    return load.tile_type.memory_space == 0 and is_read_only(load.tile)


def _held(load: xetile.LoadTileOp) -> int:
    """Registers of a thread for a row or column: products give four lanes all of a row, and each two rows of 16."""
    rows, columns = shape_of(load.values[0])
    return -(-columns // 4) if rows == 1 else -(-2 * rows // (WARPGROUP * LANES // 8))


def _places(load: xetile.LoadTileOp, block: Block) -> list[Operation] | None:
    """The ops of a block that say where a load is; None where they need more than the counter."""
    values = reached([load.tile], lambda value: operands_of(value, block))
    if any(value.owner is block and value is not block.args[0] for value in values):
        return None
    owners = {value.owner for value in values}
    found = [op for op in block.ops if op in owners]
    return found if all(is_pure(op) and not op.regions for op in found) else None
