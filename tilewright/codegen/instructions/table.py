"""Declaration and lookup of instructions, and the printing of `mach.instr`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, cast

from xdsl.ir import Attribute, Operation

from tilewright.codegen.printer import Printer, prints, unsupported
from tilewright.codegen.target import LLVMTarget
from tilewright.dialects.mach import InstrOp

Immediates = Mapping[str, int | str]

Meaning = Callable[..., Sequence[Any]]
"""meaning(*operands, **immediates) -> results.

A vector is a numpy array of its shape, an AMX tile a uint8 array [16, 64], a pointer a
one-dimensional uint8 array that begins where it points (writes go through it), an index or integer
a Python int.
"""

Emission = Callable[[Printer, Sequence[str], Immediates], Sequence[str]]
"""emit(printer, operand registers, immediates) -> result registers."""


@dataclass(frozen=True)
class Instruction:
    """One entry. `operands` and `results` are MLIR types as text.

    `requires` are LLVM feature names, all needed; `a|b` is satisfied by either.
    """

    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    requires: frozenset[str]
    meaning: Meaning = field(repr=False)
    emit: Emission = field(repr=False)
    immediates: Mapping[str, int | str] = field(default_factory=dict[str, int | str])
    """Names and default values."""
    effect: str = "none"
    """What it does to memory: `none`, `read` or `write`."""
    exact: bool = True
    """Exactly the bits of `meaning`, or close ones (order of sums, flushed denormals)?"""

    def missing(self, target: LLVMTarget) -> list[str]:
        """What `target` lacks to execute it."""
        return sorted(f for f in self.requires if not any(map(target.has, f.split("|"))))

    @property
    def doc(self) -> str:
        """What it computes, from the meaning's docstring."""
        return (self.meaning.__doc__ or "").strip()


_FAMILIES = {"x86": "tilewright.codegen.instructions.x86"}
_TABLE: dict[str, Instruction] = {}


def declare(instruction: Instruction) -> Instruction:
    """Add an entry to the table."""
    assert instruction.name not in _TABLE, f"{instruction.name} is declared twice"
    _TABLE[instruction.name] = instruction
    return instruction


def find(name: str) -> Instruction | None:
    """The instruction called `name`; its family's module is imported on first use."""
    if name not in _TABLE and (module := _FAMILIES.get(name.split(".")[0])) is not None:
        import_module(module)
    return _TABLE.get(name)


def all_instructions() -> list[Instruction]:
    """Every entry of every family."""
    for module in _FAMILIES.values():
        import_module(module)
    return list(_TABLE.values())


@cache
def types_of(texts: tuple[str, ...]) -> tuple[Attribute, ...]:
    """MLIR types of their texts."""
    from xdsl.context import Context
    from xdsl.dialects.builtin import Builtin
    from xdsl.dialects.llvm import LLVM
    from xdsl.parser import Parser

    from tilewright.dialects.mach import MACH

    context = Context()
    for dialect in (Builtin, LLVM, MACH):
        context.load_dialect(dialect)
    return tuple(Parser(context, text).parse_type() for text in texts)


def _check_types(
    p: Printer, op: Operation, what: str, given: Sequence[Attribute], wanted: tuple[str, ...]
) -> None:
    if len(given) != len(wanted):
        raise unsupported(op, f"has {len(given)} {what}s, the instruction {len(wanted)}")
    for i, (type, expected) in enumerate(zip(given, types_of(wanted), strict=True)):
        if p.registers(type) != p.registers(expected):
            raise unsupported(op, f"{what} {i} is {type}, the instruction has {wanted[i]}")


@prints("mach.instr")
def print_instruction(p: Printer, op: Operation) -> None:
    """Print one entry after checking types, immediates and the target's features."""
    op = cast(InstrOp, op)
    name = op.instruction.data
    entry = find(name)
    if entry is None:
        raise unsupported(op, f"there is no instruction '{name}' in the table")
    missing = entry.missing(p.target)
    if missing:
        raise unsupported(op, f"'{name}' needs {', '.join(missing)}; {p.target.name} has not")
    given = op.immediates()
    if unknown := sorted(given.keys() - entry.immediates.keys()):
        raise unsupported(op, f"'{name}' has no immediate '{unknown[0]}'")
    _check_types(p, op, "operand", [v.type for v in op.operands], entry.operands)
    _check_types(p, op, "result", [r.type for r in op.results], entry.results)
    operands = [r for v in op.operands for r in p.get(v)]
    results = entry.emit(p, operands, {**entry.immediates, **given})
    for value, reg in zip(op.results, results, strict=True):
        p.set(value, (reg,))
