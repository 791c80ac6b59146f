"""How many passes over memory a kernel's ops make on the cpu."""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.dialects import arith

import tilewright as tw
from tests.acceptance.test_in_place import N, halves, softmax, swap, transpose
from tilewright.dialects.fused import FusedOp
from tilewright.dialects.text import parse_module


def fused(kernel: Any, *args: Any, **constexprs: Any) -> list[FusedOp]:
    stage = kernel.compile(*args, **constexprs, target="cpu").ir["stage"]
    return [op for op in parse_module(stage).walk() if isinstance(op, FusedOp)]


def fused_ops(kernel: Any, *args: Any, **constexprs: Any) -> int:
    return len(fused(kernel, *args, **constexprs))


def test_what_is_in_place_takes_one_pass() -> None:
    """No copy is made where each element is overwritten by its own row, or by none of what is read."""
    x = tw.spec((N, 2 * N), tw.f32)
    assert fused_ops(softmax, x, N=N) == 1
    assert fused_ops(halves, x, N=N) == 1
    assert fused_ops(swap, x, x, N=N) == 1
    assert fused_ops(transpose, x, N=N) == 2


@tw.kernel
def add_row(X, R, Y, BM: tw.constexpr, BN: tw.constexpr):  # pyright: ignore
    """Y = X + R, R one row for all rows."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    row = tw.load_tile(tw.init_tile(R, [0, n], (1, BN))).to(tw.f32)
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN))).to(tw.f32)
    tw.store_tile((x + row).to(Y.dtype), tw.init_tile(Y, [m, n], (BM, BN)))


def test_a_short_row_that_many_rows_need_is_converted_once(rng: np.random.Generator) -> None:
    for dtype, bm, bn, passes in (
        (tw.bf16, 8, 80, 2), (tw.bf16, 4, 80, 1), (tw.bf16, 8, 4096, 1), (tw.f32, 8, 80, 1)
    ):  # fmt: skip
        x, r = (rng.normal(size=(n, 130)).astype(dtype.numpy) for n in (37, 1))
        y = np.full_like(x, np.nan)
        assert fused_ops(add_row, x, r, y, BM=bm, BN=bn) == passes
        add_row.options(target="cpu")[tw.cdiv(37, bm), tw.cdiv(130, bn)](x, r, y, BM=bm, BN=bn)
        wide = x.astype(np.float64) + r.astype(np.float64)
        error = np.linalg.norm(y.astype(np.float64) - wide) / np.linalg.norm(wide)
        assert error <= (1e-7 if dtype == tw.f32 else 3e-3)


@tw.kernel
def scaled(X, R, Y, BM: tw.constexpr, BN: tw.constexpr):  # pyright: ignore
    """Y = X / sum(X) R: rows are read before the row that they share."""
    m = tw.program_id(0) * BM
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, BN))).to(tw.f32)
    x = x / tw.sum(x, 1)
    row = tw.load_tile(tw.init_tile(R, [0, 0], (1, BN))).to(tw.f32)
    tw.store_tile((x * row).to(Y.dtype), tw.init_tile(Y, [m, 0], (BM, BN)))


def test_a_shared_row_comes_before_rows_that_would_wait_for_it(rng: np.random.Generator) -> None:
    x, r = (rng.uniform(1, 2, (n, 100)).astype(tw.bf16.numpy) for n in (32, 1))
    shared, rows = fused(scaled, x, r, np.empty_like(x), BM=32, BN=128)
    assert len(shared.results) == 1
    assert not rows.results


@tw.kernel
def windowed(X, Y, BM: tw.constexpr, BN: tw.constexpr):  # pyright: ignore
    """Softmax of what each row sees, columns to its left; the mask is asked for before a sum and behind it."""
    m = tw.program_id(0) * BM
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, BN)))
    row = m + tw.arange(0, BM, axis=0, shape=(BM, BN))
    column = tw.arange(0, BN, axis=1, shape=(BM, BN))
    seen = (column <= row) & (column > row - 9)
    p = tw.where(seen, tw.exp(x - tw.max(tw.where(seen, x, -1e30), 1)), 0.0)
    tw.store_tile(p / tw.sum(p, 1), tw.init_tile(Y, [m, 0], (BM, BN)))


def test_a_mask_of_positions_is_made_once(rng: np.random.Generator) -> None:
    """Unless it is one of accesses of memory."""
    x = rng.standard_normal((37, 40)).astype(np.float32)
    y = np.full_like(x, np.nan)
    made = [op for each in fused(windowed, x, y, BM=8, BN=48) for op in each.walk()]
    assert sum(isinstance(op, arith.CmpiOp) for op in made) == 2
    windowed.options(target="cpu")[5](x, y, BM=8, BN=48)
    row, column = np.arange(37)[:, None], np.arange(40)
    p = np.where((column <= row) & (column > row - 9), np.exp(x.astype(np.float64)), 0)
    want = p / p.sum(1, keepdims=True)
    assert np.linalg.norm(y - want) <= 1e-6 * np.linalg.norm(want)
