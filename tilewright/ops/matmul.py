"""Matrix product with a fused epilogue: act(a @ b + bias) + residual."""

# Kernels are not typed Python: their parameters are arrays, tiles and constants of the tile language.
# pyright: reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import tilewright as tw
from tilewright.diagnostics import LaunchError
from tilewright.ops.arrays import check_operands, dtype_of, filled, flattened, result
from tilewright.ops.tiles import product_tile


def relu(x):
    return tw.maximum(x, 0.0)


def gelu(x):
    """The exact form, x Phi(x)."""
    return 0.5 * x * (1.0 + tw.erf(x * 0.7071067811865476))


def gelu_tanh(x):
    return x * tw.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))


def silu(x):
    return x * tw.sigmoid(x)


ACTIVATIONS = {"relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu}


@tw.kernel
def matmul_kernel(
    A, B, C, bias, residual,
    ACT: tw.constexpr = None, ACC: tw.constexpr = tw.f32, A_BATCH: tw.constexpr = True,
    B_BATCH: tw.constexpr = True, BM: tw.constexpr = 256, BN: tw.constexpr = 256,
    BK: tw.constexpr = 32,
):  # fmt: skip
    """C[z] = ACT(A[z] B[z] + bias) + residual[z]; all of rank 3, bias of rank 1; absent operands are None."""
    m, n, z = tw.program_id(0) * BM, tw.program_id(1) * BN, tw.program_id(2)
    a = tw.init_tile(A, [z if A_BATCH else 0, m, 0], (BM, BK))
    b = tw.init_tile(B, [z if B_BATCH else 0, 0, n], (BK, BN))
    acc = tw.zeros((BM, BN), ACC)
    for _ in range(0, A.shape[2], BK):
        acc = tw.tile_mma(tw.load_tile(a), tw.load_tile(b), acc)
        a = tw.update_tile_offset(a, [0, BK])
        b = tw.update_tile_offset(b, [BK, 0])
    if bias is not None:
        acc = acc + tw.load_tile(tw.init_tile(bias, [n], (1, BN))).to(ACC)
    if ACT is not None:
        acc = ACT(acc)
    if residual is not None:
        acc = acc + tw.load_tile(tw.init_tile(residual, [z, m, n], (BM, BN))).to(ACC)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [z, m, n], (BM, BN)))


def matmul(
    a: Any,
    b: Any,
    *,
    bias: Any = None,
    activation: str | None = None,
    residual: Any = None,
    out: Any = None,
    **options: Any,
) -> Any:
    """act(a @ b + bias) + residual.

    a: [..., M, K] and b: [..., K, N] of one dtype; their batch dimensions are equal, or absent on one side.
    Transposed operands are given as views (`b.T`).  bias: [N].  residual: [..., M, N].  activation: None or a
    name of `ACTIVATIONS`.  Accumulates in f32 (f64 for f64, i32 for integers); the result has the dtype of `a`
    (i32 for integers) unless `out` says otherwise.  `options` go to `kernel.options`.
    Raises LaunchError for shapes and element types that do not fit.
    """
    check_operands("matmul", 2, floats=False, a=a, b=b)
    if a.shape[-1] != b.shape[-2]:
        raise LaunchError(
            f"matmul of {tuple(a.shape)} and {tuple(b.shape)}: the last dimension of a and the one before the "
            "last of b must be equal"
        )
    batch = tuple((a if a.ndim > 2 else b).shape[:-2])
    for name, x in (("a", a), ("b", b)):
        if x.ndim > 2 and tuple(x.shape[:-2]) != batch:
            raise LaunchError(
                f"matmul: batch dimensions {tuple(x.shape[:-2])} of {name} are not {batch}"
            )
    if activation is not None and activation not in ACTIVATIONS:
        raise LaunchError(f"activation '{activation}' is not one of {', '.join(ACTIVATIONS)}")
    m, n = a.shape[-2], b.shape[-1]
    element = dtype_of(a)
    floating = element.is_float
    acc = tw.f64 if element == tw.f64 else tw.f32 if floating else tw.i32
    c = result(out, (*batch, m, n), a, element if floating else tw.i32)
    if residual is not None and tuple(residual.shape) != (*batch, m, n):
        raise LaunchError(
            f"residual has shape {tuple(residual.shape)}, the result {(*batch, m, n)}"
        )
    if bias is not None and tuple(bias.shape) != (n,):
        raise LaunchError(f"bias has shape {tuple(bias.shape)}, not {(n,)}")
    flat, copy_back = filled(c, 2)
    if residual is not None:
        residual = flattened(residual, 2)
    kernel = matmul_kernel.options(**options) if options else matmul_kernel

    tile = product_tile(a, m, n, flat.shape[0], options)

    def grid(BM: int, BN: int) -> tuple[int, int, int]:
        return -(-m // BM), -(-n // BN), flat.shape[0]

    left = tw.auto in tile.values()
    kernel[grid if left else grid(tile["BM"], tile["BN"])](
        flattened(a, 2), flattened(b, 2), flat, bias, residual,
        ACTIVATIONS[activation] if activation else None, acc, a.ndim > 2, b.ndim > 2,
        tile["BM"], tile["BN"], tile.get("BK", 32),
    )  # fmt: skip
    if copy_back is not None:
        copy_back()
    return c
