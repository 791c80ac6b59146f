"""memref ops: a memref is a tuple of registers, its base pointer and whatever of its shape is not
static.

    memref<4x?xf32, strided<[?, 1], offset: ?>>   ->   (ptr base, i64 offset, i64 size 1, i64 stride
    0)

Nothing of a ranked memref lies in memory, so a cast or a subview costs arithmetic only. An unranked
memref is MLIR's: its rank and the address of a descriptor {ptr allocated, ptr aligned, i64 offset,
i64 sizes[rank], i64 strides[rank]}, which the cast to it stores in scratch of the function; that
cast is the only op here with stores that it does not name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    MemRefType,
    StringAttr,
    SymbolRefAttr,
    UnrankedMemRefType,
)
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.codegen.arith import constant_text
from tilewright.codegen.memory import (
    atomic_element,
    load_value,
    offset_pointer,
    print_prefetch_of,
    store_value,
)
from tilewright.codegen.printer import Printer, attribute, integer_attribute, prints, unsupported
from tilewright.codegen.registers import DYNAMIC, Element, MemRefLayout
from tilewright.dialects.mach import ATOMIC_KINDS

ALIGNMENT = 64
"""Bytes to which memref.alloc and memref.alloca align by default."""


@dataclass
class Descriptor:
    """A memref's parts as operand texts: constants where static, registers where not. Counts
    elements.
    """

    layout: MemRefLayout
    pointer: str
    offset: str
    sizes: list[str]
    strides: list[str]

    @property
    def element(self) -> Element:
        return self.layout.element


def read(p: Printer, value: SSAValue) -> Descriptor:
    """Take a memref's registers apart."""
    assert isinstance(value.type, MemRefType)
    layout = p.rep.memref(value.type)
    regs = iter(p.get(value))
    pointer = next(regs)
    offset = next(regs) if layout.offset == DYNAMIC else str(layout.offset)
    sizes = [next(regs) if n == DYNAMIC else str(n) for n in layout.sizes]
    strides = [next(regs) if s == DYNAMIC else str(s) for s in layout.strides]
    return Descriptor(layout, pointer, offset, sizes, strides)


def write(
    p: Printer,
    value: SSAValue,
    pointer: str,
    offset: str = "0",
    sizes: Sequence[str] = (),
    strides: Sequence[str] = (),
) -> None:
    """Set a memref's registers: the parts that its type leaves open."""
    assert isinstance(value.type, MemRefType)
    layout = p.rep.memref(value.type)
    regs = [pointer]
    if layout.offset == DYNAMIC:
        regs.append(offset)
    regs += [t for t, n in zip(sizes, layout.sizes, strict=True) if n == DYNAMIC]
    regs += [t for t, s in zip(strides, layout.strides, strict=True) if s == DYNAMIC]
    p.set(value, regs)


def product(p: Printer, *factors: str) -> str:
    """i64 product; constants fold."""
    number, text = 1, ""
    for factor in factors:
        if factor.lstrip("-").isdigit():
            number *= int(factor)
        else:
            text = factor if not text else p.emit(f"mul i64 {text}, {factor}")
    if number == 0 or not text:
        return str(number)
    return text if number == 1 else p.emit(f"mul i64 {text}, {number}")


def total(p: Printer, *terms: str) -> str:
    """i64 sum; constants fold."""
    number, text = 0, ""
    for term in terms:
        if term.lstrip("-").isdigit():
            number += int(term)
        else:
            text = term if not text else p.emit(f"add i64 {text}, {term}")
    if not text:
        return str(number)
    return text if number == 0 else p.emit(f"add i64 {text}, {number}")


def row_major(p: Printer, sizes: Sequence[str]) -> list[str]:
    """Strides of a dense memref."""
    strides = ["1"]
    for n in reversed(list(sizes)[1:]):
        strides.append(product(p, strides[-1], n))
    return strides[::-1][-len(sizes) :] if sizes else []


def linear(p: Printer, d: Descriptor, indices: Sequence[str]) -> str:
    """Offset in elements of an index vector."""
    terms = [product(p, i, s) for i, s in zip(indices, d.strides, strict=True)]
    return total(p, d.offset, *terms)


def address(p: Printer, d: Descriptor, indices: Sequence[str]) -> str:
    """Pointer to the element at `indices`."""
    bytes = product(p, linear(p, d, indices), str(d.layout.element_bytes))
    return offset_pointer(p, d.pointer, bytes, d.layout.pointer)


