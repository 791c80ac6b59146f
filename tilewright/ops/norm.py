"""Normalisation over the last dimension: rms_norm and layer_norm."""

# Kernels are not typed Python: their parameters are arrays, tiles and constants of the tile language.
# pyright: reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import tilewright as tw
from tilewright.diagnostics import LaunchError
from tilewright.ops.arrays import check_operands, filled, flattened, result
from tilewright.ops.softmax import row_tile
from tilewright.ops.tiles import rows_of_tile


@tw.kernel
def norm_rows(X, W, bias, Y, eps, CENTER: tw.constexpr, BM: tw.constexpr, BN: tw.constexpr):
    """(x - mean) * rsqrt(var + eps) * W + bias per row; without CENTER the mean is taken as 0."""
    m = tw.program_id(0) * BM
    n = X.shape[1]
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, BN))).to(tw.f32)
    if CENTER:
        inside = tw.arange(0, BN, axis=1, shape=(1, BN)) < n
        x = tw.where(inside, x - tw.sum(x, 1) / n, 0.0)
    y = x * tw.rsqrt(tw.sum(x * x, 1) / n + eps)
    if W is not None:
        y = y * tw.load_tile(tw.init_tile(W, [0], (1, BN))).to(tw.f32)
    if bias is not None:
        y = y + tw.load_tile(tw.init_tile(bias, [0], (1, BN))).to(tw.f32)
    tw.store_tile(y.to(Y.dtype), tw.init_tile(Y, [m, 0], (BM, BN)))


def rms_norm(
    x: Any, weight: Any = None, *, eps: float = 1e-6, out: Any = None, **options: Any
) -> Any:
    """x * rsqrt(mean(x^2) + eps) * weight over the last dimension.

    x: [..., N]; weight: [N] or None.  Computed in f32, returned in x's dtype.
    `out`: an array of x's shape to fill and return. `options` go to `kernel.options`.
    Raises LaunchError for integers and for shapes that do not fit.
    """
    return _norm(x, weight, None, eps, out, center=False, options=options)


def layer_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    eps: float = 1e-5,
    out: Any = None,
    **options: Any,
) -> Any:
    """(x - mean) * rsqrt(var + eps) * weight + bias over the last dimension.

    x: [..., N]; weight and bias: [N] or None.  Computed in f32, returned in x's dtype.
    `out`: an array of x's shape to fill and return. `options` go to `kernel.options`.
    Raises LaunchError for integers and for shapes that do not fit.
    """
    return _norm(x, weight, bias, eps, out, center=True, options=options)


def _norm(
    x: Any, weight: Any, bias: Any, eps: float, out: Any, *, center: bool, options: dict[str, Any]
) -> Any:
    check_operands("layer_norm" if center else "rms_norm", 1, x=x)
    for name, operand in (("weight", weight), ("bias", bias)):
        if operand is not None and tuple(operand.shape) != (x.shape[-1],):
            raise LaunchError(f"{name} has shape {tuple(operand.shape)}, not {(x.shape[-1],)}")
    y = result(out, tuple(x.shape), x)
    flat, copy_back = filled(y, 1)
    rows, columns = flat.shape
    kernel = norm_rows.options(**options) if options else norm_rows
    bm = rows_of_tile(x, rows, options)
    kernel[tw.cdiv(rows, bm)](
        flattened(x, 1), weight, bias, flat, float(eps), center, bm, row_tile(columns)
    )
    if copy_back is not None:
        copy_back()
    return y
