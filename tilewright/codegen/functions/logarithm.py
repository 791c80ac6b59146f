"""log, log2, log10, log1p.

    x = m 2^e, m in [sqrt(1/2), sqrt(2))        log x = e ln 2 + log(1 + f), f = m - 1

The parts add from small to large, and e ln 2 in two parts, so that the sum rounds about once.
Denormals are scaled up first. x = 0 gives -inf, a negative x NaN.
"""

from __future__ import annotations

from tilewright.codegen.functions.exponential import INTEGER, LN2_SPLIT, MANTISSA
from tilewright.codegen.lane_ops import Lanes

# log(1 + f) = f - f^2 / 2 + f^3 p(f)
LOG_F32 = (
    0.06971611827611923,
    -0.11479733884334564,
    0.11685419827699661,
    -0.12425687164068222,
    0.14249058067798615,
    -0.1666780263185501,
    0.20000715553760529,
    -0.2499999701976776,
    0.3333333134651184,
)
# log((1 + s) / (1 - s)) = 2 s + s^3 p(s^2), s = f / (2 + f)
LOG_F64 = (
    0.13089445145246312,
    0.1326850331279476,
    0.15386249788196105,
    0.181817954545265,
    0.2222222239345263,
    0.28571428570795937,
    0.4000000000000089,
    0.6666666666666666,
)
LOG10_E = 0.4342944819032518
LOG10_2_SPLIT = {
    "float": (0.301025390625, 4.605038981195214e-06),
    "double": (0.30102999566383914, 1.4205023227266099e-13),
}
_SQRT_HALF = {"float": 0x3F3504F3, "double": 0x3FE6A09E667F3BCD}
_SMALLEST_NORMAL = {"float": 2.0**-126, "double": 2.0**-1022}


def _split(o: Lanes, s: str, x: str) -> tuple[str, str]:
    """(f, e): x = (1 + f) 2^e, e as a float; x positive and finite, denormals included."""
    t, i, m = o.type(s), INTEGER[s], MANTISSA[s]
    integer = o.type(i)
    small = o.fcmp("olt", t, x, o.const(s, _SMALLEST_NORMAL[s]))
    up = o.op("fmul", t, x, o.const(s, 2.0 ** (m + 1)))
    x = o.select(small, t, up, x)
    base = o.const(i, _SQRT_HALF[s])
    above = o.op("sub", integer, o.bitcast(t, x, integer), base)
    e = o.op("ashr", integer, above, o.const(i, m))
    down = o.select(small, integer, o.const(i, m + 1), o.const(i, 0))
    e = o.op("sub", integer, e, down)
    mantissa = o.op("and", integer, above, o.const(i, (1 << m) - 1))
    one_plus_f = o.bitcast(integer, o.op("add", integer, mantissa, base), t)
    f = o.op("fsub", t, one_plus_f, o.const(s, 1.0))
    return f, o.cast("sitofp", integer, e, t)


def _mend(o: Lanes, s: str, x: str, value: str) -> str:
    """Put in what log gives for 0, negative numbers, infinity and NaN."""
    t = o.type(s)
    infinity = o.const(s, float("inf"))
    value = o.select(o.fcmp("oeq", t, x, infinity), t, infinity, value)
    zero = o.const(s, 0.0)
    value = o.select(o.fcmp("oeq", t, x, zero), t, o.const(s, float("-inf")), value)
    bad = o.fcmp("ult", t, x, zero)
    return o.select(bad, t, o.const(s, float("nan")), value)


def _tail(o: Lanes, s: str, f: str) -> str:
    """log(1 + f) - f, to the precision that adding f leaves."""
    t = o.type(s)
    square = o.op("fmul", t, f, f)
    half = o.op("fmul", t, square, o.const(s, 0.5))
    if s == "float":
        cubic = o.op("fmul", t, o.op("fmul", t, square, f), o.horner(s, f, LOG_F32))
        return o.op("fsub", t, cubic, half)
    ratio = o.op("fdiv", t, f, o.op("fadd", t, f, o.const(s, 2.0)))
    z = o.op("fmul", t, ratio, ratio)
    rest = o.op("fmul", t, z, o.horner(s, z, LOG_F64))
    product = o.op("fmul", t, ratio, o.op("fadd", t, half, rest))
    return o.op("fsub", t, product, half)


def log(o: Lanes, s: str, x: str, fast: bool) -> str:
    """Natural logarithm."""
    t = o.type(s)
    f, e = _split(o, s, x)
    high, low = LN2_SPLIT[s]
    value = o.fmuladd(s, e, o.const(s, low), _tail(o, s, f))
    value = o.op("fadd", t, f, value)
    return _mend(o, s, x, o.fmuladd(s, e, o.const(s, high), value))


def log2(o: Lanes, s: str, x: str, fast: bool) -> str:
    """Logarithm to base 2: log2(e) = 1 + 0.4427 so that the large part multiplies exactly."""
    t = o.type(s)
    f, e = _split(o, s, x)
    tail = _tail(o, s, f)
    rest = o.const(s, 0.4426950408889634)
    value = o.op("fmul", t, tail, rest)
    value = o.fmuladd(s, f, rest, value)
    value = o.op("fadd", t, value, tail)
    value = o.op("fadd", t, value, f)
    return _mend(o, s, x, o.op("fadd", t, value, e))


def log10(o: Lanes, s: str, x: str, fast: bool) -> str:
    """Logarithm to base 10."""
    t = o.type(s)
    f, e = _split(o, s, x)
    high, low = LOG10_2_SPLIT[s]
    factor = o.const(s, LOG10_E)
    value = o.op("fmul", t, o.op("fadd", t, f, _tail(o, s, f)), factor)
    value = o.fmuladd(s, e, o.const(s, low), value)
    return _mend(o, s, x, o.fmuladd(s, e, o.const(s, high), value))


def log1p(o: Lanes, s: str, x: str, fast: bool) -> str:
    """log(1 + x), mended by what 1 + x lost; near 0 it is x itself."""
    t = o.type(s)
    one = o.const(s, 1.0)
    u = o.op("fadd", t, x, one)
    lost = o.op("fsub", t, x, o.op("fsub", t, u, one))
    value = log(o, s, u, fast)
    mended = o.op("fadd", t, value, o.op("fdiv", t, lost, u))
    finite = o.fcmp("olt", t, o.intrinsic("fabs", s, value), o.const(s, float("inf")))
    value = o.select(finite, t, mended, value)
    tiny = o.fcmp("oeq", t, u, one)
    return o.select(tiny, t, x, value)
