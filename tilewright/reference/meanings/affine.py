"""Meaning of the affine dialect's arithmetic."""

from __future__ import annotations

from functools import reduce
from typing import cast

import numpy as np
from xdsl.dialects.builtin import AffineMapAttr
from xdsl.ir import Operation

from tilewright.reference.registry import meaning
from tilewright.reference.site import Site
from tilewright.reference.values import Index, scalar


@meaning("affine.apply", "affine.min")
def apply(site: Site, op: Operation, *operands: Index) -> Index:
    """The map's result, the least where it has several; operands are its dimensions, then its symbols."""
    map = cast(AffineMapAttr, op.properties["map"]).data
    dims, symbols = operands[: map.num_dims], operands[map.num_dims :]
    # The expressions are sums, products and divisions: they work on whole rows.
    results = map.eval(list(dims), list(symbols))  # pyright: ignore[reportArgumentType]
    return reduce(
        np.minimum, (scalar(r) if isinstance(r, int) else cast(Index, r) for r in results)
    )
