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

from xdsl.dialects.builtin import DenseArrayBase, MemRefType
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.codegen.pointers import offset_pointer
from tilewright.codegen.printer import Printer, attribute
from tilewright.codegen.registers import DYNAMIC, Element, MemRefLayout
from tilewright.frozen import frozen


@dataclass
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
