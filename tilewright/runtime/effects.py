"""Which arguments of a kernel its program may write.

A read-only array is refused where the kernel would store, before anything runs; this is the question
behind that refusal, asked of the IR once per compiled kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import gpu
from xdsl.dialects.builtin import IndexType, IntegerType
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from tilewright.dialects.effects import written
from tilewright.passes.carried import reached


def kernel_function(module: Operation) -> gpu.FuncOp | None:
    """The kernel of a module that holds one."""
    for op in module.walk():
        if isinstance(op, gpu.FuncOp) and op.kernel is not None:
            return op
    return None


def stored_arguments(kernel: gpu.FuncOp) -> frozenset[int]:
    """Positions of the arguments that some op may write through: an upper bound."""
    entry = kernel.body.blocks.first
    values = reached((v for op in kernel.walk() for v in written(op)), _sources)
    arguments = (v for v in values if isinstance(v, BlockArgument) and v.block is entry)
    return frozenset(v.index for v in arguments)


def _sources(value: SSAValue) -> Sequence[SSAValue]:
    """What an address may be made from: of a loop or branch, all that it got, or that its regions give.

    A memref, tile or descriptor points where its first operand points (init_tile, views, casts,
    update_tile_offset); an address in an integer may come from any operand.
    """
    op = value.owner.parent_op() if isinstance(value.owner, Block) else value.owner
    if op is None or isinstance(op, gpu.FuncOp):
        return ()
    if op.regions:
        ends = (block.last_op for region in op.regions for block in region.blocks)
        given = (v for each in (op, *ends) if each is not None for v in each.operands)
        return [v for v in given if v.type == value.type]
    return op.operands if isinstance(value.type, IndexType | IntegerType) else op.operands[:1]
