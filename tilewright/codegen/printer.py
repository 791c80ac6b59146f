"""The printer: last-stage IR in, LLVM IR text out, one op after the other.

Contract (DESIGN section 2): an op prints as straight-line LLVM; only scf and cf ops make blocks,
and only memory ops of the IR make memory instructions, one to one per register moved.
`tests.codegen.counts` derives both sides, and a test holds them equal. The printer never looks
ahead and never rewrites, so its time is linear in the number of ops.

A handler is a function (printer, op) found by the op's name: in the target's own table first, then
in the common one, which the modules of this package fill with `@prints`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.codegen.atomic_loops import ATOMICS, expand_atomic
from tilewright.codegen.registers import NoRegister, RegisterLayout
from tilewright.codegen.target import Handler, LLVMTarget
from tilewright.codegen.vector_memory import expand_vector_memory
from tilewright.diagnostics import UnsupportedError, location_of
from tilewright.dialects.upstream.vector.access import LOADS, STORES
from tilewright.rules import Rules

if TYPE_CHECKING:
    from tilewright.codegen.cf import Cfg

_PRINTERS = (
    *("arith", "atomics", "casts", "cf", "constants", "floats", "func", "masked", "math"),
    *("memory", "memrefs", "pointers", "printing", "reductions", "scf", "vectors"),
    "instructions.table",
)
prints: Rules[Handler] = Rules(*(f"tilewright.codegen.{name}" for name in _PRINTERS))
"""Decorator, and table: the function prints the ops called so on every target."""

Regs = tuple[str, ...]
Arg = tuple[str, str]
"""(LLVM type, operand text)."""


def attribute(op: Operation, name: str) -> Attribute | None:
    """Property or attribute `name` of `op`, wherever a parser or builder put it."""
    found = op.properties.get(name)
    return found if found is not None else op.attributes.get(name)


def integer_attribute(op: Operation, name: str, default: int | None = None) -> int:
    """Value of an integer attribute; `default` where it is absent."""
    found = attribute(op, name)
    if isinstance(found, IntegerAttr):
        return found.value.data
    if default is None:
        raise unsupported(op, f"lacks its attribute '{name}'")
    return default


def unsupported(op: Operation, what: str, hint: str | None = None) -> UnsupportedError:
    """The error for an op that this target cannot print."""
    return UnsupportedError(f"{op.name}: {what}", location=location_of(op), hint=hint)


def symbol(name: str) -> str:
    """A symbol in LLVM's text: `@name`, quoted where it is more than letters, so that no name is ever text."""
    if _PLAIN.fullmatch(name):
        return f"@{name}"
    quoted = "".join(
        chr(b) if 32 <= b < 127 and chr(b) not in '"\\' else f"\\{b:02X}" for b in name.encode()
    )
    return f'@"{quoted}"'


_PLAIN = re.compile(r"[-\w$.]+", re.ASCII)
_NAMES = re.compile(r'@(?:"[^"]*"|[-\w$.]+)|![0-9]+', re.ASCII)
"""What a line of a module is there for: the symbol that it declares, or the number of its metadata."""


