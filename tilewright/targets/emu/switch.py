"""How a fibre gives way to another, by the family of instructions: what it saves, and how a new one starts.

A switch puts the registers that a called function must preserve on the stack, keeps the stack's address in the record
that `from` names, and takes the other way from the stack `to`; LLVM saves everything else around the call. The stack of
a new fibre looks as if it had given way before its first instruction: its frame sends it to `enter`, which calls `main`
with the context, both from registers that the switch brings back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.frozen import frozen


@frozen
class Switch:
    """Assembly, and where a new fibre's frame holds what, in bytes below the top of its stack."""

    switch: str
    enter: str
    low: int
    """The stack's address while the fibre waits."""
    entry: int
    context: int
    main: int

    def ir(self) -> str:
        """LLVM IR text of `switch(from, to)` and of `enter`."""
        return "".join(
            f"define internal void @{head} naked noinline nounwind {{\n"
            f'  call void asm sideeffect "{text}", "~{{memory}}"()\n  unreachable\n}}\n\n'
            for head, text in (("switch(ptr %from, ptr %to)", self.switch), ("enter()", self.enter))
        )


def _text(lines: Sequence[str]) -> str:
    return "\\0A".join(lines)


def _x86() -> Switch:
    saved = ("rbp", "rbx", "r12", "r13", "r14", "r15")
    push = [f"pushq %{r}" for r in saved]
    pop = [f"popq %{r}" for r in reversed(saved)]
    return Switch(
        _text([*push, "movq %rsp, (%rdi)", "movq %rsi, %rsp", *pop, "retq"]),
        _text(["movq %r12, %rdi", "callq *%r13", "ud2"]),
        low=56, entry=8, context=32, main=40,
    )  # fmt: skip


def _aarch64() -> Switch:
    pairs = [("x29", "x30"), *((f"x{i}", f"x{i + 1}") for i in range(19, 28, 2))]
    pairs += [(f"d{i}", f"d{i + 1}") for i in range(8, 15, 2)]
    size = 16 * len(pairs)
    save, load = (
        [f"{op} {a}, {b}, [sp, #{16 * i}]" for i, (a, b) in enumerate(pairs)]
        for op in ("stp", "ldp")
    )
    swap = ["mov x9, sp", "str x9, [x0]", "mov sp, x1"]
    return Switch(
        _text([f"sub sp, sp, #{size}", *save, *swap, *load, f"add sp, sp, #{size}", "ret"]),
        _text(["mov x0, x19", "blr x20", "brk #1"]),
        low=size, entry=size - 8, context=size - 16, main=size - 24,
    )  # fmt: skip


SWITCHES: Final = {"x86": _x86(), "aarch64": _aarch64()}
