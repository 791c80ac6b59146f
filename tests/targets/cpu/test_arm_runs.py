"""Programs compiled for Arm, run in an emulator on the thread pool, against numpy and the reference executor."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.acceptance import kernels
from tests.acceptance.kernels import gemm_init_in_loop as product
from tests.targets.cpu.qemu import launches_in_qemu as launches_in_qemu
from tests.targets.cpu.qemu import needs_qemu
from tilewright import knobs, ops

pytestmark = [
    needs_qemu,
    pytest.mark.optional,
    pytest.mark.whole,
    pytest.mark.usefixtures("launches_in_qemu"),
]

BF16 = np.dtype(ml_dtypes.bfloat16)
LEVELS = ["armv8", "neon", "sve2"]


def near(got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    got, want = got.astype(np.float64), want.astype(np.float64)
    assert np.linalg.norm(got - want) <= tolerance * np.linalg.norm(want)


def drawn(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)


PRODUCTS = [(t, t) for t in (np.float32, np.float64, np.float16, BF16, np.int8, np.uint8)]
PRODUCTS += [(np.uint8, np.int8), (np.int8, np.uint8), (np.int16, np.int16)]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("left", "right"), PRODUCTS, ids=str)
def test_products(rng: np.random.Generator, left: Any, right: Any, level: str) -> None:
    """On sizes that no block divides; operands in rows and in columns."""
    a, b = drawn(rng, left, (70, 101)), drawn(rng, right, (101, 37))
    whole = np.dtype(left).kind in "iu"
    acc = tw.i32 if whole else tw.f64 if left == np.float64 else tw.f32
    kernel = product.options(machine=level)
    wide = np.int64 if whole else np.float64
    want = a.astype(wide) @ b.astype(wide)
    for x, y in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
        c = drawn(rng, acc.numpy, (70, 37))
        kernel[2, 1](x, y, c, BM=64, BN=64, BK=32, ACC=acc)
        if whole:
            np.testing.assert_array_equal(c, want.astype(np.int32))
        else:
            near(c, want, 1e-12 if left == np.float64 else 1e-5)


@tw.kernel
def functions(X, Y, BN: tw.constexpr = 100):
    """Masked edges: rows of an odd length, and what is left out keeps its value."""
    n = tw.program_id(0) * BN
    x = tw.load_tile(tw.init_tile(X, [0, n], (4, BN))).to(tw.f32)
    y = (
        tw.exp(-x * x)
        + tw.tanh(x) * tw.erf(x)
        + tw.log(x * x + 1.0)
        + tw.sin(x) / (2.0 + tw.cos(x))
    )
    y = tw.where(x > 1.5, tw.sqrt(x), y) + tw.maximum(x, 0.25)
    keep = tw.arange(0, BN, axis=1, shape=(4, BN)) + n < X.shape[1] - 3
    tw.store_tile(y.to(Y.dtype), tw.init_tile(Y, [0, n], (4, BN)), mask=keep)


def _functions(rng: np.random.Generator, dtype: Any) -> list[Any]:
    x = (3 * rng.standard_normal((4, 333))).astype(dtype)
    return [x, drawn(rng, dtype, x.shape)]


def _attention(rng: np.random.Generator, dtype: Any) -> list[Any]:
    return [*(drawn(rng, dtype, (2, 70, 64)) for _ in range(4)), 0.125]


def _matrices(rng: np.random.Generator, dtype: Any, count: int = 1) -> list[Any]:
    a, b = drawn(rng, dtype, (70, 90)), [drawn(rng, dtype, (90, 50)) for _ in range(count)]
    return [a, *b, drawn(rng, np.float32, (70, 50))]


def _summed(rng: np.random.Generator, dtype: Any) -> list[Any]:
    a, b, c = _matrices(rng, dtype)
    bias, sums = drawn(rng, np.float32, (50,)), drawn(rng, np.float32, (70, 1))
    return [a, b, bias, c, sums]


def _scaled(rng: np.random.Generator, dtype: Any) -> list[Any]:
    _, b, c = _matrices(rng, dtype)
    return [drawn(rng, np.int8, (70, 90)), drawn(rng, np.float32, (70, 1)), b, c]


def _gathered(rng: np.random.Generator, dtype: Any) -> list[Any]:
    rows = rng.integers(0, 40, 25).astype(np.int32)
    return [drawn(rng, dtype, (40, 100)), rows, drawn(rng, dtype, (25, 100))]


def _columns(rng: np.random.Generator, dtype: Any) -> list[Any]:
    return [drawn(rng, dtype, (70, 150)), *(drawn(rng, np.float32, (150,)) for _ in range(2))]


def _turned(rng: np.random.Generator, dtype: Any) -> list[Any]:
    return [drawn(rng, dtype, (90, 50)), drawn(rng, dtype, (50, 90))]


F32, F16 = np.float32, np.float16
PROGRAMS: list[tuple[Any, tuple[int, ...], Any, Any, dict[str, Any]]] = [
    (functions, (4,), _functions, F32, {}),
    (functions, (4,), _functions, F16, {}),
    (functions, (4,), _functions, BF16, {}),
    (kernels.window_attention, (3, 2), _attention, BF16, {"W": 40, "CAP": 20.0}),
    (kernels.window_attention, (3, 2), _attention, F16, {"W": 40, "CAP": 20.0}),
    (kernels.gate_up, (2, 1), lambda rng, t: _matrices(rng, t, 2), F32, {}),
    (kernels.split_k, (2, 1, 3), _matrices, F32, {"S": 3}),
    (kernels.bias_gelu_rowsum, (2, 1), _summed, F32, {}),
    (kernels.dequant_gemm, (2, 1), _scaled, BF16, {}),
    (kernels.gather_rows, (25, 2), _gathered, F32, {}),
    (kernels.gather_rows, (25, 2), _gathered, np.int8, {}),
    (kernels.column_stats, (3,), _columns, BF16, {}),
    (kernels.transpose_through_slm, (3, 2), _turned, F16, {}),
]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: f"{p[0].__name__}-{np.dtype(p[3])}")
def test_programs_do_what_the_reference_does(
    rng: np.random.Generator, program: Any, level: str
) -> None:
    kernel, grid, arguments, dtype, constexprs = program
    args = arguments(rng, dtype)
    wanted = [x.copy() if isinstance(x, np.ndarray) else x for x in args]
    kernel.options(target="reference")[grid](*wanted, **constexprs)
    kernel.options(machine=level)[grid](*args, **constexprs)
    for got, want in zip(args, wanted, strict=True):
        if not isinstance(got, np.ndarray):
            continue
        if got.dtype.kind in "iu":
            np.testing.assert_array_equal(got, want)
        else:
            near(got, want, {2: 1e-2, 4: 1e-5}[got.itemsize])


@pytest.mark.parametrize("tier", ["neon", "sve2"])
def test_ops_in_a_tier(rng: np.random.Generator, tier: str) -> None:
    x = drawn(rng, F32, (37, 333))
    weight, bias = drawn(rng, F32, (333,)), drawn(rng, F32, (333,))
    wide = x.astype(np.float64)
    with knobs.override(cpu=tier):
        shifted = np.exp(wide - wide.max(1, keepdims=True))
        near(ops.softmax(x), shifted / shifted.sum(1, keepdims=True), 1e-5)
        spread = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
        near(ops.layer_norm(x, weight, bias), spread * weight + bias, 1e-5)
        near(ops.matmul(x, x.T), wide @ wide.T, 1e-5)


@tw.kernel
def counted(X, H, B: tw.constexpr = 64):
    x = tw.load_tile(tw.init_tile(X, [tw.program_id(0) * B], (1, B)), padding=-1)
    tw.atomic_rmw("addi", 1, tw.init_tile(H, x))


@pytest.mark.parametrize("level", LEVELS)
def test_a_histogram(rng: np.random.Generator, level: str) -> None:
    """Threads count in memory of their own first."""
    x, h = rng.integers(-3, 60, 1000).astype(np.int32), drawn(rng, np.int32, (50,))
    want = h.copy()
    np.add.at(want, x[(x >= 0) & (x < 50)], 1)
    kernel = counted.options(machine=level)
    assert "tw_sums_end" in kernel.compile(x, h).asm["llvm"]
    kernel[16](x, h)
    np.testing.assert_array_equal(h, want)
