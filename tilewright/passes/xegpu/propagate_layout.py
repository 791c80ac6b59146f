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

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from tilewright.diagnostics import UnsupportedError
from tilewright.passes.level import functions_at
from tilewright.passes.xegpu.ownership import xe_machine
from tilewright.passes.xegpu.propagate_below import propagate_below
from tilewright.passes.xegpu.propagate_subgroup import propagate_subgroup
from tilewright.passes.xegpu.wg_to_sg import workgroup_kernels


@dataclass(frozen=True)
class XeGPUPropagateLayout(ModulePass):
    """See the module's docstring."""

    name = "xegpu-propagate-layout"

    kind: str = "subgroup"
    target: str = "pvc"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        table = xe_machine(self.target)
        match self.kind:
            case "subgroup":
                for kernel in workgroup_kernels(op):
                    propagate_subgroup(kernel, table)
            case "inst" | "lane":
                for kernel in functions_at(op, "subgroup"):
                    propagate_below(kernel, table, lanes_only=self.kind == "lane")
            case _:
                raise UnsupportedError(
                    f"xegpu-propagate-layout has no kind {self.kind}",
                    hint="the kinds are subgroup, inst and lane",
                )
