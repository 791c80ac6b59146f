"""Functions: calls are laid out in place, returns jump to the end of the call."""

from __future__ import annotations

from xdsl.dialects import func
from xdsl.dialects.builtin import SymbolRefAttr
from xdsl.ir import Operation

from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.reference.program import Builder, find_symbol, is_declaration
from tilewright.reference.registry import control


@control("func.call")
def call(builder: Builder, op: func.CallOp) -> None:
    symbol: SymbolRefAttr = op.callee
    function = find_symbol(op, symbol)
    if not isinstance(function, func.FuncOp) or is_declaration(function):
        name = symbol.string_value()
        raise error_at(
            op,
            f"the reference executor has no function @{name}: it is declared here, not defined",
            kind=UnsupportedError,
        )
    builder.move(op.arguments, function.body.blocks[0].args)
    builder.function(function, op.results)


@control("func.return", "gpu.return")
def return_(builder: Builder, op: Operation) -> None:
    frame = builder.frame
    builder.move(op.operands, frame.results)
    builder.jump(frame.exit)
