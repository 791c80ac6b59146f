"""The source of a kernel: its syntax tree, what its names are bound to, and where each node stands."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType
from typing import Any

from xdsl.dialects.builtin import (
    CallSiteLoc,
    FileLineColLoc,
    IntAttr,
    LocationAttr,
    NameLoc,
    StringAttr,
)

from tilewright.diagnostics import CompileError, Location
from tilewright.runtime.source import Kept, text_of

_KEPT = "__tilewright_source__"


class KernelSource(Kept):
    """One Python function as the front end sees it."""

    def __init__(self, function: FunctionType):
        self.function = function
        self.name = function.__name__
        self.code: CodeType = function.__code__
        self.file = self.code.co_filename
        text = text_of(function)
        self.lines, self.node = text.lines, text.node
        self._cells = dict(zip(self.code.co_freevars, function.__closure__ or (), strict=True))
        self._locations: dict[tuple[int, LocationAttr | None], LocationAttr] = {}

    @property
    def body(self) -> list[ast.stmt]:
        """The statements without the docstring."""
        body = self.node.body
        first = body[0]
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            return body[1:]
        return body

    def captured(self, name: str) -> Any:
        """What a name means outside of the function; KeyError when nothing."""
        if name in self._cells:
            try:
                return self._cells[name].cell_contents
            except ValueError:  # a name of the enclosing function that is not bound yet
                pass
        scope: Mapping[str, Any] = self.function.__globals__
        if name in scope:
            return scope[name]
        return vars(builtins)[name]

    def hides(self, name: str) -> bool:
        """Whether the function binds a name that means something outside too: by Python's rule it is its own then."""
        own = name in self.code.co_varnames or name in self.code.co_cellvars
        return own and (name in self.function.__globals__ or name in vars(builtins))

    def location(self, node: ast.AST) -> Location:
        """The stretch of source of a node; only its first line when it has several."""
        line = getattr(node, "lineno", self.node.lineno)
        start = self._column(line, getattr(node, "col_offset", 0))
        end_line = getattr(node, "end_lineno", None)
        end = None
        if end_line == line:
            end = self._column(line, getattr(node, "end_col_offset", 0)) + 1
        elif end_line is not None:
            end = len(self._line(line).rstrip()) + 1
        if isinstance(node, (ast.For, ast.While, ast.If)):
            # The head of a compound statement, not its body.
            end = len(self._line(line).rstrip()) + 1
        return Location(self.file, line, start + 1, end, self._line(line))

    def mlir_location(self, node: ast.AST, caller: LocationAttr | None) -> LocationAttr:
        """The location of a node in the IR: its text as a name, around file, line and column."""
        key = (id(node), caller)
        found = self._locations.get(key)
        if found is None:
            place = self.location(node)
            text = self._line(place.line)[place.col - 1 : (place.end_col or place.col) - 1]
            position = FileLineColLoc(
                StringAttr(self.file), IntAttr(place.line), IntAttr(place.col)
            )
            found = NameLoc(StringAttr(text), position) if text else position
            if caller is not None:
                found = CallSiteLoc(found, caller)
            self._locations[key] = found
        return found

    def _line(self, number: int) -> str:
        return self.lines[number - 1].rstrip("\r\n") if number <= len(self.lines) else ""

    def _column(self, line: int, byte_offset: int) -> int:
        """ast counts bytes of UTF-8, people count characters."""
        text = self._line(line)
        if text.isascii():
            return byte_offset
        return len(text.encode()[:byte_offset].decode(errors="ignore"))


def source_of(function: Callable[..., Any]) -> KernelSource:
    """The source of a function; kept with it."""
    if not isinstance(function, FunctionType):
        raise CompileError(
            f"{function!r} is no Python function, so it has no source to compile",
            hint="@tw.kernel stands above a def",
        )
    found: object = function.__dict__.get(_KEPT)
    if (
        isinstance(found, KernelSource)
        and found.function is function
        and found.code is function.__code__
    ):
        return found
    made = function.__dict__[_KEPT] = KernelSource(function)
    return made
