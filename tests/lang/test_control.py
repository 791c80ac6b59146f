"""Control flow: loops, branches, what they carry, and the errors that say why they cannot."""

import numpy as np
import pytest

import tilewright as tw
from tests.arrays import poison
from tests.lang.reference import refused, run


@pytest.fixture
def x(request):
    seed = np.random.SeedSequence().entropy
    print("seed", seed)
    return np.random.default_rng(seed).standard_normal((8, 8)).astype(np.float32)


@tw.kernel
def sum_of_rows(X, Y, START: tw.constexpr, STEP: tw.constexpr):
    acc = tw.zeros((1, 8), tw.f32)
    for i in range(START, X.shape[0], STEP):
        acc += tw.load_tile(tw.init_tile(X, [i, 0], (1, 8)))
    tw.store_tile(acc, tw.init_tile(Y, [0, 0], (1, 8)))


@pytest.mark.parametrize(("start", "step"), [(0, 1), (1, 3), (8, 1), (3, 2)])
def test_range_counts_as_python(x, start, step):
    y = poison(1, 8)
    run(sum_of_rows, 1, x, y, START=start, STEP=step)
    np.testing.assert_allclose(y[0], x[start::step].sum(0), rtol=1e-5, atol=1e-6)


@tw.kernel
def down(Y, a, b, STEP: tw.constexpr):
    at = 0
    for i in range(a, b, STEP):
        tw.store_tile(i, tw.init_tile(Y, [at], (1, 1)))
        at += 1  # noqa: SIM113


@tw.kernel
def down_at_run_time(Y, a, b, step):
    at = 0
    for i in range(a, b, step):
        tw.store_tile(i, tw.init_tile(Y, [at], (1, 1)))
        at += 1  # noqa: SIM113


@pytest.mark.parametrize("bounds", [(10, 0, -1), (10, -1, -3), (0, 10, -2), (3, 20, 4), (5, 5, -1)])
def test_range_with_steps_of_both_signs(bounds):
    expected = list(range(*bounds))
    for kernel, args, extra in (
        (down, bounds[:2], {"STEP": bounds[2]}),
        (down_at_run_time, bounds, {}),
    ):
        y = np.full(16, -99, np.int64)
        run(kernel, 1, y, *args, **extra)
        assert y[: len(expected)].tolist() == expected
        assert (y[len(expected) :] == -99).all()


