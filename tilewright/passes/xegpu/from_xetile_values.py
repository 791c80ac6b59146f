"""xetile-to-xegpu, the ops on values: products, reductions, broadcasts, maps.

Part of :mod:`tilewright.passes.xegpu.from_xetile`.
"""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Operation, SSAValue

from tilewright.diagnostics import remark_at
from tilewright.dialects import xegpu, xetile
from tilewright.dialects.attribute_fields import ints
from tilewright.dialects.movement import shape_of
from tilewright.dialects.nesting import enclosing
from tilewright.dialects.xegpu import LayoutAttr
from tilewright.dialects.xetile import SgMapAttr, WgMapAttr
from tilewright.passes.emit import Before
from tilewright.passes.kernel import add_remarks
from tilewright.passes.xetile_to_vector import rearranged

RESULT_LAYOUT = "layout_result_0"


def layout_of(wg_map: WgMapAttr | None, sg_map: SgMapAttr | None = None) -> LayoutAttr | None:
    """XeTile's maps as a layout; ids are row-major in both."""
    if wg_map is None and sg_map is None:
        return None
    fields: dict[str, tuple[int, ...]] = {}
    if wg_map is not None:
        fields |= {"sg_layout": ints(wg_map.sg_layout), "sg_data": ints(wg_map.sg_data)}
        if isinstance(wg_map.inst_data, ArrayAttr):
            fields["inst_data"] = ints(wg_map.inst_data)
    if sg_map is not None:
        fields |= {"lane_layout": ints(sg_map.wi_layout), "lane_data": ints(sg_map.wi_data)}
    return LayoutAttr(**fields)


def swapped(layout: LayoutAttr | None) -> LayoutAttr | None:
    """The layout of the transposed value with the same owners: grid and data swap, and ids' order."""
    if layout is None:
        return None
    names = ("sg_layout", "sg_data", "inst_data", "lane_layout", "lane_data")
    swapped = {
        name: None if (value := layout.field(name)) is None else tuple(reversed(value))
        for name in names
    }
    return LayoutAttr(**swapped, order=(0, 1))


def convert_value(op: Operation) -> None:
    match op:
        case xetile.TileMmaOp():
            maps = [layout_of(m) for m in (op.wg_map_a, op.wg_map_b, op.wg_map_c)]
            result = op.result.type
            at = Before(op)
            at.replace(at.add(xegpu.DpasOp(op.a, op.b, op.c, result, *maps)))
        case xetile.TransposeOp() | xetile.ReductionOp() | xetile.BroadcastOp():
            at = Before(op)
            at.replace(_mapped(rearranged(op, at), op.wg_map))
        case xetile.ConvertLayoutOp():
            at = Before(op)
            target = layout_of(op.wg_map_result)
            assert target is not None
            at.replace(
                at.add(xegpu.ConvertLayoutOp(op.source, target, layout_of(op.wg_map_source)))
            )
        case _:
            map = op.attributes.get("map")
            if isinstance(map, WgMapAttr) and not op.name.startswith("xetile."):
                layout = layout_of(map)
                assert layout is not None
                del op.attributes["map"]
                if len(shape_of(op.results[0])) == layout.rank:
                    op.attributes[RESULT_LAYOUT] = layout
                else:
                    _remark(op, f"{map} is of another rank than {op.results[0].type}: not used")


def _remark(op: Operation, text: str) -> None:
    """Says on the kernel what became of a map."""
    if (kernel := enclosing(op, gpu.FuncOp)) is not None:
        add_remarks(kernel, [remark_at(op, f"{op.name}: {text}")])


def _mapped(value: SSAValue, wg_map: WgMapAttr | None) -> SSAValue:
    """Writes a map on the op that makes the value."""
    layout = layout_of(wg_map)
    if layout is not None and isinstance(value.owner, Operation):
        value.owner.attributes[RESULT_LAYOUT] = layout
    return value
