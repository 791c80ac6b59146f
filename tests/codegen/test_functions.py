"""Elementary functions: error in units of the last place against a wider reference, and what special values give."""

import mpmath
import numpy as np
import pytest

from tests.codegen.harness import LEVELS, Function, map_vectors
from tilewright.codegen import x86
from tilewright.codegen.jit import compile_assembly

N = 1 << 14
TYPES = {"f32": np.float32, "f64": np.float64}

# (function, reference, low, high, ulp accurate, ulp with afn in f32): the table of docs/emitter.md
TABLE = [
    ("exp", np.exp, -87.3, 88.7, 1, 5),
    ("exp2", np.exp2, -125.9, 127.9, 1, 1.5),
    ("log", np.log, 1e-30, 1e30, 1, 1),
    ("log2", np.log2, 1e-30, 1e30, 1.5, 1.5),
    ("log10", np.log10, 1e-30, 1e30, 2, 2),
    ("log1p", np.log1p, -0.99, 100.0, 1.5, 1.5),
    ("sin", np.sin, -100.0, 100.0, 1.6, 1.6),
    ("cos", np.cos, -100.0, 100.0, 1.6, 1.6),
    ("tanh", np.tanh, -12.0, 12.0, 1.5, 2.5),
    ("rsqrt", lambda x: 1 / np.sqrt(x), 1e-30, 1e30, 1.5, 1.5),
    ("tan", np.tan, -100.0, 100.0, 3.2, 3.2),
    ("atan", np.arctan, -1e30, 1e30, 1.5, 1.5),
    ("asin", np.arcsin, -1.0, 1.0, 2.5, 2.5),
    ("acos", np.arccos, -1.0, 1.0, 1.5, 1.5),
    ("cbrt", np.cbrt, -1e30, 1e30, 1, 1),
    ("expm1", np.expm1, -80.0, 80.0, 2, 2),
    ("sinh", np.sinh, -88.0, 88.0, 2, 2),
    ("cosh", np.cosh, -88.0, 88.0, 2, 2),
    ("asinh", np.arcsinh, -1e30, 1e30, 2, 2),
    ("acosh", np.arccosh, 1.0, 1e30, 2, 2),
    ("atanh", np.arctanh, -0.9999, 0.9999, 2.5, 2.5),
]


def run(
    name: str, x: np.ndarray, t: str, flags: str, level: str, lanes: int = 16, attributes: str = ""
) -> np.ndarray:
    text = f"""
    func.func @k(%p : !llvm.ptr, %q : !llvm.ptr, %n : index) {{
      %step = arith.constant {lanes * x.itemsize} : index
      scf.for %i = %c0 to %n step %step {{
        %a = mach.ptr_add %p, %i : !llvm.ptr
        %b = mach.ptr_add %q, %i : !llvm.ptr
        %x = mach.load %a : !llvm.ptr -> vector<{lanes}x{t}>
        %y = math.{name} %x fastmath<{flags}> {attributes}: vector<{lanes}x{t}>
        mach.store %y, %b : vector<{lanes}x{t}>, !llvm.ptr
      }}
      func.return
    }}"""
    y = np.full_like(x, 77)
    Function(text, target=x86(level))(x, y, x.nbytes)
    return y


def ulps(got: np.ndarray, wanted: np.ndarray) -> float:
    """Largest error in units of the last place of the rounded reference."""
    with np.errstate(all="ignore"):
        near = wanted.astype(got.dtype)
        assert np.isfinite(got).all()
        return float((np.abs(got.astype(wanted.dtype) - wanted) / np.spacing(np.abs(near))).max())


