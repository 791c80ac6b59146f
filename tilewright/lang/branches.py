"""``if`` at run time: both branches are compiled, and what they bind differently is merged.

Each branch is first written into a block of its own. What must cross its border (see
`tilewright.lang.liveness`) then decides the types of the scf.if.
"""

from __future__ import annotations

import ast
from typing import Any

from xdsl.ir import Block, SSAValue

from tilewright.diagnostics import Note
from tilewright.lang import carry
from tilewright.lang.carry import Leaf, Mismatch
from tilewright.lang.frame import After, Binding, End, Flow, Frame, Return, Unbound
from tilewright.lang.liveness import binds, leaves
from tilewright.lang.values import Value, describe_type


def if_at_run_time(frame: Frame, node: ast.If, condition: Value, after: After) -> Flow:
    """Compiles an ``if``; gives how it ends.

    When a branch may leave (return, continue), what follows the ``if`` belongs to the branches that do not: it is
    compiled into them, and what matters behind them is what matters behind it.
    """
    leaving = leaves(node.body) or leaves(node.orelse)
    rest, live = (after.rest, after.live_at_end) if leaving else ([], after.live())
    tails = (node.body + rest, node.orelse + rest)
    blocks = (Block(), Block())
    flows: list[Flow] = []
    scopes: list[dict[str, Binding]] = []
    for block, body in zip(blocks, tails, strict=True):
        with frame.scratch_names(), frame.emitter.inside(block):
            flow = frame.settled(frame.block(body, live))
            flows.append(flow)
            scopes.append(frame.names)
    frame.at(node)
    values: list[tuple[str | None, Any, Any]] = []
    if any(isinstance(flow, Return) for flow in flows):
        a, b = (flow.value if isinstance(flow, Return) else None for flow in flows)
        values.append((None, a, b))
    else:
        flags = frozenset(flag for flag in frame.break_flags[-1:] if flag)
        for name in sorted(binds(tails[0]) | binds(tails[1]) | flags):
            first, second = (scope.get(name) for scope in scopes)
            if name in live and first is not None and second is not None:
                values.append((name, first.value, second.value))
            elif first is not None or second is not None:
                missing = _one_sided(node, name, first or second)
                frame.names[name] = Binding(missing, node)
    results = _merge(frame, node, condition, blocks, values, scopes)
    if any(isinstance(flow, Return) for flow in flows):
        return Return(results[0], node)
    for (name, _, _), value in zip(values, results, strict=True):
        assert name is not None
        frame.bind(name, value, node)
    return End() if leaving else None


def _one_sided(node: ast.AST, name: str, binding: Binding | None) -> Unbound:
    line = getattr(binding.node if binding else node, "lineno", 0)
    return Unbound(
        f"is bound in one branch only (line {line})",
        f"give {name} a value before the if, or in both branches",
    )


def _merge(
    frame: Frame,
    node: ast.If,
    condition: Value,
    blocks: tuple[Block, Block],
    values: list[tuple[str | None, Any, Any]],
    scopes: list[dict[str, Binding]],
) -> list[Any]:
    """Ends both branches and makes the scf.if; gives each merged structure."""
    plans: list[tuple[Any, list[Leaf | None]]] = []
    yields: tuple[list[SSAValue], list[SSAValue]] = ([], [])
    for name, a, b in values:
        if (unbound := next((x for x in (a, b) if isinstance(x, Unbound)), None)) is not None:
            a = b = unbound
        plan = _meet(frame, node, name, a, b, scopes)
        plans.append((a, plan))
        for block, side, given in zip(blocks, (a, b), yields, strict=True):
            with frame.emitter.inside(block), frame.blame(node):
                given += carry.handed(side, plan)
    results = iter(frame.emitter.branch(condition.ssa, blocks, yields))
    return [carry.taken(structure, plan, results) for structure, plan in plans]


def _meet(
    frame: Frame, node: ast.If, name: str | None, a: Any, b: Any, scopes: list[dict[str, Binding]]
) -> list[Leaf | None]:
    """A leaf type for each part in which the two branches differ."""
    what = name or "the returned value"
    try:
        return carry.met(a, b)
    except Mismatch as mismatch:
        error = frame.error(
            node,
            f"{what} differs between the branches: {mismatch}",
            rule="a name that is used after an if has one type, whichever branch ran",
            hint=_agreement_hint(a, b, name),
        )
        for scope in scopes if name else []:
            binding = scope.get(name or "")
            if binding is not None:
                text = f"{name} is {describe_type(binding.value)} here"
                error.with_note(Note(text, frame.location(binding.node)))
        raise error from None


def _agreement_hint(a: Any, b: Any, name: str | None) -> str:
    shapes = [getattr(side, "shape", ()) for side in (a, b)]
    if name is None and (a is None or b is None):
        return "return a value from both branches, or from neither"
    other = "or use another name" if name else "or return them one by one"
    if isinstance(a, Value) and isinstance(b, Value) and shapes[0] == shapes[1]:
        return f"convert one of them with .to(dtype), {other}"
    whole = max(shapes, key=len)
    if whole and not all(shapes):  # a number or None beside a tile's value
        shape = ", ".join(map(str, whole))
        return f"make a value of the same shape with tw.full(({shape}), x, dtype), {other}"
    return f"give both the same type and shape, {other}"
