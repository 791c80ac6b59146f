"""What programs add by atomics to arrays that nobody reads meanwhile, added up by each thread first."""

# Kernels are not typed Python.
# pyright: reportMissingParameterType=false
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.targets.cpu.test_thin import RUNNABLE

N = 3000


@tw.kernel
def combined(X, V, H, KIND: tw.constexpr, B: tw.constexpr = 64):
    """Puts together what belongs to each number; numbers outside of H, and values of 3, are dropped."""
    at = [tw.program_id(0) * B]
    x = tw.load_tile(tw.init_tile(X, at, (1, B)), padding=-1)
    v = tw.load_tile(tw.init_tile(V, at, (1, B)))
    tw.atomic_rmw(KIND, v, tw.init_tile(H, x), v != 3)


FLOATS = ["addf", "mulf", "maximumf", "minimumf", "maxnumf", "minnumf"]
INTEGERS = ["addi", "muli", "maxs", "mins", "maxu", "minu", "ori", "andi", "xori"]
DOES: dict[str, Any] = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "or": np.bitwise_or,
    "and": np.bitwise_and, "xor": np.bitwise_xor,
}  # fmt: skip


def expected(kind: str, x: Any, v: Any, h: Any) -> Any:
    """NumPy's result, of bits where they have no sign."""
    unsigned = kind in ("maxu", "minu")
    want, v = (a.view(f"u{a.itemsize}") if unsigned else a for a in (h.copy(), v))
    on = (x >= 0) & (x < len(h)) & (v != 3)
    does = next(f for name, f in DOES.items() if kind.startswith(name))
    does.at(want, x[on], v[on])
    return want.view(h.dtype)


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64"])
def test_every_kind_and_type(level: str, dtype: str, rng: np.random.Generator) -> None:
    element = getattr(tw, dtype).numpy
    x = rng.integers(-5, 60, N).astype(np.int32)
    for kind in INTEGERS if dtype.startswith("i") else FLOATS:
        if kind.startswith("mul"):
            v = rng.choice([-1, 1, 3], N).astype(element)
        else:
            v = rng.integers(-1, 4, N).astype(element)
        h = rng.integers(-3, 4, 50).astype(element)
        want = expected(kind, x, v, h)
        run = combined.options(target="cpu", machine=level, num_threads=2)
        run[tw.cdiv(N, 64)](x, v, h, KIND=kind)
        np.testing.assert_array_equal(h.astype(np.float64), want.astype(np.float64))


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("bins", [1, 50, 1100, 5000])
def test_any_number_of_threads_and_elements(
    threads: int, bins: int, rng: np.random.Generator
) -> None:
    """With 5000, and on five threads with 1100, programs add too little: they add to the array itself."""
    x = rng.integers(-5, bins + 10, N).astype(np.int32)
    v, h = (rng.integers(-9, 9, n).astype(np.int32) for n in (N, bins))
    want = expected("addi", x, v, h)
    combined.options(target="cpu", num_threads=threads)[tw.cdiv(N, 64)](x, v, h, KIND="addi")
    np.testing.assert_array_equal(h, want)


def test_what_nothing_is_added_to_keeps_its_bits() -> None:
    h = np.full(8, -0.0, np.float32)
    x, v = np.full(256, 2, np.int32), np.ones(256, np.float32)
    combined.options(target="cpu", num_threads=2)[4](x, v, h, KIND="addf")
    assert h[2] == 256
    assert np.signbit(np.delete(h, 2)).all()


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize("kind", ["maxnumf", "minnumf"])
def test_an_infinity_takes_the_place_of_a_nan(kind: str, dtype: str) -> None:
    """And a NaN that is put together with anything changes nothing."""
    nan, inf = np.nan, -np.inf if kind == "maxnumf" else np.inf
    h = np.array([nan, nan, 1, inf, -0.0, nan, nan, 5, nan], getattr(tw, dtype).numpy)
    x = np.tile(np.arange(8, dtype=np.int32), 64)
    v = np.tile([inf, nan, nan, nan, inf, 2, nan, inf], 64).astype(h.dtype)
    combined.options(target="cpu", num_threads=2)[8](x, v, h, KIND=kind)
    want = np.array([inf, nan, 1, inf, -0.0, 2, nan, 5, nan])
    np.testing.assert_array_equal(h.astype(np.float64), want)


