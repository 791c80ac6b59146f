"""Conversions between float types, and between floats and integers, on one register.

Each rounds once, to nearest even, as MLIR's truncf says; NaN stays NaN; denormals are kept. f8, and
bf16 and f16 where the machine has no conversion, go through integer arithmetic on the bits of f32,
which vectorises everywhere. A value of f64 reaches a narrow type through f32 rounded to *odd*, so
that the two steps round like one.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.codegen.lane_ops import Lanes
from tilewright.codegen.printer import Printer, Regs
from tilewright.codegen.registers import Element, RegisterLayout
from tilewright.frozen import frozen


@frozen
class Small:
    """A narrow IEEE-like float: sign, exponent of `bias`, `mantissa` bits; and magnitudes, as bits."""

    bits: int
    mantissa: int
    bias: int
    largest: int
    """Finite; above it `over` stands, in narrowing."""
    over: int
    nan: int


SMALL: Mapping[str, Small] = {
    "f16": Small(16, 10, 15, 0x7BFF, 0x7C00, 0x7E00),
    # No infinity: what rounds above 448 is NaN, as ml_dtypes and MLIR have it.
    "f8E4M3FN": Small(8, 3, 7, 0x7E, 0x7F, 0x7F),
    "f8E5M2": Small(8, 2, 15, 0x7B, 0x7C, 0x7E),
}

# Narrow float <- f32 ------------------------------------------------------------------------------


def _round_bits(o: Lanes, bits: str, drop: int) -> str:
    """i32 lanes with `drop` low bits rounded to nearest even; a carry may reach the exponent."""
    odd = o.op("and", o.i32, o.op("lshr", o.i32, bits, o.c32(drop)), o.c32(1))
    half = o.op("add", o.i32, bits, o.c32((1 << (drop - 1)) - 1))
    return o.op("add", o.i32, half, odd)


def _f32_to_bf16(o: Lanes, x: str) -> str:
    bits = o.bitcast(o.f32, x, o.i32)
    quiet = o.op("or", o.i32, bits, o.c32(0x400000))
    nan = o.fcmp("uno", o.f32, x, x)
    return _upper_halves(o, o.select(nan, o.i32, quiet, _round_bits(o, bits, 16)))


def _upper_halves(o: Lanes, x: str) -> str:
    """The upper 16 bits of i32 lanes."""
    if o.count >= 16 and o.p.target.has("avx512bw"):  # one shuffle of words for two registers
        words = Lanes(o.p, 2 * o.count)
        return words.shuffled(words.i16, o.bitcast(o.i32, x, words.i16), range(1, words.count, 2))
    return o.cast("trunc", o.i32, o.op("lshr", o.i32, x, o.c32(16)), o.i16)


def _packed_to_bf16(o: Lanes, x: str) -> str:
    """AVX-512's conversion of 8, 16 or twice 16 components: denormals become zero."""
    packed, name = f"<{o.count} x bfloat>", "llvm.x86.avx512bf16.cvtne"
    if o.count == 32:
        low, high = o.halves(o.f32, x)
        half = "<16 x float>"
        result = o.p.call(packed, f"{name}2ps2bf16.512", [(half, high), (half, low)])
    else:
        result = o.p.call(packed, f"{name}ps2bf16.{32 * o.count}", [(o.f32, x)])
    return o.bitcast(packed, result, o.i16)


def _packed_to_f16(o: Lanes, x: str) -> str:
    """AVX-512's conversion of 16 components or twice 16, as integers: stores past the cache know no vectors of f16."""
    if o.count == 32:
        parts = [_packed_to_f16(Lanes(o.p, 16), half) for half in o.halves(o.f32, x)]
        return o.joined("<16 x i16>", *parts)
    result = "<16 x i16>"
    arguments = [(o.f32, x), ("i32", "0"), (result, "zeroinitializer"), ("i16", "-1")]
    return o.p.call(result, "llvm.x86.avx512.mask.vcvtps2ph.512", arguments)


def _f32_to_tf32(o: Lanes, x: str) -> str:
    bits = o.bitcast(o.f32, x, o.i32)
    rounded = o.op("and", o.i32, _round_bits(o, bits, 13), o.c32(-(1 << 13)))
    nan = o.fcmp("uno", o.f32, x, x)
    return o.bitcast(o.i32, o.select(nan, o.i32, bits, rounded), o.f32)


