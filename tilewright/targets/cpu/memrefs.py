"""The workgroup's own memory, and atomics of its numbers."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tilewright.codegen.atomic_loops import exchange
from tilewright.codegen.builder import Builder
from tilewright.codegen.tiles import itemsize
from tilewright.codegen.vector_memory import element_at
from tilewright.dialects import mach
from tilewright.dialects.nesting import used_from_above
from tilewright.dialects.upstream.generic_atomic import GenericAtomicRMWOp
from tilewright.targets.kernel_ops import KernelValues

SPARE_BYTES = 64


class Scratch:
    """Hands out the scratch memory of one thread."""

    def __init__(self, base: SSAValue, b: Builder):
        self.base = base
        self.b = b
        self.used = SPARE_BYTES

    def bytes(self, count: int, align: int = 64) -> SSAValue:
        """The address stands where the function starts: memory first used in one branch may be used in the other."""
        self.used = -(-self.used // align) * align
        pointer = mach.PtrAddOp(self.base, self.b.idx(self.used))
        first = self.base.owner
        assert isinstance(first, Operation) and first.parent is not None
        first.parent.insert_op_after(pointer, first)
        self.used += -(-count // 64) * 64
        return pointer.results[0]


def generic_atomic(d: KernelValues, op: GenericAtomicRMWOp) -> None:
    array, at = d.array(op, op.memref), [d.idx(i) for i in op.indices]
    pointer = element_at(d.b, array, itemsize(array.element), at)
    taken = {v: d.scalar(v) for v in used_from_above(op.atomic_body)}
    d.set_scalar(op.result, exchange(d.b, op, pointer, taken))
