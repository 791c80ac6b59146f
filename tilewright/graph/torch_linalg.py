"""Small systems of equations in a program of torch: a scan over the columns, whose state is the matrix.

A step of elimination takes the row that has the largest element of its column among those not taken yet, as torch
does, and leaves it where it is: which row belongs to which unknown is put right by one product at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tilewright import dtypes
from tilewright.diagnostics import CompileError
from tilewright.graph import arrange, composed
from tilewright.graph import functions as f
from tilewright.graph.scan import scan
from tilewright.graph.traced import Traced, broadcast, elementwise, where

MOST = 128
"""Rows of a matrix, which stays near a workgroup from one column to the next."""


def _size(x: Traced) -> int:
    size = x.extents[-1].number
    if size is None or size > MOST or x.extents[-2] != x.extents[-1]:
        raise CompileError(
            f"a system of equations of [{x.extents[-2]}, {x.extents[-1]}]",
            rule=f"square, and {MOST} rows at most",
        )
    return size


def _picked(x: Traced, chosen: Traced, axis: int) -> Traced:
    return where(chosen, x, 0.0).sum(axis)


def cholesky(x: Traced, upper: bool = False) -> Traced:
    """The lower factor L of L L^T, or the upper one; of what is not positive, NaN."""
    size, row, column = _size(x), f.indices(x, -2), f.indices(x, -1)
    own = row <= column if upper else row >= column
    x = where(own, x, x.swapaxes(-1, -2)).copied()
    at = composed.counted(x, x.extents[:-1], x.ndim - 2)

    def step(rest: Traced, k: Traced) -> Any:
        down, across = _picked(rest, column == k, -1), _picked(rest, row == k, -2)
        pivot = _picked(across, at == k, -1)
        made = where(at >= k, down / np.sqrt(pivot)[..., None], 0.0)
        return rest - down[..., :, None] * (across / pivot[..., None])[..., None, :], made

    columns = scan(step, x, composed.counted(x, [size], 0))[1]
    made = arrange.moveaxis(columns, 0, -1)
    return made.swapaxes(-1, -2) if upper else made


def eliminated(x: Traced, y: Traced | None) -> tuple[Traced, Traced, Traced | None]:
    """The pivots [n, ...] and the signs of their exchanges, and the solution of x z = y (Gauss and Jordan)."""
    size = _size(x)
    both = x if y is None else arrange.concatenate([x, y], -1)
    lead = x.extents[:-1]
    at = f.indices(both, -1)
    row = composed.counted(both, lead, len(lead) - 1)
    free = arrange.full_like(both, 1.0, lead)

    def step(state: Any, k: Traced) -> Any:
        rest, free = state
        column = _picked(rest, at == k, -1)
        size_of = where(free > 0.0, np.absolute(column), -1.0)
        best = where(size_of == size_of.max(-1, True), row, size).min(-1, True)
        chosen = row == best
        pivot = _picked(column, chosen, -1)
        passed = where(row < best, free, 0.0).sum(-1)
        taken = _picked(rest, chosen[..., None], -2) / pivot[..., None]
        others = where(chosen, column - 1.0, column)
        rest = rest - others[..., :, None] * taken[..., None, :]
        each = where(chosen, 1.0, 0.0).astype(x.dtype)
        return (rest, where(chosen, 0.0, free)), (pivot, passed, each)

    counted = composed.counted(both, [size], 0)
    (rest, _), (pivots, passed, order) = scan(step, (both, free), counted)
    odd = elementwise("mod", passed.sum(0), 2.0)
    if y is None:
        return pivots, 1.0 - 2.0 * odd, None
    return pivots, 1.0 - 2.0 * odd, f.matmul(arrange.moveaxis(order, 0, -2), rest[..., size:])


def _solved(x: Traced, y: Traced, left: bool = True) -> Traced:
    if not left:
        return _solved(x.swapaxes(-1, -2), y.swapaxes(-1, -2)).swapaxes(-1, -2)
    vector = y.ndim == 1 or y.extents == x.extents[:-1]  # as torch tells vectors from matrices
    y = y[..., None] if vector else y
    lead = broadcast("solve", [x.extents[:-2], y.extents[:-2]])
    x, y = (arrange.broadcast_to(m, [*lead, *m.extents[-2:]]) for m in (x, y))
    made = eliminated(x, y)[2]
    assert made is not None
    return made[..., 0] if vector else made


def _inverted(x: Traced) -> Traced:
    one = elementwise("eq", f.indices(x, -1), f.indices(x, -2))
    return _solved(x, where(one, 1.0, 0.0).astype(x.dtype))


def _det(x: Traced) -> Traced:
    pivots, sign, _ = eliminated(x, None)
    return pivots.prod(0) * sign


def _logs_of_det(x: Traced) -> tuple[Traced, Traced]:
    pivots, sign, _ = eliminated(x, None)
    return np.sign(pivots).prod(0) * sign, np.log(np.absolute(pivots)).sum(0)


def _by_triangle(
    x: Traced, y: Traced, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Traced:
    row, column = f.indices(x, -2), f.indices(x, -1)
    x = where(row <= column if upper else row >= column, x, 0.0)
    return _solved(where(row == column, 1.0, x) if unitriangular else x, y, left)


def _by_cholesky(y: Traced, x: Traced, upper: bool = False) -> Traced:
    other = x.swapaxes(-1, -2)
    first, second = (other, x) if upper else (x, other)
    return _by_triangle(second, _by_triangle(first, y, upper=False), upper=True)


def _fine(x: Traced) -> Traced:
    return arrange.full_like(x, 0, x.extents[:-2], dtypes.i32)


OPS: Final[Mapping[str, Callable[..., Any]]] = {
    "linalg_cholesky_ex": lambda x, *, upper=False, **_: (cholesky(x, upper), _fine(x)),
    "cholesky": cholesky, "cholesky_solve": _by_cholesky, "linalg_solve_triangular": _by_triangle,
    "linalg_inv_ex": lambda x, **_: (_inverted(x), _fine(x)), "_linalg_det": lambda x: (_det(x), None, None),
    "_linalg_slogdet": lambda x: (*_logs_of_det(x), None, None),
    "_linalg_solve_ex": lambda x, y, *, left=True, **_: (_solved(x, y, left), None, None, _fine(x)),
    "_linalg_check_errors": lambda *_, **__: (None, None),
}  # fmt: skip
"""What such an op does, by its name without the overload."""
