"""The text of a Python function: read once, so that everything made of it is made of the same text."""

from __future__ import annotations

import ast
import inspect
import linecache
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, TypeAlias

from tilewright.diagnostics import CompileError, Location

_KEPT = "__tilewright_text__"


class Kept:
    """Something that is kept with a function, in its `__dict__`, and made again where the function is unpickled."""

    def __reduce__(self) -> Any:
        return type(None), ()


@dataclass(eq=False, repr=False)
class FunctionText(Kept):
    """The file that a function stands in, as it was when it was read first, and the function's syntax tree."""

    code: CodeType
    """That it is the text of: a function may be given other code (as IPython's autoreload does)."""
    lines: list[str]
    node: ast.FunctionDef

    @property
    def text(self) -> str:
        """The function itself, with its decorators."""
        if self.node.name == _LAMBDA:  # others may stand on its lines
            return ast.unparse(self.node)
        return "".join(self.lines[first_line(self.node) - 1 : self.node.end_lineno])


def text_of(function: FunctionType) -> FunctionText:
    """The text of a function; kept with it. CompileError where there is none that can be read."""
    found = function.__dict__.get(_KEPT)
    if not isinstance(found, FunctionText) or found.code is not function.__code__:
        found = function.__dict__[_KEPT] = FunctionText(function.__code__, *_find(function))
    return found


def define(name: str, text: str, file: str, scope: dict[str, Any]) -> Any:
    """The function ``name`` of ``text``, made in ``scope``; `text_of` and messages read it as if it stood in ``file``.

    It runs the text: for text of our own making.
    """
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), scope)
    return scope[name]


_Point: TypeAlias = tuple[int, int]
_Place: TypeAlias = int | tuple[_Point, _Point]

_trees: dict[str, tuple[list[str], dict[_Place, ast.FunctionDef]]] = {}
"""Per file: the lines that were parsed, and its functions by first line, its lambdas by where their body stands."""

_LAMBDA = "<lambda>"


def _find(function: FunctionType) -> tuple[list[str], ast.FunctionDef]:
    code = function.__code__
    file, name = code.co_filename, function.__name__
    linecache.checkcache(file)
    lines = linecache.getlines(file, function.__globals__)
    if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        row = code.co_firstlineno  # of its first decorator
        while row < len(lines) and not lines[row - 1].lstrip().startswith("async"):
            row += 1
        col = 1 + max(0, "".join(lines[row - 1 : row]).find("async"))
        raise CompileError(
            f"{name} is an async def, which cannot be compiled",
            location=Location(file, row, col, end_col=col + len("async")),
            rule="a kernel and its helpers are plain functions: there is nothing that they could await",
            hint=f"write def {name}(...)",
        )
    unreadable = CompileError(
        f"the source of {name} cannot be read ({file}, line {code.co_firstlineno})",
        rule="a kernel is compiled from the text of its function",
        hint="define it in a file or a notebook cell, not with exec() or python -c",
    )
    if not lines:
        raise unreadable
    alone = None if code.co_name == _LAMBDA else _parsed(lines, code.co_firstlineno)
    if alone is not None and alone.name == name:
        return lines, alone
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
    node = _the_one(code, known[1])
    if node is None or node.name != name:
        if (
            file == "<string>"
        ):  # since Python 3.13 the text of `python -c`, which exec() calls its text, too
            raise unreadable
        if code.co_name not in (name, _LAMBDA):
            raise CompileError(
                f"{name} is wrapped by {code.co_name} ({file}, line {code.co_firstlineno}), another decorator's",
                rule="a kernel is compiled from the text of its function",
                hint="put @tw.kernel directly above the def, or leave the other decorator out",
            )
        raise CompileError(
            f"{file}, line {code.co_firstlineno} does not hold the function {name}",
            rule="a kernel is compiled from the text of its function",
            hint="the file changed after it was imported: import it again",
        )
    return known[0], node


def _parsed(lines: list[str], first: int) -> ast.FunctionDef | None:
    """The function whose decorators or def begin on a line, parsed without the rest of its file; None where it takes
    the rest to tell.

    It ends before a line that is indented no deeper, unless that is a comment, or stands in brackets or in a string:
    then what is before it does not parse.
    """
    if not 0 < first <= len(lines):
        return None
    depth, tries = _indent(lines[first - 1]), 0
    rest = range(first, len(lines) + 1)
    begins = next((end for end in rest if lines[end - 1].lstrip().startswith("def")), len(lines))
    for end in rest[begins - first :]:
        after = lines[end] if end < len(lines) else "end"
        if not after.strip() or after.lstrip().startswith("#") or _indent(after) > depth:
            continue
        before = "\n" * (first - 2) + "if 1:\n" if depth else "\n" * (first - 1)
        tries += 1
        try:
            (made,) = ast.parse(before + "".join(lines[first - 1 : end])).body
        except (SyntaxError, ValueError):
            if tries < _TRIES:
                continue
            return None
        if isinstance(made, ast.If):
            made = made.body[0]
        if not isinstance(made, ast.FunctionDef) or first_line(made) != first:
            return None
        return made
    return None


_TRIES = 4
"""Ends of a function that are tried: a long string may look like many."""


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def first_line(node: ast.FunctionDef) -> int:
    """Of the first decorator, or of the def."""
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


def _functions(tree: ast.AST) -> dict[_Place, ast.FunctionDef]:
    found: dict[_Place, ast.FunctionDef] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found[first_line(node)] = node
        elif isinstance(node, ast.Lambda):
            body = node.body
            returned = ast.copy_location(ast.Return(body), body)
            # Through parse, for what a def has besides in this version of Python.
            (made,) = ast.parse("def f(): pass").body
            assert isinstance(made, ast.FunctionDef)
            made.name, made.args, made.body = _LAMBDA, node.args, [returned]
            start, end = (
                (body.lineno, body.col_offset),
                (body.end_lineno or 0, body.end_col_offset or 0),
            )
            found[start, end] = ast.copy_location(made, node)
    return found


def _the_one(code: CodeType, known: dict[_Place, ast.FunctionDef]) -> ast.FunctionDef | None:
    """The function that code was made of; of lambdas the innermost around what its instructions come from."""
    if code.co_name != _LAMBDA:
        return known.get(code.co_firstlineno)
    spans = [
        ((first, start), (last, end))
        for first, last, start, end in code.co_positions()
        if first is not None and last is not None and start is not None and end
    ]
    if not spans:  # Python 3.12 gives `lambda: 3` no columns: its line and its constant have to do
        return next((node for node in known.values() if _is_constant(node, code)), None)
    low, high = min(a for a, _ in spans), max(b for _, b in spans)
    around = [p for p in known if isinstance(p, tuple) and p[0] <= low and high <= p[1]]
    return known[max(around)] if around else None


def _is_constant(node: ast.FunctionDef, code: CodeType) -> bool:
    """Is code that of this lambda, which returns a constant?"""
    (returned,) = node.body[-1:]
    if (
        node.name != _LAMBDA
        or node.lineno != code.co_firstlineno
        or not isinstance(returned, ast.Return)
    ):
        return False
    try:
        return ast.literal_eval(returned.value or ast.Constant(None)) in code.co_consts
    except ValueError:
        return False
