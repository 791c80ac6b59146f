"""How the layouts of an op's values depend on each other: what propagation walks along.

A relation joins two values of one op. `forth` gives the second one's layout from the first one's, `back`
the other way; None where that side does not tell. A guess is a choice among several layouts that fit:
it is made only where nothing else says anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from xdsl.dialects import scf, vector
from xdsl.dialects.builtin import VectorType
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.elementwise import is_elementwise_on_vectors
from tilewright.dialects.upstream.vector import (
    DeinterleaveOp,
    ExtractStridedSliceOp,
    InsertStridedSliceOp,
    InterleaveOp,
    MultiReductionOp,
    ShapeCastOp,
    TransposeOp,
)
from tilewright.layout import Distribution, MmaShapes, derive
from tilewright.passes.xegpu import layout_rules as rules
from tilewright.passes.xegpu import layout_text as own

Derive = Callable[[Distribution], "Distribution | None"]
Mma = Callable[[xegpu.DpasOp], "MmaShapes | None"]


@dataclass(frozen=True)
class Relation:
    """The layouts of `a` and `b` at one op. `operand` is the number of the operand that `b` is; the
    op needs it to have the layout that `forth` gives, so that a difference is a conflict there."""

    op: Operation
    a: SSAValue
    b: SSAValue
    forth: Derive | None
    back: Derive | None
    operand: int | None = None
    guess_forth: Derive | None = None
    guess_back: Derive | None = None


def canonical(value: SSAValue) -> SSAValue:
    """The value that stands for all that must have one layout: a loop's result for what it carries."""
    if isinstance(value, BlockArgument):
        parent = value.owner.parent_op()
        if isinstance(parent, scf.ForOp) and value.index > 0:
            return parent.results[value.index - 1]
        if isinstance(parent, scf.WhileOp) and value.owner is parent.after_region.block:
            return parent.results[value.index]
    return value


def is_vector(value: SSAValue) -> bool:
    return isinstance(value.type, VectorType)


def same(d: Distribution) -> Distribution:
    return d


def is_free(op: Operation) -> bool:
    """An op that makes its value anew wherever it is wanted, at no cost: it takes any layout."""
    if isinstance(op, vector.BroadcastOp):
        return not is_vector(op.operands[0])
    return op.name in (
        "arith.constant",
        "vector.step",
        "vector.create_mask",
        "vector.constant_mask",
    )


def relations(op: Operation, mma: Mma = lambda _: None) -> Iterator[Relation]:
    """The relations of one op. `mma` gives the machine instruction of a product, None to ignore it."""
    match op:
        case scf.ForOp() | scf.IfOp() | scf.WhileOp():
            yield from _control(op)
        case vector.BroadcastOp():
            yield from _broadcast(op)
        case TransposeOp():
            yield from _transpose(op)
        case ShapeCastOp():
            a, b = op.result, op.source
            x, y = own.shape_of(a), own.shape_of(b)
            yield Relation(
                op, a, b, lambda d: rules.reshape(d, x, y), lambda d: rules.reshape(d, y, x), 0
            )
        case MultiReductionOp():
            yield from _reduction(op)
        case vector.BitcastOp():
            a, b = op.results[0], op.operands[0]
            yield Relation(
                op,
                a,
                b,
                lambda d: rules.bitcast_operand(d, a.type, b.type),
                lambda d: rules.bitcast_operand(d, b.type, a.type),
                0,
            )
        case InterleaveOp():
            for n, part in enumerate((op.lhs, op.rhs)):
                yield Relation(op, op.result, part, _halved, _doubled, n)
        case DeinterleaveOp():
            yield Relation(op, op.res1, op.source, _doubled, _halved, 0)
            yield Relation(op, op.res1, op.res2, same, same)
        case ExtractStridedSliceOp() | InsertStridedSliceOp() | vector.ExtractOp():
            yield from _slices(op)
        case vector.InsertOp():
            yield from _insert(op)
        case xegpu.DpasOp():
            yield from _dpas(op, mma)
        case xegpu.LoadGatherOp() | xegpu.StoreScatterOp() | xegpu.AtomicRMWOp():
            yield from _scattered(op)
        case _:
            if is_elementwise_on_vectors(op):
                yield from _elementwise(op)


def _elementwise(op: Operation) -> Iterator[Relation]:
    first = op.results[0]
    for n, operand in enumerate(op.operands):
        if is_vector(operand):
            yield Relation(op, first, operand, same, same, n)
    for other in op.results[1:]:
        yield Relation(op, first, other, same, same)


