"""The normal form itself: what it accepts, queries, and changes of shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import layout as ly
from tilewright.layout import Axis, Digit, Layout, LayoutError, number

from .strategies import distributions

REG, LANE, SUB, MEM = Axis


def test_equal_functions_have_equal_digits():
    one = Layout.of((64,), number(REG, [(4, 0, 1), (16, 0, 4)]))
    other = Layout.of((64,), number(REG, [(2, 0, 1), (1, 0, 7), (32, 0, 2)]))
    assert one == other and hash(one) == hash(other)
    assert one.digits == (Digit(REG, 1, 64, 0, 1),)


@pytest.mark.parametrize(
    ("digits", "says"),
    [
        ([Digit(REG, 1, 4, 0, 1)], "dimension 0 of [8]: 4 of 8 elements are owned"),
        ([Digit(REG, 1, 8, 0, 2)], "moves by 2 elements where the digits below it cover 1"),
        ([Digit(REG, 1, 4, 0, 1), Digit(LANE, 1, 4, 0, 2)], "moves by 2 elements where"),
        ([Digit(LANE, 2, 8, 0, 1)], "lane digit of weight 2 follows digits that cover 1"),
        ([Digit(REG, 1, 8, 0, 0)], "must have positive size, weight and stride"),
    ],
)
def test_digits_that_do_not_fit_are_refused(digits: list[Digit], says: str):
    with pytest.raises(LayoutError, match=says.replace("[", r"\[").replace("]", r"\]")):
        Layout.of((8,), digits)


@settings(max_examples=60, deadline=None)
@given(distributions())
def test_every_element_is_owned_and_replicas_equal_subgroups_over_distinct_parts(case):
    named, shape = case
    tile = named.over(shape)
    owned = np.zeros(shape, np.intp)
    np.add.at(owned, tile.table(), 1)
    # As often as there are replicas, everywhere: no element is lost, none is owned unevenly.
    assert (owned == tile.replicas(SUB) * tile.replicas(LANE)).all()
    parts = {part.offset for s in range(tile.subgroups) for part in named.parts(shape, s)}
    rounds = len(named.parts(shape, 0))
    assert tile.replicas(SUB) == tile.subgroups // (len(parts) // rounds)


@settings(max_examples=60, deadline=None)
@given(distributions())
def test_owner_and_coordinates_are_inverse(case):
    named, shape = case
    tile = named.over(shape)
    coords = np.indices(shape)
    owner = tile.owner(*coords)
    back = tile.at(*owner)
    assert all(np.array_equal(a, b) for a, b in zip(back, coords, strict=True))


@settings(max_examples=60, deadline=None)
@given(distributions(lanes=False))
def test_parts_are_the_fragment_in_order(case):
    named, shape = case
    named = ly.layout(named.sg_layout, named.sg_data, None, None, None, named.order)
    tile = named.over(shape)
    for s in {0, tile.subgroups // 2, tile.subgroups - 1}:
        rows = [
            np.stack(np.meshgrid(*map(np.arange, part.shape), indexing="ij"), -1).reshape(
                -1, len(shape)
            )
            + part.offset
            for part in named.parts(shape, s)
        ]
        assert np.array_equal(tile.fragment(s, 0), np.concatenate(rows))


@settings(max_examples=40, deadline=None)
@given(distributions(ranks=(2, 3)), st.data())
def test_permuted_moves_nothing(case, data):
    named, shape = case
    tile = named.over(shape)
    permutation = data.draw(st.permutations(range(len(shape))))
    turned = tile.permuted(permutation)
    values = np.arange(tile.size).reshape(shape)
    before, after = values[tile.table()], values.transpose(permutation)[turned.table()]
    assert np.array_equal(before, after)
    assert turned.permuted(np.argsort(permutation).tolist()) == tile


@settings(max_examples=40, deadline=None)
@given(distributions(ranks=(2,)))
def test_reshaped_moves_nothing(case):
    named, shape = case
    tile = named.over(shape)
    flat = tile.reshaped([1, tile.size])
    values = np.arange(tile.size)
    assert np.array_equal(values.reshape(shape)[tile.table()], values.reshape(1, -1)[flat.table()])
    assert flat.reshaped(shape) == tile


def test_reshape_that_straddles_is_refused():
    tile = ly.wg_map([2], [6]).over([12])
    with pytest.raises(LayoutError, match=r"do not split at 4|straddle"):
        tile.reshaped([3, 4])


def test_contracted_runs():
    tile = ly.layout([4], [8], lane_layout=[4], lane_data=[1]).over([32])
    runs = tile.contracted(0, 4)
    # Runs of four were one lane each way across 4 lanes: lanes become replicas, registers remain.
    assert (runs.shape, runs.registers, runs.replicas(LANE), runs.replicas(SUB)) == ((8,), 2, 4, 1)
    whole = tile.contracted(0)
    assert (whole.shape, whole.registers, whole.replicas(SUB)) == ((1,), 1, 4)
    with pytest.raises(LayoutError, match="runs of 5 do not divide the 32 elements of dimension 0"):
        tile.contracted(0, 5)


def test_expanded_is_a_bitcast():
    wide = ly.sg_map([1, 16], [1, 1]).over([8, 16])
    narrow = ly.sg_map([1, 16], [1, 2]).over([8, 32])
    assert wide.expanded(1, 2) == narrow
