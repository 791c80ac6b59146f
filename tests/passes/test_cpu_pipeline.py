"""Every pass of the cpu pipeline keeps the meaning: the module after each is executed by the reference executor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.acceptance import kernels
from tilewright import reference
from tilewright.dialects.text import parse_module, print_module
from tilewright.targets.base import CompileOptions
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.pipeline import run_pipeline


def f32(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def nan(*shape: int) -> Any:
    return np.full(shape, np.nan, np.float32)


def cases(rng: np.random.Generator) -> dict[str, tuple[Any, Any, list[Any], dict[str, Any]]]:
    """Name -> kernel, grid, arguments, constexprs. Two workgroups at least, and a ragged edge."""
    a, b = f32(rng, 40, 50), f32(rng, 50, 37)
    small = {"BM": 32, "BN": 32, "BK": 16}
    out: dict[str, tuple[Any, Any, list[Any], dict[str, Any]]] = {
        k.__name__: (k, (2, 2, 1), [a, b, nan(40, 37)], small) for k in kernels.GEMM_REWRITES
    }
    q, k, v = (f32(rng, 2, 50, 16) for _ in range(3))
    out["window"] = (
        kernels.window_attention,
        (2, 2, 1),
        [q, k, v, nan(2, 50, 16), 0.3],
        {"W": 20, "CAP": 10.0, "BN": 16, "D": 16},
    )
    out["gate_up"] = (
        kernels.gate_up,
        (2, 1, 1),
        [f32(rng, 70, 40), f32(rng, 40, 50), f32(rng, 40, 50), nan(70, 50)],
        {},
    )
    out["column_stats"] = (
        kernels.column_stats,
        (2, 1, 1),
        [f32(rng, 50, 90), nan(90), nan(90)],
        {},
    )
    out["split_k"] = (
        kernels.split_k,
        (1, 1, 3),
        [f32(rng, 40, 100), f32(rng, 100, 50), np.zeros((40, 50), np.float32)],
        {"S": 3},
    )
    index = rng.integers(0, 20, 9).astype(np.int32)
    out["gather_rows"] = (kernels.gather_rows, (9, 2, 1), [f32(rng, 20, 90), index, nan(9, 90)], {})
    out["scores"] = (
        kernels.scores,
        (2, 2, 1),
        [f32(rng, 40, 24), f32(rng, 50, 24), nan(40, 50)],
        {"BM": 32, "BN": 32, "D": 24},
    )
    out["slm"] = (kernels.transpose_through_slm, (2, 2, 1), [f32(rng, 40, 50), nan(50, 40)], {})
    return out


NAMES = list(cases(np.random.default_rng(0)))


@pytest.mark.parametrize("name", NAMES)
def test_no_pass_changes_a_result(rng: np.random.Generator, name: str) -> None:
    kernel, grid, args, constexprs = cases(rng)[name]
    compiled = kernel.compile(*args, **constexprs, target="cpu")
    module = parse_module(compiled.ir["xetile"])
    seen: list[str] = []

    def execute(stage: str, current: Any) -> list[Any]:
        copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        text = print_module(current)
        parsed = parse_module(text)
        parsed.verify()
        reference.run(parsed, grid, copies)
        seen.append(stage)
        return copies

    want = execute("xetile", module)

    def observe(stage: str, current: Any) -> None:
        if stage in (
            "cpu-to-mach",
            "alike-loops",
            "split-functions",
        ):  # functions of the last stage
            return
        for got, expected in zip(execute(stage, current), want, strict=True):
            if isinstance(got, np.ndarray):
                np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4, err_msg=stage)

    run_pipeline(module, machine(None), CompileOptions(), [], observe=observe)
    assert {"contraction", "packing", "row-fusion"} <= set(seen)
