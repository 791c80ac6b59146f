"""xegpu-to-xetile, the ops on values: products, reductions, layouts.

Part of :mod:`tilewright.passes.xegpu.to_xetile`.
"""

from __future__ import annotations

from xdsl.ir import Attribute
from xdsl.rewriter import Rewriter

from tilewright.diagnostics import unsupported
from tilewright.dialects import xegpu, xetile
from tilewright.dialects.movement import shape_of
from tilewright.dialects.xegpu.layouts import LayoutAttr, Ownership
from tilewright.dialects.xetile import WgMapAttr
from tilewright.passes.emit import Before
from tilewright.passes.expand_products import unpacked


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


def convert_dpas(op: xegpu.DpasOp) -> None:
    at = Before(op)
    if op.dims() is None:
        raise unsupported(op, "operands are a lane's fragments; the program is lane-level")
    a, b = unpacked(at, op.lhs, False), unpacked(at, op.rhs, True)
    maps = [wg_map_of(layout) for layout in op.layouts]
    result = op.result.type
    mma = xetile.TileMmaOp(
        a, b, op.acc, result_type=result, wg_map_a=maps[0], wg_map_b=maps[1], wg_map_c=maps[2]
    )
    at.replace(at.add(mma))


def convert_layout(op: xegpu.ConvertLayoutOp) -> None:
    at = Before(op)
    target = wg_map_of(ownership_in(op.target_layout))
    if target is None or len(shape_of(op.source)) != 2:
        at.op.results[0].replace_all_uses_with(op.source)
        Rewriter.erase_op(op)
        return
    source = wg_map_of(ownership_in(op.input_layout))
    at.replace(at.add(xetile.ConvertLayoutOp(op.source, target, source)))
