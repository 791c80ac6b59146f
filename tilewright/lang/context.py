"""The place where IR is being written: insertion point, source location, numerics of one kernel.

Operators of run-time values and the functions of the tile language write their ops through the
current :class:`Emitter`. There is one per kernel that is being built, kept in a context variable, so
that several threads can compile at the same time.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from xdsl.dialects import arith, func, scf
from xdsl.dialects.builtin import LocationAttr, UnknownLoc
from xdsl.dialects.utils import FastMathFlag
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from tilewright.diagnostics import CompileError
from tilewright.dialects.hints import hint_for

OpT = TypeVar("OpT", bound=Operation)

STRICT = arith.FastMathFlagsAttr("none")
FAST = arith.FastMathFlagsAttr([FastMathFlag.ALLOW_CONTRACT, FastMathFlag.APPROX_FUNC])


class ArgumentError(CompileError):
    """A function of the language refuses one of its arguments.

    ``argument`` is the parameter's name: the front end puts the caret under the expression that the
    user gave for it.
    """

    def __init__(self, argument: str, message: str, **kwargs: Any):
        super().__init__(message, **kwargs)
        self.argument = argument


class OutsideKernelError(CompileError):
    """A function of the tile language was called by ordinary Python."""


def demanded(error: VerifyException, op: str) -> CompileError:
    """What the rules of a dialect say of an op, as the language says it."""
    return CompileError(str(error), rule=f"what {op} demands", hint=hint_for(str(error)))


class Emitter:
    """Writes ops at the end of :attr:`block`, each with the location of the current expression."""

    block: Block
    """Where the next op goes."""
    entry: Block
    """The kernel's first block: what depends on arguments alone is written there, once."""
    location: LocationAttr
    """Location of the expression that is being evaluated."""
    level: str
    """"workgroup" or "subgroup"."""

    def __init__(self, entry: Block, *, fastmath: bool = True, level: str = "workgroup"):
        self.entry = entry
        self.block = entry
        self.location = UnknownLoc()
        self.level = level
        self.fastmath = FAST if fastmath else STRICT
        self._prologue_end: Operation | None = None
        self.constants: dict[Attribute, SSAValue] = {}
        self.flat: dict[SSAValue, SSAValue] = {}
        self.contiguous: set[str] = set()
        """Array parameters that are used flattened: a launch checks that they are contiguous."""
        self.called: dict[Any, tuple[func.FuncOp, Any]] = {}
        """Functions that the kernel calls, and what they return: by helper and types of arguments."""
        self.functions: list[func.FuncOp] = []
        """Those, and what stands for them on machines."""

    def of_function(self, entry: Block) -> Emitter:
        """The emitter for the body of a function that the kernel calls."""
        inner = Emitter(entry, level=self.level)
        inner.fastmath, inner.location = self.fastmath, self.location
        inner.called, inner.functions = self.called, self.functions
        return inner

    def emit(self, op: OpT) -> OpT:
        """Appends ``op`` at the insertion point."""
        op.location = self.location
        self.block.add_op(op)
        return op

    def emit_checked(self, op: OpT) -> OpT:
        """Appends ``op`` after its dialect's own rules have accepted it."""
        try:
            op.verify_()
        except VerifyException as error:
            op.erase(safe_erase=False)
            raise demanded(error, op.name) from None
        return self.emit(op)

    def emit_at_entry(self, op: OpT) -> OpT:
        """Puts ``op`` before everything else but earlier calls of this kind; it sees arguments only."""
        op.location = self.location
        if self._prologue_end is None:
            first = self.entry.first_op
            if first is None:
                self.entry.add_op(op)
            else:
                self.entry.insert_op_before(op, first)
        else:
            self.entry.insert_op_after(op, self._prologue_end)
        self._prologue_end = op
        return op

    def result(self, op: Operation) -> SSAValue:
        """Appends ``op`` and gives its only result."""
        return self.emit(op).results[0]

    def hoisted_product(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """``a * b`` at the head of the kernel; both are known there."""
        return self.emit_at_entry(arith.MuliOp(a, b)).result

    @contextmanager
    def inside(self, block: Block) -> Generator[Block]:
        """Writes into ``block`` for the time being."""
        outer, self.block = self.block, block
        try:
            yield block
        finally:
            self.block = outer

    def branch(
        self, condition: SSAValue, blocks: Sequence[Block], values: Sequence[Sequence[SSAValue]]
    ) -> Sequence[SSAValue]:
        """Ends two blocks, of which the first is for a condition that holds, each with values; those of the one that
        runs."""
        for block, given in zip(blocks, values, strict=True):
            with self.inside(block):
                self.emit(scf.YieldOp(*given))
        then, other = blocks
        ends = not values[1] and other.first_op is other.last_op
        sides = Region(then), None if ends else Region(other)
        return self.emit(scf.IfOp(condition, [v.type for v in values[0]], *sides)).results

    def new_block(self, types: list[Attribute]) -> Block:
        """A block with arguments of these types, located here."""
        block = Block(arg_types=types)
        for argument in block.args:
            argument.location = self.location
        return block


def suggest_name(ssa: SSAValue, name: str) -> None:
    """Calls an SSA value what the kernel calls it, where MLIR can spell that."""
    if name.isascii() and name.isidentifier() and ssa.name_hint is None:
        ssa.name_hint = name


_current: ContextVar[Emitter | None] = ContextVar("tilewright_emitter", default=None)


def emitter(what: str = "this function") -> Emitter:
    """The emitter of the kernel that is being built.

    Raises :class:`OutsideKernelError` when there is none: the caller is ordinary Python.
    """
    current = _current.get()
    if current is None:
        raise OutsideKernelError(
            f"{what} has a meaning inside a kernel only",
            hint="call it from a function decorated with @tw.kernel",
        )
    return current


@contextmanager
def activate(current: Emitter | None) -> Generator[None]:
    """Makes ``current`` the emitter of this thread (None: ordinary Python for the time being)."""
    token = _current.set(current)
    try:
        yield
    finally:
        _current.reset(token)
