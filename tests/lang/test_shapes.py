"""Other shapes of values, what is true of elements, and functions as methods: on two targets, as numpy has them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import tilewright as tw
from tests.arrays import poison
from tests.lang.reference import refused, run, written

SHAPES = [
    *((1, 40, 5, 8), (8, 5, 5, 8), (40, 1, 1, 40), (16, 16, 256, 1), (6, 10, 3, 20)),
    *((7, 11, 11, 7), (64, 6, 128, 3), (32, 32, 8, 128), (13, 1, 1, 13)),
]


@tw.kernel
def folded(
    X, Y, M: tw.constexpr, N: tw.constexpr, P: tw.constexpr, Q: tw.constexpr
):  # of what is computed, and computed with
    x = tw.load_tile(tw.init_tile(X, [0, 0], (M, N)))
    y = tw.reshape(x + x, P, Q)
    tw.store_tile(y - tw.max(y, 1), tw.init_tile(Y, [0, 0], (P, Q)))


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("dtype", ["f4", "f2", "u1", "i8"])
@pytest.mark.parametrize("m, n, p, q", SHAPES)
def test_values_are_reshaped_row_by_row(rng, target, dtype, m, n, p, q):
    x = rng.integers(0, 100, (m, n)).astype(dtype)
    y = poison(p, q, dtype=x.dtype)
    folded.options(target=target)[1](x, y, M=m, N=n, P=p, Q=q)
    twice = (x + x).reshape(p, q)
    np.testing.assert_array_equal(y, twice - twice.max(1, keepdims=True))


@tw.kernel
def picked(X, Y):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (4, 8)))
    y = x[0] + 2 * x[-1, :] + x[:, 3] * x[:, -8] + x[2, 5] + x[1:3, -1].sum()
    y = y if x[0, 0] > 0 else -y
    tw.store_tile(y, tw.init_tile(Y, [0, 0], (4, 8)))


def test_rows_and_columns_by_number(rng):
    x, y = rng.integers(-9, 9, (4, 8)).astype(np.int32), poison(4, 8, dtype=np.int32)
    columns = x[:, 3:4] * x[:, :1]
    for target in ("reference", "cpu"):
        picked.options(target=target)[1](x, y)
        right = x[0] + 2 * x[3] + columns + x[2, 5] + x[1:3, 7].sum()
        np.testing.assert_array_equal(y, right if x[0, 0] > 0 else -right)


@tw.kernel
def groups(X, G, B, Y, N: tw.constexpr, GROUPS: tw.constexpr):
    """Group norm of one sample: a group's channels lie side by side."""
    x = tw.load_tile(tw.init_tile(X, [tw.program_id(0), 0], (1, N))).reshape((GROUPS, -1))
    d = x - x.sum(1) / x.shape[1]
    y = (d * tw.rsqrt((d * d).sum(1) / x.shape[1] + 1e-5)).reshape(-1)
    g, b = tw.load_tile(tw.init_tile(G, [0], N)), tw.load_tile(tw.init_tile(B, [0], N))
    tw.store_tile(y * g + b, tw.init_tile(Y, [tw.program_id(0), 0], (1, N)))


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_groups_of_columns(rng, target):
    x = rng.standard_normal((3, 60)).astype(np.float32)
    g, b = (rng.standard_normal(60).astype(np.float32) for _ in range(2))
    y = poison(3, 60)
    groups.options(target=target)[3](x, g, b, y, N=60, GROUPS=5)
    w = x.astype(np.float64).reshape(3, 5, 12)
    w = ((w - w.mean(2, keepdims=True)) / np.sqrt(w.var(2, keepdims=True) + 1e-5)).reshape(3, 60)
    exact = w * g + b
    assert np.linalg.norm(y - exact) < 1e-6 * np.linalg.norm(exact)


