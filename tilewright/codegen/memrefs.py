"""memref ops that allocate, access, copy, view and ask: all on the descriptor's registers.

A memref is a tuple of registers, its base pointer and whatever of its shape is not static.

    memref<4x?xf32, strided<[?, 1], offset: ?>>   ->   (ptr base, i64 offset, i64 size 1, i64 stride 0)

Nothing of a ranked memref lies in memory, so a cast or a subview costs arithmetic only. An unranked
memref is MLIR's: its rank and the address of a descriptor {ptr allocated, ptr aligned, i64 offset,
i64 sizes[rank], i64 strides[rank]}, which the cast to it stores in scratch of the function; that
cast is the only op here with stores that it does not name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import (
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    MemRefType,
    StringAttr,
    SymbolRefAttr,
    UnrankedMemRefType,
)
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.codegen.constants import constant_texts
from tilewright.codegen.memory import load_value, print_prefetch_of, store_value
from tilewright.codegen.pointers import offset_pointer
from tilewright.codegen.printer import Printer, attribute, integer_attribute, prints, symbol
from tilewright.codegen.registers import DYNAMIC, Element, MemRefLayout
from tilewright.diagnostics import unsupported
from tilewright.dialects.movement import memref_type
from tilewright.dialects.upstream.views import VIEWS, View, row_major, viewed
from tilewright.frozen import frozen, record


@record
class Descriptor:
    """A memref's parts as operand texts: constants or registers. Numbers count elements."""

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


def _folded(p: Printer, op: str, number: int, terms: Sequence[str]) -> str:
    """`mul` or `add` of terms, from what that leaves alone."""
    neutral, text = number, ""
    for term in terms:
        if term.lstrip("-").isdigit():
            number = number * int(term) if op == "mul" else number + int(term)
        else:
            text = p.emit(f"{op} i64 {text}, {term}") if text else term
    if not text or (op == "mul" and number == 0):
        return str(number)
    return text if number == neutral else p.emit(f"{op} i64 {text}, {number}")


def product(p: Printer, *factors: str) -> str:
    """i64 product; constants fold."""
    return _folded(p, "mul", 1, factors)


def total(p: Printer, *terms: str) -> str:
    """i64 sum; constants fold."""
    return _folded(p, "add", 0, terms)


@frozen
class DescriptorTexts:
    """Numbers as constants and names of registers."""

    p: Printer
    literal = staticmethod(str)

    def plus(self, x: str, y: str) -> str:
        return total(self.p, x, y)

    def times(self, x: str, y: str) -> str:
        return product(self.p, x, y)


def address(p: Printer, d: Descriptor, indices: Sequence[str]) -> str:
    """Pointer to the element at `indices`."""
    terms = [product(p, i, s) for i, s in zip(indices, d.strides, strict=True)]
    bytes = product(p, total(p, d.offset, *terms), str(d.layout.element_bytes))
    return offset_pointer(p, d.pointer, bytes, d.layout.pointer)


def operand_groups(op: Operation) -> list[list[SSAValue]]:
    """Operands by group, as `operandSegmentSizes` cuts them."""
    sizes = attribute(op, "operandSegmentSizes")
    assert isinstance(sizes, DenseArrayBase)
    operands, at, groups = list(op.operands), 0, []
    for n in sizes.get_values():
        groups.append(operands[at : at + int(n)])
        at += int(n)
    return groups


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


def from_unranked(p: Printer, source: SSAValue, result: SSAValue) -> None:
    """Load from a stored descriptor what the result's type leaves open; the rank is the program's word."""
    assert isinstance(result.type, MemRefType)
    layout = p.rep.memref(result.type)
    _, slot = p.get(source)

    def field(number: int, known: int = DYNAMIC, type: str = "i64") -> str:
        if known != DYNAMIC:
            return str(known)
        return p.emit(f"load {type}, ptr {offset_pointer(p, slot, 8 * number)}, align 8")

    rank = len(layout.sizes)
    pointer = field(1, type="ptr")
    if layout.pointer != "ptr":
        pointer = p.emit(f"addrspacecast ptr {pointer} to {layout.pointer}")
    sizes = [field(3 + i, n) for i, n in enumerate(layout.sizes)]
    strides = [field(3 + rank + i, s) for i, s in enumerate(layout.strides)]
    write(p, result, pointer, field(2, layout.offset), sizes, strides)


def external_arguments(p: Printer, value: SSAValue) -> list[tuple[str, str]]:
    """A value as MLIR passes it to a C function: a ranked memref is spread into its fields."""
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