def spread(low: float, high: float, rng: np.random.Generator, dtype: type) -> np.ndarray:
    """Half uniform, half with every order of magnitude, within [low, high]."""
    uniform = rng.uniform(max(low, -1e4), min(high, 1e4), N // 2)
    size = np.exp(rng.uniform(np.log(1e-6), np.log(high), N))
    sign = rng.choice([-1.0, 1.0], N) if low < 0 else np.ones(N)
    orders = (size * sign)[(size * sign >= low) & (size * sign <= high)]
    x = np.concatenate([uniform, orders])
    return x[: x.size // 64 * 64].astype(dtype)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("t", TYPES)
@pytest.mark.parametrize("name, reference, low, high, accurate, fast", TABLE)
def test_error(level, t, name, reference, low, high, accurate, fast, rng) -> None:
    x = spread(low, high, rng, TYPES[t])
    wanted = reference(x.astype(np.float64 if t == "f32" else np.longdouble))
    assert ulps(run(name, x, t, "none", level), wanted) <= accurate + 0.5
    bound = fast if t == "f32" else accurate
    assert ulps(run(name, x, t, "afn", level), wanted) <= bound + 0.5


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("t, most, end", [("f32", 88.73, 89.41), ("f64", 709.79, 710.47)])
def test_hyperbolic_functions_where_e_to_the_x_is_infinite(t, most, end, level, rng) -> None:
    x = (rng.uniform(most, end, 64) * rng.choice([-1, 1], 64)).astype(TYPES[t])
    for name in ("sinh", "cosh"):
        wanted = getattr(np, name)(x.astype(np.float64 if t == "f32" else np.longdouble))
        assert ulps(run(name, x, t, "none", level), wanted) <= 2.5


@pytest.mark.parametrize("flags", ["none", "afn"])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 12, 32])
@pytest.mark.parametrize("t", TYPES)
@pytest.mark.parametrize("name", ["exp", "exp2", "log", "tanh"])
def test_any_number_of_lanes(name, t, lanes, flags, rng) -> None:
    """Registers of every width take the same values, also where a machine has an instruction for some."""
    x = rng.uniform(0.1, 9, 96).astype(TYPES[t])
    wanted = getattr(np, name)(x.astype(np.longdouble))
    assert ulps(run(name, x, t, flags, LEVELS[-1], lanes), wanted) <= 5.5


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("t", TYPES)
def test_erf(level, t, rng) -> None:
    x = np.concatenate([rng.normal(size=512), rng.uniform(-5, 5, 512)]).astype(TYPES[t])
    wanted = np.array([np.longdouble(mpmath.nstr(mpmath.erf(float(v)), 25)) for v in x])
    assert ulps(run("erf", x, t, "none", level), wanted) <= 2.5
    assert ulps(run("erf", x, t, "afn", level, 32), wanted) <= (7.5 if t == "f32" else 2.5)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bits", [8, 11])
def test_erfc_of_few_bits(bits: int, level: str, rng) -> None:
    """Two bits more than are asked for, wherever 1 - erf of f32 is not 0."""
    x = np.concatenate([rng.uniform(-5, 3.92, N - 64), rng.uniform(3.9201, 1e3, 64)])
    x[:4] = -np.inf, 3.92, 0.0, -3e38
    x = x.astype(np.float32)
    y = run("erfc", x, "f32", "afn", level, 32, f"{{mach.bits = {bits} : i64}} ")
    wanted = np.array([float(mpmath.erfc(float(v))) for v in x])
    near = x <= np.float32(3.92)
    assert np.abs(y[near] / wanted[near] - 1).max() <= 2.0 ** -(bits + 2)
    assert (y[~near] == 0).all() and (wanted[~near] < 2.0**-24.9).all()
    odd = np.array([np.nan, np.inf] * 16, np.float32)
    y = run("erfc", odd, "f32", "afn", level, 16, f"{{mach.bits = {bits} : i64}} ")
    assert np.isnan(y[::2]).all() and (y[1::2] == 0).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bits", [8, 11])
