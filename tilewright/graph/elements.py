"""Which elements the stores of a graph write: none twice, of an output all. For graphs whose extents are numbers.

A store writes, along each dimension of its Buffer, runs of elements: one for every position that its access map has
there, as long as its slice. A tile is written whole, whatever the extent of its axis; what reaches past the end of the
Buffer is dropped. The runs of all stores cut the Buffer into boxes, of which each has to be in one store alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.diagnostics import CompileError
from tilewright.frozen import frozen
from tilewright.graph.nodes import (
    GLOBAL,
    Buffer,
    Gather,
    Index,
    Operation,
    Slice,
    Task,
    TiledGraph,
    walk,
)
from tilewright.graph.text import print_operation

POSITIONS = 1 << 16
"""Of a store along a dimension, and boxes of a Buffer: with more, elements are not counted."""

Runs: TypeAlias = NDArray[np.int64]
"""First elements and ends of runs, [n, 2], ascending and apart."""


@frozen
class _Store:
    """A store, and the runs that it writes along each dimension."""

    task: Task
    operation: Operation
    runs: tuple[Runs, ...]
    plain: bool


def check_elements(graph: TiledGraph) -> None:
    """CompileError for an element that is written twice without accumulating, or an output's that is never written.

    What depends on data, on symbols, or on one axis along several dimensions at once is not counted.
    """
    stores: dict[str, list[_Store | None]] = {}
    for around, operation in walk(graph.tasks):
        buffer = graph.buffers[operation.store.access.buffer]
        if buffer.level == GLOBAL:
            found = _store(graph, buffer, operation, around)
            stores.setdefault(buffer.name, []).append(found)
    shared = [graph.memory(n) for n in stores if graph.buffers[n].alias_of is not None]
    for name, found in stores.items():
        known = [s for s in found if s is not None]
        buffer = graph.buffers[name]
        if len(known) == len(found) and graph.memory(name) not in shared and buffer.shape:
            _count(graph, buffer, known)


def _store(
    graph: TiledGraph, buffer: Buffer, operation: Operation, around: Sequence[Task]
) -> _Store | None:
    axes = {axis.name: axis for task in around for axis in task.axes}
    entries = operation.store.access.entries
    shape = [e.number for e in buffer.shape]
    if any(isinstance(e, Gather) for e in entries) or None in shape:
        return None
    trips: dict[str, int] = {}
    for name, axis in axes.items():
        if axis.extent.number is None:
            return None
        trips[name] = max(0, -(-axis.extent.number // axis.step))
    plain = operation.store.combine is None
    if 0 in trips.values():
        return _Store(around[-1], operation, (np.empty((0, 2), np.int64),) * len(shape), plain)
    starts = [
        e.at if isinstance(e, Index) else e.start for e in entries if not isinstance(e, Gather)
    ]
    moved = [n for start in starts for n in start.names]
    runs: list[Runs] = []
    for dimension, (entry, extent) in enumerate(zip(entries, shape, strict=True)):
        start, size = starts[dimension], entry.size.number if isinstance(entry, Slice) else 1
        count = prod(trips.get(n, 0) for n in start.names)
        known = all(n in axes for n in start.names) and count <= POSITIONS
        if not known or size is None or extent is None:
            return None
        if any(moved.count(n) > 1 for n in start.names):
            return None
        at = np.full(1, start.constant, np.int64)
        for name, factor in start.terms:
            steps = np.arange(trips[name], dtype=np.int64) * axes[name].step * factor
            at = (at[:, None] + steps).ravel()
        at.sort()
        again = np.flatnonzero(at[1:] < at[:-1] + size)
        twice = [int(at[i + 1]) for i in again if at[i + 1] < extent]
        if plain and twice:
            names = " and ".join(start.names)
            raise CompileError(
                f"{_where(graph, around[-1], operation)}: iterations of {names} write element {twice[0]} of dimension "
                f"{dimension} of {buffer.name} more than once",
                rule="an element is written once, or accumulated into",
                hint=f"the tile has {size} elements there: no more than the step",
            )
        runs.append(_joined(at, size, extent))
    return _Store(around[-1], operation, tuple(runs), plain)


def _where(graph: TiledGraph, task: Task, operation: Operation) -> str:
    return f"Task {task.name}: {print_operation(graph, operation)}"


def _joined(at: NDArray[np.int64], size: int, extent: int) -> Runs:
    """The runs of so many elements from these places on, inside of the extent."""
    begins, ends = np.clip(at, 0, extent), np.clip(at + size, 0, extent)
    begins, ends = begins[begins < ends], ends[begins < ends]
    apart = np.flatnonzero(begins[1:] > ends[:-1])
    firsts, lasts = np.r_[0, apart + 1], np.r_[apart, len(ends) - 1]
    if not len(begins):
        return np.empty((0, 2), np.int64)
    return np.stack([begins[firsts], ends[lasts]], axis=1)


def _count(graph: TiledGraph, buffer: Buffer, stores: Sequence[_Store]) -> None:
    """Counts the stores in each of the boxes that their runs make."""
    cuts = [
        np.unique(
            np.concatenate([np.array([0, e.number or 0]), *(s.runs[d].ravel() for s in stores)])
        )
        for d, e in enumerate(buffer.shape)
    ]
    boxes = tuple(len(c) - 1 for c in cuts)
    if prod(boxes) > POSITIONS or 0 in boxes:
        return
    plain, written = np.full(boxes, -1), np.zeros(boxes, np.bool_)
    for number, store in enumerate(stores):
        here = np.ones(boxes, np.bool_)
        for d, (cut, runs) in enumerate(zip(cuts, store.runs, strict=True)):
            here &= _inside(cut, runs).reshape([-1 if i == d else 1 for i in range(len(cuts))])
        if store.plain:
            if (again := np.argwhere(here & (plain >= 0))).size:
                other = stores[int(plain[tuple(again[0])])]
                first, second = (_where(graph, s.task, s.operation) for s in (store, other))
                raise CompileError(
                    f"{first}: the store writes element {_element(cuts, again[0])} of {buffer.name}, which {second} "
                    "writes as well",
                    rule="an element is written once, or accumulated into",
                    hint="a tile is written whole: past the end of its axis, too",
                )
            plain[here] = number
        written |= here
    if buffer.role == "output" and not buffer.zeroed and not written.all():
        raise CompileError(
            f"output {buffer.name}: element {_element(cuts, np.argwhere(~written)[0])} is never written",
            rule=f"every one of its {' x '.join(map(str, buffer.shape))} elements is",
        )


def _inside(cuts: NDArray[Any], runs: Runs) -> NDArray[np.bool_]:
    """Which of the pieces between cuts are in a run."""
    if not len(runs):
        return np.zeros(len(cuts) - 1, np.bool_)
    at = np.searchsorted(runs[:, 0], cuts[:-1], side="right") - 1
    return (at >= 0) & (cuts[:-1] < runs[at, 1])


def _element(cuts: Sequence[NDArray[Any]], box: NDArray[Any]) -> str:
    return f"[{', '.join(str(int(c[i])) for c, i in zip(cuts, box, strict=True))}]"
