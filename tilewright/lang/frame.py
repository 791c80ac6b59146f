"""The state of one function while it is being compiled: names, source, how it was called."""

from __future__ import annotations

import ast
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from types import CodeType
from typing import Any

from xdsl.dialects.builtin import LocationAttr

from tilewright.diagnostics import CompileError, Location, Note, TilewrightError, did_you_mean
from tilewright.frozen import frozen
from tilewright.lang.context import ArgumentError, Emitter
from tilewright.lang.liveness import NONE, Names, live_after_each
from tilewright.lang.source import KernelSource
from tilewright.lang.syntax import BREAK, REFUSED, RETURN_IN_LOOP


@frozen
class Binding:
    """What a name stands for, and the statement that last bound it."""

    value: Any
    node: ast.AST


@frozen
class Unbound:
    """What a name stands for where not every path has bound it: ``why`` completes the error."""

    why: str
    hint: str


# How a list of statements ends, when not by falling off its end.
@frozen
class Return:
    value: Any
    node: ast.AST


@frozen
class Break:
    node: ast.AST


@frozen
class Continue:
    node: ast.AST


@frozen
class End:
    """Behind statements that have been compiled with what follows them."""


Flow = Return | Break | Continue | End | None


@frozen
class After:
    """What follows a statement: the others of its block, and the names that matter behind it and behind them."""

    rest: list[ast.stmt]
    live: Callable[[], Names]
    live_at_end: Names


Evaluate = Callable[["Frame", Any], Any]
Compile = Callable[["Frame", Any, After], Flow]
EXPRESSIONS: dict[type[ast.expr], Evaluate] = {}
"""How each kind of expression is evaluated."""
STATEMENTS: dict[type[ast.stmt], Compile] = {}
"""How each kind of statement is compiled."""


def expression(kind: type[ast.expr]) -> Callable[[Evaluate], Evaluate]:
    """Decorator: the function evaluates expressions of this kind."""

    def register(function: Evaluate) -> Evaluate:
        EXPRESSIONS[kind] = function
        return function

    return register


def statement(*kinds: type[ast.stmt]) -> Callable[[Compile], Compile]:
    """Decorator: the function compiles statements of these kinds, and says how they end."""

    def register(function: Compile) -> Compile:
        STATEMENTS.update(dict.fromkeys(kinds, function))
        return function

    return register


