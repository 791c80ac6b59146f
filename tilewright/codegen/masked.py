"""Masked loads and stores, gather and scatter, and lane masks: on CPUs only."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Operation, SSAValue

from tilewright.codegen.lane_ops import Lanes, mangle, splat
from tilewright.codegen.memory import known_alignment, to_memory, to_register
from tilewright.codegen.pointers import address_space, offset_pointer, pointer_type
from tilewright.codegen.printer import Printer, integer_attribute, prints, unsupported
from tilewright.codegen.registers import Element, RegisterLayout, llvm_vector


def splat_register(p: Printer, n: int, scalar: str, value: str) -> str:
    """A register with `value` in every component."""
    if n == 1:
        return value
    if not value.startswith("%"):
        return splat(n, scalar, value)
    t = llvm_vector(n, scalar)
    first = p.emit(f"insertelement {t} poison, {scalar} {value}, i64 0")
    return p.emit(f"shufflevector {t} {first}, {t} poison, <{n} x i32> zeroinitializer")


def _require_masks(p: Printer, op: Operation) -> None:
    if p.rep.widths is not None:
        raise unsupported(
            op,
            f"{p.target.name} has no masked memory access",
            "write scf.if around the access of each lane",
        )


def masked_load(
    p: Printer, n: int, e: Element, pointer: str, llvm: str, mask: str, passthru: str, align: int
) -> str:
    """One register of `n` components read under `mask`; n may be 1 (a vector of one lane)."""
    o = Lanes(p, n)
    t = f"<{n} x {e.stored}>"
    mask_type = f"<{n} x i1>"
    passthru = to_memory(o, e, passthru)
    if n == 1:
        mask = p.emit(f"insertelement <1 x i1> poison, i1 {mask}, i64 0")
        passthru = p.emit(f"insertelement {t} poison, {e.stored} {passthru}, i64 0")
    name = f"llvm.masked.load.v{n}{mangle(1, e.stored)}.p{address_space(llvm)}"
    p.declare(name, t, [llvm, mask_type, t])
    value = p.emit(
        f"call {t} @{name}({llvm} align {align} {pointer}, {mask_type} {mask}, {t} {passthru})"
    )
    if n == 1:
        value = p.emit(f"extractelement {t} {value}, i64 0")
    return to_register(o, e, value)


def masked_store(
    p: Printer, n: int, e: Element, value: str, pointer: str, llvm: str, mask: str, align: int
) -> None:
    """One register written under `mask`."""
    o = Lanes(p, n)
    t = f"<{n} x {e.stored}>"
    mask_type = f"<{n} x i1>"
    value = to_memory(o, e, value)
    if n == 1:
        mask = p.emit(f"insertelement <1 x i1> poison, i1 {mask}, i64 0")
        value = p.emit(f"insertelement {t} poison, {e.stored} {value}, i64 0")
    name = f"llvm.masked.store.v{n}{mangle(1, e.stored)}.p{address_space(llvm)}"
    p.declare(name, "void", [t, llvm, mask_type])
    p.line(f"call void @{name}({t} {value}, {llvm} align {align} {pointer}, {mask_type} {mask})")


def _places(
    p: Printer, op: Operation, pointer: SSAValue, layout: RegisterLayout
) -> Iterator[tuple[int, str, str, int]]:
    """Components, address, type of pointers and alignment of each register of what lies densely at `pointer`."""
    _require_masks(p, op)
    e, offset = layout.element, 0
    align = integer_attribute(op, "alignment", e.stored_bytes)
    llvm, base = pointer_type(p, pointer.type), p.one(pointer)
    for n in layout.counts:
        yield n, offset_pointer(p, base, offset, llvm), llvm, known_alignment(align, offset)
        offset += n * e.stored_bytes


@prints("mach.masked_load")
def print_masked_load(p: Printer, op: Operation) -> None:
    pointer, mask, passthru = op.operands
    layout = p.layout(op.results[0].type)
    e, out = layout.element, list[str]()
    places = _places(p, op, pointer, layout)
    for (n, at, llvm, align), m, x in zip(places, p.get(mask), p.get(passthru), strict=True):
        out.append(masked_load(p, n, e, at, llvm, m, x, align))
    p.set(op.results[0], out)


@prints("mach.masked_store")
def print_masked_store(p: Printer, op: Operation) -> None:
    value, pointer, mask = op.operands
    layout = p.layout(value.type)
    places = _places(p, op, pointer, layout)
    for (n, at, llvm, align), m, x in zip(places, p.get(mask), p.get(value), strict=True):
        masked_store(p, n, layout.element, x, at, llvm, m, align)


def gather(
    p: Printer,
    n: int,
    e: Element,
    pointer: str,
    llvm: str,
    scalar: str,
    offsets: str,
    mask: str,
    passthru: str,
    align: int,
) -> str:
    """One register read at byte offsets from `pointer` (integers of type `scalar`), under `mask`."""
    o = Lanes(p, n)
    offset_type = llvm_vector(n, scalar)
    if n == 1:
        address = p.emit(f"getelementptr i8, {llvm} {pointer}, {scalar} {offsets}")
        return masked_load(p, 1, e, address, llvm, mask, passthru, align)
    t, pointers = o.type(e.stored), f"<{n} x {llvm}>"
    addresses = p.emit(f"getelementptr i8, {llvm} {pointer}, {offset_type} {offsets}")
    name = f"llvm.masked.gather.{mangle(n, e.stored)}.v{n}p{address_space(llvm)}"
    p.declare(name, t, [pointers, o.i1, t])
    passthru = to_memory(o, e, passthru)
    value = p.emit(
        f"call {t} @{name}({pointers} align {align} {addresses}, {o.i1} {mask}, {t} {passthru})"
    )
    return to_register(o, e, value)


def scatter(
    p: Printer,
    n: int,
    e: Element,
    value: str,
    pointer: str,
    llvm: str,
    scalar: str,
    offsets: str,
    mask: str,
    align: int,
) -> None:
    """One register written at byte offsets from `pointer`, in the order of lanes, under `mask`."""
    o = Lanes(p, n)
    offset_type = llvm_vector(n, scalar)
    if n == 1:
        address = p.emit(f"getelementptr i8, {llvm} {pointer}, {scalar} {offsets}")
        masked_store(p, 1, e, value, address, llvm, mask, align)
        return
    t, pointers = o.type(e.stored), f"<{n} x {llvm}>"
    addresses = p.emit(f"getelementptr i8, {llvm} {pointer}, {offset_type} {offsets}")
    name = f"llvm.masked.scatter.{mangle(n, e.stored)}.v{n}p{address_space(llvm)}"
    p.declare(name, "void", [t, pointers, o.i1])
    p.line(
        f"call void @{name}({t} {to_memory(o, e, value)}, "
        f"{pointers} align {align} {addresses}, {o.i1} {mask})"
    )


@prints("mach.gather")
def print_gather(p: Printer, op: Operation) -> None:
    _require_masks(p, op)
    pointer, offsets, mask, passthru = op.operands
    layout = p.layout(op.results[0].type)
    e = layout.element
    align = integer_attribute(op, "alignment", e.stored_bytes)
    llvm = pointer_type(p, pointer.type)
    base = p.one(pointer)
    scalar = p.layout(offsets.type).element.llvm
    registers = zip(layout.counts, p.get(offsets), p.get(mask), p.get(passthru), strict=True)
    p.set(
        op.results[0],
        [gather(p, n, e, base, llvm, scalar, f, m, x, align) for n, f, m, x in registers],
    )


@prints("mach.scatter")
def print_scatter(p: Printer, op: Operation) -> None:
    _require_masks(p, op)
    value, pointer, offsets, mask = op.operands
    layout = p.layout(value.type)
    e = layout.element
    align = integer_attribute(op, "alignment", e.stored_bytes)
    llvm = pointer_type(p, pointer.type)
    base = p.one(pointer)
    scalar = p.layout(offsets.type).element.llvm
    for n, x, f, m in zip(layout.counts, p.get(value), p.get(offsets), p.get(mask), strict=True):
        scatter(p, n, e, x, base, llvm, scalar, f, m, align)


@prints("mach.mask_first")
def print_mask_first(p: Printer, op: Operation) -> None:
    layout = p.layout(op.results[0].type)
    total = layout.size
    n = p.one(op.operands[0])
    at = 0
    out: list[str] = []
    for count in layout.counts:
        out.append(first_lanes(p, count, at, total, n))
        at += count
    p.set(op.results[0], out)


def first_lanes(p: Printer, count: int, at: int, total: int, n: str) -> str:
    """Mask register whose lane i is on when at + i < n; compares as wide as one register."""
    if count == 1:
        return p.emit(f"icmp slt i64 {at}, {n}")
    o = Lanes(p, count)
    bits = 32
    if count > 16 and total < 1 << 15:
        bits = 8 if count > 32 and total < 1 << 7 else 16
    one = Lanes(p, 1)
    low = one.intrinsic("smax", "i64", n, "0")
    limit = one.intrinsic("smin", "i64", low, str(total))
    scalar = f"i{bits}"
    limit = p.emit(f"trunc i64 {limit} to {scalar}")
    t = o.type(scalar)
    first = p.emit(f"insertelement {t} poison, {scalar} {limit}, i64 0")
    limits = p.emit(f"shufflevector {t} {first}, {t} poison, <{count} x i32> zeroinitializer")
    lanes = f"<{', '.join(f'{scalar} {at + i}' for i in range(count))}>"
    return p.emit(f"icmp slt {t} {lanes}, {limits}")
