"""math ops: elementary functions through `functions`, rounding and bit counting through LLVM
intrinsics.

Powers of f64 call the C library once per component, where there is one.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Operation, SSAValue

from tilewright.codegen.elementwise import elementwise, fast_flags, float_elementwise
from tilewright.codegen.functions.exponential import exp, exp2
from tilewright.codegen.functions.hyperbolic import acosh, asinh, atanh, cosh, expm1, sinh
from tilewright.codegen.functions.inverse import acos, asin, atan, atan2, cbrt, tan
from tilewright.codegen.functions.logarithm import log, log1p, log2, log10
from tilewright.codegen.functions.special import ERFC, erf, erfc, powf, tanh
from tilewright.codegen.functions.trigonometry import cos, sin
from tilewright.codegen.lane_ops import FloatText, Lanes
from tilewright.codegen.printer import Printer, integer_attribute, prints, unsupported
from tilewright.codegen.registers import Element, llvm_vector

Function = Callable[[Lanes, str, str, bool], str]

FUNCTIONS: dict[str, Function] = {
    f"math.{function.__name__}": function
    for function in (
        *(acos, acosh, asin, asinh, atan, atanh, cbrt, cos, cosh, erf, expm1),
        *(log, log1p, log2, log10, sin, sinh, tan, tanh),
    )
}


@prints(*FUNCTIONS)
def print_function_op(p: Printer, op: Operation) -> None:
    function = FUNCTIONS[op.name]
    fast = is_fast(op)
    float_elementwise(p, op, lambda o, s, x: function(plain(o), s, x[0], fast), native_half=False)


def is_fast(op: Operation) -> bool:
    """May the function be approximate?"""
    flags = fast_flags(op)
    return "afn" in flags or flags == "fast"


def plain(o: Lanes) -> Lanes:
    """Lanes without fast-math flags: expansions rely on exact rounding, infinities and NaN."""
    return Lanes(o.p, o.count)


def precision(p: Printer, op: Operation) -> int:
    """Bits of relative precision that a fast result needs: `mach.bits`, or what the type holds."""
    name = p.layout(op.results[0].type).element.name
    held = {"bf16": 8, "f16": 11, "f8E4M3FN": 8, "f8E5M2": 8}.get(name, 24)
    return integer_attribute(op, "mach.bits", held)


@prints("math.exp", "math.exp2")
def print_exponential(p: Printer, op: Operation) -> None:
    function = exp if op.name == "math.exp" else exp2
    fast, bits = is_fast(op), precision(p, op)
    float_elementwise(
        p, op, lambda o, s, x: function(plain(o), s, x[0], fast, bits), native_half=False
    )


@prints("math.erfc")
def print_erfc(p: Printer, op: Operation) -> None:
    bits = precision(p, op)
    if not is_fast(op) or bits > max(ERFC):
        raise unsupported(op, f"has no expansion that gives more than {max(ERFC)} bits")
    layout = p.layout(op.operands[0].type)
    if layout.element.name != "f32":
        float_elementwise(p, op, lambda o, s, x: erfc(plain(o), s, x[0], bits), native_half=False)
        return
    value, factor = _factored(p, op.operands[0])
    registers = zip(layout.counts, p.get(value), strict=True)
    p.set(op.results[0], [erfc(Lanes(p, n), "float", x, bits, factor) for n, x in registers])


def _factored(p: Printer, value: SSAValue) -> tuple[SSAValue, float]:
    """A value that an f32 is a multiple of, and the factor, whose powers in a table are floats."""
    factor = 1.0
    while isinstance(op := value.owner, Operation) and op.name in ("arith.negf", "arith.mulf"):
        sources, by = list(op.operands), -1.0
        if op.name == "arith.mulf":
            sources = [v for v in sources if not isinstance(p.get(v)[0], FloatText)]
            by = next(
                (c.value for v in op.operands if isinstance(c := p.get(v)[0], FloatText)), 0.0
            )
        if len(sources) != 1 or not 2.0**-32 < abs(factor * by) < 2.0**32:
            break
        value, factor = sources[0], factor * by
    return value, factor


@prints("math.rsqrt")
def print_rsqrt(p: Printer, op: Operation) -> None:
    def root(o: Lanes, s: str, x: list[str]) -> str:
        return o.op("fdiv", o.type(s), o.const(s, 1.0), o.intrinsic("sqrt", s, x[0]))

    float_elementwise(p, op, root, native_half=False)


_INTRINSICS = ("sqrt", "floor", "ceil", "trunc", "round", "roundeven", "copysign", "fma")


@prints(*(f"math.{name}" for name in _INTRINSICS))
def print_intrinsic(p: Printer, op: Operation) -> None:
    name = op.name.removeprefix("math.")
    float_elementwise(p, op, lambda o, s, x: o.intrinsic(name, s, *x), native_half=False)


@prints("math.powf")
def print_powf(p: Printer, op: Operation) -> None:
    if p.layout(op.results[0].type).element.name == "f64":
        _print_pow(p, op)
        return
    float_elementwise(p, op, lambda o, s, x: powf(plain(o), x[0], x[1]), native_half=False)


def _print_pow(p: Printer, op: Operation) -> None:
    """The C library's, once per component."""
    if not p.target.has("library"):
        raise unsupported(op, f"of f64 has no expansion, and {p.target.name} has no C library")

    def call(o: Lanes, s: str, x: list[str]) -> str:
        if o.count == 1:
            return p.call(s, "pow", [(s, v) for v in x])
        t = llvm_vector(o.count, s)
        value = "poison"
        for i in range(o.count):
            args = [(s, p.emit(f"extractelement {t} {v}, i64 {i}")) for v in x]
            value = p.emit(f"insertelement {t} {value}, {s} {p.call(s, 'pow', args)}, i64 {i}")
        return value

    float_elementwise(p, op, call, native_half=False)


@prints("math.atan2")
def print_atan2(p: Printer, op: Operation) -> None:
    float_elementwise(p, op, lambda o, s, x: atan2(plain(o), s, x[0], x[1]), native_half=False)


# Integers -----------------------------------------------------------------------------------------


@prints("math.absi")
def print_absi(p: Printer, op: Operation) -> None:
    elementwise(p, op, lambda o, e, x: _with_flag(o, "abs", e, x[0]))


@prints("math.ctlz", "math.cttz")
def print_count_zeros(p: Printer, op: Operation) -> None:
    name = op.name.removeprefix("math.")
    elementwise(p, op, lambda o, e, x: _with_flag(o, name, e, x[0]))


def _with_flag(o: Lanes, name: str, e: Element, x: str) -> str:
    """Intrinsics whose second operand says that one input is poison: it never is."""
    t = o.type(e.llvm)
    suffix = e.llvm if o.count == 1 else f"v{o.count}{e.llvm}"
    return o.p.call(t, f"llvm.{name}.{suffix}", [(t, x), ("i1", "false")])


@prints("math.ctpop")
def print_popcount(p: Printer, op: Operation) -> None:
    elementwise(p, op, lambda o, e, x: o.intrinsic("ctpop", e.llvm, x[0]))
