"""`TILEWRIGHT_CPU`: code of a lower tier than the machine's, in every tier that the machine executes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.targets.cpu.test_structure import levels_here
from tilewright import TilewrightError, knobs, ops
from tilewright.codegen.native import ARCHITECTURES, host_architecture
from tilewright.targets.cpu.machine import machine

TABLE = host_architecture()
HERE = [name for name, tier in TABLE.tiers.items() if tier.least in levels_here()]
WIDER = {"generic": "%[yz]mm", "avx2": "%zmm", "neon": r"\bz\d"}
"""Registers that code of a tier does not use; that of the generic one of Arm neither."""


def test_the_setting_knows_the_tiers_of_all_tables() -> None:
    assert {tier for each in ARCHITECTURES for tier in each.tiers} == set(knobs.CPU_TIERS)


@pytest.mark.parametrize("tier", HERE)
def test_a_tier_uses_no_more_than_it_is_named_for(tier: str) -> None:
    m = machine(None, tier)
    assert m.vectors == TABLE.levels[TABLE.tiers[tier].most].vectors
    assert m.amx == (tier == "amx")
    most = TABLE.tiers[tier].most
    assert m.target.features <= TABLE.features(most) | TABLE.extras(most)


def test_one_kernel_has_code_of_its_own_in_every_tier() -> None:
    """In whatever order tiers are asked for: what one compiled does not serve another."""
    from tests.targets.cpu.test_narrow_rows import convert

    x, codes = tw.spec((70, 90), tw.bf16), dict[str, set[str]]()
    for tier in [*HERE, *reversed(HERE)]:
        with knobs.override(cpu=tier):
            compiled = convert.compile(x, tw.spec((70, 90), tw.f32), target="cpu")
        codes.setdefault(tier, set()).add(compiled.asm["asm"])
    assert all(len(code) == 1 for code in codes.values())
    vectors = {tier: TABLE.levels[TABLE.tiers[tier].most].vectors for tier in HERE}
    assert len(set.union(*codes.values())) >= len({*vectors.values()})


@pytest.mark.parametrize("tier", HERE)
def test_launches_follow_the_tier_and_are_right_in_it(rng: np.random.Generator, tier: str) -> None:
    """Two tiers in one process do not share code; integers are the same, bf16 is as near as its rounding."""
    a, b = (rng.integers(-128, 128, s, np.int8) for s in ((70, 90), (90, 50)))
    x, y = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((70, 90), (90, 50)))
    with knobs.override(cpu=tier):
        np.testing.assert_array_equal(ops.matmul(a, b), a.astype(np.int32) @ b.astype(np.int32))
        exact = x.astype(np.float64) @ y.astype(np.float64)
        error = np.linalg.norm(ops.matmul(x, y).astype(np.float64) - exact)
        assert error <= 4e-3 * np.linalg.norm(exact)
        from tests.targets.cpu.test_narrow_rows import convert

        asm = convert.compile(x, x.astype(np.float32), target="cpu").asm["asm"]
    assert tier not in WIDER or not re.search(WIDER[tier], asm)


def test_a_tier_that_the_machine_has_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lowest, tier = next(iter(TABLE.levels)), list(TABLE.tiers)[-1]
    monkeypatch.setattr("tilewright.targets.cpu.machine.host_level", lambda: lowest)
    machine.cache_clear()
    with pytest.raises(TilewrightError, match=f"TILEWRIGHT_CPU={tier}: .* executes {lowest} at"):
        machine(None, tier)
    machine.cache_clear()


@pytest.mark.optional
@pytest.mark.parametrize("tier", HERE[:-1])
def test_the_acceptance_programs_run_in_every_tier(tier: str) -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "tests/acceptance"],
        cwd=root, env={**os.environ, "TILEWRIGHT_CPU": tier}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
