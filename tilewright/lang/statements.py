"""Statements: what each kind of them does to names and ops."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, cast

from tilewright.diagnostics import CompileError
from tilewright.lang import carry
from tilewright.lang.arithmetic import truth
from tilewright.lang.branches import if_at_run_time
from tilewright.lang.calls import as_sequence
from tilewright.lang.context import suggest_name
from tilewright.lang.elements import element as element_of
from tilewright.lang.elements import set_element
from tilewright.lang.expressions import BINARY, decidable, operate
from tilewright.lang.frame import After, Break, Continue, Flow, Frame, Return, expression, statement
from tilewright.lang.liveness import Names, live_at_header
from tilewright.lang.loops import for_at_run_time, no_else, while_at_run_time
from tilewright.lang.program import device_assert
from tilewright.lang.syntax import ATTRIBUTE_ASSIGNMENT, ITEM_ASSIGNMENT, RETURN_IN_LOOP
from tilewright.lang.values import Array, LoopRange, Tile, Value, describe_type

MAX_UNROLLED = 4096
"""A loop of compile time with more iterations is refused: each one is compiled."""


@statement(ast.Expr)
def _expression(frame: Frame, node: ast.Expr, after: After) -> None:
    frame.evaluate(node.value)


@statement(ast.Return)
def _return(frame: Frame, node: ast.Return, after: After) -> Flow:
    value = None if node.value is None else frame.evaluate(node.value)
    if frame.runtime_loops:
        raise frame.lacking(node, *RETURN_IN_LOOP)
    return Return(value, node)


@statement(ast.Break)
def _break(frame: Frame, node: ast.Break, after: After) -> Flow:
    return Break(node)


@statement(ast.Continue)
def _continue(frame: Frame, node: ast.Continue, after: After) -> Flow:
    return Continue(node)


@statement(ast.Pass)
def _pass(frame: Frame, node: ast.Pass, after: After) -> None:
    pass


# Assignments.


@statement(ast.Assign)
def _assignment(frame: Frame, node: ast.Assign, after: After) -> None:
    value = frame.evaluate(node.value)
    for target in node.targets:
        _assign(frame, target, value, node)


@statement(ast.AnnAssign)
def _annotated(frame: Frame, node: ast.AnnAssign, after: After) -> None:
    if node.value is not None:
        _assign(frame, node.target, frame.evaluate(node.value), node)


def _assign(frame: Frame, target: ast.expr, value: Any, node: ast.AST) -> None:
    match target:
        case ast.Name():
            if isinstance(value, (Value, Tile)):
                suggest_name(value.ssa, target.id)
            frame.bind(target.id, value, node)
        case ast.Tuple() | ast.List():
            _unpack(frame, target, value, node)
        case ast.Subscript():
            owner = frame.evaluate(target.value)
            if not isinstance(owner, Array):
                raise frame.lacking(target, *ITEM_ASSIGNMENT)
            with frame.blame(node):
                set_element(owner, frame.evaluate(target.slice), value)
        case ast.Attribute():
            raise frame.lacking(target, *ATTRIBUTE_ASSIGNMENT)
        case _:
            raise frame.refuse(target)


def _unpack(frame: Frame, target: ast.Tuple | ast.List, value: Any, node: ast.AST) -> None:
    if not carry.is_sequence(value):
        hint = None
        if isinstance(value, Value) and value.shape:
            hint = "values are not taken apart; their extents are x.shape"
        raise frame.error(target, f"{describe_type(value)} cannot be unpacked", hint=hint)
    elements = list(cast(tuple[Any, ...], value))
    for at, element in enumerate(target.elts):
        end = at + len(elements) - len(target.elts) + 1
        if isinstance(element, ast.Starred) and at <= end:
            elements[at:end] = [elements[at:end]]
            break
    if len(elements) != len(target.elts):
        raise frame.error(
            target, f"{len(elements)} values are unpacked into {len(target.elts)} names"
        )
    for element, part in zip(target.elts, elements, strict=True):
        _assign(frame, element.value if isinstance(element, ast.Starred) else element, part, node)


@statement(ast.AugAssign)
def _augmented(frame: Frame, node: ast.AugAssign, after: After) -> None:
    if isinstance(node.target, ast.Subscript):
        _augmented_element(frame, node, node.target)
        return
    if not isinstance(node.target, ast.Name):
        raise frame.lacking(node.target, *ATTRIBUTE_ASSIGNMENT)
    name = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
    left, right = frame.evaluate(name), frame.evaluate(node.value)
    if isinstance(left, list):
        left = tuple(cast(list[Any], left))  # += would change the list that others hold
        right = tuple(right) if isinstance(right, list) else right
    _assign(frame, node.target, operate(frame, node, BINARY[type(node.op)], left, right), node)


def _augmented_element(frame: Frame, node: ast.AugAssign, target: ast.Subscript) -> None:
    """Array and index are evaluated once, as in Python; another program's element may change in between."""
    owner = frame.evaluate(target.value)
    if not isinstance(owner, Array):
        raise frame.lacking(target, *ITEM_ASSIGNMENT)
    index = frame.evaluate(target.slice)
    with frame.blame(node):
        old = element_of(owner, index)
    new = operate(frame, node, BINARY[type(node.op)], old, frame.evaluate(node.value))
    with frame.blame(node):
        set_element(owner, index, new)


