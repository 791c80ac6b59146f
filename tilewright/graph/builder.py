"""A builder that reads like pseudocode: nested iteration over arrays of tiles, loads and stores between levels.

    g = Builder("gemm", "M", "N", "K")
    ASS = g.input("A", tw.f16, ["M", "K"]).tiles(TM, TK)               # [M/TM][K/TK][TM, TK]
    BSS = g.input("B", tw.f16, ["K", "N"]).tiles(TK, TN, order=(1, 0))  # [N/TN][K/TK][TK, TN]
    CSS = g.output("C", tw.f16, ["M", "N"]).tiles(TM, TN)              # [M/TM][N/TN][TM, TN]
    for as_, cs in g.block(ASS, CSS):
        for bs, c in g.block(BSS, cs):
            acc = g.zeros(TM, TN)
            for a, b in g.sequential(as_, bs):
                g.mma(g.load_s2r(g.load_g2s(a)), g.load_s2r(g.load_g2s(b)), into=acc)
            g.store_s2g(g.store_r2s(acc), c)
    graph = g.graph()

A loop records its body once. What a shared or register Buffer is on a target, and what has to wait for what, is
decided by the compiler: a tile at either level is a value of the workgroup, and synchronisation is inserted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tilewright import dtypes
from tilewright.diagnostics import CompileError
from tilewright.dtypes import DType
from tilewright.frozen import frozen
from tilewright.graph.affine import Affine, Extent, affine
from tilewright.graph.nodes import (
    GLOBAL,
    REGISTER,
    SHARED,
    Access,
    Axis,
    Buffer,
    Combine,
    Entry,
    Index,
    Mapped,
    Operation,
    Slice,
    Task,
    TiledEdge,
    TiledGraph,
    unused,
)
from tilewright.graph.operations import computing
from tilewright.graph.operations import operation as entry_of


@frozen
class Tile:
    """A tile: a whole Buffer near the workgroup, or a part of a global one."""

    access: Access
    dtype: DType
    shape: tuple[Affine, ...]


@frozen
class Tiles:
    """An array of tiles: ``[M/TM][K/TK][TM, TK]``; iterating takes its first brackets away."""

    buffer: Buffer
    sizes: tuple[int | None, ...]
    """The tile's extent along each dimension of the Buffer; None for a dimension without tile (one index each)."""
    order: tuple[int, ...]
    """The dimensions in the order in which they are iterated over; those that are left."""
    at: tuple[Affine, ...]

    def tile(self) -> Tile:
        """The tile, when every dimension has been iterated over."""
        if self.order:
            raise CompileError(
                f"{self.buffer.name} is an array of tiles still: dimension {self.order[0]} is not iterated over"
            )
        entries: list[Entry] = [
            Index(at) if size is None else Slice(at, affine(size))
            for at, size in zip(self.at, self.sizes, strict=True)
        ]
        shape = tuple(affine(s) for s in self.sizes if s is not None)
        return Tile(Access(self.buffer.name, tuple(entries)), self.buffer.dtype, shape)


@frozen
class Array:
    """A global Buffer that is to be cut into tiles."""

    buffer: Buffer

    def tiles(self, *sizes: int | None, order: Sequence[int] | None = None) -> Tiles:
        """Tiles of these `sizes`, iterated over in the `order` of dimensions (as they stand, by default)."""
        rank = len(self.buffer.shape)
        if len(sizes) != rank:
            raise CompileError(
                f"{self.buffer.name} has {rank} dimensions, {len(sizes)} tile sizes are given"
            )
        taken = tuple(order) if order is not None else tuple(range(rank))
        if sorted(taken) != list(range(rank)):
            raise CompileError(f"order {list(taken)} of the dimensions of {self.buffer.name}")
        return Tiles(self.buffer, sizes, taken, (Affine(),) * rank)


