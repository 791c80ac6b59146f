"""memref ops of a kernel: views, the workgroup's own memory, single elements."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import gpu, memref
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Operation, SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.diagnostics import unsupported
from tilewright.dialects import mach
from tilewright.dialects.upstream.arith import folded
from tilewright.passes.memory_objects import is_memref, memory_root
from tilewright.targets.cpu.evaluate import Evaluator, Values
from tilewright.targets.cpu.memory import Matrix, itemsize, matrix_of_memref, plain, view_of
from tilewright.targets.cpu.storage import is_tile

SPARE_BYTES = 64


class Scratch:
    """Hands out the scratch memory of one thread."""

    def __init__(self, base: SSAValue, b: Builder):
        self.base = base
        self.b = b
        self.used = SPARE_BYTES

    def bytes(self, count: int) -> SSAValue:
        """The address stands where the function starts: memory first used in one branch may be used in the other."""
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
        matrix = self.matrices[op.operands[0]]
        rank = len(matrix.sizes)
        self.matrices[op.results[0]] = matrix
        values = [0, *matrix.sizes, *matrix.strides]
        for result, value in zip(op.results[1 : 2 + 2 * rank], values, strict=True):
            self.values.scalars[result] = self.b.idx(value)

    def lower_view(self, op: Operation) -> None:
        """The same memory with another offset, sizes and strides."""
        source, *given = op.operands
        numbers = [folded(self.e.scalar(v)) for v in given]
        self.matrices[op.results[0]] = view_of(self.b, op, self.matrices[source], numbers)

    def lower_memref_extract_aligned_pointer_as_index(self, op: Operation) -> None:
        pointer = self.matrices[op.operands[0]].pointer
        address = self.b.value(mach.IntFromPtrOp(pointer))
        self.values.scalars[op.results[0]] = address

    def lower_memref_alloc(self, op: memref.AllocOp) -> None:
        type = op.memref.type
        assert isinstance(type, MemRefType)
        shape = type.get_shape()
        if any(n < 0 for n in shape):
            raise unsupported(op, "memory shared by the workgroup has a static shape")
        count = itemsize(plain(type.element_type))
        for n in shape:
            count *= n
        self.matrices[op.memref] = matrix_of_memref(self.b, self.scratch.bytes(count), type, [], [])

    lower_memref_alloca = lower_memref_alloc

    def lower_memref_dealloc(self, op: Operation) -> None: ...

    def lower_memref_load(self, op: memref.LoadOp) -> None:
        """One element, of an array that the kernel does not write: loads and stores of tiles move past it."""
        self._alone(op, op.memref, writes_only=True)
        self.values.scalars[op.res] = self.b.load(
            self._element(op.memref, op.indices), plain(op.res.type)
        )

    def lower_memref_store(self, op: memref.StoreOp) -> None:
        """One element, of an array that nothing else in the kernel touches."""
        if is_tile(op.value):
            raise unsupported(op, "memref.store of a vector")
        self._alone(op, op.memref, writes_only=False)
        self.b.store(self.e.scalar(op.value), self._element(op.memref, op.indices))

    def _element(self, array: SSAValue, indices: Sequence[SSAValue]) -> SSAValue:
        matrix, b = self.matrices[array], self.b
        at: Idx = 0
        for index, stride in zip(indices, matrix.strides, strict=True):
            at = b.plus(at, b.times(folded(self.e.scalar(index)), stride))
        return b.ptr(matrix.pointer, b.times(at, itemsize(matrix.element)))

    def _alone(self, op: Operation, array: SSAValue, *, writes_only: bool) -> None:
        """Refuse an element of an array that another op of the kernel uses (or writes) as well."""
        root = memory_root(array)
        if not isinstance(root.type, MemRefType):
            raise unsupported(op, f"{op.name} of an address")
        pending, seen = [root], {root}
        while pending:
            for use in pending.pop().uses:
                user = use.operation
                if user is op or (isinstance(user, memref.LoadOp) and writes_only):
                    continue
                if isinstance(user, memref.ExtractAlignedPointerAsIndexOp | memref.StoreOp) or not (
                    user.results
                ):
                    raise self._shared(op)
                for result in user.results:
                    if is_memref(result) and result not in seen:
                        seen.add(result)
                        pending.append(result)
                    elif result.type.name in ("xetile.tile", "index") and writes_only:
                        if any(not _reads(u.operation) for u in result.uses):
                            raise self._shared(op)
                    elif not is_memref(result):
                        raise self._shared(op)

    @staticmethod
    def _shared(op: Operation) -> Exception:
        return unsupported(
            op, f"{op.name} of an array that the kernel also accesses otherwise, on the cpu target"
        )


def _reads(op: Operation) -> bool:
    return op.name in ("xetile.load_tile", "xetile.prefetch_tile") or op.name.startswith("arith.")
