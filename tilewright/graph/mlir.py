"""A graph as MLIR, in the `tgraph` dialect, and back.

text = print_mlir(graph)
parse_mlir(text) == graph
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from xdsl.builder import Builder
from xdsl.dialects import arith
from xdsl.dialects.affine import ApplyOp
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AffineMapAttr,
    ArrayAttr,
    DictionaryAttr,
    FloatAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    NoneAttr,
    StringAttr,
    TensorType,
    UnitAttr,
    f64,
    i64,
)
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
)
from xdsl.rewriter import InsertPoint

from tilewright import dtypes
from tilewright.diagnostics import CompileError, TilewrightError, error_at
from tilewright.dialects import tgraph
from tilewright.dialects.text import parse_module, print_module
from tilewright.graph.affine import Affine, affine
from tilewright.graph.nodes import (
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
)


def print_mlir(graph: TiledGraph, *, generic: bool = False) -> str:
    """The graph as a module of the `tgraph` dialect; `generic` prints what any MLIR tool reads."""
    return print_module(_Printer(graph).module(), generic=generic)


def parse_mlir(text: str, file: str = "<graph>") -> TiledGraph:
    """The graph of a module. Raises CompileError, at the place, for what is none or breaks a rule of graphs."""
    module = parse_module(text, file)
    try:
        return _graph_of(module)
    except CompileError as error:
        place = error.location
        if place is not None:
            error.location = replace(place, text=text.splitlines()[place.line - 1])
        raise


def _graph_of(module: ModuleOp) -> TiledGraph:
    graphs = [op for op in module.walk() if isinstance(op, tgraph.GraphOp)]
    if len(graphs) != 1:
        raise error_at(module, f"{len(graphs)} graphs stand in the module, not one")
    found = _Reader(graphs[0]).graph()
    try:
        return found.validate()
    except CompileError as error:
        tasks = [op for op in graphs[0].walk() if isinstance(op, tgraph.TaskOp)]
        names = (t for t in tasks if error.message.startswith(f"Task {t.sym_name.data}:"))
        where = next(names, graphs[0])
        raise error_at(where, error.message, rule=error.rule, hint=error.hint) from None


# Printing ---------------------------------------------------------------------------------------------------------


class _Printer:
    def __init__(self, graph: TiledGraph):
        self.graph = graph
        self.variables: dict[str, SSAValue] = {}
        """Symbols, and the iteration variables around."""
        self.buffers: dict[str, SSAValue] = {}
        self.at = Builder(InsertPoint.at_end(Block()))

    def module(self) -> ModuleOp:
        graph = self.graph
        body = self.block(graph.symbols)
        for buffer in graph.buffers.values():
            self.buffer(buffer)
        for task in graph.tasks:
            self.task(task)
        self.at.insert(tgraph.ReturnOp(operands=[[self.buffers[n] for n in graph.results]]))
        made = tgraph.GraphOp(
            properties={"sym_name": StringAttr(graph.name), "symbols": _strings(graph.symbols)},
            regions=[Region(body)],
        )
        return ModuleOp([made])

    def block(self, names: Sequence[str]) -> Block:
        """A body whose arguments are called so; what follows is inserted there."""
        body = Block(arg_types=[IndexType()] * len(names))
        for name, argument in zip(names, body.args, strict=True):
            argument.name_hint = name
            self.variables[name] = argument
        self.at = Builder(InsertPoint.at_end(body))
        return body

    def maps(self, expressions: Sequence[Affine]) -> tuple[AffineMapAttr, list[SSAValue]]:
        """Expressions as one map, and what it is applied to."""
        names = list(dict.fromkeys(n for e in expressions for n in e.names))
        return _map(expressions, names), [self.variables[n] for n in names]

    def buffer(self, buffer: Buffer) -> None:
        names = list(dict.fromkeys(n for e in (*buffer.shape, *buffer.start) for n in e.names))
        extents, symbols = _map(buffer.shape, names), [self.variables[n] for n in names]
        kind = MemRefType(
            buffer.dtype.mlir, _static(buffer.shape), NoneAttr(), StringAttr(buffer.level)
        )
        alias = [self.buffers[buffer.alias_of]] if buffer.alias_of is not None else []
        properties: dict[str, Attribute] = {
            "sym_name": StringAttr(buffer.name),
            "role": StringAttr(buffer.role),
            "extents": extents,
        }
        if buffer.zeroed:
            properties["zeroed"] = UnitAttr()
        if buffer.start:
            properties["start"] = _map(buffer.start, names)
        made = self.at.insert(
            tgraph.BufferOp(operands=[symbols, alias], result_types=[kind], properties=properties)
        )
        made.buffer.name_hint = buffer.name
        self.buffers[buffer.name] = made.buffer

    def task(self, task: Task) -> None:
        extents, symbols = self.maps([a.extent for a in task.axes])
        outside, known = self.at, dict(self.variables)
        body = self.block([a.name for a in task.axes])
        for node in task.nodes:
            if isinstance(node, Task):
                self.task(node)
            else:
                self.operation(node)
        self.at, self.variables = outside, known
        properties: dict[str, Attribute] = {
            "sym_name": StringAttr(task.name),
            "axes": _strings([a.name for a in task.axes]),
            "mappings": _strings([a.mapping for a in task.axes]),
            "extents": extents,
            "steps": ArrayAttr([IntegerAttr(a.step, i64) for a in task.axes]),
        }
        self.at.insert(
            tgraph.TaskOp(operands=[symbols], properties=properties, regions=[Region(body)])
        )

    def operation(self, operation: Operation) -> None:
        inputs = [self.operand(o) for o in operation.operands]
        details: dict[str, Attribute] = {}
        for key, value in operation.attributes:
            if isinstance(value, Affine):
                inputs.append(self.operand(value))
            else:
                details[key] = _attribute(value)
        target = operation.store.access
        dtype = self.graph.buffers[target.buffer].dtype
        made = self.at.insert(
            tgraph.OperationOp(
                operands=[inputs],
                result_types=[TensorType(dtype.mlir, _static(target.shape))],
                properties={
                    "op": StringAttr(operation.op),
                    "details": DictionaryAttr(details),
                    "names": _strings([key for key, _ in operation.attributes]),
                },
            )
        )
        self.edge(operation.store, made.result)

    def operand(self, operand: Operand) -> SSAValue:
        if isinstance(operand, TiledEdge):
            return self.edge(operand, None)
        if isinstance(operand, Affine):
            maps, values = self.maps([operand])
            return self.at.insert(ApplyOp(values, maps)).result
        return self.at.insert(arith.ConstantOp(FloatAttr(float(operand), f64))).result

    def edge(self, edge: TiledEdge, value: SSAValue | None) -> SSAValue:
        """A load, or the store of a value."""
        access = edge.access
        gathers = [
            self.edge(TiledEdge("load", e.index), None)
            for e in access.entries
            if isinstance(e, Gather)
        ]
        starts = [_start(e) for e in access.entries]
        sizes = [e.size if isinstance(e, Slice) else affine(1) for e in access.entries]
        names = list(dict.fromkeys(n for e in (*starts, *sizes) for n in e.names))
        properties: dict[str, Attribute] = {
            "kinds": _strings([type(e).__name__.lower() for e in access.entries]),
            "starts": _map(starts, names),
            "sizes": _map(sizes, names),
        }
        if edge.combine is not None:
            properties["combine"] = StringAttr(edge.combine)
        buffer, indices = self.buffers[access.buffer], [self.variables[n] for n in names]
        if value is not None:
            self.at.insert(
                tgraph.StoreOp(operands=[value, buffer, indices, gathers], properties=properties)
            )
            return value
        kind = TensorType(self.graph.buffers[access.buffer].dtype.mlir, _static(access.shape))
        made = tgraph.LoadOp(
            operands=[buffer, indices, gathers], result_types=[kind], properties=properties
        )
        return self.at.insert(made).value


def _start(entry: Entry) -> Affine:
    if isinstance(entry, Index):
        return entry.at
    return entry.start if isinstance(entry, Slice) else Affine()


def _strings(names: Sequence[str]) -> ArrayAttr[StringAttr]:
    return ArrayAttr([StringAttr(name) for name in names])


def _static(shape: Sequence[Affine]) -> list[int]:
    return [DYNAMIC_INDEX if e.number is None else e.number for e in shape]


def _map(expressions: Sequence[Affine], names: Sequence[str]) -> AffineMapAttr:
    results: list[AffineExpr] = []
    for expression in expressions:
        total: AffineExpr | None = None
        for name, factor in expression.terms:
            term: AffineExpr = AffineExpr.dimension(names.index(name))
            term = term if factor == 1 else term * AffineExpr.constant(factor)
            total = term if total is None else total + term
        if total is None or expression.constant:
            constant = AffineExpr.constant(expression.constant)
            total = constant if total is None else total + constant
        results.append(total)
    return AffineMapAttr(AffineMap(len(names), 0, tuple(results)))


def _attribute(value: Any) -> Attribute:
    if isinstance(value, str):
        return StringAttr(value)
    if isinstance(value, float):
        return FloatAttr(value, f64)
    return IntegerAttr(int(value), i64)


# Reading ----------------------------------------------------------------------------------------------------------


class _Reader:
    def __init__(self, op: tgraph.GraphOp):
        self.op = op
        self.names: dict[SSAValue, str] = {}
        """What symbols, iteration variables and Buffers are called."""
        self.found = TiledGraph(op.sym_name.data, tuple(tgraph.words(op.symbols)))

    def graph(self) -> TiledGraph:
        self.bind(self.op.body.block, self.found.symbols)
        for op in self.op.body.block.ops:
            if isinstance(op, tgraph.BufferOp):
                self.buffer(op)
            elif isinstance(op, tgraph.TaskOp):
                self.found.tasks.append(self.task(op))
            elif isinstance(op, tgraph.ReturnOp):
                self.found.results = tuple(self.name(op, v) for v in op.outputs)
            else:
                raise error_at(op, "a graph holds Buffers, Tasks and a return")
        return self.found

    def bind(self, block: Block, names: Sequence[str]) -> None:
        for argument, name in zip(block.args, names, strict=True):
            if name in self.names.values() or not name.isidentifier():
                raise error_at(block.parent_op(), f"the name {name} is taken, or no name")
            self.names[argument] = name

    def name(self, op: Any, value: SSAValue) -> str:
        if value not in self.names:
            raise error_at(op, "this is no Buffer, symbol or iteration variable of the graph")
        return self.names[value]

    def affines(self, op: Any, maps: AffineMapAttr, values: Sequence[SSAValue]) -> list[Affine]:
        names = [self.name(op, v) for v in values]
        return [_linear(op, e, names) for e in maps.data.results]

    def buffer(self, op: tgraph.BufferOp) -> None:
        name, kind = op.sym_name.data, cast(Any, op.buffer.type)
        if name in self.names.values() or not name.isidentifier():
            raise error_at(op, f"the name {name} is taken, or no name")
        shape = self.affines(op, op.extents, op.symbols)
        if list(kind.get_shape()) != _static(shape):
            raise error_at(op, f"{kind} does not have the extents {', '.join(map(str, shape))}")
        alias = self.name(op, op.alias) if op.alias is not None else None
        self.names[op.buffer] = name
        role = cast(Any, op.role.data)
        level, dtype = kind.memory_space.data, self.dtype(op, kind.element_type)
        start = tuple(self.affines(op, op.start, op.symbols)) if op.start is not None else ()
        zeroed = op.zeroed is not None
        self.found.add(Buffer(name, level, tuple(shape), dtype, role, alias, zeroed, start))

    def dtype(self, op: Any, kind: Attribute) -> dtypes.DType:
        try:
            return dtypes.from_mlir(kind)
        except (KeyError, TilewrightError):
            raise error_at(op, f"elements of {kind} are none of a graph's") from None

    def task(self, op: tgraph.TaskOp) -> Task:
        extents = self.affines(op, op.extents, op.symbols)
        names, mappings = tgraph.words(op.axes), cast(Any, tgraph.words(op.mappings))
        steps = [s.value.data for s in op.steps]
        axes = tuple(map(Axis, names, extents, mappings, steps))
        self.bind(op.body.block, names)
        task = Task(op.sym_name.data, axes)
        for child in op.body.block.ops:
            if isinstance(child, tgraph.TaskOp):
                task.nodes.append(self.task(child))
            elif isinstance(child, tgraph.StoreOp):
                task.nodes.append(self.operation(child))
            elif not isinstance(child, (tgraph.LoadOp, tgraph.OperationOp, ApplyOp, arith.ConstantOp)):  # fmt: skip
                raise error_at(child, "a Task holds loads, operations, stores and Tasks")
        for argument in op.body.block.args:
            del self.names[argument]
        return task

    def operation(self, store: tgraph.StoreOp) -> Operation:
        op = store.value.owner
        if not isinstance(op, tgraph.OperationOp) or op.parent is not store.parent:
            raise error_at(store, "a store takes the result of an operation of its Task")
        if len(list(op.result.uses)) != 1:
            raise error_at(op, "the result of an operation is stored once")
        operands = [self.operand(op, v) for v in op.inputs]
        late = op.expressions
        plain = operands[: len(operands) - len(late)]
        values = {k: _value(op, v) for k, v in op.details.data.items()}
        values |= zip(late, operands[len(plain) :], strict=True)
        attributes = [(name, values[name]) for name in tgraph.words(op.names)]
        combine = cast(Any, store.combine.data if store.combine is not None else None)
        edge = TiledEdge("store", self.access(store), combine)
        return Operation(op.op.data, tuple(plain), edge, tuple(attributes))

    def operand(self, op: Any, value: SSAValue) -> Operand:
        owner = value.owner
        if isinstance(owner, tgraph.LoadOp):
            return TiledEdge("load", self.access(owner))
        if isinstance(owner, ApplyOp):
            return self.affines(owner, owner.map, owner.mapOperands)[0]
        if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, FloatAttr):
            return float(owner.value.value.data)
        raise error_at(op, "an operand is a load, an affine.apply or an f64 constant")

    def access(self, op: tgraph.LoadOp | tgraph.StoreOp) -> Access:
        starts = self.affines(op, op.starts, op.indices)
        sizes = self.affines(op, op.sizes, op.indices)
        gathers = iter(op.gathers)
        entries: list[Entry] = []
        for kind, start, size in zip(tgraph.words(op.kinds), starts, sizes, strict=True):
            if kind != "gather":
                entries.append(Index(start) if kind == "index" else Slice(start, size))
                continue
            owner = next(gathers).owner
            if not isinstance(owner, tgraph.LoadOp):
                raise error_at(op, "the indices of a gather are loaded")
            entries.append(Gather(self.access(owner)))
        return Access(self.name(op, op.buffer), tuple(entries))


def _linear(op: Any, expression: AffineExpr, names: Sequence[str]) -> Affine:
    match expression:
        case AffineConstantExpr():
            return affine(expression.value)
        case AffineDimExpr():
            return affine(names[expression.position])
        case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Add):
            return _linear(op, expression.lhs, names) + _linear(op, expression.rhs, names)
        case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Mul):
            left, right = (_linear(op, e, names) for e in (expression.lhs, expression.rhs))
            if left.number is not None:
                return right * left.number
            if right.number is not None:
                return left * right.number
        case _:
            pass
    raise error_at(op, f"{expression} is no sum of variables times numbers")


def _value(op: Any, attribute: Attribute) -> Any:
    values: Mapping[type, Any] = {
        StringAttr: lambda a: a.data,
        FloatAttr: lambda a: float(a.value.data),
        IntegerAttr: lambda a: int(a.value.data),
    }
    read = values.get(type(attribute))
    if read is None:
        raise error_at(op, f"{attribute} is no string and no number")
    return read(attribute)