class Printer:
    """Prints one module for one target. Use `emit_module`."""

    def __init__(self, target: LLVMTarget):
        self.target = target
        self.rep = target.representation
        self.handlers: Mapping[str, Handler] = {**prints.by_name, **target.handlers}
        self.globals: list[str] = []
        self.declarations: dict[str, str] = {}
        self.defined: set[str] = set()
        self.addressed: dict[str, str] = {}
        """Symbols whose address is taken, with their address space as text ("" for the generic)."""
        self.externals: set[str] = set()
        """Functions that the module declares without a body."""
        self.functions: list[str] = []
        self.common: dict[str, dict[str, str]] = {}
        """Functions that other modules have, too, by the name of their part, with their declarations."""
        self.metadata: list[str] = []
        self._named_metadata: dict[str, int] = {}
        self._layouts: dict[Attribute, RegisterLayout] = {}
        self._registers: dict[Attribute, Regs] = {}
        self.begin()

    def begin(self) -> None:
        """Begin a function: its text says nothing of others, so that it is the same in every module."""
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.values: dict[SSAValue, Regs] = {}
        self.block = "entry"
        self._words: dict[tuple[str, ...], tuple[str, str]] = {}
        self.loops: list[tuple[int, dict[str, str]]] = []
        """Of the counted loops around, outermost first: how many registers were made before each, and addresses that
        it keeps."""
        self.regions: list[Cfg] = []
        """The regions of several blocks being printed, innermost last."""
        self._names = 0
        self._labels = 0

    # Values ---------------------------------------------------------------------------------------

    def get(self, value: SSAValue) -> Regs:
        """Registers of an SSA value, in the order of its layout."""
        return self.values[value]

    def one(self, value: SSAValue) -> str:
        """The only register of a value."""
        (reg,) = self.values[value]
        return reg

    def set(self, value: SSAValue, regs: Sequence[str]) -> None:
        self.values[value] = tuple(regs)

    def set_results(self, op: Operation, regs: Sequence[str]) -> None:
        """The registers of all results, one after the other."""
        at = 0
        for value in op.results:
            count = len(self.registers(value.type))
            self.set(value, regs[at : at + count])
            at += count
        assert at == len(regs), f"{op.name}: {len(regs)} registers for {at}"

    def layout(self, type: Attribute) -> RegisterLayout:
        """Layout of a scalar or vector type."""
        found = self._layouts.get(type)
        if found is None:
            found = self._layouts[type] = self.rep.layout(type)
        return found

    def registers(self, type: Attribute) -> Regs:
        """Register types of any type."""
        found = self._registers.get(type)
        if found is None:
            found = self._registers[type] = self.rep.registers(type)
        return found

    # Narrow components of wide registers ----------------------------------------------------------

    def split(self, word: str, wide: str, narrow: str, count: int) -> list[str]:
        """The `count` registers of type `narrow` inside `word` of type `wide`, lowest bits first.

        Packed again in the same order they are the same word.
        """
        vector = self.emit(f"bitcast {wide} {word} to <{count} x {narrow}>")
        parts = [
            self.emit(f"extractelement <{count} x {narrow}> {vector}, i32 {i}")
            for i in range(count)
        ]
        self._words[tuple(parts)] = (word, wide)
        return parts

    def word_of(self, parts: Sequence[str], wide: str) -> str | None:
        """The register of type `wide` that was split into these parts; None where there is none."""
        word, type = self._words.get(tuple(parts), (None, ""))
        return word if type == wide else None

    def pack(self, parts: Sequence[str], narrow: str, wide: str) -> str:
        """One register of type `wide` of registers of type `narrow`, lowest bits first."""
        known = self._words.get(tuple(parts))
        if known is not None:
            word, type = known
            return word if type == wide else self.emit(f"bitcast {type} {word} to {wide}")
        count, vector = len(parts), "poison"
        for i, part in enumerate(parts):
            vector = self.emit(
                f"insertelement <{count} x {narrow}> {vector}, {narrow} {part}, i32 {i}"
            )
        return self.emit(f"bitcast <{count} x {narrow}> {vector} to {wide}")

    # Text -----------------------------------------------------------------------------------------

    def fresh(self) -> str:
        """A register name not used before."""
        self._names += 1
        return f"%v{self._names}"

    def emit(self, text: str) -> str:
        """Append `%v = text`; the new register."""
        self._names += 1
        name = f"%v{self._names}"
        self.lines.append(f"  {name} = {text}")
        return name

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    @property
    def names(self) -> int:
        """Registers made so far: of two of a function, the one with the lower number was made first."""
        return self._names

    def reserve(self) -> int:
        """Leave a line to be filled by `fill` once its content is known (a phi)."""
        self.lines.append("")
        return len(self.lines) - 1

    def fill(self, at: int, text: str) -> None:
        self.lines[at] = f"  {text}"

    def kept(self, pointer: str) -> str:
        """A pointer as a register of the outermost loop around that does not make it.

        LLVM's strength reduction looks through addresses to all that they are sums of, and weighs in each loop every
        way to add these up anew. What it cannot look into is one register, as it will be in the end.
        """
        if not self.loops or pointer[:2] != "%v" or self.target.values != "simd":
            return pointer
        number = int(pointer[2:])
        for before, kept in self.loops:
            if number <= before:
                found = kept.get(pointer)
                if found is None:
                    self._names += 1
                    found = kept[pointer] = f"%v{self._names}"
                return found
        return pointer

    def label(self, stem: str) -> str:
        """A block label not used before."""
        self._labels += 1
        return f"{stem}{self._labels}"

    def start(self, label: str) -> None:
        """Begin the block `label`; what follows belongs to it."""
        self.lines.append(f"{label}:")
        self.block = label

    def metadata_node(self, text: str) -> str:
        """Number of the metadata node `!{...}`, made once per text."""
        number = self._named_metadata.get(text)
        if number is None:
            number = self._named_metadata[text] = len(self.metadata)
            self.metadata.append(f"!{number} = {text}")
        return f"!{number}"

    def declare(self, name: str, result: str, parameters: Sequence[str], attrs: str = "") -> None:
        """Declare the external function `name` once."""
        if name not in self.declarations:
            convention = "" if name.startswith("llvm.") else self.target.function_convention
            head = f"declare {convention} {result}" if convention else f"declare {result}"
            self.declarations[name] = f"{head} {symbol(name)}({', '.join(parameters)}){attrs}"

    def call(
        self, result: str, name: str, args: Sequence[Arg], *, flags: str = "", attrs: str = ""
    ) -> str:
        """Call of a C function or LLVM intrinsic, declared on first use; its register ("" for
        void).
        """
        self.declare(name, result, [t for t, _ in args], attrs)
        convention = "" if name.startswith("llvm.") else self.target.function_convention
        head = " ".join(x for x in ("call", flags, convention, result) if x)
        text = f"{head} {symbol(name)}({', '.join(f'{t} {v}' for t, v in args)})"
        if result == "void":
            self.line(text)
            return ""
        return self.emit(text)

    # Ops ------------------------------------------------------------------------------------------

    def op(self, op: Operation) -> None:
        """Print one op."""
        handler = self.handlers.get(op.name)
        if handler is None:
            raise unsupported(
                op,
                f"has no emission for {self.target.name}",
                "lower it to ops of the last stage before emission",
            )
        try:
            handler(self, op)
        except NoRegister as error:
            raise unsupported(op, f"{error} has no register on {self.target.name}") from error

    def block_body(self, block: Block) -> Operation:
        """Print all ops of a block but its terminator, which is returned."""
        handlers = self.handlers
        terminator = block.last_op
        assert terminator is not None, "a block of the last stage ends with a terminator"
        op = block.first_op
        while op is not terminator:
            assert op is not None
            handler = handlers.get(op.name)
            if handler is None:
                self.op(op)
            else:
                try:
                    handler(self, op)
                except NoRegister as error:
                    raise unsupported(
                        op, f"{error} has no register on {self.target.name}"
                    ) from error
            op = op.next_op
        return terminator

    def inline_region(
        self, region: Region, arguments: Sequence[Regs]
    ) -> tuple[Operation, list[Regs]]:
        """Print a single-block region in place; its terminator and the registers that it yields."""
        block = region.block
        for arg, regs in zip(block.args, arguments, strict=True):
            self.values[arg] = regs
        terminator = self.block_body(block)
        return terminator, [self.values[v] for v in terminator.operands]

    # Module ---------------------------------------------------------------------------------------

    def text(self, functions: Sequence[str] | None = None) -> str:
        """The module's text; with these functions alone, and what they name, where they are given."""
        target = self.target
        attributes = [target.function_attributes]
        if target.cpu:
            attributes.append(f'"target-cpu"="{target.cpu}"')
        if target.features:
            attributes.append(f'"target-features"="{target.feature_string()}"')
        head = [*self.globals, *(t for n, t in self.declarations.items() if n not in self.defined)]
        unknown = self.addressed.keys() - self.defined - self.declarations.keys()
        for n in sorted(unknown):
            space = self.addressed[n]
            kind = f"{space}global [0 x i8], align 16" if space else "global i8"
            head.append(f"{symbol(n)} = external {kind}")
        metadata = self.metadata
        if functions is not None:
            used = {*_NAMES.findall("".join(functions))}
            others = (group.items() for group in self.common.values())
            head += [t for f, t in chain(*others) if f not in functions]
            head, metadata = (
                [t for t in each if not used.isdisjoint(_NAMES.findall(t)[:1])]
                for each in (head, metadata)
            )
        tail = ["", f"attributes #0 = {{ {' '.join(a for a in attributes if a)} }}", *metadata]
        lines = [
            f'target triple = "{target.triple}"',
            "",
            *head,
            "",
            *(self.functions if functions is None else functions),
        ]
        return "\n".join([*lines, *tail, ""])


