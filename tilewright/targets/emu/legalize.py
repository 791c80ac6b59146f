"""emu-legalize: what the lowering need not know is written with ops that it does.

    %v = func.call @scale(%x)                   the function's ops, in place (`inline_calls`)
    scf.parallel, scf.forall                    ->   nested scf.for
    gpu.thread_id, gpu.global_id                ->   from the subgroup's number and the lane's
    xetile ops                                  ->   xegpu ops

Requires: a verified kernel at lane or subgroup level. Guarantees: the same results; raises UnsupportedError
for calls of functions that the module does not define, that call themselves, or that have several blocks.
"""

from __future__ import annotations

from xdsl.dialects import gpu, scf
from xdsl.dialects.builtin import DenseArrayBase, IndexType, i64
from xdsl.ir import Block
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.diagnostics import unsupported
from tilewright.passes.affine_to_scf import affine_to_scf
from tilewright.passes.emit import Before
from tilewright.passes.inline_calls import inline_calls
from tilewright.passes.kernel import BLOCK
from tilewright.passes.thread_ids import thread_ids_to_subgroup_ids


def prepare(kernel: gpu.FuncOp, block: tuple[int, int, int], lanes: int) -> None:
    """Rewrite in place; the launch has `block` threads."""
    inline_calls(kernel)
    affine_to_scf(kernel)
    for op in list(kernel.walk()):
        if isinstance(op, scf.ParallelOp):
            _loops(op)
        elif isinstance(op, gpu.GlobalIdOp):
            at = Before(op)
            one, size, number = (
                at.add(kind(op.dimension))
                for kind in (gpu.ThreadIdOp, gpu.BlockDimOp, gpu.BlockIdOp)
            )
            at.replace(at.index(at.plus(at.times(number, size), one)))
    kernel.attributes[BLOCK] = DenseArrayBase.from_list(i64, block)
    thread_ids_to_subgroup_ids(kernel, of_lanes=lanes > 1)


def _loops(op: scf.ParallelOp) -> None:
    """The iterations in order, as nested loops."""
    if op.initVals:
        raise unsupported(op, f"{op.name} with results")
    at, body = Before(op), op.body.block
    blocks = [Block(arg_types=[IndexType()]) for _ in op.step]
    if body.last_op is not None:
        Rewriter.erase_op(body.last_op)
    body.add_op(scf.YieldOp())
    Rewriter.inline_block(body, InsertPoint.at_end(blocks[-1]), [b.args[0] for b in blocks])
    bounds = zip(op.lowerBound, op.upperBound, op.step, blocks, strict=True)
    loops = [scf.ForOp(low, high, step, [], block) for low, high, step, block in bounds]
    for block, loop in zip(blocks, loops[1:], strict=False):
        loop.location = op.location
        block.add_ops([loop, scf.YieldOp()])
    at.insert(loops[0])
    Rewriter.erase_op(op)
