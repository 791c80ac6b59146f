"""sin and cos.

    x = n pi/2 + r, |r| <= MOST        quadrant n mod 4 chooses sin r or cos r, and the sign

f32 reduces in f64, which is exact enough up to |x| = 2^50; f64 subtracts pi/2 in three parts, good
up to 2^31. Beyond that a result has no correct digits left (it is still in [-1, 1] or NaN). The
fast f32 form reduces in f32 with three parts: absolute error below 2^-22 for |x| up to 10^4.
"""

from __future__ import annotations

from tilewright.codegen.functions.exponential import INTEGER, ROUNDER, clamp
from tilewright.codegen.lane_ops import Lanes

TWO_OVER_PI = 0.6366197723675814
MOST = 0.96
"""Of |r|: pi/4, and what an error of n adds. At x = 2^50, x * 2/pi is wrong by 0.05 because 2/pi is rounded, and by as
much again where the product is rounded before the sum. The polynomials are as good up to here."""
PI_HALF = {
    "float": (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    "double": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
# sin r = r + r^3 p(r^2), cos r = 1 - r^2/2 + r^4 p(r^2)
SIN = {
    "float": (
        2.724378191487631e-06,
        -0.00019840039021801203,
        0.008333331905305386,
        -0.1666666716337204,
    ),
    "double": (
        1.5915309183057952e-10,
        -2.5051092308431318e-08,
        2.7557315910939e-06,
        -0.00019841269836385435,
        0.0083333333333307,
        -0.16666666666666666,
    ),
}
COS = {
    "float": (
        -2.7295831728224584e-07,
        2.48005599132739e-05,
        -0.00138888880610466,
        0.0416666679084301,
    ),
    "double": (
        -1.1380868171449914e-11,
        2.0876121534608454e-09,
        -2.7557317151858866e-07,
        2.480158729853226e-05,
        -0.0013888888888887241,
        0.041666666666666664,
    ),
}


def _reduce(o: Lanes, s: str, x: str, fast: bool) -> tuple[str, str]:
    """(r, n): the remainder in type `s` and the quadrant as an integer of the same width."""
    wide = "double" if s == "float" and not fast else s
    t, w = o.type(s), o.type(wide)
    value = o.cast("fpext", t, x, w) if wide != s else x
    magic = o.const(wide, ROUNDER[wide])
    shifted = o.fmuladd(wide, value, o.const(wide, TWO_OVER_PI), magic)
    minus = o.p.emit(f"fneg {w} {o.op('fsub', w, shifted, magic)}")
    for part in PI_HALF[wide][: 2 if wide != s else 3]:
        value = o.fma(wide, minus, o.const(wide, part), value)
    n = o.bitcast(w, shifted, o.type(INTEGER[wide]))
    if wide != s:
        n = o.cast("trunc", o.i64, n, o.i32)
        value = o.cast("fptrunc", w, value, t)
    return value, n


def _quadrant(o: Lanes, s: str, x: str, fast: bool, turn: int) -> str:
    t, i = o.type(s), INTEGER[s]
    integer = o.type(i)
    r, n = _reduce(o, s, x, fast)
    r = clamp(o, s, r, -MOST, MOST)
    if turn:
        n = o.op("add", integer, n, o.const(i, turn))
    z = o.op("fmul", t, r, r)
    sine = o.odd(s, r, z, SIN[s])
    cosine = o.fmuladd(s, z, o.const(s, -0.5), o.const(s, 1.0))
    cosine = o.fmuladd(s, o.op("fmul", t, z, z), o.horner(s, z, COS[s]), cosine)
    odd = o.icmp("ne", integer, o.op("and", integer, n, o.const(i, 1)), o.const(i, 0))
    value = o.select(odd, t, cosine, sine)
    shift = o.const(i, 30 if s == "float" else 62)
    sign = o.op("shl", integer, o.op("and", integer, n, o.const(i, 2)), shift)
    return o.bitcast(integer, o.op("xor", integer, o.bitcast(t, value, integer), sign), t)


def sin(o: Lanes, s: str, x: str, fast: bool) -> str:
    """Sine of x radians; sin(-0) = -0, NaN for an infinite x."""
    t = o.type(s)
    zero = o.fcmp("oeq", t, x, o.const(s, 0.0))
    return o.select(zero, t, x, _quadrant(o, s, x, fast, 0))


def cos(o: Lanes, s: str, x: str, fast: bool) -> str:
    """Cosine of x radians; NaN for an infinite x."""
    return _quadrant(o, s, x, fast, 1)
