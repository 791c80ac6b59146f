"""xegpu-blocking{target=pvc|bmg|dg2}: every op becomes ops of the machine's size.

Requires: XeGPU at subgroup level; older text is modernized first. `inst_data` and lanes on ops are wishes; what
the text leaves open is chosen from the machine table.
Guarantees: the same results. A dpas is one instruction; block loads are the largest messages that consist of
whole fragments (height, array_length), stores and prefetches too; arithmetic is on fragments; loops carry fragments
(1:N). Loads have the lane layout that their users want (`lane_data = [2, 1]`: rows packed for B). No `inst_data` is
left.

    %a = load_nd %t[%m, %k] : tensor_desc<32x32xf16> -> vector<32x32xf16>
    %b = load_nd %u[%k, %n] : tensor_desc<32x64xf16> -> vector<32x64xf16>
    %d = dpas %a, %b, %c : vector<32x32xf16>, vector<32x64xf16>, vector<32x64xf32> -> vector<32x64xf32>
->
    %a = load_nd %t2[%m, %k] : tensor_desc<32x16xf16, array_length = 2> -> vector<2x32x16xf16>
    %b0 = load_nd %u2[%k, %n], %b1 = load_nd %u2[%k, %n + 32] : tensor_desc<32x16xf16, array_length = 2> -> ..
    %a00 = slices of %a, %b0, %b1
    %d00 = dpas %a00, %b00, %c00 : vector<8x16xf16>, vector<16x16xf16>, vector<8x16xf32> -> vector<8x16xf32>
    ... 32 of them

Slices between loads and dpas pick registers; distribution to lanes makes nothing of them.
What 2D block messages cannot reach keeps `tilewright.scattered` and is cut into fragments only.
"""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.dialects.builtin import VectorType

from tilewright.diagnostics import unsupported
from tilewright.passes.xegpu.inst_fragments import Fragments
from tilewright.passes.xegpu.lane_rows import add_remarks
from tilewright.passes.xegpu.legalize import legalize
from tilewright.passes.xegpu.sink_loads import sink_scattered_loads
from tilewright.uarch.xe import XeMachine


def block(kernel: gpu.FuncOp, xe: XeMachine) -> None:
    """Rewrites a kernel of subgroup level to instruction-sized ops, in place."""
    if any(isinstance(a.type, VectorType) for a in kernel.body.blocks[0].args):
        raise unsupported(
            kernel,
            "a kernel that is cut into instructions takes no vectors",
            hint="load them from memory",
        )
    legalize(kernel, xe)
    rewriting = Fragments(kernel, xe)
    rewriting.kernel(kernel)
    add_remarks(kernel.attributes, rewriting.remarks)
    sink_scattered_loads(kernel.body.block)