@tw.kernel
def collatz(Y, n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    tw.store_tile(steps, tw.init_tile(Y, [0], (1, 1)))


@pytest.mark.parametrize(("n", "steps"), [(1, 0), (6, 8), (27, 111)])
def test_while(n, steps):
    y = poison(1, dtype=np.int32)
    run(collatz, 1, y, n)
    assert y[0] == steps


@tw.kernel
def gated(Y, n, GATE: tw.constexpr):
    steps, i = 0, 0
    while i < n and GATE:
        i += 1
        steps = steps + i
    while GATE and i < n + 2:
        i += 1
        if i == n + 1:
            break
        steps = 100
    tw.store_tile(steps * 10 + i, tw.init_tile(Y, [0], (1, 1)))


@pytest.mark.parametrize(("gate", "result"), [(True, 63 + 1), (False, 0)])
def test_a_while_that_compile_time_switches_off_does_not_run(gate, result):
    y = poison(1, dtype=np.int32)
    run(gated, 1, y, 3, GATE=gate)
    assert y[0] == result


@tw.kernel
def newton(Y, a):
    guess = a
    error = 1.0
    while error > 1e-6 and guess > 0.0:
        new = (guess + a / guess) * 0.5
        error = abs(new - guess)
        guess = new
    tw.store_tile(guess, tw.init_tile(Y, [0], (1, 1)))


def test_while_with_a_compound_condition():
    y = poison(1)
    run(newton, 1, y, 2.0)
    np.testing.assert_allclose(y[0], 2**0.5, rtol=1e-5)


@tw.kernel
def sign(Y):
    i = tw.program_id(0)
    if i < 2:
        v = -1
    elif i == 2:
        v = 0
    else:
        v = 1
        tw.store_tile(9, tw.init_tile(Y, [1, i], (1, 1)))
    tw.store_tile(v, tw.init_tile(Y, [0, i], (1, 1)))


def test_if_elif_else():
    y = np.zeros((2, 5), np.int32)
    run(sign, 5, y)
    assert y.tolist() == [[-1, -1, 0, 1, 1], [0, 0, 0, 9, 9]]


@tw.kernel
def early(Y):
    i = tw.program_id(0)
    if i == 1:
        return
    if i > 2:
        tw.store_tile(5, tw.init_tile(Y, [i], (1, 1)))
        return
    tw.store_tile(i + 10, tw.init_tile(Y, [i], (1, 1)))


def test_early_return():
    y = np.zeros(4, np.int32)
    run(early, 4, y)
    assert y.tolist() == [10, 0, 12, 5]


@tw.kernel
def odd_sum(Y, n):
    total = 0
    for i in range(n):
        if i % 2 == 0:
            continue
        total += i
    tw.store_tile(total, tw.init_tile(Y, [0], (1, 1)))


def test_continue():
    y = poison(1, dtype=np.int64)
    run(odd_sum, 1, y, 10)
    assert y[0] == 25


@tw.kernel
def first_above(X, Y, limit):
    found = -1
    for i in range(X.shape[0]):
        x = tw.load_tile(tw.init_tile(X, [i], (1, 1))).item()
        if x > limit:
            found = i
            break
        tw.store_tile(x, tw.init_tile(Y, [i + 1], (1, 1)))
    tw.store_tile(found, tw.init_tile(Y, [0], (1, 1)))


@pytest.mark.parametrize("limit", [0.5, 2.5, 5.5, 99.0])
def test_break(limit):
    x = np.arange(1, 8, dtype=np.float32)
    y = np.zeros(8, np.float32)
    run(first_above, 1, x, y, limit)
    above = np.flatnonzero(x > limit)
    found = above[0] if len(above) else -1
    assert y[0] == found
    stored = x[:found] if len(above) else x
    np.testing.assert_array_equal(y[1 : 1 + len(stored)], stored)
    assert (y[1 + len(stored) :] == 0).all()


@tw.kernel
def nested_breaks(Y, n):
    total = 0
    rounds = 0
    while True:
        rounds += 1
        for j in range(10, 0, -2):
            if j < rounds:
                break
            if j == 8:
                continue
            total += j
        else_ = rounds * rounds
        if else_ > n:
            if total > 0:
                break
            total -= 1
    for _ in range(5):
        total += 1000
        break
    tw.store_tile(total, tw.init_tile(Y, [0], (1, 1)))
    tw.store_tile(rounds, tw.init_tile(Y, [1], (1, 1)))


@pytest.mark.parametrize("n", [0, 10, 30, 200])
def test_nested_breaks(n):
    total = rounds = 0
    while True:
        rounds += 1
        for j in range(10, 0, -2):
            if j < rounds:
                break
            if j == 8:
                continue
            total += j
        if rounds * rounds > n:
            if total > 0:
                break
            total -= 1
    y = poison(2, dtype=np.int64)
    run(nested_breaks, 1, y, n)
    assert y.tolist() == [total + 1000, rounds]


@tw.kernel
def guarded(Y, n):
    steps = 0
    while 100 // n > steps:
        steps += 1
        if steps == 7:
            n = 0
            break
    tw.store_tile(steps + n, tw.init_tile(Y, [0], (1, 1)))


@pytest.mark.parametrize(("n", "result"), [(1, 7), (25, 29), (200, 200)])
def test_the_condition_is_not_evaluated_after_a_break(n, result):
    y = poison(1, dtype=np.int64)
    run(guarded, 1, y, n)
    assert y[0] == result


def pick(a, b, first):
    """Both branches of a condition of run time return: their values merge."""
    if first > 0:
        return a, b
    return b, a


@tw.kernel
def swapped(X, Y):
    a = tw.load_tile(tw.init_tile(X, [0, 0], (1, 8)))
    b = tw.load_tile(tw.init_tile(X, [1, 0], (1, 8)))
    a, b = pick(a, b, tw.program_id(0))
    tw.store_tile(a, tw.init_tile(Y, [tw.program_id(0), 0], (1, 8)))


def test_returned_values_merge(x):
    y = poison(2, 8)
    run(swapped, 2, x, y)
    np.testing.assert_array_equal(y, x[1::-1])


@tw.kernel
def unrolled(Y):
    total = ()
    for i, v in enumerate((3, 1, 2)):
        if v == 1:
            continue
        total = (*total, v * 10 + i)
    for at, v in zip(range(2), total, strict=True):
        tw.store_tile(v, tw.init_tile(Y, [at], (1, 1)))
    for i in tw.static_range(100):
        if i == 2:
            break
        tw.store_tile(i, tw.init_tile(Y, [2 + i], (1, 1)))


def test_loops_of_compile_time_unroll():
    y = poison(4, dtype=np.int32)
    run(unrolled, 1, y)
    assert y.tolist() == [30, 22, 0, 1]


@tw.kernel
def carries_tuples(X, Y):
    pair = (tw.zeros((1, 8), tw.f32), 0)
    for i in range(X.shape[0]):
        row = tw.load_tile(tw.init_tile(X, [i, 0], (1, 8)))
        pair = (pair[0] + row, pair[1] + i)
    tw.store_tile(pair[0] + pair[1], tw.init_tile(Y, [0, 0], (1, 8)))


def test_a_loop_carries_tuples(x):
    y = poison(1, 8)
    run(carries_tuples, 1, x, y)
    np.testing.assert_allclose(y[0], x.sum(0) + 28, rtol=1e-5, atol=1e-5)


@tw.kernel
def widens(Y, n, s):
    total = 0
    for _ in range(n):
        total = total + s
    tw.store_tile(total, tw.init_tile(Y, [0], (1, 1)))


def test_a_number_takes_the_type_that_the_loop_gives_it():
    y = poison(1)
    run(widens, 1, y, 3, 0.5)
    assert y[0] == 1.5
    y = poison(1, dtype=np.float64)
    run(widens, 1, y, 3, np.float64(0.25))
    assert y[0] == 0.75


@tw.kernel
def reuses_a_name(X, Y):
    v = tw.load_tile(tw.init_tile(X, [0, 0], (8, 8)))
    acc = tw.sum(v, 0)
    for i in range(2):
        v = tw.load_tile(tw.init_tile(X, [i, 0], (1, 8)))
        acc = acc + v
    tw.store_tile(acc, tw.init_tile(Y, [0, 0], (1, 8)))


def test_a_name_that_a_loop_rebinds_first_is_not_carried(x):
    y = poison(1, 8)
    run(reuses_a_name, 1, x, y)
    np.testing.assert_allclose(y[0], x.sum(0) + x[0] + x[1], rtol=1e-4, atol=1e-5)


@tw.kernel
def short_circuit(Y, n):
    safe = n != 0 and 12 // n > 3
    either = n == 0 or 12 // n > 3
    chain = 0 <= n < 4
    tw.store_tile(1 if safe else 0, tw.init_tile(Y, [0], (1, 1)))
    tw.store_tile(1 if either else 0, tw.init_tile(Y, [1], (1, 1)))
    tw.store_tile(1 if chain else 0, tw.init_tile(Y, [2], (1, 1)))
    tw.store_tile(1 if not safe else 0, tw.init_tile(Y, [3], (1, 1)))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5])
