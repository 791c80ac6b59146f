"""What NVIDIA's entries share: inline PTX, calls of NVVM intrinsics, declaration of timed entries.

Where LLVM has an intrinsic it is used (it folds addresses and knows what memory is touched); where
it has none, or only for some shapes, the entry is one inline PTX statement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from tilewright.codegen.instructions.table import Emission, Immediates, Meaning, declare
from tilewright.codegen.printer import Arg, Printer

CONVERGENT = " convergent"
SM80, SM89 = frozenset({"sm_80"}), frozenset({"sm_89"})
SM90, SM90A = frozenset({"sm_90"}), frozenset({"sm_90a"})

SHARED, GLOBAL, CLUSTER_SHARED = "!llvm.ptr<3>", "!llvm.ptr<1>", "!llvm.ptr<7>"
LLVM_SHARED, LLVM_GLOBAL, LLVM_CLUSTER = (f"ptr addrspace({n})" for n in (3, 1, 7))
_LLVM = {
    SHARED: LLVM_SHARED, GLOBAL: LLVM_GLOBAL, CLUSTER_SHARED: LLVM_CLUSTER, "!llvm.ptr": "ptr", "f32": "float",
}  # fmt: skip
"""Of MLIR's types those that LLVM calls otherwise."""
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


def emission(
    text: str,
    operands: Sequence[str],
    result: str = "",
    *,
    first: Sequence[Arg] = (),
    extra: Sequence[Arg] = (),
    effect: bool = False,
    memory: bool = False,
) -> Emission:
    """A call of `llvm.nvvm.<text>` on `first`, operands of these MLIR types, `extra`; or a PTX statement: it has a `;`.

    Immediates stand in `extra` and in a statement as `<name>`.
    """

    def emit(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
        def filled(words: str) -> str:
            return reduce(
                lambda x, each: x.replace(f"<{each}>", str(immediates[each])), immediates, words
            )

        types = [_LLVM.get(type, type) for type in (*operands, result)]
        given = zip(types[:-1], regs, strict=True)
        args = [*first, *given, *((type, filled(x)) for type, x in extra)]
        if ";" in text:
            results = types[-1:] if result else []
            return ptx(p, filled(text), results, args, effect=effect, memory=memory)
        value = p.call(types[-1] or "void", f"llvm.nvvm.{text}", args)
        return [value] if value else []

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
    emit: Emission | str,
    requires: frozenset[str] = SM80,
    *,
    extra: Sequence[Arg] = (),
    state: str = "",
    memory: bool = False,
    immediates: Mapping[str, int | str] | None = None,
    effect: str = "write",
    scope: str = "thread",
) -> None:
    """Declare an entry whose effect is order in time; `emit` or what `emission` takes: an intrinsic may give a `state`,
    which nobody needs.
    """
    if isinstance(emit, str):
        made = emission(emit, operands, state, extra=extra, effect=not memory, memory=memory)
    else:
        made = emit

    def alone(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
        made(p, regs, immediates)
        return []

    declare(
        f"nvptx.{name}",
        tuple(operands),
        (),
        requires,
        nothing(doc),
        alone,
        immediates or {},
        effect=effect,
        scope=scope,
        timed=True,
    )
