"""xegpu-subgroup-distribute{target=pvc|bmg|dg2 reduction=tree|hardware}: what a subgroup does becomes what a lane does.

Requires: today's XeGPU (xegpu-upgrade) at subgroup level whose dpas and block ops are instructions of the machine
(xegpu-blocking). Layouts on ops are wishes; where there are none the machine's fragments and natural distributions are
taken. Guarantees: the same results. Every vector is one lane's fragment, 1-D, without layouts; dpas, block loads,
stores and prefetches are one instruction each; scalars are uniform; `tilewright.level = "lane"`, `tilewright.lanes` is
set.

    %a = load_nd %t[%m, %k] : tensor_desc<32x16xf16, array_length = 2> -> vector<2x32x16xf16>
    %b = vector.extract %a[1] : vector<32x16xf16> from vector<2x32x16xf16>
    %c = vector.extract_strided_slice %b {offsets = [8, 0], sizes = [8, 16], ..} : .. to vector<8x16xf16>
    %d = dpas %c, %w, %acc : vector<8x16xf16>, vector<16x16xf16>, vector<8x16xf32> -> vector<8x16xf32>
->
    %a = load_nd %t[%m, %k] : tensor_desc<32x16xf16, array_length = 2> -> vector<64xf16>
    %c = vector.extract_strided_slice %a {offsets = [40], sizes = [8], strides = [1]} : .. to vector<8xf16>
    %d = dpas %c, %w, %acc : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>

Slices of a load are parts of its registers and cost nothing. A block load whose users want another distribution than
any form of the message gives, reductions over lanes, and conversions become gpu.shuffle (all registers that move alike
in one), with selects where lanes take different registers; `reduction=hardware` uses gpu.subgroup_reduce.
Stock ops without a lane form are refused by name.
"""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.ir import Operation

from tilewright.dialects.upstream.gpu.lanes import LANES
from tilewright.passes.kernel import LEVEL, add_remarks
from tilewright.passes.new_body import refuse_vectors
from tilewright.passes.thread_ids import thread_ids_to_subgroup_ids
from tilewright.passes.xegpu.lanes import LaneProgram, rule
from tilewright.uarch.xe import XeMachine


def subgroup_distribute(kernel: gpu.FuncOp, xe: XeMachine, *, hardware: bool = False) -> None:
    """Rewrites a kernel of subgroup level to lane level, in place."""
    refuse_vectors(kernel)
    thread_ids_to_subgroup_ids(kernel)
    rewriting = LaneProgram(kernel, xe, hardware)
    rewriting.kernel(kernel)
    add_remarks(kernel, rewriting.remarks)
    kernel.attributes[LEVEL] = StringAttr("lane")
    kernel.attributes[LANES] = IntegerAttr(xe.lanes, i64)


@rule("xegpu.update_nd_offset", "xegpu.create_tdesc", "xegpu.update_offset")
def older(d: LaneProgram, op: Operation) -> None:
    raise d.refuse("a descriptor of the older text", "run xegpu-upgrade first")