# --- Ops ------------------------------------------------------------------------------------------


ALIGNMENT = 64
"""Bytes to which memref.alloc and memref.alloca align by default."""


# Allocation ---------------------------------------------------------------------------------------


def _allocation_sizes(p: Printer, op: Operation, layout: MemRefLayout) -> list[str]:
    dynamic = iter(operand_groups(op)[0])
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
    layout = p.rep.memref(memref_type(result))
    sizes = _allocation_sizes(p, op, layout)
    align = max(integer_attribute(op, "alignment", ALIGNMENT), 8)
    bytes = _bytes(p, layout, sizes, align)
    pointer = p.call("ptr", "aligned_alloc", [("i64", str(align)), ("i64", bytes)])
    write(p, result, pointer, "0", sizes, row_major(sizes, DescriptorTexts(p)))


@prints("memref.alloca")
def print_alloca(p: Printer, op: Operation) -> None:
    result = op.results[0]
    layout = p.rep.memref(memref_type(result))
    if layout.pointer != "ptr":
        raise unsupported(
            op,
            f"{result.type} is memory of one thread, which this target addresses apart from arrays",
            hint="values stay in registers; what threads share is memory space 3",
        )
    sizes = _allocation_sizes(p, op, layout)
    align = integer_attribute(op, "alignment", ALIGNMENT)
    bytes = _bytes(p, layout, sizes, align)
    if bytes.isdigit():
        pointer = p.fresh()
        p.entry.append(f"  {pointer} = alloca [{bytes} x i8], align {align}")
    else:
        pointer = p.emit(f"alloca i8, i64 {bytes}, align {align}")
    write(p, result, pointer, "0", sizes, row_major(sizes, DescriptorTexts(p)))


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
    if isinstance(value, DenseIntOrFPElementsAttr) and value.data.data.strip(b"\0"):
        values: Sequence[Any] = value.get_values()
        texts = constant_texts(values, e)
        if e.name == "i1":
            texts = ["1" if t == "true" else "0" for t in texts]
        texts *= count // len(texts) if len(texts) == 1 else 1
        text = f"[{', '.join(f'{e.stored} {t}' for t in texts)}]"
    elif value is None:
        p.globals.append(f"{symbol(name.data)} = external global [{count} x {e.stored}]")
        p.defined.add(name.data)
        return
    align = integer_attribute(op, "alignment", ALIGNMENT)
    p.globals.append(
        f"{symbol(name.data)} = internal {constant} [{count} x {e.stored}] {text}, align {align}"
    )
    p.defined.add(name.data)


@prints("memref.get_global")
def print_get_global(p: Printer, op: Operation) -> None:
    name = attribute(op, "name_") or attribute(op, "name")
    assert isinstance(name, SymbolRefAttr)
    result = op.results[0]
    sizes = [str(n) for n in p.rep.memref(memref_type(result)).sizes]
    write(p, result, symbol(name.string_value()), "0", sizes, row_major(sizes, DescriptorTexts(p)))


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


@prints("memref.prefetch")
def print_prefetch(p: Printer, op: Operation) -> None:
    source, *indices = op.operands
    d = read(p, source)
    where = address(p, d, [p.one(i) for i in indices])
    write_flag = attribute(op, "isWrite")
    writes = isinstance(write_flag, IntegerAttr) and bool(write_flag.value.data)
    print_prefetch_of(p, where, d.layout.pointer, writes, integer_attribute(op, "localityHint", 3))


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
    source = op.operands[0]
    known = not isinstance(source.type, UnrankedMemRefType)
    p.set(op.results[0], [str(len(read(p, source).sizes)) if known else p.get(source)[0]])


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


@prints(*VIEWS)
def print_view(p: Printer, op: Operation) -> None:
    source, *given = op.operands
    result = op.results[0]
    if isinstance(source.type, UnrankedMemRefType):
        from_unranked(p, source, result)
        return
    d = read(p, source)
    if isinstance(result.type, UnrankedMemRefType):
        p.set(result, to_unranked(p, d))
        return
    numbers = [p.one(v) for v in given]
    new = viewed(op, View(d.offset, d.sizes, d.strides), numbers, DescriptorTexts(p))
    pointer, space = d.pointer, p.rep.memref(memref_type(result)).pointer
    if new.bytes is not None:
        pointer = offset_pointer(p, pointer, new.bytes, d.layout.pointer)
    if space != d.layout.pointer:
        pointer = p.emit(f"addrspacecast {d.layout.pointer} {pointer} to {space}")
    write(p, result, pointer, new.offset, new.sizes, new.strides)
