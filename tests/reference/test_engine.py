"""The copy engine, queued products and roles: right programs under all schedules, wrong ones found."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.draws import fresh_rng
from tests.reference.stage_programs import COPIED, PRODUCT
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


def copied(text: str, depth: int, schedule: str) -> float:
    """The relative error of C = A B of `depth` columns of A after running `text`."""
    rng = fresh_rng()
    a, b = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((64, depth), (depth, 40)))
    c = np.full((64, 40), np.nan, np.float32)
    run(parse_module(text), (1, 1, 1), [a, b, c], schedule=schedule, seed=1)  # pyright: ignore
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    return float(np.linalg.norm(c - wanted) / max(1.0, np.linalg.norm(wanted)))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_threads_copy_ahead(schedule: str) -> None:
    for depth in (0, 20, 32, 64, 300):
        assert copied(COPIED, depth, schedule) < 1e-6


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("pending = 1", "pending = 2", "1 fills came after this one, and 2 may stay pending"),
        (" when %k2r", "", "a multi-buffer in use is given up: slot 0 f"),
        ("stage.copy.release %r[%h]", "stage.copy.release %r[%w]", "deadlock"),
    ],
)
def test_wrong_copies_by_threads_are_found(old: str, new: str, message: str) -> None:
    assert COPIED.count(old) == 1
    with pytest.raises(CheckError, match=message):
        copied(COPIED.replace(old, new), 300, "early")
