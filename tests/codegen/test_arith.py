"""arith and math.abs/min/max on every x86 level of this machine, against numpy, on bits where the result is exact."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tests.codegen.harness import LEVELS, map_vectors
from tilewright.codegen import x86

N = 64
FLOATS = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
}
INTS = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}


def bits(x: np.ndarray) -> np.ndarray:
    return x.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[x.itemsize])


def same(got: np.ndarray, wanted: np.ndarray) -> None:
    """Equal bits, any NaN for any NaN."""
    wide, other = got.astype(np.float64), wanted.astype(np.float64)
    nan = np.isnan(wide) & np.isnan(other)
    differ = ~nan & (bits(got) != bits(wanted))
    assert not differ.any(), (got[differ][:4], wanted[differ][:4], np.flatnonzero(differ)[:4])


def hard_floats(rng: np.random.Generator, dtype: type, size: int = N) -> np.ndarray:
    """All kinds: ordinary, tiny, huge, denormal, zeros, infinities, NaN."""
    info = ml_dtypes.finfo(dtype)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, float(info.max), float(info.tiny)]
    special += [
        float(info.smallest_subnormal),
        -float(info.smallest_subnormal),
        3 * float(info.smallest_subnormal),
    ]
    with np.errstate(all="ignore"):
        spread = np.exp2(
            rng.uniform(np.log2(float(info.smallest_subnormal)), np.log2(float(info.max)), size)
        )
        values = np.where(
            rng.random(size) < 0.5, rng.normal(size=size), spread * rng.choice([-1, 1], size)
        )
        values[: len(special)] = special
        rng.shuffle(values)
        return values.astype(dtype)


def vec(t: str, n: int = N) -> str:
    return f"vector<{n}x{t}>"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "op, function",
    [("addf", np.add), ("subf", np.subtract), ("mulf", np.multiply), ("divf", np.divide)],
)
@pytest.mark.parametrize("t", FLOATS)
def test_float_arithmetic(level, op, function, t, rng) -> None:
    x, y = hard_floats(rng, FLOATS[t]), hard_floats(rng, FLOATS[t])
    got = map_vectors(
        f"%r = arith.{op} %x0, %x1 : {vec(t)}", [x, y], [vec(t)] * 2, vec(t), FLOATS[t], x86(level)
    )
    with np.errstate(all="ignore"):
        wide = np.float64 if t == "f64" else np.float32
        same(got, function(x.astype(wide), y.astype(wide)).astype(FLOATS[t]))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("to", FLOATS)
@pytest.mark.parametrize("source", FLOATS)
def test_float_conversions(level, source, to, rng) -> None:
    if source == to:
        return
    x = hard_floats(rng, FLOATS[source], 512)
    with np.errstate(all="ignore"):
        if source == "f64" and to not in ("f32",):
            # Ties of the narrow type moved by less than f32 can tell: two roundings would go wrong.
            half = hard_floats(rng, FLOATS[to], 512).astype(np.float64)
            x = (
                half
                * (1 + 2.0**-50 * rng.integers(-3, 4, 512))
                * rng.choice([1, 1 + 2.0 ** -(ml_dtypes.finfo(FLOATS[to]).nmant + 1)], 512)
            )
    order = list(FLOATS)
    op = (
        "extf"
        if order.index(source) > order.index(to) and {source, to} != {"f16", "bf16"}
        else "truncf"
    )
    # f16 and bf16 convert through f32; f8 types likewise.
    sizes = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "f8E4M3FN": 1, "f8E5M2": 1}
    if sizes[source] == sizes[to]:
        body = f"%w = arith.extf %x0 : {vec(source, 64)} to {vec('f32', 64)}\n"
        body += f"%r = arith.truncf %w : {vec('f32', 64)} to {vec(to, 64)}"
    else:
        op = "extf" if sizes[source] < sizes[to] else "truncf"
        body = f"%r = arith.{op} %x0 : {vec(source, 64)} to {vec(to, 64)}"
    got = map_vectors(body, [x], [vec(source, 64)], vec(to, 64), FLOATS[to], x86(level), parts=8)
    with np.errstate(all="ignore"):
        same(got, round_once(x, to))


def round_once(x: np.ndarray, to: str) -> np.ndarray:
    """Correct rounding from any float, by exact search among the neighbours (numpy itself rounds twice from f64)."""
    dtype = FLOATS[to]
    if x.dtype != np.float64 or to in ("f64", "f32", "f16"):
        return (
            x.astype(np.float32).astype(dtype)
            if x.itemsize < 4 and to != "f64"
            else x.astype(dtype)
        )
    near = x.astype(np.float32).astype(dtype)
    out = near.copy()
    info = ml_dtypes.finfo(dtype)
    for i, v in enumerate(x):
        if not np.isfinite(v) or abs(v) > float(info.max):
            continue
        best = None
        base = int(bits(near)[i])
        for b in (base - 1, base, base + 1):
            if not 0 <= b < 1 << (8 * near.itemsize):
                continue
            c = np.array([b], bits(near).dtype).view(dtype)[0]
            if not np.isfinite(float(c)) or np.signbit(float(c)) != np.signbit(v):
                continue
            key = (abs(float(c) - v), b & 1)
            if best is None or key < best[0]:
                best = (key, c)
        if best is not None:
            out[i] = best[1]
    return out


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("source", ["f32", "f64"])
def test_tf32(level, source, rng) -> None:
    x = hard_floats(rng, FLOATS[source])
    body = f"%r = arith.truncf %x0 : {vec(source)} to {vec('tf32')}"
    got = map_vectors(body, [x], [vec(source)], vec("tf32"), np.float32, x86(level))
    assert not (bits(got)[~np.isnan(got)] & 0x1FFF).any(), "13 low bits are not zero"
    with np.errstate(all="ignore"):
        ok = np.isfinite(x) & (np.abs(x) < 3e38) & (np.abs(x) > 1e-37)
        assert (
            np.abs(got[ok].astype(np.float64) - x[ok])
            <= 2.0**-11 * np.abs(x[ok]).astype(np.float64)
        ).all()
        assert (np.isnan(got) == np.isnan(x)).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("t", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("op", ["maximumf", "minimumf", "maxnumf", "minnumf"])
def test_float_extremes(level, t, op, rng) -> None:
    x, y = hard_floats(rng, FLOATS[t]), hard_floats(rng, FLOATS[t])
    x[:4], y[:4] = [0.0, -0.0, np.nan, 1.0], [-0.0, 0.0, 1.0, np.nan]
    got = map_vectors(
        f"%r = arith.{op} %x0, %x1 : {vec(t)}", [x, y], [vec(t)] * 2, vec(t), FLOATS[t], x86(level)
    )
    functions = {
        "maximumf": np.maximum,
        "minimumf": np.minimum,
        "maxnumf": np.fmax,
        "minnumf": np.fmin,
    }
    a, b = x.astype(np.float64), y.astype(np.float64)
    wanted = functions[op](a, b)
    assert (
        (got.astype(np.float64) == wanted) | (np.isnan(wanted) & np.isnan(got.astype(np.float64)))
    ).all()
    if op in ("maximumf", "minimumf"):
        zeros = np.signbit(got[:2].astype(np.float64))
        assert (zeros == (op == "minimumf")).all(), "maximum of zeros is +0, minimum -0"


@pytest.mark.parametrize("constant", [0.0, -0.0, 1.5, -np.inf, np.nan])
@pytest.mark.parametrize("t", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("op", ["maximumf", "minimumf", "maxnumf", "minnumf"])
def test_extremes_of_a_constant(t, op, constant, rng) -> None:
    """A constant takes fewer instructions, and gives what the op gives of a value that nobody knows."""
    x = hard_floats(rng, FLOATS[t])
    x[:4] = [0.0, -0.0, np.nan, constant]
    y = np.full_like(x, constant)
    text = f"%c = arith.constant dense<0x{bits(y)[0]:0{2 * y.itemsize}X}> : {vec(t)}"
    for order in ("%x0, {}", "{}, %x0"):
        op_of = f"%r = arith.{op} {order} : {vec(t)}"
        known = f"{text}\n{op_of.format('%c')}"
        got = map_vectors(known, [x], [vec(t)], vec(t), FLOATS[t])
        wanted = map_vectors(op_of.format("%x1"), [x, y], [vec(t)] * 2, vec(t), FLOATS[t])
        zero = (got == 0) & (wanted == 0)
        if op in ("maxnumf", "minnumf"):  # of zeros, either
            got, wanted = got[~zero], wanted[~zero]
        same(got, wanted)


@pytest.mark.parametrize("t", ["f32", "f64", "f16", "bf16", "f8E4M3FN", "f8E5M2"])
def test_sign_ops(t, rng) -> None:
    x = hard_floats(rng, FLOATS[t])
    got = map_vectors(f"%r = arith.negf %x0 : {vec(t)}", [x], [vec(t)], vec(t), FLOATS[t])
    np.testing.assert_array_equal(
        bits(got), bits(x) ^ np.array(1 << (8 * x.itemsize - 1), bits(x).dtype)
    )
    got = map_vectors(f"%r = math.absf %x0 : {vec(t)}", [x], [vec(t)], vec(t), FLOATS[t])
    np.testing.assert_array_equal(
        bits(got), bits(x) & np.array((1 << (8 * x.itemsize - 1)) - 1, bits(x).dtype)
    )


def floor_div(a, b):
    return a // b


INTEGER_OPS = {
    "addi": np.add,
    "subi": np.subtract,
    "muli": np.multiply,
    "andi": np.bitwise_and,
    "ori": np.bitwise_or,
    "xori": np.bitwise_xor,
    "minsi": np.minimum,
    "maxsi": np.maximum,
    "floordivsi": np.floor_divide,
    "ceildivsi": lambda a, b: -(-a // b),
    "divsi": lambda a, b: (
        np.sign(a) * np.sign(b) * (np.abs(a.astype(object)) // np.abs(b.astype(object)))
    ).astype(a.dtype),
    "remsi": np.fmod,
}


@pytest.mark.parametrize("t", INTS)
@pytest.mark.parametrize("op", INTEGER_OPS)
def test_integer_arithmetic(t, op, rng) -> None:
    info = np.iinfo(INTS[t])
    x = rng.integers(info.min + 1, info.max, N, endpoint=True).astype(INTS[t])
    y = rng.integers(1, 100, N).astype(INTS[t]) * rng.choice([-1, 1], N).astype(INTS[t])
    got = map_vectors(f"%r = arith.{op} %x0, %x1 : {vec(t)}", [x, y], [vec(t)] * 2, vec(t), INTS[t])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, INTEGER_OPS[op](x, y))


@pytest.mark.parametrize("t", INTS)
@pytest.mark.parametrize(
    "op, function",
    [
        ("divui", np.floor_divide),
        ("remui", np.remainder),
        ("minui", np.minimum),
        ("maxui", np.maximum),
        ("ceildivui", lambda a, b: a // b + (a % b != 0).astype(a.dtype)),
        ("shrui", lambda a, b: a >> (b % (8 * a.itemsize))),
    ],
)
def test_unsigned_arithmetic(t, op, function, rng) -> None:
    unsigned = bits(np.zeros(1, INTS[t])).dtype
    x = rng.integers(0, np.iinfo(unsigned).max, N, dtype=unsigned, endpoint=True)
    y = rng.integers(1, 100, N).astype(unsigned)
    if op == "shrui":
        y %= 8 * y.itemsize
    got = map_vectors(
        f"%r = arith.{op} %x0, %x1 : {vec(t)}", [x, y], [vec(t)] * 2, vec(t), unsigned
    )
    np.testing.assert_array_equal(got, function(x, y))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("t", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize("i", INTS)
def test_integers_and_floats(level, t, i, rng) -> None:
    limit = min(np.iinfo(INTS[i]).max, 30000)
    x = rng.integers(-limit, limit, N).astype(INTS[i])
    got = map_vectors(
        f"%r = arith.sitofp %x0 : {vec(i)} to {vec(t)}",
        [x],
        [vec(i)],
        vec(t),
        FLOATS[t],
        x86(level),
    )
    same(
        got,
        x.astype(np.float64).astype(FLOATS[t])
        if t != "bf16"
        else x.astype(np.float32).astype(FLOATS[t]),
    )
    y = (rng.uniform(-100, 100, N)).astype(FLOATS[t])
    got = map_vectors(
        f"%r = arith.fptosi %x0 : {vec(t)} to {vec(i)}", [y], [vec(t)], vec(i), INTS[i], x86(level)
    )
    np.testing.assert_array_equal(got, np.trunc(y.astype(np.float64)).astype(INTS[i]))
    z = (rng.uniform(0, 200, N)).astype(FLOATS[t])
    unsigned = bits(np.zeros(1, INTS[i])).dtype
    got = map_vectors(
        f"%r = arith.fptoui %x0 : {vec(t)} to {vec(i)}", [z], [vec(t)], vec(i), unsigned, x86(level)
    )
    np.testing.assert_array_equal(got, np.trunc(z.astype(np.float64)).astype(unsigned))
    w = rng.integers(0, np.iinfo(unsigned).max, N, dtype=unsigned, endpoint=True)
    if t in ("f32", "f64"):
        got = map_vectors(
            f"%r = arith.uitofp %x0 : {vec(i)} to {vec(t)}",
            [w],
            [vec(i)],
            vec(t),
            FLOATS[t],
            x86(level),
        )
        same(got, w.astype(FLOATS[t]))


DIGITS = {"f16": 11, "bf16": 8}


def rounded(x: np.ndarray, t: str) -> np.ndarray:
    """Integers to the nearest float of a type, ties to even, rounded once."""

    def near(n: int) -> int:
        unit = 1 << max(abs(n).bit_length() - DIGITS[t], 0)
        return round(Fraction(n, unit)) * unit

    with np.errstate(over="ignore"):
        return np.array([near(int(n)) for n in x], np.float32).astype(FLOATS[t])


def near_ties(rng: np.random.Generator, width: int, digits: int) -> np.ndarray:
    """Unsigned integers of every length, half of them at the middle of two floats of so many digits or next to it."""
    found = [(1 << 24) + 1, (1 << width - 7) + (1 << width - 16) + 1, (1 << width - 1) - 1, 65520]
    while len(found) < N:
        n = int.from_bytes(rng.bytes(8), "little") >> 64 - int(rng.integers(1, width + 1))
        half = 1 << max(n.bit_length() - digits - 1, 0)
        tie = n // (half * 2) * half * 2 + half + int(rng.integers(-1, 2))
        found.append((tie if rng.random() < 0.5 else n) % (1 << width))
    return np.array(found, f"u{width // 8}")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("t", DIGITS)
@pytest.mark.parametrize("i", ["i32", "i64"])
@pytest.mark.parametrize("op", ["sitofp", "uitofp"])
def test_integers_round_once(level, t, i, op, rng) -> None:
    """What is beyond f16 is infinite."""
    for _ in range(8):
        x = near_ties(rng, int(i[1:]), DIGITS[t])
        x = x.view(INTS[i]) if op == "sitofp" else x
        body = f"%r = arith.{op} %x0 : {vec(i)} to {vec(t)}"
        same(map_vectors(body, [x], [vec(i)], vec(t), FLOATS[t], x86(level)), rounded(x, t))


@pytest.mark.parametrize(
    "predicate, function",
    [
        ("oeq", np.equal),
        ("ogt", np.greater),
        ("ole", np.less_equal),
        ("une", np.not_equal),
        ("ult", lambda a, b: ~(a >= b)),
        ("uno", lambda a, b: np.isnan(a) | np.isnan(b)),
        ("ord", lambda a, b: ~(np.isnan(a) | np.isnan(b))),
    ],
)
@pytest.mark.parametrize("t", ["f32", "bf16", "f16", "f64"])
def test_comparison_and_select(predicate, function, t, rng) -> None:
    x, y = hard_floats(rng, FLOATS[t]), hard_floats(rng, FLOATS[t])
    y[::3] = x[::3]
    body = f"%m = arith.cmpf {predicate}, %x0, %x1 : {vec(t)}\n%r = arith.select %m, %x0, %x1 : {vec('i1')}, {vec(t)}"
    got = map_vectors(body, [x, y], [vec(t)] * 2, vec(t), FLOATS[t])
    a, b = x.astype(np.float64), y.astype(np.float64)
    np.testing.assert_array_equal(bits(got), bits(np.where(function(a, b), x, y)))


def test_extensions(rng) -> None:
    x = rng.integers(-128, 128, N).astype(np.int8)
    for op, wanted in (("extsi", x.astype(np.int64)), ("extui", x.view(np.uint8).astype(np.int64))):
        got = map_vectors(
            f"%r = arith.{op} %x0 : {vec('i8')} to {vec('i64')}",
            [x],
            [vec("i8")],
            vec("i64"),
            np.int64,
        )
        np.testing.assert_array_equal(got, wanted)
    wide = rng.integers(-(2**62), 2**62, N)
    got = map_vectors(
        f"%r = arith.trunci %x0 : {vec('i64')} to {vec('i16')}",
        [wide],
        [vec("i64")],
        vec("i16"),
        np.int16,
    )
    np.testing.assert_array_equal(got, wide.astype(np.int16))
    mask = rng.random(N) < 0.5
    got = map_vectors(
        "%r = arith.extui %x0 : vector<64xi1> to vector<64xi32>",
        [mask],
        [vec("i1")],
        vec("i32"),
        np.int32,
    )
    np.testing.assert_array_equal(got, mask.astype(np.int32))
    got = map_vectors(
        "%t = arith.constant dense<true> : vector<64xi1>\n%r = arith.xori %x0, %t : vector<64xi1>",
        [mask],
        [vec("i1")],
        vec("i1"),
        np.bool_,
    )
    np.testing.assert_array_equal(got, ~mask)
