"""Declarative formats of ops, read when the first op of a class is parsed or printed.

xDSL reads them where it defines the class, a tenth of what importing its dialects takes, and a program has few of the
ops that are known. Imported before these dialects, which it asks nothing of: it changes how they are defined.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from xdsl.ir import Operation
from xdsl.irdl import IRDLOperation, OpDef
from xdsl.irdl.declarative_assembly_format import FormatDirective, FormatProgram
from xdsl.parser import Parser

_read = FormatProgram.from_str


class _Unread(FormatProgram):
    """A format that is read when its statements are asked for."""

    def __init__(self, text: str, definition: OpDef):
        self.__dict__.update(text=text, definition=definition)

    @cached_property
    def stmts(self) -> tuple[FormatDirective, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return _read(self.__dict__["text"], self.__dict__["definition"]).stmts


def set_format(op: type[IRDLOperation], text: str) -> None:
    """Gives an op that is defined already a format."""
    program = _Unread(text, op.get_irdl_definition())

    def parse(cls: Any, parser: Parser) -> Operation:
        return program.parse(parser, cls)

    kind: Any = op
    kind.parse = classmethod(parse)
    kind.print = lambda op, printer: program.print(printer, op)


FormatProgram.from_str = staticmethod(_Unread)  # pyright: ignore[reportAttributeAccessIssue]