@pytest.mark.parametrize("c", [-0.7071067811865476, 3.0, 1e9, 1e-9, 1e30])
def test_erfc_of_multiples(c: float, bits: int, level: str, rng) -> None:
    """A constant factor and a sign, in front or behind, keep the precision, the limits and NaN."""
    at = rng.uniform(-5, 3.92, 1024)
    x = (at / c).astype(np.float32)
    x[:3] = np.nan, 3e38, -3e38
    y = np.full_like(x, 77)
    text = f"""
    func.func @k(%p : !llvm.ptr, %q : !llvm.ptr, %n : index) {{
      %step = arith.constant 128 : index
      %c = arith.constant dense<{c:.9e}> : vector<32xf32>
      scf.for %i = %c0 to %n step %step {{
        %a = mach.ptr_add %p, %i : !llvm.ptr
        %b = mach.ptr_add %q, %i : !llvm.ptr
        %x = mach.load %a : !llvm.ptr -> vector<32xf32>
        %m = arith.negf %x : vector<32xf32>
        %t = arith.mulf %c, %m fastmath<afn> : vector<32xf32>
        %u = arith.negf %t : vector<32xf32>
        %y = math.erfc %u fastmath<afn> {{mach.bits = {bits} : i64}} : vector<32xf32>
        mach.store %y, %b : vector<32xf32>, !llvm.ptr
      }}
      func.return
    }}"""
    Function(text, target=x86(level))(x, y, x.nbytes)
    scaled = np.float64(np.float32(c)) * x
    wanted = np.array([float(mpmath.erfc(float(v))) for v in scaled])
    assert np.isnan(y[0]) and (y[scaled > 3.9201] == 0).all()
    near = scaled <= 3.91
    assert near.sum() > 900 and np.abs(y[near] / wanted[near] - 1).max() <= 2.0 ** -(bits + 2)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_large_angles(name, rng) -> None:
    """f32 keeps its bound up to 2^50, where neighbours are 2^26 apart."""
    x = np.exp2(np.concatenate([rng.uniform(13, 50, 1024), rng.uniform(48, 50, 1023)]))
    x = np.append(np.minimum(x, 2.0**50), 1.01435746e15).astype(np.float32)
    x *= rng.choice([-1, 1], x.shape).astype(np.float32)
    with mpmath.workprec(200):
        wanted = np.array([float(getattr(mpmath, name)(mpmath.mpf(float(v)))) for v in x])
    for level in LEVELS[:: len(LEVELS) - 1]:
        assert ulps(run(name, x, "f32", "none", level), wanted) <= 1.6


ODD = [(np.nan, np.nan), (0.0, 0.0), (-0.0, -0.0)]
SPECIAL = {
    "exp": [
        (np.inf, np.inf),
        (-np.inf, 0.0),
        (np.nan, np.nan),
        (0.0, 1.0),
        (1e9, np.inf),
        (-1e9, 0.0),
    ],
    "exp2": [
        (np.inf, np.inf),
        (-np.inf, 0.0),
        (np.nan, np.nan),
        (5.0, 32.0),
        (-3.0, 0.125),
        (1e9, np.inf),
        (-1e9, 0.0),
    ],
    "log": [
        (np.inf, np.inf),
        (-1.0, np.nan),
        (np.nan, np.nan),
        (0.0, -np.inf),
        (-0.0, -np.inf),
        (1.0, 0.0),
    ],
    "log2": [
        (np.inf, np.inf),
        (-1.0, np.nan),
        (0.0, -np.inf),
        (8.0, 3.0),
        (1.0, 0.0),
        (0.25, -2.0),
    ],
    "log10": [(np.inf, np.inf), (-1.0, np.nan), (0.0, -np.inf), (1.0, 0.0)],
    "log1p": [
        (np.inf, np.inf),
        (-1.0, -np.inf),
        (-2.0, np.nan),
        (0.0, 0.0),
        (-0.0, -0.0),
        (1e-30, 1e-30),
    ],
    "sin": [(np.inf, np.nan), (-np.inf, np.nan), (np.nan, np.nan), (0.0, 0.0), (-0.0, -0.0)],
    "cos": [(np.inf, np.nan), (np.nan, np.nan), (0.0, 1.0), (-0.0, 1.0)],
    "tanh": [
        (np.inf, 1.0),
        (-np.inf, -1.0),
        (np.nan, np.nan),
        (0.0, 0.0),
        (-0.0, -0.0),
        (1e-30, 1e-30),
    ],
    "erf": [(np.inf, 1.0), (-np.inf, -1.0), (np.nan, np.nan), (0.0, 0.0), (-0.0, -0.0)],
    "rsqrt": [(np.inf, 0.0), (0.0, np.inf), (4.0, 0.5), (-1.0, np.nan)],
    "tan": [*ODD, (np.inf, np.nan)],
    "atan": [*ODD, (np.inf, np.pi / 2), (-np.inf, -np.pi / 2)],
    "asin": [*ODD, (2.0, np.nan), (1.0, np.pi / 2), (-1.0, -np.pi / 2)],
    "acos": [(np.nan, np.nan), (2.0, np.nan), (1.0, 0.0), (-1.0, np.pi)],
    "cbrt": [*ODD, (np.inf, np.inf), (-np.inf, -np.inf), (8.0, 2.0), (-8.0, -2.0)],
    "expm1": [*ODD, (np.inf, np.inf), (-np.inf, -1.0), (1e-30, 1e-30)],
    "sinh": [*ODD, (np.inf, np.inf), (-np.inf, -np.inf), (1e9, np.inf)],
    "cosh": [(np.nan, np.nan), (0.0, 1.0), (np.inf, np.inf), (-np.inf, np.inf)],
    "asinh": [*ODD, (np.inf, np.inf), (-np.inf, -np.inf)],
    "acosh": [(np.nan, np.nan), (1.0, 0.0), (0.5, np.nan), (-3.0, np.nan), (np.inf, np.inf)],
    "atanh": [*ODD, (1.0, np.inf), (-1.0, -np.inf), (2.0, np.nan)],
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("flags", ["none", "afn"])
@pytest.mark.parametrize("t", TYPES)
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(level, flags, t, name) -> None:
    inputs, wanted = (np.array(v, TYPES[t]) for v in zip(*SPECIAL[name], strict=True))
    got = run(name, np.resize(inputs, 16), t, flags, level)[: len(wanted)]
    np.testing.assert_array_equal(got, wanted)
    zeros = wanted == 0
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(wanted[zeros]))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("flags", ["none", "afn"])
@pytest.mark.parametrize("name", SPECIAL)
def test_nan_of_any_payload(level, flags, name) -> None:
    """Other machines make NaNs with all bits set: no payload may come out as a number."""
    bits = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00001, 0x7F800001] * 4, np.uint32)
    assert np.isnan(run(name, bits.view(np.float32), "f32", flags, level)).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("t", TYPES)
