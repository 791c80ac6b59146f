"""Kinds of reductions and of atomics: MLIR's names, and which element types each accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.dialects.builtin import AnyFloat, IndexType, IntegerAttr, IntegerType, i64
from xdsl.ir import Attribute
from xdsl.parser import Parser

from tilewright.dialects.upstream.combining import ATOMIC_KINDS, REDUCTIONS

REDUCTION_KINDS: tuple[str, ...] = tuple(REDUCTIONS)
"""`vector.kind`, in the order of its enumeration."""

FLOAT_REDUCTIONS = frozenset(kind for kind, each in REDUCTIONS.items() if each.of_floats)
INTEGER_REDUCTIONS = frozenset(kind for kind, each in REDUCTIONS.items() if each.of_integers)

FLOAT_ATOMICS = frozenset({"addf", "mulf", "maximumf", "minimumf", "maxnumf", "minnumf", "assign"})
INTEGER_ATOMICS = frozenset(ATOMIC_KINDS) - FLOAT_ATOMICS | {"assign"}

# The RFC's example writes the reduction's name; the element type decides which atomic it is.
SHORT_ATOMICS = {
    "add": ("addf", "addi"),
    "mul": ("mulf", "muli"),
    "and": (None, "andi"),
    "or": (None, "ori"),
    "xor": (None, "xori"),
}


def _kind_name(held: IntegerAttr) -> str:
    number = held.value.data
    return ATOMIC_KINDS[number] if 0 <= number < len(ATOMIC_KINDS) else f"<{number}>"


ATOMIC_KIND: Any = (
    IntegerAttr,
    lambda kind: IntegerAttr(ATOMIC_KINDS.index(kind), i64),
    _kind_name,
)
"""How an op holds the kind of an atomic, the number that arith.AtomicRMWKind has: as `fields.Property` asks for it."""


def accepts(
    kinds_float: frozenset[str], kinds_integer: frozenset[str], kind: str, element: Attribute
) -> bool:
    """Whether a kind is defined on an element type."""
    if isinstance(element, AnyFloat):
        return kind in kinds_float
    return isinstance(element, (IntegerType, IndexType)) and kind in kinds_integer


def full_atomic_kind(kind: str, element: Attribute) -> str | None:
    """`add` on a float tile -> `addf`; a full name stays; None when there is no such kind."""
    if kind in ATOMIC_KINDS:
        return kind
    pair = SHORT_ATOMICS.get(kind)
    return pair[0 if isinstance(element, AnyFloat) else 1] if pair else None


def parse_atomic_kind(parser: Parser) -> Callable[[Attribute], dict[str, Attribute]]:
    """`addf`, `<addf>` or `"addf"`, and the comma that an RFC has behind it; what gives the op's property, once the
    type of the elements is read."""
    angle = parser.parse_optional_punctuation("<") is not None
    start = parser.pos
    word = parser.parse_identifier_or_str_literal(" naming the atomic operation")
    end = parser.pos
    if angle:
        parser.parse_punctuation(">")
    parser.parse_optional_punctuation(",")

    def named(element: Attribute) -> dict[str, Attribute]:
        if (kind := full_atomic_kind(word, element)) is None:
            known = ", ".join(ATOMIC_KINDS)
            parser.raise_error(f"unknown atomic '{word}', expected one of {known}", start, end)
        return {"kind": ATOMIC_KIND[1](kind)}

    return named
