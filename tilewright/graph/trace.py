"""From an expression over arrays to a graph: ``trace(fn, *specs)`` runs `fn` on stand-ins that record what is done.

The function is written for numpy: operators, ufuncs (``np.exp``), ``np.where``, ``@``, reductions by method or
function, transposes, reshapes, ``x[ids]``, ``np.take``, `functions.py`. It still runs on arrays, and is then its
own oracle.

Each operation becomes a Task with one Operation on elements. Views cost nothing: a transposed, sliced, gathered or
windowed array is the same Buffer under another access map. A reshape is another shape of the same memory.

Narrow floats (f16, bf16, f8) are computed with in f32, and rounded where a value goes to memory or into a product;
a product of narrow floats has their dtype, one of 8-bit integers has i32.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from tilewright import dtypes
from tilewright.arguments import check_dtype
from tilewright.diagnostics import CompileError
from tilewright.dtypes import DType
from tilewright.frozen import frozen
from tilewright.graph.affine import Affine, Extent, affine
from tilewright.graph.nodes import (
    GLOBAL,
    Access,
    Axis,
    Buffer,
    Combine,
    Index,
    Operand,
    Operation,
    Task,
    TiledEdge,
    TiledGraph,
    renamed_task,
    substituted,
    unused,
)
from tilewright.graph.traced import Traced

LETTERS = "ijklmnopqrstuvwxyz"


@frozen
class ArrayType:
    """Shape and dtype of an argument of a traced function; extents may be names, bound at launch."""

    shape: tuple[Extent, ...]
    dtype: DType

    def __post_init__(self) -> None:
        check_dtype(self.dtype, "tw.graph.array")


def array(shape: Sequence[Extent], dtype: DType = dtypes.f32) -> ArrayType:
    """The type of an argument: ``array(["M", 64], tw.f16)``. Names are symbols.

    `shape` lists numbers and names; `dtype` is the element type. LaunchError for what is no dtype of the language.
    """
    return ArrayType(tuple(shape), dtype)


def trace(fn: Callable[..., Any], *specs: Any, name: str | None = None) -> TiledGraph:
    """The graph of ``fn`` for arguments like `specs`: :func:`array` types, ``tw.spec``, or arrays.

    `fn` returns an array or a tuple of arrays. `name` is the graph's, else the function's. Raises CompileError for
    what no graph can say, with the function's line.
    """
    parameters: list[str] = []
    for p in inspect.signature(fn).parameters.values():
        if p.kind is p.VAR_POSITIONAL:  # *arrays takes all that are left
            parameters += [f"{p.name}{n}" for n in range(len(specs) - len(parameters))]
        elif p.default is p.empty:
            parameters.append(p.name)
    parameters = parameters[: len(specs)]
    if len(parameters) != len(specs):
        raise CompileError(f"{fn.__name__} takes {len(parameters)} arrays, {len(specs)} are given")
    graph = TiledGraph(name or fn.__name__)
    if not graph.name.isidentifier():
        graph.name = "graph"
    recorder = Recorder(graph)
    arguments = [recorder.input(p, s) for p, s in zip(parameters, specs, strict=True)]
    result = fn(*arguments)
    results = result if isinstance(result, tuple) else (result,)
    graph.results = recorder.outputs(results)
    return graph.validate()


class Recorder:
    """The graph that is being traced, and what adds to it."""

    def __init__(self, graph: TiledGraph):
        self.graph = graph
        self.scan: Task | None = None
        """The Task whose iterations follow each other, while its body is traced (`scan.py`)."""

    def input(self, name: str, spec: Any) -> Traced:
        if isinstance(spec, ArrayType):
            shape, dtype = spec.shape, spec.dtype
        elif isinstance(spec, DType) or not hasattr(spec, "shape"):
            raise CompileError(
                f"the specification of {name} is {spec!r}",
                hint='tw.graph.array(["M", 64], tw.f16), tw.spec((128, 64), tw.f16), or an array',
            )
        else:
            from tilewright.runtime.arrays import describe

            described = describe(spec, name)
            shape, dtype = described.shape, described.dtype
        extents = tuple(affine(e) for e in shape)
        symbols = dict.fromkeys(self.graph.symbols)
        symbols.update((n, None) for e in extents for n in e.names)
        self.graph.symbols = tuple(symbols)
        self.graph.add(Buffer(self.fresh(name), GLOBAL, extents, dtype, "input"))
        return Traced.of(self, self.graph.buffers[name])

    def outputs(self, values: Sequence[Any]) -> tuple[str, ...]:
        """A Buffer of its own for each value; copies are made before any Buffer has another name."""
        made: dict[str, bool] = {}
        for value in values:
            if not isinstance(value, Traced) or value.recorder is not self:
                raise CompileError(f"the function returns {value!r}, which is no traced array")
            buffer = self.graph.buffers[value.buffer]
            plain = value.is_plain and buffer.role == "local" and buffer.alias_of is None
            plain &= buffer.name not in made
            made[buffer.name if plain else value.copied().buffer] = plain
        names: list[str] = []
        for number, (buffer, plain) in enumerate(made.items()):
            name = self.fresh("out" if len(made) == 1 else f"out{number}") if plain else buffer
            self.rename(buffer, name)
            self.graph.buffers[name] = replace(self.graph.buffers[name], role="output")
            names.append(name)
        return tuple(names)

    def rename(self, old: str, new: str) -> None:
        """Gives a Buffer the name of the output that it is."""
        if old == new:
            return
        graph = self.graph

        graph.buffers = {
            new if n == old else n: replace(
                b,
                name=new if n == old else n,
                alias_of=new if b.alias_of == old else b.alias_of,
            )
            for n, b in graph.buffers.items()
        }
        graph.tasks = [renamed_task(task, {old: new}) for task in graph.tasks]

    def fresh(self, base: str) -> str:
        """A name that no Buffer and no symbol has."""
        return unused(base, self.graph.buffers, self.graph.symbols)

    @property
    def around(self) -> tuple[Axis, ...]:
        """The axes of the scan whose body is traced."""
        return self.scan.axes if self.scan is not None else ()

    def axes(self, count: int) -> list[str]:
        """i, j, k, ..., z, i1, j1, ... without the names of inputs and symbols."""
        taken = {b.name for b in self.graph.inputs}.union(self.graph.symbols)
        taken.update(a.name for a in self.around)
        letters = (a + n for n in ("", *map(str, range(1, 99))) for a in LETTERS)
        return list(islice((a for a in letters if a not in taken), count))

    def add(
        self,
        op: str,
        operands: Sequence[Operand],
        extents: Sequence[Affine],
        kept: Sequence[int],
        dtype: DType,
        *,
        combine: Combine | None = None,
        attributes: tuple[tuple[str, Any], ...] = (),
        name: str | None = None,
    ) -> Traced:
        """A Task over axes i, j, ... of ``extents``; its result keeps those numbered ``kept``.

        In the body of a scan, every iteration has a result of its own: the Buffer's first dimension is its axis.
        """
        axes = self.axes(len(extents))
        target = self.fresh(name or op)
        shape = (*(a.extent for a in self.around), *(extents[i] for i in kept))
        self.graph.add(Buffer(target, GLOBAL, shape, dtype))
        at = tuple(
            Index(affine(n)) for n in (*(a.name for a in self.around), *(axes[i] for i in kept))
        )
        self.task(target, extents, Operation(
            op, tuple(operands), TiledEdge("store", Access(target, at), combine), attributes
        ))  # fmt: skip
        return Traced.of(self, self.graph.buffers[target], len(self.around))

    def reshaped(self, name: str, shape: tuple[Affine, ...], *, zeroed: bool) -> Traced:
        """A Buffer that was made in the shape of what is stored there, with its own."""
        buffer = replace(self.graph.buffers[name], shape=shape, zeroed=zeroed)
        self.graph.buffers[name] = buffer
        return Traced.of(self, buffer)

    def join(self, parts: Sequence[Traced], axis: int) -> Traced:
        """Arrays one after the other along a dimension: a Buffer of which each is a part."""
        shape = list(parts[0].extents)
        shape[axis] = sum((x.extents[axis] for x in parts), Affine())
        around = [a.name for a in self.around]
        target, first = self.fresh("joined"), Affine()
        outer = tuple(a.extent for a in self.around)
        buffer = self.graph.add(Buffer(target, GLOBAL, (*outer, *shape), parts[0].dtype))
        for x in parts:
            names = self.axes(x.ndim)
            at = [affine(n) + (first if d == axis else 0) for d, n in enumerate(names)]
            entries = tuple(Index(affine(e)) for e in (*around, *at))
            self.task(target, x.extents, Operation(
                "copy", (x.at(names),), TiledEdge("store", Access(target, entries))
            ))  # fmt: skip
            first = first + x.extents[axis]
        return Traced.of(self, buffer, len(around))

    def task(self, name: str, extents: Sequence[Affine], operation: Operation) -> None:
        """Adds a Task with an Operation over axes i, j, ... of ``extents``."""
        axes = self.axes(len(extents))
        single = {n: Affine() for n, e in zip(axes, extents, strict=True) if e.number == 1}
        space = tuple(Axis(n, e) for n, e in zip(axes, extents, strict=True) if n not in single)
        made = Task(name, space, [substituted(operation, single)])
        (self.graph.tasks if self.scan is None else self.scan.nodes).append(made)


__all__ = ["ArrayType", "Recorder", "array", "trace"]
