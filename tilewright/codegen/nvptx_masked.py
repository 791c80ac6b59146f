"""Masked access on NVIDIA: predicated loads and stores.

Registers that share one mask register move together, in packets of at most 16 bytes, as one
instruction under a predicate; registers with masks of their own move one by one. No branch is made,
so that many loads are in flight. A masked load gives `passthru` by holding it before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.ir import Operation

from tilewright.codegen.instructions.nvptx_common import group, ptx
from tilewright.codegen.lane_ops import Lanes
from tilewright.codegen.masked import operands_of
from tilewright.codegen.memory import to_memory, to_register
from tilewright.codegen.pointers import address_space, offset_pointer, pointer_type
from tilewright.codegen.printer import Printer, integer_attribute
from tilewright.codegen.registers import Element
from tilewright.codegen.target import Handler

_SPACES = {"0": "", "1": ".global", "3": ".shared"}
_WIDTHS = (16, 8, 4, 2, 1)


def _packets(masks: Sequence[str], size: int, align: int) -> Iterator[tuple[int, int]]:
    """(first register, registers) of each access: equal masks, at most 16 aligned bytes."""
    at = 0
    while at < len(masks):
        same = 1
        while at + same < len(masks) and masks[at + same] == masks[at]:
            same += 1
        offset = at * size
        fitting = (
            w // size
            for w in _WIDTHS
            if 1 <= w // size <= same and offset % w == 0 and align % w == 0
        )
        n = next(fitting, 1)
        yield at, n
        at += n


def _word(bytes: int) -> tuple[str, str, int]:
    """(LLVM type, PTX type, words) that move so many bytes."""
    if bytes >= 4:
        return "i32", "b32", bytes // 4
    return ("i16", "b16", 1) if bytes == 2 else ("i16", "b8", 1)


def _vector(words: int) -> str:
    return f".v{words}" if words > 1 else ""


def _pack(p: Printer, e: Element, regs: Sequence[str], bytes: int) -> list[str]:
    """Registers of an element type as the words that memory holds."""
    one = Lanes(p, 1)
    stored = [to_memory(one, e, r) for r in regs]
    kind, _, words = _word(bytes)
    if bytes == 1:
        return [p.emit(f"zext i8 {stored[0]} to i16")]
    if e.stored_bytes == 8:
        out: list[str] = []
        for r in stored:
            bits = r if e.stored == "i64" else p.emit(f"bitcast {e.stored} {r} to i64")
            out += p.split(bits, "i64", "i32", 2)
        return out
    each = len(stored) // words
    if each == 1:
        return [
            r if e.stored == kind else p.emit(f"bitcast {e.stored} {r} to {kind}") for r in stored
        ]
    return [p.pack(stored[i : i + each], e.stored, kind) for i in range(0, len(stored), each)]


def _unpack(p: Printer, e: Element, words: Sequence[str], bytes: int, count: int) -> list[str]:
    """The words that memory held as registers of an element type."""
    one = Lanes(p, 1)
    kind, _, _ = _word(bytes)
    if bytes == 1:
        stored = [p.emit(f"trunc i16 {words[0]} to i8")]
    elif e.stored_bytes == 8:
        stored = [p.pack(words[i : i + 2], "i32", "i64") for i in range(0, len(words), 2)]
        if e.stored != "i64":
            stored = [p.emit(f"bitcast i64 {r} to {e.stored}") for r in stored]
    else:
        each = count // len(words)
        stored = []
        for w in words:
            if each > 1:
                stored += p.split(w, kind, e.stored, each)
            else:
                stored.append(
                    w if e.stored == kind else p.emit(f"bitcast {kind} {w} to {e.stored}")
                )
    return [to_register(one, e, r) for r in stored]


def _load(
    p: Printer, e: Element, pointer: str, llvm: str, mask: str, passthru: Sequence[str], bytes: int
) -> list[str]:
    """One predicated load of `bytes` bytes."""
    kind, word, words = _word(bytes)
    held = _pack(p, e, passthru, bytes)
    space = _SPACES[address_space(llvm)]
    text = (
        f"@${words + 1} ld{space}{_vector(words)}.{word} "
        f"{group(0, words) if words > 1 else '$0'}, [${words}];"
    )
    args = [(llvm, pointer), ("i1", mask), *((kind, w) for w in held)]
    regs = ptx(p, text, [kind] * words, args, tied=words, memory=True)
    return _unpack(p, e, regs, bytes, len(passthru))


def _store(
    p: Printer, e: Element, values: Sequence[str], pointer: str, llvm: str, mask: str, bytes: int
) -> None:
    """One predicated store of `bytes` bytes."""
    kind, word, words = _word(bytes)
    data = _pack(p, e, values, bytes)
    space = _SPACES[address_space(llvm)]
    text = f"@$1 st{space}{_vector(words)}.{word} [$0], {group(2, words) if words > 1 else '$2'};"
    ptx(p, text, [], [(llvm, pointer), ("i1", mask), *((kind, w) for w in data)], memory=True)


def _move(
    p: Printer, op: Operation, e: Element, at: str, llvm: str, mask: str, data: Sequence[str]
) -> list[str]:
    """Loads or stores some registers, as the op does."""
    if op.results:
        return _load(p, e, at, llvm, mask, data, len(data) * e.stored_bytes)
    _store(p, e, data, at, llvm, mask, len(data) * e.stored_bytes)
    return []


def _masked(p: Printer, op: Operation) -> None:
    value, pointer, mask = operands_of(op)
    e, out = p.layout(value.type).element, list[str]()
    align = integer_attribute(op, "alignment", e.stored_bytes)
    llvm = pointer_type(p, pointer.type)
    masks, data = p.get(mask), p.get(value)
    for at, n in _packets(masks, e.stored_bytes, align):
        address = offset_pointer(p, p.one(pointer), at * e.stored_bytes, llvm)
        out += _move(p, op, e, address, llvm, masks[at], data[at : at + n])
    for result in op.results:
        p.set(result, out)


def _scattered(p: Printer, op: Operation) -> None:
    value, pointer, offsets, mask = operands_of(op)
    e, out = p.layout(value.type).element, list[str]()
    llvm = pointer_type(p, pointer.type)
    scalar = p.layout(offsets.type).element.llvm
    for x, f, m in zip(p.get(value), p.get(offsets), p.get(mask), strict=True):
        address = p.emit(f"getelementptr i8, {llvm} {p.one(pointer)}, {scalar} {f}")
        out += _move(p, op, e, address, llvm, m, (x,))
    for result in op.results:
        p.set(result, out)


NVPTX_MASKED_HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("mach.masked_load", "mach.masked_store"), _masked),
    **dict.fromkeys(("mach.gather", "mach.scatter"), _scattered),
}
