"""The copy engine, queued products and roles: right programs under all schedules, wrong ones found."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.reference.stage_programs import PRODUCT
from tilewright.diagnostics import CheckError
from tilewright.dialects.text import parse_module
from tilewright.reference import run

SCHEDULES = ("late", "early", "random")


def product(text: str, schedule: str) -> float:
    """The relative error of C after running `text`."""
    seed = np.random.SeedSequence().entropy
    print("seed", seed)
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((128, 256), (256, 128)))
    c = np.full((128, 128), np.nan, np.float32)
    run(parse_module(text), (1, 1, 1), [a, b, c], schedule=schedule, seed=1)  # pyright: ignore
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    return float(np.linalg.norm(c - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_roles_meet_in_rings(schedule: str) -> None:
    assert product(PRODUCT, schedule) < 1e-6


def test_a_slot_released_before_its_product_is_done_is_found() -> None:
    early = PRODUCT.replace(
        "stage.mma.wait {pending = 1 : i64}", "stage.mma.wait {pending = 2 : i64}"
    )
    assert early != PRODUCT
    assert np.isnan(product(early, "late"))


def test_a_result_that_was_not_waited_for_is_nan() -> None:
    hasty = PRODUCT.replace("{pending = 0 : i64}", "{pending = 1 : i64}")
    assert np.isnan(product(hasty, "late"))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_slot_released_twice_is_an_error(schedule: str) -> None:
    with pytest.raises(CheckError, match="slot 0 is released for fill 0"):
        product(PRODUCT.replace(" when %more", ""), schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_deadlock_tells_the_state_of_the_ring(schedule: str) -> None:
    stuck = PRODUCT.replace(
        "stage.copy.release %r[%q] when %more", "stage.copy.release %r[%q] when %never"
    )
    stuck = stuck.replace("%cst =", "%never = arith.constant false\n    %cst =")
    with pytest.raises(CheckError, match=r"(?s)deadlock.*stage\.copy.*slot 0"):
        product(stuck, schedule)
