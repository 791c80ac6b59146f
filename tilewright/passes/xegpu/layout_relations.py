"""How the layouts of an op's values depend on each other: what propagation walks along."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from xdsl.dialects import vector
from xdsl.ir import Operation

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.movement import LAYOUTS, is_vector, operand_layout, result_layout
from tilewright.dialects.upstream.vector import (
    ExtractStridedSliceOp,
    InsertStridedSliceOp,
    MultiReductionOp,
)
from tilewright.layout import BoundMap, Distribution, MmaShapes, derive
from tilewright.layout.bound import kept_fields, on_field
from tilewright.passes.ownership import Relation, alike
from tilewright.passes.xegpu import layout_text as own

Mma = Callable[[xegpu.DpasOp], "MmaShapes | None"]


def same(d: Distribution) -> Distribution:
    return d


def is_free(op: Operation) -> bool:
    """An op that makes its value anew wherever it is wanted, at no cost: it takes any layout."""
    if isinstance(op, vector.BroadcastOp):
        return not is_vector(op.operands[0])
    return op.name in ("arith.constant", "vector.step")


def operand_map(op: Operation, number: int, d: Distribution) -> Distribution:
    """The map of an operand of an op that only rearranges with which it is local to every subgroup, given that of the
    result. LayoutError where none is."""
    result, source = own.shape_of(op.results[0]), own.shape_of(op.operands[number])
    whole = BoundMap(d, result)
    match op:
        case vector.ExtractOp():
            for extent in reversed(source[: len(source) - len(result)]):
                whole = whole.held_whole(0, extent)
            return whole.map
        case ExtractStridedSliceOp():
            return whole.unboxed(source).map
        case InsertStridedSliceOp() | vector.InsertOp():
            return d if number else _inserted(whole, source).map
        case _:
            return operand_layout(op, whole).map


def result_map(op: Operation, number: int, d: Distribution) -> Distribution:
    """The same the other way: the map of the results, given that of an operand."""
    return result_layout(op, BoundMap(d, own.shape_of(op.operands[number]))).map


def _inserted(whole: BoundMap, part: tuple[int, ...]) -> BoundMap:
    """Of what is inserted; of the dimensions that it lacks, and those of which it has a part, every owner has all."""
    lead = whole.rank - len(part)
    for dim in range(lead):
        if not whole.is_whole(dim):
            raise ly.LayoutError(
                f"dimension {dim} is cut, so that no subgroup may own a part of it"
            )
    return whole.boxed([0] * whole.rank, (*whole.shape[:lead], *part)).sliced(*range(lead))


def relations(op: Operation, mma: Mma = lambda _: None) -> Iterator[Relation[Distribution]]:
    """The relations of one op. `mma` gives the machine instruction of a product, None to ignore it."""
    yield from _alike(op)
    match op:
        case MultiReductionOp():
            yield from _reduction(op)
        case xegpu.DpasOp():
            yield from _dpas(op, mma)
        case xegpu.LoadGatherOp() | xegpu.StoreScatterOp() | xegpu.AtomicRMWOp():
            yield from _scattered(op)
        case _ if any(LAYOUTS.get(op.name, ())) or isinstance(op, _INSERTIONS):
            yield from _rearranging(op)
        case _:
            pass


_INSERTIONS = (InsertStridedSliceOp, vector.InsertOp)


def _rearranging(op: Operation) -> Iterator[Relation[Distribution]]:
    """A broadcast's source says only by a guess who repeats it."""
    result = op.results[0]
    if not is_vector(result):
        return
    for n, operand in enumerate(op.operands):
        if not is_vector(operand):
            continue
        forth = partial(operand_map, op, n)
        if isinstance(op, _INSERTIONS):
            if n == 0:
                yield Relation(op, result, operand, forth, None, n)
        elif isinstance(op, vector.BroadcastOp):
            yield Relation(op, result, operand, forth, None, n, guess_back=_repeated(op))
        else:
            yield Relation(op, result, operand, forth, partial(result_map, op, n), n)
    for other in op.results[1:]:
        yield Relation(op, result, other, same, same)


def _alike(op: Operation) -> Iterator[Relation[Distribution]]:
    """Relations stand at the op whose operand is in question: the loop for what goes in, the
    terminator for what is handed on."""
    for given, (first, *others) in alike(op):
        for user, n in given if is_vector(first) else ():
            if is_vector(operand := user.operands[n]):
                yield Relation(user, first, operand, same, same, n)
        for other in others if is_vector(first) else ():
            yield Relation(op, first, other, same, same)