def test_denormals(level, t, rng) -> None:
    """exp reaches every denormal and log reads them; only afn may flush."""
    tiny = float(np.finfo(TYPES[t]).smallest_subnormal)
    bottom = np.log(np.longdouble(tiny))
    x = rng.uniform(float(bottom) + 0.7, float(np.log(float(np.finfo(TYPES[t]).tiny))), 256)
    x = x.astype(TYPES[t])
    wanted = np.exp(x.astype(np.longdouble))
    assert ulps(run("exp", x, t, "none", level), wanted) <= 1.5
    d = (tiny * rng.integers(1, 1 << 20, 256)).astype(TYPES[t])
    assert ulps(run("log", d, t, "none", level), np.log(d.astype(np.longdouble))) <= 1.5
    if t == "f32":
        assert (run("exp", x, t, "afn", level) == 0).all()


@pytest.mark.parametrize("level", LEVELS)
def test_powf(level, rng) -> None:
    x = np.exp(rng.uniform(-8, 8, 256)).astype(np.float32)
    y = rng.uniform(-9, 9, 256).astype(np.float32)
    body = "%r = math.powf %x0, %x1 : vector<256xf32>"
    types = ["vector<256xf32>"] * 2
    got = map_vectors(body, [x, y], types, types[0], np.float32, x86(level))
    assert ulps(got, x.astype(np.float64) ** y.astype(np.float64)) <= 1.0


@pytest.mark.parametrize("level", LEVELS)
def test_powf_special_values(level) -> None:
    inf, nan = np.inf, np.nan
    a = [
        0,
        -0.0,
        1,
        1,
        -1,
        -1,
        2,
        2,
        0.5,
        -2,
        -2,
        -2,
        -2,
        0,
        0,
        -0.0,
        inf,
        -inf,
        -inf,
        nan,
        3,
        nan,
        -8,
    ]
    b = [
        0,
        0,
        nan,
        inf,
        inf,
        -inf,
        inf,
        -inf,
        inf,
        2,
        3,
        0.5,
        -1,
        -1,
        2,
        -3,
        2,
        3,
        0.5,
        0,
        0,
        1,
        1 / 3,
    ]
    x, y = np.array(a, np.float32), np.array(b, np.float32)
    pad = 32 - x.size
    x, y = np.pad(x, (0, pad), constant_values=1), np.pad(y, (0, pad), constant_values=1)
    body = "%r = math.powf %x0, %x1 : vector<32xf32>"
    got = map_vectors(
        body, [x, y], ["vector<32xf32>"] * 2, "vector<32xf32>", np.float32, x86(level)
    )
    with np.errstate(all="ignore"):
        wanted = np.power(x, y)
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(
        np.signbit(got[~np.isnan(got)]), np.signbit(wanted[~np.isnan(got)])
    )


