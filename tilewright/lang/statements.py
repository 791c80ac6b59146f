"""Statements, and the function that compiles a whole body."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from tilewright.diagnostics import CompileError
from tilewright.lang import carry
from tilewright.lang.arithmetic import truth
from tilewright.lang.context import suggest_name
from tilewright.lang.expressions import _BINARY as BINARY  # pyright: ignore[reportPrivateUsage]
from tilewright.lang.frame import Break, Continue, Flow, Return
from tilewright.lang.liveness import NONE, Names, leaves, live_after_each, live_at_header
from tilewright.lang.loops import Loops
from tilewright.lang.program import device_assert
from tilewright.lang.ranges import LoopRange
from tilewright.lang.syntax import ATTRIBUTE_ASSIGNMENT, ITEM_ASSIGNMENT, RETURN_IN_LOOP
from tilewright.lang.values import Array, Tile, Value, describe_type

MAX_UNROLLED = 4096
"""A loop of compile time with more iterations is refused: each one is compiled."""


class Frame(Loops):
    """Compiles one function."""

    def run(self) -> Any:
        flow = self.block(self.source.body, NONE)
        return flow.value if isinstance(flow, Return) else None

    def block(self, body: list[ast.stmt], live: Names) -> Flow:
        """Compiles statements; ``live`` names matter after them. Gives how they end."""
        known: list[Names] = []

        def live_after(i: int) -> Names:
            if not known:
                known.extend(live_after_each(body, live))
            return known[i]

        for i, statement in enumerate(body):
            self.at(statement)
            if isinstance(statement, ast.If):
                flow, done = self._if(statement, body[i + 1 :], live_after(i), live)
                if flow is not None or done:
                    return flow
                continue
            flow = self._statement(statement, partial(live_after, i))
            if flow is not None:
                return flow
        return None

    def _statement(self, node: ast.stmt, live_after: Callable[[], Names]) -> Flow:
        match node:
            case ast.Expr():
                self.evaluate(node.value)
            case ast.Assign():
                value = self.evaluate(node.value)
                for target in node.targets:
                    self._assign(target, value, node)
            case ast.AnnAssign():
                if node.value is not None:
                    self._assign(node.target, self.evaluate(node.value), node)
            case ast.AugAssign():
                self._augmented(node)
            case ast.For():
                return self._for(node, live_after())
            case ast.While():
                return self._while(node, live_after())
            case ast.Return():
                value = None if node.value is None else self.evaluate(node.value)
                if self.runtime_loops:
                    raise self.lacking(node, *RETURN_IN_LOOP)
                return Return(value, node)
            case ast.Break():
                return Break(node)
            case ast.Continue():
                return Continue(node)
            case ast.Assert():
                self._assert(node)
            case ast.Pass():
                pass
            case _:
                raise self.refuse(node)
        return None

    # Assignments.

    def _assign(self, target: ast.expr, value: Any, node: ast.AST) -> None:
        match target:
            case ast.Name():
                if isinstance(value, (Value, Tile)):
                    suggest_name(value.ssa, target.id)
                self.bind(target.id, value, node)
            case ast.Tuple() | ast.List():
                self._unpack(target, value, node)
            case ast.Subscript():
                raise self.lacking(target, *ITEM_ASSIGNMENT)
            case ast.Attribute():
                raise self.lacking(target, *ATTRIBUTE_ASSIGNMENT)
            case _:
                raise self.refuse(target)

    def _unpack(self, target: ast.Tuple | ast.List, value: Any, node: ast.AST) -> None:
        for element in target.elts:
            if isinstance(element, ast.Starred):
                raise self.refuse(element)
        if not carry.is_sequence(value):
            hint = None
            if isinstance(value, Value) and value.shape:
                hint = "values are not taken apart; their extents are x.shape"
            raise self.error(target, f"{describe_type(value)} cannot be unpacked", hint=hint)
        elements = cast(tuple[Any, ...], value)
        if len(elements) != len(target.elts):
            raise self.error(
                target, f"{len(elements)} values are unpacked into {len(target.elts)} names"
            )
        for element, part in zip(target.elts, elements, strict=True):
            self._assign(element, part, node)

    def _augmented(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            raise self.lacking(node.target, *ITEM_ASSIGNMENT)
        name = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        left, right = self.evaluate(name), self.evaluate(node.value)
        if isinstance(left, list):
            left = tuple(cast(list[Any], left))  # += would change the list that others hold
            right = tuple(right) if isinstance(right, list) else right
        self._assign(node.target, self.operate(node, BINARY[type(node.op)], left, right), node)

    def _assert(self, node: ast.Assert) -> None:
        condition = self.evaluate(node.test)
        message = "assertion failed" if node.msg is None else self.evaluate(node.msg)
        with self.blame(node.test):
            if isinstance(condition, (Value, Tile, Array)):
                device_assert(condition, message)  # pyright: ignore[reportArgumentType]
            elif not condition:
                raise CompileError(
                    f"assertion failed: {message}" if node.msg is not None else "assertion failed",
                    hint="its condition is known at compile time, and false",
                )

    # Decisions.

    def _if(
        self, node: ast.If, rest: list[ast.stmt], live_after: Names, live_at_end: Names
    ) -> tuple[Flow, bool]:
        condition = self.evaluate(node.test)
        self.decidable(node.test, condition)
        if not isinstance(condition, Value):
            chosen = node.body if condition else node.orelse
            return self.block(chosen, live_after), False
        with self.blame(node.test):
            decided = truth(condition)
        # Where the branches contain what follows, what matters after them is what matters after it.
        leaving = leaves(node.body) or leaves(node.orelse)
        live = live_at_end if leaving else live_after
        return self._if_at_run_time(node, decided, rest, live)

    def _for(self, node: ast.For, live: Names) -> Flow:
        self._loop_else(node)
        iterable = self.evaluate(node.iter)
        if isinstance(iterable, LoopRange):
            self._for_at_run_time(node, iterable, live)
            return None
        if not isinstance(iterable, (tuple, list, range)):
            raise self.error(
                node.iter,
                f"a loop over {describe_type(iterable)}",
                rule="loops run over range(...), or over tuples of compile time, unrolled",
            )
        return self._unrolled(node, cast(tuple[Any, ...], iterable), live)

    def _unrolled(self, node: ast.For, elements: Any, live: Names) -> Flow:
        if len(elements) > MAX_UNROLLED:
            raise self.error(
                node.iter,
                f"{len(elements)} iterations to unroll, more than {MAX_UNROLLED}",
                hint="use range(...) for a loop at run time",
            )
        live = live_at_header(node, live)
        self.unrolled_loops += 1
        self.break_flags.append(None)
        try:
            for element in elements:
                self._assign(node.target, element, node.target)
                flow = self.block(node.body, live)
                if isinstance(flow, Break):
                    break
                if isinstance(flow, Return):
                    return flow
        finally:
            self.unrolled_loops -= 1
            self.break_flags.pop()
        return None

    def _while(self, node: ast.While, live: Names) -> Flow:
        self._loop_else(node)
        if isinstance(node.test, ast.Constant) and not node.test.value:
            return None
        self._while_at_run_time(node, live)
        return None
