"""One step of a reduction, by its kind."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    AnyFloat,
    IndexType,
    VectorType,
)
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.codegen.builder import Builder


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


_COMBINE: dict[str, type[Operation]] = {
    "minui": arith.MinUIOp,
    "minsi": arith.MinSIOp,
    "maxui": arith.MaxUIOp,
    "maxsi": arith.MaxSIOp,
    "and": arith.AndIOp,
    "or": arith.OrIOp,
    "xor": arith.XOrIOp,
    "minnumf": arith.MinnumfOp,
    "maxnumf": arith.MaxnumfOp,
    "minimumf": arith.MinimumfOp,
    "maximumf": arith.MaximumfOp,
}


def combine(b: Builder, kind: str, x: SSAValue, y: SSAValue) -> SSAValue:
    """One step of a reduction."""
    element = x.type.element_type if isinstance(x.type, VectorType) else x.type
    floats = isinstance(element, AnyFloat)
    if kind == "add":
        return b.value(arith.AddfOp(x, y) if floats else arith.AddiOp(x, y))
    if kind == "mul":
        return b.value(arith.MulfOp(x, y) if floats else arith.MuliOp(x, y))
    return b.value(_COMBINE[kind](x, y))  # pyright: ignore
