"""ping-pong: warpgroups take turns at the matrix unit, so that one computes beside others' products.

    %p = stage.mma.issue ..               stage.ping_pong.acquire
    %q = stage.mma.issue ..        ->     %p = stage.mma.issue ..
    %s = stage.mma.wait %p                %q = stage.mma.issue ..
    ... arithmetic on %s ...              stage.ping_pong.release
                                          %s = stage.mma.wait %p
                                          ... arithmetic on %s ...

Requires: products rotated; several warpgroups compute. Guarantees: the same values.

Takes part: a loop that issues all its products before it waits for one, and computes on results of several products,
or, in less time than all products take, on that of one (scales by blocks). Without turns the products of warpgroups
that wait for the same copy alternate and end together, and then all compute (f8 with scales by blocks, 4096 cubed by
192 x 128, on an H200: 138 us, now 127). All warpgroups come to the same loops equally often, so each take has a pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects import gpu, scf
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation

from tilewright.dialects import stage
from tilewright.dialects.elementwise import is_elementwise_on_vectors
from tilewright.dialects.movement import shape_of
from tilewright.dialects.nesting import ops_behind
from tilewright.dialects.stage.products import vector_of
from tilewright.targets.cuda.passes.wgmma_legality import instruction_for
from tilewright.uarch.base import Machine
from tilewright.uarch.nvidia import LANES, WARPGROUP


def schedule_ping_pong(function: gpu.FuncOp, machine: Machine, groups: int) -> int:
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
        if not issues or not waits or not issues[-1].is_before_in_block(waits[0]):
            continue
        behind = [*ops_behind(waits[0])]
        if not any(map(_computes, behind)):
            continue
        if len(issues) == 1 and not _scales(waits[0], behind, issues[0], machine):
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


def _scales(
    wait: stage.ProductWaitOp,
    behind: Sequence[Operation],
    product: stage.ProductIssueOp,
    machine: Machine,
) -> bool:
    """Is the result of a product used at once, and computed with in less time than the product takes?"""
    if all(use.operation is behind[-1] for value in wait.values for use in value.uses):
        return False
    a, b, c = product.a.type, product.b.type, vector_of(product.result.type)
    found = instruction_for(machine, a, b, c)
    if found is None or found.flops_per_cycle is None:
        return False
    elements = sum(prod(shape_of(op.results[0])) for op in behind if is_elementwise_on_vectors(op))
    clocks = 2 * prod(product.sizes) / found.flops_per_cycle
    return elements / (WARPGROUP * LANES) <= clocks
