"""AMX code computes the right thing: executed with emulated tiles, on any machine that has the vectors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.acceptance import kernels
from tests.acceptance.kernels import gemm_init_in_loop as product
from tests.arrays import poison
from tests.fences import fenced
from tests.targets.cpu.amx_emulation import NEEDS_AVX512, WITH_AVX512, emulate_tiles
from tests.targets.cpu.test_lying import close, inside, looped, random
from tilewright.targets.cpu.machine import host_level

pytestmark = pytest.mark.skipif(host_level() not in WITH_AVX512, reason=NEEDS_AVX512)


@pytest.fixture(autouse=True)
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    emulate_tiles(monkeypatch)


SIZES = [(64, 64, 64), (70, 33, 100), (1, 1, 1), (40, 100, 1100)]
# Panels of f16 and u8 are those of bf16 and i8; what differs is the product.
DRAWN = [(dtype, size) for size in SIZES for dtype in ("bf16", "i8")]
DRAWN += [("f16", SIZES[1]), ("u8", SIZES[1])]


@pytest.mark.parametrize(("dtype", "size"), DRAWN, ids=str)
def test_products(rng: np.random.Generator, dtype: str, size: tuple[int, int, int]) -> None:
    m, n, k = size
    element = getattr(tw, dtype).numpy
    if dtype in ("i8", "u8"):
        info = np.iinfo(element)
        a, b = (rng.integers(info.min, info.max + 1, s).astype(element) for s in ((m, k), (k, n)))
        c, acc = np.full((m, n), 7, np.int32), tw.i32
    else:
        a, b = (rng.standard_normal(s).astype(element) for s in ((m, k), (k, n)))
        c, acc = np.full((m, n), np.nan, np.float32), tw.f32
    for operands in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
        c[:] = 77
        kernel = product.compile(*operands, c, BM=64, BN=64, BK=64, ACC=acc, target="cpu")
        assert "x86.amx.tdp" in kernel.ir["mach"]
        product[tw.cdiv(m, 64), tw.cdiv(n, 64)](*operands, c, BM=64, BN=64, BK=64, ACC=acc)
        if acc is tw.i32:
            np.testing.assert_array_equal(c, a.astype(np.int64) @ b.astype(np.int64))
        else:
            want = a.astype(np.float64) @ b.astype(np.float64)
            assert np.linalg.norm(c - want) <= 1e-5 * np.linalg.norm(want)


def test_computed_operands_and_carried_accumulators(rng: np.random.Generator) -> None:
    q, k, v = (rng.standard_normal((2, 70, 64)).astype(ml_dtypes.bfloat16) for _ in range(3))
    o = np.full(q.shape, np.nan).astype(ml_dtypes.bfloat16)
    p = o.copy()
    kernels.window_attention[3, 2](q, k, v, o, 0.125, W=40, CAP=20.0)
    kernels.window_attention.options(target="reference")[3, 2](q, k, v, p, 0.125, W=40, CAP=20.0)
    got, want = o.astype(np.float64), p.astype(np.float64)
    assert np.linalg.norm(got - want) <= 1e-2 * np.linalg.norm(want)


def test_two_accumulators_over_one_operand(rng: np.random.Generator) -> None:
    x, w, v = (
        rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((70, 90), (90, 80), (90, 80))
    )
    y = np.full((70, 80), np.nan, np.float32)
    kernels.gate_up[2, 2](x, w, v, y)
    x, w, v = (z.astype(np.float64) for z in (x, w, v))
    g = x @ w
    want = g / (1 + np.exp(-g)) * (x @ v)
    assert np.linalg.norm(y - want) <= 1e-5 * np.linalg.norm(want)


@tw.kernel
def few_rows(
    A, B, C, K, ACC: tw.constexpr = tw.f32, BM: tw.constexpr = 32, BN: tw.constexpr = 64,
    BK: tw.constexpr = 32,
):  # fmt: skip
    """C += A B over K k, which may be less or more than the arrays have."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    c = tw.init_tile(C, [m, n], (BM, BN))
    acc = tw.load_tile(c)
    for k in range(0, K, BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))), acc)
    tw.store_tile(acc, c)


