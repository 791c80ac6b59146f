"""Long products of few tiles are sums over parts of k: the same bits whoever computes which part, and right ones."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.arrays import error
from tests.targets.cpu.test_thin import RUNNABLE
from tilewright import ops
from tilewright.runtime.arrays import describe
from tilewright.targets.cpu import division
from tilewright.targets.cpu.division import parts_of, tasks_of

KINDS = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "i8": np.int8}
THREADS = (1, 2, 3, 7)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are so short that small arrays have several, whatever a machine multiplies per clock."""
    monkeypatch.setattr(division, "COST", 1e9)


def draw(rng: np.random.Generator, kind: str, *shape: int) -> np.ndarray:
    if kind == "i8":
        return rng.integers(-127, 128, shape).astype(np.int8)
    return rng.standard_normal(shape).astype(KINDS[kind])


def parts(kernel: Any, *args: Any, **constants: Any) -> int:
    """Parts of k of a launch; 0 where the kernel is not divided."""
    told = kernel.compile(*args, **constants).executable._division
    return (
        0
        if told is None
        else told.parts([describe(a, "") for a in args if isinstance(a, np.ndarray)])[0]
    )


def runs(kernel: Any, grid: Sequence[int], args: Sequence[Any], out: np.ndarray, **more: Any):
    """What a kernel stores on several numbers of threads, over garbage: the same bits."""
    found: list[np.ndarray] = []
    for threads in THREADS:
        c = np.full_like(out, 77 if out.dtype.kind == "i" else np.nan)
        kernel.options(target="cpu", num_threads=threads)[tuple(grid)](*args, c, **more)
        found.append(c)
    assert len({c.tobytes() for c in found}) == 1
    return found[0]


