"""Softmax over the last dimension."""

# Kernels are not typed Python: their parameters are arrays, tiles and constants of the tile language.
# pyright: reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import tilewright as tw
from tilewright.ops.arrays import check_operands, filled, flattened, result
from tilewright.ops.tiles import rows_of_tile

ROW_LIMIT = 1 << 15
"""Columns up to which a row is one tile, read once; longer rows are read twice, block by block."""


def _scores(X, m, n, BM: int, BN: int):
    """The tile at [m, n] in f32; what lies right of the array is -inf."""
    tile = tw.init_tile(X, [m, n], (BM, BN))
    if X.dtype.has_infinity:
        return tw.load_tile(tile, padding=float("-inf")).to(tw.f32)
    return tw.where(n + tw.arange(BN) < X.shape[1], tw.load_tile(tile).to(tw.f32), float("-inf"))


@tw.kernel
def softmax_rows(X, Y, BM: tw.constexpr, BN: tw.constexpr):
    """Whole rows: BN is at least the number of columns; what lies outside reads as -inf."""
    m = tw.program_id(0) * BM
    x = _scores(X, m, 0, BM, BN)
    e = tw.exp(x - tw.max(x, 1))
    tw.store_tile((e / tw.sum(e, 1)).to(Y.dtype), tw.init_tile(Y, [m, 0], (BM, BN)))


@tw.kernel
def softmax_blocks(X, Y, BM: tw.constexpr, BN: tw.constexpr):
    """Long rows, BN columns at a time: maximum and sum in one pass, the result in a second."""
    m = tw.program_id(0) * BM
    top = tw.full((BM, 1), -1.0e38, tw.f32)
    total = tw.zeros((BM, 1), tw.f32)
    for n in range(0, X.shape[1], BN):
        x = _scores(X, m, n, BM, BN)
        new = tw.maximum(top, tw.max(x, 1))
        total = total * tw.exp(top - new) + tw.sum(tw.exp(x - new), 1)
        top = new
    for n in range(0, X.shape[1], BN):
        x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN))).to(tw.f32)
        y = tw.exp(x - top) / total
        tw.store_tile(y.to(Y.dtype), tw.init_tile(Y, [m, n], (BM, BN)))


def row_tile(columns: int) -> int:
    """Columns of a tile that holds a whole row: a multiple of 64, so that few shapes compile anew, and
    for long rows of a power of two that distributes them evenly to many threads (6 % more at most)."""
    step = max(64, (1 << columns.bit_length() - 1) // 16)
    return max(64, -(-columns // step) * step)


def softmax(x: Any, *, out: Any = None, **options: Any) -> Any:
    """exp(x - max) / sum over the last dimension of x: [..., N], computed in f32, returned in x's dtype.

    `out`: an array of x's shape to fill and return.
    `options` go to `kernel.options`. Raises LaunchError for integers and for what is no array.
    """
    check_operands("softmax", 1, x=x)
    y = result(out, tuple(x.shape), x)
    flat, copy_back = filled(y, 1)
    rows, columns = flat.shape
    whole = columns <= ROW_LIMIT
    kernel = softmax_rows if whole else softmax_blocks
    kernel = kernel.options(**options) if options else kernel
    bm = rows_of_tile(x, rows, options)
    kernel[tw.cdiv(rows, bm)](flattened(x, 1), flat, bm, row_tile(columns) if whole else 4096)
    if copy_back is not None:
        copy_back()
    return y
