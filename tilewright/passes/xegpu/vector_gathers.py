"""vector.gather and vector.scatter as XeGPU's scattered ops, which every level has.

    %v = vector.gather %m[%i, %j] [%o], %k, %p : memref<8x64xf32>, vector<16xindex>, ..
    ->
    %f = memref.collapse_shape %m [[0, 1]] : memref<8x64xf32> into memref<512xf32>
    %x = xegpu.load %f[%o + (64 * %i + %j)], %k : memref<512xf32>, vector<16xindex>, vector<16xi1> -> vector<16xf32>
    %v = arith.select %k, %x, %p

Bases are memrefs in row-major order whose inner extents are known; others stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    NoneAttr,
    VectorType,
    i64,
)
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.dialects import xegpu
from tilewright.dialects.upstream.arith import constant
from tilewright.dialects.upstream.vector import GatherOp, ScatterOp
from tilewright.passes.emit import Before


def gathers_as_loads(root: Operation, collapse: bool = True) -> None:
    """Rewrites the ops of everything inside of an op, in place; without `collapse` those of 1-D bases only."""
    for op in list(root.walk()):
        if not isinstance(op, GatherOp | ScatterOp) or not _is_plain(op.base.type, collapse):
            continue
        at = Before(op)
        base, offsets = _flat(at, op.base), _places(at, op)
        if isinstance(op, GatherOp):
            loaded = at.add(xegpu.LoadGatherOp(base, op.mask, op.result.type, offsets))
            at.replace(at.add(arith.SelectOp(op.mask, loaded, op.pass_thru)))
        else:
            at.insert(xegpu.StoreScatterOp(op.valueToStore, base, op.mask, offsets))
            Rewriter.erase_op(op)


def _is_plain(kind: object, collapse: bool) -> bool:
    if not isinstance(kind, MemRefType) or not isinstance(kind.layout, NoneAttr):
        return False
    inner = kind.get_shape()[1:]
    if inner and not collapse:
        return False
    return kind.get_num_dims() > 0 and DYNAMIC_INDEX not in inner


def _flat(at: Before, base: SSAValue) -> SSAValue:
    kind = base.type
    assert isinstance(kind, MemRefType)
    shape = kind.get_shape()
    if len(shape) == 1:
        return base
    extent = DYNAMIC_INDEX if DYNAMIC_INDEX in shape else prod(shape)
    row = MemRefType(kind.element_type, [extent], NoneAttr(), kind.memory_space)
    together = ArrayAttr([ArrayAttr([IntegerAttr(n, i64) for n in range(len(shape))])])
    return at.add(
        memref.CollapseShapeOp.create(
            operands=[base], properties={"reassociation": together}, result_types=[row]
        )
    )


def _places(at: Before, op: GatherOp | ScatterOp) -> SSAValue:
    """Every element's distance from the base."""
    kind = op.base.type
    assert isinstance(kind, MemRefType)
    indices = op.indices
    index_type = indices.type
    assert isinstance(index_type, VectorType)
    wide = VectorType(IndexType(), list(index_type.get_shape()))
    if index_type != wide:
        indices = at.add(arith.IndexCastOp(indices, wide))
    start = _linear(at, op.offsets, kind.get_shape())
    if start is None:
        return indices
    return at.add_index(indices, at.broadcast(start, wide.get_shape()))


def _linear(at: Before, offsets: Sequence[SSAValue], shape: Sequence[int]) -> SSAValue | None:
    """Where the offsets lie in a row-major matrix; None at its beginning."""
    total: SSAValue | None = None
    for dim, offset in enumerate(offsets):
        if constant(offset) == 0:
            continue
        stride = prod(shape[dim + 1 :])
        term = offset if stride == 1 else at.add(arith.MuliOp(offset, at.index(stride)))
        total = term if total is None else at.add_index(total, term)
    return total
