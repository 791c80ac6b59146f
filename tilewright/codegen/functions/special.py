"""tanh, erf, and powers of f32.

tanh and erf take a polynomial in x^2 near 0, where relative precision counts, and 1 - (something
small that exp gives) elsewhere; both are computed, one is selected. A fast erf of f32 has half the arithmetic.
1 - erf x to few bits is the eighth power of a polynomial, which is smooth where it itself falls steeply, or, where
`tables` can be read, the fourth power of a parabola.
"""

from __future__ import annotations

import math

from tilewright.codegen.functions.exponential import exp, exp2
from tilewright.codegen.functions.logarithm import log2
from tilewright.codegen.functions.tables import look_up, reads_tables, table
from tilewright.codegen.lane_ops import Lanes

# tanh x = x + x^3 p(x^2) for |x| <= 0.625
TANH = {
    "float": (
        -0.006096714176237583,
        0.020997179672122,
        -0.05385090783238411,
        0.1333276927471161,
        -0.333333283662796,
    ),
    "double": (
        -2.438831631472088e-06,
        1.2209921790162781e-05,
        -3.708106921544234e-05,
        9.604109157026265e-05,
        -0.00023888944636751174,
        0.0005899818158388232,
        -0.0014558283998303246,
        0.003592127507599252,
        -0.008863235499801992,
        0.021869488535133222,
        -0.0539682539682359,
        0.13333333333333322,
        -0.3333333333333333,
    ),
}
# erf x = x + x p(x^2) for |x| <= 0.925; above, log(1 - erf x) = p(x): to base 2 for f32, e for f64
ERF_SMALL = {
    "float": (
        8.204169716918841e-05,
        -0.0008102915599010885,
        0.005197487305849791,
        -0.026857959106564522,
        0.11283669620752335,
        -0.37612631916999817,
        0.12837917,
    ),
    "double": (
        6.227121087154727e-11,
        -1.1520543420570272e-09,
        1.4695095079863668e-08,
        -1.6355159321238341e-07,
        1.6461421673221435e-06,
        -1.4925619404959463e-05,
        0.00012055332032749044,
        -0.0008548327003921653,
        0.005223977625183944,
        -0.02686617064511091,
        0.11283791670955043,
        -0.37612638903183754,
        0.12837916709551256,
    ),
}
ERF_LARGE = {
    "float": (
        2.370439688093029e-06,
        -6.660036888206378e-05,
        0.0008621340384706855,
        -0.006871016696095467,
        0.03812702000141144,
        -0.1588222086429596,
        -0.9115292429924011,
        -1.6305787563323975,
        0.0004595555947162211,
    ),
    "double": (
        -5.773338066078323e-18,
        4.969426787092418e-16,
        -2.0326710245784795e-14,
        5.257380408222919e-13,
        -9.651306984515338e-12,
        1.3379201232465896e-10,
        -1.454530167688812e-09,
        1.2708920147348997e-08,
        -9.068168467242908e-08,
        5.334226696719437e-07,
        -2.5956020931981393e-06,
        1.0405347254528607e-05,
        -3.381293663978577e-05,
        8.533406663660757e-05,
        -0.00014714603833930844,
        7.444149353260358e-05,
        0.0004911146169953492,
        -0.0016176571513918305,
        0.0001600581714962299,
        0.019151981764215602,
        -0.10278085344755267,
        -0.63661780593555,
        -1.1283794451951623,
        1.6793327948377043e-08,
    ),
}
# erf x = x p(x^2) / q(x^2) for |x| <= 3.92, relative error 2e-8; above, 1
ERF_QUOTIENT = (
    (
        2.0500890514085768e-06,
        0.0002848832227755338,
        0.0037656277418136597,
        0.05274875834584236,
        0.1904066801071167,
        1.1283791065216064,
    ),
    (
        3.809175905189477e-05,
        0.0011625385377556086,
        0.014969238080084324,
        0.11410920321941376,
        0.502076268196106,
        1.0,
    ),
)
# erfc x = p(x)^8 from the first number on (below it is 2, to the bits) up to ERFC_END, by bits: relative errors 2^-10.1
# (2^-11.9 below -1, where most of a gelu's sums of squares come from) and 2^-14.4, those of f32 arithmetic included
ERFC = {
    8: (
        -2.6,
        (
            -1.561761564516928e-06,
            1.4184614883561153e-05,
            9.82473102340009e-06,
            -0.00041458578198216856,
            0.0003181695647072047,
            0.006308069918304682,
            -0.002275720937177539,
            -0.06929785013198853,
            -0.14093472063541412,
            0.9999379515647888,
        ),
    ),
    11: (
        -3.2,
        (
            1.3853629354798613e-09,
            -1.2358197132300575e-08,
            -2.2251178677379357e-08,
            5.046151727583492e-07,
            -7.608710461681767e-07,
            -7.786273272358812e-06,
            3.0296347176772542e-05,
            4.296749466448091e-05,
            -0.0005246694199740887,
            0.0002324561937712133,
            0.00662708654999733,
            -0.0021533670369535685,
            -0.0696427971124649,
            -0.14102807641029358,
            1.0000008344650269,
        ),
    ),
}
ERFC_END = 3.92
"""From there on erfc is under 2^-25, and 1 - erf in f32 is 0."""
ERFC_TABLE = {8: (20, 2), 11: (18, 3)}
"""By bits: the number of the table's zeros, and the degree of its polynomials; relative errors 2^-10.2 and 2^-14."""


