"""vector.print and tw.print: calls of the runtime's print functions.


vector.print has MLIR's format: a scalar prints as itself, a vector as `( 1, 2, 3 )`, one of rank 2 as
`( ( 1, 2 ), ( 3, 4 ) )`; a line break follows. tw.print collects its values in the runtime, which writes
one line when all are there, so that lines of several threads do not mix.
"""

from __future__ import annotations

import numpy as np
from xdsl.dialects import vector
from xdsl.dialects.builtin import StringAttr, VectorType
from xdsl.ir import Operation

from tilewright.codegen.casts import resize_integer
from tilewright.codegen.components import ComponentSource
from tilewright.codegen.convert import convert_float, to_f32
from tilewright.codegen.lane_ops import Lanes
from tilewright.codegen.pointers import string_constant
from tilewright.codegen.printer import Printer, attribute, prints, unsupported
from tilewright.codegen.registers import Element
from tilewright.dialects import tw
from tilewright.dialects.upstream.vector.memory import ending
from tilewright.printed import PUNCTUATION

_I64 = Element("i64", "i64", "int", 64, 64)
_F64 = Element("f64", "double", "float", 64, 64)


def _print_scalar(p: Printer, op: Operation, e: Element, reg: str) -> None:
    o = Lanes(p, 1)
    if e.name == "f64":
        p.call("void", "printF64", [("double", reg)])
    elif e.is_float:
        p.call("void", "printF32", [("float", to_f32(p, o, reg, e))])
    elif e.kind == "int":
        wide = resize_integer(o, reg, e, _I64, e.name != "i1")
        p.call("void", "printU64" if e.name == "index" else "printI64", [("i64", wide)])
    else:
        raise unsupported(op, f"of {e.name}")


def _print_nested(
    p: Printer, op: Operation, e: Element, source: ComponentSource, numbers: np.ndarray
) -> None:
    if not numbers.ndim:
        (reg,) = source.assemble(numbers, (1,))
        _print_scalar(p, op, e, reg)
        return
    p.call("void", "printOpen", [])
    for i, part in enumerate(numbers):
        if i:
            p.call("void", "printComma", [])
        _print_nested(p, op, e, source, np.asarray(part))
    p.call("void", "printClose", [])


@prints("vector.print")
def print_vector(p: Printer, op: vector.PrintOp) -> None:
    text, name = attribute(op, "stringLiteral"), ending(op)
    if isinstance(text, StringAttr):
        p.call("void", "printString", [("ptr", string_constant(p, text.data))])
    if op.operands:
        value = op.operands[0]
        layout = p.layout(value.type)
        source = ComponentSource(p, layout.element.llvm)
        numbers = source.add(layout, p.get(value))
        kind = value.type
        if not isinstance(kind, VectorType):
            numbers = numbers.reshape(())
        elif not kind.get_shape():  # parentheses around the one number
            numbers = numbers.reshape((1,))
        _print_nested(p, op, layout.element, source, numbers)
    if name in PUNCTUATION:
        p.call("void", f"print{name.capitalize()}", [])


@prints("tw.print")
def print_line(p: Printer, op: tw.PrintOp) -> None:
    """The format, then every operand: its extents, its components; then the line."""
    p.call("void", "tw_print_begin", [("ptr", string_constant(p, op.format.data))])
    for value in op.operands:
        layout = p.layout(value.type)
        e = layout.element
        for extent in layout.shape:
            p.call("void", "tw_print_extent", [("i64", str(extent))])
        source = ComponentSource(p, e.llvm)
        numbers = source.add(layout, p.get(value))
        for reg in source.assemble(numbers, (1,) * numbers.size):
            _print_value(p, op, e, reg)
    p.call("void", "tw_print_end", [])


def _print_value(p: Printer, op: Operation, e: Element, reg: str) -> None:
    o = Lanes(p, 1)
    if e.is_float:
        p.call("void", "tw_print_float", [("double", convert_float(p, o, reg, e, _F64))])
    elif e.kind == "int":
        wide = resize_integer(o, reg, e, _I64, e.name != "i1")
        p.call("void", "tw_print_bool" if e.name == "i1" else "tw_print_int", [("i64", wide)])
    else:
        raise unsupported(op, f"of {e.name}")


@prints("tw.breakpoint")
def print_breakpoint(p: Printer, op: Operation) -> None:
    """Compiled code does not stop: the reference executor does."""
