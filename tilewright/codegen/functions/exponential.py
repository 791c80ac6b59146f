"""exp and exp2.

    x = n ln 2 + r, |r| <= ln 2 / 2        e^x = 2^n p(r)

n comes from adding 1.5 * 2^mantissa, whose low bits then are n as an integer; 2^n from adding n to
the exponent field. The fast form gives zero below the normal range and infinity above it. The
accurate form scales by vscalef or by two powers of two, so that denormals and infinity come out
rounded once.
"""

from __future__ import annotations

from tilewright.codegen.lane_ops import Lanes

# p(r) = 1 + r (c[n-1] + ... + c[0] r^(n-1)), by degree; relative error about 2^-(bits).
EXP2_F32 = {
    3: (0.05500893294811249, 0.24221095442771912, 0.6932829022407532),
    6: (
        0.00015453163359779865,
        0.0013390863314270973,
        0.009618083015084267,
        0.055503569543361664,
        0.24022650718688965,
        0.6931471824645996,
    ),
}
EXP2_ABOVE = (0.0770670473575592, 0.22764499485492706, 0.6951167583465576)
"""The same for 0 <= r < 1. Of three coefficients these give 13.5 bits, those for |r| <= 1/2 13.2."""
# p(r) = 1 + r + r^2 (c[n-1] + ... + c[0] r^(n-1))
EXP_F32 = (0.0013927260879427195, 0.008364041335880756, 0.04166654869914055, 0.166665717959404, 0.5)
EXP_F64 = (
    2.0914898727175524e-09,
    2.5105513541847086e-08,
    2.755727313289604e-07,
    2.7557254685728803e-06,
    2.480158732595111e-05,
    0.0001984126987538548,
    0.0013888888888883633,
    0.008333333333325973,
    0.04166666666666667,
    0.1666666666666667,
    0.5,
)
LOG2_E = 1.4426950408889634
LN2 = 0.6931471805599453
LN2_SPLIT = {
    "float": (0.693145751953125, 1.4286068203094173e-06),
    "double": (0.6931471805598903, 5.497923018708371e-14),
}
"""ln 2 as a sum whose first part times n is exact."""
ROUNDER = {"float": 12582912.0, "double": 6755399441055744.0}
"""1.5 * 2^mantissa: added, it leaves the integer nearest to x in the low bits."""
MANTISSA = {"float": 23, "double": 52}
BIAS = {"float": 127, "double": 1023}
INTEGER = {"float": "i32", "double": "i64"}


def clamp(o: Lanes, s: str, x: str, low: float, high: float) -> str:
    """x in [low, high]; NaN stays NaN."""
    t = o.type(s)
    bottom, top = o.const(s, low), o.const(s, high)
    x = o.select(o.fcmp("ogt", t, bottom, x), t, bottom, x)
    return o.select(o.fcmp("olt", t, top, x), t, top, x)


def scale(o: Lanes, s: str, p: str, shifted: str, n: str) -> str:
    """p * 2^n where `shifted` is n + ROUNDER; right down to denormals and up to infinity."""
    t, i, m = o.type(s), INTEGER[s], MANTISSA[s]
    if _fills_avx512(o, s, "avx512f"):
        return _vscalef(o, s, p, n)
    integer = o.type(i)
    count = o.op("sub", integer, o.bitcast(t, shifted, integer), bits_of_rounder(o, s))
    half = o.op("ashr", integer, count, o.const(i, 1))
    for part in (half, o.op("sub", integer, count, half)):
        field = o.op("add", integer, part, o.const(i, BIAS[s]))
        power = o.bitcast(integer, o.op("shl", integer, field, o.const(i, m)), t)
        p = o.op("fmul", t, p, power)
    return p


def _fills_avx512(o: Lanes, s: str, feature: str) -> bool:
    """Is a register of this many components one of AVX-512's, with `feature`?"""
    bits, target = o.count * (32 if s == "float" else 64), o.p.target
    return (bits == 512 or (bits in (128, 256) and target.has("avx512vl"))) and target.has(feature)


def _avx512(o: Lanes, s: str, name: str, args: list[tuple[str, str]], mask: str) -> str:
    """A masked AVX-512 intrinsic; lanes off are zero."""
    t, bits = o.type(s), o.count * (32 if s == "float" else 64)
    args = [*args, (t, "zeroinitializer"), (f"i{max(o.count, 8)}", mask)]
    if bits == 512:
        args.append(("i32", "4"))
    kind = "ps" if s == "float" else "pd"
    return o.p.call(t, f"llvm.x86.avx512.mask.{name}.{kind}.{bits}", args)


def _vscalef(o: Lanes, s: str, p: str, n: str, mask: str = "-1") -> str:
    """AVX-512's own p * 2^n: exact but for one rounding, infinity and NaN included."""
    t = o.type(s)
    return _avx512(o, s, "scalef", [(t, p), (t, n)], mask)


