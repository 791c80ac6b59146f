"""In which form products are multiplied on a CPU, as the model and the code have it, and what forms take."""

import itertools

import numpy as np
import pytest

from benchmarks.suites.layers import product
from tests.passes.test_planner import Request
from tests.targets.cpu.test_product_cost import BF16, F16, seconds
from tilewright import dtypes
from tilewright.targets.base import CompileOptions, get_target
from tilewright.targets.cpu.machine import CpuMachine, machine
from tilewright.targets.cpu.product_cost import PanelCosts
from tilewright.targets.cpu.product_tiles import product_tile
from tilewright.uarch.cpu import PANEL_RATES
from tilewright.uarch.products import PlacedProduct, Side


def test_tiles_left_to_the_planner_keep_one_order_on_any_number_of_threads(rng):
    cpu, tiles = get_target("cpu"), set()
    for _ in range(6):
        m, n, k = (int(2 ** rng.uniform(3, 11)) for _ in "mnk")
        arrays = [np.zeros(shape, np.float32) for shape in ((m, k), (k, n), (m, n))]
        orders = set()
        for threads in (1, 2, 16):
            options = CompileOptions(machine="avx512", num_threads=threads)
            first, *others = cpu.choices(Request(product, *arrays), options)
            orders |= {each.order for each in (first, *others)}
            tiles.add((m, n, k, *first.values.values()))
        assert len(orders) == 1, (m, n, k)
    assert len(tiles) > 6


def test_rows_beside_few_columns_are_read_while_they_are_multiplied():
    """Measured on an AMX host: 4096x17x4096 by 32 x 32 takes 8.2 ms, 7 of which it multiplies."""
    assert 0.8 < seconds((4096, 17, 4096), (32, 32)) / 8.2e-3 < 1.2
    short, long = (seconds((4096, n, 4096), (32, n)) for n in (32, 48))
    assert 1.2 < long / short < 1.5


def test_vectors_multiply_few_panels_at_once_slower_than_three():
    """One of 16 columns takes more than a third of three, beside rows that come from the second cache."""
    one, three = (seconds((128, n, 128), (128, n)) for n in (16 + 16, 48))
    assert one > 0.69 * three


def test_part_of_a_panel_of_b_is_multiplied_with_others_beside_many_rows():
    """They are copied together, which many rows pay for: by 33 columns as long as by 48, but for what is stored."""
    part, whole = (seconds((m, n, 2048), (m, 48)) for m in (2048,) for n in (33, 48))
    assert 0.97 < part / whole < 1.01  # sums of 33 wait in a buffer


@pytest.mark.parametrize("level", ["avx512", "amx"])
@pytest.mark.parametrize("types", [("f32",) * 3, BF16, F16, ("f64",) * 3])
def test_the_form_of_a_product_is_that_of_its_code(monkeypatch, types, level):
    """What the model finds for a tile is what the passes find, before operands are packed and then."""
    found, form = [], CpuMachine.form

    def recorded(*args, **named):
        found.append(form(*args, **named))
        return found[-1]

    costs = PanelCosts(machine(level), 1, PANEL_RATES)
    dtype, acc = (dtypes.from_name(types[i]) for i in (0, 2))
    run = product.options(target="cpu", machine=level, num_threads=1)
    for m, n in ((8, 64), (128, 17), (128, 48), (64, 4)):
        for turned in itertools.product((False, True), repeat=2):
            sizes = (m, 1000), (1000, n)
            a, b = (
                np.zeros(s[::-1], dtype.numpy).T if t else np.zeros(s, dtype.numpy)
                for s, t in zip(sizes, turned, strict=True)
            )
            sides = Side(m, m, True, not turned[0]), Side(n, n, True, turned[1])
            expected = costs.order([PlacedProduct(types, *sides, 1000, 1)], 1).forms
            with monkeypatch.context() as patch:
                patch.setattr(CpuMachine, "form", recorded)
                run.compile(a, b, np.zeros((m, n), dtype.numpy), ACC=acc, BM=m, BN=n, BK=64)
            assert set(found) == set(expected), (m, n, turned)
            found.clear()


@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize("level", ["amx", None])
def test_9_to_16_rows_are_multiplied_in_shares_where_b_would_be_copied(level, threads):
    """Rows of B 8 or 16 KB apart, or more of them than the last cache holds; others are read where they lie beside
    panels of A, by tiles of more rows. Measured on an AMX host, one thread: 1.29 to 2.3 and 0.76 to 0.93 of that."""
    m = machine(level)
    costs = PanelCosts(m, threads, PANEL_RATES if level else m.panel_rates)
    for shape, shares in (
        ((16, 4096, 4096), True),
        ((12, 4096, 4096), True),
        ((10, 2048, 2048), True),
        ((14, 4096, 14336), True),
        ((16, 1000, 3000), False),
        ((16, 512, 512), False),
        ((9, 300, 5000), False),
        ((16, 1024, 1024), False),
    ):
        rows, _ = product_tile(costs, (1, *shape), ("f32",) * 3, (True, False), 1e-10)
        assert (rows == 16) == shares, shape