def _control(op: scf.ForOp | scf.IfOp | scf.WhileOp) -> Iterator[Relation]:
    """Relations stand at the op whose operand is in question: the loop for what goes in, the
    terminator for what is handed on."""
    if isinstance(op, scf.ForOp):
        ends = op.body.block.last_op
        assert ends is not None
        for n, result in enumerate(op.results):
            if is_vector(result):
                yield Relation(op, result, op.iter_args[n], same, same, 3 + n)
                yield Relation(ends, result, ends.operands[n], same, same, n)
        return
    if isinstance(op, scf.IfOp):
        for region in (op.true_region, op.false_region):
            ends = region.block.last_op if region.blocks else None
            if ends is None:
                continue
            for n, result in enumerate(op.results):
                if is_vector(result):
                    yield Relation(ends, result, ends.operands[n], same, same, n)
        return
    before, after = op.before_region.block, op.after_region.block
    condition, ends = before.last_op, after.last_op
    assert condition is not None and ends is not None
    for n, argument in enumerate(before.args):
        if is_vector(argument):
            yield Relation(op, argument, op.arguments[n], same, same, n)
            yield Relation(ends, argument, ends.operands[n], same, same, n)
    for n, result in enumerate(op.results):
        if is_vector(result):
            yield Relation(condition, result, condition.operands[1 + n], same, same, 1 + n)


