"""arith and index ops: elementwise over the registers of their operands.

Arithmetic on a float type narrower than f32 computes in f32 and rounds once per op, which is
exactly MLIR's meaning (24 bits are enough for +, -, *, / and comparisons of 11-bit numbers); where
the machine computes in f16 itself, it does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from xdsl.dialects.arith import (
    CMPF_COMPARISON_OPERATIONS,
    CMPI_COMPARISON_OPERATIONS,
    FastMathFlagsAttr,
    IntegerOverflowAttr,
)
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    VectorType,
)
from xdsl.ir import Operation

from tilewright.codegen.convert import convert_float, from_f32, to_f32
from tilewright.codegen.lane_ops import Lanes, float_text, splat
from tilewright.codegen.printer import Printer, attribute, prints, unsupported
from tilewright.codegen.registers import Element, Layout

# Flags --------------------------------------------------------------------------------------------


def fast_flags(op: Operation) -> str:
    """LLVM fast-math flags of the op's `fastmath` attribute, space separated."""
    found = attribute(op, "fastmath")
    if not isinstance(found, FastMathFlagsAttr) or not found.data:
        return ""
    names = {f.value for f in found.data}
    return "fast" if len(names) == 7 else " ".join(sorted(names))


def _head(flags: str) -> str:
    return f" {flags}" if flags else ""


# Constants ----------------------------------------------------------------------------------------


def narrow_float_bits(value: float, name: str) -> int:
    """Bits of `value` in a float type that lives in an integer register."""
    import ml_dtypes

    types = {
        "bf16": ml_dtypes.bfloat16,
        "f16": np.float16,
        "f8E4M3FN": ml_dtypes.float8_e4m3fn,
        "f8E5M2": ml_dtypes.float8_e5m2,
    }
    with np.errstate(over="ignore"):
        narrow = np.array(value, dtype=np.float64).astype(types[name])
    return int(narrow.view(np.uint16 if narrow.itemsize == 2 else np.uint8))


