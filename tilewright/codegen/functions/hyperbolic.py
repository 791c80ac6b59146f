"""expm1, and the hyperbolic functions but for tanh: of exp, log1p, and polynomials near 0."""

from __future__ import annotations

from tilewright.codegen.functions.exponential import exp
from tilewright.codegen.functions.logarithm import log, log1p
from tilewright.codegen.lane_ops import Lanes

# sinh x = x + x^3 p(x^2) for |x| <= 1
SINH = {
    "float": (
        2.806280235745362e-06,
        0.00019838102161884308,
        0.008333339355885983,
        0.1666666716337204,
    ),
    "double": (
        7.746178593018827e-13,
        1.6057679623801638e-10,
        2.5052117695907823e-08,
        2.7557319191381816e-06,
        0.00019841269841324198,
        0.008333333333333299,
        0.16666666666666666,
    ),
}
# e^x - 1 = x + x^2 (1/2 + x p(x)) for |x| <= 1/2
EXPM1 = {
    "float": (
        0.00019927581888623536,
        0.0013966609258204699,
        0.008333279751241207,
        0.041666179895401,
        0.1666666716337204,
        0.5,
    ),
    "double": (
        1.6111702739215268e-10,
        2.0955762289494408e-09,
        2.5051976670128072e-08,
        2.755712159501279e-07,
        2.755731936808379e-06,
        2.480158751780227e-05,
        0.00019841269841205505,
        0.0013888888888792352,
        0.008333333333333342,
        0.04166666666666679,
        0.16666666666666666,
        0.5,
    ),
}
LARGE = {"float": 2.0**13, "double": 2.0**28}
"""From here on x^2 + 1 is x^2."""
LN2 = 0.6931471805599453


def expm1(o: Lanes, s: str, x: str, fast: bool) -> str:
    """e^x - 1."""
    t = o.type(s)
    small = o.fmuladd(s, o.op("fmul", t, x, x), o.horner(s, x, EXPM1[s]), x)
    large = o.op("fsub", t, exp(o, s, x, False), o.const(s, 1.0))
    near = o.fcmp("olt", t, o.intrinsic("fabs", s, x), o.const(s, 0.5))
    return o.intrinsic("copysign", s, o.select(near, t, small, large), x)


def _powers(o: Lanes, s: str, x: str) -> tuple[str, str]:
    """e^|x| / 2, which is finite where e^|x| may not be, and e^-|x| / 2."""
    half = exp(o, s, o.intrinsic("fabs", s, x), False, power=-1)
    return half, o.op("fdiv", o.type(s), o.const(s, 0.25), half)


def sinh(o: Lanes, s: str, x: str, fast: bool) -> str:
    """Hyperbolic sine."""
    t = o.type(s)
    z = o.op("fmul", t, x, x)
    small = o.odd(s, x, z, SINH[s])
    large = o.intrinsic("copysign", s, o.op("fsub", t, *_powers(o, s, x)), x)
    near = o.fcmp("olt", t, o.intrinsic("fabs", s, x), o.const(s, 1.0))
    return o.select(near, t, small, large)


def cosh(o: Lanes, s: str, x: str, fast: bool) -> str:
    """Hyperbolic cosine."""
    return o.op("fadd", o.type(s), *_powers(o, s, x))


def _log_or(o: Lanes, s: str, size: str, plus_one: str) -> str:
    """log(1 + plus_one); log(2 size) where a size is large."""
    t = o.type(s)
    large = o.op("fadd", t, log(o, s, size, False), o.const(s, LN2))
    far = o.fcmp("ogt", t, size, o.const(s, LARGE[s]))
    return o.select(far, t, large, log1p(o, s, plus_one, False))


def asinh(o: Lanes, s: str, x: str, fast: bool) -> str:
    """log(x + sqrt(x^2 + 1)), with x's sign."""
    t, one = o.type(s), o.const(s, 1.0)
    size = o.intrinsic("fabs", s, x)
    z = o.op("fmul", t, x, x)
    root = o.intrinsic("sqrt", s, o.op("fadd", t, z, one))
    more = o.op("fadd", t, size, o.op("fdiv", t, z, o.op("fadd", t, root, one)))
    return o.intrinsic("copysign", s, _log_or(o, s, size, more), x)


def acosh(o: Lanes, s: str, x: str, fast: bool) -> str:
    """log(x + sqrt(x^2 - 1)); NaN below 1."""
    t = o.type(s)
    more = o.op("fsub", t, x, o.const(s, 1.0))
    square = o.fmuladd(s, more, more, o.op("fadd", t, more, more))
    return _log_or(o, s, x, o.op("fadd", t, more, o.intrinsic("sqrt", s, square)))


def atanh(o: Lanes, s: str, x: str, fast: bool) -> str:
    """log((1 + x) / (1 - x)) / 2, with x's sign; NaN beyond 1."""
    t = o.type(s)
    size = o.intrinsic("fabs", s, x)
    ratio = o.op("fdiv", t, o.op("fadd", t, size, size), o.op("fsub", t, o.const(s, 1.0), size))
    half = o.op("fmul", t, log1p(o, s, ratio, False), o.const(s, 0.5))
    return o.intrinsic("copysign", s, half, x)
