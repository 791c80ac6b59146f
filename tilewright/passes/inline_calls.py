"""inline-calls: the functions that a kernel calls stand in place of the calls.

    %y = func.call @gate(%x)      ->      // the ops of @gate, or of what stands for it on the machine

Where a function has implementations (`dialects.implementations`), the one that the machine runs is taken, of several
the most special; its own body where there is none.

Requires: a verified module. Guarantees: the same results; no calls in the kernel. Raises UnsupportedError for a call
of what the text does not define, of a function with several blocks, and of one that calls itself; CompileError for an
implementation that is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.dialects import func, gpu
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import SymbolTable

from tilewright.diagnostics import error_at, unsupported
from tilewright.dialects.implementations import check_implementation, implementations
from tilewright.dialects.nesting import terminator
from tilewright.passes.pipeline import Pass, Unit

DEPTH = 16
"""Calls within calls; more are taken for calls without end."""


def inline_calls(kernel: gpu.FuncOp, runs: Callable[[str], bool] = lambda name: False) -> bool:
    """Inlines the functions that the kernel calls, each in its implementation for the machine. Returns whether
    there were calls.

    `runs`: is a target, machine or feature, by its name in `tilewright.implementations`, the one at hand?
    """
    called: dict[func.FuncOp, None] = {}
    for _ in range(DEPTH):
        calls = [op for op in kernel.walk() if isinstance(op, func.CallOp)]
        for call in calls:
            function = called_function(call)
            called[function] = None
            for name in implementations(function).values():
                own = SymbolTable.lookup_symbol(function, name)
                if isinstance(own, func.FuncOp):
                    called[own] = None
            _inline(call, chosen(function, runs))
        if not calls:
            break
    else:
        raise unsupported(kernel, f"calls more than {DEPTH} deep")
    for function in called:  # those beside the kernel are its own
        if function.parent_op() is kernel.parent_op():
            Rewriter.erase_op(function)
    return bool(called)


def chosen(function: func.FuncOp, runs: Callable[[str], bool]) -> func.FuncOp:
    """What stands for a function on the machine that `runs` tells of: itself where nothing does."""
    names = [name for name in implementations(function) if runs(name)]
    if not names:
        return function
    symbol = implementations(function)[max(names, key=lambda name: (name.count("-"), len(name)))]
    own = SymbolTable.lookup_symbol(function, symbol)
    if not isinstance(own, func.FuncOp) or own.is_declaration:
        raise error_at(
            function, f"the implementation @{symbol} of @{function.sym_name.data} is not defined"
        )
    check_implementation(own, function)
    return own


def called_function(call: func.CallOp) -> func.FuncOp:
    """The function that a kernel's call names. UnsupportedError where the text does not define it."""
    found = SymbolTable.lookup_symbol(call, call.callee)
    if not isinstance(found, func.FuncOp) or found.is_declaration:
        raise unsupported(
            call,
            f"the kernel calls @{call.callee.string_value()}, which is not defined",
            rule="a kernel can only call functions of its own module",
        )
    return found


def _inline(call: Operation, function: func.FuncOp) -> None:
    if len(function.body.blocks) != 1:
        raise unsupported(call, f"@{function.sym_name.data} has several blocks")
    body = function.body.clone()
    block = body.block
    last = terminator(block)
    results = list(last.operands)
    Rewriter.erase_op(last)
    Rewriter.inline_block(block, InsertPoint.before(call), list(call.operands))
    Rewriter.replace_op(call, [], results)


INLINE_CALLS = Pass[Unit[Any]](
    "inline-calls",
    inline_calls,
    given="kernel runs",
    when=lambda u: any(isinstance(op, func.CallOp) for op in u.kernel.walk()),
    machine=True,
)
