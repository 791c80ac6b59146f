"""Reductions: registers, then lanes by butterflies, then warps through shared memory.

The plan is `tilewright.layout.plan.reduce`; sums of narrow floats are taken in f32.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from xdsl.dialects.builtin import AnyFloat, f32
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright import layout as ly
from tilewright.dialects import xetile as xt
from tilewright.dialects.movement import integers, is_vector
from tilewright.dialects.upstream.arith import cast_to, with_element
from tilewright.dialects.upstream.combining import kind_of
from tilewright.layout import Axis, Digit, Layout, LayoutError
from tilewright.targets.cuda.distribute import Distributor, Fragment, rule
from tilewright.targets.cuda.exchange import through_shared
from tilewright.targets.cuda.ownership import default_layout


@rule("xetile.reduction")
def reduction(d: Distributor, op: xt.ReductionOp) -> None:
    fragment = d.fragment_of(op.source)
    narrow = fragment.element
    fragment = _widened(d, fragment)
    for dim in op.dims:
        fragment = reduce_dimension(d, fragment, op.kind, dim, op.reduction_size)
    d.set_fragment(op.result, _converted(d, fragment, narrow).value, fragment.layout)


@rule("vector.multi_reduction")
def multi_reduction(d: Distributor, op: Operation) -> None:
    """The reduced dimensions vanish; the second operand is combined with the result."""
    source, start = op.operands
    kind = kind_of(op)
    fragment = d.fragment_of(source)
    narrow = fragment.element
    fragment = _widened(d, fragment)
    dims = integers(op, "reduction_dims")
    for dim in dims:
        fragment = reduce_dimension(d, fragment, kind, dim, None)
    (result,) = op.results
    if not is_vector(result):
        one = d.b.extract(_converted(d, fragment, narrow).value, 0)
        d.set_scalar(result, d.b.combine(kind, one, d.scalar(start)))
        return
    layout = fragment.layout.dropped(*dims)
    value = _converted(d, fragment, narrow).value
    d.set_fragment(result, d.b.combine(kind, value, d.fragment_of(start, layout).value), layout)


@rule("vector.reduction")
def vector_reduction(d: Distributor, op: Operation) -> None:
    """A 1-D tile to a scalar, which every thread gets."""
    kind = kind_of(op)
    fragment = d.fragment_of(op.operands[0])
    narrow = fragment.element
    fragment = reduce_dimension(d, _widened(d, fragment), kind, 0, None)
    value = d.b.extract(_converted(d, fragment, narrow).value, 0)
    for start in op.operands[1:]:
        value = d.b.combine(kind, value, d.scalar(start))
    d.set_scalar(op.results[0], value)


def _widened(d: Distributor, fragment: Fragment) -> Fragment:
    """In f32, where it has floats that are smaller."""
    element = fragment.element
    small = isinstance(element, AnyFloat) and element.bitwidth < 32 and element.name != "tf32"
    return _converted(d, fragment, f32) if small else fragment


def _converted(d: Distributor, fragment: Fragment, element: Attribute) -> Fragment:
    """In another type of elements."""
    if fragment.element == element:
        return fragment
    type = with_element(fragment.value.type, element)
    return Fragment(d.b.value(cast_to(fragment.value, type)), fragment.layout)


def reduce_dimension(
    d: Distributor, fragment: Fragment, kind: str, dim: int, run: int | None
) -> Fragment:
    """Runs along one dimension combined; every owner of a part holds the result."""
    try:
        plan = ly.plan.reduce(fragment.layout, dim, run)
    except LayoutError:
        # Runs that straddle lanes: each lane gets whole ones first.
        assert run is not None
        shape = list(fragment.layout.shape)
        shape[dim] //= run
        whole = default_layout(tuple(shape), len(shape) - 1, 4, d.team.warps).expanded(dim, run)
        fragment = d.convert(fragment, whole)
        plan = ly.plan.reduce(whole, dim, run)
    value = fold_registers(d, fragment.value, kind, plan.fold, plan.result.registers)
    for mask in plan.butterfly():
        value = d.b.combine(kind, value, d.shuffle_xor(value, mask))
    result = Fragment(value, plan.result)
    if not plan.subgroup:
        return result
    source, target = across_warps(fragment.layout, plan.result, plan.subgroup)
    spread = through_shared(d, Fragment(value, source), target)
    coords = target.register_steps
    fold = plan.result.index(Axis.REGISTER, coords[1:])
    return Fragment(fold_registers(d, spread.value, kind, fold, plan.result.registers), plan.result)


CHAINS = 8
"""Results and partial results that are added to side by side: as many as hide an instruction's latency."""


def fold_registers(
    d: Distributor, value: SSAValue, kind: str, fold: np.ndarray, count: int
) -> SSAValue:
    """Registers with the same number in `fold` combined: a few chains first, then halves of what they give.

    Chains need few registers besides those that are folded; a tree over all would hold half as many again.
    """
    groups: list[list[int]] = [[] for _ in range(count)]
    for register, number in enumerate(fold):
        groups[int(number)].append(register)
    members = len(groups[0])
    if members == 1:
        return d.pick(value, [g[0] for g in groups])
    chains = min(members, max(1, CHAINS // count))

    def slice_of(start: int, end: int) -> SSAValue:
        return d.pick(value, [g[i] for i in range(start, end) for g in groups])

    folded = slice_of(0, chains)
    start = chains
    while start + chains <= members:
        folded = d.b.combine(kind, folded, slice_of(start, start + chains))
        start += chains
    if start < members:
        rest = members - start
        some = d.b.combine(kind, d.pick(folded, range(rest * count)), slice_of(start, members))
        folded = d.concatenate([some, d.pick(folded, range(rest * count, chains * count))])
    while chains > 1:
        half = chains // 2
        low = d.pick(folded, range(half * count))
        high = d.pick(folded, range(half * count, 2 * half * count))
        joined = d.b.combine(kind, low, high)
        if chains % 2:
            rest = d.pick(folded, range(2 * half * count, chains * count))
            joined = d.concatenate([joined, rest])
        chains = half + chains % 2
        folded = joined
    return folded


@lru_cache(maxsize=512)
def across_warps(source: Layout, result: Layout, warps: tuple[Digit, ...]) -> tuple[Layout, Layout]:
    """Layouts of the partial results as a tile with one dimension more in front: one entry per warp
    that holds a part. First as they are held, then as every warp needs them: all of them."""
    parts = int(np.prod([w.size for w in warps]))
    moved = [d._replace(dim=d.dim + 1) for d in result.digits if d.dim is not None]
    lanes = [d for d in result.on(Axis.LANE) if d.dim is None]
    own = [d for d in source.on(Axis.SUBGROUP) if d.dim is None]
    step = 1
    split: list[Digit] = []
    for w in warps:
        split.append(Digit(Axis.SUBGROUP, w.weight, w.size, 0, step))
        step *= w.size
    shape = (parts, *result.shape)
    held = Layout.of(shape, [*moved, *lanes, *own, *split])
    all_warps = [d for d in result.on(Axis.SUBGROUP) if d.dim is None]
    inner = result.registers
    every = [Digit(Axis.REGISTER, inner, parts, 0, 1)]
    wanted = Layout.of(shape, [*moved, *lanes, *all_warps, *every])
    return held, wanted
