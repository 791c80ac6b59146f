"""Elements of arrays, read as scalars and written by index."""

import re

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tilewright.diagnostics import CompileError


@tw.kernel
def picked(X, T, N, Y, BM: tw.constexpr = 8):
    """Row T[p, i] of X, for i below N[p], summed up; the number of rows beside it."""
    p = tw.program_id(0)
    n = N[p]
    total = tw.zeros((1, BM), tw.f32)
    for i in range(n):
        total = total + tw.load_tile(tw.init_tile(X, [T[p, i], 0], (1, BM)))
    tw.store_tile(total, tw.init_tile(Y, [p, 0], (1, BM)))
    Y[p, BM] = n.to(tw.f32) + T[p, 100].to(tw.f32)
    Y[p, BM + 100] = 1.0


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_elements_of_arrays(target):
    rng = fresh_rng()
    x = rng.standard_normal((20, 8)).astype(np.float32)
    t = rng.integers(0, 20, (3, 5)).astype(np.int32)
    n = np.array([0, 3, 5], np.int64)
    y = np.full((3, 9), np.nan, np.float32)
    picked.options(target=target)[3](x, t, n, y)
    for p in range(3):
        np.testing.assert_allclose(y[p, :8], x[t[p, : n[p]]].astype(float).sum(0), 1e-5, 1e-5)
    np.testing.assert_array_equal(y[:, 8], n)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "xe-pvc", "xe-dg2"])
def test_elements_of_arrays_compile(target):
    arrays = [tw.spec((20, 8), tw.f32), tw.spec((3, 5), tw.i32), tw.spec((3,), tw.i64)]
    picked.options(target=target).compile(*arrays, tw.spec((3, 9), tw.f32))


@tw.kernel
def converted(I, F, H, N):
    """A count that begins as a number of Python is i64 after it has met an i32; what is stored is the array's."""
    count = 0
    for i in range(I.shape[0]):
        if I[i] > 0:
            count += I[i]
        N[2 + i % 2] += i * I[i]
    N[0], N[1] = count, F[0] > 0.0
    H[0], H[1] = F[0], I[0]
    H[1] /= 2


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_what_is_assigned_is_converted(target):
    n, h = np.array([0, 0, 10, 20], np.int16), np.zeros(2, np.float16)
    i, f = np.array([3, -5, 70000], np.int32), np.array([0.1])
    converted.options(target=target)[1](i, f, h, n)
    small = np.int32(140010).astype(np.int16)
    assert n.tolist() == [np.int32(70003).astype(np.int16), 1, small, 20 - 5]
    assert h.tolist() == [np.float16(0.1), 1.5]


@tw.kernel
def moved(X, I, J, Y, Z, BM: tw.constexpr = 8, BN: tw.constexpr = 16):
    """A plane of X by rows and columns of indices, some outside; a diagonal of X."""
    i = tw.load_tile(tw.init_tile(I, [0], (1, BM)))
    j = tw.load_tile(tw.init_tile(J, [0], (1, BN)))
    rows, cols = tw.arange(0, BM), tw.arange(0, BN)
    Y[rows[:, None], cols] = X[1, i[:, None], j] * 2
    Z[rows] = X[rows % 2, rows, rows]
    Z[rows] += 1


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_elements_by_values_of_indices(target):
    rng = fresh_rng()
    x = rng.integers(-99, 99, (2, 20, 30)).astype(np.int32)
    i, j = rng.integers(-4, 25, 8).astype(np.int32), rng.integers(-4, 35, 16)
    y, z = np.full((7, 15), -1, np.int32), np.zeros(9, np.int32)
    moved.options(target=target)[1](x, i, j, y, z)
    inside = ((i >= 0) & (i < 20))[:, None] & (j >= 0) & (j < 30)
    whole = np.where(inside, x[1, i.clip(0, 19)[:, None], j.clip(0, 29)], 0) * 2
    np.testing.assert_array_equal(y, whole[:7, :15])
    n = np.arange(8)
    np.testing.assert_array_equal(z, [*(x[n % 2, n, n] + 1), 0])


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "xe-pvc"])
def test_elements_by_values_of_indices_compile(target):
    index = [tw.spec((8,), tw.i32), tw.spec((16,), tw.i64)]
    out = [tw.spec((7, 15), tw.i32), tw.spec((9,), tw.i32)]
    moved.options(target=target).compile(tw.spec((2, 20, 30), tw.i32), *index, *out)


@tw.kernel
def misread(X, CASE: tw.constexpr):
    if CASE == "slice":
        X[0, 0] = X[0:4, 1]
    elif CASE == "end":
        X[0, 0] = X[-1, 0]
    elif CASE == "count":
        X[0, 0] = X[0]
    elif CASE == "type":
        X[0, 0] = 1.5
    elif CASE == "value":
        X[0, 0] = X[0, 0].to(tw.f32)
    elif CASE == "mask":
        X[0, 0] = X[tw.arange(0, 4) < 2, 0].item()
    elif CASE == "vectors":
        X[tw.arange(0, 4)] = 1
    elif CASE == "shapes":
        X[tw.arange(0, 4), tw.arange(0, 3)] = 1
    elif CASE == "float":
        X[0, 0] = X[1.5, 0]
    else:
        X.shape[0] += 1


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("slice", "a slice of an array is no element of it"),
        ("end", "not counted from the end"),
        ("count", "1 offset for the array X (2-D, i32)"),
        ("type", "1.5"),
        ("value", "run-time f32 scalar to a 1x1 tile of i32"),
        ("float", "an offset"),
        ("mask", "an index is integers, not"),
        ("vectors", "1 index for the array X (2-D, i32)"),
        ("shapes", "1x4 and 1x3"),
        ("extent", "assignment to an element"),
    ],
)
def test_elements_that_there_are_not(case, said):
    with pytest.raises(CompileError, match=re.escape(said)):
        misread[1](np.zeros((4, 4), np.int32), case)


def test_a_spec_whose_parts_are_exchanged():
    with pytest.raises(tw.LaunchError, match=r"not \(4, 8\)") as raised:
        tw.spec(tw.f32, (4, 8))  # pyright: ignore[reportArgumentType]
    assert raised.value.hint == "tw.spec(shape, tw.f32)"
    with pytest.raises(tw.LaunchError, match="an extent for each dimension, not 4"):
        picked.compile(tw.spec(4, tw.f32), *[tw.spec((4, 8), tw.i32)] * 3)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("array", [tw.spec, tw.graph.array])
@pytest.mark.parametrize("name", ["f32", "float32", np.float32, np.dtype("f4"), "torch.float32"])
def test_a_dtype_that_is_another_ones(array, name):
    with pytest.raises(tw.LaunchError, match="takes a dtype") as raised:
        array((4, 8), name)
    assert raised.value.hint == "use tw.f32"
