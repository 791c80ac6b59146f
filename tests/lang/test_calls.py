"""Calls: helpers, other kernels, Python's functions, and what names can mean."""

import math
from typing import NamedTuple

import numpy as np
import pytest

import tilewright as tw
from tests.arrays import poison
from tests.draws import fresh_rng
from tests.lang.reference import ir, run

SCALE = 3
TABLE = (1, 10, 100)
HALF = np.float32(0.5)
LOOKUP = np.arange(3)
X = fresh_rng().standard_normal((8, 8)).astype(np.float32)


def load(A, i, n=8):
    """A helper with a default."""
    return tw.load_tile(tw.init_tile(A, [i, 0], (1, n)))


def softplus(x):
    return tw.log(1 + tw.exp(x))


def comprehended(n):
    """Runs as ordinary Python: its argument is known at compile time."""
    return [i * i for i in range(n)][-1]


@tw.kernel
def helpers(A, Y, N: tw.constexpr = 4):
    x = softplus(load(A, n=8, i=comprehended(2)))
    x = x * SCALE + TABLE[N - 2] * HALF + math.sqrt(N) - math.inf * 0 if False else x * SCALE
    tw.store_tile(x + comprehended(N) + math.log2(N), tw.init_tile(Y, [0, 0], (1, 8)))


def test_helpers_and_captured_names():
    y = poison(1, 8)
    run(helpers, 1, X, y)
    np.testing.assert_allclose(y[0], np.log(1 + np.exp(X[1])) * 3 + 9 + 2, rtol=1e-5)


@tw.kernel
def starred(A, Y):
    at, n = (A, 1), [8]
    first, *rows, last = [load(*at, *n), *(load(A, i) for i in range(4))]
    _, *none = (1,)
    assert len(rows) == 3 and not none
    tw.store_tile(first - rows[2] + last, tw.init_tile(*(Y, [0, 0]), (1, 8)))


def test_sequences_are_taken_apart_by_a_star():
    y = poison(1, 8)
    run(starred, 1, X, y)
    np.testing.assert_array_equal(y[0], X[1] - X[2] + X[3])


class State(NamedTuple):
    top: tw.Value
    total: tw.Value


def online(state, x):
    top = tw.maximum(state.top, tw.max(x, 1))
    total = state.total * tw.exp(state.top - top) + tw.sum(tw.exp(x - top), 1)
    return State(top, total)


@tw.kernel
def log_sum_exp(A, Y):
    state = State(tw.full((8, 1), float("-inf"), tw.f32), tw.zeros((8, 1), tw.f32))
    for j in range(0, A.shape[1], 2):
        state = online(state, tw.load_tile(tw.init_tile(A, [0, j], (8, 2))))
    tw.store_tile(state.top + tw.log(state.total), tw.init_tile(Y, [0, 0], (8, 1)))


def test_named_tuples_group_values():
    y = poison(8, 1)
    run(log_sum_exp, 1, X, y)
    np.testing.assert_allclose(y[:, 0], np.log(np.exp(X).sum(1)), rtol=1e-5)


@tw.kernel
def doubled(A, Y, i, N: tw.constexpr = 8):
    """Also called by the next kernel."""
    tw.store_tile(load(A, i, N) * 2, tw.init_tile(Y, [i, 0], (1, N)))


@tw.kernel
def calls_a_kernel(A, Y):
    for i in range(8):
        doubled(A, Y, i)


def test_kernels_inline():
    y = poison(8, 8)
    run(calls_a_kernel, 1, X, y)
    np.testing.assert_array_equal(y, X * 2)


def maker(factor, act):
    @tw.kernel
    def closure(A, Y):
        x = act(tw.load_tile(tw.init_tile(A, [0, 0], (8, 8))))
        tw.store_tile(x * factor, tw.init_tile(Y, [0, 0], (8, 8)))

    return closure


def test_closures():
    y = poison(8, 8)
    run(maker(4, softplus), 1, X, y)
    np.testing.assert_allclose(y, np.log(1 + np.exp(X)) * 4, rtol=1e-5)
    run(maker(0.5, tw.abs), 1, X, y)
    np.testing.assert_allclose(y, abs(X) / 2)


@tw.kernel
def activated(A, Y, ACT: tw.constexpr = None, bias=None):
    x = tw.load_tile(tw.init_tile(A, [0, 0], (8, 8)))
    if bias is not None:
        x = x + tw.load_tile(tw.init_tile(bias, [0], (1, 8)))
    if ACT is not None:
        x = ACT(x)
    tw.store_tile(x, tw.init_tile(Y, [0, 0], (8, 8)))


