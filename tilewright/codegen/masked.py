"""Masked loads and stores, gather and scatter, and lane masks: on CPUs only."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from tilewright.codegen.lane_ops import Lanes, mangle, splat
from tilewright.codegen.memory import known_alignment, to_memory, to_register
from tilewright.codegen.pointers import address_space, offset_pointer, pointer_type
from tilewright.codegen.printer import Printer, integer_attribute, prints, unsupported
from tilewright.codegen.registers import Element, llvm_vector


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


def _access(
    p: Printer, e: Element, n: int, what: str, pointers: str, at: str, mask: str, data: str
) -> str:
    """One register of `n` components that is loaded or stored under `mask`; n may be 1 (a vector of one lane).

    `at` is a pointer, or as many as `pointers`, its type, says, with its alignment; `data` is what is stored, or what
    lanes that are off give.
    """
    o, t, mask_type = Lanes(p, n), f"<{n} x {e.stored}>", f"<{n} x i1>"
    data = to_memory(o, e, data)
    if n == 1:
        mask = p.emit(f"insertelement <1 x i1> poison, i1 {mask}, i64 0")
        data = p.emit(f"insertelement {t} poison, {e.stored} {data}, i64 0")
    many, _, pointer = pointers.strip("<>").rpartition(" x ")
    places = f"{'v' * bool(many)}{many}p{address_space(pointer)}"
    name = f"llvm.masked.{what}.v{n}{mangle(1, e.stored)}.{places}"
    if what in ("store", "scatter"):
        p.declare(name, "void", [t, pointers, mask_type])
        p.line(f"call void @{name}({t} {data}, {at}, {mask_type} {mask})")
        return ""
    p.declare(name, t, [pointers, mask_type, t])
    value = p.emit(f"call {t} @{name}({at}, {mask_type} {mask}, {t} {data})")
    if n == 1:
        value = p.emit(f"extractelement {t} {value}, i64 0")
    return to_register(o, e, value)


@prints("mach.masked_load", "mach.masked_store")
def print_masked(p: Printer, op: Operation) -> None:
    """Each register of what lies densely at the pointer."""
    _require_masks(p, op)
    value, pointer, mask = operands_of(op)
    layout = p.layout(value.type)
    e, offset, out = layout.element, 0, list[str]()
    align = integer_attribute(op, "alignment", e.stored_bytes)
    llvm, base = pointer_type(p, pointer.type), p.one(pointer)
    what = op.name.removeprefix("mach.masked_")
    for n, x, m in zip(layout.counts, p.get(value), p.get(mask), strict=True):
        at = offset_pointer(p, base, offset, llvm)
        place = f"{llvm} align {known_alignment(align, offset)} {at}"
        out.append(_access(p, e, n, what, llvm, place, m, x))
        offset += n * e.stored_bytes
    for result in op.results:
        p.set(result, out)


@prints("mach.gather", "mach.scatter")
def print_scattered(p: Printer, op: Operation) -> None:
    """Each register at byte offsets from the pointer; scattered in the order of lanes."""
    _require_masks(p, op)
    value, pointer, offsets, mask = operands_of(op)
    layout = p.layout(value.type)
    e, out = layout.element, list[str]()
    align = integer_attribute(op, "alignment", e.stored_bytes)
    llvm, base = pointer_type(p, pointer.type), p.one(pointer)
    scalar = p.layout(offsets.type).element.llvm
    what = op.name.removeprefix("mach.")
    for n, x, f, m in zip(layout.counts, p.get(value), p.get(offsets), p.get(mask), strict=True):
        at = p.emit(f"getelementptr i8, {llvm} {base}, {llvm_vector(n, scalar)} {f}")
        how = {"gather": "load", "scatter": "store"}[what] if n == 1 else what
        pointers = llvm_vector(n, llvm)
        short = e.stored_bytes < 4 and align % e.stored_bytes == 0
        if how == "gather" and short and p.target.has("avx512f"):
            out.append(_gather_short(p, e, n, pointers, at, m, x))
            continue
        out.append(_access(p, e, n, how, pointers, f"{pointers} align {align} {at}", m, x))
    for result in op.results:
        p.set(result, out)


def _gather_short(
    p: Printer, e: Element, n: int, pointers: str, at: str, mask: str, data: str
) -> str:
    """Elements of one or two bytes out of the aligned words of four that hold them, which are mapped where they are:
    instructions gather words, and LLVM branches around a load of each lane of anything shorter."""
    o, size = Lanes(p, n), 8 * e.stored_bytes
    whole, short, addresses = (o.type(f"i{bits}") for bits in (32, size, 64))
    name = f"llvm.ptrmask.v{n}p0.v{n}i64"
    p.declare(name, pointers, [pointers, addresses])
    at_word = p.emit(f"call {pointers} @{name}({pointers} {at}, {addresses} {o.const('i64', -4)})")
    name = f"llvm.masked.gather.v{n}i32.v{n}p0"
    p.declare(name, whole, [pointers, f"<{n} x i1>", whole])
    words = p.emit(
        f"call {whole} @{name}({pointers} align 4 {at_word}, <{n} x i1> {mask}, {whole} zeroinitializer)"
    )
    bits = o.op("shl", whole, o.cast("ptrtoint", pointers, at, whole), o.c32(3))
    bits = o.op("and", whole, bits, o.c32(24))
    found = o.cast("trunc", whole, o.op("lshr", whole, words, bits), short)
    stored = o.type(e.stored)
    found = found if stored == short else o.bitcast(short, found, stored)
    return to_register(o, e, o.select(mask, stored, found, to_memory(o, e, data)))


def operands_of(op: Operation) -> Sequence[SSAValue]:
    """Of an access: what it stores, or what lanes that are off give, before its address and mask."""
    return op.operands if not op.results else (op.operands[-1], *op.operands[:-1])


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
