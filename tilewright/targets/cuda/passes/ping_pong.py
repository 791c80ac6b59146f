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
192 x 128, on an H200: 138 us, now 127). And a loop that issues its last product before functions of the special
function unit, which are computed beside it: the turns are at that unit then, from the product to the last function;
not with several functions of each element, which take longer than the other warpgroup's products. All warpgroups come
to the same loops equally often, so each take has a pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from math import prod

from xdsl.dialects import gpu, scf
from xdsl.ir import Block, Operation

from tilewright.dialects import stage
from tilewright.dialects.elementwise import is_elementwise_on_vectors
from tilewright.dialects.movement import shape_of
from tilewright.dialects.nesting import ops_behind
from tilewright.dialects.stage.products import computes
from tilewright.targets.cuda.passes.wgmma_legality import clocks
from tilewright.uarch.base import Machine
from tilewright.uarch.nvidia import LANES, SPECIAL_FUNCTIONS, WARPGROUP


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
        if not issues or not waits:
            continue
        if not issues[-1].is_before_in_block(waits[0]):
            count += _take_turns_at_functions(block, issues[-1])
            continue
        behind = [*ops_behind(waits[0])]
        if not any(map(computes, behind)):
            continue
        if len(issues) == 1 and not _scales(waits[0], behind, issues[0], machine):
            continue
        block.insert_op_before(stage.PingPongAcquireOp(), issues[0])
        block.insert_op_after(stage.PingPongReleaseOp(), issues[-1])
        count += 1
    return count


def _take_turns_at_functions(block: Block, issue: stage.ProductIssueOp) -> bool:
    """Turns at the special function unit, where the functions behind a product are computed while it runs."""
    behind = takewhile(lambda op: not isinstance(op, stage.ProductWaitOp), ops_behind(issue))
    functions = [op for op in behind if op.name in SPECIAL_FUNCTIONS]
    if not functions:
        return False
    last = max(reversed(functions), key=lambda op: prod(shape_of(op.results[0])))
    if sum(shape_of(op.results[0]) == shape_of(last.results[0]) for op in functions) > 1:
        return False
    block.insert_op_before(stage.PingPongAcquireOp(), issue)
    block.insert_ops_after([stage.PingPongReleaseOp(), stage.SchedBarrierOp()], last)
    return True


def _scales(
    wait: stage.ProductWaitOp,
    behind: Sequence[Operation],
    product: stage.ProductIssueOp,
    machine: Machine,
) -> bool:
    """Is the result of a product used at once, and computed with in less time than the product takes?"""
    if all(use.operation is behind[-1] for value in wait.values for use in value.uses):
        return False
    elements = sum(prod(shape_of(op.results[0])) for op in behind if is_elementwise_on_vectors(op))
    return elements / (WARPGROUP * LANES) <= clocks(machine, product)