def constant_text(value: float, element: Element) -> str:
    """LLVM text of one component."""
    if element.is_float:
        if element.llvm.startswith("i"):
            return str(narrow_float_bits(value, element.name))
        if element.name == "tf32":
            bits = int(np.array(value, dtype=np.float32).view(np.uint32))
            kept = (bits + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000
            if not np.isnan(value):
                value = float(np.array(kept, dtype=np.uint32).view(np.float32))
        return float_text(value, element.llvm)
    if element.llvm == "i1":
        return "true" if value else "false"
    return str(int(value))


def constant_registers(values: list[float] | list[int], layout: Layout) -> list[str]:
    """Operands for a constant of `layout`; `values` has one entry per component, or one in all (a
    splat).
    """
    element = layout.element
    if len(values) == 1:
        text = constant_text(values[0], element)
        return [splat(n, element.llvm, text) for n in layout.counts]
    cache: dict[float | int, str] = {}
    texts: list[str] = []
    for v in values:
        text = cache.get(v) if v else None
        if text is None:
            text = cache[v] = constant_text(v, element)
        texts.append(text)
    out: list[str] = []
    at = 0
    for n in layout.counts:
        part = texts[at : at + n]
        at += n
        if n == 1:
            out.append(part[0])
        elif part.count(part[0]) == n:
            out.append(splat(n, element.llvm, part[0]))
        else:
            out.append(f"<{', '.join(f'{element.llvm} {t}' for t in part)}>")
    return out


@prints("arith.constant", "index.constant")
def print_constant(p: Printer, op: Operation) -> None:
    value = attribute(op, "value")
    layout = p.layout(op.results[0].type)
    if isinstance(value, IntegerAttr | FloatAttr):
        p.set(op.results[0], constant_registers([value.value.data], layout))
    elif isinstance(value, DenseIntOrFPElementsAttr):
        values = list(value.get_values())
        p.set(op.results[0], constant_registers(values, layout))  # pyright: ignore[reportArgumentType]
    else:
        raise unsupported(op, f"constant {value} is not a number or dense elements")


@prints("index.bool.constant")
def print_bool_constant(p: Printer, op: Operation) -> None:
    value = attribute(op, "value")
    on = isinstance(value, IntegerAttr) and bool(value.value.data)
    p.set(op.results[0], ["true" if on else "false"])


@prints("ub.poison", "llvm.mlir.undef", "llvm.mlir.poison")
def print_poison(p: Printer, op: Operation) -> None:
    p.set(op.results[0], ["poison"] * len(p.registers(op.results[0].type)))


@prints("llvm.mlir.zero")
def print_zero(p: Printer, op: Operation) -> None:
    types = p.registers(op.results[0].type)
    p.set(op.results[0], ["null" if t.startswith("ptr") else "zeroinitializer" for t in types])


# Integers -----------------------------------------------------------------------------------------

_INTEGER_BINARY = {
    "arith.addi": "add",
    "arith.subi": "sub",
    "arith.muli": "mul",
    "arith.divsi": "sdiv",
    "arith.divui": "udiv",
    "arith.remsi": "srem",
    "arith.remui": "urem",
    "arith.andi": "and",
    "arith.ori": "or",
    "arith.xori": "xor",
    "arith.shli": "shl",
    "arith.shrsi": "ashr",
    "arith.shrui": "lshr",
    "index.add": "add",
    "index.sub": "sub",
    "index.mul": "mul",
    "index.divs": "sdiv",
    "index.divu": "udiv",
    "index.rems": "srem",
    "index.remu": "urem",
    "index.and": "and",
    "index.or": "or",
    "index.xor": "xor",
    "index.shl": "shl",
    "index.shrs": "ashr",
    "index.shru": "lshr",
}


@prints(*_INTEGER_BINARY)
def print_integer_binary(p: Printer, op: Operation) -> None:
    a, b = op.operands
    name = _INTEGER_BINARY[op.name]
    overflow = op.properties.get("overflowFlags")
    if isinstance(overflow, IntegerOverflowAttr) and overflow.data:
        name = " ".join([name, *sorted(f.value for f in overflow.data)])
    types = p.layout(a.type).types
    p.set(
        op.results[0],
        [p.emit(f"{name} {t} {x}, {y}") for t, x, y in zip(types, p.get(a), p.get(b), strict=True)],
    )


_INTEGER_MINMAX = {
    "arith.minsi": "smin",
    "arith.minui": "umin",
    "arith.maxsi": "smax",
    "arith.maxui": "umax",
    "index.mins": "smin",
    "index.minu": "umin",
    "index.maxs": "smax",
    "index.maxu": "umax",
}


@prints(*_INTEGER_MINMAX)
def print_integer_minmax(p: Printer, op: Operation) -> None:
    name = _INTEGER_MINMAX[op.name]
    elementwise(p, op, lambda o, e, x: o.intrinsic(name, e.llvm, *x))


@prints("arith.floordivsi", "index.floordivs")
def print_floordiv(p: Printer, op: Operation) -> None:
    """q - 1 where the remainder is not zero and has another sign than the divisor."""

    def floor(o: Lanes, e: Element, x: list[str]) -> str:
        t = o.type(e.llvm)
        q, r = o.op("sdiv", t, *x), o.op("srem", t, *x)
        zero = o.const(e.llvm, 0)
        signs = o.icmp("slt", t, o.op("xor", t, r, x[1]), zero)
        off = o.op("and", o.i1, o.icmp("ne", t, r, zero), signs)
        return o.op("add", t, q, o.cast("sext", o.i1, off, t))

    elementwise(p, op, floor)


@prints("arith.ceildivsi", "index.ceildivs")
def print_ceildiv_signed(p: Printer, op: Operation) -> None:
    """q + 1 where the remainder is not zero and has the divisor's sign."""

    def ceil(o: Lanes, e: Element, x: list[str]) -> str:
        t = o.type(e.llvm)
        q, r = o.op("sdiv", t, *x), o.op("srem", t, *x)
        zero = o.const(e.llvm, 0)
        signs = o.icmp("sge", t, o.op("xor", t, r, x[1]), zero)
        off = o.op("and", o.i1, o.icmp("ne", t, r, zero), signs)
        return o.op("add", t, q, o.cast("zext", o.i1, off, t))

    elementwise(p, op, ceil)


@prints("arith.ceildivui", "index.ceildivu")
def print_ceildiv_unsigned(p: Printer, op: Operation) -> None:
    def ceil(o: Lanes, e: Element, x: list[str]) -> str:
        t = o.type(e.llvm)
        q, r = o.op("udiv", t, *x), o.op("urem", t, *x)
        off = o.icmp("ne", t, r, o.const(e.llvm, 0))
        return o.op("add", t, q, o.cast("zext", o.i1, off, t))

    elementwise(p, op, ceil)


@prints("arith.addui_extended")
def print_add_extended(p: Printer, op: Operation) -> None:
    layout = p.layout(op.results[0].type)
    sums: list[str] = []
    carries: list[str] = []
    for n, t, x, y in zip(layout.counts, layout.types, *map(p.get, op.operands), strict=True):
        o = Lanes(p, n)
        sums.append(o.op("add", t, x, y))
        carries.append(o.icmp("ult", t, sums[-1], x))
    p.set(op.results[0], sums)
    p.set(op.results[1], carries)


@prints("arith.mului_extended", "arith.mulsi_extended")
def print_mul_extended(p: Printer, op: Operation) -> None:
    extend = "zext" if op.name == "arith.mului_extended" else "sext"
    layout = p.layout(op.results[0].type)
    bits = layout.element.bits
    low: list[str] = []
    high: list[str] = []
    for n, t, x, y in zip(layout.counts, layout.types, *map(p.get, op.operands), strict=True):
        o = Lanes(p, n)
        wide = o.type(f"i{2 * bits}")
        product = o.op("mul", wide, o.cast(extend, t, x, wide), o.cast(extend, t, y, wide))
        low.append(o.cast("trunc", wide, product, t))
        shift = splat(n, f"i{2 * bits}", str(bits))
        high.append(o.cast("trunc", wide, o.op("lshr", wide, product, shift), t))
    p.set(op.results[0], low)
    p.set(op.results[1], high)


# Elementwise machinery ----------------------------------------------------------------------------


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
    if e.name == "f16" and (not p.target.name.startswith("x86") or p.target.has("avx512fp16")):
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


# Floats -------------------------------------------------------------------------------------------

_FLOAT_BINARY = {
    "arith.addf": "fadd",
    "arith.subf": "fsub",
    "arith.mulf": "fmul",
    "arith.divf": "fdiv",
    "arith.remf": "frem",
}


@prints(*_FLOAT_BINARY)
def print_float_binary(p: Printer, op: Operation) -> None:
    name = _FLOAT_BINARY[op.name]
    a, b = op.operands
    layout = p.layout(a.type)
    if layout.element.name in ("f32", "f64"):
        head = name + _head(fast_flags(op))
        p.set(
            op.results[0],
            [
                p.emit(f"{head} {t} {x}, {y}")
                for t, x, y in zip(layout.types, p.get(a), p.get(b), strict=True)
            ],
        )
        return
    float_elementwise(p, op, lambda o, s, x: o.fop(name, o.type(s), *x))


def sign_mask(o: Lanes, e: Element, x: str, how: str) -> str:
    """Flip (`xor`) or clear (`and`) the sign bit of a float register, whatever its type."""
    t = o.type(e.llvm)
    scalar = f"i{e.bits if e.name != 'tf32' else 32}"
    bits = 32 if e.name == "tf32" else e.bits
    mask = 1 << (bits - 1)
    integer = o.type(scalar)
    text = splat(o.count, scalar, str(mask if how == "xor" else mask - 1))
    return o.bitcast(integer, o.op(how, integer, o.bitcast(t, x, integer), text), t)


@prints("arith.negf")
def print_negf(p: Printer, op: Operation) -> None:
    flags = fast_flags(op)

    def negate(o: Lanes, e: Element, x: list[str]) -> str:
        if e.llvm in ("float", "double", "half"):
            return p.emit(f"fneg{_head(flags)} {o.type(e.llvm)} {x[0]}")
        return sign_mask(o, e, x[0], "xor")

    elementwise(p, op, negate)


@prints("math.absf")
def print_absf(p: Printer, op: Operation) -> None:
    def absolute(o: Lanes, e: Element, x: list[str]) -> str:
        if e.llvm in ("float", "double", "half"):
            return o.intrinsic("fabs", e.llvm, x[0])
        return sign_mask(o, e, x[0], "and")

    elementwise(p, op, absolute)


_FLOAT_MINMAX = {
    "arith.maximumf": "maximum",
    "arith.minimumf": "minimum",
    "arith.maxnumf": "maxnum",
    "arith.minnumf": "minnum",
}


@prints(*_FLOAT_MINMAX)
def print_float_minmax(p: Printer, op: Operation) -> None:
    """maximumf gives NaN for NaN and +0 above -0; maxnumf gives the other operand. With nnan:
    compare and select.

    The expansion is ours: LLVM's own for x86 vectors takes twice the instructions.
    """
    name = _FLOAT_MINMAX[op.name]
    float_elementwise(p, op, lambda o, s, x: float_maximum(o, s, x[0], x[1], name))


def float_maximum(o: Lanes, s: str, a: str, b: str, name: str) -> str:
    """maximum, minimum, maxnum or minnum of two registers of LLVM scalar type `s`."""
    if not o.p.target.name.startswith("x86"):
        return o.intrinsic(name, s, a, b)
    t = o.type(s)
    above = "ogt" if name.startswith("max") else "olt"
    value = o.select(o.fcmp(above, t, a, b), t, a, b)
    if "nnan" in o.flags or o.flags == "fast":
        return value
    if name in ("maxnum", "minnum"):
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


# Comparison and select ----------------------------------------------------------------------------


@prints("arith.cmpi", "index.cmp")
def print_cmpi(p: Printer, op: Operation) -> None:
    found = attribute(op, "pred" if op.name == "index.cmp" else "predicate")
    if isinstance(found, IntegerAttr):
        predicate = CMPI_COMPARISON_OPERATIONS[found.value.data]
    elif isinstance(found, StringAttr):
        predicate = found.data
    else:
        predicate = str(getattr(found, "data", found))
    a, b = op.operands
    types = p.layout(a.type).types
    p.set(
        op.results[0],
        [
            p.emit(f"icmp {predicate} {t} {x}, {y}")
            for t, x, y in zip(types, p.get(a), p.get(b), strict=True)
        ],
    )


@prints("arith.cmpf")
def print_cmpf(p: Printer, op: Operation) -> None:
    found = attribute(op, "predicate")
    assert isinstance(found, IntegerAttr)
    predicate = CMPF_COMPARISON_OPERATIONS[found.value.data]
    a, b = op.operands
    layout = p.layout(a.type)
    head = f"fcmp{_head(fast_flags(op))} {predicate}"
    out: list[str] = []
    for n, x, y in zip(layout.counts, p.get(a), p.get(b), strict=True):
        o = Lanes(p, n)
        if layout.element.llvm in ("float", "double"):
            out.append(p.emit(f"{head} {o.type(layout.element.llvm)} {x}, {y}"))
        else:
            wide = [to_f32(p, o, v, layout.element) for v in (x, y)]
            out.append(p.emit(f"{head} {o.f32} {wide[0]}, {wide[1]}"))
    p.set(op.results[0], out)


@prints("arith.select")
def print_select(p: Printer, op: Operation) -> None:
    condition, a, b = op.operands
    conditions = p.get(condition)
    types = p.registers(a.type)
    if isinstance(condition.type, VectorType):
        kinds = p.layout(condition.type).types
    else:
        conditions, kinds = conditions * len(types), ("i1",) * len(types)
    p.set(
        op.results[0],
        [
            p.emit(f"select {k} {c}, {t} {x}, {t} {y}")
            for k, c, t, x, y in zip(kinds, conditions, types, p.get(a), p.get(b), strict=True)
        ],
    )


# Casts --------------------------------------------------------------------------------------------


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
    """Integer lanes made wider or narrower."""
    if src.bits == dst.bits:
        return x
    name = "trunc" if src.bits > dst.bits else "sext" if signed else "zext"
    return o.cast(name, o.type(src.llvm), x, o.type(dst.llvm))


@prints("arith.extsi", "arith.trunci", "arith.index_cast", "index.casts")
def print_signed_resize(p: Printer, op: Operation) -> None:
    _cast(p, op, lambda o, x, s, d: resize_integer(o, x, s, d, True))


@prints("arith.extui", "arith.index_castui", "index.castu")
def print_unsigned_resize(p: Printer, op: Operation) -> None:
    _cast(p, op, lambda o, x, s, d: resize_integer(o, x, s, d, False))


@prints("arith.extf", "arith.truncf", "arith.convertf")
def print_float_cast(p: Printer, op: Operation) -> None:
    fast = "afn" in fast_flags(op)
    _cast(p, op, lambda o, x, s, d: convert_float(p, o, x, s, d, fast))


@prints("arith.sitofp", "arith.uitofp")
def print_integer_to_float(p: Printer, op: Operation) -> None:
    """Integers wider than f32's mantissa reach a narrow float through f64, which holds 32 bits
    exactly.
    """
    name = op.name.removeprefix("arith.")

    def convert(o: Lanes, x: str, src: Element, dst: Element) -> str:
        t = o.type(src.llvm)
        if dst.name in ("f32", "f64"):
            return o.cast(name, t, x, o.type(dst.llvm))
        if src.bits <= 16:
            return from_f32(p, o, o.cast(name, t, x, o.f32), dst)
        return convert_float(p, o, o.cast(name, t, x, o.f64), _F64, dst)

    _cast(p, op, convert)


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
