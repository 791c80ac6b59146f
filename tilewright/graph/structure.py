"""Tasks apart from their names: what has the same structure is planned and compiled once, as layers of a model are.

A Task's :class:`Pattern` says what it does, axes and Buffers numbered as they are met. A group of Tasks has the key of
:func:`structure`, in which a Buffer has one number for all of them. Two groups of one key have the same nest but for
names, and so the same tilings and costs.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from hashlib import sha256

from tilewright.frozen import frozen
from tilewright.graph.affine import Affine
from tilewright.graph.nodes import Access, Entry, Gather, Index, Slice, Task, TiledEdge, TiledGraph


@frozen
class Pattern:
    """What a Task does, as far as names do not matter, and the Buffers that it does it to, numbered in this order."""

    meaning: Hashable
    buffers: tuple[str, ...]


def pattern_of(task: Task) -> Pattern:
    """The Pattern of a Task on elements."""
    axes = {a.name: i for i, a in enumerate(task.axes)}
    buffers: dict[str, int] = {}

    def number(at: Affine) -> Hashable:
        return tuple(sorted([(axes.get(n, n), c) for n, c in at.terms], key=str)), at.constant

    def entry(e: Entry) -> Hashable:
        if isinstance(e, Index):
            return number(e.at)
        return (number(e.start), number(e.size)) if isinstance(e, Slice) else access(e.index)

    def access(a: Access) -> Hashable:
        entries = [(isinstance(e, Gather), entry(e)) for e in a.entries]
        return buffers.setdefault(a.buffer, len(buffers)), *entries

    def operand(o: object) -> Hashable:
        if isinstance(o, TiledEdge):
            return "edge", access(o.access)
        return ("counted", number(o)) if isinstance(o, Affine) else ("number", repr(o))

    meaning = tuple(
        (o.op, *map(operand, o.operands), operand(o.store), o.store.combine,
         *((k, operand(v)) for k, v in o.attributes))
        for o in task.operations()
    )  # fmt: skip
    return Pattern((tuple(a.extent for a in task.axes), meaning), tuple(buffers))


def structure(graph: TiledGraph, patterns: Iterable[Pattern], outputs: Sequence[str]) -> Hashable:
    """A key for a group of Tasks in order, `outputs` of which are read outside: all that its kernel depends on."""
    buffers: dict[str, int] = {}
    facts: list[Hashable] = []

    def number(name: str) -> int:
        if name not in buffers:
            buffers[name] = len(buffers)
            b = graph.buffers[name]
            place = len(facts)
            facts.append(None)
            origin = None if b.alias_of is None else number(b.alias_of)
            facts[place] = (b.shape, b.start, b.level, b.dtype.name, b.zeroed, origin)
        return buffers[name]

    tasks = tuple((s.meaning, *map(number, s.buffers)) for s in patterns)
    return tasks, tuple(map(number, outputs)), tuple(facts)


@lru_cache(1024)
def unnamed(source: str) -> str:
    """A key for what a text that defines a function says: one for texts that differ in its name and names inside."""
    tree = ast.parse(source)
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names.setdefault(node.name, "")
        elif isinstance(node, ast.arg):
            names.setdefault(node.arg, f"#{len(names)}")
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.setdefault(node.id, f"#{len(names)}")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.name = names[node.name]
        elif isinstance(node, ast.arg):
            node.arg = names[node.arg]
        elif isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
    return sha256(ast.dump(tree).encode()).hexdigest()  # a cache holds many: short