def reciprocal(o: Lanes, s: str, x: str, fast: bool, bits: int = 24) -> str:
    """1 / x for a finite x that is not tiny; fast: one Newton step, within 2 ulp, or none for at most 11 bits."""
    t = o.type(s)
    wide = fast and s == "float" and o.p.target.has("avx512f")
    if wide and o.count == 32:
        half = Lanes(o.p, 16)
        return o.joined(half.type(s), *(reciprocal(half, s, v, fast, bits) for v in o.halves(t, x)))
    if wide and o.count == 16:
        args = [(t, x), (t, "zeroinitializer"), ("i16", "-1")]
        guess = o.p.call(t, "llvm.x86.avx512.rcp14.ps.512", args)
        if bits <= 11:
            return guess
        error = o.fma(s, o.p.emit(f"fneg {t} {x}"), guess, o.const(s, 1.0))
        return o.fma(s, guess, error, guess)
    if fast and s == "float" and o.p.target.name.startswith("nvptx"):
        return o.p.call("float", "llvm.nvvm.rcp.approx.ftz.f", [("float", x)])
    return o.op("fdiv", t, o.const(s, 1.0), x)


def _at_most(o: Lanes, s: str, x: str, bound: float) -> str:
    """min(x, bound); NaN stays NaN."""
    t, top = o.type(s), o.const(s, bound)
    return o.select(o.fcmp("olt", t, top, x), t, top, x)


def tanh(o: Lanes, s: str, x: str, fast: bool) -> str:
    """Hyperbolic tangent: 1 - 2 / (e^2|x| + 1) beyond 0.625, with x's sign."""
    t = o.type(s)
    size = o.intrinsic("fabs", s, x)
    z = o.op("fmul", t, x, x)
    small = o.odd(s, x, z, TANH[s])
    bounded = _at_most(o, s, size, 10.0 if s == "float" else 20.0)
    power = exp(o, s, o.op("fadd", t, bounded, bounded), True)
    inverse = reciprocal(o, s, o.op("fadd", t, power, o.const(s, 1.0)), fast)
    large = o.fmuladd(s, inverse, o.const(s, -2.0), o.const(s, 1.0))
    near = o.fcmp("olt", t, size, o.const(s, 0.625))
    return o.intrinsic("copysign", s, o.select(near, t, small, large), x)