@tw.kernel
def product(A, B, C, ACC: tw.constexpr, BM: tw.constexpr, BN: tw.constexpr, BK: tw.constexpr):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), ACC)
    for k in range(0, A.shape[1], BK):
        a, b = tw.init_tile(A, [m, k], (BM, BK)), tw.init_tile(B, [k, n], (BK, BN))
        acc = tw.tile_mma(tw.load_tile(a), tw.load_tile(b), acc)
    tw.store_tile(acc, tw.init_tile(C, [m, n], (BM, BN)))


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_on_any_number_of_threads(rng, level, kind):
    """Ragged m, n and k, steps that are no part of a block, tiles in the array and beyond it, one thin side or none."""
    acc = {"f64": tw.f64, "i8": tw.i32}.get(kind, tw.f32)
    for _ in range(3):
        m, n = (int(x) for x in rng.choice([4, 9, *rng.integers(17, 150, 2)], 2))
        k, bk = int(rng.integers(1100, 3600)), int(rng.choice([16, 32, 48]))
        a, b = draw(rng, kind, m, k), draw(rng, kind, k, n)
        bm, bn = (int(x) for x in rng.choice([32, 96], 2))
        sizes = {"ACC": acc, "BM": bm, "BN": bn, "BK": bk}
        run, c = product.options(machine=level), np.empty((m, n), acc.numpy)
        assert parts(run, a, b, c, **sizes) > 1
        c = runs(run, (-(-m // bm), -(-n // bn)), (a, b), c, **sizes)
        want = a.astype(np.float64) @ b.astype(np.float64)
        assert error(c, want) <= (0 if kind == "i8" else 1e-14 if kind == "f64" else 1e-6)


@tw.kernel
def over(A, B, S, C, LO, K, BK: tw.constexpr):
    """(A + S) B over k from LO to K, whatever the arrays have; S is added behind A's end too."""
    m, n = tw.program_id(0) * 32, tw.program_id(1) * 32
    acc = tw.zeros((32, 32), tw.f32)
    s = tw.broadcast(tw.load_tile(tw.init_tile(S, [m, 0], (32, 1))), 1, BK)
    for i in range(tw.cdiv(K - LO, BK)):
        k = LO + i * BK
        a, b = tw.init_tile(A, [m, k], (32, BK)), tw.init_tile(B, [k, n], (BK, 32))
        acc = tw.tile_mma(tw.load_tile(a) + s, tw.load_tile(b), acc)
    tw.store_tile(acc, tw.init_tile(C, [m, n], (32, 32)))


@pytest.mark.parametrize("end", ["before the array's", "behind the array's"])
def test_loops_that_end_elsewhere_than_the_array(rng, end):
    """The array's extent says how long parts are, the loop which k there are."""
    m, n, wide, low = 40, 50, int(rng.integers(1500, 1900)), int(rng.choice([0, 64]))
    deep, stop = wide + 700, wide - 500 if end == "before the array's" else wide + 600
    a, b, s = draw(rng, "f32", m, wide), draw(rng, "f32", deep, n), draw(rng, "f32", m, 1)
    c = np.empty((m, n), np.float32)
    assert parts(over.options(target="cpu"), a, b, s, c, low, stop, BK=32) > 1
    c = runs(over, (2, 2), (a, b, s), c, LO=low, K=stop, BK=32)
    ends = low + -(-(stop - low) // 32) * 32
    padded = np.zeros((m, deep))
    padded[:, :wide] = a
    assert error(c, (padded + s)[:, low:ends] @ b.astype(np.float64)[low:ends]) < 1e-6


@tw.kernel
def gated(A, S, B, G, D, C, BM: tw.constexpr, BN: tw.constexpr):
    """D + (A * S) B, gated by a second product of A, with a computed left operand; D is what the sums start with."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x, y = tw.load_tile(tw.init_tile(D, [m, n], (BM, BN))), tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], 32):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, 32))).to(tw.f32)
        s = tw.broadcast(tw.load_tile(tw.init_tile(S, [m, 0], (BM, 1))), 1, 32)
        x = tw.tile_mma(a * s, tw.load_tile(tw.init_tile(B, [k, n], (32, BN))), x)
        y = tw.tile_mma(a, tw.load_tile(tw.init_tile(G, [k, n], (32, BN))), y)
    tw.store_tile(x * tw.sigmoid(y / 32), tw.init_tile(C, [m, n], (BM, BN)))


def test_several_sums_with_initial_values_and_what_comes_behind(rng):
    m, n, k = 70, 40, 1500
    a, s = rng.integers(-9, 10, (m, k)).astype(np.int8), draw(rng, "f32", m, 1)
    b, g, d = (draw(rng, "f32", *shape) for shape in ((k, n), (k, n), (m, n)))
    args, tiles = (a, s, b, g, d), {"BM": 64, "BN": 32}
    c = np.empty((m, n), np.float32)
    assert parts(gated.options(target="cpu"), *args, c, **tiles) > 1
    c = runs(gated, (2, 2), args, c, **tiles)
    wide = [x.astype(np.float64) for x in args]
    gate = 1 / (1 + np.exp(-(wide[0] @ wide[3]) / 32))
    assert error(c, (wide[4] + (wide[0] * wide[1]) @ wide[2]) * gate) < 1e-6


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_operations_with_activation_bias_and_residual(rng, kind):
    """`ops.matmul`, whose tiles depend on the threads: parts do not."""
    m, n, k = (int(x) for x in rng.integers((20, 20, 2000), (200, 90, 4000)))
    a, b = draw(rng, kind, m, k), draw(rng, kind, n, k).T
    bias, residual = draw(rng, "f32", n), draw(rng, "f32", m, n)
    found: list[np.ndarray] = []
    for threads in THREADS:
        c = np.full((m, n), np.nan, np.float32)
        more = {"bias": bias, "activation": "relu", "residual": residual, "num_threads": threads}
        ops.matmul(a, b, out=c, **more)
        found.append(c)
    assert len({c.tobytes() for c in found}) == 1
    want = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + bias, 0) + residual
    assert error(found[0], want) < 1e-6


def test_launches_at_the_same_time_have_sums_of_their_own(rng):
    pairs = [(draw(rng, "f32", 90, 2000), draw(rng, "f32", 2000, 70)) for _ in range(2)]
    sizes = {"ACC": tw.f32, "BM": 32, "BN": 32, "BK": 32}
    run = product.options(target="cpu", num_threads=3)

    def work(pair: tuple[np.ndarray, np.ndarray]) -> set[bytes]:
        found: set[bytes] = set()
        for _ in range(20):
            c = np.full((90, 70), np.nan, np.float32)
            run[3, 3](*pair, c, **sizes)
            found.add(c.tobytes())
        return found

    with ThreadPoolExecutor(2) as threads:
        for pair, found in zip(pairs, threads.map(work, pairs), strict=True):
            assert len(found) == 1
            c = np.frombuffer(found.pop(), np.float32).reshape(90, 70)
            assert error(c, pair[0].astype(np.float64) @ pair[1]) < 1e-6


@tw.kernel
def counted(A, B, N, C):
    """Counts its programs before the product, which no second task may repeat."""
    tw.atomic_rmw("addi", tw.full((1, 1), 1, tw.i32), tw.init_tile(N, [0, 0], (1, 1)))
    acc = tw.zeros((32, 32), tw.f32)
    for k in range(0, A.shape[1], 32):
        a, b = tw.init_tile(A, [0, k], (32, 32)), tw.init_tile(B, [k, 0], (32, 32))
        acc = tw.tile_mma(tw.load_tile(a), tw.load_tile(b), acc)
    tw.store_tile(acc, tw.init_tile(C, [0, 0], (32, 32)))


def test_what_acts_before_its_product_is_not_divided(rng):
    a, b, c = draw(rng, "f32", 32, 2000), draw(rng, "f32", 2000, 32), np.empty((32, 32), np.float32)
    n = np.zeros((1, 1), np.int32)
    run = counted.options(target="cpu", num_threads=3)
    assert parts(run, a, b, n, c) == 0
    run[1](a, b, n, c)
    assert n[0, 0] == 1 and error(c, a.astype(np.float64) @ b) < 1e-6


def test_without_division_sums_are_those_of_one_part(rng):
    a, b, c = draw(rng, "f32", 32, 2000), draw(rng, "f32", 2000, 32), np.empty((32, 32), np.float32)
    sizes = {"ACC": tw.f32, "BM": 32, "BN": 32, "BK": 32}
    assert parts(product.options(target="cpu", disable="k-division"), a, b, c, **sizes) == 0


def test_parts_cover_k_and_every_task_has_some(rng):
    for _ in range(2000):
        batches, m, n, k = (int(2 ** rng.uniform(0, top)) for top in (4, 9, 9, 17))
        block = int(rng.choice([128, 256, 512, 1024]))
        count, blocks = parts_of(batches, m, n, k, int(rng.integers(1, 4096)), block)
        assert 1 <= count <= blocks and (blocks - 1) * block < k <= blocks * block
        programs, threads = (int(x) for x in rng.integers(1, 100, 2))
        tasks = tasks_of(count, programs, threads, rng.uniform(0, 1))
        each = -(-count // tasks)
        assert 1 <= tasks <= count and (tasks - 1) * each < count
