"""Operators compute what numpy computes, in the dtypes that the rules say."""

import operator

import numpy as np
import pytest

import tilewright as tw
from tests.arrays import poison
from tests.lang.reference import ir, refused, run
from tilewright import dtypes
from tilewright.dialects.text import parse_module

SHAPE = (4, 8)
INTEGERS = (tw.i8, tw.i16, tw.i32, tw.i64, tw.u8, tw.u16, tw.u32, tw.u64)


def integers(rng, dtype, shape=SHAPE, nonzero=False):
    info = np.iinfo(dtype.numpy)
    a = rng.integers(info.min, info.max, shape, dtype=dtype.numpy, endpoint=True)
    if nonzero:
        a[a == 0] = 3
        if info.min < 0:
            a[a == -1] = 2  # the quotient of the least integer and -1 has no value
    return a


def operate(a, b, OP):
    if OP == "+":
        return a + b
    elif OP == "-":
        return a - b
    elif OP == "*":
        return a * b
    elif OP == "/":
        return a / b
    elif OP == "//":
        return a // b
    elif OP == "%":
        return a % b
    elif OP == "**":
        return a**b
    elif OP == "&":
        return a & b
    elif OP == "|":
        return a | b
    elif OP == "^":
        return a ^ b
    elif OP == "<":
        return a < b
    elif OP == "<=":
        return a <= b
    elif OP == ">":
        return a > b
    elif OP == ">=":
        return a >= b
    elif OP == "==":
        return a == b
    else:
        return a != b


@tw.kernel
def binary(A, B, C, OP: tw.constexpr):
    a = tw.load_tile(tw.init_tile(A, [0, 0], (4, 8)))
    b = tw.load_tile(tw.init_tile(B, [0, 0], (4, 8)))
    c = operate(a, b, OP)
    tw.static_assert(c.dtype == C.dtype, f"the result is {c.dtype}")
    tw.store_tile(c, tw.init_tile(C, [0, 0], (4, 8)))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("op", ["+", "-", "*", "//", "%", "&", "|", "^"])