def test_and_or_not_evaluate_as_python(n):
    y = poison(4, dtype=np.int32)
    run(short_circuit, 1, y, n)
    safe = n != 0 and 12 // n > 3
    assert y.tolist() == [safe, n == 0 or 12 // n > 3, 0 <= n < 4, not safe]


# --- Errors ------------------------------------------------------------------------------------


@tw.kernel
def changes_type(X, Y):
    acc = 0.0
    for i in range(4):
        acc = acc + tw.load_tile(tw.init_tile(X, [i, 0], (1, 8)))
    tw.store_tile(acc, tw.init_tile(Y, [0, 0], (1, 8)))


def test_a_carried_name_that_changes_its_type(x):
    text, under = refused(changes_type, x, x)
    assert "acc changes its type in this loop" in text
    assert "the constant 0.0 before it, 1x8 value of f32 after an iteration" in text
    assert under == "for i in range(4):"
    assert "acc is the constant 0.0 here" in text and "acc = 0.0" in text
    assert "tw.zeros((1, 8), tw.f32)" in text


@tw.kernel
def changes_dtype(X, Y):
    acc = tw.zeros((1, 8), tw.f16)
    for i in range(4):
        acc = acc + tw.load_tile(tw.init_tile(X, [i, 0], (1, 8)))
    tw.store_tile(acc, tw.init_tile(Y, [0, 0], (1, 8)))


def test_a_carried_tile_that_changes_its_dtype(x):
    text, _ = refused(changes_dtype, x, x)
    assert "1x8 value of f16 before it, 1x8 value of f32 after" in text
    assert ".to(tw.f16)" in text


def scaled(x, by):
    return x * by


@tw.kernel
def comprehensions(X, Y, N: tw.constexpr):
    """Tiles, conditions, several variables, nested ones, in a loop and in a branch of run time."""
    j, total = 100.0, tw.zeros((1, 8), tw.f32)
    for i in range(0, X.shape[0], N):
        rows = [tw.load_tile(tw.init_tile(X, [i + j, 0], (1, 8))) for j in range(N)]
        total += sum(scaled(r, k) for k, r in enumerate(rows) if k % 2 == 0)
        if i > 0:
            total = total + sum([a * b for a in rows for b in (1, -1) if b > 0])
    counted = j + sum(range(N)) + max(range(N)) - min(range(2, 9))
    tw.store_tile(total + counted, tw.init_tile(Y, [0, 0], (1, 8)))


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_comprehensions_are_unrolled_and_keep_their_names(rng, target):
    n, blocks = rng.integers(1, 5, 2)
    x, y = rng.standard_normal((n * blocks, 8)).astype(np.float32), poison(1, 8)
    comprehensions.options(target=target)[1](x, y, N=int(n))
    rows = x.astype(np.float64).reshape(blocks, n, 8)
    even = (rows * np.where(np.arange(n) % 2, 0, np.arange(n))[:, None]).sum((0, 1))
    counted = 100 + sum(range(n)) + n - 1 - 2
    np.testing.assert_allclose(y[0], even + rows[1:].sum((0, 1)) + counted, rtol=1e-5, atol=1e-5)


@tw.kernel
def carried_positions(Y, n, N: tw.constexpr):
    at = tw.arange(N)
    for i in range(n):
        at = tw.where(at > i, at * 2, -1) + (at > 3).to(tw.i32)
    tw.store_tile(at.to(Y.dtype), tw.init_tile(Y, [0], (1, N)))


def test_positions_that_a_loop_carries_may_be_computed_as_i64(rng):
    n, y = int(rng.integers(0, 6)), poison(9, dtype=np.int64)
    run(carried_positions, 1, y, n, N=9)
    at = np.arange(9)
    for i in range(n):
        at = np.where(at > i, at * 2, -1) + (at > 3)
    np.testing.assert_array_equal(y, at)
