"""emu-prepare: what the lowering need not know is written with ops that it does.

    %v = func.call @scale(%x)                   the function's ops, in place (`inline_calls`)
    affine.apply affine_map<(d0) -> (d0 + 4)>   ->   arith.addi
    scf.parallel, scf.forall                    ->   nested scf.for
    vector.from_elements, vector.to_elements    ->   vector.insert, vector.extract (`elements`)
    xetile ops                                  ->   xegpu ops

Requires: a verified kernel at lane or subgroup level. Guarantees: the same results; raises UnsupportedError
for calls of functions that the module does not define, that call themselves, or that have several blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import affine, arith, gpu, scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineSymExpr,
)
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.dialects.upstream.scf import ForallOp
from tilewright.passes.elements import insert_and_extract
from tilewright.passes.inline_calls import inline_calls


def prepare(kernel: gpu.FuncOp) -> None:
    """Rewrite in place."""
    inline_calls(kernel)
    insert_and_extract(kernel)
    for op in list(kernel.walk()):
        if isinstance(op, affine.ApplyOp):
            _apply(op)
        elif isinstance(op, scf.ParallelOp):
            bounds = zip(op.lowerBound, op.upperBound, op.step, strict=True)
            _loops(op, op.body.block, list(bounds), bool(op.initVals))
        elif isinstance(op, ForallOp):
            lower, upper, step = (op.mixed(n) for n in ("lower", "upper", "step"))
            _loops(op, op.body.block, list(zip(lower, upper, step, strict=True)), bool(op.res))


# Maps -----------------------------------------------------------------------------------------------------------------


def _apply(op: affine.ApplyOp) -> None:
    map = op.map.data
    values = list(op.mapOperands)
    made: list[Operation] = []
    result = _expression(map.results[0], values[: map.num_dims], values[map.num_dims :], made)
    for new in made:
        new.location = op.location
    Rewriter.replace_op(op, made, [result])


def _expression(
    expr: AffineExpr, dims: Sequence[SSAValue], symbols: Sequence[SSAValue], made: list[Operation]
) -> SSAValue:
    match expr:
        case AffineConstantExpr():
            made.append(arith.ConstantOp.from_int_and_width(expr.value, IndexType()))
            return made[-1].results[0]
        case AffineDimExpr():
            return dims[expr.position]
        case AffineSymExpr():
            return symbols[expr.position]
        case AffineBinaryOpExpr():
            a = _expression(expr.lhs, dims, symbols, made)
            b = _expression(expr.rhs, dims, symbols, made)
            made += _binary(expr.kind, a, b)
            return made[-1].results[0]
        case _:
            raise TypeError(str(expr))


def _binary(kind: AffineBinaryOpKind, a: SSAValue, b: SSAValue) -> list[Operation]:
    """The op; a remainder is a - floor(a / b) * b, never negative."""
    match kind:
        case AffineBinaryOpKind.Add:
            return [arith.AddiOp(a, b)]
        case AffineBinaryOpKind.Mul:
            return [arith.MuliOp(a, b)]
        case AffineBinaryOpKind.FloorDiv:
            return [arith.FloorDivSIOp(a, b)]
        case AffineBinaryOpKind.CeilDiv:
            return [arith.CeilDivSIOp(a, b)]
        case AffineBinaryOpKind.Mod:
            quotient = arith.FloorDivSIOp(a, b)
            product = arith.MuliOp(quotient.result, b)
            return [quotient, product, arith.SubiOp(a, product.result)]


# Loops ----------------------------------------------------------------------------------------------------------------

Bound = SSAValue | int


def _loops(
    op: Operation, body: Block, bounds: list[tuple[Bound, Bound, Bound]], carries: bool
) -> None:
    """The iterations in order, as nested loops."""
    if carries:
        raise error_at(op, f"{op.name} with results", kind=UnsupportedError)
    made: list[Operation] = []

    def value(bound: Bound) -> SSAValue:
        if isinstance(bound, int):
            made.append(arith.ConstantOp.from_int_and_width(bound, IndexType()))
            return made[-1].results[0]
        return bound

    values = [tuple(value(x) for x in triple) for triple in bounds]
    counters: list[SSAValue] = []
    outer: Block | None = None
    first: scf.ForOp | None = None
    inner: Block | None = None
    for low, high, step in values:
        inner = Block(arg_types=[IndexType()])
        loop = scf.ForOp(low, high, step, [], inner)
        loop.location = op.location
        counters.append(inner.args[0])
        if outer is None:
            first = loop
        else:
            outer.add_op(loop)
            outer.add_op(scf.YieldOp())
        outer = inner
    assert first is not None and inner is not None
    last = body.last_op
    if last is not None:
        Rewriter.erase_op(last)
    inner.add_op(end := scf.YieldOp())
    Rewriter.inline_block(body, InsertPoint.before(end), counters)
    Rewriter.replace_op(op, [*made, first], [])
