"""mach.load, mach.store, mach.prefetch: one instruction per register moved, in
the order written.

A vector of several registers lies row-major in memory, so its registers load from consecutive
addresses. Fragments of scalars (cuda) move in packets of at most 16 bytes, which is what one
ld.global.v4 carries.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Operation

from tilewright.codegen.lane_ops import Lanes
from tilewright.codegen.pointers import address_space, offset_pointer, pointer_type
from tilewright.codegen.printer import Printer, attribute, integer_attribute, prints
from tilewright.codegen.registers import Element, RegisterLayout


def to_register(o: Lanes, e: Element, x: str) -> str:
    """What memory holds (i1 as a byte) -> the register."""
    if e.stored == e.llvm:
        return x
    stored = o.type(e.stored)
    if e.name == "i1":
        return o.icmp("ne", stored, x, o.const(e.stored, 0))
    return o.cast("trunc", stored, x, o.type(e.llvm))


def to_memory(o: Lanes, e: Element, x: str) -> str:
    """The register -> what memory holds."""
    return x if e.stored == e.llvm else o.cast("zext", o.type(e.llvm), x, o.type(e.stored))


def packets(p: Printer, layout: RegisterLayout) -> Iterator[tuple[int, int, int]]:
    """(first register, registers, components) of every memory instruction for `layout`."""
    if p.rep.widths != (1,):
        for i, n in enumerate(layout.counts):
            yield i, 1, n
        return
    limit = max(1, 16 // layout.element.stored_bytes)
    at, size = 0, len(layout.counts)
    while at < size:
        n = limit
        while n > size - at:
            n //= 2
        yield at, n, n
        at += n


def known_alignment(base: int, offset: int) -> int:
    """Alignment known of an address `offset` bytes after one aligned to `base`."""
    return base if offset == 0 else min(base, offset & -offset)


def load_value(
    p: Printer,
    layout: RegisterLayout,
    pointer: str,
    llvm: str,
    align: int,
    how: str = "load",
    tail: str = "",
) -> list[str]:
    """Registers of a value read from `pointer`, row-major and dense."""
    e = layout.element
    out: list[str] = []
    offset = 0
    for _, regs, n in packets(p, layout):
        o = Lanes(p, n)
        address = offset_pointer(p, pointer, offset, llvm)
        text = f"{how} {o.type(e.stored)}, {llvm} {address}, align {known_alignment(align, offset)}"
        value = to_register(o, e, p.emit(text + tail))
        if regs == 1:
            out.append(value)
        else:
            t = o.type(e.llvm)
            out += [p.emit(f"extractelement {t} {value}, i64 {i}") for i in range(n)]
        offset += n * e.stored_bytes
    return out


def store_value(
    p: Printer,
    layout: RegisterLayout,
    regs: tuple[str, ...],
    pointer: str,
    llvm: str,
    align: int,
    how: str = "store",
    tail: str = "",
) -> None:
    """Write a value to `pointer`, row-major and dense."""
    e = layout.element
    offset = 0
    past = "nontemporal" in tail
    for first, count, n in packets(p, layout):
        o = Lanes(p, n)
        value = regs[first]
        if count > 1:
            value = "poison"
            for i in range(count):
                value = p.emit(
                    f"insertelement {o.type(e.llvm)} {value}, {e.llvm} {regs[first + i]}, i64 {i}"
                )
        value = to_memory(o, e, value)
        address = offset_pointer(p, pointer, offset, llvm)
        align_here = known_alignment(align, offset)
        stored = o.type(e.stored)
        if past and e.stored_bytes == 2 and n > 1:
            # LLVM stores what was bitcast in the type it was computed in, and forgets the hint on vectors of f16, bf16.
            words = Lanes(p, n // 2)
            value = o.bitcast(stored, value, words.f32)
            stored, value = words.f32, words.intrinsic("arithmetic.fence", "float", value)
        p.line(f"{how} {stored} {value}, {llvm} {address}, align {align_here}{tail}")
        offset += n * e.stored_bytes


def _tail(p: Printer, op: Operation) -> str:
    tail = ""
    if attribute(op, "nontemporal") is not None:
        tail += f", !nontemporal {p.metadata_node('!{i32 1}')}"
    if attribute(op, "invariant") is not None:
        tail += f", !invariant.load {p.metadata_node('!{}')}"
    return tail


@prints("mach.load")
def print_load(p: Printer, op: Operation) -> None:
    layout = p.layout(op.results[0].type)
    (pointer,) = op.operands
    align = integer_attribute(op, "alignment", layout.element.stored_bytes)
    how = "load volatile" if "volatile" in op.properties else "load"
    llvm = pointer_type(p, pointer.type)
    p.set(op.results[0], load_value(p, layout, p.one(pointer), llvm, align, how, _tail(p, op)))


@prints("mach.store")
def print_store(p: Printer, op: Operation) -> None:
    value, pointer = op.operands
    layout = p.layout(value.type)
    align = integer_attribute(op, "alignment", layout.element.stored_bytes)
    how = "store volatile" if "volatile" in op.properties else "store"
    llvm = pointer_type(p, pointer.type)
    store_value(p, layout, p.get(value), p.one(pointer), llvm, align, how, _tail(p, op))


@prints("mach.prefetch")
def print_prefetch(p: Printer, op: Operation) -> None:
    (pointer,) = op.operands
    llvm = pointer_type(p, pointer.type)
    write = attribute(op, "write") is not None
    print_prefetch_of(p, p.one(pointer), llvm, write, integer_attribute(op, "locality"))


def print_prefetch_of(p: Printer, pointer: str, llvm: str, write: bool, locality: int) -> None:
    """Hint that the line at `pointer` will be read, or written."""
    numbers = [("i32", str(n)) for n in (int(write), locality, 1)]
    p.call("void", f"llvm.prefetch.p{address_space(llvm)}", [(llvm, pointer), *numbers])