def _f32_to_small(o: Lanes, x: str, to: Small) -> str:
    mantissa, bias = to.mantissa, to.bias
    bits = o.bitcast(o.f32, x, o.i32)
    magnitude = o.op("and", o.i32, bits, o.c32(0x7FFFFFFF))
    sign = o.op(
        "lshr",
        o.i32,
        o.op("xor", o.i32, bits, magnitude),
        o.c32(32 - to.bits),
    )
    # Normal results: round the f32 mantissa, then move the exponent from bias 127 to `bias`.
    drop = 23 - mantissa
    normal = o.op("lshr", o.i32, _round_bits(o, magnitude, drop), o.c32(drop))
    normal = o.op("sub", o.i32, normal, o.c32((127 - bias) << mantissa))
    # Subnormal results: adding 2^(23 - mantissa + 1 - bias) makes the f32 adder round at the right bit.
    magic_exponent = 127 + (23 - mantissa) + (1 - bias)
    magic = magic_exponent << 23
    shifted = o.p.emit(
        f"fadd {o.f32} {o.bitcast(o.i32, magnitude, o.f32)}, {o.cf(2.0 ** (magic_exponent - 127))}"
    )
    small = o.op("sub", o.i32, o.bitcast(o.f32, shifted, o.i32), o.c32(magic))
    below = o.icmp("ult", o.i32, magnitude, o.c32((127 + 1 - bias) << 23))
    value = o.select(below, o.i32, small, normal)
    value = o.select(o.icmp("ugt", o.i32, value, o.c32(to.largest)), o.i32, o.c32(to.over), value)
    is_nan = o.icmp("ugt", o.i32, magnitude, o.c32(0x7F800000))
    value = o.select(is_nan, o.i32, o.c32(to.nan), value)
    return o.cast("trunc", o.i32, o.op("or", o.i32, value, sign), o.type(f"i{to.bits}"))


def _f32_to_e8m0(o: Lanes, x: str) -> str:
    """The nearest power of two, the larger of two that are as near, as ml_dtypes has it (0.5 took the next one above
    below 2^-126); NaN for what has none."""
    bits = o.bitcast(o.f32, x, o.i32)
    value = o.op("lshr", o.i32, o.op("add", o.i32, bits, o.c32(0x400000)), o.c32(23))
    value = o.select(o.icmp("ult", o.i32, bits, o.c32(0x600000)), o.i32, o.c32(0), value)
    # Signs, zero and what is 2^128 or more.
    none = o.icmp("ugt", o.i32, o.op("sub", o.i32, bits, o.c32(1)), o.c32(0x7F3FFFFE))
    return o.cast("trunc", o.i32, o.select(none, o.i32, o.c32(255), value), o.i8)


# Narrow float -> f32 ------------------------------------------------------------------------------


def bf16_to_f32(o: Lanes, x: str) -> str:
    wide = o.cast("zext", o.i16, x, o.i32)
    return o.bitcast(o.i32, o.op("shl", o.i32, wide, o.c32(16)), o.f32)


def _small_to_f32(o: Lanes, x: str, kind: Small) -> str:
    """The exponent moves by a multiplication with 2^(127 - bias), which normalises subnormals on its way."""
    mantissa, width = kind.mantissa, kind.bits - 1
    wide = o.cast("zext", o.type(f"i{kind.bits}"), x, o.i32)
    magnitude = o.op("and", o.i32, wide, o.c32((1 << width) - 1))
    sign = o.op("shl", o.i32, o.op("xor", o.i32, wide, magnitude), o.c32(31 - width))
    shifted = o.op("shl", o.i32, magnitude, o.c32(23 - mantissa))
    scaled = o.p.emit(
        f"fmul {o.f32} {o.bitcast(o.i32, shifted, o.f32)}, {o.cf(2.0 ** (127 - kind.bias))}"
    )
    value = o.bitcast(o.f32, scaled, o.i32)
    special = o.icmp("uge", o.i32, magnitude, o.c32(kind.largest + 1))
    value = o.select(special, o.i32, o.op("or", o.i32, shifted, o.c32(0x7F800000)), value)
    return o.bitcast(o.i32, o.op("or", o.i32, value, sign), o.f32)