def erf(o: Lanes, s: str, x: str, fast: bool) -> str:
    """Error function: 1 - exp(p(|x|)) beyond 0.925, with x's sign; fast, one quotient."""
    t = o.type(s)
    size = o.intrinsic("fabs", s, x)
    if fast and s == "float":
        square = o.op("fmul", t, x, x)
        p, q = (o.horner(s, square, part) for part in ERF_QUOTIENT)
        value = o.op("fmul", t, o.op("fmul", t, x, p), reciprocal(o, s, q, fast))
        one = o.intrinsic("copysign", s, o.const(s, 1.0), x)
        return o.select(o.fcmp("oge", t, size, o.const(s, 3.92)), t, one, value)
    small = o.fmuladd(s, x, o.horner(s, o.op("fmul", t, x, x), ERF_SMALL[s]), x)
    bounded = _at_most(o, s, size, 4.0 if s == "float" else 6.0)
    exponent = o.horner(s, bounded, ERF_LARGE[s])
    power = exp2(o, s, exponent, True) if s == "float" else exp(o, s, exponent, True)
    large = o.op("fsub", t, o.const(s, 1.0), power)
    large = o.intrinsic("copysign", s, large, x)
    near = o.fcmp("olt", t, size, o.const(s, 0.925))
    return o.select(near, t, small, large)


def erfc(o: Lanes, s: str, x: str, bits: int, factor: float = 1.0) -> str:
    """1 - erf(factor x) of f32, to `bits` (at most 11) and two more up to ERFC_END; 0 above."""
    held = min(b for b in ERFC if b >= bits)
    if reads_tables(o):
        return look_up(o, x, table(math.erfc, 2.0, ERFC_END + 5e-5, *ERFC_TABLE[held]), factor)
    t = o.type(s)
    if factor != 1:
        x = o.op("fmul", t, x, o.const(s, factor))
    low, coefficients = ERFC[held]
    bottom, end = o.const(s, low), o.const(s, ERFC_END)
    p = o.horner(s, o.select(o.fcmp("ogt", t, bottom, x), t, bottom, x), coefficients)
    for _ in range(3):
        p = o.op("fmul", t, p, p)
    return o.select(o.fcmp("ule", t, x, end), t, p, o.const(s, 0.0))


def powf(o: Lanes, x: str, y: str) -> str:
    """x^y of f32 lanes, through log2 and exp2 in f64: correctly rounded but for ties nearly met.

    As C's pow: pow(x, 0) = pow(1, y) = 1; a negative x needs an integer y, whose parity gives the
    sign.
    """
    s, t, w = "double", o.f32, o.f64
    one, zero = o.cf(1.0), o.cf(0.0)
    size = o.intrinsic("fabs", "float", x)
    exponent = o.op(
        "fmul", w, o.cast("fpext", t, y, w), log2(o, s, o.cast("fpext", t, size, w), False)
    )
    value = o.cast("fptrunc", w, exp2(o, s, exponent, False), t)
    whole = o.fcmp("oeq", t, o.intrinsic("trunc", "float", y), y)
    half = o.op("fmul", t, y, o.cf(0.5))
    odd = o.op("and", o.i1, whole, o.fcmp("une", t, o.intrinsic("trunc", "float", half), half))
    sign = o.op("and", o.i32, o.bitcast(t, x, o.i32), o.c32(-(1 << 31)))
    sign = o.select(odd, o.i32, sign, o.c32(0))
    signed = o.op("or", o.i32, o.bitcast(t, value, o.i32), sign)
    value = o.bitcast(o.i32, signed, t)
    negative = o.op("and", o.i1, o.fcmp("olt", t, x, zero), o.fcmp("ogt", t, x, o.cf(-1e39)))
    fraction = o.op("xor", o.i1, whole, o.const("i1", 1) if o.count == 1 else "splat (i1 true)")
    bad = o.op("and", o.i1, negative, fraction)
    value = o.select(bad, t, o.cf(float("nan")), value)
    infinite = o.fcmp("oeq", t, o.intrinsic("fabs", "float", y), o.cf(float("inf")))
    steady = o.op("and", o.i1, infinite, o.fcmp("oeq", t, size, one))
    steady = o.op("or", o.i1, steady, o.fcmp("oeq", t, x, one))
    steady = o.op("or", o.i1, steady, o.fcmp("oeq", t, y, zero))
    return o.select(steady, t, one, value)
