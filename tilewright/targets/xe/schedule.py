"""xe-order-by-demand: what is loaded is loaded when it is needed, so that less of it lives at the same time.

    load a0, a1, b0, b1; c0 += a0 b0; c0 += a1 b1          load a0, b0; c0 += a0 b0; load a1, b1; c0 += a1 b1

Requires: a lane program. Guarantees: the same results; within a stretch without stores, barriers or branches, products
go by their depth in their accumulator's chain (all of the first step of k, then all of the second), and everything
else stands right before its first user. Loads hide less latency so: it runs only where registers would not
suffice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects import gpu
from xdsl.ir import Block, Operation, OpResult

from tilewright.passes import memory_objects

_READS = ("xegpu.load_nd", "xegpu.load", "xegpu.load_matrix", "memref.load")
_DPAS = "xegpu.dpas"


def order_by_demand(kernel: gpu.FuncOp) -> None:
    for block in list(_blocks(kernel)):
        for stretch in list(_stretches(block)):
            _reorder(block, stretch)


def _blocks(op: Operation) -> Iterator[Block]:
    for region in op.regions:
        for block in region.blocks:
            yield block
            for inner in block.ops:
                yield from _blocks(inner)


def _moves(op: Operation) -> bool:
    """May the op stand elsewhere between two ops that write?"""
    if op.regions:
        return False
    return op.name in _READS or op.name == _DPAS or memory_objects.is_pure(op)


def _stretches(block: Block) -> Iterator[list[Operation]]:
    """Runs of ops that may change places, with the op that ends each."""
    run: list[Operation] = []
    for op in list(block.ops):
        if _moves(op):
            run.append(op)
            continue
        if len(run) > 2:
            yield run
        run = []


def _depth(op: Operation, members: set[Operation], known: dict[Operation, int]) -> int:
    """Products before this one in the chain of its accumulator, within the stretch."""
    found = known.get(op)
    if found is None:
        last = op.operands[-1]
        before = last.op if isinstance(last, OpResult) else None
        chained = before is not None and before.name == _DPAS and before in members
        found = known[op] = _depth(before, members, known) + 1 if chained and before else 0
    return found


def _reorder(block: Block, stretch: Sequence[Operation]) -> None:
    members = set(stretch)
    after = stretch[-1].next_op
    assert after is not None, "a block ends with a terminator, which does not move"
    depths: dict[Operation, int] = {}
    for op in stretch:
        if op.name == _DPAS:
            _depth(op, members, depths)
    products = sorted(depths, key=lambda op: depths[op])  # stable: program order within a depth
    done: set[Operation] = set()
    order: list[Operation] = []

    def demand(op: Operation) -> None:
        todo: list[tuple[Operation, bool]] = [(op, False)]
        while todo:
            at, ready = todo.pop()
            if at in done:
                continue
            if ready:
                done.add(at)
                order.append(at)
                continue
            todo.append((at, True))
            for operand in reversed(at.operands):
                owner = operand.owner
                if isinstance(owner, Operation) and owner in members and owner not in done:
                    todo.append((owner, False))

    for op in (*products, *stretch):
        demand(op)
    for op in stretch:
        op.detach()
    block.insert_ops_before(order, after)
