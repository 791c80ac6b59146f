"""Whether results of two stages are the same: floats up to what right runs are apart, integers exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import dtypes
from tilewright.tools.rounding import Rounding, step_of

TOGETHER = 0.5
"""Many elements together may be off by so much of what each of them may be, in the norm."""


def changed(
    before: np.ndarray[Any, Any],
    expected: np.ndarray[Any, Any],
    given: np.ndarray[Any, Any],
    rounding: Rounding | None = None,
    terms: np.ndarray[Any, Any] | None = None,
) -> str | None:
    """How a result differs, measured where either run wrote: what nobody touched says nothing.

    `terms`: how large what each element is made up of is, if more than the element.
    """
    if expected.ndim == 0 or expected.size == 0:
        return difference(expected, given, rounding=rounding, terms=terms)
    touched = _other_bits(before, expected) | _other_bits(before, given)
    box: list[slice] = []
    for dim in range(expected.ndim):
        others = tuple(d for d in range(expected.ndim) if d != dim)
        where = np.flatnonzero(touched.any(axis=others))
        if not where.size:
            return None
        box.append(slice(int(where[0]), int(where[-1]) + 1))
    part = tuple(box)
    start, terms = [b.start for b in box], None if terms is None else terms[part]
    return difference(expected[part], given[part], start, rounding, terms)


def _other_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    kind = np.dtype(f"u{a.dtype.itemsize}") if a.dtype.itemsize <= 8 else a.dtype
    return a.view(kind) != b.view(kind)


def difference(
    expected: np.ndarray[Any, Any],
    given: np.ndarray[Any, Any],
    start: Sequence[int] = (),
    rounding: Rounding | None = None,
    terms: np.ndarray[Any, Any] | None = None,
) -> str | None:
    """How a result differs from the expected one; None when it is the same up to rounding.

    The arrays are a part that starts at `start` of the whole ones. `terms`: see `changed`.
    """
    dtype = dtypes.from_numpy(expected.dtype)
    rounding = rounding or Rounding(step_of(dtype) if dtype.is_float else 0.0)
    if not dtype.is_float:
        wrong = expected != given
        if np.count_nonzero(wrong) <= rounding.flips(wrong.size):
            off = np.abs(expected.astype(np.float64) - given.astype(np.float64))
            wrong &= (off > 1) & (rounding.step is not None)
        return _first(np.argwhere(wrong), expected, given, start) if wrong.any() else None
    right, value = expected.astype(np.float64), given.astype(np.float64)
    special = ~np.isfinite(right)
    same = np.where(special, (right == value) | (np.isnan(right) & np.isnan(value)), True)
    same &= special | np.isfinite(value)
    if not same.all():
        return _first(np.argwhere(~same), expected, given, start)
    right, value = np.where(special, 0, right), np.where(special, 0, value)
    error = np.abs(right - value)
    bound = rounding.bound(dtype, right, None if terms is None else np.where(special, 0, terms))
    outliers = error > bound
    if np.count_nonzero(outliers) > rounding.flips(error.size):
        return _first(np.argwhere(outliers), expected, given, start)
    error[outliers] = 0
    off, most, norm = (float(np.linalg.norm(x)) for x in (error, bound, right))
    most *= max(TOGETHER, max(right.size, 1) ** -0.25)
    if off > most:
        return f"has relative error {off / (norm or 1):.3g}, more than the {most / (norm or 1):.3g} of rounding"
    return None


def _first(
    where: np.ndarray[Any, Any],
    expected: np.ndarray[Any, Any],
    given: np.ndarray[Any, Any],
    start: Sequence[int],
) -> str:
    at = tuple(int(i) for i in where[0])
    place = [i + s for i, s in zip(at, start, strict=True)] if start else list(at)
    return (
        f"has {given[at]} at {place} instead of {expected[at]}, and differs in {len(where)} of "
        f"{expected.size} elements"
    )
