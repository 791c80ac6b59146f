"""Element-by-element loads stand in front of their first user (part of :mod:`tilewright.passes.xegpu.blocking`).

A block message is asked for early, so that it arrives in time; many single loads fill registers instead. A load that
lanes do element by element moves down its block to the first op that uses it, past ops that do not write memory.
"""

from __future__ import annotations

from xdsl.ir import Block, Operation

from tilewright.dialects import xegpu
from tilewright.passes import memory_objects
from tilewright.passes.xegpu.blocks import SCATTERED


def sink_scattered_loads(block: Block) -> None:
    """Moves the loads of a block and of the blocks inside of it. Linear in the ops of the block."""
    for op in block.ops:
        for region in op.regions:
            for inner in region.blocks:
                sink_scattered_loads(inner)
    order = {op: n for n, op in enumerate(block.ops)}
    # The number of the last op before each that may write or order memory.
    walls: list[int] = []
    last = -1
    for n, op in enumerate(block.ops):
        walls.append(last)
        if (
            op.regions
            or memory_objects.may_write(op)
            or op.name.startswith(("gpu.b", "xegpu.f", "xegpu.n"))
        ):
            last = n
    moves: list[tuple[Operation, Operation]] = []
    for op in block.ops:
        if not isinstance(op, xegpu.LoadNdOp) or SCATTERED not in op.attributes:
            continue
        users = [user for use in op.value.uses if (user := _in_block(use.operation, block))]
        if not users:
            continue
        first = min(users, key=lambda user: order[user])
        if walls[order[first]] < order[op] and order[first] > order[op] + 1:
            moves.append((op, first))
    for op, first in moves:
        op.detach()
        block.insert_op_before(op, first)


def _in_block(op: Operation, block: Block) -> Operation | None:
    """The op of a block that is, or holds, an op."""
    here: Operation | None = op
    while here is not None and here.parent is not block:
        here = here.parent_op()
    return here
