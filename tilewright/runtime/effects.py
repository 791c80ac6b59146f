"""Which arguments of a kernel its program may write.

A read-only array is refused where the kernel would store, before anything runs; this is the question
behind that refusal, asked of the IR once per compiled kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import gpu
from xdsl.dialects.builtin import IndexType, IntegerType
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from tilewright.dialects.effects import written


def kernel_function(module: Operation) -> gpu.FuncOp | None:
    """The kernel of a module that holds one."""
    for op in module.walk():
        if isinstance(op, gpu.FuncOp) and op.kernel is not None:
            return op
    return None


def stored_arguments(kernel: gpu.FuncOp) -> frozenset[int]:
    """Positions of the arguments that some op may write through: an upper bound."""
    entry = kernel.body.blocks.first
    if entry is None:
        return frozenset()
    found: set[int] = set()
    seen: set[SSAValue] = set()
    for op in kernel.walk():
        for value in written(op):
            for root in _roots(value, seen):
                if isinstance(root, BlockArgument) and root.block is entry:
                    found.add(root.index)
    return frozenset(found)


def _roots(value: SSAValue, seen: set[SSAValue]) -> Iterator[SSAValue]:
    """Block arguments that the address ``value`` may be made from; each value is followed once.

    A memref, tile or descriptor points where its first operand points (init_tile, views, casts,
    update_tile_offset); an address in an integer may come from any operand.
    """
    work = [value]
    while work:
        at = work.pop()
        if at in seen:
            continue
        seen.add(at)
        owner = at.owner
        if isinstance(owner, Block):
            yield at
            work += _carried_in(owner, at)
        elif owner.regions:
            work += _yielded(owner, at)
        elif isinstance(at.type, (IndexType, IntegerType)):
            work += owner.operands
        else:
            work += owner.operands[:1]


def _carried_in(block: Block, value: SSAValue) -> Iterator[SSAValue]:
    """What a loop may bind to its block argument: the initial values and those that it yields."""
    parent = block.parent_op()
    if parent is None or isinstance(parent, gpu.FuncOp):
        return
    yield from (v for v in parent.operands if v.type == value.type)
    for inner in parent.regions:
        for candidate in inner.blocks:
            if candidate.last_op is not None:
                yield from (v for v in candidate.last_op.operands if v.type == value.type)


def _yielded(op: Operation, result: SSAValue) -> Iterator[SSAValue]:
    """What an op with regions may give as ``result``: what its regions yield, and what it got."""
    yield from (v for v in op.operands if v.type == result.type)
    for region in op.regions:
        for block in region.blocks:
            if block.last_op is not None:
                yield from (v for v in block.last_op.operands if v.type == result.type)
