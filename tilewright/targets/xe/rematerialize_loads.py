"""xe-rematerialize-loads: what a loop only reads is loaded again in every step instead of being kept over all of them.

    %q = load_nd %t[%m, 0]                          scf.for .. {
    scf.for .. { %s = dpas %q, %k ; .. }     ->       %q = load_nd %t[%m, 0] ; %s = dpas %q, %k ; .. }

A fragment that comes from outside of a loop fills registers through the whole of it, also where the loop works on
something else: the rows of Q while a second product goes on. Loaded in the loop, from a cache, it fills them up to its
last product only. More messages, fewer registers: so it runs only where registers would not suffice, with
xe-schedule-for-pressure behind it.

Requires: a lane program. Guarantees: the same results. Moves block loads, with the parts that are taken of them, into
the loop that holds all their users, from arguments that the kernel does not write and that overlap no other one.
"""

from __future__ import annotations

from xdsl.dialects import gpu, scf
from xdsl.ir import Block, Operation
from xdsl.rewriter import InsertPoint

from tilewright.dialects import xegpu
from tilewright.dialects.nesting import move
from tilewright.passes.xegpu.block_messages import memory_of, never_written
from tilewright.targets.xe.liveness import VIEWS


def rematerialize_loads(kernel: gpu.FuncOp) -> bool:
    """Moves the loads of a kernel; True where there was one."""
    unwritten = never_written(kernel)
    changed = False
    for op in list(kernel.walk()):
        if isinstance(op, xegpu.LoadNdOp) and memory_of(op) in unwritten:
            group: list[Operation] = [op]
            loop = _loop_of(op, group)
            if loop is not None:
                _move(group, loop)
                changed = True
    return changed


def _loop_of(op: Operation, group: list[Operation]) -> scf.ForOp | None:
    """The loop next to an op that holds all its users; `group` receives its parts outside, which go with it."""
    loops: set[scf.ForOp] = set()
    for result in op.results:
        for use in result.uses:
            user = use.operation
            if user.parent is op.parent:
                if user.name not in VIEWS or user in group:
                    return None
                group.append(user)
                inner = _loop_of(user, group)
                if inner is None:
                    return None
                loops.add(inner)
                continue
            here = None if op.parent is None else op.parent.find_ancestor_op_in_block(user)
            if not isinstance(here, scf.ForOp):
                return None
            loops.add(here)
    return loops.pop() if len(loops) == 1 else None


def _move(group: list[Operation], loop: scf.ForOp) -> None:
    body: Block = loop.body.block
    move(group, InsertPoint.at_start(body))
