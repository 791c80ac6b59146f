"""Programs deeper than Python's stack compile; endless recursion is an error, not a crash."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.runtime.recursion import deeply


@tw.kernel
def chain(A: Any, O: Any, n: tw.constexpr):
    x = tw.load_tile(tw.init_tile(A, [0, 0], (4, 16)))
    for _ in tw.static_range(n):
        x = x * 0.5 + 1.0
    tw.store_tile(x, tw.init_tile(O, [0, 0], (4, 16)))


def test_a_long_chain_of_ops(rng: np.random.Generator) -> None:
    a = rng.standard_normal((4, 16)).astype(np.float32)
    out = np.full_like(a, np.nan)
    chain[1](a, out, n=600)
    want = a.copy()
    for _ in range(600):
        want = want * np.float32(0.5) + np.float32(1.0)
    np.testing.assert_allclose(out, want, rtol=1e-6)


def test_work_that_fits_runs_once_on_this_thread() -> None:
    calls: list[int] = []
    assert deeply(lambda: calls.append(1)) is None
    assert calls == [1]


def test_errors_of_deep_work_come_through() -> None:
    def dive(depth: int) -> int:
        if depth == 0:
            raise ValueError("at the bottom")
        return dive(depth - 1) + 1

    with pytest.raises(ValueError, match="at the bottom"):
        deeply(lambda: dive(20_000))


def test_endless_recursion_is_diagnosed() -> None:
    def fall(n: int) -> int:
        return fall(n + 1)

    with pytest.raises(tw.CompileError, match="too deep"):
        deeply(lambda: fall(0))