@pytest.mark.parametrize(("left", "right"), [("bf16", "bf16"), ("f16", "f16"), ("i8", "u8")])
def test_few_rows_change_places_with_many_columns(rng, left: str, right: str) -> None:
    """B, whose rows lie along k, is read where it lies, at edges of its array and of tiles; bytes keep their signs."""
    whole = left == "i8"
    group = 64 if whole else 32
    for rows, k, bm, bk in ((32, 512, 32, 32), (20, 333, 32, 64), (9, 100, 16, 16)):
        n = int(rng.integers(65, 140))
        if whole:
            a, b = (
                rng.integers(np.iinfo(d).min, np.iinfo(d).max + 1, s).astype(d)
                for d, s in ((np.int8, (rows, k)), (np.uint8, (n, k)))
            )
            c, acc = rng.integers(-99, 99, (rows, n)).astype(np.int32), tw.i32
        else:
            element = getattr(tw, left).numpy
            a, b = (rng.standard_normal(s).astype(element) for s in ((rows, k), (n, k)))
            c, acc = rng.standard_normal((rows, n)).astype(np.float32), tw.f32
        exact = np.int64 if whole else np.float64
        for depth in (k, k - 3):  # the arrays may go on; whole steps of the loop are taken
            taken = min(k, -(-depth // bk) * bk)
            want = c.astype(exact) + a[:, :taken].astype(exact) @ b.T[:taken].astype(exact)
            sizes = {"BM": bm, "BN": 64, "BK": bk, "ACC": acc}
            stage = few_rows.compile(a, b.T, c, depth, **sizes, target="cpu").ir["stage"]
            assert f"-> !stage.panels<32x{group}x" in stage.partition("(%B,")[2]
            found = c.copy()
            few_rows[1, tw.cdiv(n, 64)](a, b.T, found, depth, **sizes)
            if whole:
                np.testing.assert_array_equal(found, want)
            else:
                assert np.linalg.norm(found - want) <= 1e-5 * np.linalg.norm(want)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_few_rows_beside_rows_of_b_are_multiplied_by_vectors(rng, dtype: str, rows: int) -> None:
    """The tiles' own instruction is none of vectors: what is left where it lies asks for another one."""
    element = getattr(tw, dtype).numpy
    a, b = (rng.standard_normal(s).astype(element) for s in ((rows, 200), (200, 130)))
    c = rng.standard_normal((rows, 130)).astype(np.float32)
    want = c + a.astype(np.float64) @ b.astype(np.float64)
    sizes = {"BM": rows, "BN": 64, "BK": 64}
    assert "x86.amx.tdp" not in few_rows.compile(a, b, c, 200, **sizes, target="cpu").ir["mach"]
    few_rows[1, 3](a, b, c, 200, **sizes)
    assert np.linalg.norm(c - want) <= 1e-5 * np.linalg.norm(want)


SMALL = [(d, s) for d in ("bf16", "i8", "f16") for s in [(32, 32, 32), (64, 40, 64), (24, 20, 24)]]


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        *SMALL,
        ("bf16", (16, 16, 65)),
        ("i8", (40, 64, 7)),
        ("bf16", (24, 40, 200)),
        ("i8", (16, 16, 300)),
    ],
)
def test_small_products_are_multiplied_where_they_lie(rng, dtype: str, size: tuple[int, int, int]):
    """How many k there are, the arrays say: whole tiles of them, less, and so many that panels pay."""
    m, n, k = size
    element, sums = getattr(tw, dtype).numpy, np.int32 if dtype == "i8" else np.float32
    text = ""
    for less in (0, 3):
        a = inside(random(rng, 3, m - less, k, dtype=element))
        b, c = (
            inside(random(rng, 3, k, n - less, dtype=element)),
            poison(3, m - less, n - less, dtype=sums),
        )
        whole = looped.options(disable=("split-functions",), target="cpu")
        text = whole.compile(a, b, c, M=m, N=n, BK=32).ir["mach"]
        looped[3](a, b, c, M=m, N=n, BK=32)
        close(c, a.astype(np.float64) @ b.astype(np.float64))
    program = text[text.index("func.func @tw_workgroup") :]
    assert "x86.amx.tdp" in program[: program.index("call @tw_pack")]


@pytest.mark.parametrize(("dtype", "k"), [("bf16", 32), ("i8", 64)])
def test_rows_of_a_behind_a_small_product_are_not_read(rng, dtype: str, k: int):
    """Whole tiles of k, counted at run time, beside rows that are no whole tile: nobody may touch what lies behind."""
    element, sums = getattr(tw, dtype).numpy, np.int32 if dtype == "i8" else np.float32
    a, b = (fenced(random(rng, 2, *s, dtype=element)) for s in ((24, k), (k, 20)))
    c = fenced(poison(2, 24, 20, dtype=sums))
    looped[2](a, b, c, M=24, N=20, BK=32)
    close(c, a.astype(np.float64) @ b.astype(np.float64))
