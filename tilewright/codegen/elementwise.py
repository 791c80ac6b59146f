"""What elementwise ops share: fast-math flags, and one loop over the registers of a layout.

Arithmetic on a float type narrower than f32 computes in f32 and rounds once per op, which is
exactly MLIR's meaning (24 bits are enough for +, -, *, / and comparisons of 11-bit numbers); where
the machine computes in f16 itself, it does.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.arith import FastMathFlagsAttr
from xdsl.ir import Operation

from tilewright.codegen.convert import from_f32, to_f32
from tilewright.codegen.lane_ops import Lanes
from tilewright.codegen.printer import Printer, attribute
from tilewright.codegen.registers import Element


def fast_flags(op: Operation) -> str:
    """LLVM fast-math flags of the op's `fastmath` attribute, space separated."""
    found = attribute(op, "fastmath")
    if not isinstance(found, FastMathFlagsAttr) or not found.data:
        return ""
    names = {f.value for f in found.data}
    return "fast" if len(names) == 7 else " ".join(sorted(names))


def flag_text(flags: str) -> str:
    """Flags as they follow an opcode."""
    return f" {flags}" if flags else ""


Body = Callable[[Lanes, Element, list[str]], str]
"""(lanes, element, operand registers) -> result register"""
FloatBody = Callable[[Lanes, str, list[str]], str]
"""(lanes, LLVM scalar type computed in, operand registers) -> result register"""
CastBody = Callable[[Lanes, str, Element, Element], str]
"""(lanes, register, source element, result element) -> result register"""


def elementwise(p: Printer, op: Operation, body: Body, flags: str = "") -> None:
    """Print `body` for every register of the first operand's layout."""
    layout = p.layout(op.operands[0].type)
    regs = [p.get(v) for v in op.operands]
    out = [
        body(Lanes(p, n, flags), layout.element, [r[i] for r in regs])
        for i, n in enumerate(layout.counts)
    ]
    p.set(op.results[0], out)


def native_float(p: Printer, e: Element) -> str | None:
    """The LLVM scalar type in which this target computes on `e` itself, or None."""
    if e.name in ("f32", "f64", "tf32"):
        return e.llvm
    if e.name == "f16" and p.target.has("f16 arithmetic"):
        return "half"
    return None


def float_elementwise(
    p: Printer, op: Operation, body: FloatBody, *, native_half: bool = True
) -> None:
    """Print `body` on floats, in f32 where the target lacks the type.

    The result has the operands' type, rounded once.
    """
    layout = p.layout(op.operands[0].type)
    element = layout.element
    flags = fast_flags(op)
    regs = [p.get(v) for v in op.operands]
    native = native_float(p, element)
    if native == "half" and not native_half:
        native = None
    out: list[str] = []
    for i, n in enumerate(layout.counts):
        o = Lanes(p, n, flags)
        operands = [r[i] for r in regs]
        if native is not None and native == element.llvm:
            out.append(body(o, native, operands))
        elif native is not None:
            t, reg = o.type(native), o.type(element.llvm)
            value = body(o, native, [o.bitcast(reg, x, t) for x in operands])
            out.append(o.bitcast(t, value, reg))
        else:
            value = body(o, "float", [to_f32(p, o, x, element) for x in operands])
            out.append(from_f32(p, o, value, element, "afn" in flags))
    p.set(op.results[0], out)
