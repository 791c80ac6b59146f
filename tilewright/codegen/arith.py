"""arith and index ops on integers: binary ops, divisions that round as named, comparison, select."""

from __future__ import annotations

from xdsl.dialects.arith import CMPI_COMPARISON_OPERATIONS, IntegerOverflowAttr
from xdsl.dialects.builtin import IntegerAttr, VectorType
from xdsl.ir import Operation

from tilewright.codegen.elementwise import elementwise
from tilewright.codegen.lane_ops import Lanes, splat
from tilewright.codegen.printer import Printer, attribute, prints
from tilewright.codegen.registers import Element

INTEGER_BINARY = {
    f"{dialect}.{own}": llvm
    for llvm, of_arith, of_index in (
        ("add", "addi", "add"),
        ("sub", "subi", "sub"),
        ("mul", "muli", "mul"),
        ("sdiv", "divsi", "divs"),
        ("udiv", "divui", "divu"),
        ("srem", "remsi", "rems"),
        ("urem", "remui", "remu"),
        ("and", "andi", "and"),
        ("or", "ori", "or"),
        ("xor", "xori", "xor"),
        ("shl", "shli", "shl"),
        ("ashr", "shrsi", "shrs"),
        ("lshr", "shrui", "shru"),
    )
    for dialect, own in (("arith", of_arith), ("index", of_index))
}


@prints(*INTEGER_BINARY)
def print_integer_binary(p: Printer, op: Operation) -> None:
    a, b = op.operands
    name = INTEGER_BINARY[op.name]
    overflow = op.properties.get("overflowFlags")
    if isinstance(overflow, IntegerOverflowAttr) and overflow.data:
        name = " ".join([name, *sorted(f.value for f in overflow.data)])
    types = p.layout(a.type).types
    p.set(
        op.results[0],
        [p.emit(f"{name} {t} {x}, {y}") for t, x, y in zip(types, p.get(a), p.get(b), strict=True)],
    )


INTEGER_MINMAX = {
    f"{dialect}.{name}{sign}{end}": sign + name
    for name in ("min", "max")
    for sign in ("s", "u")
    for dialect, end in (("arith", "i"), ("index", ""))
}


@prints(*INTEGER_MINMAX)
def print_integer_minmax(p: Printer, op: Operation) -> None:
    name = INTEGER_MINMAX[op.name]
    elementwise(p, op, lambda o, e, x: o.intrinsic(name, e.llvm, *x))


_ROUNDED = {
    "arith.floordivsi": ("slt", "sext"),
    "index.floordivs": ("slt", "sext"),
    "arith.ceildivsi": ("sge", "zext"),
    "index.ceildivs": ("sge", "zext"),
}
"""How remainder xor divisor compares to 0 where the quotient moves, and what of an i1 moves it."""


@prints(*_ROUNDED)
def print_rounded_division(p: Printer, op: Operation) -> None:
    """The quotient rounded down or up where the remainder is not zero and of the sign that says so."""
    predicate, extend = _ROUNDED[op.name]

    def divided(o: Lanes, e: Element, x: list[str]) -> str:
        t = o.type(e.llvm)
        q, r = o.op("sdiv", t, *x), o.op("srem", t, *x)
        zero = o.const(e.llvm, 0)
        signs = o.icmp(predicate, t, o.op("xor", t, r, x[1]), zero)
        off = o.op("and", o.i1, o.icmp("ne", t, r, zero), signs)
        return o.op("add", t, q, o.cast(extend, o.i1, off, t))

    elementwise(p, op, divided)


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


@prints("arith.cmpi", "index.cmp")
def print_cmpi(p: Printer, op: Operation) -> None:
    found = attribute(op, "pred" if op.name == "index.cmp" else "predicate")
    if isinstance(found, IntegerAttr):
        predicate = CMPI_COMPARISON_OPERATIONS[found.value.data]
    else:
        predicate = str(getattr(found, "data", found))
    a, b = op.operands
    layout = p.layout(a.type)
    texts: list[str] = []
    for n, t, x, y in zip(layout.counts, layout.types, p.get(a), p.get(b), strict=True):
        if layout.element.bits == 1 and predicate not in ("eq", "ne"):
            texts.append(_compared_bits(Lanes(p, n), predicate, t, x, y))
        else:
            texts.append(p.emit(f"icmp {predicate} {t} {x}, {y}"))
    p.set(op.results[0], texts)


def _compared_bits(o: Lanes, predicate: str, t: str, x: str, y: str) -> str:
    """Which of two bits is less, by logic: SPIR-V orders no booleans. With signs, true is -1."""
    true = o.const("i1", -1)
    if predicate in ("ult", "ule", "sgt", "sge"):
        x = o.op("xor", t, x, true)
    else:
        y = o.op("xor", t, y, true)
    return o.op("or" if predicate.endswith("e") else "and", t, x, y)


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
