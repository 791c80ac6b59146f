"""Which ops of a lane program may change places with their neighbours (part of `schedule`).

Reads, stores, products and arithmetic may, between two ops that do something else. A read keeps its place among the
stores to arrays that its own may overlap, by the `noalias` facts of arguments; stores keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from tilewright.dialects import xegpu
from tilewright.passes import memory_objects
from tilewright.passes.xegpu.block_messages import memory_of

READS = ("xegpu.load_nd", "xegpu.load", "xegpu.load_matrix", "memref.load")
"""Change places with reads and arithmetic, without being pure."""
_STORES = (xegpu.StoreNdOp, xegpu.StoreScatterOp)


def may_move(op: Operation) -> bool:
    """May an op stand elsewhere between two walls?"""
    if op.next_op is None:
        return False
    if isinstance(op, scf.IfOp):
        inner = [each for region in op.regions for block in region.blocks for each in block.ops]
        return all(isinstance(each, scf.YieldOp) or may_move(each) for each in inner)
    if op.regions:
        return False
    return isinstance(op, _STORES) or op.name in READS or memory_objects.is_quiet(op)


def order_of_memory(ops: Sequence[Operation]) -> dict[Operation, dict[Operation, None]]:
    """What some ops that may move stay behind, for what they read and write: of all that, the last."""
    behind: dict[Operation, dict[Operation, None]] = {}
    last: Operation | None = None
    written: dict[SSAValue | None, Operation] = {}
    read: dict[SSAValue | None, list[Operation]] = {}
    """Of every array, the last store, and the reads behind all stores that they stay behind."""
    for op in ops:
        mine = behind[op] = dict[Operation, None]()
        inner = list(op.walk())
        for root in {memory_of(each) for each in inner if each.name in READS}:
            mine.update((written[r], None) for r in written if memory_objects.may_alias(root, r))
            read.setdefault(root, []).append(op)
        for root in {memory_of(each) for each in inner if isinstance(each, _STORES)}:
            for other in [r for r in read if memory_objects.may_alias(root, r)]:
                mine.update((each, None) for each in read.pop(other))
            written[root] = op
        mine.pop(op, None)
        if stores(op):
            if last is not None:
                mine[last] = None
            last = op
    return behind


def stores(op: Operation) -> bool:
    """Does an op write memory, it or what is inside of it?"""
    return any(isinstance(each, _STORES) for each in op.walk())