def test_functions_and_none_as_arguments():
    y = poison(8, 8)
    run(activated, 1, X, y)
    np.testing.assert_array_equal(y, X)
    run(activated, 1, X, y, ACT=softplus)
    np.testing.assert_allclose(y, np.log(1 + np.exp(X)), rtol=1e-5)
    run(activated, 1, X, y, tw.abs, X[3])
    np.testing.assert_allclose(y, abs(X + X[3]))
    text = ir(activated, X, y)
    assert "%bias" not in text


# --- Errors ------------------------------------------------------------------------------------


def columns(x, n: int):
    """The columns of a value of n columns, each a value: the even ones, then the odd ones, of halves of halves."""
    if n == 1:
        return (x,)
    even, odd = tw.deinterleave(x)
    return columns(even, n // 2) + columns(odd, n // 2)


@tw.kernel
def alternating(X, Y):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (8, 8)))
    total, sign = tw.zeros((8, 1), tw.f32), 1.0
    for column in columns(x, 8):
        total, sign = total * 2.0 + column * sign, -sign
    tw.store_tile(total, tw.init_tile(Y, [0, 0], (8, 1)))


def test_a_helper_calls_itself_until_a_condition_of_compile_time_ends_it():
    y = poison(8, 1)
    run(alternating, 1, X, y)
    weights = 2.0 ** np.arange(7, -1, -1) * np.resize([1, -1], 8)
    np.testing.assert_allclose(
        y[:, 0], X[:, [0, 4, 2, 6, 1, 5, 3, 7]] @ weights, rtol=1e-5, atol=1e-4
    )


def test_ops_of_helpers_are_located_in_both_places():
    from tilewright.diagnostics import callers_of, location_of

    compiled = calls_a_kernel.compile(X, X.copy(), target="reference")
    module = compiled.executable.module  # pyright: ignore
    (load_op,) = [op for op in module.walk() if op.name == "xetile.load_tile"]
    inner = location_of(load_op)
    assert inner.source_line.strip() == "return tw.load_tile(tw.init_tile(A, [i, 0], (1, n)))"
    assert inner.source_line[inner.col - 1 : inner.end_col - 1].startswith("tw.load_tile(")
    lines = [c.source_line.strip() for c in callers_of(load_op)]
    assert lines[0].startswith("tw.store_tile(load(A, i, N) * 2") and lines[1] == "doubled(A, Y, i)"


OFFSET = 4.0
LAMBDAS = {
    "first of a line": (lambda v: v * 2, 2.0),
    "global": (lambda v: (v) + OFFSET, 5.0),
    "choice while compiling": (lambda v: ((v) if OFFSET > 5 else (-v)), -1.0),
    "choice at run time": (lambda v: (v) if tw.program_id(0) > 0 else (v + 7), 8.0),
    "default": (lambda v, k=3.0: tw.maximum(
        v, k), 3.0),
    "constant": (lambda v: tw.zeros(v.shape, tw.f32), 0.0),
    "itself": (lambda v: v, 1.0),
}  # fmt: skip
ON_ONE_LINE = (lambda v: v + 1, lambda v: v + 2)


def through(function):
    @tw.kernel
    def kernel(X, Y):
        x = tw.load_tile(tw.init_tile(X, [0, 0], (2, 2)))
        tw.store_tile(function(x), tw.init_tile(Y, [0, 0], (2, 2)))

    return kernel


@tw.kernel
def applied(X, Y, F: tw.constexpr):
    tw.store_tile(F(tw.load_tile(tw.init_tile(X, [0, 0], (2, 2)))), tw.init_tile(Y, [0, 0], (2, 2)))


@pytest.mark.parametrize("name", LAMBDAS)
def test_a_lambda_is_a_helper_like_others(name):
    function, expected = LAMBDAS[name]
    for kernel, more in ((through(function), ()), (applied, (function,))):
        y = np.full((2, 2), np.nan, np.float32)
        kernel.options(target="reference")[1](np.ones((2, 2), np.float32), y, *more)
        assert (y == expected).all()


def test_lambdas_of_one_line_are_told_apart():
    """By what they compute, and in the key under which code is kept on disk."""
    kernels = [through(function) for function in ON_ONE_LINE]
    for kernel, expected in zip(kernels, (2, 3), strict=True):
        y = np.full((2, 2), np.nan, np.float32)
        kernel.options(target="reference")[1](np.ones((2, 2), np.float32), y)
        assert (y == expected).all()
    assert kernels[0].fingerprint() != kernels[1].fingerprint()
