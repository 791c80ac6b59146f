"""What NVIDIA's entries share: inline PTX, calls of NVVM intrinsics, declaration of timed entries.

Where LLVM has an intrinsic it is used (it folds addresses and knows what memory is touched); where
it has none, or only for some shapes, the entry is one inline PTX statement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.codegen.instructions.table import (
    Emission,
    Immediates,
    Meaning,
    declare,
)
from tilewright.codegen.printer import Arg, Printer

CONVERGENT = " convergent"
SM80, SM89 = frozenset({"sm_80"}), frozenset({"sm_89"})
SM90, SM90A = frozenset({"sm_90"}), frozenset({"sm_90a"})

_LETTERS = {"i1": "b", "i16": "h", "i32": "r", "i64": "l", "float": "f", "double": "d"}


def letter(llvm: str) -> str:
    """The inline assembler's constraint letter of a register type."""
    return "l" if llvm.startswith("ptr") and "(3)" not in llvm else _LETTERS.get(llvm, "r")


def ptx(
    p: Printer,
    text: str,
    results: Sequence[str],
    args: Sequence[Arg],
    *,
    tied: int = 0,
    effect: bool = False,
    memory: bool = False,
) -> list[str]:
    """One inline PTX statement; its result registers.

    `$0, $1 ...` in `text` are the results, then the operands. The last `tied` operands share the
    registers of the first `tied` results, so they are written as `$0 ...`. `effect`: it is kept and
    kept in order; `memory`: memory accesses do not move across it.
    """
    first = len(args) - tied
    constraints = [f"={letter(t)}" for t in results]
    constraints += [letter(t) for t, _ in args[:first]]
    constraints += [str(i) for i in range(tied)]
    if memory:
        constraints.append("~{memory}")
    kind = "asm sideeffect" if effect or memory else "asm"
    struct = results[0] if len(results) == 1 else "{ " + ", ".join(results) + " }"
    call = f'call {struct if results else "void"} {kind} "{text}", "{",".join(constraints)}"'
    call += f"({', '.join(f'{t} {v}' for t, v in args)}){CONVERGENT}"
    if not results:
        p.line(call)
        return []
    value = p.emit(call)
    if len(results) == 1:
        return [value]
    return [p.emit(f"extractvalue {struct} {value}, {i}") for i in range(len(results))]


def group(first: int, count: int) -> str:
    """`{$first, ...}`: a fragment in PTX."""
    return "{" + ", ".join(f"${i}" for i in range(first, first + count)) + "}"


def unpack(p: Printer, struct: str, value: str, count: int) -> list[str]:
    """The registers of a struct that an intrinsic returns."""
    return [p.emit(f"extractvalue {struct} {value}, {i}") for i in range(count)]


def intrinsic(name: str, result: str, *operands: str, extra: Sequence[Arg] = ()) -> Emission:
    """An emission that calls `llvm.nvvm.<name>` on operands of these LLVM types, then `extra`."""

    def emit(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
        args = [*zip(operands, regs, strict=True), *extra]
        value = p.call(result, f"llvm.nvvm.{name}", args)
        return [value] if value else []

    return emit


def statement(
    text: str, *operands: str, result: str = "", effect: bool = False, memory: bool = False
) -> Emission:
    """An emission that is one PTX statement on operands of these LLVM types.

    Immediates stand in `text` as `<name>`.
    """

    def emit(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
        body = text
        for key, value in immediates.items():
            body = body.replace(f"<{key}>", str(value))
        args = list(zip(operands, regs, strict=True))
        results = [result] if result else []
        return ptx(p, body, results, args, effect=effect, memory=memory)

    return emit


def nothing(doc: str) -> Meaning:
    """The meaning of an entry that only orders or announces other work: no result, no effect."""

    def meaning(*operands: Any, **immediates: Any) -> Sequence[Any]:
        return []

    meaning.__doc__ = doc
    return meaning


def timed(
    name: str,
    operands: Sequence[str],
    doc: str,
    emit: Emission,
    requires: frozenset[str] = SM80,
    *,
    immediates: Mapping[str, int | str] | None = None,
    effect: str = "write",
    scope: str = "thread",
) -> None:
    """Declare an entry whose effect is order in time."""
    declare(
        f"nvptx.{name}",
        tuple(operands),
        (),
        requires,
        nothing(doc),
        emit,
        immediates or {},
        effect=effect,
        scope=scope,
        timed=True,
    )