@pytest.mark.parametrize(
    "name, function",
    [
        ("floor", np.floor),
        ("ceil", np.ceil),
        ("trunc", np.trunc),
        ("roundeven", np.rint),
        ("sqrt", np.sqrt),
    ],
)
@pytest.mark.parametrize("t", ["f32", "f64"])
def test_exact_functions(name, function, t, rng) -> None:
    x = (rng.uniform(0, 100, 64)).astype(TYPES[t])
    body = f"%r = math.{name} %x0 : vector<64x{t}>"
    got = map_vectors(body, [x], [f"vector<64x{t}>"], f"vector<64x{t}>", TYPES[t])
    np.testing.assert_array_equal(got, function(x))


@pytest.mark.parametrize("t", ["f32", "f64"])
def test_atan2(t, rng) -> None:
    """All four quadrants, every order of magnitude, and what C says of zeros, infinities and NaN."""
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])
    y, x = (v.ravel() for v in np.meshgrid(special, special))
    size = [np.exp(rng.uniform(-60, 60, 512 - y.size)) for _ in range(2)]
    more = [s * rng.choice([-1, 1], s.shape) for s in size]
    y, x = (np.concatenate([a, b]).astype(TYPES[t]) for a, b in zip((y, x), more, strict=True))
    vector = f"vector<512x{t}>"
    body = f"%r = math.atan2 %x0, %x1 : {vector}"
    got = map_vectors(body, [y, x], [vector] * 2, vector, TYPES[t])
    wanted = np.arctan2(*(v.astype(np.float64 if t == "f32" else np.longdouble) for v in (y, x)))
    known = ~np.isnan(wanted)
    assert np.isnan(got[~known]).all()
    zero = known & (wanted == 0)
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(wanted[zero]))
    assert (got[zero] == 0).all()
    rest = known & (np.abs(wanted) > np.finfo(TYPES[t]).tiny)
    assert ulps(got[rest], wanted[rest]) <= 2.5


def test_powf_of_f64(rng) -> None:
    x, y = rng.uniform(0, 9, 16), rng.uniform(-9, 9, 16)
    body = "%r = math.powf %x0, %x1 : vector<16xf64>"
    got = map_vectors(body, [x, y], ["vector<16xf64>"] * 2, "vector<16xf64>", np.float64)
    np.testing.assert_allclose(got, x**y, rtol=1e-15)


def test_bit_counting(rng) -> None:
    x = rng.integers(1, 1 << 31, 16).astype(np.int32)
    for name, function in (
        ("ctpop", lambda v: bin(v).count("1")),
        ("ctlz", lambda v: 32 - v.bit_length()),
        ("cttz", lambda v: (v & -v).bit_length() - 1),
    ):
        body = f"%r = math.{name} %x0 : vector<16xi32>"
        got = map_vectors(body, [x], ["vector<16xi32>"], "vector<16xi32>", np.int32)
        np.testing.assert_array_equal(got, [function(int(v)) for v in x])


@pytest.mark.parametrize("t, bits", [("bf16", 8), ("f16", 11)])
def test_narrow_types_take_the_short_polynomial(t, bits, rng) -> None:
    """exp2 of bf16 and f16 with afn is accurate to these, from a polynomial of degree 3."""
    import ml_dtypes

    dtype = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}[t]
    x = rng.uniform(-10, 10, 1 << 14).astype(dtype)
    body = f"%r = math.exp2 %x0 fastmath<afn> : vector<64x{t}>"
    got = map_vectors(body, [x], [f"vector<64x{t}>"], f"vector<64x{t}>", dtype, parts=256)
    wanted = np.exp2(x.astype(np.float64))
    assert (np.abs(got.astype(np.float64) - wanted) <= 2.0**-(bits) * 1.2 * wanted).all()


@pytest.mark.parametrize("level", [v for v in LEVELS if v != "x86-64"])
@pytest.mark.parametrize(
    "name", ["exp", "log2", "sin", "tanh", "erf", "tan", "atan", "acos", "cbrt", "sinh", "asinh"]
)
def test_no_call_is_left(level, name) -> None:
    text = f"""
    func.func @k(%p : !llvm.ptr) {{
      %x = mach.load %p : !llvm.ptr -> vector<16xf32>
      %y = math.{name} %x : vector<16xf32>
      mach.store %y, %p : vector<16xf32>, !llvm.ptr
      func.return
    }}"""
    f = Function(text, target=x86(level))
    assert "call" not in compile_assembly(f.llvm, f.target)
