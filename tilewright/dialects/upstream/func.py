"""func: declarations without results print without `-> ()`, as in MLIR."""

from __future__ import annotations

from xdsl.dialects.func import FuncOp
from xdsl.dialects.utils import print_func_op_like
from xdsl.printer import Printer

from tilewright.dialects.upstream.complete import set_custom

_HEADER = ("sym_name", "function_type", "sym_visibility", "arg_attrs", "res_attrs")


def _print_func(op: FuncOp, printer: Printer) -> None:
    if op.sym_visibility is not None:
        printer.print_string(f" {op.sym_visibility.data}")
    print_func_op_like(
        printer,
        op.sym_name,
        op.function_type,
        op.body,
        op.attributes,
        arg_attrs=op.arg_attrs,
        res_attrs=op.res_attrs,
        reserved_attr_names=_HEADER,
        print_empty_outputs=False,
    )


def complete() -> None:
    stock = FuncOp.parse
    set_custom(FuncOp, lambda cls, parser: stock(parser), _print_func)
