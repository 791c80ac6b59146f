"""Derived maps as the two RFCs give them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tilewright import layout as ly
from tilewright.layout import BoundMap, LayoutError, MmaShapes, derive

from .strategies import distributions

LANES = ([1, 16], [1, 1])


# XeTile RFC, "Workgroup Level XeTile extension": the four derived maps.
def test_xetile_mma():
    d = ly.wg_map([8, 4], [32, 64])
    a, b = derive.mma_operands(d, 32)
    assert (a, b) == (ly.wg_map([8, 4], [32, 32]), ly.wg_map([8, 4], [32, 64]))
    assert a.fault([256, 32]) is b.fault([32, 256]) is d.fault([256, 256]) is None


def test_xetile_broadcast():
    result = ly.wg_map([16, 1], [16, 256])
    source = BoundMap(result, (256, 256)).contracted(1, 256)
    assert source == BoundMap(ly.wg_map([16, 1], [16, 1]), (256, 1))
    assert result.over([256, 256]).contracted(1) == source.map.over([256, 1])


def test_broadcast_size_divides_the_block():
    result = ly.wg_map([2, 4], [32, 16])
    source = BoundMap(result, (64, 64)).contracted(0, 32)
    assert source == BoundMap(ly.wg_map([2, 4], [1, 16]), (2, 64))
    assert result.over([64, 64]).contracted(0, 32) == source.map.over([2, 64])
    with pytest.raises(LayoutError, match="sg_data 32 in dimension 0 splits an element of 48"):
        BoundMap(result, (192, 64)).contracted(0, 48)


# XeGPU RFC, propagation rules of `layout`.
def test_xegpu_dpas_with_instruction():
    """Its layout_c has inst_data [16, 16], a slip: the result of dpas is [8, 16] (DESIGN)."""
    d = ly.layout([8, 4], [32, 64], [8, 16], *LANES, [1, 0])
    a, b = derive.mma_operands(d, 32, MmaShapes(8, 16, 16, pack_a=1, pack_b=2))
    assert a == ly.layout([8, 4], [32, 32], [8, 16], *LANES, [1, 0])
    assert b == ly.layout([8, 4], [32, 64], [16, 16], [1, 16], [2, 1], [1, 0])
    assert d.fault([256, 256]) is a.fault([256, 32]) is b.fault([32, 256]) is None


def test_xegpu_transpose_swaps_order_and_moves_nothing():
    result = ly.layout([4, 8], [32, 64], [16, 16], [1, 16], [1, 1], [1, 0])
    source = BoundMap(result, (128, 512)).permuted((1, 0)).map
    assert source == ly.layout([8, 4], [64, 32], [16, 16], [16, 1], [1, 1], [0, 1])
    x, y = source.over([512, 128]), result.over([128, 512])
    assert ly.plan.convert(x.permuted((1, 0)), y).kind <= ly.Move.REGISTERS


def test_xegpu_broadcast_takes_a_slice_for_any_sg_layout():
    """The RFC demands sg_layout 1 along the dimension; decided here: any (DESIGN)."""
    result = ly.layout([4, 8], [64, 32], [1, 16], *LANES, [1, 0])
    source = ly.slice_(result, [0])
    assert source.over([256]) == result.over([256, 256]).contracted(0).dropped(0)


def test_shape_cast_that_splits_a_dimension():
    lanes = ([1, 1, 16], [1, 1, 1])
    result = ly.layout([8, 1, 4], [1, 32, 32], [1, 1, 16], *lanes, [2, 1, 0])
    source = BoundMap(result, (8, 32, 128)).reshaped([256, 128]).map
    assert source == ly.layout([8, 4], [32, 32], [1, 16], *LANES, [1, 0])


def test_shape_cast_that_adds_a_unit_dimension():
    lanes = ([1, 1, 16], [1, 1, 1])
    result = ly.layout([8, 1, 4], [32, 1, 32], [1, 1, 16], *lanes, [2, 1, 0])
    source = BoundMap(result, (256, 1, 128)).reshaped([256, 128]).map
    # The RFC writes it as a slice of the result's layout; both are one ownership.
    assert source.over([256, 128]) == ly.slice_(result, [1]).over([256, 128])
    back = BoundMap(source, (256, 128)).reshaped([256, 1, 128]).map
    assert back == result


def test_shape_cast_that_no_map_can_follow():
    # Blocks of 2 x 32 over a split dimension: rows 0, 1 of one subgroup are no contiguous run.
    result = BoundMap(ly.layout([1, 4], [2, 32]), (2, 128))
    with pytest.raises(LayoutError, match=r"\[2, 128\] does not become \[256\]|dimension of 2"):
        result.reshaped([256])


def test_bitcast_scales_the_packed_dimension():
    narrow, wide = (
        BoundMap(ly.sg_map([1, 16], [1, 2]), (1, 32)),
        BoundMap(ly.sg_map([1, 16], [1, 1]), (1, 16)),
    )
    assert narrow.joined(1, 2) == wide and wide.expanded(1, 2) == narrow
    with pytest.raises(LayoutError, match="lane_data 1 in dimension 1 splits"):
        wide.joined(1, 2)


@settings(max_examples=60, deadline=None)
@given(distributions(ranks=(2, 3)))
def test_a_permuted_map_is_the_permuted_normal_form(case):
    """With `order` swapped along, owners and lanes stay; only the order in a fragment may change."""
    named, shape = case
    permutation = (*range(1, len(shape)), 0)
    source_shape = _source_shape(shape, permutation)
    back = [permutation.index(dim) for dim in range(len(shape))]
    source = BoundMap(named, shape).permuted(back).map
    moved = ly.plan.convert(source.over(source_shape).permuted(permutation), named.over(shape))
    assert moved.kind <= ly.Move.REGISTERS


def _source_shape(result: tuple[int, ...], permutation: tuple[int, ...]) -> tuple[int, ...]:
    """Shape whose transposition by ``permutation`` is ``result``."""
    source = [0] * len(result)
    for i, p in enumerate(permutation):
        source[p] = result[i]
    return tuple(source)