class Builder:
    """Records a graph. `symbols` are extents that are bound at launch."""

    def __init__(self, name: str, *symbols: str):
        self._graph = TiledGraph(name, symbols)
        self._tasks: list[Task] = []
        self._counts: dict[str, int] = {}

    # Buffers.

    def input(self, name: str, dtype: DType, shape: Sequence[Extent]) -> Array:
        """A global array that is read."""
        return self._array(name, dtype, shape, "input")

    def output(self, name: str, dtype: DType, shape: Sequence[Extent]) -> Array:
        """A global array that is written; the graph returns its outputs in the order in which they are declared."""
        self._graph.results = (*self._graph.results, name)
        return self._array(name, dtype, shape, "output")

    def _array(self, name: str, dtype: DType, shape: Sequence[Extent], role: Any) -> Array:
        if name in self._graph.buffers:
            raise CompileError(f"the name {name} is given twice")
        extents = tuple(affine(e) for e in shape)
        return Array(self._graph.add(Buffer(name, GLOBAL, extents, dtype, role)))

    # Iteration.

    def block(self, *arrays: Tiles) -> Iterator[Any]:
        """Iterates over the first dimension of arrays of tiles together, one workgroup each."""
        return self._iterate("block", arrays)

    def sequential(self, *arrays: Tiles) -> Iterator[Any]:
        """Iterates over the first dimension of arrays of tiles together, in a loop."""
        return self._iterate("sequential", arrays)

    def _iterate(self, mapping: Mapped, arrays: tuple[Tiles, ...]) -> Iterator[Any]:
        first = arrays[0]
        extent, step = _leading(first)
        for other in arrays[1:]:
            if _leading(other) != (extent, step):
                raise CompileError(
                    f"iteration over {first.buffer.name} and {other.buffer.name}: {extent} in steps of {step}, "
                    f"and {_leading(other)[0]} in steps of {_leading(other)[1]}"
                )
        name = self._fresh("ijklmnpq"[len(self._axes()) % 8])
        axis = Axis(name, extent, mapping, step)
        inner = [_entered(a, name) for a in arrays]
        values = [t if t.order else t.tile() for t in inner]
        entered: Any = values[0] if len(values) == 1 else tuple(values)
        parent = self._tasks[-1] if self._tasks else None
        if mapping == "block" and parent is not None and not parent.nodes and _is_grid(parent):
            parent.axes = (*parent.axes, axis)
            yield entered
            return
        if mapping == "block" and parent is not None:
            raise CompileError(f"a loop over blocks ({name}) stands inside of another Task")
        if mapping == "sequential" and parent is None:
            raise CompileError(
                "the outermost iteration is over blocks: every program runs the loops in it"
            )
        task = Task(self._graph.name if parent is None else f"over_{name}", (axis,))
        (self._graph.tasks if parent is None else parent.nodes).append(task)  # pyright: ignore
        self._tasks.append(task)
        yield entered
        self._tasks.pop()

    # Movement between levels.

    def load_g2s(self, tile: Tile) -> Tile:
        """A tile of global memory in shared memory, loaded by the workgroup together."""
        return self._moved(tile, SHARED, GLOBAL)

    def load_g2r(self, tile: Tile) -> Tile:
        """A tile of global memory in registers; skips shared memory."""
        return self._moved(tile, REGISTER, GLOBAL)

    def load_s2r(self, tile: Tile) -> Tile:
        """A tile of shared memory in registers."""
        return self._moved(tile, REGISTER, SHARED)

    def store_r2s(self, tile: Tile, dtype: DType | None = None) -> Tile:
        """A tile of registers in shared memory, converted to ``dtype``."""
        return self._moved(tile, SHARED, REGISTER, dtype)

    def store_s2g(self, tile: Tile, to: Tile) -> None:
        """Writes a tile of shared memory to its place in global memory, in that array's dtype."""
        self._stored(tile, to, SHARED)

    def store_r2g(self, tile: Tile, to: Tile) -> None:
        """Writes a tile of registers to its place in global memory; skips shared memory."""
        self._stored(tile, to, REGISTER)

    def _stored(self, tile: Tile, to: Tile, level: str) -> None:
        self._check(tile, level)
        self._check(to, GLOBAL)
        self._emit("copy", [tile], to.access)

    def _moved(self, tile: Tile, level: str, source: str, dtype: DType | None = None) -> Tile:
        self._check(tile, source)
        base = tile.access.buffer.removesuffix("_s").removesuffix("_r")
        made = self._near(
            base + ("_s" if level == SHARED else "_r"), level, tile.shape, dtype or tile.dtype
        )
        self._emit("copy", [tile], made.access)
        return made

    # Computation.

    def zeros(self, *shape: int, dtype: DType = dtypes.f32, name: str = "acc") -> Tile:
        """An accumulator in registers, 0 everywhere."""
        made = self._near(name, REGISTER, tuple(affine(e) for e in shape), dtype)
        self._emit("copy", [affine(0) if dtype.is_integer else 0.0], made.access)
        return made

    def mma(self, a: Tile, b: Tile, *, into: Tile | None = None) -> Tile:
        """The product of two tiles, added to ``into`` where it is given. Narrow floats accumulate in f32.

        A wider operand is rounded to the dtype of the other.
        """
        a, b = self._narrowed(a, b.dtype), self._narrowed(b, a.dtype)
        if into is None:
            shape = (a.shape[0], b.shape[-1])
            into = self._near("p", REGISTER, shape, computing(a.dtype))
            self._emit("mma", [a, b], into.access)
        else:
            self._emit("mma", [a, b], into.access, "add")
        return into

    def _narrowed(self, tile: Tile, dtype: DType) -> Tile:
        if not (tile.dtype.is_float and dtype.is_float) or tile.dtype.itemsize <= dtype.itemsize:
            return tile
        return self.apply("cast", tile, dtype=dtype)

    def set(self, target: Tile, value: Tile) -> None:
        """Gives an accumulator a new value."""
        self._emit("copy", [value], target.access)

    def apply(
        self,
        op: str,
        *operands: Tile | float,
        dtype: DType | None = None,
        shape: Sequence[int] | None = None,
        **attributes: Any,
    ) -> Tile:
        """An operation of the table, or a macro kernel, on tiles near the workgroup; the result in registers.

        `shape` is a macro kernel's, the operands' by default; `attributes` are the operation's: ``axis`` of a
        reduction.
        """
        entry = entry_of(op)
        if entry is None:
            raise CompileError(f"there is no operation {op}")
        tiles = [o for o in operands if isinstance(o, Tile)]
        extents = _result_shape(entry.kind, [t.shape for t in tiles], attributes)
        if shape is not None:
            extents = tuple(map(affine, shape))
        kind = dtype or computing(tiles[0].dtype)
        if op == "cast":
            attributes["dtype"] = kind.name
        made = self._near(f"{op}_r" if entry.kind == "macro" else op, REGISTER, extents, kind)
        self._emit(op, list(operands), made.access, None, **attributes)
        return made

    def graph(self) -> TiledGraph:
        """What was recorded, validated."""
        return replace(self._graph).validate()

    # Bookkeeping.

    def _axes(self) -> list[Axis]:
        return [axis for task in self._tasks for axis in task.axes]

    def _fresh(self, base: str) -> str:
        axes = [axis.name for axis in self._axes()]
        return unused(base, self._graph.buffers, self._graph.symbols, axes)

    def _near(self, base: str, level: str, shape: tuple[Affine, ...], dtype: DType) -> Tile:
        buffer = self._graph.add(Buffer(self._fresh(base), level, shape, dtype))
        return Tile(buffer.whole, dtype, shape)

    def _check(self, tile: Tile, level: str) -> None:
        found = self._graph.buffers[tile.access.buffer].level
        if found != level:
            raise CompileError(f"{tile.access.buffer} stands at level {found}, not at {level}")

    def _emit(
        self,
        op: str,
        operands: Sequence[Tile | Affine | float],
        to: Access,
        combine: Combine | None = None,
        **attributes: Any,
    ) -> None:
        if not self._tasks:
            raise CompileError(f"{op} stands outside of any iteration")
        parts = [TiledEdge("load", o.access) if isinstance(o, Tile) else o for o in operands]
        edge = TiledEdge("store", to, combine)
        self._tasks[-1].nodes.append(Operation(op, tuple(parts), edge, tuple(attributes.items())))


def _result_shape(
    kind: str, shapes: list[tuple[Affine, ...]], attributes: Any
) -> tuple[Affine, ...]:
    shape = shapes[0]
    if kind == "reduce":
        axis = attributes["axis"]
        return (*shape[:axis], affine(1), *shape[axis + 1 :])
    if kind == "transpose":
        return shape[::-1]
    if kind == "mma":
        return (shape[0], shapes[1][1])
    if kind == "elementwise":
        for other in shapes[1:]:
            shape = tuple(b if a.number == 1 else a for a, b in zip(shape, other, strict=True))
    return shape


def _leading(tiles: Tiles) -> tuple[Affine, int]:
    if not tiles.order:
        raise CompileError(f"{tiles.buffer.name} is one tile, there is nothing to iterate over")
    dimension = tiles.order[0]
    return tiles.buffer.shape[dimension], tiles.sizes[dimension] or 1


def _entered(tiles: Tiles, name: str) -> Tiles:
    dimension, *rest = tiles.order
    at = tuple(affine(name) if d == dimension else a for d, a in enumerate(tiles.at))
    return replace(tiles, order=tuple(rest), at=at)


def _is_grid(task: Task) -> bool:
    return all(axis.mapping == "block" for axis in task.axes)
