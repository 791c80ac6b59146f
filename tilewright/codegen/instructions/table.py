"""Declaration and lookup of instructions, and the printing of `mach.instr` and `mach.each`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from math import prod
from typing import Any, ParamSpec, cast

import numpy as np
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Attribute, Operation

from tilewright.codegen.components import ComponentSource
from tilewright.codegen.printer import Printer, prints, unsupported
from tilewright.codegen.target import LLVMTarget
from tilewright.dialects.mach import EachOp, InstrOp
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.frozen import field, frozen

P = ParamSpec("P")

Immediates = Mapping[str, int | str]

Meaning = Callable[..., Sequence[Any]]
"""meaning(*operands, **immediates) -> results.

Of one thread (`scope` is "thread"): a vector is a numpy array of its shape, an AMX tile a uint8
array [16, 64], a pointer a one-dimensional uint8 array that begins where it points (writes go
through it), an index, integer or float scalar a Python number.

Of a collective (`scope` is "warp" or "warpgroup": 32 or 128 threads that execute it together):
every operand and result has a leading lane axis. A vector of n components is an array [lanes, n],
a scalar an array [lanes], a pointer a list with one uint8 array per lane. An entry that finds its
operands by addresses inside values (`shared`: wgmma's descriptors) also gets the keyword `shared`,
the workgroup's shared memory as one uint8 array.

What only orders other work in time (`timed`: barriers, fences, asynchronous copies and waits) has
an empty meaning or the effect that it has once it is complete; its docstring says which. When that
is, the reference executor says (`reference/meanings/`).
"""

Emission = Callable[[Printer, Sequence[str], Immediates], Sequence[str]]
"""emit(printer, registers of all operands in order, immediates) -> registers of all results."""


@frozen
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
    scope: str = "thread"
    """Who executes it together: `thread`, `warp`, `warpgroup`, `workgroup` or `cluster`."""
    timed: bool = False
    """Is its effect order in time, so that `meaning` alone does not say it?"""
    elementwise: bool = False
    """Does it the same to every element, so that `mach.each` may name it? `meaning` then takes arrays of any shape."""
    shared: Meaning | None = field(default=None, repr=False)
    """The bytes of the workgroup's shared memory that `meaning` reads, by their addresses, of the same operands and
    immediates; `meaning` then takes that memory as the keyword `shared`."""

    def missing(self, target: LLVMTarget) -> list[str]:
        """What `target` lacks to execute it."""
        return sorted(f for f in self.requires if not any(map(target.has, f.split("|"))))

    @property
    def doc(self) -> str:
        """What it computes, from the meaning's docstring."""
        return (self.meaning.__doc__ or "").strip()


_FAMILIES = {
    "x86": "tilewright.codegen.instructions.x86",
    "aarch64": "tilewright.codegen.instructions.aarch64",
    "nvptx": "tilewright.codegen.instructions.nvptx",
}
_TABLE: dict[str, Instruction] = {}
_MAKERS: list[Callable[[str], Instruction | None]] = []


def _declaring(make: Callable[P, Instruction]) -> Callable[P, Instruction]:
    def declare(*args: P.args, **kwargs: P.kwargs) -> Instruction:
        instruction = make(*args, **kwargs)
        assert instruction.name not in _TABLE, f"{instruction.name} is declared twice"
        return _TABLE.setdefault(instruction.name, instruction)

    return declare


declare = _declaring(Instruction)
"""Makes an entry, and adds it to the table."""


def make_by(maker: Callable[[str], Instruction | None]) -> None:
    """Register a function that makes the entries of a family too large to list (wgmma: shapes by
    types): it gives the entry of a name, or None for a name that is not its own.
    """
    _MAKERS.append(maker)


def find(name: str) -> Instruction | None:
    """The instruction called `name`; its family's module is imported on first use."""
    if name not in _TABLE and (module := _FAMILIES.get(name.split(".")[0])) is not None:
        import_module(module)
        for maker in () if name in _TABLE else _MAKERS:
            if (made := maker(name)) is not None:
                _TABLE[name] = made
                break
    return _TABLE.get(name)


def all_instructions(family: str | None = None) -> list[Instruction]:
    """Every listed entry, of one family or of all; of a made family those that were asked for."""
    for name, module in _FAMILIES.items():
        if family in (None, name):
            import_module(module)
    return [e for e in _TABLE.values() if family in (None, e.name.split(".")[0])]


@cache
def types_of(texts: tuple[str, ...]) -> tuple[Attribute, ...]:
    """MLIR types of their texts."""
    from xdsl.context import Context
    from xdsl.dialects.builtin import Builtin
    from xdsl.parser import Parser

    from tilewright.dialects.mach import MACH
    from tilewright.dialects.upstream.pointer import LLVMPointerType

    context = Context()
    for dialect in (Builtin, MACH):
        context.load_dialect(dialect)
    context.load_attr_or_type(LLVMPointerType)
    return tuple(Parser(context, text).parse_type() for text in texts)


def _check_types(
    p: Printer, op: Operation, what: str, given: Sequence[Attribute], wanted: tuple[str, ...]
) -> None:
    if len(given) != len(wanted):
        raise unsupported(op, f"has {len(given)} {what}s, the instruction {len(wanted)}")
    for i, (type, expected) in enumerate(zip(given, types_of(wanted), strict=True)):
        if p.registers(type) != p.registers(expected):
            raise unsupported(op, f"{what} {i} is {type}, the instruction has {wanted[i]}")


def _entry(p: Printer, op: Operation, name: str) -> Instruction:
    """The entry of an instruction that the machine has."""
    entry = find(name)
    if entry is None:
        raise unsupported(op, f"there is no instruction '{name}' in the table")
    missing = entry.missing(p.target)
    if missing:
        raise unsupported(op, f"'{name}' needs {', '.join(missing)}; {p.target.name} has not")
    return entry


@prints("mach.instr")
def print_instruction(p: Printer, op: Operation) -> None:
    """Print one entry after checking types, immediates and the target's features."""
    op = cast(InstrOp, op)
    name = op.instruction
    entry = _entry(p, op, name)
    given = op.immediates()
    if unknown := sorted(given.keys() - entry.immediates.keys()):
        raise unsupported(op, f"'{name}' has no immediate '{unknown[0]}'")
    _check_types(p, op, "operand", [v.type for v in op.operands], entry.operands)
    _check_types(p, op, "result", [r.type for r in op.results], entry.results)
    operands = [r for v in op.operands for r in p.get(v)]
    p.set_results(op, entry.emit(p, operands, {**entry.immediates, **given}))


@prints("mach.each")
def print_each(p: Printer, op: Operation) -> None:
    """Print an elementwise entry as often as its width goes into the operands; the last time some elements twice."""
    op = cast(EachOp, op)
    entry = _entry(p, op, op.instruction)
    check_each(op, entry)
    (own,) = types_of(entry.results)
    width = prod(own.get_shape()) if isinstance(own, VectorType) else 1
    operands: list[list[str]] = []
    for value in op.arguments:
        layout = p.layout(value.type)
        source = ComponentSource(p, layout.element.llvm)
        numbers = source.add(layout, p.get(value)).ravel()
        numbers = np.pad(numbers, (0, -len(numbers) % width), mode="edge")
        operands.append(source.assemble(numbers, [width] * (len(numbers) // width)))
    made = [entry.emit(p, parts, entry.immediates)[0] for parts in zip(*operands, strict=True)]
    result = p.layout(op.result.type)
    source = ComponentSource(p, result.element.llvm)
    source.regs, source.counts = made, [width] * len(made)
    p.set(op.result, source.assemble(np.arange(result.size), result.counts))


def check_each(op: EachOp, entry: Instruction) -> None:
    """UnsupportedError where a `mach.each` may not name an entry, or has elements of other types."""
    name = op.instruction
    if not entry.elementwise:
        known = ", ".join(e.name for e in all_instructions(name.split(".")[0]) if e.elementwise)
        raise unsupported(op, f"'{name}' is not done element by element", f"these are: {known}")
    types = [v.type for v in (*op.arguments, op.result)]
    wanted = types_of((*entry.operands, *entry.results))
    own = [element_of(t) for t in wanted]
    if [element_of(t) for t in types] != own:
        raise unsupported(op, f"'{name}' takes and gives elements of {', '.join(map(str, own))}")
