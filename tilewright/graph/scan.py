"""Scan over time: a recurrence that carries state from one iteration to the next.

    def cell(h, x):
        h = np.tanh(x @ W + h @ U)
        return h, h

    last, hs = scan(cell, h0, xs)

What every iteration makes has an element for each of them, so that a graph still writes every element once. The state
is a Buffer with one element more than there are iterations: iteration t reads it at t and writes it at t + 1.

    for i, j in space("state", each(B), each(64)):
        state[0, i, j] = copy(h0[i, j])
    for t in space("scan", sequential(T)):
        for i, j, k in space("product", each(B), each(64), each(64)):
            product[t, i, j] += mma(state[t, i, k], U[k, j])
        ...
            state[t + 1, i, j] = copy(tanh[t, i, j])

`recurrence.py` makes one kernel of it, whose loop over t carries the state in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.diagnostics import CompileError
from tilewright.graph.affine import Affine, affine
from tilewright.graph.nodes import GLOBAL, Access, Axis, Buffer, Index, Operation, Task, TiledEdge
from tilewright.graph.trace import Recorder
from tilewright.graph.traced import Traced


def scan(fn: Callable[[Any, Any], Any], init: Any, xs: Any) -> tuple[Any, Any]:
    """The last state, and the stacked results, of ``state, y = fn(state, x)`` over the first dimension of ``xs``.

    `init` and `xs` are arrays or tuples of arrays, and so is y, which may be None as well. The state keeps the shapes
    and dtypes that `init` has. Works on numpy arrays and on traced ones. Raises CompileError for extents that differ
    and for a state that changes its shape.
    """
    arrays = (*_leaves(init), *_leaves(xs))
    if not _leaves(xs) or any(getattr(x, "ndim", 0) == 0 for x in _leaves(xs)):
        raise CompileError("scan: xs is no array with a first dimension to go through")
    traced = [x for x in arrays if isinstance(x, Traced)]
    if not traced:
        return _loop(fn, init, xs)
    if len(traced) < len(arrays):
        raise CompileError(
            "scan of traced arrays and others together",
            hint="np.zeros_like(x, shape=...) makes a state of zeros",
        )
    return _traced(traced[0].recorder, fn, init, xs)


def _loop(fn: Callable[[Any, Any], Any], init: Any, xs: Any) -> tuple[Any, Any]:
    state, made = init, list[Any]()
    for t in range(len(_leaves(xs)[0])):
        state, y = fn(state, _like(xs, [x[t] for x in _leaves(xs)]))
        made.append(y)
    if not made or made[0] is None:
        return state, None
    columns = zip(*(_leaves(y) for y in made), strict=True)
    return state, _like(made[0], [np.stack(column) for column in columns])


def _traced(
    recorder: Recorder, fn: Callable[[Any, Any], Any], init: Any, xs: Any
) -> tuple[Any, Any]:
    if recorder.scan is not None:
        raise CompileError("a scan in the body of a scan", hint="carry both states in one scan")
    extent: Affine = _leaves(xs)[0].extents[0]
    for x in _leaves(xs):
        if x.extents[0] != extent:
            raise CompileError(f"scan over arrays of {extent} and {x.extents[0]} elements")
    states = [_state(recorder, x, extent) for x in _leaves(init)]
    time = _axis(recorder)
    task = Task(recorder.fresh("scan"), (Axis(time, extent, "sequential"),))
    recorder.graph.tasks.append(task)
    recorder.scan = task
    try:
        now = [Traced.of(recorder, state, 1) for state in states]
        result = fn(_like(init, now), _like(xs, [_element(x, affine(time)) for x in _leaves(xs)]))
        if not isinstance(result, tuple) or len(result) != 2:
            raise CompileError(f"the body of a scan returns (state, y), not {result!r}")
        _carry(recorder, states, init, result[0], time)
        ys = [_stacked(recorder, y) for y in _leaves(result[1])]
    finally:
        recorder.scan = None
    last = [_element(Traced.of(recorder, state), extent).copied() for state in states]
    whole = [Traced.of(recorder, recorder.graph.buffers[y]) for y in ys]
    return _like(init, last), _like(result[1], whole) if whole else None


def _axis(recorder: Recorder) -> str:
    taken = {*recorder.graph.buffers, *recorder.graph.symbols}
    return next(name for name in ("t", "time", *(f"t{n}" for n in range(99))) if name not in taken)


def _state(recorder: Recorder, init: Traced, extent: Affine) -> Buffer:
    """The Buffer of a state, with its first element written."""
    name = recorder.fresh("state")
    buffer = recorder.graph.add(Buffer(name, GLOBAL, (extent + 1, *init.extents), init.dtype))
    axes = recorder.axes(init.ndim)
    at = Access(name, (Index(Affine()), *(Index(affine(a)) for a in axes)))
    first = Operation("copy", (init.at(axes),), TiledEdge("store", at))
    recorder.task(name, init.extents, first)
    return buffer


def _carry(recorder: Recorder, states: list[Buffer], init: Any, result: Any, time: str) -> None:
    """Writes the next element of every state."""
    made = _leaves(result)
    if len(made) != len(states) or isinstance(result, tuple) != isinstance(init, tuple):
        raise CompileError(f"scan: {len(states)} states begin, and the body returns {len(made)}")
    for state, value in zip(states, made, strict=True):
        if not isinstance(value, Traced) or value.extents != state.shape[1:]:
            shape = f"[{', '.join(map(str, state.shape[1:]))}]"
            got = f"[{', '.join(map(str, getattr(value, 'shape', ())))}]"
            raise CompileError(
                f"scan: a state of shape {shape} becomes {got}",
                rule="the state has one shape for all iterations",
            )
        value = value.astype(state.dtype)
        axes = recorder.axes(value.ndim)
        at = Access(state.name, (Index(affine(time) + 1), *(Index(affine(a)) for a in axes)))
        following = Operation("copy", (value.at(axes),), TiledEdge("store", at))
        recorder.task(f"next_{state.name}", value.extents, following)


def _stacked(recorder: Recorder, y: Any) -> str:
    """The Buffer that has a result of all iterations."""
    if not isinstance(y, Traced):
        raise CompileError(f"the body of a scan returns {y!r}, which is no traced array")
    buffer = recorder.graph.buffers[y.buffer]
    inside = any(isinstance(n, Task) and n.name == buffer.name for n in recorder.scan.nodes)  # pyright: ignore
    return buffer.name if inside and y.is_plain else y.copied().buffer


def _element(x: Traced, at: Affine) -> Traced:
    """An element along the first dimension."""
    values = {"#0": at} | {f"#{i + 1}": affine(f"#{i}") for i in range(x.ndim - 1)}
    return x.viewed(x.extents[1:], values)


def _leaves(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, tuple) else [value]


def _like(value: Any, leaves: list[Any]) -> Any:
    return tuple(leaves) if isinstance(value, tuple) else leaves[0] if leaves else None
