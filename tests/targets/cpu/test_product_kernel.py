"""What of a product micro-kernels compute, as its model has it, and what becomes of their sums."""

from dataclasses import replace

import pytest

from tests.targets.cpu.test_product_cost import BF16, F16, seconds
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.product_cost import PanelCosts
from tilewright.targets.cpu.product_tiles import product_tile
from tilewright.uarch.cpu import PANEL_RATES
from tilewright.uarch.products import PlacedProduct, Side

I8 = ("i8", "i8", "i32")


def test_rows_that_lie_in_arrays_are_multiplied_in_whole_tiles():
    """24 rows of B take as long as the 32 that are read; a last 16 of them are one tile."""
    parts, whole, half = (
        seconds((6, 1536, 8192), (8, n), BF16, (True, True), threads=1) for n in (24, 32, 48)
    )
    assert 1.25 * whole < parts < 1.4 * whole
    assert half < 1.05 * whole


def test_short_sides_are_read_where_they_lie_as_fast_by_half_a_block_of_tiles():
    """Memory limits 16 rows of tiles as it does 32; f16 without tiles of its own is split into pairs in every pass."""
    short, tall = (seconds((m, 1536, 4096), (m, 256), BF16, (True, True)) for m in (16, 32))
    assert short < 1.2 * tall
    pairs, once = (seconds((48, 1536, 4096), (m, 256), F16, (True, True)) for m in (32, 64))
    assert once < pairs


def test_c_turned_round_stays_in_the_second_cache():
    """24 rows of A beside rows of B along k: 5 MB of C and C turned round go to the last cache and back."""
    near, far = (seconds((24, 10240, 512), (24, n), I8, (True, True)) for n in (512, 10240))
    assert far > 1.05 * near


def test_what_is_left_of_k_behind_whole_tiles_is_multiplied_as_one():
    costs, side = PanelCosts(machine("amx"), 1, PANEL_RATES), Side(128, 512, True, True)
    half, more, whole = (
        costs.causes([PlacedProduct(I8, side, side, k, 1)], 16)["products"] for k in (64, 65, 128)
    )
    assert half < more == whole


def test_a_large_result_is_stored_in_whole_rows_by_one_thread():
    """Measured: 12 MB of C by 96 x 768 take 1.9 times as long as by 96 x 1536; 0.7 MB are found in a cache again."""
    whole, parts = (seconds((1941, 1522, 160), (96, n), I8, (True, True)) for n in (1536, 768))
    assert parts > 1.2 * whole
    whole, parts = (seconds((120, 1522, 160), (96, n), I8, (True, True)) for n in (1536, 768))
    assert parts < 1.2 * whole


def test_panels_of_a_stay_near_only_beside_few_columns_of_b():
    """Of f32, 0.9 MB of them, that 16 threads read again for each few columns: measured, tiles of 32 columns take 1.6
    times as long as those of 160, of which there are a fifth."""
    shape = (64, 18944, 3584)
    narrow, wide = (seconds(shape, (64, n), along_k=(False, False), threads=16) for n in (32, 160))
    assert narrow > wide


def test_vectors_are_multiplied_by_three_panels_faster_than_by_two():
    """Measured on 16 threads: 29x7168x16384 by 48 columns takes 0.8 to 0.9 of the time by 32 and 64."""
    costs = PanelCosts(machine("amx"), 1, PANEL_RATES)

    def each(columns: int) -> float:
        a, b = Side(64, 64, True, True), Side(columns, 64 * columns, True, False)
        product = PlacedProduct(("f32",) * 3, a, b, 1024, 1)
        return costs.causes([product], 1)["products"] / columns

    one, two, three, four, five = (each(16 * n) for n in (1, 2, 3, 4, 5))
    assert three < five < two == four < one


def test_panels_of_b_are_put_in_groups_slower_than_they_are_copied():
    """Of B along k for tiles: 7 GB a second on one core, beside 10 of f32 and 13 of rows that lie along columns."""
    a, b = Side(128, 128, True, True), Side(256, 256, True, True)
    rates = (replace(PANEL_RATES, pack_groups=x) for x in (7e9, 7e11))
    costs = (PanelCosts(machine("amx"), 1, each) for each in rates)
    slow, fast = (c.causes([PlacedProduct(BF16, a, b, 1024, 1)], 1)["copies"] for c in costs)
    assert slow - fast == pytest.approx(256 * 1024 * 2 / 7e9, rel=0.2)


def test_sums_of_vectors_are_stored_as_fast_where_their_array_ends_within_a_tile():
    """2143 columns of f32 by tiles of 2176, as 2176 columns: both store where they sum."""
    tile, f32 = (96, 2176), ("f32", "f32", "f32")
    ends, lies = (seconds((576, n, 22), tile, f32, (True, True)) for n in (2143, 2176))
    assert 0.9 * lies < ends <= lies


def test_tiles_of_vectors_may_end_where_the_array_does():
    """40 rows of f32 by tiles of 48 wait in a buffer; by 40, measured on Zen 5, they take half of the time."""
    costs = PanelCosts(machine("avx512"), 1, PANEL_RATES)
    f32 = ("f32", "f32", "f32")
    assert product_tile(costs, (256, 40, 48, 8), f32, (True, False), 1e-10) == (40, 48)
