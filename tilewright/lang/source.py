"""The source of a kernel: its syntax tree, what its names are bound to, and where each node stands."""

from __future__ import annotations

import ast
import builtins
import linecache
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

_trees: dict[str, tuple[list[str], dict[int, ast.FunctionDef]]] = {}
"""Per file: the lines that were parsed, and its functions by their first line."""


class Source:
    """One Python function as the front end sees it."""

    def __init__(self, function: FunctionType):
        self.function = function
        self.name = function.__name__
        code: CodeType = function.__code__
        self.file = code.co_filename
        self.lines, self.node = _find(function)
        self._cells: dict[str, Any] = {}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                self._cells[name] = cell.cell_contents
            except ValueError:  # a name of the enclosing function that is not bound yet
                continue
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
            return self._cells[name]
        scope: Mapping[str, Any] = self.function.__globals__
        if name in scope:
            return scope[name]
        return vars(builtins)[name]

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


def source_of(function: Callable[..., Any]) -> Source:
    """The source of a function; one object per function, as long as it lives."""
    if not isinstance(function, FunctionType):
        raise CompileError(f"{function!r} is no Python function, so it has no source to compile")
    found = _sources.get(function.__code__)
    if found is None or found.function is not function:
        found = _sources[function.__code__] = Source(function)
    return found


_sources: dict[CodeType, Source] = {}


def _find(function: FunctionType) -> tuple[list[str], ast.FunctionDef]:
    code = function.__code__
    file, name = code.co_filename, function.__name__
    lines = linecache.getlines(file, function.__globals__)
    if not lines:
        raise CompileError(
            f"the source of {name} cannot be read ({file}, line {code.co_firstlineno})",
            rule="a kernel is compiled from the text of its function",
            hint="define it in a file or a notebook cell, not with exec() or python -c",
        )
    known = _trees.get(file)
    if known is None or known[0] != lines:
        try:
            tree = ast.parse("".join(lines))
        except SyntaxError as error:
            raise CompileError(
                f"the file of {name} does not parse: {error.msg}",
                location=Location(file, error.lineno or 1, error.offset or 1),
                hint="it changed after it was imported; import it again",
            ) from None
        known = _trees[file] = (list(lines), _functions(tree))
    node = known[1].get(code.co_firstlineno)
    if node is None or node.name != name:
        raise CompileError(
            f"{file}, line {code.co_firstlineno} does not hold the function {name}",
            rule="a kernel is compiled from the text of its function",
            hint="the file changed after it was imported, or the function is a lambda: import it"
            " again, or write it as a def",
        )
    return known[0], node


def _functions(tree: ast.AST) -> dict[int, ast.FunctionDef]:
    found: dict[int, ast.FunctionDef] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found[first] = node
    return found
