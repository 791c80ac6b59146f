"""Rates of products are found again from the times that they give."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tilewright.targets.base import CompileOptions, get_target
from tilewright.targets.cuda.fitting import CLOCK, explaining, fitted, lost
from tilewright.targets.cuda.fitting import Timed as Launch
from tilewright.tools.calibrate import SHAPES, product
from tilewright.uarch.sm90 import H100_PRODUCT_RATES, PRODUCT_RATES

CORES = 132

pytestmark = pytest.mark.usefixtures("h200")


def launches() -> list[Launch]:
    from tilewright.targets.cuda import tile_sizes

    kernel = product.options(target="cuda-sm_90a")
    found: list[Launch] = []
    for m, n, k in SHAPES:
        specs = [
            tw.spec((m, k), tw.bf16),
            tw.spec((k, n), tw.bf16, (1, k)),
            tw.spec((m, n), tw.bf16),
        ]
        request, _, options = kernel.chooser.request(kernel.launcher.bind(tuple(specs), {}))
        machine = get_target("cuda").machine(options)
        assert machine is not None
        made = tile_sizes.samples(request, options, machine, CORES)
        assert [c.values for c in made] == get_target("cuda").samples(request, options)
        assert len({str(c.values) for c in made}) == len(made) > 3
        found += [Launch(c.work, c.split, c.programs, c.trips, c.sides, 0.0) for c in made]
    return found


def test_rates_are_found_again() -> None:
    """A machine whose rates are others by up to a half: after a fit that may go far from the table the times are known
    to a few hundredths, after one that stays near it better than before."""
    rng = fresh_rng()
    real = {
        n: r * (1 if n == CLOCK else 2.0 ** rng.uniform(-0.6, 0.6))
        for n, r in PRODUCT_RATES.items()
    }
    timed = [replace(each, seconds=each.estimated(real, CORES)) for each in launches()]

    def off(rates) -> list[float]:
        return [abs(each.estimated(rates, CORES) / each.seconds - 1) for each in timed]

    near = explaining(timed, PRODUCT_RATES, CORES)
    found = explaining(timed, PRODUCT_RATES, CORES, pull=1e-3)
    assert found.keys() == PRODUCT_RATES.keys() and found[CLOCK] == PRODUCT_RATES[CLOCK]
    assert median(off(found)) < 0.04 and median(off(found)) < median(off(PRODUCT_RATES))
    assert median(off(near)) < 0.1 and median(off(near)) < median(off(PRODUCT_RATES))


def test_a_fit_that_chooses_no_better_is_dropped() -> None:
    """The table's own times, longer by what a launch costs from Python: a fit explains them, and gains nothing."""
    timed = [
        replace(each, seconds=each.estimated(PRODUCT_RATES, CORES) * 1.3) for each in launches()
    ]
    assert lost(timed, PRODUCT_RATES, CORES) == 0
    assert explaining(timed, PRODUCT_RATES, CORES) != PRODUCT_RATES
    assert fitted(timed, PRODUCT_RATES, CORES) == PRODUCT_RATES
    # Where products take long, another tiling is the best, and a fit that finds a better one is kept.
    slow = PRODUCT_RATES | {"issue": 4 * PRODUCT_RATES["issue"]}
    timed = [replace(each, seconds=each.estimated(slow, CORES)) for each in timed]
    found = fitted(timed, PRODUCT_RATES, CORES)
    assert lost(timed, found, CORES) < lost(timed, PRODUCT_RATES, CORES) - 0.02


def test_without_times_the_table_stays() -> None:
    assert fitted([], PRODUCT_RATES, CORES) == PRODUCT_RATES
    assert get_target("cuda").fitted([], CompileOptions(target="sm_90a")) == PRODUCT_RATES


@pytest.mark.parametrize(
    "device, table",
    [("NVIDIA H200", PRODUCT_RATES), ("NVIDIA H100 80GB HBM3", H100_PRODUCT_RATES)],
)
def test_what_was_measured_is_what_launches_are_costed_by(
    tmp_path, monkeypatch, device, table
) -> None:
    """Kernels that were compiled before are costed by it too: rates are no part of their code."""
    from tilewright import knobs
    from tilewright.targets.cuda import driver
    from tilewright.targets.cuda.fitting import measured
    from tilewright.uarch import calibration

    work = launches()[0].work  # which has the rates of a device that is here
    monkeypatch.setattr(driver, "named", lambda machine: f"{machine}: {device}")
    with knobs.override(cache_dir=tmp_path):
        assert measured(work, "sm_90a").rates == table
        name = next(n for n in table if n != CLOCK)
        calibration.keep(driver.named("sm_90a"), {name: 2 * table[name], "memory_bytes": 1.0})
        assert measured(work, "sm_90a").rates == table | {name: 2 * table[name]}