@statement(ast.Assert)
def _assert(frame: Frame, node: ast.Assert, after: After) -> None:
    condition = frame.evaluate(node.test)
    message = ast.unparse(node.test) if node.msg is None else frame.evaluate(node.msg)
    with frame.blame(node.test):
        if isinstance(condition, (Value, Tile, Array)):
            device_assert(condition, message)  # pyright: ignore[reportArgumentType]
        elif not condition:
            raise CompileError(
                f"assertion failed: {message}",
                hint="its condition is known at compile time, and false",
            )


# Decisions.


@statement(ast.If)
def _if(frame: Frame, node: ast.If, after: After) -> Flow:
    live = after.live()
    condition = frame.evaluate(node.test)
    decidable(frame, node.test, condition)
    if not isinstance(condition, Value):
        chosen = node.body if condition else node.orelse
        return frame.block(chosen, live)
    with frame.blame(node.test):
        decided = truth(condition)
    return if_at_run_time(frame, node, decided, after)


@statement(ast.For)
def _for(frame: Frame, node: ast.For, after: After) -> Flow:
    no_else(frame, node)
    iterable = frame.evaluate(node.iter)
    if isinstance(iterable, LoopRange):
        for_at_run_time(frame, node, iterable, after.live())
        return None
    if not isinstance(iterable, (tuple, list, range)):
        raise frame.error(
            node.iter,
            f"a loop over {describe_type(iterable)}",
            rule="loops run over range(...), or over tuples of compile time, unrolled",
            hint="for i in range(n) counts to a number"
            if isinstance(iterable, int) or (isinstance(iterable, Value) and iterable.is_scalar)
            else "its parts are loaded as tiles of their own; operators and tw.sum, tw.max, .. go over all elements",
        )
    return _unrolled(frame, node, cast(tuple[Any, ...], iterable), after.live())


def _limited(frame: Frame, node: ast.AST, elements: Any) -> Any:
    if len(elements) > MAX_UNROLLED:
        raise frame.error(
            node,
            f"{len(elements)} iterations to unroll, more than {MAX_UNROLLED}",
            hint="use range(...) for a loop at run time",
        )
    return elements


@expression(ast.ListComp)
def _list_comprehension(frame: Frame, node: ast.ListComp) -> list[Any]:
    """Unrolled. Its variables are its own, as in Python."""
    saved, frame.names = frame.names, dict(frame.names)
    try:
        return list(_comprehended(frame, node.elt, node.generators))
    finally:
        frame.names = saved


@expression(ast.GeneratorExp)
def _generator(frame: Frame, node: ast.GeneratorExp) -> tuple[Any, ...]:
    """All that it gives: nothing in a kernel tells when."""
    return tuple(_list_comprehension(frame, cast(ast.ListComp, node)))


def _comprehended(
    frame: Frame, element: ast.expr, generators: list[ast.comprehension]
) -> Iterator[Any]:
    if not generators:
        yield frame.evaluate(element)
        return
    first, *others = generators
    items = as_sequence(frame, first.iter, "a comprehension over", frame.evaluate(first.iter))
    if not isinstance(items, (tuple, list, range)):
        raise frame.error(
            first.iter,
            f"a comprehension over {describe_type(items)}",
            rule="it runs over ranges, tuples and lists of compile time, unrolled",
            hint="range(n) counts to a number" if isinstance(items, int) else None,
        )
    for item in _limited(frame, first.iter, items):
        _assign(frame, first.target, item, first.target)
        for condition in first.ifs:
            chosen = frame.evaluate(condition)
            if isinstance(chosen, (Value, Tile, Array)):
                raise frame.error(
                    condition,
                    f"a comprehension chooses by {describe_type(chosen)}",
                    rule="what it gives is known at compile time, how many too",
                    hint="take all, and choose among the elements: tw.where(mask, a, b)",
                )
            if not chosen:
                break
        else:
            yield from _comprehended(frame, element, others)


def _unrolled(frame: Frame, node: ast.For, elements: Any, live: Names) -> Flow:
    _limited(frame, node.iter, elements)
    live = live_at_header(node, live)
    frame.unrolled_loops += 1
    frame.break_flags.append(None)
    try:
        for element in elements:
            _assign(frame, node.target, element, node.target)
            flow = frame.block(node.body, live)
            if isinstance(flow, Break):
                break
            if isinstance(flow, Return):
                return flow
    finally:
        frame.unrolled_loops -= 1
        frame.break_flags.pop()
    return None


@statement(ast.While)
def _while(frame: Frame, node: ast.While, after: After) -> None:
    no_else(frame, node)
    while_at_run_time(frame, node, after.live())
