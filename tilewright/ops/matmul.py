"""Matrix product with a fused epilogue: act(a @ b + bias) + residual."""

# Kernels are not typed Python: their parameters are arrays, tiles and constants of the tile language.
# pyright: reportMissingParameterType=false

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import tilewright as tw
from tilewright import knobs
from tilewright.diagnostics import LaunchError
from tilewright.dtypes import DType
from tilewright.ops.arrays import (
    check_operands,
    device_of,
    dtype_of,
    empty,
    filled,
    flattened,
    lies_along,
    result,
    stacked,
)
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
    operands = (a, b, bias, residual, out)
    kernel = matmul_kernel.options(**options) if options else matmul_kernel
    try:
        if out is not None and kernel.launcher.named((activation,), operands):
            return out
        given = [x for x in (a, residual, out) if x is not None]
        if len(a.shape) > 2 and len(b.shape) == 2 and a.shape[-1] == b.shape[0]:
            # The rows of all products are those of one; of what does not fit, messages name the shape that was given.
            shape = (*a.shape[:-1], b.shape[1])
            flat = {id(x): stacked(x) for x in given if x is a or x.shape == shape}
            if all(flat.get(id(x)) is not None for x in given):
                more = {"residual": flat.get(id(residual)), "out": flat.get(id(out))}
                c = matmul(flat[id(a)], b, bias=bias, activation=activation, **more, **options)
                return c.reshape(shape) if out is None else out
        looks = tuple(
            None if x is None else (x.dtype, tuple(x.shape), device_of(x)) for x in operands
        )
        along_k, knob = (lies_along(a, -1), lies_along(b, -2)), knobs.current()
        asked = tuple(options.items())
        plan = _planned(looks, along_k, activation, asked, (knob.num_threads, knob.cpu))
    except (
        AttributeError,
        TypeError,
    ):  # what is no array has no looks, and what is no option no key
        check_operands("matmul", 2, floats=False, a=a, b=b)
        for name, x in (("bias", bias), ("residual", residual), ("out", out)):
            if x is not None:
                check_operands("matmul", 1, floats=False, **{name: x})
        raise
    c = empty(plan.shape, a, plan.element) if out is None else out
    flat, copy_back = filled(c, 2)
    if residual is not None:
        residual = flattened(residual, 2)
    args = (flattened(a, 2), flattened(b, 2), flat, bias, residual, *plan.constexprs)
    plan.launch(*args)
    if copy_back is not None:
        copy_back()
    elif out is not None and len(plan.shape) <= 3:  # what is flattened is a view
        kernel.launcher.known_as((activation,), operands, plan.grid, args)
    return c


class _Plan(NamedTuple):
    """What becomes of products whose operands look alike."""

    shape: tuple[int, ...]
    element: DType
    """Of the result."""
    launch: Callable[..., None]
    """The kernel on its grid."""
    grid: Any
    constexprs: tuple[Any, ...]


class _Operand(NamedTuple):
    """All of an array that a plan depends on."""

    dtype: Any
    shape: tuple[int, ...]
    device: str


@lru_cache(4096)
def _planned(
    looks: tuple[tuple[Any, tuple[int, ...], str] | None, ...],
    along_k: tuple[bool, bool],
    activation: str | None,
    asked: tuple[tuple[str, Any], ...],
    knob: tuple[int | None, str | None],
) -> _Plan:
    """The plan for operands (dtype, shape, device) under options; `along_k`: do the rows of a, the columns of b lie
    together? `knob`: what else it depends on. LaunchError where they do not fit."""
    a, b, bias, residual, out = (None if x is None else _Operand(*x) for x in looks)
    check_operands("matmul", 2, floats=False, a=a, b=b)
    assert a is not None and b is not None
    if a.shape[-1] != b.shape[-2]:
        raise LaunchError(
            f"matmul of {a.shape} and {b.shape}: the last dimension of a and the one before the "
            "last of b must be equal"
        )
    a_batch, b_batch = len(a.shape) > 2, len(b.shape) > 2
    batch = (a if a_batch else b).shape[:-2]
    for name, x in (("a", a), ("b", b)):
        if len(x.shape) > 2 and x.shape[:-2] != batch:
            raise LaunchError(f"matmul: batch dimensions {x.shape[:-2]} of {name} are not {batch}")
    if activation is not None and activation not in ACTIVATIONS:
        raise LaunchError(f"activation '{activation}' is not one of {', '.join(ACTIVATIONS)}")
    m, n = a.shape[-2], b.shape[-1]
    element = dtype_of(a)
    acc = tw.f64 if element == tw.f64 else tw.f32 if element.is_float else tw.i32
    shape = (*batch, m, n)
    if out is not None:
        result(out, shape, a)
    if residual is not None and residual.shape != shape:
        raise LaunchError(f"residual has shape {residual.shape}, the result {shape}")
    if bias is not None and bias.shape != (n,):
        raise LaunchError(f"bias has shape {bias.shape}, not {(n,)}")
    options, batches = dict(asked), prod(batch)
    extents = batches, m, n, a.shape[-1]
    tile = product_tile((element, element, acc), a.device, extents, along_k, options)

    def grid(BM: int, BN: int) -> tuple[int, int, int]:
        return -(-m // BM), -(-n // BN), batches

    left = tw.auto in tile.values()
    kernel = matmul_kernel.options(**options) if options else matmul_kernel
    launched = grid if left else grid(tile["BM"], tile["BN"])
    return _Plan(
        shape,
        element if element.is_float else tw.i32,
        kernel[launched],
        launched,
        (
            ACTIVATIONS[activation] if activation else None, acc, a_batch, b_batch,
            tile["BM"], tile["BN"], tile.get("BK", 32),
        ),
    )  # fmt: skip
