"""A kernel's Task as a function in the tile language: readable text, one loop for each Task, names kept.

What a launch passes is a *view* of a global Buffer: its dimensions in the order in which tiles lie in it (leading
offsets first, rows and columns last), so that a transposed operand costs nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field, replace
from functools import reduce
from typing import Any

from tilewright import dtypes
from tilewright.diagnostics import UnsupportedError
from tilewright.frozen import record
from tilewright.graph.affine import Affine, affine
from tilewright.graph.kernel_text import KernelText, View
from tilewright.graph.nodes import (
    GLOBAL,
    Access,
    Axis,
    Buffer,
    Entry,
    Gather,
    Index,
    Operand,
    Operation,
    Slice,
    Task,
    TiledEdge,
    TiledGraph,
    bound_task,
    unused,
    walk,
)
from tilewright.graph.operations import computing
from tilewright.graph.operations import operation as entry_of
from tilewright.lang.promote import division, promote

GRID_RANK = 3
SHORT = 32  # iterations up to which a loop says how many it has: code of more is for any number


def generate(graph: TiledGraph, task: Task) -> KernelText:
    """The text of a kernel. Raises UnsupportedError, with the node, for what the tile language cannot say."""
    names = {a.name for around, _ in walk([task]) for t in around for a in t.axes}
    return _Generator(graph, _told_apart(task, {}, names.union(graph.buffers))).run()


def _told_apart(task: Task, taken: dict[str, Axis], others: Collection[str]) -> Task:
    """A Task in which axes of one name are one: others get names that are not `taken`, nor those of `others`."""
    names: dict[str, Affine] = {}
    axes: list[Axis] = []
    for axis in task.axes:
        if taken.setdefault(axis.name, axis) != axis:
            names[axis.name] = affine(name := unused(axis.name, taken, others))
            taken[name] = axis = replace(axis, name=name)
        axes.append(axis)
    inner = bound_task(task, names) if names else task
    nodes = [_told_apart(n, taken, others) if isinstance(n, Task) else n for n in inner.nodes]
    return Task(task.name, tuple(axes), nodes)


@record
class _Generator:
    graph: TiledGraph
    task: Task
    views: dict[View, str] = field(default_factory=dict[View, str])
    lines: list[str] = field(default_factory=list[str])
    axes: dict[str, Axis] = field(default_factory=dict[str, Axis])
    constants: dict[str, int] = field(default_factory=dict[str, int])
    extents: dict[str, str] = field(default_factory=dict[str, str])
    """Text for the extent of an axis: a dimension of a parameter."""

    def run(self) -> KernelText:
        task = self.task
        blocks = [a for a in task.axes if a.mapping == "block"]
        self.axes = {a.name: a for a in task.axes}
        self.collect(task)
        for operation in task.operations():
            for edge in operation.edges:
                self.visit(operation, edge)
        grid = self.heads(blocks)
        for node in task.nodes:
            self.node(node, 1)
        used = "\n".join(self.lines)
        parameters = [*self.views.values()]
        parameters += [f"{n}: tw.constexpr = {v}" for n, v in self.constants.items() if n in used]
        head = f"@tw.kernel\ndef {task.name}({', '.join(parameters)}):"
        if len(head) > 110:
            head = f"@tw.kernel\ndef {task.name}(\n    " + ", ".join(parameters) + ",\n):"
        body = [line for line in self.lines if line]
        text = "\n".join([head, *body]) + "\n"
        views = {name: view for view, name in self.views.items()}
        multiplied = frozenset(map(self.types, filter(_multiplies, task.operations())))
        tiled = self.tiled(blocks) if multiplied else {}
        return KernelText(task.name, text, views, grid, dict(self.constants), multiplied, tiled)

    def types(self, product: Operation) -> tuple[dtypes.DType, dtypes.DType]:
        left, right = (self.graph.buffers[e.access.buffer].dtype for e in product.loads)
        return left, right

    def tiled(self, blocks: list[Axis]) -> dict[str, tuple[int, int] | None]:
        """Constants of axes whose steps no other line depends on: of the grid, for what lies past their ends is loaded
        as zero, and not stored (indices there would be); and of loops that load and multiply, where zeros add nothing.
        """
        entries = (e for op in self.task.operations() for a in op.accesses for e in a.entries)
        if len(blocks) > GRID_RANK or any(isinstance(e, Gather) for e in entries):
            return {}
        counted = [(a, (place, _number(a.extent))) for place, a in enumerate(blocks)]
        loops = [n for n in self.task.nodes if isinstance(n, Task) and _multiplies_alone(n)]
        summed = [(n.axes[0], None) for n in loops if len(n.axes) == len(loops) == 1]
        return {self.size_name(a.name): counts for a, counts in (*counted, *summed) if a.step > 1}

    def collect(self, task: Task) -> None:
        for axis in task.axes:
            self.axes[axis.name] = axis
            if axis.step > 1:
                self.constants[self.size_name(axis.name)] = axis.step
            if axis.mapping == "each":
                raise UnsupportedError(
                    f"Task {task.name}: axis {axis.name} is mapped to nothing yet",
                    hint="schedule the graph, or write block, group or sequential",
                )
        for node in task.nodes:
            if isinstance(node, Task):
                if any(a.mapping == "block" for a in node.axes):
                    raise UnsupportedError(f"Task {node.name}: blocks are the outermost axes")
                self.collect(node)

    def size_name(self, axis: str) -> str:
        return unused(f"B{axis.upper()}", self.graph.buffers, self.axes)

    # Parameters.

    def visit(self, operation: Operation, edge: TiledEdge) -> None:
        """Names the view that an edge needs, and the extents that it tells."""
        for access in edge.access.accesses():
            if self.graph.buffers[access.buffer].level != GLOBAL:
                continue
            view = self.view(operation, access, edge.access is access)
            name = self.views.get(view)
            if name is None:
                plain = view.order == tuple(range(len(access.entries)))
                name = access.buffer if plain else f"{access.buffer}_t"
                others = () if plain else self.graph.buffers
                self.views[view] = name = unused(name, self.views.values(), others)
            shape = self.graph.buffers[access.buffer].shape
            for place, dimension in enumerate(view.order):
                if dimension is None:
                    continue
                entry = access.entries[dimension]
                at = entry.at if isinstance(entry, Index) else None
                at = entry.start if isinstance(entry, Slice) else at
                axis = None if at is None else self.axes.get(at.name or "")
                if axis is None or axis.extent != shape[dimension]:
                    continue
                if axis.step > 1 or axis.extent.number not in range(SHORT + 1):
                    self.extents.setdefault(axis.name, f"{name}.shape[{place}]")

    def view(self, operation: Operation, access: Access, direct: bool) -> View:
        """The order of dimensions in which the tile of an access is innermost."""
        if any(isinstance(e, Gather) for e in access.entries):
            return View(access.buffer, tuple(range(len(access.entries))))
        tiled = [d for d, e in enumerate(access.entries) if isinstance(e, Slice)]
        rest: list[int | None] = [d for d in range(len(access.entries)) if d not in tiled]
        if len(tiled) > 2:
            raise UnsupportedError(
                f"{operation.name}: a tile of {access.buffer} has {len(tiled)} dimensions, at most 2 are possible"
            )
        if len(tiled) == 2:
            rows = tiled[::-1] if operation.op == "transpose" and direct else tiled
            return View(access.buffer, (*rest, *rows))
        if not tiled:
            return View(access.buffer, tuple(rest) if rest else (None,))
        if self.is_column(operation, access, direct):
            return View(access.buffer, (*rest, tiled[0], None))
        return View(access.buffer, (*rest, *tiled))

    def is_column(self, operation: Operation, access: Access, direct: bool) -> bool:
        """Is the one tiled dimension the rows of the tile?"""
        if direct:
            return self.axis(operation, access) == 0
        # Indices lie as what they choose from does.
        for edge in operation.edges:
            for entry in edge.access.entries:
                if isinstance(entry, Gather) and access in entry.index.accesses():
                    return self.axis(operation, edge.access, entry) == 0
        raise AssertionError("indices of no gather")

    def is_tiled(self, entry: Entry) -> bool:
        """Does a tile extend along a dimension, be it by one element?"""
        if not isinstance(entry, Gather):
            return isinstance(entry, Slice)
        if self.graph.buffers[entry.index.buffer].level == GLOBAL:
            return any(map(self.is_tiled, entry.index.entries))
        held = self.graph.buffers[entry.index.buffer]
        # Graphs by hand do not say along which axes their registers lie.
        return any(held.along or [n for n in held.shape if n.number != 1])

    def axis(self, operation: Operation, access: Access, entry: Entry | None = None) -> int:
        """Where a tiled dimension of an access (`entry`, of two) is in its tile: 0 for rows, 1 for columns."""
        tiled = [e for e in access.entries if self.is_tiled(e)]
        if len(tiled) == 2:
            return int((entry is tiled[0]) == (operation.op == "transpose"))
        if operation.op == "column":
            return 0
        if operation.op == "squeeze" and operation.store.access is access:
            (edge,) = operation.loads
            return int(self.graph.buffers[edge.access.buffer].shape[0].number == 1)
        return 1

    # Statements.

    def heads(self, blocks: list[Axis]) -> tuple[int, ...]:
        """The lines that say where a program stands, and the grid."""
        counts = [-(-_number(a.extent) // a.step) for a in blocks]
        for place, axis in enumerate(blocks):
            if place < GRID_RANK - 1 or len(blocks) <= GRID_RANK:
                program = f"tw.program_id({place})"
            else:  # the last dimension of the grid stands for all that are left
                after = 1
                for count in counts[place + 1 :]:
                    after *= count
                program = f"tw.program_id({GRID_RANK - 1})"
                program += f" // {after}" if after > 1 else ""
                program += f" % {counts[place]}" if place > GRID_RANK - 1 else ""
            step = f" * {self.size_name(axis.name)}" if axis.step > 1 else ""
            self.lines.append(f"    {axis.name} = {program}{step}")
        grid = counts[: GRID_RANK - 1] if len(counts) > GRID_RANK else counts
        if len(counts) > GRID_RANK:
            last = 1
            for count in counts[GRID_RANK - 1 :]:
                last *= count
            grid.append(last)
        return tuple(max(1, c) for c in grid) or (1,)

    def node(self, node: Operation | Task, depth: int) -> None:
        pad = "    " * depth
        if isinstance(node, Operation):
            self.lines.append(f"{pad}{self.operation(node)}")
            return
        for axis in node.axes:
            if axis.mapping == "group":
                continue
            end, step = self.extent(axis.name), self.size_name(axis.name) if axis.step > 1 else 1
            self.lines.append(f"{pad}for {axis.name} in range(0, {end}, {step}):")
            pad += "    "
        for child in node.nodes:
            self.node(child, len(pad) // 4)

    def extent(self, axis: str) -> str:
        return self.extents.get(axis, str(_number(self.axes[axis].extent)))

    def operation(self, op: Operation) -> str:
        target = self.graph.buffers[op.store.access.buffer]
        if target.level == GLOBAL:
            return self.store(op)
        name = target.name
        if op.op == "iota":
            axis = op.attribute("axis")
            start = op.operands[0]
            assert isinstance(start, Affine)
            return f"{name} = {self.positions(start, target, axis)}.to(tw.{target.dtype})"
        text = self.expression(op, target.dtype)
        combine = op.store.combine
        if self.result(op) not in (None, target.dtype):
            text = f"({text})" if " " in text else text
            text = f"{text}.to(tw.{target.dtype})"
        if combine is None:
            return f"{name} = {text}"
        if op.op == "mma":
            return f"{name} = {text[:-1]}, {name})"
        if combine in ("add", "mul"):
            return f"{name} = {name} {'+' if combine == 'add' else '*'} {text}"
        return f"{name} = tw.{combine}imum({name}, {text})"

    def result(self, op: Operation) -> dtypes.DType | None:
        """The dtype that the tile language gives an elementwise result; None where the target's is known to be it."""
        entry = entry_of(op.op)
        assert entry is not None
        if entry.kind != "elementwise" or entry.boolean or op.op == "cast" or not op.loads:
            return None
        values = op.operands[1:] if op.op == "where" else op.operands
        held = [
            self.graph.buffers[v.access.buffer].dtype for v in values if isinstance(v, TiledEdge)
        ]
        if op.op == "copy":
            return held[0]
        if not held or any(kind.is_bool for kind in held):
            return None
        met = reduce(promote, map(computing, held))
        return division(met) if op.op == "div" else met

    def expression(self, op: Operation, dtype: dtypes.DType) -> str:
        entry = entry_of(op.op)
        assert entry is not None
        if op.loads and op.op in ("copy", "transpose", "column", "squeeze"):
            edge = op.loads[0]
            if self.graph.buffers[edge.access.buffer].level == GLOBAL:
                return self.load(op, edge.access)
        wide = entry.kind in ("elementwise", "reduce") and op.op not in ("copy", "cast")
        parts = [self.operand(op, o, wide) for o in op.operands]
        if not op.loads:
            shape, number = self.tile_shape(op, op.store.access), op.operands[0]
            if dtype.is_integer and isinstance(number, float):
                parts[0] = str(int(number))
            parts[0] = f"tw.full({shape}, {parts[0]}, tw.{dtype})"
        if op.op == "mma":
            return f"tw.tile_mma({', '.join(parts)})"
        if op.op == "mask":
            start, extent, axis = (op.attribute(k) for k in ("start", "extent", "axis"))
            target = self.graph.buffers[op.store.access.buffer]
            along = self.axes.get(start.name or "")
            is_all = along is not None and along.extent == extent
            end = self.extent(start.name or "") if is_all else str(extent)
            inside = f"{self.positions(start, target, axis)} < {end}"
            return f"tw.where({inside}, {parts[0]}, {_literal(op.attribute('fill'))})"
        attributes = dict(op.attributes)
        text = entry.text.format(*parts, **attributes)
        return text

    def operand(self, op: Operation, operand: Operand, wide: bool) -> str:
        if not isinstance(operand, TiledEdge):
            return _literal(operand)
        buffer = self.graph.buffers[operand.access.buffer]
        if buffer.level == GLOBAL:
            text = self.load(op, operand.access)
        elif operand.access != buffer.whole:
            raise UnsupportedError(
                f"{op.name}: a part of the register {buffer.name} cannot be taken",
                hint="load it from global memory in parts",
            )
        else:
            text = buffer.name
        if wide and computing(buffer.dtype) is not buffer.dtype:
            text += f".to(tw.{computing(buffer.dtype)})"
        return text

    def positions(self, start: Affine, tile: Buffer, axis: int) -> str:
        """Numbers along an axis of a tile."""
        size = self.sizes(tile)[axis]
        rows = f"({size}, 1)" if axis == 0 else f"(1, {size})"
        text = f"tw.arange(0, {size}, axis={axis}, shape={rows})"
        offset = self.offset(start)
        return text if offset == "0" else f"({text} + {offset})"

    def sizes(self, tile: Buffer) -> list[str]:
        """A register's extents: the names of constants where they are steps of axes."""
        along = tile.along or (None,) * len(tile.shape)
        return [self.size(_number(n), a) for n, a in zip(tile.shape, along, strict=True)]

    def size(self, extent: int, *axes: str | None) -> str:
        """An extent in a tile: the name of a constant where it is the step of one of these axes."""
        steps = [a for a in axes if a in self.axes and self.axes[a].step == extent > 1]
        return self.size_name(steps[0]) if steps else str(extent)

    def offset(self, at: Affine) -> str:
        """An offset; the variable of an axis of one iteration is 0."""
        zero = {n: Affine() for n, a in self.axes.items() if a.mapping == "group"}
        return str(at.substitute(zero))

    # Memory.

    def tile(self, op: Operation, access: Access) -> str:
        view = self.view(op, access, True)
        offsets: list[str] = []
        for dimension in view.order:
            entry = access.entries[dimension] if dimension is not None else None
            if isinstance(entry, Slice):
                offsets.append(self.offset(entry.start))
            else:
                offsets.append(self.offset(entry.at) if isinstance(entry, Index) else "0")
        shape = self.tile_shape(op, access)
        return f"tw.init_tile({self.views[view]}, [{', '.join(offsets)}], {shape})"

    def tile_shape(self, op: Operation, access: Access) -> str:
        """Of what an access without gathers loads or stores."""
        buffer = self.graph.buffers[access.buffer]
        if buffer.level != GLOBAL:
            return _tuple(self.sizes(buffer))
        entries = [
            access.entries[d] if d is not None else None for d in self.view(op, access, True).order
        ]
        sizes = ["1", *(self.step(e) if isinstance(e, Slice) else "1" for e in entries)]
        return _tuple(sizes[-2:])

    def step(self, entry: Slice) -> str:
        return self.size(_number(entry.size), *entry.start.names)

    def load(self, op: Operation, access: Access) -> str:
        if any(isinstance(e, Gather) for e in access.entries):
            at, inside = self.scattered(op, access)
            return f"tw.load_gather(tw.init_tile({self.name(op, access)}, {at}), {inside})"
        return f"tw.load_tile({self.tile(op, access)})"

    def name(self, op: Operation, access: Access) -> str:
        return self.views[self.view(op, access, True)]

    def store(self, op: Operation) -> str:
        access, combine = op.store.access, op.store.combine
        dtype = self.graph.buffers[access.buffer].dtype
        edge, given = op.operands[0], self.result(op)
        value = self.expression(op, dtype)
        if given is None and isinstance(edge, TiledEdge):
            given = self.graph.buffers[edge.access.buffer].dtype
        if given is not dtype:
            value = f"({value}).to(tw.{dtype})" if " " in value else f"{value}.to(tw.{dtype})"
        if any(isinstance(e, Gather) for e in access.entries):
            at, inside = self.scattered(op, access)
            tile = f"tw.init_tile({self.name(op, access)}, {at})"
            if combine is None:
                return f"tw.store_scatter({value}, {tile}, {inside})"
            return f'tw.atomic_rmw("{combine}", {value}, {tile}, {inside})'
        if combine is None:
            return f"tw.store_tile({value}, {self.tile(op, access)})"
        return f'tw.atomic_rmw("{combine}", {value}, {self.tile(op, access)})'

    def scattered(self, op: Operation, access: Access) -> tuple[str, str]:
        """Offsets into the flattened Buffer, and which of them are inside."""
        name = self.name(op, access)
        flat, masks = "", list[str]()
        for dimension, entry in enumerate(access.entries):
            axis = self.axis(op, access, entry)
            if isinstance(entry, Index):
                at = self.offset(entry.at)
            elif isinstance(entry, Slice):
                size = self.step(entry)
                rows = f"({size}, 1)" if axis == 0 else f"(1, {size})"
                at = f"tw.arange(0, {size}, axis={axis}, shape={rows})"
                offset = self.offset(entry.start)
                at = at if offset == "0" else f"({at} + {offset})"
                masks.append(f"({at} < {name}.shape[{dimension}])")
            else:
                at, inside = self.indices(op, entry.index, axis)
                masks += inside
            flat = f"({flat}) * {name}.shape[{dimension}] + {at}" if flat else at
        return flat, " & ".join(masks) or "True"

    def indices(self, op: Operation, access: Access, axis: int) -> tuple[str, list[str]]:
        """The tile of indices of a gather, and which of them exist; `axis`: where they lie if they have one."""
        buffer = self.graph.buffers[access.buffer]
        if buffer.level != GLOBAL:
            is_store = access in op.store.access.accesses()
            return f"{buffer.name}.to(tw.i64)", [f"({buffer.name} >= 0)"] * is_store
        view = self.view(op, access, False)
        name = self.views[view]
        offsets, sizes, masks = list[str](), list[str](), list[str]()
        matrix = sum(isinstance(e, Slice) for e in access.entries) == 2
        for place, dimension in enumerate(view.order):
            entry = access.entries[dimension] if dimension is not None else None
            if isinstance(entry, Slice):
                size, axis = self.step(entry), len(masks) if matrix else axis
                offsets.append(self.offset(entry.start))
                sizes.append(size)
                rows = f"({size}, 1)" if axis == 0 else f"(1, {size})"
                where = f"tw.arange(0, {size}, axis={axis}, shape={rows})"
                masks.append(f"({where} + {offsets[-1]} < {name}.shape[{place}])")
            else:
                offsets.append(self.offset(entry.at) if isinstance(entry, Index) else "0")
                sizes.append("1")
        shape = ", ".join((["1", *sizes])[-2:])
        tile = f"tw.init_tile({name}, [{', '.join(offsets)}], ({shape}))"
        return f"tw.load_tile({tile}).to(tw.i64)", masks


def _multiplies(op: Operation) -> bool:
    return op.op == "mma"


def _multiplies_alone(task: Task) -> bool:
    """Does a loop only load, and multiply what it loads?"""
    nodes = [
        n for n in task.nodes if isinstance(n, Operation) and n.op in ("copy", "transpose", "mma")
    ]
    made = {n.store.access.buffer for n in nodes if not _multiplies(n)}
    return len(nodes) == len(task.nodes) and all(
        edge.access.buffer in made for n in filter(_multiplies, nodes) for edge in n.loads
    )


def _number(extent: Affine) -> int:
    if extent.number is None:
        raise UnsupportedError(f"the extent {extent} is not bound: give the symbols values")
    return extent.number


def _tuple(parts: Any) -> str:
    return f"({', '.join(parts)})"


def _literal(value: Any) -> str:
    if isinstance(value, Affine):
        return str(value)
    if value in (float("inf"), float("-inf")) or value != value:
        return f'float("{value}")'
    return repr(value)
