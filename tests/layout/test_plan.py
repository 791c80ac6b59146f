"""Plans: their kind, and that carrying them out is the conversion that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.layout.plans import apply, broadcast, collect, distribute, reshape
from tilewright import layout as ly
from tilewright.layout import Distribution, Layout, LayoutError, Move, plan

from .strategies import distributions


def values(layout: Layout) -> np.ndarray:
    return np.arange(layout.size, dtype=np.int64).reshape(layout.shape) * 7 + 3


# XeTile RFC, appendix 2.3.
@pytest.mark.parametrize(
    ("grid", "kind", "exchanging"), [([4, 8], Move.SLM, 24), ([32, 1], Move.REGISTERS, 0)]
)
def test_transpose_optimisation_of_the_rfc(grid, kind, exchanging):
    source = ly.wg_map(grid, [64, 32]).over([256, 32])
    target = ly.wg_map([8, 4], [32, 64]).over([32, 256])
    moved = plan.convert(source.permuted((1, 0)), target)
    assert (moved.kind, moved.exchanging_subgroups) == (kind, exchanging)
    data = distribute(source, values(source))
    assert np.array_equal(collect(target, apply(moved, data)), values(source).T)


def test_convert_layout_of_the_rfc_needs_shared_memory():
    b = ly.wg_map([8, 4], [32, 64]).over([256, 256])
    a = ly.wg_map([32, 1], [8, 256]).over([256, 256])
    moved = plan.convert(b, a)
    assert moved.kind is Move.SLM and moved.exchanging_subgroups == 32
    assert plan.convert(a, a).kind is Move.NOTHING


def test_a_replica_that_is_there_is_used():
    """A wider owner set needs no movement: every subgroup already holds what it wants."""
    everyone = ly.wg_map([2, 4], [32, 16]).over([32, 16])
    one_each = ly.wg_map([2, 1], [16, 16]).over([32, 16])
    assert one_each.subgroups == 2
    with pytest.raises(LayoutError, match="owned by 8 subgroups, the target by 2"):
        plan.convert(everyone, one_each)
    rows = ly.wg_map([8, 1], [4, 16]).over([32, 16])
    assert plan.convert(everyone, rows).kind is Move.REGISTERS
    assert plan.convert(rows, everyone).kind is Move.SLM


@st.composite
def conversions(draw: st.DrawFn) -> tuple[Layout, Layout]:
    """Two layouts of one tile by the same numbers of subgroups and lanes."""
    named, shape = draw(distributions(ranks=(2,)))
    source = named.over(shape)
    kind = draw(st.sampled_from(["order", "lanes", "turned"]))
    if kind == "order":
        other = Distribution(
            named.sg_layout, named.sg_data, named.inst_data, named.lane_layout, named.lane_data,
            tuple(draw(st.permutations(range(2)))),
        )  # fmt: skip
    elif kind == "lanes":
        other = Distribution(named.sg_layout, named.sg_data, None, named.lane_layout, None)
    else:
        assert named.sg_layout is not None and named.lane_layout is not None
        other = Distribution(
            named.sg_layout[::-1], None, None, named.lane_layout[::-1], (1, 1), named.order
        )
    assume(other.fault(shape) is None)
    return source, other.over(shape)


@settings(max_examples=80, deadline=None)
@given(conversions())
def test_a_plan_applied_is_the_conversion(case):
    source, target = case
    moved = plan.convert(source, target)
    data = apply(moved, distribute(source, values(source)))
    assert np.array_equal(data, distribute(target, values(source)))


@settings(max_examples=80, deadline=None)
@given(conversions())
def test_a_plan_never_does_more_than_it_must(case):
    """Whatever a subgroup (a lane) already holds, in any replica, is not fetched from another."""
    source, target = case
    moved = plan.convert(source, target)
    held, wanted = source.table(), target.table()
    flat = lambda c: np.ravel_multi_index(c, source.shape)  # noqa: E731
    held_ids, wanted_ids = flat(held), flat(wanted)
    for s in range(target.subgroups):
        mine = np.isin(wanted_ids[s], held_ids[s])
        assert np.array_equal(moved.crossing[s], ~mine)
        for lane in range(target.lanes):
            local = np.isin(wanted_ids[s, lane], held_ids[s, lane])
            assert (moved.lane[s, lane][local] == lane).all()


@settings(max_examples=40, deadline=None)
@given(distributions(ranks=(2,)))
def test_reshape_and_broadcast_plans(case):
    named, shape = case
    target = named.over(shape)
    flat = target.reshaped([target.size, 1])
    assert reshape(flat, target).kind is Move.NOTHING
    for dim in range(2):
        source = target.contracted(dim)
        moved = broadcast(source, target, dim)
        assert moved.kind <= Move.REGISTERS
        line = values(source)
        data = apply(moved, distribute(source, line))
        assert np.array_equal(collect(target, data), np.broadcast_to(line, shape))


def carry_out(r: plan.Reduction, data: np.ndarray, combine: np.ufunc) -> np.ndarray:
    """A reduction as its plan says: registers, then lanes, then subgroups."""
    folded = np.full((*data.shape[:2], r.result.registers), combine.identity, data.dtype)
    for register, place in enumerate(r.fold):
        folded[..., place] = combine(folded[..., place], data[..., register])
    for axis, digits in ((1, r.lane), (0, r.subgroup)):
        for d in digits:
            index = np.arange(folded.shape[axis])
            rest = index - index // d.weight % d.size * d.weight
            total = np.full_like(folded, combine.identity)
            for i in range(d.size):
                total = combine(total, np.take(folded, rest + i * d.weight, axis))
            folded = total
    return folded


@settings(max_examples=80, deadline=None)
@given(distributions(ranks=(2, 3)), st.data())
def test_a_reduction_plan_carried_out_is_the_reduction(case, data):
    named, shape = case
    source = named.over(shape)
    dim = data.draw(st.integers(0, len(shape) - 1))
    sizes = [n for n in range(1, shape[dim] + 1) if shape[dim] % n == 0]
    size = data.draw(st.sampled_from(sizes))
    try:
        r = plan.reduce(source, dim, size)
    except LayoutError as error:
        # Runs that cut through what a lane holds at a non-divisor are refused, with the numbers.
        assert "split" in str(error) or "multiple" in str(error)
        return
    got = carry_out(r, distribute(source, values(source)), np.add)
    split = (*shape[:dim], shape[dim] // size, size, *shape[dim + 1 :])
    want = values(source).reshape(split).sum(dim + 1)
    assert np.array_equal(collect(r.result, got), want)


def test_reduction_kinds():
    rows = ly.layout([32, 1], [8, 128], [1, 16], [1, 16], [1, 1], [1, 0]).over([256, 128])
    along, down = plan.reduce(rows, 1), plan.reduce(rows, 0)
    assert (along.kind, along.butterfly()) == (Move.SHUFFLE, [1, 2, 4, 8])
    assert down.kind is Move.SLM and len(down.partners(ly.Axis.SUBGROUP)) == 32
    assert plan.reduce(rows, 0, 8).kind is Move.REGISTERS


def test_collect_refuses_replicas_that_differ():
    tile = ly.wg_map([2], [4]).over([4])
    data = distribute(tile, np.arange(4))
    assert np.array_equal(collect(tile, data), np.arange(4))
    data[1] += 1
    with pytest.raises(LayoutError, match="replicas of one element"):
        collect(tile, data)
