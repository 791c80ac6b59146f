"""Ops on values that NVIDIA prints in its own way: conversions in pairs, fast division and square
root, prefetches, the dynamic shared memory, tw.print.

A narrow float lives in its own 16- or 8-bit register, but the machine converts two at once into one
32-bit word. The word is remembered with its parts (`Printer.split`), so that packing a fragment for
a matrix instruction finds the word again and nothing is moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import e, log2

from xdsl.ir import Operation

from tilewright.codegen.casts import print_float_cast
from tilewright.codegen.convert import bf16_to_f32
from tilewright.codegen.elementwise import fast_flags, float_elementwise
from tilewright.codegen.floats import print_float_binary
from tilewright.codegen.functions.exponential import exp2
from tilewright.codegen.functions.special import TANH, reciprocal
from tilewright.codegen.instructions.nvptx_common import ptx
from tilewright.codegen.lane_ops import Lanes
from tilewright.codegen.math import is_fast, print_function_op
from tilewright.codegen.memrefs import print_alloca
from tilewright.codegen.pointers import address_space, offset_pointer, pointer_type, string_constant
from tilewright.codegen.printer import Printer, integer_attribute, prints, unsupported
from tilewright.codegen.target import Handler
from tilewright.dialects import tw

SHARED_SYMBOL = "tilewright_shared"
"""The external array in address space 3 that stands for the dynamic shared memory."""

OFFSET = "mach.offset"
"""On an allocation in shared memory: how many bytes behind its beginning."""

_HALVES = {"bf16": "i16", "f16": "half"}
_QUARTERS = {"f8E4M3FN": "e4m3x2", "f8E5M2": "e5m2x2"}


def _narrow(p: Printer, name: str, regs: Sequence[str]) -> list[str]:
    """f32 registers rounded to bf16 or f16, two at once."""
    llvm = _HALVES[name]
    out: list[str] = []
    for low, high in zip(regs[0::2], regs[1::2], strict=False):
        args = [("float", high), ("float", low)]
        (word,) = ptx(p, f"cvt.rn.{name}x2.f32 $0, $1, $2;", ["i32"], args)
        out += p.split(word, "i32", llvm, 2)
    if len(regs) % 2:
        (one,) = ptx(p, f"cvt.rn.{name}.f32 $0, $1;", ["i16"], [("float", regs[-1])])
        out.append(one if llvm == "i16" else p.emit(f"bitcast i16 {one} to {llvm}"))
    return out


def _print_truncf(p: Printer, op: Operation) -> None:
    (value,) = op.operands
    src, dst = p.layout(value.type).element.name, p.layout(op.results[0].type).element.name
    if src in ("f32", "tf32") and dst in _HALVES:
        p.set(op.results[0], _narrow(p, dst, p.get(value)))
    else:
        print_float_cast(p, op)


def _wide(p: Printer, regs: Sequence[str]) -> list[str]:
    """Two registers of bf16, or the last one, as f32."""
    one = Lanes(p, 1)
    if (word := p.word_of(regs, "i32")) is None:
        return [bf16_to_f32(one, r) for r in regs]
    bits = [p.emit(f"shl i32 {word}, 16"), p.emit(f"and i32 {word}, -65536")]
    return [one.bitcast("i32", each, "float") for each in bits]


def _print_extf(p: Printer, op: Operation) -> None:
    """Pairs of f8 become pairs of f16, which is exact, and from there f32. Of a word of two bf16 each half is f32 where
    it stands: one instruction each, where to take the word apart and to widen the parts is three."""
    (value,) = op.operands
    src, dst = p.layout(value.type).element.name, p.layout(op.results[0].type).element.name
    regs = p.get(value)
    if (src, dst) == ("bf16", "f32"):
        p.set(op.results[0], [f for i in range(0, len(regs), 2) for f in _wide(p, regs[i : i + 2])])
        return
    if src not in _QUARTERS or len(regs) % 2 or not p.target.has("sm_89"):
        print_float_cast(p, op)
        return
    out: list[str] = []
    for low, high in zip(regs[0::2], regs[1::2], strict=True):
        pair = p.pack((low, high), "i8", "i16")
        (word,) = ptx(p, f"cvt.rn.f16x2.{_QUARTERS[src]} $0, $1;", ["i32"], [("i16", pair)])
        halves = p.split(word, "i32", "half", 2)
        if dst == "f16":
            out += halves
            continue
        wide = [
            p.emit(f"fpext half {h} to {'double' if dst == 'f64' else 'float'}") for h in halves
        ]
        out += _narrow(p, dst, wide) if dst in _HALVES else wide
    p.set(op.results[0], out)


_BF16_WORD = {1.0: "1065369472", -1.0: "-1082081408", -0.0: "-2147450880"}
"""Two bf16 of one value, in a word."""


def _print_bf16(p: Printer, op: Operation) -> None:
    """Sums, differences and products of bf16, two at once by one multiply-add, which rounds as they do."""
    if p.layout(op.operands[0].type).element.name != "bf16":
        print_float_binary(p, op)
        return
    xs, ys = (list(p.get(v)) for v in op.operands)
    odd = len(xs) % 2
    if odd:
        xs, ys = [*xs, xs[-1]], [*ys, ys[-1]]
    out: list[str] = []
    for i in range(0, len(xs), 2):
        x, y = (p.pack(v[i : i + 2], "i16", "i32") for v in (xs, ys))
        match op.name:
            case "arith.addf":
                args = [x, _BF16_WORD[1.0], y]
            case "arith.subf":
                args = [y, _BF16_WORD[-1.0], x]
            case _:
                args = [x, y, _BF16_WORD[-0.0]]
        (word,) = ptx(p, "fma.rn.bf16x2 $0, $1, $2, $3;", ["i32"], [("i32", a) for a in args])
        out += p.split(word, "i32", "i16", 2)
    p.set(op.results[0], out[: len(out) - odd])


def _print_divf(p: Printer, op: Operation) -> None:
    """One approximate reciprocal (1 ulp) and a product where `afn` allows it."""
    flags = fast_flags(op)
    element = p.layout(op.operands[0].type).element.name
    if element == "f64" or not ("afn" in flags or flags == "fast"):
        print_float_binary(p, op)
        return

    def divide(o: Lanes, s: str, x: list[str]) -> str:
        args = [("float", x[0]), ("float", x[1])]
        return ptx(p, "div.approx.f32 $0, $1, $2;", ["float"], args)[0]

    float_elementwise(p, op, divide, native_half=False)


def _print_sqrt(p: Printer, op: Operation) -> None:
    if not is_fast(op) or p.layout(op.operands[0].type).element.name == "f64":
        prints.by_name[op.name](p, op)
        return

    def root(o: Lanes, s: str, x: list[str]) -> str:
        return ptx(p, "sqrt.approx.f32 $0, $1;", ["float"], [("float", x[0])])[0]

    float_elementwise(p, op, root, native_half=False)


def _print_tanh(p: Printer, op: Operation) -> None:
    """The approximate unit (relative error 2^-11) where the result holds no more: bf16.

    Else with `afn` the polynomial near 0 and 1 - 2 / (e^2x + 1) beyond 0.625, where the unit's powers and inverses
    need no sign taken off and no bound (e^2x may be infinite or zero); this everywhere where its error may be absolute.
    """
    element = p.layout(op.operands[0].type).element.name
    if not is_fast(op) or element == "f64":
        print_function_op(p, op)
        return

    def approximate(o: Lanes, s: str, x: list[str]) -> str:
        return ptx(p, "tanh.approx.f32 $0, $1;", ["float"], [("float", x[0])])[0]

    absolute = "mach.absolute" in op.attributes

    def near_zero(o: Lanes, s: str, v: str) -> str:
        t = o.type(s)
        z = o.op("fmul", t, v, v)
        return o.op("fmul", t, v, o.fmuladd(s, z, o.horner(s, z, TANH[s]), o.const(s, 1.0)))

    def tanh(o: Lanes, s: str, x: list[str]) -> str:
        t, (v,) = o.type(s), x
        small = "" if absolute else near_zero(o, s, v)
        power = exp2(o, s, o.op("fmul", t, v, o.const(s, 2 * log2(e))), True)
        inverse = reciprocal(o, s, o.op("fadd", t, power, o.const(s, 1.0)), True)
        large = o.fmuladd(s, inverse, o.const(s, -2.0), o.const(s, 1.0))
        if absolute:
            return large
        near = o.fcmp("olt", t, o.intrinsic("fabs", s, v), o.const(s, 0.625))
        return o.select(near, t, small, large)

    float_elementwise(p, op, approximate if element == "bf16" else tanh, native_half=False)


def _print_prefetch(p: Printer, op: Operation) -> None:
    """locality 3 is L1 (global memory's is L2 on most machines), less is L2; 0 is no prefetch."""
    (pointer,) = op.operands
    llvm = pointer_type(p, pointer.type)
    locality = integer_attribute(op, "locality")
    if locality == 0 or address_space(llvm) == "3":
        return
    level = "L1" if locality == 3 else "L2"
    space = "global." if address_space(llvm) == "1" else ""
    p.call("void", f"llvm.nvvm.prefetch.{space}{level}", [(llvm, p.one(pointer))])


def _print_shared_base(p: Printer, op: Operation) -> None:
    p.addressed[SHARED_SYMBOL] = "addrspace(3) "
    alignment = integer_attribute(op, "alignment")
    if alignment <= 16:
        p.set(op.results[0], [f"@{SHARED_SYMBOL}"])
        return
    address = p.emit(f"ptrtoint ptr addrspace(3) @{SHARED_SYMBOL} to i32")
    up = p.emit(f"add i32 {address}, {alignment - 1}")
    rounded = p.emit(f"and i32 {up}, {-alignment}")
    p.set(op.results[0], [p.emit(f"inttoptr i32 {rounded} to ptr addrspace(3)")])


def _print_allocation(p: Printer, op: Operation) -> None:
    """Shared memory is the part of the dynamic one at `OFFSET`; other memory is a thread's own."""
    result = op.results[0]
    layout = p.rep.memref(result.type)  # pyright: ignore[reportArgumentType]
    if address_space(layout.pointer) != "3":
        print_alloca(p, op)
        return
    p.addressed[SHARED_SYMBOL] = "addrspace(3) "
    at = integer_attribute(op, OFFSET)
    p.set(result, [offset_pointer(p, f"@{SHARED_SYMBOL}", at, layout.pointer)])


SLOT = 8
"""Bytes of a value for vprintf, which reads 64-bit numbers, doubles and pointers."""


def _print(p: Printer, op: tw.PrintOp) -> None:
    """One call of the driver's vprintf, whose lines the host sees when it next waits for the device."""
    conversions: list[str] = []
    buffer = "null"
    if op.operands:
        buffer = p.fresh()
        p.entry.append(f"  {buffer} = alloca [{SLOT * len(op.operands)} x i8], align {SLOT}")
    for n, value in enumerate(op.operands):
        e = p.layout(value.type).element
        register = p.one(value)
        if e.name == "i1":
            yes, no = string_constant(p, "True"), string_constant(p, "False")
            kind, register = "ptr", p.emit(f"select i1 {register}, ptr {yes}, ptr {no}")
            conversions.append("%s")
        elif e.name in ("i64", "f64", "index"):
            kind = e.llvm
            conversions.append("%g" if e.name == "f64" else "%lld")
        else:
            raise unsupported(op, f"of {e.name}: programs print i64, f64 and i1")
        place = p.emit(f"getelementptr i8, ptr {buffer}, i64 {SLOT * n}")
        p.line(f"store {kind} {register}, ptr {place}, align {SLOT}")
    form = op.format.data.replace("%", "%%").format(*conversions) + "\n"
    p.call("i32", "vprintf", [("ptr", string_constant(p, form)), ("ptr", buffer)])


NVPTX_VALUE_HANDLERS: dict[str, Handler] = {
    "arith.truncf": _print_truncf,
    "arith.extf": _print_extf,
    "arith.divf": _print_divf,
    **dict.fromkeys(("arith.addf", "arith.subf", "arith.mulf"), _print_bf16),
    "math.sqrt": _print_sqrt,
    "math.tanh": _print_tanh,
    "mach.prefetch": _print_prefetch,
    "mach.shared_base": _print_shared_base,
    **dict.fromkeys(("memref.alloc", "memref.alloca"), _print_allocation),
    "memref.dealloc": lambda p, op: None,
    "tw.print": _print,
}
