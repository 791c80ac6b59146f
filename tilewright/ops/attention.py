"""Attention forward: softmax(q k^T scale) v with an online softmax, one pass over the keys."""

# Kernels are not typed Python: their parameters are arrays, tiles and constants of the tile language.
# pyright: reportMissingParameterType=false

from __future__ import annotations

from math import e, log2, sqrt
from typing import Any

import tilewright as tw
from tilewright.diagnostics import LaunchError
from tilewright.ops.arrays import check_operands, filled, flattened, is_view, result
from tilewright.ops.tiles import attention_tile

LOG2_E = log2(e)
UNSEEN = -1.0e30
SMALLEST = 1.0e-20
"""Of factors: products of keys that are not seen stay far below all others, and one that is zero still gives 1."""


def attend(
    q, K, V, h, m, n, scale, top, total, out,
    MASKED: tw.constexpr, CAUSAL: tw.constexpr, FLIP: tw.constexpr,
    BM: tw.constexpr, BN: tw.constexpr, D: tw.constexpr,
):  # fmt: skip
    """One block of BN keys: the new running maximum, sum and output.

    `scale` includes log2 e and is at least SMALLEST; FLIP is for a negative one: it turns the signs of the products.
    """
    k = tw.load_tile(tw.init_tile(K, [h, n, 0], (BN, D)))
    s = tw.tile_mma(q, tw.transpose(k))
    if FLIP:
        s = -s
    if MASKED:
        key = tw.arange(0, BN, axis=1, shape=(BM, BN)) + n
        end = K.shape[1]
        if CAUSAL:
            end = tw.minimum(tw.arange(1, BM + 1, axis=0, shape=(BM, 1)) + m, end)
        s = tw.where(key < end, s, UNSEEN)
    # A positive factor commutes with the maximum: one multiply-add per element.
    new = tw.maximum(top, tw.max(s, 1) * scale)
    p = tw.exp2(s * scale - new)
    keep = tw.exp2(top - new)
    total = total * keep + tw.sum(p, 1)
    v = tw.load_tile(tw.init_tile(V, [h, n, 0], (BN, D)))
    out = tw.tile_mma(p.to(V.dtype), v, out * keep)
    return new, total, out


@tw.kernel
def attention_kernel(
    Q, K, V, O, scale,
    CAUSAL: tw.constexpr = False, FLIP: tw.constexpr = False,
    D: tw.constexpr = 64, BM: tw.constexpr = 64, BN: tw.constexpr = 256,
):  # fmt: skip
    """Rows BM * program_id(0) .. of head program_id(1); Q, K, V, O: [heads, length, D]."""
    m, h = tw.program_id(0) * BM, tw.program_id(1)
    q = tw.load_tile(tw.init_tile(Q, [h, m, 0], (BM, D)))
    top = tw.full((BM, 1), UNSEEN, tw.f32)
    total = tw.zeros((BM, 1), tw.f32)
    out = tw.zeros((BM, D), tw.f32)
    # Blocks that no mask touches first, then those at the diagonal or at the end of the keys.
    keys = min(m + BM, K.shape[1]) if CAUSAL else K.shape[1]
    free = (min(m + 1, K.shape[1]) if CAUSAL else K.shape[1]) // BN * BN
    for n in range(0, free, BN):
        top, total, out = attend(
            q, K, V, h, m, n, scale, top, total, out, False, CAUSAL, FLIP, BM, BN, D
        )  # fmt: skip
    for n in range(free, keys, BN):
        top, total, out = attend(
            q, K, V, h, m, n, scale, top, total, out, True, CAUSAL, FLIP, BM, BN, D
        )  # fmt: skip
    tw.store_tile((out / total).to(O.dtype), tw.init_tile(O, [h, m, 0], (BM, D)))


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    out: Any = None,
    **options: Any,
) -> Any:
    """softmax(q k^T scale) v per head.

    q: [..., L, D], k and v: [..., S, D], leading dimensions equal, D a multiple of 16 up to 256.  `causal`: row i
    sees keys 0 .. i.  `scale` is 1 / sqrt(D) by default.  The result has q's shape and dtype.
    `out`: an array of q's shape to fill and return.
    `options` go to `kernel.options`. Raises LaunchError for shapes and element types that do not fit.
    """
    kernel = attention_kernel.options(**options) if options else attention_kernel
    name = bool(causal), None if scale is None else float(scale)
    operands = (q, k, v, out)
    if out is not None and kernel.launcher.named(name, operands):
        return out
    check_operands("attention", 2, q=q, k=k, v=v)
    d = q.shape[-1]
    if d % 16 or not 16 <= d <= 256:
        raise LaunchError(f"attention: head dimension {d} is not a multiple of 16 up to 256")
    if tuple(k.shape) != tuple(v.shape) or k.shape[-1] != d or k.shape[:-2] != q.shape[:-2]:
        raise LaunchError(
            f"attention of q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}: k and v must be equal in "
            "shape, and equal to q in all but the length"
        )
    o = result(out, tuple(q.shape), q)
    flat, copy_back = filled(o, 2)
    factor = float(LOG2_E * (1 / sqrt(d) if scale is None else scale))
    arrays = [flattened(x, 2) for x in (q, k, v)]
    heads, length = flat.shape[:2]
    tile = attention_tile(q, d, options.get("target"))
    args = (*arrays, flat, max(abs(factor), SMALLEST), name[0], factor < 0, d, *tile.values())
    if tw.auto in tile.values():
        kernel[lambda c: (tw.cdiv(length, c.BM), heads)](*args)
    else:
        grid = tw.cdiv(length, tile["BM"]), heads
        kernel[grid](*args)
        if out is not None and all(map(is_view, (*arrays, flat), (q, k, v, o))):
            kernel.launcher.known_as(name, operands, grid, args)
    if copy_back is not None:
        copy_back()
    return o
