"""Functions that kernels call, and what stands for them on one machine.

    func.func private @gate(%x: vector<16x64xf32>) -> vector<16x64xf32>
        attributes {tilewright.implementations = {cuda = @gate_cuda}} { .. }

The function's own body is its meaning on every machine. The attribute names, by target (`cuda`), machine (`xe-pvc`) or
feature (`cpu-avx512f`), functions of the same type that do the same with what that machine has: straight-line ops on
values. They touch no memory and hold no loop, so that what a workgroup does, and when, is in the kernel alone.
"""

from __future__ import annotations

from xdsl.dialects import func
from xdsl.dialects.builtin import DictionaryAttr, SymbolRefAttr
from xdsl.ir import Operation

from tilewright.diagnostics import error_at

IMPLEMENTATIONS = "tilewright.implementations"
"""Attribute of a func.func: the functions that stand for it, by target, machine or feature."""

VALUES = (
    "xetile.tile_mma",
    "xetile.transpose",
    "xetile.reduction",
    "xetile.broadcast",
    "xetile.convert_layout",
    "builtin.unrealized_conversion_cast",
    "mach.each",
    "func.return",
)
"""Ops on values besides those of arith, math, index and vector."""
MEMORY = ("load", "store", "read", "write", "gather", "scatter", "print")
"""Words in the names of the vector ops that touch memory."""


def implementations(function: Operation) -> dict[str, str]:
    """The names of the functions that stand for one, by target, machine or feature."""
    found = function.attributes.get(IMPLEMENTATIONS)
    if found is None:
        return {}
    if not isinstance(found, DictionaryAttr) or not all(
        isinstance(each, SymbolRefAttr) for each in found.data.values()
    ):
        raise error_at(
            function, f"{IMPLEMENTATIONS} is {found}, no dictionary of functions by target"
        )
    return {name: each.string_value() for name, each in found.data.items()}  # pyright: ignore


def check_implementation(own: func.FuncOp, function: func.FuncOp) -> None:
    """CompileError at the first op for which ``own`` cannot stand for ``function``."""
    name = function.sym_name.data
    if own.function_type != function.function_type:
        raise error_at(
            own,
            f"the implementation of {name} is {own.function_type}, and {name} is {function.function_type}",
            rule="an implementation has the type of the function that it implements",
        )
    if len(own.body.blocks) != 1:
        raise error_at(own, f"the implementation of {name} has no body of one block")
    for op in own.body.block.ops:
        dialect, _, word = op.name.partition(".")
        plain = dialect in ("arith", "math", "index") or (
            dialect == "vector" and not any(part in word for part in MEMORY)
        )
        if op.regions or not (plain or op.name in VALUES):
            raise error_at(
                op,
                f"the implementation of {name} holds {op.name}",
                rule="an implementation is straight-line ops on values: no loop, no branch, no memory, no call",
                hint="loops and loads belong in the kernel, around the macro kernel",
            )
