"""emu-legalize: what the lowering need not know is written with ops that it does.

    %v = func.call @scale(%x)                   the function's ops, in place (`inline_calls`)
    scf.parallel, scf.forall                    ->   nested scf.for
    vector.from_elements, vector.to_elements    ->   vector.insert, vector.extract (`elements`)
    xetile ops                                  ->   xegpu ops

Requires: a verified kernel at lane or subgroup level. Guarantees: the same results; raises UnsupportedError
for calls of functions that the module does not define, that call themselves, or that have several blocks.
"""

from __future__ import annotations

from xdsl.dialects import gpu, scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.dialects.upstream.scf import ForallOp
from tilewright.passes.elements import insert_and_extract
from tilewright.passes.emit import Before
from tilewright.passes.inline_calls import inline_calls


def prepare(kernel: gpu.FuncOp) -> None:
    """Rewrite in place."""
    inline_calls(kernel)
    insert_and_extract(kernel)
    for op in list(kernel.walk()):
        if isinstance(op, scf.ParallelOp):
            bounds = zip(op.lowerBound, op.upperBound, op.step, strict=True)
            _loops(op, op.body.block, list(bounds), bool(op.initVals))
        elif isinstance(op, ForallOp):
            lower, upper, step = (op.mixed(n) for n in ("lower", "upper", "step"))
            _loops(op, op.body.block, list(zip(lower, upper, step, strict=True)), bool(op.res))


# Loops ----------------------------------------------------------------------------------------------------------------

Bound = SSAValue | int


def _loops(
    op: Operation, body: Block, bounds: list[tuple[Bound, Bound, Bound]], carries: bool
) -> None:
    """The iterations in order, as nested loops."""
    if carries:
        raise error_at(op, f"{op.name} with results", kind=UnsupportedError)
    at = Before(op)
    triples = [[at.index(x) for x in triple] for triple in bounds]
    blocks = [Block(arg_types=[IndexType()]) for _ in bounds]
    if body.last_op is not None:
        Rewriter.erase_op(body.last_op)
    body.add_op(scf.YieldOp())
    Rewriter.inline_block(body, InsertPoint.at_end(blocks[-1]), [b.args[0] for b in blocks])
    for n in reversed(range(len(blocks))):
        low, high, step = triples[n]
        loop = scf.ForOp(low, high, step, [], blocks[n])
        loop.location = op.location
        if n:
            blocks[n - 1].add_ops([loop, scf.YieldOp()])
        else:
            at.insert(loop)
    Rewriter.erase_op(op)
