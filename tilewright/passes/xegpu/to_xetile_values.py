"""xegpu-to-xetile, the ops on values: products, reductions, layouts.

Part of :mod:`tilewright.passes.xegpu.to_xetile`; what `expand-ops` makes of a product with scales stands here, too.
"""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import BFloat16Type, Float32Type, VectorType
from xdsl.ir import Attribute, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.diagnostics import unsupported
from tilewright.dialects import xegpu, xetile
from tilewright.dialects.movement import shape_of
from tilewright.dialects.xegpu.layouts import LayoutAttr, Ownership
from tilewright.dialects.xetile import WgMapAttr
from tilewright.passes.emit import Before, with_shape


def ownership_in(attribute: Attribute | None) -> Ownership | None:
    if isinstance(attribute, (LayoutAttr, xegpu.SliceAttr, xegpu.SgMapAttr)):
        return attribute
    return None


def wg_map_of(layout: Ownership | None) -> WgMapAttr | None:
    """The wg_map of the same ownership; None where XeTile cannot say it."""
    if not isinstance(layout, LayoutAttr):
        return None
    grid, data, order = (layout.field(n) for n in ("sg_layout", "sg_data", "order"))
    if grid is None or data is None or len(grid) != 2 or order not in (None, (1, 0)):
        return None
    return WgMapAttr(grid, data, layout.field("inst_data"))


def _unpacked(at: Before, value: SSAValue, is_b: bool) -> SSAValue:
    """A as [M, K], B as [K, N], from their packed forms."""
    shape = shape_of(value)
    if len(shape) != 3:
        return value
    if not is_b:
        return at.cast(value, (shape[0], shape[1] * shape[2]))
    k, n, p = shape
    return at.cast(at.transpose(value, (0, 2, 1)), (k * p, n))


def convert_dpas(op: xegpu.DpasOp) -> None:
    at = Before(op)
    if op.dims() is None:
        raise unsupported(op, "operands are a lane's fragments; the program is lane-level")
    a, b = _unpacked(at, op.lhs, False), _unpacked(at, op.rhs, True)
    maps = [wg_map_of(layout) for layout in op.layouts]
    result = op.result.type
    mma = xetile.TileMmaOp(
        a, b, op.acc, result_type=result, wg_map_a=maps[0], wg_map_b=maps[1], wg_map_c=maps[2]
    )
    at.replace(at.add(mma))


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
    a = _scaled(at, _unpacked(at, op.lhs, False), op.scale_a, 1)
    b = _scaled(at, _unpacked(at, op.rhs, True), op.scale_b, 0)
    acc, full = op.acc, VectorType(Float32Type(), list(result.get_shape()))
    if acc is not None and result != full:
        acc = at.add(arith.ExtFOp(acc, full))
    value = at.add(xegpu.DpasOp(a, b, acc, full, *layouts))
    at.replace(value if result == full else at.add(arith.TruncFOp(value, result)))


def convert_layout(op: xegpu.ConvertLayoutOp) -> None:
    at = Before(op)
    target = wg_map_of(ownership_in(op.target_layout))
    if target is None or len(shape_of(op.source)) != 2:
        at.op.results[0].replace_all_uses_with(op.source)
        Rewriter.erase_op(op)
        return
    source = wg_map_of(ownership_in(op.input_layout))
    at.replace(at.add(xetile.ConvertLayoutOp(op.source, target, source)))