def _exp2_avx512(o: Lanes, s: str, x: str, fast: bool, bits: int) -> str:
    """vreduce gives r = x - n (0 for an infinity), vscalef the rest: nothing needs clamping.

    Fast lanes below the normal range are switched off, because making denormals costs a trap. vscalef takes
    n = floor(x) of x itself; every bit of an f32 needs n, the integer nearest to x.
    """
    t, degree = o.type(s), _degree(fast, bits)
    floor = s == "float" and degree == len(EXP2_ABOVE)
    r = _avx512(o, s, "reduce", [(t, x), ("i32", "9" if floor else "8")], "-1")
    n = x if floor else o.op("fsub", t, x, r)
    if s == "double":
        r = o.op("fmul", t, r, o.const(s, LN2))
        return _vscalef(o, s, o.horner(s, r, (*EXP_F64, 1.0, 1.0)), n)
    p = o.horner(s, r, (*(EXP2_ABOVE if floor else EXP2_F32[degree]), 1.0))
    if not fast or o.count < 8:
        return _vscalef(o, s, p, n)
    normal = o.fcmp("uge", t, x, o.const(s, -126.0))
    return _vscalef(o, s, p, n, o.p.emit(f"bitcast {o.i1} {normal} to i{o.count}"))


def _degree(fast: bool, bits: int) -> int:
    """Degree of the polynomial for 2^r that a result of so many bits needs, and two more."""
    return 6 if not fast or bits > 11 else 3


def bits_of_rounder(o: Lanes, s: str) -> str:
    """ROUNDER's bits as an integer constant."""
    return o.const(INTEGER[s], 0x4B400000 if s == "float" else 0x4338000000000000)


def add_exponent(o: Lanes, s: str, p: str, shifted: str) -> str:
    """p * 2^n by adding n to p's exponent field, which must not leave the normal range; not for NaN."""
    t, i = o.type(s), INTEGER[s]
    integer = o.type(i)
    moved = o.op("shl", integer, o.bitcast(t, shifted, integer), o.const(i, MANTISSA[s]))
    return o.bitcast(integer, o.op("add", integer, o.bitcast(t, p, integer), moved), t)


def _fast_range(o: Lanes, s: str, x: str, value: str, low: float, high: float) -> str:
    """Zero where x < low; x + inf, which is infinity or NaN, where x > high or x is NaN."""
    t = o.type(s)
    value = o.select(o.fcmp("olt", t, x, o.const(s, low)), t, o.const(s, 0.0), value)
    over = o.op("fadd", t, x, o.const(s, float("inf")))
    return o.select(o.fcmp("ugt", t, x, o.const(s, high)), t, over, value)


def _has_unit(o: Lanes) -> bool:
    """Does the machine approximate 2^x itself, within 2 ulp? (NVIDIA's ex2.approx)"""
    return o.p.target.name.startswith("nvptx")


def exp2(o: Lanes, s: str, x: str, fast: bool, bits: int = 24) -> str:
    """2^x. `bits`: relative precision that a fast f32 result needs (8 for bf16, 11 for f16)."""
    t, magic = o.type(s), o.const(s, ROUNDER[s])
    fast = fast and s == "float"
    if fast and _has_unit(o):
        return o.p.call("float", "llvm.nvvm.ex2.approx.ftz.f", [("float", x)])
    if _fills_avx512(o, s, "avx512dq"):
        return _exp2_avx512(o, s, x, fast, bits)
    half = Lanes(o.p, o.count // 2)
    if o.count % 2 == 0 and _fills_avx512(half, s, "avx512dq"):
        return o.joined(half.type(s), *(exp2(half, s, v, fast, bits) for v in o.halves(t, x)))
    given = x
    if not fast:
        x = clamp(o, s, x, *((-151.0, 129.0) if s == "float" else (-1076.0, 1025.0)))
    shifted = o.op("fadd", t, x, magic)
    n = o.op("fsub", t, shifted, magic)
    r = o.op("fsub", t, x, n)
    if s == "double":
        r = o.op("fmul", t, r, o.const(s, LN2))
        return scale(o, s, o.horner(s, r, (*EXP_F64, 1.0, 1.0)), shifted, n)
    p = o.horner(s, r, (*EXP2_F32[_degree(fast, bits)], 1.0))
    if not fast:
        return scale(o, s, p, shifted, n)
    return _fast_range(o, s, given, add_exponent(o, s, p, shifted), -126.0, 127.9999999)


def exp(o: Lanes, s: str, x: str, fast: bool, bits: int = 24, power: int = 0) -> str:
    """e^x 2^power; a power other than 0 has no fast form. `bits` as for exp2."""
    t, magic = o.type(s), o.const(s, ROUNDER[s])
    fast = fast and s == "float"
    if fast and (bits <= 11 or _has_unit(o)):
        return exp2(o, s, o.op("fmul", t, x, o.const(s, LOG2_E)), True, bits)
    given = x
    if not fast:
        x = clamp(o, s, x, *((-104.5, 89.5) if s == "float" else (-746.0, 711.0)))
    shifted = o.fmuladd(s, x, o.const(s, LOG2_E), magic)
    n = o.op("fsub", t, shifted, magic)
    minus = o.p.emit(f"fneg {t} {n}")
    high, low = LN2_SPLIT[s]
    if fast and o.fuses():
        r = o.fmuladd(s, minus, o.const(s, LN2), x)
    else:
        r = o.fmuladd(s, minus, o.const(s, low), o.fmuladd(s, minus, o.const(s, high), x))
    if fast:
        p = o.horner(s, r, (*EXP_F32, 1.0, 1.0))
        return _fast_range(o, s, given, add_exponent(o, s, p, shifted), -87.33654, 88.72283)
    coefficients = EXP_F32 if s == "float" else EXP_F64
    if power:
        shifted, n = (o.op("fadd", t, count, o.const(s, float(power))) for count in (shifted, n))
    return scale(o, s, o.horner(s, r, (*coefficients, 1.0, 1.0)), shifted, n)
