"""Meaning of the index dialect, whose arithmetic stands with that of arith, and of affine arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import AffineMapAttr
from xdsl.ir import Operation

from tilewright.dialects.upstream.affine import DelinearizeIndexOp, LinearizeIndexOp, extents
from tilewright.dialects.upstream.index import CmpOp
from tilewright.reference.meanings.arith import as_unsigned
from tilewright.reference.registry import meaning
from tilewright.reference.site import Site
from tilewright.reference.values import Array, Index, scalar

_TESTS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@meaning("index.cmp")
def compare(site: Site, op: CmpOp, a: Array, b: Array) -> Array:
    name = op.predicate
    if name[0] == "u":
        a, b = as_unsigned(a), as_unsigned(b)
    return _TESTS[name if name in _TESTS else name[1:]](a, b)


@meaning("index.sizeof")
def size_of(site: Site, op: Operation) -> Array:
    return scalar(64)


@meaning("affine.apply", "affine.min", "affine.max")
def apply(site: Site, op: Operation, *operands: Index) -> Index:
    """The map's result, the least or largest where it has several; operands are its dimensions, then its symbols."""
    map = cast(AffineMapAttr, op.properties["map"]).data
    dims, symbols = operands[: map.num_dims], operands[map.num_dims :]
    # The expressions are sums, products and divisions: they work on whole rows.
    results = map.eval(list(dims), list(symbols))  # pyright: ignore[reportArgumentType]
    return reduce(
        np.maximum if op.name == "affine.max" else np.minimum,
        (scalar(r) if isinstance(r, int) else cast(Index, r) for r in results),
    )


@meaning("affine.delinearize_index")
def delinearize(site: Site, op: DelinearizeIndexOp, rest: Index, *basis: Index) -> Any:
    digits: list[Index] = []
    for extent in reversed(extents(op, basis)):
        rest, digit = np.divmod(rest, extent)
        digits.append(digit)
    return (rest, *reversed(digits)) if digits else rest


@meaning("affine.linearize_index")
def linearize(site: Site, op: LinearizeIndexOp, *operands: Index) -> Index:
    digits, basis = operands[: len(op.multi_index)], operands[len(op.multi_index) :]
    number = digits[0]
    for digit, extent in zip(digits[1:], extents(op, basis), strict=True):
        number = number * extent + digit
    return number
