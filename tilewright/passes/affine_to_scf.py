"""affine-to-scf: loops and accesses of the affine dialect in host code, and scf.forall, as those of scf and memref.

    affine.for %i = 0 to 100 {                             scf.for %i = %c0 to %c100 step %c1 {
      affine.store %x, %m[%i + 1] : memref<..>      ->       %j = affine.apply (i) -> (i + 1) (%i)
    }                                                        memref.store %x, %m[%j] : memref<..>
                                                           }

Requires: nothing.  Guarantees: of the affine dialect only `affine.apply`, `min`, `max` and the ops on digits are left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import affine, arith, memref, scf, vector
from xdsl.dialects.builtin import (
    AffineMapAttr,
    IndexType,
    IntegerAttr,
    VectorType,
    i1,
)
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineConstraintKind, AffineMap
from xdsl.rewriter import Rewriter

from tilewright.diagnostics import unsupported
from tilewright.dialects.nesting import terminator
from tilewright.dialects.upstream.affine_parallel import bounds, reductions
from tilewright.dialects.upstream.combining import (
    KINDS_OF_ATOMICS,
    REDUCTIONS_OF_ATOMICS,
    combining,
    neutral,
)
from tilewright.dialects.upstream.scf import ForallOp
from tilewright.passes.emit import Before


def affine_to_scf(module: Operation) -> None:
    """Rewrite every op of `module`, in place."""
    for op in reversed(list(module.walk())):
        match op:
            case affine.ForOp():
                _for(op)
            case affine.LoadOp():
                new, indices = _mapped(op.map, list(op.indices))
                _replace(op, [*new, memref.LoadOp.get(op.memref, indices)])
            case affine.StoreOp():
                new, indices = _mapped(op.map, list(op.indices))
                _replace(op, [*new, memref.StoreOp.get(op.value, op.memref, indices)])
            case affine.VectorLoadOp():
                new, indices = _mapped(op.map, list(op.indices))
                kind = op.result.type
                assert isinstance(kind, VectorType)
                _replace(op, [*new, vector.LoadOp(op.memref, indices, kind)])
            case affine.VectorStoreOp():
                new, indices = _mapped(op.map, list(op.indices))
                _replace(op, [*new, vector.StoreOp(op.value, op.memref, indices)])
            case affine.ParallelOp():
                _parallel(op)
            case ForallOp() if not op.outputs:
                forall_to_parallel(op)
            case affine.IfOp():
                _if(op)
            case affine.YieldOp() if isinstance(op.parent_op(), affine.ForOp | affine.IfOp):
                _replace(op, [scf.YieldOp(*op.arguments)])
            case _:
                pass


def forall_to_parallel(op: ForallOp) -> None:
    """Iterations in any order are those of scf.parallel."""
    at, end = Before(op), terminator(op.body.block)
    lower, upper, step = ([at.index(n) for n in op.mixed(w)] for w in ("lower", "upper", "step"))
    region = op.detach_region(op.body)
    Rewriter.replace_op(end, scf.ReduceOp())
    at.insert(scf.ParallelOp(lower, upper, step, region))
    at.replace()


def _replace(op: Operation, new: Sequence[Operation]) -> None:
    for one in new:
        one.location = op.location
    Rewriter.replace_op(op, list(new))


def _mapped(
    map_: AffineMapAttr | None, operands: list[SSAValue]
) -> tuple[list[Operation], list[SSAValue]]:
    """Ops that apply a map, and its results."""
    if map_ is None:
        return [], operands
    data = map_.data
    new = [
        affine.ApplyOp(operands, AffineMapAttr(AffineMap(data.num_dims, data.num_symbols, (e,))))
        for e in data.results
    ]
    return list(new), [op.result for op in new]


def _bound(
    map_: AffineMapAttr,
    operands: list[SSAValue],
    pick: Callable[[SSAValue, SSAValue], Operation],
) -> tuple[list[Operation], SSAValue]:
    """A bound of several results is their largest (of lower bounds) or smallest."""
    new, values = _mapped(map_, operands)
    best = values[0]
    for value in values[1:]:
        new.append(pick(best, value))
        best = new[-1].results[0]
    return new, best


def _for(op: affine.ForOp) -> None:
    low, lb = _bound(op.lowerBoundMap, list(op.lowerBoundOperands), arith.MaxSIOp)
    high, ub = _bound(op.upperBoundMap, list(op.upperBoundOperands), arith.MinSIOp)
    step = arith.ConstantOp(IntegerAttr(op.step.value.data, IndexType()))
    body = Region()
    op.body.clone_into(body)
    last = body.block.last_op
    if not isinstance(last, scf.YieldOp):
        body.block.add_op(scf.YieldOp())
    _replace(op, [*low, *high, step, scf.ForOp(lb, ub, step.result, list(op.inits), body)])


def _parallel(op: affine.ParallelOp) -> None:
    """Results begin with what their reduction leaves alone."""
    at = Before(op)
    lower, upper = (
        [_one_bound(at, map_, operands, pick) for map_, operands in each]
        for each, pick in zip(bounds(op), (arith.MaxSIOp, arith.MinSIOp), strict=True)
    )
    steps = [at.index(step.value.data) for step in op.steps]
    first: list[SSAValue] = []
    combined: list[Region] = []
    for kind, result in zip(reductions(op), op.res, strict=True):
        if kind not in KINDS_OF_ATOMICS.values():
            raise unsupported(op, f"affine.parallel that reduces by {kind!r}")
        kind = REDUCTIONS_OF_ATOMICS.get(kind, kind)
        first.append(at.constant(result.type, neutral(kind, result.type)))
        block = Block(arg_types=[result.type] * 2)
        both = combining(kind, *block.args)
        block.add_ops([both, scf.ReduceReturnOp(both.results[0])])
        combined.append(Region(block))
    body = op.detach_region(op.body)
    end = terminator(body.block)
    _replace(end, [scf.ReduceOp(list(end.operands), combined)])
    at.replace(*at.insert(scf.ParallelOp(lower, upper, steps, body, first)).results)


def _one_bound(
    at: Before,
    map_: AffineMap,
    operands: list[SSAValue],
    pick: Callable[[SSAValue, SSAValue], Operation],
) -> SSAValue:
    new, best = _bound(AffineMapAttr(map_), operands, pick)
    for one in new:
        at.insert(one)
    return best


_RELATIONS = {
    AffineConstraintKind.ge: "sge",
    AffineConstraintKind.le: "sle",
    AffineConstraintKind.eq: "eq",
}


def _if(op: affine.IfOp) -> None:
    """All constraints of a set hold, or not."""
    at, known = Before(op), op.condition.data
    holds: SSAValue | None = None
    for constraint in known.constraints:
        map_ = AffineMap(known.num_dims, known.num_symbols, (constraint.lhs, constraint.rhs))
        new, (left, right) = _mapped(AffineMapAttr(map_), list(op.args))
        for one in new:
            at.insert(one)
        one = at.add(arith.CmpiOp(left, right, _RELATIONS[constraint.kind]))
        holds = one if holds is None else at.add(arith.AndIOp(holds, one))
    if holds is None:
        holds = at.constant(i1, 1)
    then, otherwise = (op.detach_region(r) for r in (op.then_region, op.else_region))
    if not otherwise.blocks:
        otherwise = Region(Block([scf.YieldOp()]))
    _replace(op, [scf.IfOp(holds, op.res.types, then, otherwise)])
