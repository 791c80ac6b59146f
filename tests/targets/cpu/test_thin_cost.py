"""What products with a thin side are estimated to take."""

from dataclasses import replace

import pytest

from tests.targets.cpu.test_product_cost import BF16, seconds
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.product_cost import PanelCosts
from tilewright.uarch.cpu import PANEL_RATES
from tilewright.uarch.products import PlacedProduct, Side


@pytest.mark.parametrize("k, near", [(2048, True), (8192, False)])
def test_few_columns_of_a_come_again_from_afar_where_what_is_read_beside_them_fills_the_second_cache(
    k, near
):
    """f32 TN 16x8192x8192 on 16 threads took 3.08 ms by 32 columns, 2.42 by 128; 16x5120x2048 loses nothing."""
    costs = PanelCosts(machine("amx"), 16, PANEL_RATES)
    a, b = Side(16, 16, True, False), (Side(n, 8192, True, False) for n in (32, 128))
    products = [PlacedProduct(("f32",) * 3, a, side, k, 1) for side in b]
    many, few = (costs.causes([p], p.b.tiles)["copies"] for p in products)
    assert (many < 1.1 * few) == near and (many > 2 * few) != near


def test_few_rows_read_an_odd_number_of_lines_of_each_row_in_vain():
    """f32 NN 16x5120x5120 on 16 threads: 1025 us by 48 columns, 795 by 64."""
    odd, even = (seconds((16, 5120, 5120), (16, n), threads=16) for n in (48, 64))
    assert odd > 1.04 * even


def test_vectors_beyond_groups_of_four_are_multiplied_alone():
    """Beside four rows, where B lies: 96 columns are a group of 64 and two vectors more."""
    each = {n: seconds((4, 14336, 4096), (4, n), BF16, threads=16) for n in (64, 96, 128)}
    assert each[128] < 1.05 * each[64] < 0.8 * each[96]


def test_sums_along_rows_of_b_are_added_up_across_in_the_end():
    """Of few rows beside rows of B that run along k: short ones take longer for each k than long ones."""
    a, b = Side(8, 8, True, True), Side(320, 294, True, True)
    costs = PanelCosts(machine("avx512"), 1, PANEL_RATES)

    def each(k):
        return costs.causes([PlacedProduct(("f32",) * 3, a, b, k, 1)], 1)["products"] / k

    assert each(203) > 1.1 * each(4060)


def test_rows_so_long_that_those_behind_are_not_fetched_come_later_on_some_cores():
    def told(columns, long_runs):
        costs = PanelCosts(machine("vnni"), 1, replace(PANEL_RATES, long_runs=long_runs))
        b = Side(columns, 8192, True, False)
        product = PlacedProduct(("f32",) * 3, Side(4, 4, True, True), b, 4096, 1)
        return sum(costs.causes([product], b.tiles).values())

    assert told(512, 0.5) == told(512, 1.0) and told(1024, 0.5) > 1.5 * told(1024, 1.0)


def test_short_products_of_few_rows_wait_for_rows_of_the_result_as_others_do():
    """256 of f32 32 x 32 x 32 on one thread of Zen 5: 147 us by 16 rows, 83 by 32."""
    costs = PanelCosts(machine("avx512"), 1, PANEL_RATES)

    def sums(rows: int) -> float:
        a, b = Side(rows, 32, True, True), Side(32, 32, True, False)
        return costs.causes([PlacedProduct(("f32",) * 3, a, b, 32, 1)], 256 * a.tiles)["sums"]

    assert sums(16) >= 256 * 32 * PANEL_RATES.row <= sums(32)