class Frame:
    """One function that is being compiled: its names and places, and the way through its statements."""

    source: KernelSource
    emitter: Emitter
    names: dict[str, Binding]
    stack: tuple[CodeType, ...]
    """Functions that are being inlined, the kernel first."""

    def __init__(
        self,
        source: KernelSource,
        emitter: Emitter,
        arguments: Mapping[str, Any],
        *,
        caller: LocationAttr | None = None,
        stack: tuple[CodeType, ...] = (),
    ):
        self.source = source
        self.emitter = emitter
        self.caller = caller
        self.stack = (*stack, source.function.__code__)
        self.names = {name: Binding(value, source.node) for name, value in arguments.items()}
        self.outer_names: list[dict[str, Binding]] = []
        """The names around each branch or loop that is being compiled, outermost first."""
        self.runtime_loops = 0
        """How many loops of run time enclose the current statement, in this function."""
        self.unrolled_loops = 0
        self.break_flags: list[str | None] = []
        """For every enclosing loop, innermost last: the name that says whether it is going on."""

    # Names.

    def bind(self, name: str, value: Any, node: ast.AST) -> None:
        self.names[name] = Binding(value, node)

    def lookup(self, node: ast.Name) -> Any:
        name = node.id
        binding = self.names.get(name)
        if binding is not None:
            if isinstance(binding.value, Unbound):
                raise self.error(node, f"{name} {binding.value.why}", hint=binding.value.hint)
            return binding.value
        if self.source.hides(name):
            raise self.error(
                node,
                f"{name} is read before the function binds it",
                rule="a name that a function binds anywhere is its own throughout, as in Python",
                hint=f"a kernel cannot change variables outside of it: give its own variable another name than {name}",
            )
        try:
            return self.source.captured(name)
        except KeyError:
            pass
        import builtins

        known = [*self.names, *self.source.function.__globals__, *vars(builtins)]
        hint = did_you_mean(name, known, cutoff=0.7)
        raise self.error(node, f"the name {name} is not defined", hint=hint)

    @contextmanager
    def scratch_names(self) -> Generator[None]:
        """Bindings made inside are forgotten at the end: a branch, or a trial."""
        saved = self.names
        self.names = dict(saved)
        self.outer_names.append(saved)
        try:
            yield
        finally:
            self.names = self.outer_names.pop()

    # Places and errors.

    def location(self, node: ast.AST) -> Location:
        return self.source.location(node)

    def at(self, node: ast.AST) -> None:
        """From here on ops are located at ``node``."""
        self.emitter.location = self.source.mlir_location(node, self.caller)

    def error(
        self, node: ast.AST, message: str, *, rule: str | None = None, hint: str | None = None
    ) -> CompileError:
        return CompileError(message, location=self.location(node), rule=rule, hint=hint)

    def refuse(self, node: ast.AST) -> CompileError:
        """The error for a construct that the language lacks."""
        what, hint = REFUSED.get(
            type(node), (f"this construct ({type(node).__name__})", "write it another way")
        )
        return self.lacking(node, what, hint)

    def lacking(self, node: ast.AST, what: str, hint: str) -> CompileError:
        return self.error(
            node,
            f"{what} is not supported in a kernel",
            rule="docs/language.md lists what of Python a kernel may use",
            hint=hint,
        )

    @contextmanager
    def blame(self, node: ast.AST, call: ast.Call | None = None) -> Generator[None]:
        """Places the errors that occur inside at ``node``, or at the argument that they name."""
        self.at(node)
        try:
            yield
        except ArgumentError as error:
            if error.location is None and call is not None:
                error.at(self.location(_argument(call, error.argument, node)))
            error.at(self.location(node))
            raise
        except TilewrightError as error:
            error.at(self.location(node))
            raise
        except RecursionError:
            raise self.error(
                node,
                "the kernel is nested too deeply to be compiled",
                hint="give parts of it names, or write a loop",
            ) from None

    def note_caller(self, error: TilewrightError, node: ast.AST, name: str) -> None:
        """Adds the place from which a helper was called to an error inside of it."""
        note = Note(f"{name} is called here", self.location(node))
        if note not in error.notes:  # one that calls itself is called from there again and again
            error.with_note(note)

    # Statements and expressions.

    def run(self) -> Any:
        """Compiles the whole function; gives what it returns."""
        flow = self.block(self.source.body, NONE)
        return flow.value if isinstance(flow, Return) else None

    def block(self, body: list[ast.stmt], live: Names) -> Flow:
        """Compiles statements; ``live`` names matter after them. Gives how they end."""
        known: list[Names] = []

        def live_after(i: int) -> Names:
            if not known:
                known.extend(live_after_each(body, live))
            return known[i]

        for i, node in enumerate(body):
            self.at(node)
            handler = STATEMENTS.get(type(node))
            if handler is None:
                raise self.refuse(node)
            flow = handler(self, node, After(body[i + 1 :], partial(live_after, i), live))
            if flow is not None:
                return None if isinstance(flow, End) else flow
        return None

    def settled(self, flow: Flow) -> Flow:
        """How statements end, seen from outside of a branch or body: a break clears its flag."""
        if isinstance(flow, Break):
            flag = self.break_flags[-1] if self.break_flags else None
            if flag is None:
                raise self.lacking(flow.node, *BREAK)
            self.bind(flag, False, flow.node)
            return None
        if isinstance(flow, Return) and (self.runtime_loops or self.unrolled_loops):
            raise self.lacking(flow.node, *RETURN_IN_LOOP)
        return flow

    def evaluate(self, node: ast.expr) -> Any:
        """What an expression stands for: a value of run time, or any object of compile time."""
        handler = EXPRESSIONS.get(type(node))
        if handler is None:
            raise self.refuse(node)
        return handler(self, node)

    def python(self, node: ast.AST, compute: Callable[[], Any]) -> Any:
        """The result of ordinary Python; its exceptions become errors at ``node``."""
        self.at(node)
        try:
            return compute()
        except CompileError as error:
            error.at(self.location(node))
            raise
        except Exception as error:
            nothing = isinstance(error, TypeError) and "NoneType" in str(error)
            hint = "a function without return gives None" if nothing else None
            raise self.error(node, f"{type(error).__name__}: {error}", hint=hint) from None


def _argument(call: ast.Call, name: str, default: ast.AST) -> ast.AST:
    """The expression that was given for a parameter, where the call shows it."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    order: tuple[str, ...] = getattr(call, "parameter_names", ())
    if name in order and order.index(name) < len(call.args):
        return call.args[order.index(name)]
    return default
