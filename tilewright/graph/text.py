"""The text form of a graph: printed, saved, read back. It has the syntax of Python, and is never run.

    def two_products(M, N):
        A = input(f16[M, 64])
        B = input(f16[64, N])
        D = output(f16[M, 64])
        t = buffer("register", f32[128, 128])
        for m in space("kernel", block(M, 128)):
            for n in space("over_n", sequential(N, 128)):
                t = mma(A[m:m + 128, 0:64], B[0:64, n:n + 128])
                ...
        return D

A name alone is the whole Buffer; ``[i]`` an index, ``[i:j]`` a slice, ``[ids[i]]`` a gather or scatter. ``+=``,
``*=``, ``|=``, ``&=`` accumulate (sum, product, maximum, minimum).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, NoReturn

from tilewright import dtypes
from tilewright.diagnostics import CompileError, Location
from tilewright.graph.affine import Affine, affine
from tilewright.graph.nodes import (
    COMBINES,
    MAPPINGS,
    Access,
    Axis,
    Buffer,
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

# Printing ---------------------------------------------------------------------------------------------------------


def print_graph(graph: TiledGraph) -> str:
    """The text form; :func:`parse_graph` reads it back to an equal graph."""
    lines = [f"def {graph.name}({', '.join(graph.symbols)}):"]
    lines += [f"    {line}" for b in graph.buffers.values() for line in [print_buffer(b)]]
    for task in graph.tasks:
        lines += [f"    {line}" for line in _task_lines(graph, task)]
    lines.append(f"    return {', '.join(graph.results)}".rstrip())
    return "\n".join(lines) + "\n"


def print_buffer(buffer: Buffer) -> str:
    """The declaration of a Buffer."""
    kind = f"{buffer.dtype}[{', '.join(map(str, buffer.shape)) or '()'}]"
    options = f", alias_of={print_alias(buffer)}" if buffer.alias_of is not None else ""
    options += ", zeroed=True" if buffer.zeroed else ""
    if buffer.role == "local":
        return f'{buffer.name} = buffer("{buffer.level}", {kind}{options})'
    return f"{buffer.name} = {buffer.role}({kind}{options})"


def print_alias(buffer: Buffer) -> str:
    """What a Buffer is another shape of, or the part of it that it is."""
    runs = zip(buffer.start, buffer.shape, strict=False)
    part = f"[{', '.join(f'{at}:{at + size}' for at, size in runs)}]" if buffer.start else ""
    return f"{buffer.alias_of}{part}"


def print_access(graph: TiledGraph, access: Access) -> str:
    """An access map; the name alone is the whole Buffer."""
    buffer = graph.buffers.get(access.buffer)
    if not access.entries or (buffer is not None and access == buffer.whole):
        return access.buffer
    return f"{access.buffer}[{', '.join(_entry(graph, e) for e in access.entries)}]"


def print_operation(graph: TiledGraph, operation: Operation) -> str:
    """One Operation with its edges, as a statement."""
    parts = [print_operand(graph, o) for o in operation.operands]
    parts += [f"{k}={_attribute(v)}" for k, v in operation.attributes]
    combine = operation.store.combine
    sign = f"{COMBINES[combine]}=" if combine is not None else "="
    target = print_access(graph, operation.store.access)
    return f"{target} {sign} {operation.op}({', '.join(parts)})"


def print_operand(graph: TiledGraph, operand: Operand) -> str:
    """A load, an expression, or a number."""
    if isinstance(operand, TiledEdge):
        return print_access(graph, operand.access)
    return str(operand) if isinstance(operand, Affine) else repr(float(operand))


def print_axes(task: Task) -> str:
    """The iteration space of a Task, as the head of its loop."""
    parts = [f'"{task.name}"']
    for axis in task.axes:
        step = f", {axis.step}" if axis.step != 1 else ""
        parts.append(f"{axis.mapping}({axis.extent}{step})")
    names = ", ".join(axis.name for axis in task.axes) or "_"
    return f"for {names} in space({', '.join(parts)}):"


def _task_lines(graph: TiledGraph, task: Task) -> Iterator[str]:
    yield print_axes(task)
    for node in task.nodes:
        lines = (
            _task_lines(graph, node) if isinstance(node, Task) else [print_operation(graph, node)]
        )
        for line in lines:
            yield f"    {line}"
    if not task.nodes:
        yield "    pass"


def _entry(graph: TiledGraph, entry: Entry) -> str:
    if isinstance(entry, Index):
        return str(entry.at)
    if isinstance(entry, Slice):
        return f"{entry.start}:{entry.start + entry.size}"
    return print_access(graph, entry.index)


def _attribute(value: Any) -> str:
    return str(value) if isinstance(value, Affine) else repr(value)


# Reading ----------------------------------------------------------------------------------------------------------


def load(path: str) -> TiledGraph:
    """The graph in a file of the text form. Raises CompileError, at the place, for what is none."""
    with open(path, encoding="utf-8") as file:
        return parse_graph(file.read(), path)


def parse_graph(text: str, file: str = "<graph>") -> TiledGraph:
    """The graph of a text, validated. Raises CompileError, at the place, for what is no graph."""
    reader = _Reader(text, file)
    return reader.graph().validate(reader.places)


class _Reader:
    def __init__(self, text: str, file: str):
        self.file = file
        self.lines = text.splitlines()
        self.text = text
        self.axes: list[str] = []
        self.places: dict[int, Location] = {}
        """Where Buffers and Operations stand, by identity."""
        self.found = TiledGraph("")

    def fail(self, node: ast.AST, message: str, hint: str | None = None) -> NoReturn:
        raise CompileError(message, location=self.location(node), hint=hint)

    def location(self, node: ast.AST) -> Location:
        line = getattr(node, "lineno", 1)
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        same = getattr(node, "end_lineno", line) == line
        end = getattr(node, "end_col_offset", None) if same else len(text)
        start = getattr(node, "col_offset", 0)
        return Location(self.file, line, start + 1, None if end is None else end + 1, text)

    def graph(self) -> TiledGraph:
        try:
            module = ast.parse(self.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None) or 1
            place = Location(
                self.file, line, getattr(error, "offset", None) or 1,
                text=self.lines[line - 1] if line <= len(self.lines) else "",
            )  # fmt: skip
            what = getattr(error, "msg", None) or "it nests too deep or holds what no text does"
            raise CompileError(f"the graph does not parse: {what}", location=place) from None
        if len(module.body) != 1 or not isinstance(module.body[0], ast.FunctionDef):
            where = module.body[1] if len(module.body) > 1 else module
            self.fail(where, "a graph is one def NAME(symbols): ...")
        head = module.body[0]
        self.found = TiledGraph(head.name, tuple(a.arg for a in head.args.args))
        for number, statement in enumerate(head.body):
            self.top(statement, last=number == len(head.body) - 1)
        return self.found

    def top(self, node: ast.stmt, last: bool) -> None:
        graph = self.found
        if isinstance(node, ast.For):
            graph.tasks.append(self.task(node))
        elif isinstance(node, ast.Return):
            if not last:
                self.fail(node, "return names the outputs, at the end")
            value = node.value
            items = value.elts if isinstance(value, ast.Tuple) else [value] if value else []
            graph.results = tuple(self.buffer(item) for item in items)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in graph.buffers or name in graph.symbols:
                self.fail(node.targets[0], f"the name {name} is given twice")
            buffer = graph.add(self.declaration(name, node.value))
            self.places[id(buffer)] = self.location(node)
        else:
            self.fail(node, "a graph holds Buffers, Tasks (for ... in space(...)) and a return")

    def declaration(self, name: str, node: ast.expr) -> Buffer:
        what, args, options = self.call(node)
        if what not in ("input", "output", "buffer"):
            self.fail(
                node, f"{what} declares no Buffer", "input(T[...]), output(...), buffer(LEVEL, ...)"
            )
        level = "global"
        if what == "buffer" and args:
            first, *args = args
            level = first.value if isinstance(first, ast.Constant) else None
            if not isinstance(level, str):
                self.fail(first, 'the level of a buffer is a string: "register", "global"')
        if len(args) != 1 or not isinstance(args[0], ast.Subscript):
            self.fail(node, f"{what} takes a type like f32[M, 64]")
        kind = args[0]
        try:
            dtype = dtypes.from_name(self.name(kind.value))
        except KeyError as error:
            self.fail(kind.value, str(error.args[0]))
        shape = tuple(self.affine(e) for e in self.elements(kind.slice))
        alias, start = self.memory(options.pop("alias_of", None), shape)
        zeroed = options.pop("zeroed", None)
        if options:
            self.fail(node, f"{what} has no option {next(iter(options))}")
        is_zeroed = isinstance(zeroed, ast.Constant) and zeroed.value is True
        role: Any = "local" if what == "buffer" else what
        return Buffer(name, level, shape, dtype, role, alias, is_zeroed, start)

    def memory(
        self, node: ast.expr | None, shape: tuple[Affine, ...]
    ) -> tuple[str | None, tuple[Affine, ...]]:
        """The Buffer whose memory one is, and where it begins if it is a part of it."""
        if not isinstance(node, ast.Subscript):
            return (self.buffer(node) if node is not None else None), ()
        access = self.access(node)
        starts = tuple(e.start for e in access.entries if isinstance(e, Slice))
        if access.shape != shape or len(starts) != len(shape):
            text = ", ".join(map(str, shape))
            self.fail(node, f"a part of a Buffer is a run of each of its dimensions: [{text}] here")
        return access.buffer, starts

    def task(self, node: ast.For) -> Task:
        what, args, _ = self.call(node.iter)
        if what != "space" or not args or not isinstance(args[0], ast.Constant):
            self.fail(node.iter, 'a Task is for ... in space("name", block(M, 128), ...)')
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        names = [self.name(t) for t in targets]
        if len(args) == 1 and names == ["_"]:
            names = []
        if len(names) != len(args) - 1:
            self.fail(node.iter, f"{len(names)} names for {len(args) - 1} axes")
        axes: list[Axis] = []
        for name, target, arg in zip(names, targets, args[1:], strict=False):
            mapping, parts, _ = self.call(arg)
            if mapping not in MAPPINGS or not 1 <= len(parts) <= 2:
                self.fail(arg, f"an axis is one of {', '.join(MAPPINGS)} of (extent, step)")
            if name in self.axes or name in self.found.buffers or name in self.found.symbols:
                self.fail(target, f"the name {name} is taken")
            step = self.affine(parts[1]).number if len(parts) == 2 else 1
            if step is None or step < 1:
                self.fail(arg, "a step is a positive number")
            axes.append(Axis(name, self.affine(parts[0]), mapping, step))
        self.axes += names
        task = Task(str(args[0].value), tuple(axes))
        for child in node.body:
            if isinstance(child, ast.For):
                task.nodes.append(self.task(child))
            elif not isinstance(child, ast.Pass):
                task.nodes.append(self.operation(child))
        del self.axes[len(self.axes) - len(names) :]
        return task

    def operation(self, node: ast.stmt) -> Operation:
        combine: Combine | None = None
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
        elif isinstance(node, ast.AugAssign):
            target = node.target
            kinds: dict[type[ast.operator], Any] = {
                ast.Add: "add",
                ast.Mult: "mul",
                ast.BitOr: "max",
                ast.BitAnd: "min",
            }
            found = kinds.get(type(node.op))
            if found is None:
                self.fail(node, "a store accumulates by += *= |= (maximum) or &= (minimum)")
            combine = found
        else:
            self.fail(node, "in a Task there are Operations, BUFFER[...] = op(...), and Tasks")
        what, args, options = self.call(node.value)
        operands = tuple(self.operand(a) for a in args)
        attributes = tuple((k, self.attribute(v)) for k, v in options.items())
        edge = TiledEdge("store", self.access(target), combine)
        operation = Operation(what, operands, edge, attributes)
        self.places[id(operation)] = self.location(node)
        return operation

    def operand(self, node: ast.expr) -> Operand:
        if isinstance(node, ast.Subscript) or (
            isinstance(node, ast.Name) and node.id in self.found.buffers
        ):
            return TiledEdge("load", self.access(node))
        value = self.number(node)
        return float(value) if isinstance(value, float) else self.affine(node)

    def number(self, node: ast.expr) -> Any:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.number(node.operand)
            return -inner if isinstance(inner, (float, int)) else None
        if isinstance(node, ast.Name) and node.id in ("inf", "nan"):
            return float(node.id)
        return node.value if isinstance(node, ast.Constant) else None

    def attribute(self, node: ast.expr) -> Any:
        value = self.number(node)
        return value if isinstance(value, (float, int, str)) else self.affine(node)

    def access(self, node: ast.expr) -> Access:
        if isinstance(node, ast.Name):
            return self.found.buffers[self.buffer(node)].whole
        if not isinstance(node, ast.Subscript):
            self.fail(node, "this is no Buffer, and no part of one")
        name = self.buffer(node.value)
        return Access(name, tuple(self.entry(e) for e in self.elements(node.slice)))

    def entry(self, node: ast.expr) -> Entry:
        if isinstance(node, ast.Slice):
            if node.lower is None or node.upper is None or node.step is not None:
                self.fail(node, "a slice says both ends, and has no step")
            start = self.affine(node.lower)
            return Slice(start, self.affine(node.upper) - start)
        if isinstance(node, ast.Subscript) or (
            isinstance(node, ast.Name) and node.id in self.found.buffers
        ):
            return Gather(self.access(node))
        return Index(self.affine(node))

    def elements(self, node: ast.expr) -> list[ast.expr]:
        return list(node.elts) if isinstance(node, ast.Tuple) else [node]

    def affine(self, node: ast.expr) -> Affine:
        if isinstance(node, ast.Name):
            if node.id not in self.found.symbols and node.id not in self.axes:
                self.fail(node, f"{node.id} is no symbol of the graph and no axis around")
            return affine(node.id)
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return affine(node.value)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self.affine(node.operand)
        if isinstance(node, ast.BinOp):
            left, right = self.affine(node.left), self.affine(node.right)
            if isinstance(node.op, ast.Add):
                return left + right
            if isinstance(node.op, ast.Sub):
                return left - right
            if isinstance(node.op, ast.Mult):
                for factor, other in ((left.number, right), (right.number, left)):
                    if factor is not None:
                        return other * factor
        self.fail(node, "an extent or offset is a sum of names times numbers")

    def buffer(self, node: ast.expr) -> str:
        name = self.name(node)
        if name not in self.found.buffers:
            hint = f'declare it before the Tasks: {name} = buffer("register", f32[...])'
            self.fail(node, f"no Buffer is called {name}", hint)
        return name

    def name(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Name):
            self.fail(node, "a name is expected here")
        return node.id

    def call(self, node: ast.expr) -> tuple[str, list[ast.expr], dict[str, ast.expr]]:
        if not isinstance(node, ast.Call):
            self.fail(node, "a call is expected here: op(...)")
        options: dict[str, ast.expr] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                self.fail(node, "** has no meaning in a graph")
            options[keyword.arg] = keyword.value
        return self.name(node.func), list(node.args), options
