"""`TILEWRIGHT_CPU`: code of a lower tier than the machine's, in every tier that the machine executes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.targets.cpu.test_structure import levels_here
from tilewright import TilewrightError, knobs, ops
from tilewright.codegen.native import host_architecture
from tilewright.targets.cpu.machine import machine

HERE = [name for name, tier in host_architecture().tiers.items() if tier.least in levels_here()]
REGISTERS = {"generic": "xmm", "avx2": "ymm", "avx512": "zmm", "amx": "zmm"}


@pytest.mark.parametrize("tier", HERE)
def test_a_tier_uses_no_more_than_it_is_named_for(tier: str) -> None:
    m = machine(None, tier)
    assert m.vector_bytes == {"generic": 16, "avx2": 32}.get(tier, 64)
    assert m.amx == (tier == "amx")
    assert m.has("f16c") == (tier != "generic" and machine(None).has("f16c"))


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
    wider = [r for r in ("ymm", "zmm") if REGISTERS[tier] < r]
    assert not any(f"%{r}" in asm for r in wider)


def test_a_tier_that_the_machine_has_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.targets.cpu.machine.host_level", lambda: "avx2")
    machine.cache_clear()
    with pytest.raises(TilewrightError, match="TILEWRIGHT_CPU=avx512: this machine executes avx2"):
        machine(None, "avx512")
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
