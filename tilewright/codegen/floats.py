"""arith ops on floats: arithmetic, sign, minimum and maximum, comparison."""

from __future__ import annotations

from math import copysign

from xdsl.dialects import arith
from xdsl.dialects.arith import CMPF_COMPARISON_OPERATIONS
from xdsl.ir import Operation

from tilewright.codegen.convert import convert_float, to_f32
from tilewright.codegen.elementwise import elementwise, fast_flags, flag_text, float_elementwise
from tilewright.codegen.functions.special import reciprocal
from tilewright.codegen.lane_ops import FloatText, Lanes, splat
from tilewright.codegen.printer import Printer, integer_attribute, prints
from tilewright.codegen.registers import Element

FLOAT_BINARY = {
    "arith.addf": "fadd",
    "arith.subf": "fsub",
    "arith.mulf": "fmul",
    "arith.divf": "fdiv",
    "arith.remf": "frem",
}


@prints(*FLOAT_BINARY)
def print_float_binary(p: Printer, op: Operation) -> None:
    name = FLOAT_BINARY[op.name]
    a, b = op.operands
    layout = p.layout(a.type)
    if layout.element.name == "f32" and "afn" in fast_flags(op):
        bits = integer_attribute(op, "mach.bits", 24)
        if bits <= 11 and p.target.has("avx512f") and set(layout.counts) <= {16, 32}:
            elementwise(p, op, lambda o, _, x: _times_inverse(o, x[0], x[1], bits))
            return
    if layout.element.name in ("f32", "f64"):
        head = name + flag_text(fast_flags(op))
        p.set(
            op.results[0],
            [
                p.emit(f"{head} {t} {x}, {y}")
                for t, x, y in zip(layout.types, p.get(a), p.get(b), strict=True)
            ],
        )
        return
    float_elementwise(p, op, lambda o, s, x: o.fop(name, o.type(s), *x))


def _times_inverse(o: Lanes, x: str, y: str, bits: int) -> str:
    """x / y of f32 to at most 11 bits and two more; y under 2^-128 counts as zero."""
    return o.op("fmul", o.f32, x, reciprocal(o, "float", y, True, bits))


def sign_mask(o: Lanes, e: Element, x: str, how: str) -> str:
    """Flip (`xor`) or clear (`and`) the sign bit of a float register, whatever its type."""
    t = o.type(e.llvm)
    scalar = f"i{e.bits if e.name != 'tf32' else 32}"
    bits = 32 if e.name == "tf32" else e.bits
    mask = 1 << (bits - 1)
    integer = o.type(scalar)
    text = splat(o.count, scalar, str(mask if how == "xor" else mask - 1))
    return o.bitcast(integer, o.op(how, integer, o.bitcast(t, x, integer), text), t)


@prints("arith.negf", "math.absf")
def print_sign(p: Printer, op: Operation) -> None:
    flips, flags = op.name == "arith.negf", flag_text(fast_flags(op))

    def signed(o: Lanes, e: Element, x: list[str]) -> str:
        if e.llvm not in ("float", "double", "half"):
            return sign_mask(o, e, x[0], "xor" if flips else "and")
        if flips:
            return p.emit(f"fneg{flags} {o.type(e.llvm)} {x[0]}")
        return o.intrinsic("fabs", e.llvm, x[0])

    elementwise(p, op, signed)


FLOAT_MINMAX = {f"arith.{name}f": name for name in ("maximum", "minimum", "maxnum", "minnum")}


@prints(*FLOAT_MINMAX)
def print_float_minmax(p: Printer, op: Operation) -> None:
    """maximumf gives NaN for NaN and +0 above -0; maxnumf gives the other operand. With nnan:
    compare and select.

    The expansion is ours: LLVM's own for x86 vectors takes twice the instructions, and for SPIR-V it takes
    OpenCL's fmax, which drops NaN, for either.
    """
    name = FLOAT_MINMAX[op.name]
    float_elementwise(p, op, lambda o, s, x: float_maximum(o, s, x[0], x[1], name))


def float_maximum(o: Lanes, s: str, a: str, b: str, name: str) -> str:
    """maximum, minimum, maxnum or minnum of two registers of LLVM scalar type `s`."""
    t, numbers = o.type(s), name in ("maxnum", "minnum")
    if o.p.target.has("maxima") or (numbers and o.p.target.has("maxnum")):
        return o.intrinsic(name, s, a, b)
    above = "ogt" if name.startswith("max") else "olt"
    if not isinstance(b, FloatText):
        a, b = b, a
    constant = b.value if isinstance(b, FloatText) else None
    if constant is not None and not numbers:
        a, b = b, a  # the second is taken where neither is above: the constant, or NaN
    value = o.select(o.fcmp(above, t, a, b), t, a, b)
    if "nnan" in o.flags or o.flags == "fast":
        return value
    if constant is not None and constant == constant and (constant != 0 or numbers):
        return value
    if name == "maximum" and constant == 0:
        return o.op("fadd", t, value, o.const(s, 0.0)) if copysign(1, constant) > 0 else value
    if numbers:
        return o.select(o.fcmp("uno", t, b, b), t, a, value)
    return _nan_and_zero(o, s, a, b, value, name)


def _nan_and_zero(o: Lanes, s: str, a: str, b: str, value: str, name: str) -> str:
    """Mend a compare-and-select maximum: NaN of `a` (`b`'s is there already), and the sign of zero.

    Equal operands differ in the sign of zero at most; `and` of their bits is then +0 for a
    maximum, `or` -0 for a minimum, and the operand itself in every other case.
    """
    t = o.type(s)
    integer = o.type({"float": "i32", "double": "i64", "half": "i16"}[s])
    how = "and" if name == "maximum" else "or"
    bits = o.op(how, integer, o.bitcast(t, a, integer), o.bitcast(t, b, integer))
    same = o.bitcast(integer, bits, t)
    value = o.select(o.fcmp("oeq", t, a, b), t, same, value)
    return o.select(o.fcmp("uno", t, a, a), t, a, value)


def narrow_result(p: Printer, o: Lanes, x: str, src: Element, dst: Element) -> str:
    """A float or integer computed in `src`, as `dst`."""
    return convert_float(p, o, x, src, dst) if dst.is_float else x


@prints("arith.cmpf")
def print_cmpf(p: Printer, op: arith.CmpfOp) -> None:
    predicate = CMPF_COMPARISON_OPERATIONS[op.predicate.value.data]
    a, b = op.operands
    layout = p.layout(a.type)
    head = f"fcmp{flag_text(fast_flags(op))} {predicate}"
    out: list[str] = []
    for n, x, y in zip(layout.counts, p.get(a), p.get(b), strict=True):
        o = Lanes(p, n)
        if layout.element.llvm in ("float", "double"):
            out.append(p.emit(f"{head} {o.type(layout.element.llvm)} {x}, {y}"))
        else:
            wide = [to_f32(p, o, v, layout.element) for v in (x, y)]
            out.append(p.emit(f"{head} {o.f32} {wide[0]}, {wide[1]}"))
    p.set(op.results[0], out)
