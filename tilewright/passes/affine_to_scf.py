"""affine-to-scf: loops and accesses of the affine dialect in host code, and scf.forall, as those of scf and memref.

    affine.for %i = 0 to 100 {                             scf.for %i = %c0 to %c100 step %c1 {
      affine.store %x, %m[%i + 1] : memref<..>      ->       %j = affine.apply (i) -> (i + 1) (%i)
    }                                                        memref.store %x, %m[%j] : memref<..>
                                                           }

Requires: nothing.  Guarantees: of the affine dialect only `affine.apply`, `min`, `max` and the ops on digits are left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from xdsl.dialects import affine, arith, memref, scf, vector
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AffineMapAttr,
    DenseArrayBase,
    IndexType,
    MemRefType,
    NoneAttr,
    i1,
    i64,
)
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineConstraintKind, AffineMap
from xdsl.rewriter import Rewriter

from tilewright.diagnostics import unsupported
from tilewright.dialects.movement import vector_type
from tilewright.dialects.nesting import terminator
from tilewright.dialects.upstream import memref as memory_ops
from tilewright.dialects.upstream import transfers
from tilewright.dialects.upstream.affine import DelinearizeIndexOp, PrefetchOp
from tilewright.dialects.upstream.affine_parallel import bounds, reductions
from tilewright.dialects.upstream.combining import (
    KINDS_OF_ATOMICS,
    combining,
    neutral,
    reduction_of,
)
from tilewright.dialects.upstream.gpu import memory_space_number
from tilewright.dialects.upstream.scf import ForallOp
from tilewright.dialects.xetile.assembly import Index
from tilewright.passes.emit import Before


def affine_to_scf(module: Operation) -> None:
    """Rewrite every op of `module`, in place."""
    for op in reversed(list(module.walk())):
        at = Before(op)
        match op:
            case affine.ForOp():
                _for(op, at)
            case affine.LoadOp():
                at.replace(at.add(memref.LoadOp.get(op.memref, _mapped(at, op.map, op.indices))))
            case affine.StoreOp():
                at.insert(memref.StoreOp.get(op.value, op.memref, _mapped(at, op.map, op.indices)))
                at.replace()
            case affine.VectorLoadOp():
                places, kind = _mapped(at, op.map, op.indices), vector_type(op.result)
                at.replace(at.add(vector.LoadOp(op.memref, places, kind)))
            case affine.VectorStoreOp():
                at.insert(vector.StoreOp(op.value, op.memref, _mapped(at, op.map, op.indices)))
                at.replace()
            case PrefetchOp():
                hints = {k: v for k, v in op.properties.items() if k != "map"}
                places = _mapped(at, op.map, op.indices)
                at.replace(
                    *at.insert(
                        memory_ops.PrefetchOp.create(
                            operands=[op.memref, *places], properties=hints
                        )
                    ).results
                )
            case transfers.AffineStartOp():
                source = _mapped(at, op.src_map, op.source_indices)
                _transfer(op, at, source, _mapped(at, op.dst_map, op.target_indices))
            case transfers.StartOp():
                _transfer(op, at, op.source_indices, op.target_indices)
            case transfers.AffineWaitOp() | transfers.WaitOp():
                at.replace()
            case affine.ParallelOp():
                _parallel(op, at)
            case ForallOp() if not op.outputs:
                forall_to_parallel(op)
            case affine.IfOp():
                _if(op, at)
            case affine.YieldOp() if isinstance(op.parent_op(), affine.ForOp | affine.IfOp):
                at.insert(scf.YieldOp(*op.arguments))
                at.replace()
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


def _mapped(
    at: Before, map_: AffineMapAttr | None, operands: Sequence[SSAValue]
) -> Sequence[SSAValue]:
    """The results of a map."""
    if map_ is None:
        return operands
    data = map_.data
    each = [AffineMap(data.num_dims, data.num_symbols, (e,)) for e in data.results]
    return [at.add(affine.ApplyOp(operands, AffineMapAttr(one))) for one in each]


def _transfer(
    op: transfers.AffineStartOp | transfers.StartOp,
    at: Before,
    begins: Sequence[SSAValue],
    ends: Sequence[SSAValue],
) -> None:
    """Elements one by one: their numbers in rows, and what these are as subscripts."""
    faster = memory_space_number(op.source.type) - memory_space_number(op.target.type)
    if op.rows and not faster:
        raise at.refuse(
            "rows apart in one of two arrays of the same memory space",
            "number the faster memory higher: memref<16xf32, 1>",
        )
    end = scf.YieldOp()
    block = Block([end], arg_types=[IndexType()])
    inner, element = Before(end), block.args[0]
    end.location = op.location
    apart = element
    if op.rows:
        step, row = op.rows
        first = inner.times(inner.add(arith.DivUIOp(element, row)), step)
        apart = inner.plus(first, inner.add(arith.RemUIOp(element, row)))

    def places(first: Sequence[SSAValue], memory: SSAValue, slower: bool) -> Sequence[SSAValue]:
        kind = memory.type
        assert isinstance(kind, MemRefType)
        if not isinstance(kind.layout, NoneAttr) or DYNAMIC_INDEX in kind.get_shape()[1:]:
            raise at.refuse("an array whose rows are not one behind the other, of known extents")
        number: Index = 0
        for place, extent in zip(first, kind.get_shape(), strict=True):
            number = at.plus(at.times(number, extent), place)
        number = inner.plus(number, apart if slower else element)
        digits = DelinearizeIndexOp.create(
            operands=[inner.index(number)],
            properties={"static_basis": DenseArrayBase.from_list(i64, list(kind.get_shape()[1:]))},
            result_types=[IndexType()] * kind.get_num_dims(),
        )
        return inner.insert(digits).results

    source = places(begins, op.source, faster < 0)
    value = inner.add(memref.LoadOp.get(op.source, source))
    target = places(ends, op.target, faster > 0)
    inner.insert(memref.StoreOp.get(value, op.target, target))
    at.insert(scf.ForOp(at.index(0), op.count, at.index(1), [], Region(block)))
    at.replace()


def _bound(
    at: Before,
    map_: AffineMapAttr,
    operands: Sequence[SSAValue],
    pick: Callable[[SSAValue, SSAValue], Operation],
) -> SSAValue:
    """A bound of several results is their largest (of lower bounds) or smallest."""
    return reduce(lambda best, value: at.add(pick(best, value)), _mapped(at, map_, operands))


def _for(op: affine.ForOp, at: Before) -> None:
    lower = _bound(at, op.lowerBoundMap, op.lowerBoundOperands, arith.MaxSIOp)
    upper = _bound(at, op.upperBoundMap, op.upperBoundOperands, arith.MinSIOp)
    step = at.index(op.step.value.data)
    body = op.detach_region(op.body)
    if not isinstance(body.block.last_op, scf.YieldOp):
        body.block.add_op(scf.YieldOp())
    at.replace(*at.insert(scf.ForOp(lower, upper, step, list(op.inits), body)).results)


def _parallel(op: affine.ParallelOp, at: Before) -> None:
    """Results begin with what their reduction leaves alone."""
    lower, upper = (
        [_bound(at, AffineMapAttr(map_), operands, pick) for map_, operands in each]
        for each, pick in zip(bounds(op), (arith.MaxSIOp, arith.MinSIOp), strict=True)
    )
    steps = [at.index(step.value.data) for step in op.steps]
    first: list[SSAValue] = []
    combined: list[Region] = []
    for kind, result in zip(reductions(op), op.res, strict=True):
        if kind not in KINDS_OF_ATOMICS.values():
            raise unsupported(op, f"affine.parallel that reduces by {kind!r}")
        kind = reduction_of(kind)
        first.append(at.constant(result.type, neutral(kind, result.type)))
        block = Block(arg_types=[result.type] * 2)
        both = combining(kind, *block.args)
        block.add_ops([both, scf.ReduceReturnOp(both.results[0])])
        combined.append(Region(block))
    body = op.detach_region(op.body)
    end = Before(terminator(body.block))
    end.insert(scf.ReduceOp(list(end.op.operands), combined))
    end.replace()
    at.replace(*at.insert(scf.ParallelOp(lower, upper, steps, body, first)).results)


_RELATIONS = {
    AffineConstraintKind.ge: "sge",
    AffineConstraintKind.le: "sle",
    AffineConstraintKind.eq: "eq",
}


def _if(op: affine.IfOp, at: Before) -> None:
    """All constraints of a set hold, or not."""
    known = op.condition.data
    holds: SSAValue | None = None
    for constraint in known.constraints:
        map_ = AffineMap(known.num_dims, known.num_symbols, (constraint.lhs, constraint.rhs))
        left, right = _mapped(at, AffineMapAttr(map_), op.args)
        holds = at.also(holds, at.add(arith.CmpiOp(left, right, _RELATIONS[constraint.kind])))
    if holds is None:
        holds = at.constant(i1, 1)
    then, otherwise = (op.detach_region(r) for r in (op.then_region, op.else_region))
    if not otherwise.blocks:
        otherwise = Region(Block([scf.YieldOp()]))
    at.replace(*at.insert(scf.IfOp(holds, op.res.types, then, otherwise)).results)
