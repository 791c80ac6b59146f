"""load-ahead: what threads load of rows and columns beside a loop's products is loaded an iteration ahead.

    for i {                                         %s = load_tile %scales[first]
      %a, %b = stage.copy.wait %buffer[..]          for i carrying %s {
      %s = load_tile %scales[i] : 128x1      ->       %next = load_tile %scales[i + 1]
      %p = stage.mma.issue f(%a, %s), %b              %a, %b = stage.copy.wait %buffer[..]
    }                                                 %p = stage.mma.issue f(%a, %s), %b
                                                      yield %next }

Requires: products issued. Guarantees: the same values. A load beyond the loop's last iteration reads what the array has
there, or nothing where that is outside of it, and is dropped.

So a warpgroup that has waited for its tiles does not wait again, for scales by group or the weights of a norm. Takes
part: loads of one row or one column of an array that the
kernel only reads, whose place depends on the counter and on nothing else in the loop, as far as registers hold them.
Not in loops that gather: numbers of rows are loaded by the role that copies, which waits for nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.dialects import gpu, scf
from xdsl.ir import Block, Operation

from tilewright.dialects import stage, xetile
from tilewright.dialects.movement import shape_of
from tilewright.passes.carried import operands_of, reached
from tilewright.passes.loop_pipeliner import PipelineSchedule, expand_ahead
from tilewright.passes.loops import depends
from tilewright.passes.memory_objects import is_pure
from tilewright.passes.tile_origin import is_read_only
from tilewright.uarch.nvidia import LANES, WARPGROUP

MOST_HELD = 32
"""Registers of a thread for what is loaded ahead."""


def load_ahead(function: gpu.FuncOp) -> int:
    """Loads rows and columns that threads need beside products, such as scales, an iteration ahead. Returns how
    many."""
    count = 0
    for loop in [op for op in function.walk() if isinstance(op, scf.ForOp)]:
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