# Allocation ---------------------------------------------------------------------------------------


def _allocation_sizes(p: Printer, op: Operation, layout: MemRefLayout) -> list[str]:
    dynamic = iter(_segments(op)[0])
    return [p.one(next(dynamic)) if n == DYNAMIC else str(n) for n in layout.sizes]


def _bytes(p: Printer, layout: MemRefLayout, sizes: Sequence[str], align: int) -> str:
    """Bytes of a dense memref, rounded up to the alignment and never zero."""
    bytes = product(p, *sizes, str(layout.element_bytes))
    if bytes.isdigit():
        return str(max(align, -(-int(bytes) // align) * align))
    up = p.emit(f"and i64 {total(p, bytes, str(align - 1))}, {-align}")
    return p.call("i64", "llvm.umax.i64", [("i64", up), ("i64", str(align))])


@prints("memref.alloc")
def print_alloc(p: Printer, op: Operation) -> None:
    """Memory from the C library, never of size zero."""
    result = op.results[0]
    assert isinstance(result.type, MemRefType)
    layout = p.rep.memref(result.type)
    sizes = _allocation_sizes(p, op, layout)
    align = max(integer_attribute(op, "alignment", ALIGNMENT), 8)
    bytes = _bytes(p, layout, sizes, align)
    pointer = p.call("ptr", "aligned_alloc", [("i64", str(align)), ("i64", bytes)])
    write(p, result, pointer, "0", sizes, row_major(p, sizes))


@prints("memref.alloca")
def print_alloca(p: Printer, op: Operation) -> None:
    result = op.results[0]
    assert isinstance(result.type, MemRefType)
    layout = p.rep.memref(result.type)
    sizes = _allocation_sizes(p, op, layout)
    align = integer_attribute(op, "alignment", ALIGNMENT)
    bytes = _bytes(p, layout, sizes, align)
    if bytes.isdigit():
        pointer = p.fresh()
        p.entry.append(f"  {pointer} = alloca [{bytes} x i8], align {align}")
    else:
        pointer = p.emit(f"alloca i8, i64 {bytes}, align {align}")
    write(p, result, pointer, "0", sizes, row_major(p, sizes))


@prints("memref.dealloc")
def print_dealloc(p: Printer, op: Operation) -> None:
    p.call("void", "free", [("ptr", read(p, op.operands[0]).pointer)])


# Globals ------------------------------------------------------------------------------------------


@prints("memref.global")
def print_global(p: Printer, op: Operation) -> None:
    name, kind = attribute(op, "sym_name"), attribute(op, "type")
    assert isinstance(name, StringAttr) and isinstance(kind, MemRefType)
    layout = p.rep.memref(kind)
    e = layout.element
    count = int(np.prod(layout.sizes, dtype=np.int64))
    value = attribute(op, "initial_value")
    constant = "constant" if attribute(op, "constant") is not None else "global"
    text = "zeroinitializer"
    if isinstance(value, DenseIntOrFPElementsAttr):
        values = list(value.get_values())
        texts = [constant_text(v, e) for v in values]  # pyright: ignore[reportArgumentType]
        if e.name == "i1":
            texts = ["1" if t == "true" else "0" for t in texts]
        texts *= count // len(texts) if len(texts) == 1 else 1
        text = f"[{', '.join(f'{e.stored} {t}' for t in texts)}]"
    elif value is None:
        p.globals.append(f"@{name.data} = external global [{count} x {e.stored}]")
        p.defined.add(name.data)
        return
    align = integer_attribute(op, "alignment", ALIGNMENT)
    p.globals.append(
        f"@{name.data} = internal {constant} [{count} x {e.stored}] {text}, align {align}"
    )
    p.defined.add(name.data)


@prints("memref.get_global")
def print_get_global(p: Printer, op: Operation) -> None:
    symbol = attribute(op, "name_")
    symbol = attribute(op, "name") if symbol is None else symbol
    assert isinstance(symbol, SymbolRefAttr)
    result = op.results[0]
    assert isinstance(result.type, MemRefType)
    sizes = [str(n) for n in p.rep.memref(result.type).sizes]
    write(p, result, f"@{symbol.string_value()}", "0", sizes, row_major(p, sizes))


# Elements -----------------------------------------------------------------------------------------


@prints("memref.load")
def print_load(p: Printer, op: Operation) -> None:
    source, *indices = op.operands
    d = read(p, source)
    layout = p.layout(op.results[0].type)
    where = address(p, d, [p.one(i) for i in indices])
    align = layout.element.stored_bytes
    p.set(op.results[0], load_value(p, layout, where, d.layout.pointer, align))


@prints("memref.store")
def print_store(p: Printer, op: Operation) -> None:
    value, target, *indices = op.operands
    d = read(p, target)
    layout = p.layout(value.type)
    where = address(p, d, [p.one(i) for i in indices])
    store_value(p, layout, p.get(value), where, d.layout.pointer, layout.element.stored_bytes)


@prints("memref.atomic_rmw")
def print_atomic_rmw(p: Printer, op: Operation) -> None:
    value, target, *indices = op.operands
    d = read(p, target)
    kind = integer_attribute(op, "kind")
    names = ("addf", "addi", "assign", "maximumf", "maxs", "maxu", "minimumf", "mins", "minu")
    names = (*names, "mulf", "muli", "ori", "andi", "maxnumf", "minnumf", "xori")
    if (name := names[kind]) not in ATOMIC_KINDS:
        raise unsupported(op, f"no machine has an atomic '{name}'")
    e = atomic_element(p, op, value.type)
    where = address(p, d, [p.one(i) for i in indices])
    p.set(
        op.results[0],
        [
            p.emit(
                f"atomicrmw {ATOMIC_KINDS[name]} {d.layout.pointer} {where}, "
                f"{e.llvm} {p.one(value)} acq_rel, align {e.stored_bytes}"
            )
        ],
    )


@prints("memref.prefetch")
def print_prefetch(p: Printer, op: Operation) -> None:
    source, *indices = op.operands
    d = read(p, source)
    where = address(p, d, [p.one(i) for i in indices])
    write_flag = attribute(op, "isWrite")
    writes = isinstance(write_flag, IntegerAttr) and bool(write_flag.value.data)
    print_prefetch_of(p, where, d.layout.pointer, writes, integer_attribute(op, "localityHint", 3))


# Views --------------------------------------------------------------------------------------------


@prints("memref.cast", "memref.memory_space_cast")
def print_cast(p: Printer, op: Operation) -> None:
    source, result = op.operands[0], op.results[0]
    d = read(p, source)
    if isinstance(result.type, UnrankedMemRefType):
        p.set(result, to_unranked(p, d))
        return
    pointer = d.pointer
    assert isinstance(result.type, MemRefType)
    wanted = p.rep.memref(result.type).pointer
    if wanted != d.layout.pointer:
        pointer = p.emit(f"addrspacecast {d.layout.pointer} {pointer} to {wanted}")
    write(p, result, pointer, d.offset, d.sizes, d.strides)


def to_unranked(p: Printer, d: Descriptor) -> tuple[str, str]:
    """Store a descriptor in scratch of the function; (rank, its address)."""
    rank = len(d.sizes)
    slot = p.fresh()
    p.entry.append(f"  {slot} = alloca [{3 + 2 * rank} x i64], align 8")
    fields = [("ptr", d.pointer), ("ptr", d.pointer), ("i64", d.offset)]
    fields += [("i64", x) for x in (*d.sizes, *d.strides)]
    for i, (t, value) in enumerate(fields):
        p.line(f"store {t} {value}, ptr {offset_pointer(p, slot, 8 * i)}, align 8")
    return str(rank), slot


def mixed(p: Printer, op: Operation, name: str, values: Sequence[SSAValue]) -> list[str]:
    """`static_<name>` with its dynamic entries taken from `values`."""
    static = attribute(op, f"static_{name}")
    assert isinstance(static, DenseArrayBase)
    dynamic = iter(values)
    return [
        p.one(next(dynamic)) if v < 0 and _is_dynamic(v) else str(v) for v in static.get_values()
    ]


def _is_dynamic(value: float) -> bool:
    return int(value) == -(1 << 63)


def _segments(op: Operation) -> list[list[SSAValue]]:
    """Operands by group, as `operandSegmentSizes` cuts them."""
    sizes = attribute(op, "operandSegmentSizes")
    assert isinstance(sizes, DenseArrayBase)
    operands, at, groups = list(op.operands), 0, []
    for n in sizes.get_values():
        groups.append(operands[at : at + int(n)])
        at += int(n)
    return groups


@prints("memref.subview")
def print_subview(p: Printer, op: Operation) -> None:
    (source,), offsets, sizes, strides = _segments(op)
    d = read(p, source)
    where = mixed(p, op, "offsets", offsets)
    extent = mixed(p, op, "sizes", sizes)
    steps = mixed(p, op, "strides", strides)
    offset = linear(p, d, where)
    moved = [product(p, a, b) for a, b in zip(d.strides, steps, strict=True)]
    result = op.results[0]
    assert isinstance(result.type, MemRefType)
    layout = p.rep.memref(result.type)
    kept = _kept_dimensions(op, layout.sizes)
    write(p, result, d.pointer, offset, [extent[i] for i in kept], [moved[i] for i in kept])


def _kept_dimensions(op: Operation, sizes: Sequence[int]) -> list[int]:
    """Which dimensions a subview keeps: a rank-reducing one drops those that the result has not."""
    static = attribute(op, "static_sizes")
    assert isinstance(static, DenseArrayBase)
    kept: list[int] = []
    for i, n in enumerate(static.get_values()):
        if len(kept) < len(sizes) and sizes[len(kept)] == (DYNAMIC if n < 0 else int(n)):
            kept.append(i)
    return kept


@prints("memref.reinterpret_cast")
def print_reinterpret_cast(p: Printer, op: Operation) -> None:
    (source,), offsets, sizes, strides = _segments(op)
    pointer = read(p, source).pointer
    (offset,) = mixed(p, op, "offsets", offsets)
    write(
        p,
        op.results[0],
        pointer,
        offset,
        mixed(p, op, "sizes", sizes),
        mixed(p, op, "strides", strides),
    )


@prints("memref.view")
def print_view(p: Printer, op: Operation) -> None:
    source, shift, *sizes = op.operands
    d = read(p, source)
    base = offset_pointer(p, d.pointer, total(p, d.offset, p.one(shift)), d.layout.pointer)
    result = op.results[0]
    assert isinstance(result.type, MemRefType)
    dynamic = iter(sizes)
    extent = [
        p.one(next(dynamic)) if n == DYNAMIC else str(n) for n in p.rep.memref(result.type).sizes
    ]
    write(p, result, base, "0", extent, row_major(p, extent))


@prints("memref.transpose")
def print_transpose(p: Printer, op: Operation) -> None:
    d = read(p, op.operands[0])
    permutation = attribute(op, "permutation")
    order = [int(e.position) for e in permutation.data.results]  # pyright: ignore
    write(
        p,
        op.results[0],
        d.pointer,
        d.offset,
        [d.sizes[i] for i in order],
        [d.strides[i] for i in order],
    )


def _groups(op: Operation) -> list[list[int]]:
    found = attribute(op, "reassociation")
    assert isinstance(found, ArrayAttr)
    return [[i.value.data for i in group.data] for group in found.data]


@prints("memref.collapse_shape")
def print_collapse(p: Printer, op: Operation) -> None:
    """Each group of dimensions must be contiguous within itself; its innermost stride stays."""
    d = read(p, op.operands[0])
    groups = _groups(op)
    sizes = [product(p, *(d.sizes[i] for i in group)) for group in groups]
    write(p, op.results[0], d.pointer, d.offset, sizes, [d.strides[g[-1]] for g in groups])


@prints("memref.expand_shape")
def print_expand(p: Printer, op: Operation) -> None:
    """A group's sizes are the result type's; one that is open is what is left of the source's size."""
    source, *given = op.operands
    d = read(p, source)
    result = op.results[0]
    assert isinstance(result.type, MemRefType)
    layout = p.rep.memref(result.type)
    dynamic = iter(given)
    sizes: list[str] = []
    strides: list[str] = []
    for g, group in enumerate(_groups(op)):
        known = [layout.sizes[i] for i in group]
        extent = [str(n) for n in known]
        if DYNAMIC in known:
            value = next(dynamic, None)
            rest = int(np.prod([n for n in known if n != DYNAMIC], dtype=np.int64))
            text = p.one(value) if value is not None else ""
            if not text:
                text = p.emit(f"sdiv i64 {d.sizes[g]}, {rest}") if rest != 1 else d.sizes[g]
            extent[known.index(DYNAMIC)] = text
        sizes += extent
        strides += [product(p, s, d.strides[g]) for s in row_major(p, extent)]
    write(p, result, d.pointer, d.offset, sizes, strides)


# Questions ----------------------------------------------------------------------------------------


@prints("memref.dim")
def print_dim(p: Printer, op: Operation) -> None:
    source, index = op.operands
    at = p.one(index)
    sizes = read(p, source).sizes
    if at.isdigit() and int(at) < len(sizes):
        p.set(op.results[0], [sizes[int(at)]])
        return
    value = sizes[0]
    for i, size in enumerate(sizes[1:], 1):
        here = p.emit(f"icmp eq i64 {at}, {i}")
        value = p.emit(f"select i1 {here}, i64 {size}, i64 {value}")
    p.set(op.results[0], [value])


@prints("memref.rank")
def print_rank(p: Printer, op: Operation) -> None:
    p.set(op.results[0], [str(len(read(p, op.operands[0]).sizes))])


@prints("memref.extract_strided_metadata")
def print_metadata(p: Printer, op: Operation) -> None:
    d = read(p, op.operands[0])
    base, *numbers = op.results
    write(p, base, d.pointer)
    for value, text in zip(numbers, [d.offset, *d.sizes, *d.strides], strict=True):
        p.set(value, [text])


@prints("memref.extract_aligned_pointer_as_index")
def print_pointer_as_index(p: Printer, op: Operation) -> None:
    (source,) = op.operands
    d = read(p, source)
    p.set(op.results[0], [p.emit(f"ptrtoint {d.layout.pointer} {d.pointer} to i64")])


@prints("memref.assume_alignment")
def print_assume_alignment(p: Printer, op: Operation) -> None:
    d = read(p, op.operands[0])
    align = integer_attribute(op, "alignment")
    p.declare("llvm.assume", "void", ["i1"])
    bundle = f'[ "align"({d.layout.pointer} {d.pointer}, i64 {align}) ]'
    p.line(f"call void @llvm.assume(i1 true) {bundle}")
    for result in op.results:
        p.set(result, p.get(op.operands[0]))


@prints("memref.copy")
def print_copy(p: Printer, op: Operation) -> None:
    """Dense to dense: one memcpy. Otherwise the runtime copies element by element."""
    a, b = (read(p, v) for v in op.operands)
    if _is_dense(a.layout) and _is_dense(b.layout):
        count = product(p, *a.sizes, str(a.layout.element_bytes))
        regs = [
            offset_pointer(p, d.pointer, product(p, d.offset, str(a.layout.element_bytes)))
            for d in (a, b)
        ]
        p.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])
        p.line(
            f"call void @llvm.memcpy.p0.p0.i64(ptr {regs[1]}, ptr {regs[0]}, i64 {count}, i1 false)"
        )
    else:
        args = [("i64", str(a.layout.element_bytes))]
        for d in (a, b):
            rank, slot = to_unranked(p, d)
            args += [("i64", rank), ("ptr", slot)]
        p.call("void", "tw_memref_copy", args)


def _is_dense(layout: MemRefLayout) -> bool:
    """Row-major without gaps, as far as the type says."""
    stride = 1
    for n, s in zip(reversed(layout.sizes), reversed(layout.strides), strict=True):
        if n == 1:
            continue
        if s != stride or stride == DYNAMIC:
            return layout.identity
        stride = DYNAMIC if n == DYNAMIC else stride * n
    return True


def external_arguments(p: Printer, value: SSAValue) -> list[tuple[str, str]]:
    """A value as MLIR passes it to a C function: a ranked memref as allocated, aligned, offset,
    sizes, strides.
    """
    if not isinstance(value.type, MemRefType):
        return list(zip(p.registers(value.type), p.get(value), strict=True))
    d = read(p, value)
    numbers = [("i64", x) for x in (d.offset, *d.sizes, *d.strides)]
    return [(d.layout.pointer, d.pointer)] * 2 + numbers


def external_types(p: Printer, type: Attribute) -> list[str]:
    """Parameter types that `external_arguments` gives for a value of `type`."""
    if not isinstance(type, MemRefType):
        return list(p.registers(type))
    layout = p.rep.memref(type)
    return [layout.pointer] * 2 + ["i64"] * (1 + 2 * len(layout.sizes))
