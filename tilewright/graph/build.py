"""From a nest with a tiling to a Task of tiles: loops, loads, values in registers, stores.

Demand-driven: the outputs ask for values, a value is made in the outermost loop in which all of its axes stand still
(so that what does not change in a loop is loaded before it), and a reduction along a loop opens that loop for all the
reductions and stores that can share it. What depends on a reduction that is still running either waits for another
pass, or, where `costs.online` allows it, is rescaled whenever the running maximum changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import dtypes
from tilewright.dtypes import DType
from tilewright.graph.affine import Affine, affine
from tilewright.graph.algebra import scaling
from tilewright.graph.costs import Tiling, online
from tilewright.graph.nest import Nest, Statement
from tilewright.graph.nodes import (
    Access,
    Axis,
    Combine,
    Entry,
    Gather,
    Index,
    Operand,
    Operation,
    Slice,
    Task,
    TiledEdge,
    TiledGraph,
)
from tilewright.graph.operations import computing, neutral
from tilewright.graph.padding import Padding
from tilewright.graph.scopes import Registers, Scope, Shape


def build(graph: TiledGraph, nest: Nest, tiling: Tiling, name: str) -> Task:
    """The Task of a kernel; its registers are added to ``graph``, which holds the global Buffers."""
    return KernelBuilder(graph, nest, tiling).kernel(name)


class KernelBuilder:
    def __init__(self, graph: TiledGraph, nest: Nest, tiling: Tiling):
        self.graph = graph
        self.nest = nest
        self.tiling = tiling
        self.padding = Padding(nest, tiling)
        self.stored: set[str] = set()
        registers = Registers(graph, tiling)
        self.register, self.emit = registers.new, registers.emit

    def kernel(self, name: str) -> Task:
        """The kernel: all outputs, and what they need."""
        root = self.opened(name)
        for output in self.nest.outputs:
            if output not in self.stored:
                self.store(self.nest.statements[output], root)
        return root.task

    def opened(self, name: str) -> Scope:
        """The body of the kernel, empty: its grid, and the axes of which it has all."""
        tiling, nest = self.tiling, self.nest
        order = [a for n in nest.outputs for a in nest.statements[n].kept]
        blocks = [a for a in dict.fromkeys(order) if tiling.mapping[a] == "block"]
        blocks.sort(key=lambda a: a not in tiling.tiled)
        whole = [a for a, mapping in tiling.mapping.items() if mapping == "group"]
        task = Task(name, tuple(self.axis(a) for a in (*blocks, *whole)))
        goals = frozenset(d for n in nest.outputs for d in nest.reach[n])
        return Scope(task, (), None, goals)

    def axis(self, name: str) -> Axis:
        tiling = self.tiling
        extent = Affine((), self.nest.extents[name])
        return Axis(name, extent, tiling.mapping[name], tiling.step[name])

    # Values.

    def value(self, name: str, scope: Scope, shape: Shape) -> str:
        """The register that holds a statement's value, seen from ``scope``."""
        statement = self.nest.statements[name]
        home = self.home(statement, scope)
        if (found := self.lookup(name, scope, home, shape)) is not None:
            return found
        if self.tiling.loops(statement.reduced):
            self.loop(statement, home, shape)
            found = self.lookup(name, scope, home, shape)
            assert found is not None
            return found
        made = home.values[name, shape] = self.compute(statement, home, shape)
        return made

    def home(self, statement: Statement, scope: Scope) -> Scope:
        """The outermost scope in which a value can be made."""
        return self.outermost(statement.kept, self.nest.reach[statement.name], scope)

    def outermost(self, axes: Sequence[str], needs: frozenset[str], scope: Scope) -> Scope:
        loops = set(self.tiling.loops(tuple(axes)))
        while scope.parent is not None:
            if not loops <= set(scope.parent.loops) or scope.running & needs:
                break
            scope = scope.parent
        return scope

    def lookup(self, name: str, scope: Scope, home: Scope, shape: Shape) -> str | None:
        at: Scope | None = scope
        while at is not None:
            found = at.values.get((name, shape))
            if found is not None:
                return found
            other = at.values.get((name, shape[::-1]))
            if other is not None:
                rows = self.register(name, shape, self.graph.buffers[other].dtype)
                self.emit(at, "transpose", [other], rows)
                at.values[name, shape] = rows
                return rows
            at = at.parent if at is not home else None
        return None

    def compute(self, statement: Statement, scope: Scope, shape: Shape) -> str:
        """A value without a loop of its own."""
        if statement.name in self.tiling.cores:
            made = self.register(statement.name, shape, self.type_of(statement))
            self.emit(scope, "mma", self.factors(statement, scope, shape), made)
            return made
        if statement.is_reduction:
            made = self.register(statement.name, shape, self.type_of(statement))
            self.reduced(statement, scope, shape, made, None)
            return made
        return self.elementwise(statement, scope, shape)

    def elementwise(self, statement: Statement, scope: Scope, shape: Shape) -> str:
        """What a statement computes of its operands, before it is combined."""
        operation = statement.operation
        dtype = self.type_of(statement)
        if operation.op == "iota":
            made, start = self.register(statement.name, shape, dtype), operation.operands[0]
            assert isinstance(start, Affine)
            along = [at for at, a in enumerate(shape) if a in start.names]
            place: dict[str, Any] = {"axis": along[0]} if along else {}  # or one number for all
            self.emit(scope, "iota" if along else "copy", [start], made, **place)
            return made
        parts = [self.operand(o, scope, shape) for o in operation.operands]
        if operation.op == "copy" and isinstance(parts[0], str):
            return parts[0]
        op = operation.op if operation.op != "mma" else "mul"
        made = self.register(statement.name, shape, dtype)
        attributes: dict[str, Any] = {"dtype": dtype.name} if op == "cast" else {}
        self.emit(scope, op, parts, made, **attributes)
        return made

    def operand(self, operand: Operand, scope: Scope, shape: Shape) -> Any:
        """An operand for a value of a shape: a register, a number or an expression."""
        if not isinstance(operand, TiledEdge):
            return operand
        name = operand.access.buffer
        axes = self.axes_of(operand.access)
        own = (shape[0] if shape[0] in axes else None, shape[1] if shape[1] in axes else None)
        if name in self.nest.statements:
            return self.value(name, scope, own)
        return self.load(operand.access, scope, own)

    def axes_of(self, access: Access) -> set[str]:
        return {a for a in access.names if a in self.tiling.tiled}

    def load(self, access: Access, scope: Scope, shape: Shape) -> str:
        """A tile of a global Buffer in a register."""
        names = tuple(n for n in access.names if n in self.tiling.mapping)
        needs = frozenset(
            d
            for a in access.accesses()
            if a.buffer in self.nest.statements
            for d in self.nest.reach[a.buffer]
        )
        home = self.outermost(names, needs, scope)
        if (found := scope.find((access, shape), home)) is not None:
            return found
        order = self.tiled_order(access)
        made = self.register(
            f"{access.buffer}_tile", shape, self.nest.graph.buffers[access.buffer].dtype
        )
        op = "copy"
        if len(order) == 2 and shape != tuple(order):
            op = "transpose"
        elif len(order) == 1 and shape[0] is not None:
            op = "column"
        edge = TiledEdge("load", self.scheduled(access, home, shape))
        self.emit(home, op, [edge], made)
        home.values[access, shape] = made
        return made

    def tiled_order(self, access: Access) -> list[str]:
        """The tiled axes of an access in the order of the Buffer's dimensions."""
        order: list[str] = []
        for entry in access.entries:
            if isinstance(entry, Gather):
                order += self.tiled_order(entry.index)
            elif isinstance(entry, Index):
                order += [n for n in entry.at.names if n in self.tiling.tiled]
        return order

    def scheduled(self, access: Access, scope: Scope, shape: Shape, store: bool = False) -> Access:
        """An access to elements as one to tiles; indices of a store that are past an end are -1."""

        def entry(e: Entry) -> Entry:
            if isinstance(e, Gather):
                if e.index.buffer not in self.nest.statements:
                    return Gather(self.scheduled(e.index, scope, shape))
                axes = self.axes_of(e.index)  # indices that are computed in the kernel
                rows = shape[0] if shape[0] in axes else None
                own = (rows, shape[1] if shape[1] in axes else None)
                made = self.value(e.index.buffer, scope, own)
                for axis in own if store else ():
                    if axis is not None and self.padding.is_padded(axis):
                        wide = self.cast(made, own, dtypes.i64, scope)
                        made = self.masked(wide, scope, own, axis, -1)
                return Gather(self.graph.buffers[made].whole)
            assert isinstance(e, Index)
            tiled = [n for n in e.at.names if n in self.tiling.tiled]
            return Slice(e.at, affine(self.tiling.step[tiled[0]])) if tiled else e

        return Access(access.buffer, tuple(map(entry, access.entries)))

    # Products and reductions.

    def factors(self, statement: Statement, scope: Scope, shape: Shape) -> list[str]:
        """The operands [rows, k] and [k, columns] of a product, in the type in which it is multiplied."""
        core = self.tiling.cores[statement.name]
        left, right = statement.operation.loads
        if shape[0] not in self.axes_of(left.access):
            left, right = right, left
        names: list[str] = []
        for edge, own in ((left, (shape[0], core.k)), (right, (core.k, shape[1]))):
            made = self.operand(edge, scope, own)
            wanted = self.nest.graph.buffers[edge.access.buffer].dtype
            names.append(self.cast(made, own, wanted, scope))
        for number in self.padding.to_mask((left, right), core.k):
            own = (shape[0], core.k) if number == 0 else (core.k, shape[1])
            names[number] = self.masked(names[number], scope, own, core.k, 0)
        return names

    def cast(self, name: str, shape: Shape, dtype: DType, scope: Scope) -> str:
        """A value in a type, which it may have."""
        if self.graph.buffers[name].dtype is dtype:
            return name
        made = self.register(name, shape, dtype)
        self.emit(scope, "cast", [name], made, dtype=dtype.name)
        return made

    def masked(self, name: str, scope: Scope, shape: Shape, axis: str, fill: float) -> str:
        """A value with ``fill`` past the end of an axis."""
        key = ("mask", name, axis, fill)
        if key not in scope.values:
            dtype = self.graph.buffers[name].dtype
            made = scope.values[key] = self.register(name, shape, dtype)
            self.emit(
                scope, "mask", [name], made,
                start=affine(axis), extent=self.nest.extents[axis], axis=shape.index(axis),
                fill=float(fill) if dtype.is_float else int(fill),
            )  # fmt: skip
        return scope.values[key]

    def reduced(
        self, statement: Statement, scope: Scope, shape: Shape, into: str, combine: Combine | None
    ) -> None:
        """Combines the tile at hand into ``into`` (or makes it)."""
        kind = statement.combine
        assert kind is not None
        inner = [a for a in statement.reduced if a in self.tiling.tiled]
        if len(inner) == 2:
            wide: Shape = (inner[0], inner[1])
        elif inner:
            wide = (inner[0], shape[1]) if shape[0] is None and shape[1] else (shape[0], inner[0])
        else:
            wide = shape
        dtype = self.type_of(statement)
        value = self.cast(self.elementwise(statement, scope, wide), wide, dtype, scope)
        for axis in inner:
            # Terms that do not move along the axis are as many all the same.
            spread = self.shape_of(value)[wide.index(axis)] != affine(self.tiling.step[axis])
            padded = self.padding.is_padded(axis)
            zero = kind == "add" and self.padding.is_zero_term(statement, axis)
            if spread or (padded and not zero):
                value = self.masked(value, scope, wide, axis, neutral(kind, dtype))
        at: list[str | None] = list(wide)
        while inner:
            axis = inner.pop()
            place = at.index(axis)
            at[place] = None
            if inner:
                made = self.register(statement.name, (at[0], at[1]), dtype)
                self.emit(scope, f"reduce_{kind}", [value], made, axis=place)
                value = made
            else:
                self.emit(scope, f"reduce_{kind}", [value], into, combine, axis=place)
                return
        self.emit(scope, "copy", [value], into, combine)

    # Loops.

    def loop(self, want: Statement, home: Scope, shape: Shape | None) -> None:
        """Opens the loops that a reduction or store needs, for all that can share them."""
        loops = self.open_loops(want, home)
        assert not set(loops) & set(home.loops), "a loop in itself: `costs.nests`"
        for name in self.pending(want, home):
            if not online(self.nest, self.tiling, want, self.nest.statements[name]):
                self.value(name, home, self.natural(self.nest.statements[name]))
        items: list[Statement] = []
        for name, s in self.nest.statements.items():
            if name == want.name or self.joins(s, home, loops, items):
                items.append(s)
        shapes = {s.name: self.natural(s) for s in items}
        if shape is not None:
            shapes[want.name] = shape
        accumulators: dict[str, str] = {}
        for s in items:
            if s.is_reduction and self.tiling.loops(s.reduced) == loops:
                dtype = self.type_of(s)
                made = self.register(s.name, shapes[s.name], dtype)
                assert s.combine is not None
                self.emit(home, "copy", [self.start(s, items, dtype)], made)
                accumulators[s.name] = made
        goals = frozenset(d for s in items for d in self.nest.reach[s.name])
        scopes = [home]
        for axis in loops:
            task = Task(f"over_{axis}", (self.axis(axis),))
            inner = Scope(task, (*scopes[-1].loops, axis), scopes[-1], goals)
            scopes.append(inner)
        self.body(items, accumulators, shapes, scopes[-1])
        for outer, inner in zip(scopes[-2::-1], scopes[:0:-1], strict=True):
            outer.task.nodes.append(inner.task)
        for name, made in accumulators.items():
            home.values[name, shapes[name]] = made

    def start(self, statement: Statement, items: list[Statement], dtype: DType) -> float | Affine:
        """What an accumulator starts with: a running maximum that others are rescaled by stays finite."""
        assert statement.combine is not None
        first = neutral(statement.combine, dtype)
        if any(online(self.nest, self.tiling, s, statement) for s in items):
            first = max(-3.0e38, min(3.0e38, first))
        return float(first) if dtype.is_float else affine(int(first))

    def open_loops(self, statement: Statement, home: Scope) -> tuple[str, ...]:
        if self.tiling.loops(statement.reduced) and set(self.tiling.loops(statement.kept)) <= set(
            home.loops
        ):
            return self.tiling.loops(statement.reduced)
        return tuple(a for a in self.tiling.loops(statement.kept) if a not in home.loops)

    def is_done(self, name: str, home: Scope) -> bool:
        at: Scope | None = home
        while at is not None:
            if any(key[0] == name for key in at.values if isinstance(key[0], str)):
                return True
            at = at.parent
        return False

    def pending(self, statement: Statement, home: Scope) -> list[str]:
        """Reductions along loops that a statement needs and that belong to ``home``, not done yet."""
        return [
            d
            for d in self.nest.statements
            if d in self.nest.reach[statement.name]
            and d != statement.name
            and self.tiling.loops(self.nest.statements[d].reduced)
            and set(self.tiling.loops(self.nest.statements[d].kept)) <= set(home.loops)
            and self.home(self.nest.statements[d], home) is home
            and not self.is_done(d, home)
        ]

    def joins(
        self, s: Statement, home: Scope, loops: tuple[str, ...], items: list[Statement]
    ) -> bool:
        """Can a statement share the loops that are about to be opened?"""
        names = {i.name for i in items}
        if self.tiling.loops(s.reduced) and self.home(s, home) is home:
            if s.name not in home.goals or self.is_done(s.name, home):
                return False
            if not set(self.tiling.loops(s.kept)) <= set(home.loops):
                return False
            if self.tiling.loops(s.reduced) != loops:
                return False
            return all(
                d in names and online(self.nest, self.tiling, s, self.nest.statements[d])
                for d in self.pending(s, home)
            )
        if s.name not in self.nest.outputs or s.name in self.stored or home.parent is not None:
            return False
        missing = tuple(a for a in self.tiling.loops(s.kept) if a not in home.loops)
        return missing == loops and not self.pending(s, home)

    def body(
        self,
        items: list[Statement],
        accumulators: dict[str, str],
        shapes: dict[str, Shape],
        scope: Scope,
    ) -> None:
        carried: list[tuple[str, str]] = []
        for s in items:
            if s.name not in accumulators:
                self.store(s, scope)
                continue
            into, shape = accumulators[s.name], shapes[s.name]
            followers = [i for i in items if online(self.nest, self.tiling, i, s)]
            if followers:
                new = self.register(s.name, shape, self.type_of(s))
                self.reduced(s, scope, shape, new, None)
                assert s.combine is not None
                self.emit(scope, s.combine, [into, new], new)
                scope.values[s.name, shape] = new
                scope.running.add(s.name)
                carried.append((into, new))
                continue
            for leader in items:
                if leader.name in scope.running and leader.name in self.nest.reach[s.name]:
                    self.rescale(s, leader, into, accumulators[leader.name], scope, shape)
            if s.name in self.tiling.cores:
                self.emit(scope, "mma", self.factors(s, scope, shape), into, "add")
            else:
                self.reduced(s, scope, shape, into, s.operation.store.combine)
        for into, new in carried:
            self.emit(scope, "copy", [new], into)

    def rescale(
        self, s: Statement, leader: Statement, into: str, old: str, scope: Scope, shape: Shape
    ) -> None:
        """What was summed so far, as if the running maximum had been the new one all along."""
        found = scaling(self.nest, s, leader.name)
        assert found is not None
        op, slope = found
        kept = {a for a in leader.kept if a in self.tiling.tiled}
        own = (shape[0] if shape[0] in kept else None, shape[1] if shape[1] in kept else None)
        key = ("rescale", leader.name, op, slope, own)
        if (keep := scope.values.get(key)) is None:
            dtype = self.type_of(leader)
            new = self.value(leader.name, scope, own)
            if self.shape_of(old) != self.shape_of(new):
                turned = self.register(old, own, dtype)
                self.emit(scope, "transpose", [old], turned)
                old = turned
            keep = self.register(f"{leader.name}_keep", own, dtype)
            self.emit(scope, "sub", [new, old] if slope > 0 else [old, new], keep)
            if abs(slope) != 1:
                self.emit(scope, "mul", [keep, abs(slope)], keep)
            self.emit(scope, op, [keep], keep)
            scope.values[key] = keep
        self.emit(scope, "mul", [into, keep], into)

    # Stores.

    def store(self, statement: Statement, scope: Scope) -> None:
        """Writes an output, in loops of its own where it has axes that are loops."""
        if any(a not in scope.loops for a in self.tiling.loops(statement.kept)):
            self.loop(statement, scope, None)
            return
        target = statement.operation.store
        order = self.tiled_order(target.access)
        shape = self.natural(statement)
        if statement.scatters:
            value = self.elementwise(statement, scope, shape)
        else:
            value = self.value(statement.name, scope, shape)
        access = self.scheduled(target.access, scope, shape, True)
        combine = target.combine if statement.scatters else None
        op = "copy" if len(order) == 2 else "squeeze"
        edge = TiledEdge("store", access, combine)
        load = TiledEdge("load", self.graph.buffers[value].whole)
        scope.task.nodes.append(Operation(op, (load,), edge))
        self.stored.add(statement.name)

    def natural(self, statement: Statement) -> Shape:
        """Rows and columns of a value as they stand in memory."""
        tiled = self.tiled_order(statement.operation.store.access)
        core = self.tiling.cores.get(statement.name)
        if core is not None and not (statement.name in self.nest.outputs and len(tiled) == 2):
            return (core.m, core.n)
        if len(tiled) == 2:
            return (tiled[0], tiled[1])
        if not tiled:
            return (None, None)
        return (tiled[0], None) if self.is_row(tiled[0]) else (None, tiled[0])

    def is_row(self, axis: str) -> bool:
        """Does an axis run along rows' numbers: is it followed by another tiled axis in memory?"""
        before = after = 0
        for s in self.nest.statements.values():
            for edge in s.operation.edges:
                order = self.tiled_order(edge.access)
                if len(order) == 2 and axis in order:
                    before += order[0] == axis
                    after += order[1] == axis
        return before >= after and before > 0

    def type_of(self, statement: Statement) -> DType:
        return computing(self.nest.graph.buffers[statement.name].dtype)

    def shape_of(self, name: str) -> tuple[Affine, ...]:
        return self.graph.buffers[name].shape
