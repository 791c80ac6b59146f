"""A graph that can be called: symbols are bound to the arguments' extents, kernels compiled when first needed.

A schedule is made for every set of extents; texts that are equal but for names share one compiled kernel, so that a new
length of a sequence, or one more layer, usually compiles nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from tilewright.arguments import ArraySpec, contiguous_strides
from tilewright.diagnostics import LaunchError, UnsupportedError
from tilewright.frozen import record
from tilewright.graph.fuse import Schedule
from tilewright.graph.generate import generate
from tilewright.graph.kernel_text import KernelText, View
from tilewright.graph.nodes import Buffer, TiledGraph
from tilewright.graph.replay import Launch, Replay
from tilewright.graph.sections import schedule
from tilewright.lang.annotations import auto
from tilewright.runtime.arrays import aligned, describe, torch_type
from tilewright.targets.base import CompileOptions, get_target

PLANS = 256
"""Sets of extents of which a graph keeps what runs; of more, those that were used last."""

REPLAYS = 4
"""Calls on arrays of other looks of which a graph keeps the launches."""

KEPT_BYTES = 64 << 20
"""What lies between a graph's kernels keeps its memory from one call to the next, up to this much for each of its
REPLAYS."""


@record
class Plan:
    """What runs for one set of extents."""

    schedule: Schedule
    kernels: list[KernelText]


class CompiledGraph:
    """What :meth:`TiledGraph.compile` gives: a function of arrays."""

    def __init__(self, graph: TiledGraph, options: Mapping[str, Any], fuse: bool = True):
        self.graph = graph
        self._options = dict(options)
        self._fuse = fuse
        self._planned = lru_cache(PLANS)(self._made)
        self._replays: tuple[tuple[TiledGraph, Replay], ...] = ()

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """The outputs for these inputs: numpy arrays, torch tensors, or DLPack objects, all of one kind.

        `out`: the array, or tuple of arrays, to fill. Raises LaunchError for what does not fit the graph.
        """
        given = [_array(a) for a in arrays]
        if out is None:
            for graph, replay in self._replays:
                if (memory := replay(given)) is not None:
                    return _results(graph, memory)
        sizes = self._bind(given)
        plan = self.plan(**sizes)
        graph = plan.schedule.graph
        memory = {b.name: a for b, a in zip(graph.inputs, given, strict=True)}
        wanted: list[Any] | None = None
        if out is not None:
            wanted = list(out) if isinstance(out, tuple) else [out]
        if wanted is not None and len(wanted) != len(graph.results):
            raise LaunchError(f"out has {len(wanted)} arrays, {graph.name} {len(graph.results)}")
        for buffer, array in zip(graph.outputs, wanted or [], strict=False):
            _fits(array, buffer)
            memory[buffer.name] = array
        made: dict[str, tuple[Callable[[], Any], Any]] = {}
        for buffer in graph.buffers.values():
            if buffer.level != "global" or buffer.alias_of is not None:
                continue
            if buffer.name not in memory:
                make = _maker(buffer, given)
                memory[buffer.name] = make()
                made[buffer.name] = make, memory[buffer.name]
            elif buffer.zeroed:
                memory[buffer.name][...] = 0
        launches: list[tuple[Launch, list[str]]] = []
        for text in plan.kernels:
            kernel = text.kernel().options(**self._options) if self._options else text.kernel()
            views = [_viewed(_found(graph, memory, v.buffer), v) for v in text.views.values()]
            if all(text.grid):
                _tiled(text, lambda grid, left: kernel[grid](*views, **left))  # noqa: B023
                where = [graph.memory(v.buffer) for v in text.views.values()]
                launches.append(((kernel.launcher, text.grid, tuple(views)), where))
        if out is None and not any(text.tiled for text in plan.kernels):
            with suppress(ValueError):
                replay = Replay([b.name for b in graph.inputs], given, made, _kept(graph), launches)
                self._replays = ((graph, replay), *self._replays[: REPLAYS - 1])
        return _results(graph, memory)

    def sizes(self, *arrays: Any) -> dict[str, int]:
        """The values of the symbols for these arrays. Raises LaunchError for arrays that do not fit the graph."""
        return self._bind([_array(a) for a in arrays])

    def plan(self, **sizes: int) -> Plan:
        """Schedule and kernels for these values of the symbols."""
        missing = [s for s in self.graph.symbols if s not in sizes]
        if missing:
            raise LaunchError(f"{self.graph.name}: {', '.join(missing)} has no value")
        return self._planned(tuple(sorted(sizes.items())))

    def _made(self, sizes: tuple[tuple[str, int], ...]) -> Plan:
        made = self._scheduled(dict(sizes))
        texts = [generate(made.graph, task) for task in made.graph.tasks]
        for text in texts:
            if not self._is_left(text):
                text.tiled.clear()
        return Plan(made, texts)

    def _scheduled(self, sizes: Mapping[str, int]) -> Schedule:
        return schedule(self.graph.bound(sizes), self._options.get("target"), self._fuse)

    def _is_left(self, text: KernelText) -> bool:
        """Are the tiles of a kernel's products left to the target, which knows them better than its rates say?"""
        name = self._options.get("target")
        if name is None:
            return False
        options = CompileOptions(target=name)
        return all(get_target(name).tiles_products(*types, options) for types in text.multiplied)

    def source(self, **sizes: int) -> str:
        """The kernels as text in the tile language, for these values of the symbols."""
        return "\n\n".join(t.source for t in self.plan(**sizes).kernels)

    def ahead(self, target: str, **sizes: int) -> list[Any]:
        """Every kernel planned and compiled for a target that need not be here, for these values of the symbols."""
        there = self
        if self._options.get("target") != target:
            there = CompiledGraph(self.graph, {**self._options, "target": target}, self._fuse)
        plan = there.plan(**sizes)
        graph = plan.schedule.graph
        made: list[Any] = []
        for text in plan.kernels:
            specs = [_spec(graph, graph.buffers[v.buffer], v) for v in text.views.values()]
            kernel = text.kernel()
            made.append(_tiled(text, lambda _, left: kernel.compile(*specs, **left, target=target)))  # noqa: B023
        return made

    def _bind(self, arrays: list[Any]) -> dict[str, int]:
        graph = self.graph
        if len(arrays) != len(graph.inputs):
            names = ", ".join(b.name for b in graph.inputs)
            raise LaunchError(
                f"{graph.name} takes {len(graph.inputs)} arrays ({names}), not {len(arrays)}"
            )
        sizes: dict[str, int] = {}
        for buffer, array in zip(graph.inputs, arrays, strict=True):
            dtype = describe(array if array.ndim else array.reshape(1), buffer.name).dtype
            shape = tuple(array.shape)
            if len(shape) != len(buffer.shape) or dtype is not buffer.dtype:
                raise LaunchError(
                    f"{buffer.name} is {dtype}{list(shape)}, the graph takes {_type(buffer)}"
                )
            for extent, size in zip(buffer.shape, shape, strict=True):
                if extent.name is not None:
                    sizes.setdefault(extent.name, size)
        for buffer, array in zip(graph.inputs, arrays, strict=True):
            for place, (extent, size) in enumerate(zip(buffer.shape, array.shape, strict=True)):
                if set(extent.names) <= set(sizes) and extent.value(sizes) != size:
                    raise LaunchError(
                        f"dimension {place} of {buffer.name} is {size}, and {extent}"
                        + (f" is {extent.value(sizes)}" if extent.names else " is asked for")
                    )
        return sizes


