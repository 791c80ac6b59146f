"""Macro kernels: named operations with a body in the tile language, registered by users, composed into micro-ops.

    @G.macro_kernel(meaning=lambda a, b, p: p + a @ b)
    def micro_op_a(a, b, p):
        return tw.tile_mma(a, b, p)

From then on ``micro_op_a`` is an operation of every graph, at any level: in the builder (``g.apply("micro_op_a",
...)``), in the text form, and in the bodies of other macro kernels, which call it as a function.

The body is its meaning on every target. Where a machine can do it better, it has an implementation there, in the ops of
the IR of tiles and the instructions of the machine:

    @G.implementation(gate, "cuda")
    def _(x):
        return f'''
          func.func @gate(%x: {x}) -> {x} {{
            %y = mach.each "nvptx.tanh.approx.f32"(%x) : ({x}) -> {x}
            return %y : {x}
          }}'''

`check_macro.py` compares meaning, body and implementations on random tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from tilewright.diagnostics import CompileError
from tilewright.graph.operations import OPERATIONS, OpDef
from tilewright.lang.implementations import Maker, implement, implementable
from tilewright.targets.base import split_name

BODIES: dict[str, FunctionType] = {}
"""The bodies of macro kernels by name: what generated text calls."""


def macro_kernel(
    *, meaning: Callable[..., Any], flops: int = 1
) -> Callable[[FunctionType], FunctionType]:
    """Registers a function of the tile language as an operation of graphs, under its own name.

    `meaning` is what it does to numpy arrays; `flops` counts per element of the result, for estimates. Raises
    CompileError for a name that is taken by a primitive operation.
    """

    def register(body: FunctionType) -> FunctionType:
        name = body.__name__
        if name in OPERATIONS and name not in BODIES:
            raise CompileError(
                f"{name} is a primitive operation: a macro kernel needs a name of its own"
            )
        arity = body.__code__.co_argcount
        operands = ", ".join(f"{{{i}}}" for i in range(arity))
        OPERATIONS[name] = OpDef(name, "macro", arity, meaning, f"{name}({operands})", flops)
        BODIES[name] = body
        implementable(body)
        return body

    return register


def implementation(body: FunctionType, target: str) -> Callable[[Maker], Maker]:
    """Registers a function that gives the text of a macro kernel's implementation for one kind of machine.

    `body` is the macro kernel; `target` a target (``"cuda"``), a machine (``"sm_90a"``, ``"xe-pvc"``) or a feature of
    the CPU (``"cpu-avx512f"``), of which the most special one that a machine has is taken. The function gets the
    operands' types, in the order of the parameters: their text is the MLIR type, and they have ``dtype`` and
    ``shape``; numbers come as they are. It returns MLIR text of one ``func.func`` with these operands, or None where
    there is no implementation for them. In it stand ops on values: arith, math, vector, the ops of xetile on values,
    and ``mach.each``; no loop, no branch, no memory.

    Raises CompileError for a function that is no macro kernel, UnsupportedError for a target that does not exist; what
    is wrong with the text is told when a kernel that calls it is compiled.
    """
    if BODIES.get(getattr(body, "__name__", "")) is not body:
        raise CompileError(
            f"{getattr(body, '__name__', body)!s} is no macro kernel",
            hint="decorate its body with G.macro_kernel(...) or G.micro_op first",
        )
    split_name(target)

    def register(maker: Maker) -> Maker:
        implement(body, target, maker)
        return maker

    return register