def test_two_launches_add_to_one_array(rng: np.random.Generator) -> None:
    x, h = rng.integers(0, 40, N).astype(np.int32), np.zeros(40, np.int32)
    v = rng.integers(-9, 3, N).astype(np.int32)
    run = combined.options(target="cpu", num_threads=2)[tw.cdiv(N, 64)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: run(x, v, h, KIND="addi"), range(40)))
    np.testing.assert_array_equal(h, 40 * expected("addi", x, v, np.zeros_like(h)))


@tw.kernel
def column_sums(X, S, T, BM: tw.constexpr = 4, BN: tw.constexpr = 64):
    """Sums of columns, and of their squares; programs of some rows each."""
    m = tw.program_id(0) * BM
    for n in range(0, S.shape[0], BN):
        x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN)))
        tw.atomic_rmw("addf", tw.sum(x, 0), tw.init_tile(S, [n], (1, BN)))
        tw.atomic_rmw("addf", tw.sum(x * x, 0), tw.init_tile(T, [n], (1, BN)))


@pytest.mark.parametrize("level", RUNNABLE)
def test_neighbours(level: str, rng: np.random.Generator) -> None:
    """Arrays of any stride, of two lengths."""
    x = rng.integers(-4, 5, (1000, 200)).astype(np.float32)
    s, both = (rng.integers(-4, 5, 400).astype(np.float32) for _ in "st")
    t, between = both[::2], both[1::2].copy()
    s = s[:200]
    want = s + x.sum(0), t + (x * x).sum(0)
    column_sums.options(target="cpu", machine=level, num_threads=2)[250](x, s, t)
    np.testing.assert_array_equal(s, want[0])
    np.testing.assert_array_equal(t, want[1])
    np.testing.assert_array_equal(both[1::2], between)


@tw.kernel
def read_beside(X, V, H, Y, KIND: tw.constexpr = "addi", B: tw.constexpr = 64):
    """Adds to an array that it reads too."""
    at = [tw.program_id(0) * B]
    x = tw.load_tile(tw.init_tile(X, at, (1, B)), padding=-1)
    v = tw.load_tile(tw.init_tile(V, at, (1, B)))
    tw.atomic_rmw(KIND, v, tw.init_tile(H, x))
    tw.store_tile(tw.load_gather(tw.init_tile(H, x)), tw.init_tile(Y, at, (1, B)))


@tw.kernel
def two_kinds(X, V, H, B: tw.constexpr = 64):
    at = [tw.program_id(0) * B]
    x = tw.load_tile(tw.init_tile(X, at, (1, B)), padding=-1)
    v = tw.load_tile(tw.init_tile(V, at, (1, B)))
    tw.atomic_rmw("addi", v, tw.init_tile(H, x))
    tw.atomic_rmw("maxs", v, tw.init_tile(H, x))


def test_what_is_seen_meanwhile_is_added_at_once(rng: np.random.Generator) -> None:
    x = rng.permutation(64).astype(np.int32)
    v, h, y = np.arange(64, dtype=np.int32), np.zeros(64, np.int32), np.zeros(64, np.int32)
    read_beside.options(target="cpu")[1](x, v, h, y)
    np.testing.assert_array_equal(y, v)
    own = {"target": "cpu"}
    for code, is_private in (
        (combined.compile(x, v, h, KIND="addi", **own), True),
        (combined.compile(x, v, h, KIND="addi", disable="atomic-aggregation", **own), False),
        (read_beside.compile(x, v, h, y, **own), False),
        (two_kinds.compile(x, v, h, **own), False),
    ):
        assert ("tw_sums_end" in code.asm["llvm"]) == is_private
