"""tw.print on NVIDIA: one call of the driver's vprintf, whose lines the host sees when it next waits for the device.

The format is C's. Values lie one after the other in 8 bytes each, as vprintf reads 64-bit numbers, doubles, pointers.
"""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation

from tilewright.codegen.pointers import string_constant
from tilewright.codegen.printer import Printer, attribute, unsupported
from tilewright.codegen.target import Handler

SLOT = 8


def _print(p: Printer, op: Operation) -> None:
    text = attribute(op, "format")
    assert isinstance(text, StringAttr)
    conversions: list[str] = []
    buffer = "null"
    if op.operands:
        buffer = p.fresh()
        p.entry.append(f"  {buffer} = alloca [{SLOT * len(op.operands)} x i8], align {SLOT}")
    for n, value in enumerate(op.operands):
        e = p.layout(value.type).element
        register = p.one(value)
        if e.name == "i1":
            yes, no = string_constant(p, "True"), string_constant(p, "False")
            kind, register = "ptr", p.emit(f"select i1 {register}, ptr {yes}, ptr {no}")
            conversions.append("%s")
        elif e.name in ("i64", "f64", "index"):
            kind = e.llvm
            conversions.append("%g" if e.name == "f64" else "%lld")
        else:
            raise unsupported(op, f"of {e.name}: programs print i64, f64 and i1")
        place = p.emit(f"getelementptr i8, ptr {buffer}, i64 {SLOT * n}")
        p.line(f"store {kind} {register}, ptr {place}, align {SLOT}")
    form = text.data.replace("%", "%%").format(*conversions) + "\n"
    p.call("i32", "vprintf", [("ptr", string_constant(p, form)), ("ptr", buffer)])


NVPTX_PRINTING_HANDLERS: dict[str, Handler] = {"tw.print": _print}
