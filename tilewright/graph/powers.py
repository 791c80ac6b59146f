"""Powers of traced arrays: those of integers exactly, wrapping around as products do, whole ones that are known by
squaring, others by exp2 and log2.
"""

from __future__ import annotations

from math import log2
from typing import Any

import numpy as np

from tilewright import dtypes
from tilewright.graph.arrange import full_like
from tilewright.graph.traced import Traced, elementwise, where


def _any_power(x: Any, exponent: Traced) -> Traced:
    """|x| to a power by exp2 and log2, with x's sign where the power is odd; NaN where it is no whole number."""
    kind = elementwise("add", exponent, x).dtype
    exponent = exponent.astype(kind)
    if not kind.is_float:
        signed = dtypes.i64 if kind.is_unsigned else kind
        x = x.astype(signed) if isinstance(x, Traced) else x
        return elementwise("power", x, exponent.astype(signed)).astype(kind)
    if not isinstance(x, Traced) and x > 0:
        return np.exp2(exponent * log2(x))
    x = x if isinstance(x, Traced) else full_like(exponent, float(x))
    size = np.absolute(x)
    size = where(size == 1.0, 1.0, np.exp2(exponent * np.log2(size)))
    half, whole = exponent * 0.5, np.floor(exponent) == exponent  # infinite ones are even
    turned = where(np.floor(half) == half, size, where(whole, -size, float("nan")))
    return where(exponent == 0.0, 1.0, where(x < 0.0, turned, size))


def power(x: Any, exponent: Any) -> Traced:
    """Whole powers and those of integers by squaring, square roots as such, others by exp2 and log2."""
    if isinstance(exponent, Traced):
        return _any_power(x, exponent)
    if exponent in (0.5, -0.5):
        return elementwise("sqrt" if exponent > 0 else "rsqrt", x)
    if exponent < 0:
        return 1.0 / power(x, -exponent)
    if exponent != int(exponent):
        return elementwise("exp2", elementwise("log2", x) * float(exponent))
    if exponent < 2:
        return x if exponent else full_like(x, 1)
    half = power(x, int(exponent) // 2)
    return half * half * x if exponent % 2 else half * half
