"""builtin: hexadecimal elements of dense float attributes.

`dense<0xFF800000> : vector<8xf32>` gives the bits of the elements (-inf), as a scalar's
hexadecimal literal does. Stock xDSL reads it as the number 4286578688.
"""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import AnyFloat
from xdsl.parser import AttrParser

# The stock parser keeps an element's class private, and it is the only place to decode one.
_Element: Any = AttrParser._TensorLiteralElement  # pyright: ignore[reportPrivateUsage]
_number: Any = _Element.to_type


def _to_type(self: Any, parser: AttrParser, type: Any) -> Any:
    if not isinstance(type, AnyFloat) or self.span.text[:2] not in ("0x", "0X"):
        return _number(self, parser, type)
    size = type.compile_time_size
    if self.value >= 1 << (8 * size):
        parser.raise_error(f"hexadecimal value is too large for {type}", at_position=self.span)
    return next(type.iter_unpack(self.value.to_bytes(size, "little")))


def complete() -> None:
    _Element.to_type = _to_type
