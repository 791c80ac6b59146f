"""Addresses: pointer arithmetic and casts, scratch, symbols, string constants."""

from __future__ import annotations

from xdsl.dialects.memref import ExtractAlignedPointerAsIndexOp
from xdsl.ir import Attribute, Operation

from tilewright.codegen.printer import Printer, integer_attribute, prints
from tilewright.dialects import mach


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
    base = p.one(pointer) if t != "ptr" else p.kept(p.one(pointer))
    p.set(op.results[0], [offset_pointer(p, base, p.one(offset), t)])


@prints("mach.ptr_from_int", "llvm.inttoptr")
def print_ptr_from_int(p: Printer, op: Operation) -> None:
    (value,) = op.operands
    t, made = pointer_type(p, op.results[0].type), value.owner
    if isinstance(made, ExtractAlignedPointerAsIndexOp):
        source = made.operands[0]
        if p.registers(source.type)[0] == t:
            # LLVM knows more of what never was a number.
            p.set(op.results[0], p.get(source)[:1])
            return
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
def print_address_of(p: Printer, op: mach.AddressOfOp) -> None:
    llvm = pointer_type(p, op.result.type)
    p.addressed[op.symbol] = llvm.removeprefix("ptr").strip() and f"{llvm[4:]} "
    p.set(op.result, [f"@{op.symbol}"])


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


def address_space(llvm: str) -> str:
    """Address space number of a pointer type."""
    return llvm.removeprefix("ptr addrspace(").removesuffix(")") if "(" in llvm else "0"
