"""Which ops of a lane program may change places with their neighbours (part of `schedule`).

Reads, products and arithmetic may, between two ops that write. So may stores to an array that the kernel does not
read and that overlaps no other one (the `noalias` facts of its arguments); among each other they keep their order.
"""

from __future__ import annotations

from xdsl.dialects import gpu, scf
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import BlockArgument, Operation, SSAValue

from tilewright.dialects import xegpu
from tilewright.passes import memory_objects
from tilewright.passes.xegpu.block_messages import created

READS = ("xegpu.load_nd", "xegpu.load", "xegpu.load_matrix", "memref.load")
"""Change places with reads and arithmetic, without being pure."""
_STORES = (xegpu.StoreNdOp, xegpu.StoreScatterOp)


class Moves:
    """Answers for one kernel."""

    def __init__(self, kernel: gpu.FuncOp):
        self._apart = {a for a in kernel.body.block.args if memory_objects.arg_facts(a).noalias}
        for op in kernel.walk():
            if isinstance(op, _STORES) or memory_objects.is_quiet(op):
                continue
            root = memory_of(op)
            if root is not None:
                self._apart.discard(root)  # pyright: ignore
            elif op.name in READS:
                self._apart.clear()

    def may(self, op: Operation) -> bool:
        """May the op stand elsewhere between two walls?"""
        if op.next_op is None:
            return False
        if isinstance(op, scf.IfOp):
            inner = [each for region in op.regions for block in region.blocks for each in block.ops]
            return all(isinstance(each, scf.YieldOp) or self.may(each) for each in inner)
        if op.regions:
            return False
        if isinstance(op, _STORES):
            return memory_of(op) in self._apart
        return op.name in READS or memory_objects.is_quiet(op)


def stores(op: Operation) -> bool:
    """Does an op write memory, it or what is inside of it?"""
    return any(isinstance(each, _STORES) for each in op.walk())


def memory_of(op: Operation) -> SSAValue | None:
    """The argument that is the array of an access; None for no access, and where it is not known."""
    if isinstance(op, xegpu.BlockAccess):
        made = created(op.operands[op.tdesc_operand])
        source = None if made is None else made.source
    elif isinstance(op, xegpu.LoadGatherOp | xegpu.StoreScatterOp | xegpu.AtomicRMWOp):
        source = op.source_operand
    elif isinstance(op, xegpu.LoadMatrixOp | xegpu.StoreMatrixOp):
        described = op.mem_desc.owner
        source = described.source if isinstance(described, xegpu.CreateMemDescOp) else None
    else:
        source = next((v for v in op.operands if isinstance(v.type, MemRefType)), None)
    if source is None:
        return None
    root = memory_objects.memory_root(source)
    return root if isinstance(root, BlockArgument) or isinstance(root.type, MemRefType) else None