def _repeated(op: vector.BroadcastOp) -> Callable[[Distribution], Distribution]:
    """A broadcast's result, given its source: what is repeated is distributed as the source's grid says."""
    wide, narrow = own.shape_of(op.vector), own.shape_of(op.source)
    lead = len(wide) - len(narrow)

    def widened(d: Distribution) -> Distribution:
        if len(d.sliced) >= lead and d.sliced[:lead] == tuple(range(lead)):
            whole = replace(d, sliced=d.sliced[lead:])
        else:
            bound = BoundMap(d, narrow)
            for extent in reversed(wide[:lead]):
                bound = bound.held_whole(0, extent)
            whole = bound.map
        fields = kept_fields(whole)
        for dim, extent in enumerate(wide):
            if dim >= lead and narrow[dim - lead] == extent:
                continue
            groups = whole.groups(fields[dim])
            stated = None if dim >= lead or whole.sg_data is None else whole.sg_data[fields[dim]]
            if stated is None or extent % stated or (extent // stated) % groups:
                part = extent // groups if extent % groups == 0 else extent
                whole = on_field(whole, fields[dim], part)
        return whole

    return widened


def _reduction(op: MultiReductionOp) -> Iterator[Relation[Distribution]]:
    """The result's owners follow from the source's; the other way is a choice. No operand is a conflict
    here but the accumulator: a reduction across subgroups delivers its result to any owner."""
    dims = sorted(op.dims)
    result, shape = op.dest, own.shape_of(op.source)
    if not is_vector(result):
        return

    def reduced(d: Distribution) -> Distribution | None:
        return ly.slice_(d, dims)

    def parent(d: Distribution) -> Distribution | None:
        if [*d.sliced] != dims or d.field_rank != len(shape):
            return None
        whole = replace(d, sliced=())
        for dim in dims:
            groups = whole.groups(dim)
            stated = None if whole.sg_data is None else whole.sg_data[dim]
            if stated is not None and stated * groups != shape[dim]:
                fits = shape[dim] % groups == 0
                whole = on_field(whole, dim, shape[dim] // groups if fits else shape[dim])
        return whole if whole.fault(shape) is None else None

    def alone(d: Distribution) -> Distribution | None:
        """Every subgroup holds whole rows."""
        if d.sliced:
            return None
        whole = BoundMap(d, own.shape_of(result))
        for dim in dims:
            whole = whole.held_whole(dim, shape[dim])
        return whole.map

    yield Relation(op, result, op.source, parent, reduced, None, guess_forth=alone)


def _dpas(op: xegpu.DpasOp, mma: Mma) -> Iterator[Relation[Distribution]]:
    if len(own.shape_of(op.rhs)) != 2 or len(own.shape_of(op.lhs)) != 2:
        return
    k = own.shape_of(op.lhs)[1]
    shapes = mma(op)
    yield Relation(op, op.result, op.lhs, lambda d: derive.mma_operands(d, k, shapes)[0], None, 0)
    yield Relation(op, op.result, op.rhs, lambda d: derive.mma_operands(d, k, shapes)[1], None, 1)


def _scattered(
    op: xegpu.LoadGatherOp | xegpu.StoreScatterOp | xegpu.AtomicRMWOp,
) -> Iterator[Relation[Distribution]]:
    offsets = op.offsets
    value = op.results[0] if op.results else op.operands[0]
    if offsets is None or not is_vector(value):
        return
    shape, lanes = own.shape_of(value), own.shape_of(offsets)

    def narrow(d: Distribution) -> Distribution | None:
        if len(shape) == len(lanes):
            return d
        return (
            ly.slice_(d, [len(shape) - 1]) if BoundMap(d, shape).is_whole(len(shape) - 1) else None
        )

    def wide(d: Distribution) -> Distribution | None:
        if len(shape) == len(lanes):
            return d
        return None if d.sliced else BoundMap(d, lanes).held_whole(len(lanes), shape[-1]).map

    operands = list(op.operands)
    for operand in (offsets, op.mask):
        n = next(i for i, v in enumerate(operands) if v is operand)
        yield Relation(op, value, operand, narrow, wide, n)
    if isinstance(op, xegpu.AtomicRMWOp):
        n = max(i for i, v in enumerate(operands) if v is op.value)
        yield Relation(op, value, op.value, same, same, n)
