"""mach memory ops -> loads, stores, prefetches and atomics; one instruction per register moved, in
the order written.

A vector of several registers lies row-major in memory, so its registers load from consecutive
addresses. Fragments of scalars (cuda) move in packets of at most 16 bytes, which is what one
ld.global.v4 carries.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import StringAttr, SymbolRefAttr
from xdsl.ir import Attribute, Operation

from tilewright.codegen.lane_ops import Lanes, mangle, splat
from tilewright.codegen.printer import Printer, attribute, integer_attribute, prints, unsupported
from tilewright.codegen.registers import Element, Layout, llvm_vector
from tilewright.dialects.mach import ATOMIC_KINDS

# Addresses ----------------------------------------------------------------------------------------


def pointer_type(p: Printer, type: Attribute) -> str:
    """LLVM type of a pointer operand."""
    return p.registers(type)[0]


def offset_pointer(p: Printer, pointer: str, bytes: str | int, llvm: str = "ptr") -> str:
    """The address so many bytes further on."""
    if bytes in (0, "0"):
        return pointer
    return p.emit(f"getelementptr inbounds i8, {llvm} {pointer}, i64 {bytes}")


@prints("mach.ptr_add")
def print_ptr_add(p: Printer, op: Operation) -> None:
    pointer, offset = op.operands
    t = pointer_type(p, pointer.type)
    p.set(op.results[0], [offset_pointer(p, p.one(pointer), p.one(offset), t)])


@prints("mach.ptr_from_int", "llvm.inttoptr")
def print_ptr_from_int(p: Printer, op: Operation) -> None:
    (value,) = op.operands
    t = pointer_type(p, op.results[0].type)
    p.set(op.results[0], [p.emit(f"inttoptr {p.registers(value.type)[0]} {p.one(value)} to {t}")])


@prints("mach.int_from_ptr", "llvm.ptrtoint")
def print_int_from_ptr(p: Printer, op: Operation) -> None:
    (value,) = op.operands
    t = p.registers(op.results[0].type)[0]
    from_type = pointer_type(p, value.type)
    p.set(op.results[0], [p.emit(f"ptrtoint {from_type} {p.one(value)} to {t}")])


@prints("llvm.addrspacecast")
def print_addrspacecast(p: Printer, op: Operation) -> None:
    (value,) = op.operands
    a, b = pointer_type(p, value.type), pointer_type(p, op.results[0].type)
    reg = p.one(value)
    p.set(op.results[0], [reg if a == b else p.emit(f"addrspacecast {a} {reg} to {b}")])


@prints("mach.address_of")
def print_address_of(p: Printer, op: Operation) -> None:
    symbol = attribute(op, "symbol")
    assert isinstance(symbol, SymbolRefAttr)
    p.addressed.add(symbol.string_value())
    p.set(op.results[0], [f"@{symbol.string_value()}"])


def string_constant(p: Printer, text: str) -> str:
    """Pointer to a zero-terminated private constant."""
    data = text.encode() + b"\0"
    name = f"@.str{len(p.globals)}"
    body = "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in data)
    p.globals.append(f'{name} = private constant [{len(data)} x i8] c"{body}"')
    return name


@prints("mach.alloca")
def print_alloca(p: Printer, op: Operation) -> None:
    """Scratch of a function lives in its entry block: a loop around the op does not grow the stack."""
    bytes, align = integer_attribute(op, "bytes"), integer_attribute(op, "alignment")
    name = p.fresh()
    p.entry.append(f"  {name} = alloca [{bytes} x i8], align {align}")
    p.set(op.results[0], [name])


# Loads and stores ---------------------------------------------------------------------------------


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


def packets(p: Printer, layout: Layout) -> Iterator[tuple[int, int, int]]:
    """(first register, registers, components) of every memory instruction that moves a value of
    `layout`.
    """
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
    layout: Layout,
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
    layout: Layout,
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
        p.line(f"{how} {o.type(e.stored)} {value}, {llvm} {address}, align {align_here}{tail}")
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


# Masked and indexed -------------------------------------------------------------------------------


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
    name = f"llvm.masked.load.v{n}{mangle(1, e.stored)}.p{_space(llvm)}"
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
    name = f"llvm.masked.store.v{n}{mangle(1, e.stored)}.p{_space(llvm)}"
    p.declare(name, "void", [t, llvm, mask_type])
    p.line(f"call void @{name}({t} {value}, {llvm} align {align} {pointer}, {mask_type} {mask})")


def _space(llvm: str) -> str:
    """Address space number of a pointer type."""
    return llvm.removeprefix("ptr addrspace(").removesuffix(")") if "(" in llvm else "0"


@prints("mach.masked_load")
def print_masked_load(p: Printer, op: Operation) -> None:
    _require_masks(p, op)
    pointer, mask, passthru = op.operands
    layout = p.layout(op.results[0].type)
    e = layout.element
    align = integer_attribute(op, "alignment", e.stored_bytes)
    llvm = pointer_type(p, pointer.type)
    out: list[str] = []
    offset = 0
    for n, m, x in zip(layout.counts, p.get(mask), p.get(passthru), strict=True):
        address = offset_pointer(p, p.one(pointer), offset, llvm)
        out.append(masked_load(p, n, e, address, llvm, m, x, known_alignment(align, offset)))
        offset += n * e.stored_bytes
    p.set(op.results[0], out)


@prints("mach.masked_store")
def print_masked_store(p: Printer, op: Operation) -> None:
    _require_masks(p, op)
    value, pointer, mask = op.operands
    layout = p.layout(value.type)
    e = layout.element
    align = integer_attribute(op, "alignment", e.stored_bytes)
    llvm = pointer_type(p, pointer.type)
    offset = 0
    for n, m, x in zip(layout.counts, p.get(mask), p.get(value), strict=True):
        address = offset_pointer(p, p.one(pointer), offset, llvm)
        masked_store(p, n, e, x, address, llvm, m, known_alignment(align, offset))
        offset += n * e.stored_bytes


def gather(
    p: Printer,
    n: int,
    e: Element,
    pointer: str,
    llvm: str,
    offset_type: str,
    offsets: str,
    mask: str,
    passthru: str,
    align: int,
) -> str:
    """One register of `n` > 1 components read at byte offsets from `pointer`, under `mask`."""
    o = Lanes(p, n)
    t, pointers = o.type(e.stored), f"<{n} x {llvm}>"
    addresses = p.emit(f"getelementptr i8, {llvm} {pointer}, {offset_type} {offsets}")
    name = f"llvm.masked.gather.{mangle(n, e.stored)}.v{n}p{_space(llvm)}"
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
    offset_type: str,
    offsets: str,
    mask: str,
    align: int,
) -> None:
    """One register of `n` > 1 components written at byte offsets, lane order, under `mask`."""
    o = Lanes(p, n)
    t, pointers = o.type(e.stored), f"<{n} x {llvm}>"
    addresses = p.emit(f"getelementptr i8, {llvm} {pointer}, {offset_type} {offsets}")
    name = f"llvm.masked.scatter.{mangle(n, e.stored)}.v{n}p{_space(llvm)}"
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
    out: list[str] = []
    for n, f, m, x in zip(layout.counts, p.get(offsets), p.get(mask), p.get(passthru), strict=True):
        if n == 1:
            address = p.emit(f"getelementptr i8, {llvm} {base}, {scalar} {f}")
            out.append(masked_load(p, 1, e, address, llvm, m, x, align))
        else:
            t = llvm_vector(n, scalar)
            out.append(gather(p, n, e, base, llvm, t, f, m, x, align))
    p.set(op.results[0], out)


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
        if n == 1:
            address = p.emit(f"getelementptr i8, {llvm} {base}, {scalar} {f}")
            masked_store(p, 1, e, x, address, llvm, m, align)
        else:
            scatter(p, n, e, x, base, llvm, llvm_vector(n, scalar), f, m, align)


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
    """Mask register whose lane i is on when at + i < n; the compare is as wide as one vector
    register allows.
    """
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


@prints("mach.prefetch")
def print_prefetch(p: Printer, op: Operation) -> None:
    (pointer,) = op.operands
    llvm = pointer_type(p, pointer.type)
    write = attribute(op, "write") is not None
    print_prefetch_of(p, p.one(pointer), llvm, write, integer_attribute(op, "locality"))


def print_prefetch_of(p: Printer, pointer: str, llvm: str, write: bool, locality: int) -> None:
    """Hint that the line at `pointer` will be read, or written."""
    numbers = [("i32", str(n)) for n in (int(write), locality, 1)]
    p.call("void", f"llvm.prefetch.p{_space(llvm)}", [(llvm, pointer), *numbers])


# Atomics ------------------------------------------------------------------------------------------

_SCOPES = {
    "x86": {},
    "nvptx": {"device": "device", "workgroup": "block", "subgroup": "block"},
    "spirv": {"device": "device", "workgroup": "workgroup", "subgroup": "subgroup"},
}
_FAILURE = {"acq_rel": "acquire", "release": "monotonic"}


def _ordering(p: Printer, op: Operation) -> tuple[str, str]:
    """(syncscope text, ordering) of an atomic op."""
    ordering, scope = attribute(op, "ordering"), attribute(op, "scope")
    assert isinstance(ordering, StringAttr)
    table = _SCOPES[p.target.name.split("/")[0]]
    named = table.get(scope.data) if isinstance(scope, StringAttr) else None
    return (f'syncscope("{named}") ' if named else ""), ordering.data


def atomic_element(p: Printer, op: Operation, type: Attribute) -> Element:
    e = p.layout(type).element
    if e.is_float and e.llvm not in ("float", "double", "half"):
        raise unsupported(
            op,
            f"has no atomic on {e.name} in {p.target.name}",
            "write a mach.cmpxchg loop on its bits",
        )
    return e


@prints("mach.atomic_rmw")
def print_atomic_rmw(p: Printer, op: Operation) -> None:
    value, pointer = op.operands
    kind = attribute(op, "kind")
    assert isinstance(kind, StringAttr)
    e = atomic_element(p, op, value.type)
    scope, ordering = _ordering(p, op)
    llvm = pointer_type(p, pointer.type)
    text = f"atomicrmw {ATOMIC_KINDS[kind.data]} {llvm} {p.one(pointer)}, {e.llvm} {p.one(value)} "
    p.set(op.results[0], [p.emit(f"{text}{scope}{ordering}, align {e.stored_bytes}")])


@prints("mach.cmpxchg")
def print_cmpxchg(p: Printer, op: Operation) -> None:
    pointer, expected, desired = op.operands
    e = p.layout(expected.type).element
    scope, ordering = _ordering(p, op)
    failure = _FAILURE.get(ordering, ordering)
    llvm = pointer_type(p, pointer.type)
    pair = p.emit(
        f"cmpxchg {llvm} {p.one(pointer)}, {e.llvm} {p.one(expected)}, {e.llvm} {p.one(desired)} "
        f"{scope}{ordering} {failure}, align {e.stored_bytes}"
    )
    struct = f"{{ {e.llvm}, i1 }}"
    p.set(op.results[0], [p.emit(f"extractvalue {struct} {pair}, 0")])
    p.set(op.results[1], [p.emit(f"extractvalue {struct} {pair}, 1")])


@prints("mach.atomic_load")
def print_atomic_load(p: Printer, op: Operation) -> None:
    (pointer,) = op.operands
    e = p.layout(op.results[0].type).element
    scope, ordering = _ordering(p, op)
    llvm = pointer_type(p, pointer.type)
    text = (
        f"load atomic {e.llvm}, {llvm} {p.one(pointer)} {scope}{ordering}, align {e.stored_bytes}"
    )
    p.set(op.results[0], [p.emit(text)])


@prints("mach.atomic_store")
def print_atomic_store(p: Printer, op: Operation) -> None:
    value, pointer = op.operands
    e = p.layout(value.type).element
    scope, ordering = _ordering(p, op)
    llvm = pointer_type(p, pointer.type)
    p.line(
        f"store atomic {e.llvm} {p.one(value)}, {llvm} {p.one(pointer)} "
        f"{scope}{ordering}, align {e.stored_bytes}"
    )


@prints("mach.fence")
def print_fence(p: Printer, op: Operation) -> None:
    scope, ordering = _ordering(p, op)
    p.line(f"fence {scope}{ordering}")


def splat_register(p: Printer, n: int, scalar: str, value: str) -> str:
    """A register with `value` in every component."""
    if n == 1:
        return value
    if not value.startswith("%"):
        return splat(n, scalar, value)
    t = llvm_vector(n, scalar)
    first = p.emit(f"insertelement {t} poison, {scalar} {value}, i64 0")
    return p.emit(f"shufflevector {t} {first}, {t} poison, <{n} x i32> zeroinitializer")