def emit_module(module: ModuleOp, target: LLVMTarget) -> str:
    """LLVM IR text of a last-stage module."""
    return emit_parts(module, target)[0]


def emit_parts(
    module: ModuleOp, target: LLVMTarget, printer: Printer | None = None
) -> tuple[str, list[str]]:
    """LLVM IR text of a last-stage module; and the same in parts: functions that other modules have, too
    (`mach.common`), then the rest. `printer`: what has printed some of its functions (`emit_early`).

    Requires verified last-stage IR: func.func, scf, cf, arith, math, vector, index, memref and mach
    ops (and gpu ids and barriers on GPU targets). Atomics that the target lacks become loops in
    `module`, vectors in memrefs rows at addresses. Raises UnsupportedError naming the op for anything else.
    """
    printer = Printer(target) if printer is None else printer
    names = {op: attribute(op, "sym_name") for op in module.body.block.ops}
    for op, name in names.items():
        if op.name == "func.func" and op.regions[0].first_block is None:
            assert isinstance(name, StringAttr)
            printer.externals.add(name.data)
    printed = {*printer.defined}
    left = [op for op, n in names.items() if not isinstance(n, StringAttr) or n.data not in printed]
    for op in left:
        _expand_memory(op, target)
    for op in left:
        printer.op(op)
    common = [*printer.common.values()]
    own = [f for f in printer.functions if not any(f in group for group in common)]
    text = printer.text()
    return text, [*map(printer.text, map(list, common)), printer.text(own)] if common else [text]


def emit_early(part: Sequence[Operation], printer: Printer) -> str:
    """Prints functions of a module that is still being made; the text of the part that they are."""
    for function in part:
        _expand_memory(function, printer.target)
        printer.op(function)
    return printer.text(printer.functions[-len(part) :])


def _expand_memory(top: Operation, target: LLVMTarget) -> None:
    for op in list(top.walk()):
        if op.name in LOADS or op.name in STORES:
            expand_vector_memory(op, target)
        elif type(op) in ATOMICS:
            expand_atomic(op, target)