def _tiled(text: KernelText, run: Callable[[Any, Mapping[str, Any]], Any]) -> Any:
    """What `run` gives for a kernel's grid and the constants that are left to the target; without any from then on,
    where it finds nothing legal."""
    if text.tiled:
        try:
            return run(text.counted, dict.fromkeys(text.tiled, auto))
        except UnsupportedError:
            text.tiled.clear()
    return run(text.grid, {})


def _array(value: Any) -> Any:
    if isinstance(value, np.ndarray) or hasattr(value, "new_empty"):
        return value
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    return np.asarray(value)


def _type(buffer: Buffer) -> str:
    return f"{buffer.dtype}[{', '.join(map(str, buffer.shape))}]"


def _fits(array: Any, buffer: Buffer) -> None:
    shape = tuple(e.number for e in buffer.shape)
    if tuple(array.shape) != shape:
        raise LaunchError(f"out has shape {tuple(array.shape)}, the result {shape}")
    dtype = describe(array, "out").dtype
    if dtype is not buffer.dtype:
        raise LaunchError(f"out has elements of {dtype}, the result of {buffer.dtype}")


def _maker(buffer: Buffer, inputs: list[Any]) -> Callable[[], Any]:
    """What makes arrays for a Buffer, of the inputs' kind."""
    shape = tuple(e.number or 0 for e in buffer.shape)
    like = next((a for a in inputs if hasattr(a, "new_empty")), None)
    if like is None:
        return partial(aligned, shape, buffer.dtype.numpy, buffer.zeroed)
    torch = sys.modules["torch"]
    make = torch.zeros if buffer.zeroed else torch.empty
    return partial(make, shape, dtype=torch_type(buffer.dtype), device=like.device)


