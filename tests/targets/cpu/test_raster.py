"""Programs of a kernel without products follow one another along the rows of its arrays."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw


@tw.kernel
def doubled(X, COUNT, TURNS, ACROSS: tw.constexpr, MULTIPLIED: tw.constexpr):
    """Each program doubles a tile, and notes how many ran before it."""
    x, y, z = tw.program_id(0), tw.program_id(1), tw.program_id(2)
    at = tw.init_tile(X, [z, y * 8, x * 16] if ACROSS else [z, x * 8, y * 16], (8, 16))
    tile = tw.load_tile(at)
    if MULTIPLIED:
        tile = tw.tile_mma(tw.zeros((8, 8), tw.f32), tile, tile)
    tw.store_tile(tile * 2.0, at)
    count = tw.init_tile(COUNT, [0, 0], (1, 16))
    before = tw.load_tile(count)
    tw.store_tile(before + 1, count)
    row = (z * tw.num_programs(1) + y) * tw.num_programs(0) + x
    tw.store_tile(before, tw.init_tile(TURNS, [row, 0], (1, 16)))


@pytest.mark.parametrize(
    ("across", "multiplied", "column", "first"),
    [(False, False, False, 1), (True, False, False, 0), (False, True, False, 0), (False, False, True, 0)],
)  # fmt: skip
def test_programs_follow_one_another_along_rows(rng, across, multiplied, column, first):
    grid = x, y, z = tuple(int(n) for n in rng.integers(2, 6, 3))
    rows, columns = (8 * y, 16 * x) if across else (8 * x, 16 * y)
    values = rng.standard_normal((z, rows, columns)).astype(np.float32)
    if column:  # the array's rows are in its columns
        values = np.ascontiguousarray(values.transpose(0, 2, 1)).transpose(0, 2, 1)
    wanted, count = values * 2, np.zeros((1, 16), np.int32)
    turns = np.full((x * y * z, 16), -1, np.int32)
    kernel = doubled.options(target="cpu", num_threads=1, disable=("merge-programs",))
    kernel[grid](values, count, turns, ACROSS=across, MULTIPLIED=multiplied)
    np.testing.assert_array_equal(values, wanted)
    order = turns[:, 0].reshape(z, y, x)
    if first == 1:
        order = order.transpose(0, 2, 1)
    np.testing.assert_array_equal(order.ravel(), np.arange(x * y * z))
