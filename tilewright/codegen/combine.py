"""One step of a reduction, by its kind."""

from __future__ import annotations

from xdsl.dialects.builtin import (
    AnyFloat,
    IndexType,
)
from xdsl.ir import Attribute, SSAValue

from tilewright.codegen.builder import Builder
from tilewright.dialects.upstream.combining import combining


def identity_element(kind: str, element: Attribute) -> int | float:
    """The neutral element of a reduction kind on an element type."""
    if kind in ("add", "or", "xor", "maxui"):
        return 0
    if kind == "mul":
        return 1
    if kind in ("and", "minui"):
        return -1
    if isinstance(element, AnyFloat):
        return float("-inf") if kind.startswith("max") else float("inf")
    bits = 64 if isinstance(element, IndexType) else element.width.data  # pyright: ignore
    return -(1 << (bits - 1)) if kind == "maxsi" else (1 << (bits - 1)) - 1


def combine(b: Builder, kind: str, x: SSAValue, y: SSAValue) -> SSAValue:
    """One step of a reduction."""
    return b.value(combining(kind, x, y))