def _kept(graph: TiledGraph) -> frozenset[str]:
    """Buffers whose arrays the next call may have: no result is part of them, and nothing is expected in them."""
    given = {graph.memory(name) for name in graph.results}
    kept, room = set[str](), KEPT_BYTES
    for b in graph.buffers.values():
        if b.level == "global" and b.role == "local" and b.alias_of is None:
            size = prod(e.number or 0 for e in b.shape) * b.dtype.itemsize
            if not b.zeroed and b.name not in given and size <= room:
                kept.add(b.name)
                room -= size
    return frozenset(kept)


def _found(graph: TiledGraph, memory: Mapping[str, Any], name: str) -> Any:
    """The array of a Buffer: its own, or one of another's memory."""
    buffer = graph.buffers[name]
    if buffer.alias_of is None:
        return memory[name]
    return _shaped(_found(graph, memory, buffer.alias_of), buffer)


def _results(graph: TiledGraph, memory: Mapping[str, Any]) -> Any:
    results = tuple(_found(graph, memory, name) for name in graph.results)
    return results[0] if len(results) == 1 else results


def _shaped(array: Any, buffer: Buffer) -> Any:
    """The memory of an array in the shape of a Buffer, or the part of it that the Buffer is."""
    shape = tuple(e.number or 0 for e in buffer.shape)
    if not buffer.start:
        return array.reshape(shape)
    starts = [s.number or 0 for s in buffer.start]
    return array[tuple(slice(s, s + n) for s, n in zip(starts, shape, strict=True))]


def _viewed(array: Any, view: View) -> Any:
    """An array as a kernel wants it: dimensions in another order, none copied."""
    order = [d for d in view.order if d is not None]
    if order != list(range(len(order))):
        array = array.permute(*order) if hasattr(array, "permute") else array.transpose(order)
    if None in view.order:
        array = array[tuple(None if d is None else slice(None) for d in view.order)]
    return array


def _spec(graph: TiledGraph, buffer: Buffer, view: View) -> ArraySpec:
    shape = [e.number or 0 for e in buffer.shape]
    memory = graph.buffers[buffer.alias_of] if buffer.start and buffer.alias_of else buffer
    strides = contiguous_strides(tuple(e.number or 0 for e in memory.shape))
    order = view.order
    return ArraySpec(
        tuple(1 if d is None else shape[d] for d in order),
        buffer.dtype,
        tuple(1 if d is None else strides[d] for d in order),
    )
