"""What a sum lets through: rules on expressions, derived from the operations, that know no kernel.

Three rules. *Base two*: machines raise 2, so ``exp(x)`` is ``exp2(x log2 e)``; where the factor goes into constants
that are there already, through differences and maxima, nothing is computed for it:

    s[i, j] = mul(p[i, j], 0.125)              s[i, j] = mul(p[i, j], 0.18033688)
    top[i] |= copy(s[i, j])              ->    top[i] |= copy(s[i, j])
    d[i, j] = sub(s[i, j], top[i])             d[i, j] = sub(s[i, j], top[i])
    e[i, j] = exp(d[i, j])                     e[i, j] = exp2(d[i, j])

*Distribution*: a factor that the reduced index does not move leaves the sum, if it needs a reduction
itself (else there is nothing to win):

    o[i, e] += mma(p[i, j], v[j, e])           u[i, e] += mma(x[i, j], v[j, e])
    with p[i, j] = x[i, j] / l[i]        ->    o[i, e] = u[i, e] / l[i]

*Rescaling*: ``exp(x - r)`` with r replaced by r' is ``exp(x - r) * exp(r - r')``. So a sum of terms that depend on a
running maximum r only in this way need not start again when r grows: what was summed is multiplied by exp(r - r').
:func:`scaling` finds the coefficient: the power of e (or 2) by which an expression grows per unit of r.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import e, isinf, log2

from tilewright.frozen import frozen, record
from tilewright.graph.affine import Affine
from tilewright.graph.nest import Nest, Statement
from tilewright.graph.nodes import (
    Buffer,
    Index,
    Operand,
    Operation,
    Task,
    TiledEdge,
    TiledGraph,
    unused,
)
from tilewright.graph.operations import computing

Scaling = tuple[str, float]
"""``("exp", c)``: the value is proportional to exp(c r)."""


def scaling(nest: Nest, statement: Statement, source: str) -> Scaling | None:
    """How the terms of a sum grow with the value ``source``; None where no single factor tells.

    For the terms of `statement`, which is a sum of them; ``("", 0)`` where they do not depend on it.
    """
    return _scaled_terms(nest, statement, source)


def _free(nest: Nest, operand: Operand, source: str) -> bool:
    if not isinstance(operand, TiledEdge):
        return True
    name = operand.access.buffer
    return name not in nest.statements or source not in nest.reach[name]


_CONSTANT: Scaling = ("", 0.0)


def _scaled(nest: Nest, operand: Operand, source: str) -> Scaling | None:
    if _free(nest, operand, source):
        return _CONSTANT
    assert isinstance(operand, TiledEdge)
    name = operand.access.buffer
    if name == source or nest.statements[name].is_reduction:
        return None
    return _scaled_terms(nest, nest.statements[name], source)


def _scaled_terms(nest: Nest, statement: Statement, source: str) -> Scaling | None:
    """How what a statement computes, before it is combined, grows with ``source``."""
    op, operands = statement.operation.op, statement.operation.operands
    if op in ("exp", "exp2"):
        slope = _slope(nest, operands[0], source)
        return None if slope is None else (op, slope)
    if op in ("copy", "cast", "neg"):
        return _scaled(nest, operands[0], source)
    if op in ("mul", "mma", "div"):
        left, right = (_scaled(nest, o, source) for o in operands)
        if left is None or right is None:
            return None
        if left[0] and right[0] and left[0] != right[0]:
            return None
        return (left[0] or right[0], left[1] + (-right[1] if op == "div" else right[1]))
    if op in ("add", "sub"):
        left, right = (_scaled(nest, o, source) for o in operands)
        return left if left == right else None
    if op == "where" and _free(nest, operands[0], source):
        sides = [_scaled(nest, o, source) for o in operands[1:] if o not in (0.0, Affine())]
        return sides[0] if len(set(sides)) == 1 else None
    return None


def _slope(nest: Nest, operand: Operand, source: str) -> float | None:
    """The constant c of an expression that is c * source and something free of it; None where it is no such."""
    if _free(nest, operand, source):
        return 0.0
    assert isinstance(operand, TiledEdge)
    name = operand.access.buffer
    if name == source:
        return 1.0
    statement = nest.statements[name]
    if statement.is_reduction:
        return None
    op, operands = statement.operation.op, statement.operation.operands
    if op in ("copy", "cast"):
        return _slope(nest, operands[0], source)
    if op == "neg":
        inner = _slope(nest, operands[0], source)
        return None if inner is None else -inner
    if op in ("add", "sub"):
        left, right = (_slope(nest, o, source) for o in operands)
        if left is None or right is None:
            return None
        return left + right if op == "add" else left - right
    if op in ("mul", "div"):
        left, right = operands
        if op == "mul" and _number(left) is not None:
            left, right = right, left
        factor, inner = _number(right), _slope(nest, left, source)
        if factor is None or inner is None or factor == 0:
            return None
        return inner * factor if op == "mul" else inner / factor
    return None


def _number(operand: Operand) -> float | None:
    if isinstance(operand, Affine):
        return operand.number
    return operand if isinstance(operand, float) else None


# Distribution -----------------------------------------------------------------------------------------------------


@record
class _Factor:
    op: str
    operand: TiledEdge


@frozen
class Distributed:
    """A graph whose sums have let factors out, without Tasks that nothing needs."""

    graph: TiledGraph
    moved: Mapping[str, tuple[str, ...]]
    """For each of those sums: what is summed now, and the factors."""


def distribute(graph: TiledGraph, held: frozenset[str] = frozenset()) -> Distributed:
    """Moves factors out of sums by the rule of distribution; the sums in ``held`` keep theirs."""
    return _Distribute(graph, held).run()


class _Distribute:
    def __init__(self, graph: TiledGraph, held: frozenset[str]):
        self.held = held
        self.moved: dict[str, tuple[str, ...]] = {}
        self.graph = TiledGraph(graph.name, graph.symbols, dict(graph.buffers), [], graph.results)
        self.tasks = {t.nodes[0].store.access.buffer: t for t in graph.tasks}  # pyright: ignore
        self.heavy: set[str] = set()

    def run(self) -> Distributed:
        for name in list(self.tasks):
            self.visit(name)
        self.graph.tasks = list(self.tasks.values())
        return Distributed(self.graph.needed(), self.moved)

    def visit(self, name: str) -> None:
        task = self.tasks[name]
        operation = _only(task)
        reduced = _reduced(task)
        if reduced or any(e.access.buffer in self.heavy for e in operation.loads):
            self.heavy.add(name)
        if not reduced or operation.store.combine != "add" or not _is_float(self.graph, name):
            return
        if operation.op not in ("mma", "copy", "mul") or name in self.held:
            return
        factors: list[_Factor] = []
        operands: list[Operand] = []
        for operand in operation.operands:
            core = self.extract(operand, frozenset(reduced), factors)
            operands.append(core)
        if factors:
            self.replace(task, tuple(operands), factors)

    def extract(self, operand: Operand, reduced: frozenset[str], out: list[_Factor]) -> Operand:
        """The operand without the factors that leave the sum over ``reduced``; they go to ``out``."""
        if not isinstance(operand, TiledEdge) or operand.access.buffer not in self.tasks:
            return operand
        inner = self.tasks[operand.access.buffer]
        operation = _only(inner)
        if operation.op not in ("mul", "div") or _reduced(inner) or len(operation.loads) != 2:
            return operand
        if not all(isinstance(e, Index) for e in operand.access.entries):
            return operand
        values: dict[str, Affine] = {}
        for stored, read in zip(
            operation.store.access.entries, operand.access.entries, strict=True
        ):
            assert isinstance(stored, Index) and isinstance(read, Index)
            if stored.at.name is not None:
                values[stored.at.name] = read.at
        left, right = operation.loads
        if operation.op == "mul" and self.leaves(left, values, reduced):
            left, right = right, left
        kinds = {self.graph.buffers[e.access.buffer].dtype for e in (operand, left)}
        if len(kinds) > 1:  # a sum of a wide type: products take it rounded, with its factors
            return operand
        if self.leaves(right, values, reduced):
            out.append(_Factor(operation.op, _moved(right, values)))
            return self.extract(_moved(left, values), reduced, out)
        local = frozenset(n for n, at in values.items() if reduced.intersection(at.names))
        found: list[_Factor] = []
        core = self.extract(left, local, found)
        if not found:
            return operand
        name = self.new(operand.access.buffer, self.graph.buffers[operand.access.buffer].shape)
        at = replace(operation.store, access=replace(operation.store.access, buffer=name))
        made = Task(name, inner.axes, [Operation(operation.op, (core, right), at)])
        self.insert(made, operand.access.buffer)
        out += [_Factor(f.op, _moved(f.operand, values)) for f in found]
        return replace(operand, access=replace(operand.access, buffer=name))

    def leaves(
        self, edge: TiledEdge, values: Mapping[str, Affine], reduced: frozenset[str]
    ) -> bool:
        moved = _moved(edge, values)
        return edge.access.buffer in self.heavy and not reduced & moved.access.names

    def replace(self, task: Task, operands: tuple[Operand, ...], factors: list[_Factor]) -> None:
        operation = _only(task)
        name = operation.store.access.buffer
        core = self.new(name, self.graph.buffers[name].shape, wide=True)
        store = replace(operation.store, access=replace(operation.store.access, buffer=core))
        self.insert(
            Task(core, task.axes, [replace(operation, operands=operands, store=store)]), name
        )
        self.heavy.add(core)
        self.moved[name] = (core, *(f.operand.access.buffer for f in factors))
        kept = tuple(a for a in task.axes if a.name not in _reduced(task))
        at = TiledEdge("load", store.access)
        for number, factor in enumerate(factors):
            last = number == len(factors) - 1
            target = name if last else self.new(name, self.graph.buffers[name].shape, wide=True)
            edge = TiledEdge("store", replace(store.access, buffer=target))
            made = Task(target, kept, [Operation(factor.op, (at, factor.operand), edge)])
            if last:
                self.tasks[name] = made
            else:
                self.insert(made, name)
            at = TiledEdge("load", edge.access)

    def new(self, base: str, shape: tuple[Affine, ...], wide: bool = False) -> str:
        """A Buffer beside ``base``; a sum whose factors have left may need the range of a `wide` type."""
        like, name = self.graph.buffers[base], unused(f"{base}_part", self.graph.buffers)
        self.graph.add(
            Buffer(name, like.level, shape, computing(like.dtype) if wide else like.dtype)
        )
        return name

    def insert(self, task: Task, before: str) -> None:
        """Adds a Task in front of the one that makes ``before``."""
        tasks: dict[str, Task] = {}
        for name, each in self.tasks.items():
            if name == before:
                tasks[task.name] = task
            tasks[name] = each
        self.tasks = tasks


def _only(task: Task) -> Operation:
    (node,) = task.nodes
    assert isinstance(node, Operation)
    return node


def _moved(edge: TiledEdge, values: Mapping[str, Affine]) -> TiledEdge:
    return replace(edge, access=edge.access.substitute(values))


def _reduced(task: Task) -> list[str]:
    kept = _only(task).store.access.names
    return [a.name for a in task.axes if a.name not in kept]


def _is_float(graph: TiledGraph, name: str) -> bool:
    return graph.buffers[name].dtype.is_float


# Base two ---------------------------------------------------------------------------------------------------------

LOG2_E = log2(e)
MOST = 3.0e38
"""Finite numbers of f32 stay below: what stands for "not seen" must not become infinite."""


def base_two(graph: TiledGraph) -> TiledGraph:
    """The graph with exp2 for every exp whose argument takes the factor for nothing; Tasks without a use are gone."""
    made = _BaseTwo(graph)
    for task in graph.tasks:
        if _only(task).op == "exp":
            made.rewrite(task)
    return made.result()


class _BaseTwo:
    def __init__(self, graph: TiledGraph):
        self.graph = TiledGraph(
            graph.name, graph.symbols, dict(graph.buffers), graph.tasks, graph.results
        )
        self.tasks = {_only(t).store.access.buffer: t for t in graph.tasks}
        """What makes each Buffer, without Tasks that no result needs any more."""
        self.before: dict[str, str] = {}
        """What new Tasks make, by the Buffer in front of whose Task each stands."""
        self.names: dict[str, str | None] = {}
        self.readers = Counter(m for t in graph.tasks for m in self.read(t))
        self.makers: dict[str, list[str]] = {}
        for name in self.tasks:
            self.makers.setdefault(graph.memory(name), []).append(name)
        self.needed = {graph.memory(n) for n in graph.results}

    def read(self, task: Task) -> set[str]:
        """The memory that a Task reads."""
        return {self.graph.memory(a.buffer) for a in _only(task).reads}

    def rewrite(self, exp: Task) -> None:
        """Makes exp2 of an exp, unless there were more Tasks then."""
        operation = _only(exp)
        self.names = {}
        argument = self.scaled(operation.operands[0])
        added = {n: made for n, made in self.names.items() if made is not None}
        if argument is not None:
            made = Task(exp.name, exp.axes, [replace(operation, op="exp2", operands=(argument,))])
            readers = self.readers.copy()
            new = [made, *(self.tasks[n] for n in added.values())]
            readers.update(memory for task in new for memory in self.read(task))
            unused = self.without(exp, readers)
            if len(added) <= len(unused):
                self.tasks[operation.store.access.buffer] = made
                self.before |= added
                self.readers = readers
                for name in unused:
                    del self.tasks[name]
                for name in added.values():
                    self.makers.setdefault(self.graph.memory(name), []).append(name)
                return
        for name in added.values():
            del self.tasks[name], self.graph.buffers[name]

    def without(self, task: Task, readers: Counter[str]) -> list[str]:
        """What nothing reads without this reader, and without those that are found; they leave ``readers``."""
        found: list[str] = []
        work = [task]
        while work:
            for memory in self.read(work.pop()):
                readers[memory] -= 1
                if not readers[memory] and memory not in self.needed:
                    names = [n for n in self.makers.get(memory, ()) if n in self.tasks]
                    found += names
                    work += [self.tasks[n] for n in names]
        return found

    def result(self) -> TiledGraph:
        graph, tasks = self.graph, list[Task]()

        def emit(name: str) -> None:
            if name in self.before:
                emit(self.before[name])
            if name in self.tasks:
                tasks.append(self.tasks[name])

        for task in graph.tasks:
            emit(_only(task).store.access.buffer)
        graph.tasks = tasks
        return graph.needed()

    def scaled(self, operand: Operand) -> Operand | None:
        """An operand times log2 e; None where that would be an operation more."""
        number = _number(operand)
        if number is not None:
            made = number * LOG2_E
            return made if abs(made) < MOST or isinf(number) else None
        if not isinstance(operand, TiledEdge) or operand.access.buffer not in self.tasks:
            return None
        name = operand.access.buffer
        if name not in self.names:
            self.names[name] = self.scaled_task(self.tasks[name])
        to = self.names[name]
        return None if to is None else replace(operand, access=replace(operand.access, buffer=to))

    def scaled_task(self, task: Task) -> str | None:
        """The Buffer of a new Task that makes what ``task`` makes, times log2 e."""
        operation = _only(task)
        name, op, operands = operation.store.access.buffer, operation.op, list(operation.operands)
        if not _is_float(self.graph, name) or operation.store.combine not in (None, "max", "min"):
            return None
        which = {"mul": [1], "div": [1], "where": [1, 2]}.get(op, range(len(operands)))
        if op == "mul" and _number(operands[1]) is None:
            which = [0]
        if op not in ("add", "sub", "neg", "copy", "max", "min", "mul", "div", "where"):
            return None
        for i in which:
            number = _number(operands[i])
            if op in ("mul", "div") and number is None:
                return None
            if op == "div" and number is not None:
                operands[i] = number / LOG2_E
                continue
            made = self.scaled(operands[i])
            if made is None:
                return None
            operands[i] = made
        made_name = f"{name}_base2"
        if made_name in self.graph.buffers:
            return None
        like = self.graph.buffers[name]
        self.graph.add(replace(like, name=made_name, role="local", zeroed=False))
        store = replace(operation.store, access=replace(operation.store.access, buffer=made_name))
        node = replace(operation, operands=tuple(operands), store=store)
        self.tasks[made_name] = Task(made_name, task.axes, [node])
        return made_name
