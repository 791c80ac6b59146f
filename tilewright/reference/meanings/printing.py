"""What kernels print themselves: gpu.printf and vector.print.

Every instance prints what it has: each lane at lane level, each subgroup at subgroup level, each workgroup at
workgroup level. The lines of one instance come in the order of its program; those of several come op by op, in the
order of their numbers (a GPU promises no order). Text without a line break waits until its instance prints one, so
that lines of several do not mix.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
from xdsl.dialects import vector
from xdsl.dialects.builtin import IndexType, IntegerType, StringAttr, VectorType
from xdsl.ir import Attribute

from tilewright.diagnostics import unsupported
from tilewright.dialects.upstream.gpu.lanes import PrintfOp
from tilewright.dialects.upstream.vector.memory import ending
from tilewright.printed import PUNCTUATION
from tilewright.reference.meanings.debug import row_of
from tilewright.reference.registry import meaning
from tilewright.reference.site import Site

_CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d*)(?:\.(\*|\d*))?(hh|h|ll|l|z|j|t|L)?(.?)", re.DOTALL)
_SHORT = {"hh": 8, "h": 16}


def write(site: Site, position: int, text: str) -> None:
    """Print for one instance of the group, whole lines at a time where the batch has several."""
    if site.batch.count == 1:
        sys.stdout.write(text)
        return
    unfinished = site.machine.unfinished
    instance = int(site.instances[position])
    lines, newline, rest = (unfinished.pop(instance, "") + text).rpartition("\n")
    sys.stdout.write(lines + newline)
    if rest:
        unfinished[instance] = rest


@meaning("gpu.printf")
def printf(site: Site, op: PrintfOp, *values: Any) -> None:
    """The format is C's; integers count as wide as their type, whatever `l` and `ll` say."""
    for position in range(site.count):
        write(site, position, _formatted(site, op, [row_of(value, position) for value in values]))


def _formatted(site: Site, op: PrintfOp, values: list[Any]) -> str:
    given = iter(zip(values, (value.type for value in op.args), strict=True))

    def convert(match: re.Match[str]) -> str:
        flags, width, precision, length, letter = match.groups()
        if match[0] == "%%":
            return "%"
        if letter not in "diouxXcpfFeEgG" or not letter or "*" in (width, precision):
            raise unsupported(
                op,
                f"gpu.printf: the conversion {match[0]!r} cannot be printed",
                hint="d i u o x X c p f F e E g G, with flags, width and precision as numbers",
            )
        if (pair := next(given, None)) is None:
            _undefined(site, f"its format asks for more values than the {len(values)} given")
            return match[0]
        value, kind = pair
        start = f"%{flags}{width}" + (f".{precision}" if precision is not None else "")
        if isinstance(value, int) != (letter in "diouxXcp"):
            _undefined(site, f"the conversion {match[0]!r} is not for a value of type {kind}")
            return match[0]
        if isinstance(value, int):
            return _integer(start, letter, _wrapped(value, kind, length, letter in "di"))
        return (start + letter) % float(value)

    return _CONVERSION.sub(convert, op.format.data)


def _undefined(site: Site, why: str) -> None:
    site.report("error", "printf", f"gpu.printf: {why}")


def _wrapped(value: int, kind: Attribute, length: str | None, signed: bool) -> int:
    """The number that C's conversion sees in the bits of `value`."""
    bits = kind.width.data if isinstance(kind, IntegerType) else 64
    bits = min(bits, _SHORT.get(length or "", bits))
    value = int(value) & ((1 << bits) - 1)
    return value - (1 << bits) if signed and bits > 1 and value >> (bits - 1) else value


def _integer(start: str, letter: str, value: int) -> str:
    """Python's `%` does as C's, but for `#`, pointers, and characters, whose number is a byte."""
    if letter == "c":
        return (start + "c") % chr(value & 255)
    if letter == "p":
        return (start.replace("%", "%#") + "x") % value
    if "#" in start and (letter == "o" or not value):
        start = start.replace("#", "")
        digits = f"{value:o}" if letter == "o" and value else ""
        start += f".{len(digits) + 1}" if digits and "." not in start else ""
    return (start + letter.replace("u", "d")) % value


@meaning("vector.print")
def vector_print(site: Site, op: vector.PrintOp, *values: Any) -> None:
    """MLIR's format; a value ends its line unless a punctuation is given."""
    text = op.properties.get("stringLiteral")
    before = text.data if isinstance(text, StringAttr) else ""
    after = PUNCTUATION.get(ending(op), "")
    for position in range(site.count):
        shown = "".join(
            _mlir_text(row_of(value, position), operand.type)
            for value, operand in zip(values, op.operands, strict=True)
        )
        write(site, position, before + shown + after)


def _mlir_text(value: Any, kind: Attribute) -> str:
    """A vector without dimensions has parentheses too, and an index no sign."""
    if isinstance(value, np.ndarray) and value.ndim:
        return f"( {', '.join(_mlir_text(part, kind) for part in value)} )"
    number = value.item() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(number, bool):
        text = str(int(number))
    elif isinstance(number, int):
        text = str(
            number & 0xFFFF_FFFF_FFFF_FFFF
            if isinstance(getattr(kind, "element_type", kind), IndexType)
            else number
        )
    else:
        text = f"{float(number):g}"
    return f"( {text} )" if isinstance(kind, VectorType) and not kind.get_shape() else text