@tw.kernel
def told(X, ANY, ALL, COUNT, RUNNING, ONE, M: tw.constexpr, N: tw.constexpr, AXIS: tw.constexpr):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (M, N)))
    mask, shape = x > 0, (M if AXIS == 1 else 1, N if AXIS == 0 else 1)
    tw.store_tile(tw.any(mask, AXIS), tw.init_tile(ANY, [0, 0], shape))
    tw.store_tile(x.all(AXIS), tw.init_tile(ALL, [0, 0], shape))
    tw.store_tile(tw.sum(mask, AXIS), tw.init_tile(COUNT, [0, 0], shape))
    tw.store_tile(mask.cumsum(axis=1), tw.init_tile(RUNNING, [0, 0], (M, N)))
    ONE[0], ONE[1] = tw.argmax(x).item(), tw.argmin(x, None).item()


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("dtype", ["f4", "i2", "u1"])
def test_what_is_true_of_elements(rng, target, dtype, axis):
    m, n = (int(v) for v in rng.integers(1, 40, 2))
    x = rng.integers(0 if dtype == "u1" else -1, 2, (m, n)).astype(dtype)
    wanted = [
        f(v, axis=axis, keepdims=True)
        for f, v in ((np.any, x > 0), (np.all, x != 0), (np.sum, x > 0))
    ]
    wanted += [(x > 0).cumsum(1), np.array([x.argmax(), x.argmin()])]
    found = [poison(*w.shape, dtype=bool if w.dtype == bool else np.int32) for w in wanted]
    told.options(target=target)[1](x, *found, M=m, N=n, AXIS=axis)
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(f, w)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "xe-pvc"])
@pytest.mark.parametrize("n", [16, 64])
def test_masks_compile(target, n):
    """On NVIDIA GPUs masks that other threads reduce were read as matrices, and are bytes in memory."""
    given = [tw.spec((n, n), tw.f32), *(tw.spec((1, n), tw.i1) for _ in range(2))]
    counts = [tw.spec((1, n), tw.i32), tw.spec((n, n), tw.i32), tw.spec((2,), tw.i32)]
    told.options(target=target).compile(*given, *counts, M=n, N=n, AXIS=0)


rows = partial(tw.sum, axis=1)


@tw.kernel
def of_several(X, Y):
    a, b, c = X[0], X[1], X[2]
    Y[0], Y[1] = 0, 0
    if any((a > 0, b > 0, c > 0)):
        Y[0] = 1
    if all([a > 0, b > 0, c > 0]):
        Y[1] = 1
    Y[2] = rows(tw.load_tile(tw.init_tile(X, [0], 3))).item()
    Y[3] = 1 if any(n > 1 for n in (1, 2)) and not all((True, 0)) else 0


def test_scalars_of_a_sequence_and_functions_with_some_arguments(rng):
    for _ in range(8):
        x, y = rng.integers(-1, 2, 3).astype(np.int32), poison(4, dtype=np.int32)
        run(of_several, 1, x, y)
        np.testing.assert_array_equal(y, [(x > 0).any(), (x > 0).all(), x.sum(), 1])


@pytest.mark.parametrize("code, words, caret", [
    ("tw.reshape(x, (3, 8))", "4x8 value of f32 does not reshape to (3, 8): it has 32 elements", "(3, 8)"),
    ("x.reshape((-1, 7))", "does not reshape to (4, 7)", "(-1, 7)"),
    ("x.reshape((-1, -1))", "extents of a tile are at least 1", "(-1, -1)"),
    ("x.reshape((2, 2, 8))", "tw.reshape folds others", "(2, 2, 8)"),
    ("x.reshape((tw.program_id(0), 4))", "make the extent a tw.constexpr", "(tw.program_id(0), 4)"),
    ("x.reshape(2, 2, 8)", "tw.reshape folds others", "2"),
    ("x.reshape(2, 15)", "does not reshape to (2, 15)", "2"),
    ("x.reshape(-1, tw.program_id(0))", "shape contains run-time index scalar", "-1"),
    ("x[4]", "4 is none of 4 rows or columns", "x[4]"),
    ("x[:, -9]", "-9 is none of 8 rows or columns", "x[:, -9]"),
    ("x[0, None]", "has no subscripts", "x[0, None]"),
    ("x[True]", "has no subscripts", "x[True]"),
    ("x[:, ::-1]", "X[rows, n - 1 - tw.arange(n)]", "x[:, ::-1]"),
    ("x.std(1)", "use tw.sqrt(tw.sum((x - m) ** 2, 1)", "x.std"),
    ("tw.arange(8, dtype=tw.f32)", "by x.to(dtype)", "tw.arange(8, dtype=tw.f32)"),
    ("x.sum(3)", "axis is 0 or 1, not 3", "3"),
    ("x.sum(keepdims=True)", "leave keepdims out", "x.sum(keepdims=True)"),
    ("x.mean(1)", "use tw.sum(x, 1) / x.shape[1]", "x.mean"),
    ("x.ssa", "it has dtype, shape, ndim, to, item", "x.ssa"),
    ("any(x)", "use tw.any(x, axis=None)", "any(x)"),
    ("all((x, x))", "tw.any(mask).item()", "all((x, x))"),
    ("any((1, 2), x)", "builtins.any is called", "any((1, 2), x)"),
])  # fmt: skip
def test_what_is_refused(code, words, caret):
    kernel = written("X", f"x = tw.load_tile(tw.init_tile(X, [0, 0], (4, 8)))\ny = {code}")
    text, place = refused(kernel, np.zeros((4, 8), np.float32))
    assert words in text
    assert place == caret
