"""arith casts: integer widths, float formats, between the two, and between bits."""

from __future__ import annotations

from functools import partial

from xdsl.ir import Operation

from tilewright.codegen.convert import convert_float, from_f32, to_f32
from tilewright.codegen.elementwise import CastBody, fast_flags
from tilewright.codegen.lane_ops import Lanes
from tilewright.codegen.printer import Printer, prints, unsupported
from tilewright.codegen.registers import Element


def _cast(p: Printer, op: Operation, body: CastBody) -> None:
    """Print `body` for each register."""
    (value,) = op.operands
    src, dst = p.layout(value.type), p.layout(op.results[0].type)
    p.set(
        op.results[0],
        [
            body(Lanes(p, n), x, src.element, dst.element)
            for n, x in zip(src.counts, p.get(value), strict=True)
        ],
    )


def resize_integer(o: Lanes, x: str, src: Element, dst: Element, signed: bool) -> str:
    """Integer lanes made wider or narrower.

    The last bit is compared with 0: LLVM's SPIR-V backend fails at a select of truncated vectors of i1.
    """
    if src.bits == dst.bits:
        return x
    if dst.llvm == "i1":
        t = o.type(src.llvm)
        return o.icmp("ne", t, o.op("and", t, x, o.const(src.llvm, 1)), o.const(src.llvm, 0))
    name = "trunc" if src.bits > dst.bits else "sext" if signed else "zext"
    return o.cast(name, o.type(src.llvm), x, o.type(dst.llvm))


@prints("arith.extsi", "arith.trunci", "arith.index_cast", "index.casts")
def print_signed_resize(p: Printer, op: Operation) -> None:
    _cast(p, op, lambda o, x, s, d: resize_integer(o, x, s, d, True))


@prints("arith.extui", "arith.index_castui", "index.castu")
def print_unsigned_resize(p: Printer, op: Operation) -> None:
    _cast(p, op, lambda o, x, s, d: resize_integer(o, x, s, d, False))


@prints("arith.extf", "arith.truncf")
def print_float_cast(p: Printer, op: Operation) -> None:
    fast = "afn" in fast_flags(op)
    _cast(p, op, lambda o, x, s, d: convert_float(p, o, x, s, d, fast))


@prints("arith.sitofp", "arith.uitofp")
def print_integer_to_float(p: Printer, op: Operation) -> None:
    """Integers of 32 bits, and all for f16, reach a narrow float through an f32 that rounding again rounds once; others
    through such an f64.

    A truth value picks one of two constants: LLVM's SPIR-V backend has no conversion of a vector of i1.
    """
    name = op.name.removeprefix("arith.")

    def convert(o: Lanes, x: str, src: Element, dst: Element) -> str:
        t = o.type(src.llvm)
        if src.llvm == "i1":
            kind = "double" if dst.name == "f64" else "float"
            one = o.const(kind, -1.0 if name == "sitofp" else 1.0)
            x = o.select(x, o.type(kind), one, o.const(kind, 0.0))
            return x if dst.name in ("f32", "f64") else from_f32(p, o, x, dst)
        if dst.name in ("f32", "f64"):
            return o.cast(name, t, x, o.type(dst.llvm))
        x = x if src.bits < 32 else _fit_float(o, x, src, dst, name == "sitofp")
        if src.bits <= 32 or dst.name == "f16":
            return from_f32(p, o, o.cast(name, t, x, o.f32), dst)
        return convert_float(p, o, o.cast(name, t, x, o.f64), _F64, dst)

    _cast(p, op, convert)


def _fit_float(o: Lanes, x: str, src: Element, dst: Element, signed: bool) -> str:
    """An integer that f32 (of 32 bits, or for f16) or f64 holds, and that a narrower float rounds to the same."""
    t, number = o.type(src.llvm), partial(o.const, src.llvm)
    if dst.name == "f16":  # its largest number is 65504: what is beyond 2^17 is as 2^17
        far, near = number(1 << 17), number(-(1 << 17))
        if signed:
            x = o.select(o.icmp("slt", t, x, near), t, near, x)
        return o.select(o.icmp("sgt" if signed else "ugt", t, x, far), t, far, x)
    # Beyond 2^24 (2^53) the last 8 (11) bits are 0, and an inexact result is odd without them.
    digits = 24 if src.bits == 32 else 53
    last = 1 << (src.bits - digits)
    rest = o.icmp("ne", t, o.op("and", t, x, number(last - 1)), number(0))
    odd = o.op("or", t, x, o.select(rest, t, number(last), number(0)))
    odd = o.op("and", t, odd, number(-last))
    near = o.op("add", t, x, number(1 << digits)) if signed else x
    return o.select(o.icmp("ult", t, near, number(1 << (digits + signed))), t, x, odd)


_F64 = Element("f64", "double", "float", 64, 64)


@prints("arith.fptosi", "arith.fptoui")
def print_float_to_integer(p: Printer, op: Operation) -> None:
    name = op.name.removeprefix("arith.")

    def convert(o: Lanes, x: str, src: Element, dst: Element) -> str:
        t, scalar = o.type(dst.llvm), src.llvm
        if src.name not in ("f32", "f64"):
            x, scalar = to_f32(p, o, x, src), "float"
        return o.cast(name, o.type(scalar), x, t)

    _cast(p, op, convert)


@prints("arith.bitcast")
def print_bitcast(p: Printer, op: Operation) -> None:
    _cast(p, op, lambda o, x, s, d: o.bitcast(o.type(s.llvm), x, o.type(d.llvm)))


@prints("builtin.unrealized_conversion_cast")
def print_conversion_cast(p: Printer, op: Operation) -> None:
    """A cast between types of the same registers (signedness of integers, mostly) moves nothing."""
    if len(op.operands) == 1 and len(op.results) == 1:
        a, b = op.operands[0], op.results[0]
        if p.registers(a.type) == p.registers(b.type):
            p.set(b, p.get(a))
            return
    raise unsupported(
        op, "between types of different registers", "a conversion pass left it behind"
    )