def test_integers(rng, dtype, op):
    functions = {"+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_}
    functions |= {"|": operator.or_, "^": operator.xor}
    functions |= {"//": operator.floordiv, "%": operator.mod}
    a, b = integers(rng, dtype), integers(rng, dtype, nonzero=op in ("//", "%"))
    c = poison(*SHAPE, dtype=dtype.numpy)
    run(binary, 1, a, b, c, OP=op)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(c, functions[op](a, b))


@pytest.mark.parametrize("function", [operator.add, operator.and_, operator.xor])
def test_functions_of_operator_are_operators(rng, function):
    @tw.kernel
    def kernel(A, B, C, D):
        a = tw.load_tile(tw.init_tile(A, [0, 0], (4, 8)))
        b = tw.load_tile(tw.init_tile(B, [0, 0], (4, 8)))
        tw.store_tile(function(a, b) + operator.mul(2, 3), tw.init_tile(C, [0, 0], (4, 8)))
        tw.store_tile(tw.associative_scan(a, 1, function), tw.init_tile(D, [0, 0], (4, 8)))

    a, b = integers(rng, tw.i32), integers(rng, tw.i32)
    c, d = poison(*SHAPE, dtype="i4"), poison(*SHAPE, dtype="i4")
    run(kernel, 1, a, b, c, d)
    np.testing.assert_array_equal(c, function(a, b) + 6)
    ufunc = {operator.add: np.add, operator.and_: np.bitwise_and, operator.xor: np.bitwise_xor}
    np.testing.assert_array_equal(d, ufunc[function].accumulate(a, 1, np.int32))


def test_a_ceiling_of_a_division_by_nothing_is_refused():
    with pytest.raises(tw.CompileError, match="the constant 3 is divided by the constant 0"):
        tw.cdiv(3, 0)


@pytest.mark.parametrize("dtype", [tw.i8, tw.u8, tw.i64, tw.u64, tw.f32, tw.f64], ids=str)
@pytest.mark.parametrize("op", ["<", "<=", ">", ">=", "==", "!="])
def test_comparisons(rng, dtype, op):
    functions = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
    functions |= {"==": operator.eq, "!=": operator.ne}
    if dtype.is_float:
        a, b = (rng.standard_normal(SHAPE).astype(dtype.numpy) for _ in range(2))
        a[0, :3] = np.nan, np.inf, -0.0
    else:
        a, b = integers(rng, dtype), integers(rng, dtype)
    b[:, ::2] = a[:, ::2]
    c = poison(*SHAPE, dtype=np.bool_)
    run(binary, 1, a, b, c, OP=op)
    np.testing.assert_array_equal(c, functions[op](a, b))


@pytest.mark.parametrize("dtype", [tw.f32, tw.f64, tw.f16, tw.bf16], ids=str)
@pytest.mark.parametrize("op", ["+", "-", "*", "/", "//", "%"])
def test_floats(rng, dtype, op):
    functions = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
    functions |= {"//": operator.floordiv, "%": operator.mod}
    a, b = (rng.standard_normal(SHAPE).astype(dtype.numpy) for _ in range(2))
    b[abs(b.astype(np.float64)) < 0.1] = 0.5
    c = poison(*SHAPE, dtype=dtype.numpy)
    run(binary, 1, a, b, c, OP=op)
    expected = functions[op](a.astype(np.float64), b.astype(np.float64))
    got = c.astype(np.float64)
    if op in ("//", "%"):  # a quotient within rounding of a whole number may go either way
        quotient = a.astype(np.float64) / b.astype(np.float64)
        clear = abs(quotient - np.round(quotient)) > 0.05
        assert clear.any()
        got, expected = got[clear], expected[clear]
    eps = 2.0**-(dtype.mantissa_bits)
    np.testing.assert_allclose(got, expected, rtol=4 * eps, atol=8 * eps)


PROMOTIONS = [
    ("f16", "f32", "f32"),
    ("bf16", "f32", "f32"),
    ("f16", "bf16", "f32"),
    ("f8e4m3", "f16", "f16"),
    ("f8e5m2", "bf16", "bf16"),
    ("f8e4m3", "f8e5m2", "f32"),
    ("f32", "f64", "f64"),
    ("i8", "i32", "i32"),
    ("i8", "u8", "i16"),
    ("i32", "u32", "i64"),
    ("i64", "u64", "f64"),
    ("i8", "f16", "f16"),
    ("i16", "f16", "f32"),
    ("i32", "f32", "f64"),
    ("u8", "bf16", "bf16"),
    ("i32", "bf16", "f32"),
    ("i1", "i16", "i16"),
    ("i1", "f16", "f16"),
]


@pytest.mark.parametrize(("left", "right", "result"), PROMOTIONS)
def test_two_tiles_promote(left, right, result):
    a, b = (np.ones(SHAPE, dtypes.from_name(n).numpy) for n in (left, right))
    c = poison(*SHAPE, dtype=dtypes.from_name(result).numpy)
    run(binary, 1, a, b, c, OP="*")
    assert (c.astype(np.float64) == 1).all()
    run(binary, 1, b, a, c, OP="*")


@pytest.mark.parametrize("dtype", [tw.i8, tw.u8, tw.i32], ids=str)
def test_division_of_integers_is_f64(rng, dtype):
    a, b = integers(rng, dtype), integers(rng, dtype, nonzero=True)
    c = poison(*SHAPE, dtype=np.float64)
    run(binary, 1, a, b, c, OP="/")
    np.testing.assert_array_equal(c, a / b.astype(np.float64))


@tw.kernel
def with_scalars(A, C, n, s, half):
    a = tw.load_tile(tw.init_tile(A, [0, 0], (4, 8)))
    c = (2 * a + n) * s - half
    tw.static_assert(c.dtype == A.dtype)
    tw.store_tile(c / 2, tw.init_tile(C, [0, 0], (4, 8)))


@pytest.mark.parametrize("dtype", [tw.f16, tw.f32, tw.f64], ids=str)
def test_scalars_never_widen(rng, dtype):
    a = rng.standard_normal(SHAPE).astype(dtype.numpy)
    c = poison(*SHAPE, dtype=dtype.numpy)
    run(with_scalars, 1, a, c, 3, 1.5, np.float64(0.25))
    expected = ((2 * a.astype(np.float64) + 3) * 1.5 - 0.25) / 2
    np.testing.assert_allclose(c.astype(np.float64), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", [tw.i8, tw.i32, tw.i64], ids=str)
@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_powers_of_integers(rng, target, dtype):
    a, n = rng.integers(-9, 10, SHAPE).astype(dtype.numpy), rng.integers(0, 99, SHAPE, np.int8)
    c = poison(*SHAPE, dtype=dtype.numpy)
    binary.options(target=target)[(1,)](a, n.astype(dtype.numpy), c, OP="**")
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(c, a**n)


@tw.kernel
def powers(A, C):
    a = tw.load_tile(tw.init_tile(A, [0, 0], (4, 8)))
    tw.store_tile(a**3 + a**0, tw.init_tile(C, [0, 0], (4, 8)))


@tw.kernel
def float_powers(A, C):
    a = tw.load_tile(tw.init_tile(A, [0, 0], (4, 8)))
    c = a**-2 + a**0.5 + a**1.7 + 2**a + a**a
    tw.store_tile(c, tw.init_tile(C, [0, 0], (4, 8)))


def test_powers(rng):
    a = rng.integers(-9, 9, SHAPE).astype(np.int32)
    c = poison(*SHAPE, dtype=np.int32)
    run(powers, 1, a, c)
    np.testing.assert_array_equal(c, a**3 + 1)
    x = rng.uniform(0.5, 2, SHAPE).astype(np.float32)
    y = poison(*SHAPE)
    run(float_powers, 1, x, y)
    d = x.astype(np.float64)
    np.testing.assert_allclose(y, d**-2 + d**0.5 + d**1.7 + 2**d + d**d, rtol=1e-5)


@tw.kernel
def unary(A, C, D):
    a = tw.load_tile(tw.init_tile(A, [0, 0], (4, 8)))
    tw.store_tile(-a + +a - a, tw.init_tile(C, [0, 0], (4, 8)))
    tw.store_tile(~a, tw.init_tile(D, [0, 0], (4, 8)))


@pytest.mark.parametrize("dtype", [tw.i8, tw.i32, tw.u8, tw.u64], ids=str)
def test_unary_operators(rng, dtype):
    a = integers(rng, dtype)
    c, d = (poison(*SHAPE, dtype=dtype.numpy) for _ in range(2))
    run(unary, 1, a, c, d)
    np.testing.assert_array_equal(c, np.negative(a))
    np.testing.assert_array_equal(d, ~a)


@tw.kernel
def broadcasts(A, C):
    row = tw.load_tile(tw.init_tile(A, [0, 0], (1, 8)))
    column = tw.load_tile(tw.init_tile(A, [0, 0], (4, 1)))
    tw.store_tile(column * row + 1, tw.init_tile(C, [0, 0], (4, 8)))


def test_broadcasting(rng):
    a = rng.standard_normal(SHAPE).astype(np.float32)
    c = poison(*SHAPE)
    run(broadcasts, 1, a, c)
    np.testing.assert_allclose(c, a[:, :1] * a[:1] + 1, rtol=1e-6)


@tw.kernel
def masks(A, C):
    a = tw.load_tile(tw.init_tile(A, [0, 0], (4, 8)))
    inside = (a > -1) & (a < 1) | (a == 2) ^ ~(a >= 0)
    tw.store_tile(inside, tw.init_tile(C, [0, 0], (4, 8)))


def test_masks(rng):
    a = rng.integers(-3, 4, SHAPE).astype(np.float32)
    c = poison(*SHAPE, dtype=np.bool_)
    run(masks, 1, a, c)
    np.testing.assert_array_equal(c, (a > -1) & (a < 1) | (a == 2) ^ ~(a >= 0))


@tw.kernel
def scalars(Y, n, f, u, K: tw.constexpr):
    tw.store_tile(-n // 3 * 10 + n % 3, tw.init_tile(Y, [0], (1, 1)))
    tw.store_tile((f * n + K / 8 + u) * 2, tw.init_tile(Y, [1], (1, 1)))
    tw.store_tile((n << 3) | (n >> 1) ^ 5 & n, tw.init_tile(Y, [2], (1, 1)))
    tw.store_tile(
        max(n, 3, f) + min(2, n) + abs(-n) + int(2.9) + n**2, tw.init_tile(Y, [3], (1, 1))
    )
    tw.store_tile(float(n) / 2 + int(f), tw.init_tile(Y, [4], (1, 1)))
    tw.store_tile(tw.cdiv(n, 3) + tw.cdiv(7, 2), tw.init_tile(Y, [5], (1, 1)))
    tw.store_tile(n / 2, tw.init_tile(Y, [6], (1, 1)))


@pytest.mark.parametrize("n", [7, 0, -8])
def test_run_time_scalars(n):
    y = poison(7)
    run(scalars, 1, y, n, 1.5, np.uint8(200), K=3)
    expected = [
        -n // 3 * 10 + n % 3,
        (1.5 * n + 3 / 8 + 200) * 2,
        (n << 3) | (n >> 1) ^ 5 & n,
        max(n, 3, 1.5) + min(2, n) + abs(-n) + 2 + n**2,
        n / 2 + 1,
        -(-n // 3) + 4,
        n / 2,
    ]
    np.testing.assert_allclose(y, np.array(expected, np.float32))


@tw.kernel
def among(Y, n, f):
    tw.store_tile(1 if n in (1, 2, 7) else 0, tw.init_tile(Y, [0], (1, 1)))
    tw.store_tile(1 if n not in [f, -8] else 0, tw.init_tile(Y, [1], (1, 1)))
    tw.store_tile(1 if 7 in (0, n) and n not in (0,) else 0, tw.init_tile(Y, [2], (1, 1)))
    tw.store_tile(1 if f in (n, 1.5) and 3 in (n, 3) else 0, tw.init_tile(Y, [3], (1, 1)))


@pytest.mark.parametrize("n", [7, 0, -8])
def test_scalars_among_others(n):
    """`7 in (0, n)` compared objects of compile time, and was false whatever n is."""
    y = poison(4)
    run(among, 1, y, n, 0.0)
    right = [n in (1, 2, 7), n not in (0.0, -8), n == 7, n == 0]
    np.testing.assert_array_equal(y, np.array(right, np.float32))


def test_numbers_fold_and_units_cost_nothing():
    text = ir(identity, np.ones((1, 1), np.float32))
    assert "arith.addi" not in text and "arith.muli" not in text


@tw.kernel
def identity(Y):
    i = (tw.program_id(0) * 1 + 0) // 1 + (2 - 2)
    tw.store_tile(1, tw.init_tile(Y, [i, 3 * 4 - 12], (1, 1)))


# --- Errors ------------------------------------------------------------------------------------


@tw.kernel
def divides_by_zero(A, N: tw.constexpr):
    tw.store_tile(1 // N, tw.init_tile(A, [0, 0], (1, 1)))


def test_exceptions_of_compile_time_arithmetic():
    text, under = refused(divides_by_zero, np.ones(SHAPE, np.int32), N=0)
    assert "ZeroDivisionError" in text and under == "1 // N"


@tw.kernel
def within(Y, n, low, high, UP: tw.constexpr, DOWN: tw.constexpr):
    Y[0] = (n in range(low, high)).to(Y.dtype)
    Y[1] = (n in range(low, high, UP)).to(Y.dtype)
    Y[2] = (n not in range(high, low, DOWN)).to(Y.dtype)
    Y[3] = (UP in range(3, 9, 2)).to(Y.dtype)


def test_in_of_a_range_asks_whether_it_has_the_integer(rng):
    for n in (-7, 0, 3, 8, int(rng.integers(-9, 9))):
        low, high = (int(x) for x in rng.integers(-9, 10, 2))
        y, up, down = np.full(4, -1, np.int32), int(rng.integers(1, 8)), -int(rng.integers(1, 5))
        run(within, 1, y, n, low, high, UP=up, DOWN=down)
        wanted = [n in range(low, high), n in range(low, high, up), n not in range(high, low, down)]
        assert y.tolist() == [*wanted, up in range(3, 9, 2)]


@tw.kernel
def each_within(X, Y, FROM: tw.constexpr, TO: tw.constexpr, BY: tw.constexpr):
    n = tw.program_id(0)
    Y[n] = (X[n] in range(FROM, TO, BY)).to(Y.dtype)


@pytest.mark.parametrize(
    "dtype, places",
    [("i1", (-100, 120, 3)), ("i1", (120, -120, -7)), ("u1", (250, 3, -5)), ("i4", (-(2**31), 2**31 - 1, 3))],
)  # fmt: skip
def test_distances_in_a_range_may_be_beyond_the_dtype(dtype, places, rng):
    info = np.iinfo(dtype)
    drawn = rng.integers(info.min, info.max, 40, dtype=dtype)
    x = np.unique(np.append(drawn, np.array([info.min, info.max, *places[:1]], dtype)))
    y = np.full(len(x), 9, np.int32)
    each_within[len(x)](x, y, *places)
    assert y.tolist() == [int(int(v) in range(*places)) for v in x]


def last_row(array):
    return (array.shape[0] - 1).to(tw.i32)


@tw.kernel
def extents(X, Y):
    Y[0] = (X.shape[0] - 1).to(tw.i32)
    Y[1] = last_row(X)
    Y[2] = tw.minimum(X.shape[0], 1).item().to(tw.i32)
    Y[3] = ((X.shape[0] * 0.1).to(tw.f64) == 0.1).to(tw.i32)


@pytest.mark.parametrize("rows", [1, 3])
def test_an_extent_of_one_has_what_other_extents_have(rows):
    """It is a number of compile time, in a kernel that is the same for all extents."""
    y = np.full(4, -1, np.int32)
    run(extents, 1, np.zeros((rows, 2), np.float32), y)
    assert y.tolist() == [rows - 1, rows - 1, 1, rows == 1]


@tw.kernel
def inverted(Y, n):
    Y[0] = ~n
    Y[1] = ~tw.program_id(0)


def test_inverted_scalars_have_a_text_that_is_read():
    y = np.full(2, 77, np.int64)
    parse_module(ir(inverted, y, 5)).verify()
    run(inverted, 1, y, 5)
    assert y.tolist() == [~5, ~0]
