"""What products load from places apart, brought together by Tasks of their own: where that pays, kernels before them.

Rows that are gathered, since copies of machines bring those fastest that lie together:

    o[i, j] += mma(x[rows[i], k], w[k, j])     x_rows[i, k] = copy(x[rows[i], k])
                                         ->    o[i, j] += mma(x_rows[i, k], w[k, j])

and elements of which no tile has neighbours, where a machine's table tells what they cost:

    y[b, f, i, j] += mma(w[f, c, r, s], x[b, c, i + r, j + s])      no tile has neighbours of w: s is 0, 1, 2

    w_rows[r, s, f, c] = copy(w[f, c, r, s])
    y[b, f, i, j] += mma(w_rows[r, s, f, c], x[b, c, i + r, j + s])

Requires Tasks of one Operation each, on elements, with extents that are numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.graph.affine import affine
from tilewright.graph.costs import access_bytes, neighbours_along
from tilewright.graph.nest import statement_of
from tilewright.graph.nodes import (
    Access,
    Buffer,
    Gather,
    Index,
    Operand,
    Operation,
    Task,
    TiledEdge,
    TiledGraph,
    unused,
)
from tilewright.graph.tiles import core_of
from tilewright.uarch import Rates


def together_first(graph: TiledGraph, rates: Rates) -> TiledGraph:
    """The graph with what products gather, or take from places apart, as Tasks of their own."""
    made = TiledGraph(graph.name, graph.symbols, dict(graph.buffers), [], graph.results)
    for task in graph.tasks:
        operation = task.nodes[0]
        if isinstance(operation, Operation) and operation.op == "mma":
            inner = _multiplied(task) if access_bytes(rates) else ()
            operands = tuple(_together(made, task, o, inner) for o in operation.operands)
            task = Task(task.name, task.axes, [replace(operation, operands=operands)])
        made.tasks.append(task)
    return made


def _multiplied(task: Task) -> tuple[str, ...]:
    """The axes along which a Task is a product of matrices: rows or columns, and the reduced one last."""
    statement = statement_of(task)
    core = core_of(statement, dict(zip(statement.axes, statement.extents, strict=True)))
    return (core.m, core.n, core.k) if core is not None else ()


def _together(graph: TiledGraph, task: Task, operand: Operand, inner: tuple[str, ...]) -> Operand:
    """A load of what a new Task brings together; the operand as it is where it is, or does not move along single axes.

    `inner`: the axes that tiles have.
    """
    if not isinstance(operand, TiledEdge):
        return operand
    access = operand.access
    along = list(_along(access))
    names = list(dict.fromkeys(n for n in along if n is not None))
    if None in along or len(names) < len(along):
        return operand
    if not any(isinstance(e, Gather) for e in access.entries):
        last = neighbours_along(access, graph.buffers[access.buffer].shape)
        if not inner or any(n in inner for n in last):
            return operand
        names.sort(key=lambda n: inner.index(n) if n in inner else -1)
    axes = {a.name: a for a in task.axes}
    like = graph.buffers[access.buffer]
    name = unused(f"{access.buffer}_rows", graph.buffers, axes)
    graph.add(Buffer(name, like.level, tuple(axes[n].extent for n in names), like.dtype))
    at = Access(name, tuple(Index(affine(n)) for n in names))
    copy = Operation("copy", (operand,), TiledEdge("store", at))
    graph.tasks.append(Task(name, tuple(axes[n] for n in names), [copy]))
    return TiledEdge("load", at)


def _along(access: Access) -> Iterator[str | None]:
    """The axes that an access moves along, dimension after dimension; None for one that is no axis alone."""
    for entry in access.entries:
        if isinstance(entry, Gather):
            yield from _along(entry.index)
        elif not isinstance(entry, Index) or entry.at.number is None:
            yield entry.at.name if isinstance(entry, Index) else None