def _broadcast(op: vector.BroadcastOp) -> Iterator[Relation]:
    a, b = op.results[0], op.operands[0]
    if not is_vector(b):
        return
    wide, narrow = own.shape_of(a), own.shape_of(b)
    lead = len(wide) - len(narrow)

    def widened(d: Distribution) -> Distribution | None:
        if lead == 0:
            whole = d
        elif len(d.sliced) >= lead and d.sliced[:lead] == tuple(range(lead)):
            whole = replace(d, sliced=d.sliced[lead:])
        else:
            whole = rules.extract_operand(d, narrow, wide)
        fields = rules.kept_fields(whole)
        for dim, extent in enumerate(wide):
            if dim >= lead and narrow[dim - lead] == extent:
                continue
            groups = 1 if whole.sg_layout is None else whole.sg_layout[fields[dim]]
            stated = None if dim >= lead or whole.sg_data is None else whole.sg_data[fields[dim]]
            if stated is None or extent % stated or (extent // stated) % groups:
                part = extent // groups if extent % groups == 0 else extent
                whole = rules.on_field(whole, fields[dim], part)
        return whole

    yield Relation(
        op, a, b, lambda d: rules.broadcast_operand(d, wide, narrow), None, 0, guess_back=widened
    )


def _halved(d: Distribution) -> Distribution:
    return rules.counted(d, 2, 1)


def _doubled(d: Distribution) -> Distribution:
    return rules.counted(d, 1, 2)


def _transpose(op: TransposeOp) -> Iterator[Relation]:
    permutation = [int(p) for p in op.permutation_attr.get_values()]
    inverse = [permutation.index(i) for i in range(len(permutation))]
    yield Relation(
        op,
        op.result,
        op.vector,
        lambda d: rules.permuted(d, permutation),
        lambda d: rules.permuted(d, inverse),
        0,
    )


def _reduction(op: MultiReductionOp) -> Iterator[Relation]:
    """The result's owners follow from the source's; the other way is a choice. No operand is a conflict
    here but the accumulator: a reduction across subgroups delivers its result to any owner."""
    dims = sorted(int(x) for x in op.dims_attr.get_values())
    result, shape = op.dest, own.shape_of(op.source)
    if not is_vector(result):
        return
    yield Relation(op, result, op.acc, same, same, 1)

    def reduced(d: Distribution) -> Distribution | None:
        return ly.slice_(d, dims)

    def parent(d: Distribution) -> Distribution | None:
        if [*d.sliced] != dims or d.field_rank != len(shape):
            return None
        whole = replace(d, sliced=())
        for dim in dims:
            groups = 1 if whole.sg_layout is None else whole.sg_layout[dim]
            stated = None if whole.sg_data is None else whole.sg_data[dim]
            if stated is not None and stated * groups != shape[dim]:
                fits = shape[dim] % groups == 0
                whole = rules.on_field(whole, dim, shape[dim] // groups if fits else shape[dim])
        return whole if whole.fault(shape) is None else None

    def alone(d: Distribution) -> Distribution | None:
        """Every subgroup holds whole rows."""
        if d.sliced:
            return None
        whole = d
        for dim in dims:
            whole = inserted_dim(whole, dim, shape[dim])
        return whole

    yield Relation(op, result, op.source, parent, reduced, None, guess_forth=alone)


def inserted_dim(d: Distribution, dim: int, extent: int) -> Distribution:
    """The map of a value with one more dimension, of which every owner has the whole."""
    fields = rules.kept_fields(d)
    at = fields[dim] if dim < len(fields) else d.field_rank
    return derive.inserted_field(d, at, extent)


def _slices(
    op: ExtractStridedSliceOp | InsertStridedSliceOp | vector.ExtractOp,
) -> Iterator[Relation]:
    a = op.results[0]
    if not is_vector(a):
        return
    shape = own.shape_of(a)
    if isinstance(op, InsertStridedSliceOp):
        small = own.shape_of(op.source)
        yield Relation(op, a, op.dest, same, same, 1)
        yield Relation(op, a, op.source, lambda d: rules.inserted_operand(d, shape, small), None, 0)
        return
    b = op.operands[0]
    source = own.shape_of(b)
    if isinstance(op, vector.ExtractOp):
        lead = len(source) - len(shape)

        def inner(d: Distribution) -> Distribution | None:
            fits = all(own.is_whole(d, source, i) for i in range(lead))
            return ly.slice_(d, list(range(lead))) if fits and lead else None

        yield Relation(op, a, b, lambda d: rules.extract_operand(d, shape, source), inner, 0)
        return

    def cut(d: Distribution) -> Distribution | None:
        fields = rules.kept_fields(d)
        for dim, (small, large) in enumerate(zip(shape, source, strict=True)):
            if small != large:
                if not own.is_whole(d, source, dim):
                    return None
                d = rules.on_field(d, fields[dim], small)
        return d

    yield Relation(op, a, b, lambda d: rules.slice_operand(d, shape, source), cut, 0)


def _insert(op: vector.InsertOp) -> Iterator[Relation]:
    a = op.results[0]
    shape, small = own.shape_of(a), own.shape_of(op.operands[0])
    yield Relation(op, a, op.operands[1], same, same, 1)
    if small:
        yield Relation(
            op, a, op.operands[0], lambda d: rules.inserted_operand(d, shape, small), None, 0
        )


def _dpas(op: xegpu.DpasOp, mma: Mma) -> Iterator[Relation]:
    if len(own.shape_of(op.rhs)) != 2 or len(own.shape_of(op.lhs)) != 2:
        return
    k = own.shape_of(op.lhs)[1]
    shapes = mma(op)
    if op.acc is not None:
        yield Relation(op, op.result, op.acc, same, same, 2)
    yield Relation(op, op.result, op.lhs, lambda d: derive.mma_operands(d, k, shapes)[0], None, 0)
    yield Relation(op, op.result, op.rhs, lambda d: derive.mma_operands(d, k, shapes)[1], None, 1)


def _scattered(
    op: xegpu.LoadGatherOp | xegpu.StoreScatterOp | xegpu.AtomicRMWOp,
) -> Iterator[Relation]:
    offsets = op.offsets
    value = op.results[0] if op.results else op.operands[0]
    if offsets is None or not is_vector(value):
        return
    shape, lanes = own.shape_of(value), own.shape_of(offsets)

    def narrow(d: Distribution) -> Distribution | None:
        if len(shape) == len(lanes):
            return d
        return ly.slice_(d, [len(shape) - 1]) if own.is_whole(d, shape, len(shape) - 1) else None

    def wide(d: Distribution) -> Distribution | None:
        if len(shape) == len(lanes):
            return d
        return None if d.sliced else inserted_dim(d, len(lanes), shape[-1])

    operands = list(op.operands)
    for operand in (offsets, op.mask):
        n = next(i for i, v in enumerate(operands) if v is operand)
        yield Relation(op, value, operand, narrow, wide, n)
    if isinstance(op, xegpu.AtomicRMWOp):
        n = max(i for i, v in enumerate(operands) if v is op.value)
        yield Relation(op, value, op.value, same, same, n)


def result_of(value: SSAValue) -> Operation | None:
    return value.op if isinstance(value, OpResult) else None
