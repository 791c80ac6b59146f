"""Element-by-element loads stand in front of their first user (part of :mod:`tilewright.passes.xegpu.blocking`).

A block message is asked for early, so that it arrives in time; many single loads fill registers instead. A load that
lanes do element by element moves down its block to the first op that uses it, past ops that do not write memory.
"""

from __future__ import annotations

from xdsl.ir import Block, Operation

from tilewright.dialects import xegpu
from tilewright.passes import memory_objects
from tilewright.passes.xegpu.block_messages import SCATTERED


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
        if op.regions or memory_objects.may_write(op) or memory_objects.orders(op):
            last = n
    # Where an op stands after its move: in front of an op that stays, as that many'th from the back.
    place: dict[Operation, tuple[int, int]] = {op: (n, 0) for op, n in order.items()}
    ops = list(block.ops)
    moves: list[Operation] = []
    for op in reversed(ops):
        if not _sinks(op):
            continue
        users = [
            user
            for result in op.results
            for use in result.uses
            if (user := _in_block(use.operation, block))
        ]
        if not users:
            continue
        first = min(users, key=lambda user: place[user])
        anchor, depth = place[first]
        if walls[anchor] < order[op]:
            place[op] = anchor, depth - len(moves) - 1
            moves.append(op)
    for op in sorted(moves, key=lambda each: place[each]):
        op.detach()
        block.insert_op_before(op, ops[place[op][0]])


_PARTS = ("vector.extract_strided_slice", "vector.extract", "vector.shape_cast", "vector.transpose")


def _sinks(op: Operation) -> bool:
    """A load of single elements or rows, or a part of one, which costs nothing."""
    if op.name in _PARTS:
        owner = op.operands[0].owner
        return len(op.operands) == 1 and isinstance(owner, Operation) and _sinks(owner)
    return isinstance(op, xegpu.LoadNdOp) and SCATTERED in op.attributes


def _in_block(op: Operation, block: Block) -> Operation | None:
    """The op of a block that is, or holds, an op."""
    here: Operation | None = op
    while here is not None and here.parent is not block:
        here = here.parent_op()
    return here
