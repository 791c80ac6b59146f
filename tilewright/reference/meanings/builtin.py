"""Meaning of casts between types that hold the same bits, and of poison."""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.ir import Operation

from tilewright.diagnostics import unsupported
from tilewright.reference import numerics
from tilewright.reference.registry import meaning
from tilewright.reference.site import Site
from tilewright.reference.values import Array


@meaning("builtin.unrealized_conversion_cast")
def unrealized_conversion_cast(site: Site, op: Operation, *operands: Any) -> Any:
    """Between integers of one width that differ in signedness (and between equal types)."""
    if len(operands) != len(op.results):
        raise unsupported(op, "a cast of n values to m is not run")
    results: list[Any] = []
    for operand, value in zip(op.operands, operands, strict=True):
        target = op.results[len(results)].type
        if operand.type == target or not isinstance(value, np.ndarray):
            results.append(value)
            continue
        dtype = numerics.numpy_type(target)
        if dtype.itemsize != value.itemsize:
            raise unsupported(op, f"a cast from {operand.type} to {target} is not run")
        results.append(value.view(dtype))
    return results[0] if len(results) == 1 else tuple(results)


@meaning("ub.poison")
def poison(site: Site, op: Operation) -> Array:
    """NaN, or all ones, so that a use shows."""
    type = op.results[0].type
    dtype = numerics.numpy_type(type)
    shape = (1, *numerics.shape_of(type))
    if numerics.is_float(type):
        return np.full(shape, np.nan, dtype)
    return np.full(shape, -1 if dtype.kind == "i" else 1, dtype)
