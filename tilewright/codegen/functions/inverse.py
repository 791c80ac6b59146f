"""tan, the inverse trigonometric functions, and the cube root.

atan of more than 1 is pi/2 - atan(1/x); asin beyond 1/2 is pi/2 - 2 asin(sqrt((1 - x) / 2)); the cube root takes one
Newton step from 2^(log2 x / 3).
"""

from __future__ import annotations

from tilewright.codegen.functions.exponential import exp2
from tilewright.codegen.functions.logarithm import log2
from tilewright.codegen.functions.trigonometry import PI_HALF, cos, sin
from tilewright.codegen.lane_ops import Lanes

# atan x = x + x^3 p(x^2) for |x| <= 1
ATAN = {
    "float": (
        0.001488691894337535,
        -0.00914462935179472,
        0.026305001229047775,
        -0.04896051436662674,
        0.07031914591789246,
        -0.08931826800107956,
        0.11088261753320694,
        -0.14284004271030426,
        0.19999949634075165,
        -0.3333333432674408,
    ),
    "double": (
        1.806195461861215e-05,
        -0.00019996189377901382,
        0.0010496035084968515,
        -0.0034958859739163094,
        0.008368931178450162,
        -0.015535152475414177,
        0.023696731580048622,
        -0.031277189066996385,
        0.03749486812535247,
        -0.04260356632601652,
        0.04737749579527779,
        -0.052579733342841106,
        0.05881506877793656,
        -0.06666564699289104,
        0.07692298971033217,
        -0.09090908590891934,
        0.11111111093490827,
        -0.14285714285384132,
        0.1999999999999753,
        -0.3333333333333333,
    ),
}
# asin x = x + x^3 p(x^2) for |x| <= 1/2
ASIN = {
    "float": (
        0.03369084745645523,
        0.017149237915873528,
        0.031100662425160408,
        0.04459940269589424,
        0.07500094175338745,
        0.1666666567325592,
    ),
    "double": (
        0.028169218060881414,
        -0.010749050339697808,
        0.01603551434914882,
        0.0078029494773533175,
        0.011875494382636922,
        0.013929652902326633,
        0.017355259955786323,
        0.02237204763174451,
        0.03038194736709848,
        0.044642857103423646,
        0.07500000000020764,
        0.1666666666666665,
    ),
}


def _from_half_pi(o: Lanes, s: str, x: str, times: int = 1) -> str:
    """times pi/2 - x."""
    t, (high, low, _) = o.type(s), PI_HALF[s]
    return o.op("fsub", t, o.const(s, times * high), o.op("fsub", t, x, o.const(s, times * low)))


def tan(o: Lanes, s: str, x: str, fast: bool) -> str:
    """Tangent of x radians; NaN for an infinite x."""
    return o.op("fdiv", o.type(s), sin(o, s, x, fast), cos(o, s, x, fast))


def atan(o: Lanes, s: str, x: str, fast: bool) -> str:
    """Angle in [-pi/2, pi/2] whose tangent is x."""
    t, one = o.type(s), o.const(s, 1.0)
    size = o.intrinsic("fabs", s, x)
    large = o.fcmp("ogt", t, size, one)
    q = o.select(large, t, o.op("fdiv", t, one, size), size)
    angle = o.odd(s, q, o.op("fmul", t, q, q), ATAN[s])
    return o.intrinsic("copysign", s, o.select(large, t, _from_half_pi(o, s, angle), angle), x)


def atan2(o: Lanes, s: str, y: str, x: str) -> str:
    """Angle in [-pi, pi] of the point (x, y), as C's: signs of zeros count, infinities are far points."""
    t, one, zero = o.type(s), o.const(s, 1.0), o.const(s, 0.0)
    width, height = o.intrinsic("fabs", s, x), o.intrinsic("fabs", s, y)
    steep = o.fcmp("ogt", t, height, width)
    least, most = o.select(steep, t, width, height), o.select(steep, t, height, width)
    q = o.op("fdiv", t, least, most)
    q = o.select(o.fcmp("oeq", t, most, zero), t, zero, q)
    q = o.select(o.fcmp("oeq", t, least, o.const(s, float("inf"))), t, one, q)
    angle = o.odd(s, q, o.op("fmul", t, q, q), ATAN[s])
    angle = o.select(steep, t, _from_half_pi(o, s, angle), angle)
    left = o.fcmp("olt", t, o.intrinsic("copysign", s, one, x), zero)
    angle = o.select(left, t, _from_half_pi(o, s, angle, 2), angle)
    angle = o.intrinsic("copysign", s, angle, y)
    return o.select(o.fcmp("uno", t, x, y), t, o.op("fadd", t, x, y), angle)


def _half(o: Lanes, s: str, size: str) -> tuple[str, str, str]:
    """(whether |x| is beyond 1/2, what asin's polynomial is of, its square)."""
    t = o.type(s)
    far = o.fcmp("ogt", t, size, o.const(s, 0.5))
    rest = o.fmuladd(s, size, o.const(s, -0.5), o.const(s, 0.5))
    z = o.select(far, t, rest, o.op("fmul", t, size, size))
    return far, o.select(far, t, o.intrinsic("sqrt", s, rest), size), z


def asin(o: Lanes, s: str, x: str, fast: bool) -> str:
    """Angle in [-pi/2, pi/2] whose sine is x; NaN beyond 1."""
    t = o.type(s)
    far, r, z = _half(o, s, o.intrinsic("fabs", s, x))
    angle = o.odd(s, r, z, ASIN[s])
    twice = _from_half_pi(o, s, o.op("fadd", t, angle, angle))
    return o.intrinsic("copysign", s, o.select(far, t, twice, angle), x)


def acos(o: Lanes, s: str, x: str, fast: bool) -> str:
    """Angle in [0, pi] whose cosine is x; NaN beyond 1."""
    t = o.type(s)
    far, r, z = _half(o, s, o.intrinsic("fabs", s, x))
    angle = o.odd(s, r, z, ASIN[s])
    twice = o.op("fadd", t, angle, angle)
    negative = o.fcmp("olt", t, x, o.const(s, 0.0))
    twice = o.select(negative, t, _from_half_pi(o, s, twice, 2), twice)
    near = _from_half_pi(o, s, o.intrinsic("copysign", s, angle, x))
    return o.select(far, t, twice, near)


def cbrt(o: Lanes, s: str, x: str, fast: bool) -> str:
    """Cube root, with x's sign; tiny numbers are scaled, so that their cubes keep all digits."""
    t = o.type(s)
    small, power = (2.0**-60, 66) if s == "float" else (2.0**-600, 600)
    tiny = o.fcmp("olt", t, size := o.intrinsic("fabs", s, x), o.const(s, small))
    scaled = o.op("fmul", t, size, o.const(s, 2.0**power))
    a = o.select(tiny, t, scaled, size)
    third = o.op("fmul", t, log2(o, s, a, False), o.const(s, 1 / 3))
    y = exp2(o, s, third, False)
    square = o.op("fmul", t, y, y)
    error = o.fma(s, square, y, o.p.emit(f"fneg {t} {a}"))
    step = o.op("fdiv", t, error, o.op("fmul", t, square, o.const(s, 3.0)))
    root = o.op("fsub", t, y, step)
    back = o.op("fmul", t, root, o.const(s, 2.0 ** -(power // 3)))
    root = o.intrinsic("copysign", s, o.select(tiny, t, back, root), x)
    plain = o.fcmp("oeq", t, o.op("fadd", t, x, x), x)  # zeros and infinities
    return o.select(plain, t, x, root)
