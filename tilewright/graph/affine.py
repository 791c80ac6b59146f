"""Affine expressions in named integers: extents in symbols, offsets in iteration variables.

``2 * n + 16`` is ``Affine((("n", 2),), 16)``. Two expressions are equal exactly when their normal forms
are; the text form of a graph prints them as Python does, and reads them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TypeAlias, Union

from tilewright.frozen import frozen

Extent: TypeAlias = Union[int, str, "Affine"]
"""What may be written for an extent or an offset: a number, a name, or an expression."""


@frozen
class Affine:
    """The sum of ``coefficient * name`` over ``terms``, plus ``constant``."""

    terms: tuple[tuple[str, int], ...] = ()
    """Sorted by name; no coefficient is 0."""
    constant: int = 0

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.terms)

    @property
    def number(self) -> int | None:
        """Its value where it has no name in it."""
        return None if self.terms else self.constant

    @property
    def name(self) -> str | None:
        """The name that it is, if it is one alone."""
        return self.terms[0][0] if self.constant == 0 and self.is_scaled(1) else None

    def is_scaled(self, factor: int) -> bool:
        """Is it ``factor`` times one name, plus a constant?"""
        return len(self.terms) == 1 and self.terms[0][1] == factor

    def coefficient(self, name: str) -> int:
        return dict(self.terms).get(name, 0)

    def __add__(self, other: Extent) -> Affine:
        right = affine(other)
        total = dict(self.terms)
        for name, factor in right.terms:
            total[name] = total.get(name, 0) + factor
        return _normal(total, self.constant + right.constant)

    __radd__ = __add__

    def __mul__(self, factor: int) -> Affine:
        return _normal({n: c * factor for n, c in self.terms}, self.constant * factor)

    __rmul__ = __mul__

    def __neg__(self) -> Affine:
        return self * -1

    def __sub__(self, other: Extent) -> Affine:
        return self + affine(other) * -1

    def __rsub__(self, other: Extent) -> Affine:
        return affine(other) - self

    def substitute(self, values: Mapping[str, Extent]) -> Affine:
        """With names replaced by other expressions; a name that is no key stays."""
        total, constant = dict[str, int](), self.constant
        for name, factor in self.terms:
            found = affine(values.get(name, name))
            constant += found.constant * factor
            for inner, times in found.terms:
                total[inner] = total.get(inner, 0) + times * factor
        return _normal(total, constant) if self.terms else self

    def value(self, values: Mapping[str, int]) -> int:
        """The number that it is for these values; KeyError names what is missing."""
        return self.constant + sum(values[name] * factor for name, factor in self.terms)

    def __str__(self) -> str:
        text = ""
        for name, factor in self.terms:
            size = name if abs(factor) == 1 else f"{abs(factor)} * {name}"
            text += (
                f" {'-' if factor < 0 else '+'} {size}" if text else f"{'-' * (factor < 0)}{size}"
            )
        if self.constant or not text:
            sign = "-" if self.constant < 0 else "+"
            text += f" {sign} {abs(self.constant)}" if text else str(self.constant)
        return text


def affine(value: Extent) -> Affine:
    """An expression of a number, of a name, or of an expression."""
    if isinstance(value, Affine):
        return value
    return Affine(((value, 1),)) if isinstance(value, str) else Affine((), int(value))


def _normal(terms: Mapping[str, int], constant: int) -> Affine:
    return Affine(tuple(sorted([(n, c) for n, c in terms.items() if c])), constant)
