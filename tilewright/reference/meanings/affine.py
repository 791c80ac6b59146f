"""Meaning of the affine dialect's arithmetic."""

from __future__ import annotations

from typing import cast

from xdsl.dialects.builtin import AffineMapAttr
from xdsl.ir import Operation

from tilewright.reference.registry import meaning
from tilewright.reference.site import Site
from tilewright.reference.values import Index, scalar


@meaning("affine.apply")
def apply(site: Site, op: Operation, *operands: Index) -> Index:
    """The map's only result; operands are its dimensions, then its symbols."""
    map = cast(AffineMapAttr, op.properties["map"]).data
    dims, symbols = operands[: map.num_dims], operands[map.num_dims :]
    # The expressions are sums, products and divisions: they work on whole rows.
    (result,) = map.eval(list(dims), list(symbols))  # pyright: ignore[reportArgumentType]
    if isinstance(result, int):
        return scalar(result)  # of a constant, or of numbers that need no row
    return cast(Index, result)
