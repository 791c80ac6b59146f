"""xegpu-propagate-layout{kind=subgroup|inst|lane target=pvc|bmg|dg2}: every value gets a layout of that level.

Requires: XeGPU in today's form at the level above (workgroup for `subgroup`, subgroup for `inst` and `lane`).
Guarantees: every vector has a layout, and every op's operands have those with which the op is local; what
the text says is kept.

Layouts spread from what the text fixes and from the anchors (products, stores, loads), both ways: backward
from an op's result to its operands and forward where only an operand is known, in the innermost loops
first, so that what remains to be settled is settled outside. Values that nothing reaches get a default
from the machine table. Where two layouts meet, one convert_layout stands right behind the value, where
the fewest bytes move: it wanders up through ops whose operands are smaller, or whose operands can have
any layout.

    %v = xegpu.load_nd %t[%m, %n] : ..                       %v = xegpu.load_nd %t[%m, %n] <{layout = #c}> : ..
    %w = arith.addf %v, %v : vector<256x256xf32>       ->    %w = arith.addf %v, %v {layout_result_0 = #c} : ..
    xegpu.store_nd %w, %u[%m, %n] : .., tensor_desc<.., #c>  xegpu.store_nd %w, %u[%m, %n] <{layout = #c}> : ..
"""

from __future__ import annotations

from xdsl.dialects import gpu

from tilewright.diagnostics import UnsupportedError
from tilewright.passes.xegpu.propagate_below import propagate_below
from tilewright.passes.xegpu.propagate_subgroup import propagate_subgroup
from tilewright.uarch.xe import XeMachine

KINDS = {
    "subgroup": "assigns a subgroup layout to every value",
    "inst": "assigns an instruction size to every value",
    "lane": "assigns a lane layout to every fragment",
}
"""The layouts that values can be given, and the level at which that is done."""


def check_kind(kind: str) -> None:
    """Raises UnsupportedError for any other kind of layout."""
    if kind not in KINDS:
        raise UnsupportedError(
            f"xegpu-propagate-layout has no kind {kind}",
            hint="the kinds are subgroup, inst and lane",
        )


def propagate_layout(kernel: gpu.FuncOp, machine: XeMachine, kind: str = "subgroup") -> None:
    """Gives every value of a kernel its layout of a kind, one of `KINDS`."""
    if kind == "subgroup":
        propagate_subgroup(kernel, machine)
    else:
        propagate_below(kernel, machine, lanes_only=kind == "lane")
