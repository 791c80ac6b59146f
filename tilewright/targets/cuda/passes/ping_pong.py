"""ping-pong: warpgroups take turns at the matrix unit, so that one computes with others' products while another
multiplies.

    %p = stage.mma.issue ..               stage.ping_pong.acquire
    %q = stage.mma.issue ..        ->     %p = stage.mma.issue ..
    %s = stage.mma.wait %p                %q = stage.mma.issue ..
    ... arithmetic on %s ...              stage.ping_pong.release
                                          %s = stage.mma.wait %p
                                          ... arithmetic on %s ...

Requires: products rotated; several warpgroups compute. Guarantees: the same values.

Takes part: a loop that issues all its products before it waits for one, and then computes on results of products. All
warpgroups come to the same loops equally often, so each take has a pass.
"""

from __future__ import annotations

from xdsl.dialects import gpu, scf
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation

from tilewright.dialects import stage


def schedule_ping_pong(function: gpu.FuncOp, groups: int) -> int:
    """Lets one warpgroup multiply while another computes. Returns in how many loops."""
    if groups < 2:
        return 0
    count = 0
    for loop in list(function.walk()):
        if not isinstance(loop, scf.ForOp):
            continue
        block = loop.body.block
        issues = [op for op in block.ops if isinstance(op, stage.ProductIssueOp)]
        waits = [op for op in block.ops if isinstance(op, stage.ProductWaitOp)]
        if len(issues) < 2 or not waits or not issues[-1].is_before_in_block(waits[0]):
            continue
        if not any(_computes(op) for op in block.ops if waits[0].is_before_in_block(op)):
            continue
        block.insert_op_before(stage.PingPongAcquireOp(), issues[0])
        block.insert_op_after(stage.PingPongReleaseOp(), issues[-1])
        count += 1
    return count


def _computes(op: Operation) -> bool:
    """Arithmetic on whole tiles."""
    if op.name.startswith("stage."):
        return False
    return any(isinstance(r.type, VectorType) for r in op.results)