def _e8m0_to_f32(o: Lanes, x: str) -> str:
    """2 to the power of the byte - 127; 255 is NaN, 0 the f32 below the normal ones."""
    wide = o.cast("zext", o.i8, x, o.i32)
    value = o.op("shl", o.i32, wide, o.c32(23))
    value = o.select(o.icmp("eq", o.i32, wide, o.c32(0)), o.i32, o.c32(1 << 22), value)
    nan = o.icmp("eq", o.i32, wide, o.c32(255))
    return o.bitcast(o.i32, o.select(nan, o.i32, o.c32(0x7FC00000), value), o.f32)


# f64 ----------------------------------------------------------------------------------------------


def _f64_to_odd_f32(o: Lanes, x: str) -> str:
    """f32 lanes rounded to odd: an inexact result is odd, so rounding again rounds once."""
    near = o.cast("fptrunc", o.f64, x, o.f32)
    back = o.cast("fpext", o.f32, near, o.f64)
    bits = o.bitcast(o.f32, near, o.i32)
    even = o.icmp("eq", o.i32, o.op("and", o.i32, bits, o.c32(1)), o.c32(0))
    inexact = o.fcmp("one", o.f64, back, x)
    move = o.op("and", o.i1, even, inexact)
    magnitude = o.intrinsic("fabs", "double", x)
    above = o.fcmp("ogt", o.f64, o.intrinsic("fabs", "double", back), magnitude)
    step = o.select(above, o.i32, o.c32(-1), o.c32(1))
    moved = o.op("add", o.i32, bits, step)
    return o.bitcast(o.i32, o.select(move, o.i32, moved, bits), o.f32)


# The conversion table -----------------------------------------------------------------------------


def to_f32(p: Printer, o: Lanes, x: str, src: Element) -> str:
    """f32 lanes of any float narrower than f64 (exact)."""
    match src.name:
        case "f32" | "tf32":
            return x
        case "bf16":
            return bf16_to_f32(o, x)
        case "f16" if p.target.has("f16 conversion"):
            half = o.bitcast(o.type(src.llvm), x, o.f16)
            return o.cast("fpext", o.f16, half, o.f32)
        case "f8E8M0FNU":
            return _e8m0_to_f32(o, x)
        case _:
            return _small_to_f32(o, x, SMALL[src.name])


def from_f32(p: Printer, o: Lanes, x: str, dst: Element, fast: bool = False) -> str:
    """f32 lanes rounded to a float of at most 32 bits. `fast`: denormals may flush."""
    match dst.name:
        case "f32":
            return x
        case "tf32":
            return _f32_to_tf32(o, x)
        case "bf16":
            if fast and p.target.has("avx512bf16") and o.count in (8, 16, 32):
                return _packed_to_bf16(o, x)
            if p.target.has("bf16 conversion"):
                rounded = o.cast("fptrunc", o.f32, x, o.type("bfloat"))
                return o.bitcast(o.type("bfloat"), rounded, o.i16)
            return _f32_to_bf16(o, x)
        case "f16" if o.count in (16, 32) and p.target.has("avx512f"):
            return o.bitcast(o.type("i16"), _packed_to_f16(o, x), o.type(dst.llvm))
        case "f16" if p.target.has("f16 conversion"):
            return o.bitcast(o.f16, o.cast("fptrunc", o.f32, x, o.f16), o.type(dst.llvm))
        case "f8E8M0FNU":
            return _f32_to_e8m0(o, x)
        case _:
            return _f32_to_small(o, x, SMALL[dst.name])


def convert_float(
    p: Printer, o: Lanes, x: str, src: Element, dst: Element, fast: bool = False
) -> str:
    """One register of `src` converted to `dst`, both floats, rounded once to nearest even."""
    if src.name == dst.name:
        return x
    if src.name == "f64":
        if dst.name == "f32":
            return o.cast("fptrunc", o.f64, x, o.f32)
        return from_f32(p, o, _f64_to_odd_f32(o, x), dst, fast)
    wide = to_f32(p, o, x, src)
    if dst.name == "f64":
        return o.cast("fpext", o.f32, wide, o.f64)
    return from_f32(p, o, wide, dst, fast)


def widen(p: Printer, layout: RegisterLayout, regs: Regs) -> list[str]:
    """Registers of a narrow float type as f32."""
    return [
        to_f32(p, Lanes(p, n), r, layout.element) for n, r in zip(layout.counts, regs, strict=True)
    ]
