"""expand-ops, of products: `xegpu.dpas_mx` is a dpas of bf16 operands that were multiplied by their scales."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import BFloat16Type, Float32Type, VectorType
from xdsl.ir import SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.movement import shape_of
from tilewright.passes.emit import Before, with_shape


def unpacked(at: Before, value: SSAValue, is_b: bool) -> SSAValue:
    """A as [M, K], B as [K, N], from their packed forms."""
    shape = shape_of(value)
    if len(shape) != 3:
        return value
    if not is_b:
        return at.cast(value, (shape[0], shape[1] * shape[2]))
    k, n, p = shape
    return at.cast(at.transpose(value, (0, 2, 1)), (k * p, n))


def _scaled(at: Before, value: SSAValue, scale: SSAValue | None, dim: int) -> SSAValue:
    """8- and 4-bit floats times their powers of two, as bf16: exact from 2^-126 on, since bf16 has f32's exponents."""
    shape = shape_of(value)
    wide = at.add(arith.ExtFOp(value, VectorType(Float32Type(), list(shape))))
    if scale is not None:
        if shape_of(scale):
            count = shape_of(scale)[dim]
            run = shape[dim] // count
            factor = at.add(arith.ExtFOp(scale, with_shape(Float32Type(), shape_of(scale))))
            factor = at.repeated(factor, dim, run)
        else:
            factor = at.broadcast(at.add(arith.ExtFOp(scale, Float32Type())), shape)
        wide = at.add(arith.MulfOp(wide, factor))
    return at.add(arith.TruncFOp(wide, VectorType(BFloat16Type(), list(shape))))


def product_without_scales(op: xegpu.DpasMxOp, at: Before) -> None:
    """A dpas of the operands times their scales; of lanes' fragments, of the operands as they are."""
    layouts, result = (op.layout_a, op.layout_b, op.layout_cd), op.result.type
    if op.dims() is None or len(result.get_shape()) != 2:
        if op.scale_a is not None or op.scale_b is not None:
            raise at.refuse("scales of lane fragments: their owners are not specified")
        at.replace(at.add(xegpu.DpasOp(op.lhs, op.rhs, op.acc, result, *layouts)))
        return
    a = _scaled(at, unpacked(at, op.lhs, False), op.scale_a, 1)
    b = _scaled(at, unpacked(at, op.rhs, True), op.scale_b, 0)
    acc, full = op.acc, VectorType(Float32Type(), list(result.get_shape()))
    if acc is not None and result != full:
        acc = at.add(arith.ExtFOp(acc, full))
    value = at.add(xegpu.DpasOp(a, b, acc, full, *layouts))
    at.replace(value if result == full else at.add(arith.TruncFOp(value, result)))
