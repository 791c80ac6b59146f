"""Micro-ops: a Task of operations and macro kernels at the register level, which is one Operation a level up.

    @G.micro_op
    def micro_op_a(m, a, b, p):
        a_r, b_r = m.copy(a), m.copy(b)        # load a', load b'
        return m.mma(a_r, b_r, into=p)         # mma (a', b')

The function runs once, when it is defined; ``m`` has every operation of the table by its name, macro kernels and other
micro-ops included. What it records is a Task, from which the rest is derived: the text in the tile language that
kernels call, what it does to numpy arrays, and its arithmetic. It is called as any macro kernel is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tilewright.diagnostics import CompileError
from tilewright.graph.macro import BODIES, macro_kernel
from tilewright.graph.nodes import Access, Operation, Task, TiledEdge, unused
from tilewright.graph.operations import REDUCTIONS
from tilewright.graph.operations import operation as entry_of
from tilewright.runtime.source import define

KINDS = ("elementwise", "mma", "reduce", "transpose", "macro")
"""What may stand in a micro-op: what takes tiles as they are, wherever they lie."""


class Recorder:
    """``m`` of a micro-op: its attributes are operations, of which each call adds one to the Task."""

    def __init__(self, task: Task, names: list[str]):
        self._task = task
        self._names = names

    def __getattr__(self, op: str) -> Callable[..., Value]:
        entry = entry_of(op)
        if op.startswith("__") or entry is None or entry.kind not in KINDS:
            raise CompileError(f"micro-op {self._task.name}: there is no operation {op} on tiles")
        taken = entry

        def call(*operands: Value | float, into: Value | None = None, **attributes: Any) -> Value:
            if len(operands) != taken.arity:
                raise CompileError(
                    f"micro-op {self._task.name}: {op} takes {taken.arity} operands, not {len(operands)}"
                )
            parts = [_edge(o) if isinstance(o, Value) else float(o) for o in operands]
            made = into.name if into is not None else unused(f"{op}_r", self._names)
            self._names.append(made)
            edge = TiledEdge("store", Access(made, ()), "add" if into is not None else None)
            self._task.nodes.append(
                Operation(op, tuple(parts), edge, tuple(sorted(attributes.items())))
            )
            return Value(made)

        return call


class Value:
    """A tile in the body of a micro-op."""

    def __init__(self, name: str):
        self.name = name


def _edge(value: Value) -> TiledEdge:
    return TiledEdge("load", Access(value.name, ()))


def micro_op(function: Callable[..., Any]) -> Any:
    """Registers a function of a recorder and tiles as an operation of graphs, under its own name.

    The result is the kernel's body in the tile language; its attribute ``task`` is the Task that was recorded. Raises
    CompileError for an operation that there is not, a result that is no tile of it, and a name that is taken.
    """
    name = str(getattr(function, "__name__", "micro_op"))
    _, *operands = inspect.signature(function).parameters
    task = Task(name, ())
    result = function(Recorder(task, list(operands)), *map(Value, operands))
    if not isinstance(result, Value):
        raise CompileError(f"micro-op {name} returns {result!r}, which is no tile of it")
    last = result.name
    steps = [n for n in task.nodes if isinstance(n, Operation)]

    def meaning(*arrays: Any) -> Any:
        values = dict(zip(operands, arrays, strict=True))
        for step in steps:
            _mean(step, values)
        return values[last]

    flops = sum(entry.flops for s in steps if (entry := entry_of(s.op)) is not None)
    body = _defined(name, operands, steps, last)
    body.task = task
    return macro_kernel(meaning=meaning, flops=flops)(body)


def _mean(step: Operation, values: dict[str, Any]) -> None:
    entry = entry_of(step.op)
    assert entry is not None
    parts = [values[o.access.buffer] if isinstance(o, TiledEdge) else o for o in step.operands]
    attributes = {} if step.op == "cast" else dict(step.attributes)
    made = entry.meaning(*parts, **attributes)
    target = step.store.access.buffer
    combine = step.store.combine
    values[target] = made if combine is None else REDUCTIONS[combine](values[target], made)


def _defined(name: str, operands: list[str], steps: list[Operation], last: str) -> Any:
    """The body in the tile language, as a function with text of its own."""
    lines = [f"def {name}({', '.join(operands)}):"]
    lines += [f"    {_line(step)}" for step in steps]
    source = "\n".join([*lines, f"    return {last}"]) + "\n"
    import tilewright as tw

    # Text of our own making: names are Python's own identifiers, operations are those of the table.
    scope: dict[str, Any] = {"tw": tw, "__name__": "tilewright_graph", **BODIES}
    return define(name, source, f"<tilewright micro-op {name}>", scope)


def _line(step: Operation) -> str:
    entry = entry_of(step.op)
    assert entry is not None
    parts = [o.access.buffer if isinstance(o, TiledEdge) else repr(o) for o in step.operands]
    text = entry.text.format(*parts, **dict(step.attributes))
    target = step.store.access.buffer
    if step.store.combine is None:
        return f"{target} = {text}"
    return f"{target} = {f'{text[:-1]}, {target})' if step.op == 'mma' else f'{target} + {text}'}"
