"""`!llvm.ptr`, which every kernel needs, without the seventy ops of its dialect: importing these takes a tenth of what
the first kernel of a process waits for.

Where the dialect is imported later, it gets this class when it defines its type; where it was before, its type is this.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import xdsl.irdl
from xdsl.dialects.builtin import IntAttr, NoneAttr
from xdsl.ir import ParametrizedAttribute, TypeAttribute
from xdsl.parser import AttrParser
from xdsl.printer import Printer

_DIALECT = "xdsl.dialects.llvm"
_PLAIN = NoneAttr()
_define: Any = xdsl.irdl.irdl_attr_definition


class _Pointer(ParametrizedAttribute, TypeAttribute):
    """`!llvm.ptr`, or `!llvm.ptr<3>` in an address space."""

    name = "llvm.ptr"
    addr_space: IntAttr | NoneAttr

    def __init__(self, addr_space: IntAttr | NoneAttr = _PLAIN):
        super().__init__(addr_space)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[IntAttr | NoneAttr]:
        if not parser.parse_optional_characters("<"):
            return [_PLAIN]
        space = parser.parse_integer(allow_boolean=False)
        parser.parse_characters(">")
        return [IntAttr(space)]

    def print_parameters(self, printer: Printer) -> None:
        if isinstance(self.addr_space, IntAttr):
            printer.print_string(f"<{self.addr_space.data}>")


def _defined(cls: Any = None, **options: Any) -> Any:
    if getattr(cls, "name", None) == _Pointer.name and cls.__module__ == _DIALECT:
        return LLVMPointerType
    return _define(cls, **options)


if TYPE_CHECKING:
    from xdsl.dialects.llvm import LLVMPointerType
elif _DIALECT in sys.modules:
    LLVMPointerType = sys.modules[_DIALECT].LLVMPointerType
else:
    LLVMPointerType = _define(_Pointer)
    xdsl.irdl.irdl_attr_definition = _defined
