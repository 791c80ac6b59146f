"""Programs as text, in which `%c8` is 8 of type index wherever nothing else is called so."""

from __future__ import annotations

import re
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tilewright.dialects import text as mlir

_FUNCTION = re.compile(r"(?=\b(?:gpu|func)\.func )")
_BEGINS = re.compile(r"\{$", re.MULTILINE)
_NAMED = re.compile(r"%c(\d+)(?=:\D| =)")
_SAID = re.compile(r"%c(\d+)(?![\w$.-])")


def with_constants(text: str) -> str:
    """The text with a definition of each such constant on the first line of the function that names it."""

    def of(function: str) -> str:
        named = {*_NAMED.findall(function)}
        missing = [n for n in dict.fromkeys(_SAID.findall(function)) if n not in named]
        defined = "".join(f" %c{n} = arith.constant {n} : index" for n in missing)
        return _BEGINS.sub(lambda brace: brace[0] + defined, function, count=1)

    return "".join(map(of, _FUNCTION.split(text)))


def parse_module(text: str, *args: Any, **options: Any) -> ModuleOp:
    """What `tilewright.dialects.text.parse_module` reads of it."""
    return mlir.parse_module(with_constants(text), *args, **options)


class Lines:
    """A program's text that is being drawn: its lines, and names of values that nothing has yet."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def put(self, op: str) -> str:
        """The name of an op's result."""
        name = self.name()
        self.lines.append(f"{name} = {op}")
        return name
