"""xegpu-blockop-fallback{target=pvc|bmg|dg2}: finds the block ops that 2D block messages cannot do.

Requires: today's XeGPU (xegpu-upgrade) at subgroup level. Guarantees: changes no result; load_nd, store_nd and
prefetch_nd whose base the machine's messages cannot reach (no 2D blocks at all, shared local memory, a pitch or
width that is too narrow or not aligned, columns apart, a misaligned base) say why:

    %v = load_nd %t[%m, 0] : tensor_desc<32x8xf16>, of a memref<4096x20xf16>
    ->
    %v = load_nd %t[%m, 0] {tilewright.scattered = "base matrix pitch of 40 bytes is not possible: .."} : ..

Blocking then cuts them into fragments without the messages' limits, and distribution moves them by rows of the subgroup
or by vectors of its lanes (`row_access`), and says which and why in the kernel's `tilewright.remarks`. What the text
does not tell (dynamic strides) is taken as right: a load_nd asks for block messages.
"""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.dialects.builtin import StringAttr

from tilewright.dialects import xegpu
from tilewright.passes.xegpu.block_messages import SCATTERED, created, surface_fault
from tilewright.passes.xegpu.legalize import legalize
from tilewright.uarch.xe import XeMachine


def mark(kernel: gpu.FuncOp, xe: XeMachine) -> None:
    """Marks block ops that no 2D block message can do."""
    legalize(kernel, xe)
    for op in kernel.walk():
        if not isinstance(op, xegpu.BlockAccess):
            continue
        source = created(op)
        if source is None or len(op.tdesc.get_shape()) < 2:
            continue
        fault = surface_fault(xe, source)
        if fault is not None:
            op.attributes[SCATTERED] = StringAttr(fault)
