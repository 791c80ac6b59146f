"""vector-arrays: an array of vectors is an array whose last dimensions are those of the vectors.

    %m = memref.alloca() : memref<vector<4x8xf32>>             %m = memref.alloca() : memref<4x8xf32>
    %r = vector.type_cast %m : memref<vector<4x8xf32>>    ->
           to memref<4xvector<8xf32>>                          %v = vector.load %m[%i, %c0]
    %v = memref.load %r[%i] : memref<4xvector<8xf32>>               : memref<4x8xf32>, vector<8xf32>

So mlir-opt's convert-vector-to-scf writes vectors of several dimensions through memory, row by row.

Requires: nothing.  Guarantees: no memref of vectors is left; what has no such form (a subview of one, an atomic, a
global) is refused at its place.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import func, gpu, memref, scf, vector
from xdsl.dialects.builtin import FunctionType, MemRefType, VectorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.diagnostics import unsupported
from tilewright.dialects.upstream.vector import TypeCastOp
from tilewright.dialects.upstream.vector.memory import in_elements
from tilewright.passes.emit import Before
from tilewright.passes.retype import types_of

_KNOWN = (
    TypeCastOp, memref.LoadOp, memref.StoreOp,
    # These mean the same on the array of elements, for they name none of it.
    memref.AllocOp, memref.AllocaOp, memref.DeallocOp, memref.DimOp, memref.CastOp, memref.CopyOp, func.CallOp,
    func.ReturnOp, func.FuncOp, gpu.FuncOp, gpu.LaunchFuncOp, scf.ForOp, scf.IfOp, scf.WhileOp, scf.YieldOp,
    scf.ConditionOp,
)  # fmt: skip


def vector_arrays(module: Operation) -> None:
    """Rewrites every op of `module`, in place."""
    found = [
        op
        for op in module.walk()
        if isinstance(op, TypeCastOp) or any(map(_holds_vectors, types_of(op)))
    ]
    for op in found:
        _check(op)
    for op in found:
        for value in (*op.results, *(a for r in op.regions for b in r.blocks for a in b.args)):
            if _holds_vectors(value.type):
                Rewriter.replace_value_with_new_type(value, _plain(value.type))
        _rewrite(op)


def _check(op: Operation) -> None:
    if not isinstance(op, _KNOWN):
        raise unsupported(
            op,
            f"{op.name} of an array of vectors",
            hint="arrays of vectors are allocated, cast, copied, loaded from and stored to; vector.type_cast makes one "
            "an array of elements",
        )


def _holds_vectors(kind: Attribute) -> bool:
    return isinstance(kind, MemRefType) and isinstance(kind.element_type, VectorType)


def _plain(kind: Attribute) -> Attribute:
    return in_elements(kind) if isinstance(kind, MemRefType) else kind


def _rewrite(op: Operation) -> None:
    at = Before(op)
    match op:
        case TypeCastOp():
            at.replace(op.memref)
        case memref.LoadOp() if isinstance(kind := op.res.type, VectorType):
            at.replace(at.add(vector.LoadOp(op.memref, _first(at, op.indices, kind), kind)))
        case memref.StoreOp() if isinstance(kind := op.value.type, VectorType):
            at.insert(vector.StoreOp(op.value, op.memref, _first(at, op.indices, kind)))
            at.replace()
        case func.FuncOp() | gpu.FuncOp():
            kind = op.function_type
            types = (map(_plain, kind.inputs), map(_plain, kind.outputs))
            op.properties["function_type"] = FunctionType.from_lists(*map(list, types))
        case _:
            pass


def _first(at: Before, indices: Sequence[SSAValue], kind: VectorType) -> list[SSAValue]:
    """Where the first element of a vector is."""
    return [*indices, *(at.index(0) for _ in kind.get_shape())]
