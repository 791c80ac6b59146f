"""emu-legalize: what the lowering need not know is written with ops that it does.

    %v = func.call @scale(%x)                   the function's ops, in place (`inline_calls`)
    gpu.thread_id, gpu.global_id                ->   from the subgroup's number and the lane's
    xetile ops                                  ->   xegpu ops

Requires: a verified kernel at lane or subgroup level. Guarantees: the same results; raises UnsupportedError
for calls of functions that the module does not define, that call themselves, or that have several blocks.
"""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.dialects.builtin import DenseArrayBase, i64

from tilewright.passes.emit import Before
from tilewright.passes.inline_calls import inline_calls
from tilewright.passes.kernel import BLOCK
from tilewright.passes.thread_ids import thread_ids_to_subgroup_ids


def prepare(kernel: gpu.FuncOp, block: tuple[int, int, int], lanes: int) -> None:
    """Rewrite in place; the launch has `block` threads."""
    inline_calls(kernel)
    for op in list(kernel.walk()):
        if isinstance(op, gpu.GlobalIdOp):
            at = Before(op)
            one, size, number = (
                at.add(kind(op.dimension))
                for kind in (gpu.ThreadIdOp, gpu.BlockDimOp, gpu.BlockIdOp)
            )
            at.replace(at.index(at.plus(at.times(number, size), one)))
    kernel.attributes[BLOCK] = DenseArrayBase.from_list(i64, block)
    thread_ids_to_subgroup_ids(kernel, of_lanes=lanes > 1)
