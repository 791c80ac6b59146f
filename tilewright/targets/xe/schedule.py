"""xe-order-by-demand: what is loaded is loaded when it is needed, so that less of it lives at the same time.

    load a0, a1, b0, b1; c0 += a0 b0; c0 += a1 b1          load a0, b0; c0 += a0 b0; load a1, b1; c0 += a1 b1

Requires: a lane program. Guarantees: the same results; within a stretch without stores, barriers or branches a run of
products goes by depth in the chains of their accumulators (all of the first step of k, then all of the second), other
arithmetic keeps its order, and loads and parts of fragments stand right before their first user. Loads hide less
latency so: it runs only where registers would not suffice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects import gpu
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Block, Operation

from tilewright.passes import memory_objects
from tilewright.targets.xe.building import bits_of, element_of

_READS = ("xegpu.load_nd", "xegpu.load", "xegpu.load_matrix", "memref.load")
_DPAS = "xegpu.dpas"
_PARTS = (
    "vector.extract_strided_slice",
    "vector.insert_strided_slice",
    "vector.extract",
    "vector.insert",
    "vector.shape_cast",
    "vector.bitcast",
    "vector.broadcast",
    "vector.shuffle",
)


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
    if op.regions or op.next_op is None:
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


def _anchors(stretch: Sequence[Operation]) -> list[Operation]:
    """What keeps the order of the program: arithmetic, and products in runs that go by depth."""
    anchors: list[Operation] = []
    run: list[Operation] = []
    depths: dict[Operation, int] = {}
    for op in stretch:
        if op.name == _DPAS:
            before = op.operands[-1].owner
            depths[op] = (
                depths[before] + 1 if isinstance(before, Operation) and before in depths else 0
            )
            run.append(op)
        elif not _waits(op):
            anchors += sorted(
                run, key=lambda each: depths[each]
            )  # stable: program order within a depth
            anchors.append(op)
            run, depths = [], {}
    return [*anchors, *sorted(run, key=lambda each: depths[each])]


def _waits(op: Operation) -> bool:
    """Does the op stand right before its first user: a load, a part of a fragment, what grows or keeps its size?"""
    if op.name in _READS or op.name in _PARTS:
        return True
    if not any(isinstance(r.type, VectorType) for r in op.results):
        return True
    if op.name in ("arith.extf", "arith.truncf", "arith.bitcast") and len(op.operands) == 1:
        sizes = [bits_of(element_of(v.type)) for v in (op.operands[0], op.results[0])]
        return sizes[1] >= sizes[0]
    return False


def _reorder(block: Block, stretch: Sequence[Operation]) -> None:
    members = set(stretch)
    after = stretch[-1].next_op
    assert after is not None, "a block ends with a terminator, which does not move"
    anchors = _anchors(stretch)
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

    for op in (*anchors, *stretch):
        demand(op)
    for op in stretch:
        op.detach()
    block.insert_ops_before(order, after)
