"""memref ops of a kernel: views, and the workgroup's own memory."""

from __future__ import annotations

from xdsl.dialects import gpu, memref
from xdsl.ir import Operation, SSAValue

from tilewright.codegen.atomic_loops import exchange
from tilewright.codegen.builder import Builder
from tilewright.codegen.tiles import metadata_of
from tilewright.codegen.vector_memory import element_at
from tilewright.diagnostics import unsupported
from tilewright.dialects import mach
from tilewright.dialects.nesting import used_from_above
from tilewright.dialects.upstream.arith import folded
from tilewright.dialects.upstream.generic_atomic import GenericAtomicRMWOp
from tilewright.targets.cpu.evaluate import Evaluator, Values
from tilewright.targets.cpu.memory import Matrix, itemsize, matrix_of_memref, plain, view_of

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


class MemrefOps:
    """The part of a `FunctionContext` that lowers memref ops."""

    b: Builder
    e: Evaluator
    values: Values
    kernel: gpu.FuncOp
    matrices: dict[SSAValue, Matrix]
    scratch: Scratch

    def lower_memref_dim(self, op: memref.DimOp) -> None:
        dim = folded(self.e.scalar(op.index))
        if not isinstance(dim, int):
            raise unsupported(op, "memref.dim needs a constant dimension")
        self.values.scalars[op.result] = self.b.idx(self.matrices[op.source].sizes[dim])

    def lower_memref_extract_strided_metadata(self, op: Operation) -> None:
        base, values = metadata_of(self.b, self.matrices[op.operands[0]])
        self.matrices[op.results[0]] = base
        for result, value in zip(op.results[1:], values, strict=True):
            self.values.scalars[result] = self.b.idx(value)

    def lower_view(self, op: Operation) -> None:
        """The same memory with another offset, sizes and strides."""
        source, *given = op.operands
        numbers = [folded(self.e.scalar(v)) for v in given]
        self.matrices[op.results[0]] = view_of(self.b, op, self.matrices[source], numbers)

    def lower_memref_extract_aligned_pointer_as_index(self, op: Operation) -> None:
        pointer = self.matrices[op.operands[0]].base(self.b)
        address = self.b.value(mach.IntFromPtrOp(pointer))
        self.values.scalars[op.results[0]] = address

    def lower_memref_alloc(self, op: memref.AllocOp) -> None:
        type = op.memref.type
        shape = type.get_shape()
        if any(n < 0 for n in shape):
            raise unsupported(op, "memory shared by the workgroup has a static shape")
        count = itemsize(plain(type.element_type))
        for n in shape:
            count *= n
        self.matrices[op.memref] = matrix_of_memref(self.b, self.scratch.bytes(count), type, [], [])

    lower_memref_alloca = lower_memref_alloc

    def lower_memref_generic_atomic_rmw(self, op: GenericAtomicRMWOp) -> None:
        array, at = self.matrices[op.memref], [folded(self.e.scalar(i)) for i in op.indices]
        pointer = element_at(self.b, array, itemsize(array.element), at)
        taken = {v: self.e.scalar(v) for v in used_from_above(op.atomic_body)}
        self.values.scalars[op.result] = exchange(self.b, op, pointer, taken)

    def lower_memref_dealloc(self, op: Operation) -> None: ...
