"""Which names a piece of Python reads before it binds them: what loops and branches must carry."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from functools import lru_cache

from tilewright.frozen import frozen

Names = frozenset[str]
NONE: Names = frozenset()
KEPT = 4096
"""Statements whose answers are kept: a kernel is built for many sizes, from the same statements."""


@frozen
class _Loop:
    """What is live where ``continue`` and ``break`` lead."""

    header: Names
    after: Names


def reads(node: ast.AST | None) -> Names:
    """Every name that an expression loads."""
    if node is None:
        return NONE
    return frozenset(
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    )


def binds(nodes: Iterable[ast.AST]) -> Names:
    """Every name that some statement binds, however deep; the variables of a comprehension are its own."""
    return NONE.union(*map(_bound, nodes))


@lru_cache(KEPT)
def _bound(node: ast.AST) -> Names:
    walked = [*ast.walk(node)]
    inner = [n for c in walked if isinstance(c, ast.comprehension) for n in ast.walk(c.target)]
    return frozenset(
        n.id
        for n in walked
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n not in inner
    )


def live_before(body: Sequence[ast.stmt], live: Names, loop: _Loop | None = None) -> Names:
    """The names whose value before ``body`` matters, given those that matter after it."""
    for statement in reversed(body):
        live = _before(statement, live, loop)
    return live


def live_after_each(body: Sequence[ast.stmt], live: Names) -> list[Names]:
    """For every statement of ``body``, the names that matter after it; in one pass."""
    found: list[Names] = []
    for statement in reversed(body):
        found.append(live)
        live = _before(statement, live, None)
    return found[::-1]


def live_at_header(loop: ast.For | ast.While, live: Names) -> Names:
    """The names that matter at the start of every iteration; ``live`` matter after the loop."""
    own = binds([loop.target]) if isinstance(loop, ast.For) else NONE
    always = live | (reads(loop.test) if isinstance(loop, ast.While) else NONE)
    header = always
    while True:
        around = _Loop(header, live)
        wider = always | (live_before(loop.body, header, around) - own)
        if wider == header:
            return header
        header = wider


@lru_cache(KEPT)
def _before(node: ast.stmt, live: Names, loop: _Loop | None) -> Names:
    match node:
        case ast.Assign():
            targets = [n for t in node.targets for n in _plain_targets(t)]
            return (live - frozenset(targets)) | reads(node.value) | _target_reads(node.targets)
        case ast.AnnAssign():
            if node.value is None:
                return live
            targets = _plain_targets(node.target)
            return (live - frozenset(targets)) | reads(node.value) | _target_reads([node.target])
        case ast.AugAssign():
            own = frozenset(n.id for n in ast.walk(node.target) if isinstance(n, ast.Name))
            return live | own | reads(node.value)
        case ast.If():
            branches = live_before(node.body, live, loop) | live_before(node.orelse, live, loop)
            return reads(node.test) | branches
        case ast.For():
            return reads(node.iter) | live_at_header(node, live)
        case ast.While():
            return live_at_header(node, live)
        case ast.Return():
            return reads(node.value)
        case ast.Break():
            return loop.after if loop else live
        case ast.Continue():
            return loop.header if loop else live
        case _:
            return live | reads(node)


def _plain_targets(target: ast.expr) -> list[str]:
    """Names that an assignment target rebinds as a whole."""
    if isinstance(target, ast.Name):
        return [target.id]
    if isinstance(target, (ast.Tuple, ast.List)):
        return [name for element in target.elts for name in _plain_targets(element)]
    return []


def _target_reads(targets: Iterable[ast.expr]) -> Names:
    """Names that a target such as ``x[i]`` reads."""
    return frozenset(name for target in targets for name in reads(target))


def leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether ``body`` may leave through return, break or continue of an enclosing construct."""
    return any(_leaves(statement, inner_loop=False) for statement in body)


def breaks(body: Sequence[ast.stmt]) -> bool:
    """Whether a loop with this body may end through a ``break`` of its own."""
    return any(
        isinstance(node, ast.Break)
        or (isinstance(node, ast.If) and breaks(node.body + node.orelse))
        for node in body
    )


def _leaves(node: ast.stmt, *, inner_loop: bool) -> bool:
    match node:
        case ast.Return():
            return True
        case ast.Break() | ast.Continue():
            return not inner_loop
        case ast.If():
            return any(_leaves(s, inner_loop=inner_loop) for s in (*node.body, *node.orelse))
        case ast.For() | ast.While():
            return any(_leaves(s, inner_loop=True) for s in node.body)
        case _:
            return False
