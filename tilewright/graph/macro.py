"""Macro kernels: named operations with a body in the tile language, registered by users, composed into micro-ops.

    @G.macro_kernel(meaning=lambda a, b, p: p + a @ b)
    def micro_op_a(a, b, p):
        return tw.tile_mma(a, b, p)

From then on ``micro_op_a`` is an operation of every graph, at any level: in the builder (``g.apply("micro_op_a",
...)``), in the text form, and in the bodies of other macro kernels, which call it as a function.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from tilewright.diagnostics import CompileError
from tilewright.graph.operations import OPERATIONS, OpDef

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
        return body

    return register
