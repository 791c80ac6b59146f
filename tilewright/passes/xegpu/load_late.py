"""Loads of shared memory move to their first users (part of :mod:`tilewright.passes.xegpu.exchange_slm`).

    store_matrix %a, %m                        store_matrix %a, %m
    %b = load_matrix %m                        store_matrix %s, %n
    store_matrix %s, %n                ->      %t = load_matrix %n
    %t = load_matrix %n                        %b = load_matrix %m
    .. dpas %b ..                              .. dpas %b ..

So what comes back fills no registers over the barriers of other exchanges, and shares one with them.
"""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint

from tilewright.dialects import xegpu
from tilewright.dialects.nesting import move, ops_behind
from tilewright.passes import memory_objects
from tilewright.passes.xegpu.block_messages import memory_of


def load_late(kernel: gpu.FuncOp) -> None:
    """Moves every load of shared memory up to its first user, or to what may write that memory."""
    for op in list(kernel.walk()):
        if isinstance(op, xegpu.LoadMatrixOp):
            _move(op)


def _move(load: xegpu.LoadMatrixOp) -> None:
    block, root = load.parent, memory_of(load)
    assert block is not None
    users = {block.find_ancestor_op_in_block(use.operation) for use in load.results[0].uses}
    places = (op for op in ops_behind(load) if op in users or may_change(op, root))
    at = next(places, None)
    if at is not None and users:
        move([load], InsertPoint.before(at))


def may_change(op: Operation, root: SSAValue | None) -> bool:
    """May an op, or what is inside of it, write an array, or let others do so?"""
    return any(
        memory_objects.orders(each)
        or (
            not each.regions
            and memory_objects.may_write(each)
            and memory_objects.may_alias(root, memory_of(each))
        )
        for each in op.walk()
    )
