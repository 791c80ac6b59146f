"""Surface maps against the texts that define them: both RFCs, the slides, and what DESIGN decides."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilewright import layout as ly
from tilewright.layout import LayoutError


def owners(tile: ly.Layout) -> dict[tuple[int, ...], set[int]]:
    """Subgroups that own the element at each corner of each part."""
    found: dict[tuple[int, ...], set[int]] = {}
    for s in range(tile.subgroups):
        for at in np.stack([c.ravel() for c in tile.coords(s)], -1).tolist():
            found.setdefault(tuple(at), set()).add(s)
    return found


# XeTile RFC, "Workgroup Level XeTile extension": the [128, 128] table. XeGPU RFC repeats it.
@pytest.mark.parametrize(
    "named",
    [
        ly.wg_map([2, 2], [32, 128]),
        ly.layout([2, 2], [32, 128], lane_layout=[1, 16], lane_data=[1, 1], order=[1, 0]),
    ],
)
def test_the_128x128_table(named: ly.Distribution):
    found = owners(named.over([128, 128]))
    expected = {0: {0, 1}, 32: {2, 3}, 64: {0, 1}, 96: {2, 3}}
    for row, column in itertools.product(range(128), (0, 63, 127)):
        assert found[row, column] == expected[row // 32 * 32]


# Slides: "SG data ownership".
def test_slides_example_1_each_subgroup_one_block():
    found = owners(ly.wg_map([4, 4], [32, 32]).over([128, 128]))
    for i, j in itertools.product(range(4), repeat=2):
        assert found[32 * i, 32 * j] == found[32 * i + 31, 32 * j + 31] == {4 * i + j}


def test_slides_example_2_columns_share():
    found = owners(ly.wg_map([4, 4], [32, 32]).over([128, 32]))
    for i in range(4):
        assert found[32 * i, 0] == found[32 * i + 31, 31] == {4 * i + j for j in range(4)}


# XeGPU RFC, "xegpu.layout": linear ids by order.
def test_order_table():
    grid = (4, 4)
    for linear in range(16):
        assert ly.delinearize(linear, grid, (1, 0)) == divmod(linear, 4)
        assert ly.delinearize(linear, grid, (0, 1)) == (linear % 4, linear // 4)
    tile = ly.layout([4, 4], [1, 1], order=[0, 1]).over([4, 4])
    assert (
        tile.owner(*np.indices((4, 4))).subgroup.tolist() == np.arange(16).reshape(4, 4).T.tolist()
    )


@pytest.mark.parametrize(
    ("order", "weights"),
    [
        ((2, 1, 0), lambda d: (d[1] * d[2], d[2], 1)),
        # The RFC writes y + dim_2*z + ...: a slip, ids would collide (DESIGN: dim_1*z).
        ((1, 2, 0), lambda d: (d[1] * d[2], 1, d[1])),
    ],
)
def test_three_dimensional_ids(order, weights):
    grid = (2, 3, 5)
    tile = ly.layout(grid, [1, 1, 1], order=order).over(grid)
    w = weights(grid)
    for x, y, z in np.ndindex(*grid):
        linear = w[0] * x + w[1] * y + w[2] * z
        assert ly.delinearize(linear, grid, order) == (x, y, z)
        assert tile.owner(x, y, z).subgroup == linear


# XeGPU RFC, sg_map: "WI data distribute from [..] to [..]".
PVC_ROWS = [
    ("a_bf16", [1, 16], [1, 1], [8, 16], (8, 1)),
    ("a_f16", [1, 16], [1, 1], [8, 16], (8, 1)),
    ("a_tf32", [2, 8], [1, 1], [8, 8], (4, 1)),
    ("a_ui8", [1, 16], [1, 2], [8, 32], (8, 2)),
    ("a_si8", [1, 16], [1, 2], [8, 32], (8, 2)),
    ("b_bf16", [1, 16], [2, 1], [16, 16], (8, 2)),
    ("b_f16", [1, 16], [2, 1], [16, 16], (8, 2)),
    ("b_tf32", [1, 16], [1, 1], [8, 16], (8, 1)),
    ("b_ui8", [1, 16], [4, 1], [32, 16], (8, 4)),
    ("b_si8", [1, 16], [4, 1], [32, 16], (8, 4)),
    ("c_f32", [1, 16], [1, 1], [8, 16], (8, 1)),
    ("c_si32", [1, 16], [1, 1], [8, 16], (8, 1)),
    ("anytype", [1, 16], [1, 1], [8, 16], (8, 1)),
    ("at_tf32", [16, 1], [1, 1], [16, 8], (8, 1)),
]
ARC_ROWS = [
    ("a_bf16", [1, 8], [1, 2], [8, 16], (8, 2)),
    ("a_f16", [1, 8], [1, 2], [8, 16], (8, 2)),
    ("a_tf32", [1, 8], [1, 1], [8, 8], (8, 1)),
    ("a_ui8", [1, 8], [1, 4], [8, 32], (8, 4)),
    ("a_si8", [1, 8], [1, 4], [8, 32], (8, 4)),
    ("b_bf16", [1, 8], [2, 1], [16, 8], (8, 2)),
    ("b_f16", [1, 8], [2, 1], [16, 8], (8, 2)),
    ("b_tf32", [1, 8], [1, 1], [8, 8], (8, 1)),
    ("b_ui8", [1, 8], [4, 1], [32, 8], (8, 4)),
    ("b_si8", [1, 8], [4, 1], [32, 8], (8, 4)),
    ("c_f32", [1, 8], [1, 1], [8, 8], (8, 1)),
    ("c_si32", [1, 8], [1, 1], [8, 8], (8, 1)),
    ("anytype", [1, 8], [1, 1], [8, 8], (8, 1)),
    ("at_tf32", [8, 1], [1, 1], [8, 8], (8, 1)),
]
OTHER_ROWS = [
    ("int8 rows of pairs", [1, 16], [1, 2], [8, 32], (8, 2)),
    ("larger tile", [1, 16], [1, 1], [12, 32], (24, 1)),
    ("larger tile, pairs", [1, 16], [1, 2], [12, 32], (12, 2)),
    ("transposed", [16, 1], [1, 1], [16, 16], (16, 1)),
    ("transposed pairs", [16, 1], [1, 2], [16, 16], (8, 2)),
    ("array_length 2", [1, 16], [1, 1], [2, 8, 16], (16, 1)),
    ("scattered", [1, 16], [1, 1], [16], (1, 1)),
    ("chunk of 4 f32", [16, 1], [1, 1], [16, 4], (4, 1)),
    # Slips: the 1-D example needs tensor_desc<32xbf16>; chunk_size = 4 with 16x8xbf16 reads 8.
    ("1-D pairs", [1, 16], [1, 2], [32], (1, 2)),
    ("chunk of 8 bf16", [16, 1], [1, 2], [16, 8], (4, 2)),
]


@pytest.mark.parametrize(
    ("wi_layout", "wi_data", "shape", "fragment"),
    [pytest.param(*row[1:], id=f"pvc {row[0]}") for row in PVC_ROWS]
    + [pytest.param(*row[1:], id=f"arc {row[0]}") for row in ARC_ROWS]
    + [pytest.param(*row[1:], id=row[0]) for row in OTHER_ROWS],
)
def test_sg_map_rows(wi_layout, wi_data, shape, fragment):
    named = ly.sg_map(wi_layout, wi_data)
    assert named.fragment_shape(shape) == fragment
    tile = named.over(shape)
    assert tile.lanes == wi_layout[0] * wi_layout[1] and tile.replicas(ly.Axis.LANE) == 1
    # The unit of a lane is contiguous in the dimension that wi_data names, and packed innermost.
    units = tile.fragment(0, tile.lanes - 1).reshape(*fragment, len(shape))
    axis = len(shape) - 1 if wi_data[1] > 1 or len(shape) == 1 else len(shape) - 2
    step = np.zeros(len(shape), int)
    step[axis] = 1
    assert (np.diff(units, axis=1) == step).all()


def test_the_rfc_1d_example_as_written_is_uneven():
    assert (
        ly.sg_map([1, 16], [1, 2]).fault([16])
        == "16 elements over 16 lanes of 2 each in dimension 0"
    )
    assert "needs wi_layout[0] = 1" in (ly.sg_map([16, 1], [1, 1]).fault([16]) or "")


def test_fragments_pack_lane_data_then_units_then_blocks():
    named = ly.layout(inst_data=[2, 4], lane_layout=[1, 2], lane_data=[2, 1])
    got = named.over([4, 4]).fragment(0, 1).tolist()
    # Lane 1 of block rows 0-1: columns 1 and 3, two rows packed; then block rows 2-3.
    assert got == [[0, 1], [1, 1], [0, 3], [1, 3], [2, 1], [3, 1], [2, 3], [3, 3]]


def test_xegpu_layout_example_64x16():
    """XeGPU RFC: 64x16 over [4, 8] of [16, 16]: rows split over 4, columns shared by 8; 16 per lane."""
    named = ly.layout([4, 8], [16, 16], [8, 16], [1, 16], [1, 1], [1, 0])
    tile = named.over([64, 16])
    assert tile.registers == 16 and tile.replicas(ly.Axis.SUBGROUP) == 8
    assert tile.fragment(9, 3)[:9].tolist() == [[16 + r, 3] for r in range(9)]


def test_xe_map_is_a_wg_map_with_an_sg_map_inside():
    """Early RFC: wg [2, 2] x [32, 128], sg [2, 8] x [1, 2]."""
    named = ly.wg_map([2, 2], [32, 128]).with_sg(ly.sg_map([2, 8], [1, 2]))
    tile = named.over([128, 128])
    assert (tile.subgroups, tile.lanes, tile.registers) == (4, 16, 2 * 32 * 128 // 16)
    assert tile.fragment(2, 9)[:4].tolist() == [[33, 2], [33, 3], [33, 18], [33, 19]]


@pytest.mark.parametrize(
    ("named", "shape", "says"),
    [
        (
            ly.wg_map([2, 2], [32, 32]),
            [128, 48],
            "48 elements over 2 subgroups of 32 each in dimension 1",
        ),
        (
            ly.wg_map([3, 1], [32, 32]),
            [128, 32],
            "128 elements over 3 subgroups of 32 each in dimension 0",
        ),
        (
            ly.wg_map([2, 2], [32, 32], [24, 32]),
            [64, 64],
            "32 elements in instructions of 24 in dimension 0",
        ),
        (
            ly.layout([2, 2], [32, 32], [8, 8], [1, 16], [1, 1]),
            [64, 64],
            "8 elements over 16 lanes of 1 each in dimension 1",
        ),
        (ly.layout([3, 1]), [64, 1], "64 elements over 3 subgroups in dimension 0"),
        (ly.wg_map([2, 2], [32, 32]), [64], "the map's rank is 2, the shape's is 1"),
    ],
)
def test_uneven_distribution_names_dimension_and_numbers(named, shape, says):
    assert named.fault(shape) == says
    with pytest.raises(LayoutError) as error:
        named.over(shape)
    assert str(error.value) == says


@pytest.mark.parametrize(
    ("shape", "fault"),
    [
        ([128], None),  # two rounds of 2 x 32
        ([64], None),  # one round
        ([32], None),  # half a round: shared by wrapping
        ([96], "96 elements over 2 subgroups of 32 each in dimension 0"),
        ([16], "16 elements over 2 subgroups of 32 each in dimension 0"),
    ],
)
def test_one_of_tile_and_round_divides_the_other(shape, fault):
    assert ly.wg_map([2], [32]).fault(shape) == fault


def test_slice_of_a_slice():
    base = ly.layout([2, 4, 8], [4, 4, 4], order=[2, 1, 0])
    once = ly.slice_(base, [1])
    twice = ly.slice_(once, [1])
    assert twice == ly.slice_(base, [1, 2]) and (once.rank, twice.rank) == (2, 1)
    tile = twice.over([8])
    found = owners(tile)
    assert found[0,] == set(range(32)) and found[4,] == set(range(32, 64))
    with pytest.raises(LayoutError, match="distinct dimensions below 2"):
        ly.slice_(once, [2])
    with pytest.raises(LayoutError, match="distinct dimensions"):
        ly.slice_(base, [1, 1])


def test_reduction_from_3d_to_2d_keeps_the_owners():
    """XeGPU RFC: [8, 32, 128] reduced along dim 1 under sg_layout [8, 1, 4]."""
    named = ly.layout([8, 1, 4], [1, 32, 32], [1, 1, 16], [1, 1, 16], [1, 1, 1], [2, 1, 0])
    reduced = ly.slice_(named, [1]).over([8, 128])
    full = named.over([8, 32, 128])
    at = np.indices((8, 128))
    for row in (0, 31):
        owner = full.owner(at[0], np.full_like(at[0], row), at[1])
        assert np.array_equal(owner.subgroup, reduced.owner(*at).subgroup)
        assert np.array_equal(owner.lane, reduced.owner(*at).lane)
    assert reduced.registers == full.registers // 32 == 2


def test_slice_shares_with_the_subgroups_that_are_gone():
    named = ly.layout([8, 4], [32, 64], order=[1, 0])
    tile = ly.slice_(named, [0]).over([256])
    assert tile.replicas(ly.Axis.SUBGROUP) == 8
    assert owners(tile)[64,] == {1 + 4 * i for i in range(8)}
