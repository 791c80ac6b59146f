"""Fourier transforms of a program of torch as products: complex numbers are pairs of arrays (`torch_complex.py`).

A transform of n elements is a product with the n roots of one to all powers. Of n = a b it is b transforms of a, a turn
of each element, and a transforms of b (Cooley and Tukey), so that the matrices stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import pi
from typing import Any, Final

import numpy as np

from tilewright import dtypes
from tilewright.diagnostics import CompileError
from tilewright.graph import arrange, composed
from tilewright.graph.functions import matmul
from tilewright.graph.torch_complex import Complex
from tilewright.graph.traced import Traced

MOST = 4096
"""Elements of the largest matrix; a transform of a prime number of them is one product."""

WHOLE = 64
"""Elements whose transform is one product."""


def _roots(like: Traced, rows: int, columns: int, n: int, sign: int) -> Complex:
    """exp(sign 2 pi i r c / n) for rows r and columns c; what lies behind whole turns is exact."""
    r, c = (composed.counted(like, [rows, columns], axis) for axis in (0, 1))
    kind = dtypes.f64 if like.dtype.itemsize == 8 else dtypes.f32
    angle = ((r * c) % n).astype(kind) * (2 * pi / n)
    return Complex(np.cos(angle).astype(like.dtype), np.sin(angle).astype(like.dtype) * float(sign))


def _factor(n: int) -> int:
    """The divisor of n that is nearest to its root, from above; n of a prime."""
    return next(b for b in range(int(n**0.5) or 1, n + 1) if n % b == 0 and b * b >= n)


def _transformed(x: Complex, sign: int) -> Complex:
    """Along the last dimension; `imag` may be None."""
    n = x.real.shape[-1]
    if not isinstance(n, int):
        raise CompileError(f"a Fourier transform of {n} elements, which is no number")
    b = n if n <= WHOLE else _factor(n)
    if b == n > MOST:
        raise CompileError(
            f"a Fourier transform of {n} elements, which has a divisor of {n} only",
            rule=f"divisors up to {MOST}",
        )
    if b < n:
        a, lead = n // b, x.real.extents[:-1]
        x = _of_parts(lambda y: y.reshape([*lead, a, b]).swapaxes(-1, -2), x)
        x = _transformed(x, sign)
        turn = _roots(x.real, b, a, n, sign)
        x = Complex(
            x.real * turn.real - x.imag * turn.imag, x.real * turn.imag + x.imag * turn.real
        )
        x = _transformed(_of_parts(lambda y: y.swapaxes(-1, -2), x), sign)
        return _of_parts(lambda y: y.swapaxes(-1, -2).reshape([*lead, n]), x)
    roots = _roots(x.real, n, n, n, sign)
    real, imag = (matmul(x.real, root) for root in roots)
    if x.imag is None:
        return Complex(real, imag)
    return Complex(real - matmul(x.imag, roots.imag), imag + matmul(x.imag, roots.real))


def _of_parts(op: Callable[[Traced], Traced], x: Complex) -> Complex:
    return Complex(*(None if part is None else op(part) for part in x))


def _along(x: Complex, dims: Sequence[int], sign: int) -> Complex:
    for dim in dims:
        x = _of_parts(lambda y: arrange.moveaxis(y, dim, -1), x)  # noqa: B023
        x = _of_parts(lambda y: arrange.moveaxis(y, -1, dim), _transformed(x, sign))  # noqa: B023
    return x


def _normed(x: Any, shape: Sequence[int], dims: Sequence[int], way: int) -> Any:
    """As it is (0), by the root of how many elements there are (1), or by their number (2)."""
    count = float(np.prod([shape[d] for d in dims]))
    scale = (1.0, count**-0.5, 1 / count)[way]
    return x if way == 0 else _of_parts(lambda y: y * scale, x)


def _to_complex(x: Traced, dims: Sequence[int], way: int, half: bool) -> Complex:
    *others, last = (d % x.ndim for d in dims)
    made = _along(Complex(x, None), [last], -1)
    if half:
        kept = (*[slice(None)] * last, slice(0, x.shape[last] // 2 + 1))
        made = _of_parts(lambda y: y[kept], made)
    return _normed(_along(made, others, -1), x.shape, [*others, last], way)


def _to_real(x: Complex, dims: Sequence[int], way: int, size: int) -> Traced:
    """What lies behind the middle is the mirror image of what lies before it."""
    rank = x.real.ndim
    *others, last = (d % rank for d in dims)
    x = _along(x, others, 1)
    before = (slice(None),) * last
    parts = [part[(*before, slice(0, size // 2 + 1))] for part in x]
    mirrored = [arrange.flip(p[(*before, slice(1, (size + 1) // 2))], last) for p in parts]
    whole = Complex(
        arrange.concatenate([parts[0], mirrored[0]], last),
        arrange.concatenate([parts[1], -mirrored[1]], last),
    )
    made = _along(whole, [last], 1)
    return _normed(made, made.real.shape, [*others, last], way).real


def _of_both(x: Complex, dims: Sequence[int], way: int, forward: bool) -> Complex:
    made = _along(x, [d % x.real.ndim for d in dims], -1 if forward else 1)
    return _normed(made, made.real.shape, dims, way)


OPS: Final[Mapping[str, Callable[..., Any]]] = {
    "_fft_r2c": _to_complex, "_fft_c2r": _to_real, "_fft_c2c": _of_both,
}  # fmt: skip
"""What such an op does, by its name without the overload."""
