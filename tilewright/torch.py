"""The ready-made kernels as operators of PyTorch: `torch.ops.tilewright.matmul` and the rest.

Importing this module registers them with `torch.library`, with fake implementations, so that
torch.compile keeps them in its graph (no graph break) and exports see their shapes. They run on CPU
and CUDA tensors, on the current stream. Their gradients are those of the same function in PyTorch's
own operators, which the backward pass computes anew from the inputs.

    import torch, tilewright.torch as tt

    @torch.compile(fullgraph=True)
    def block(x, w, b):
        return tt.rms_norm(tt.matmul(x, w, b, activation="gelu"))
"""

# torch may be missing where types are checked: it is Any there, its decorators among it.
# pyright: reportUntypedFunctionDecorator=false

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from tilewright import ops
from tilewright.ops.matmul import ACTIVATIONS

try:
    torch: Any = import_module("torch")
except ImportError as error:  # pragma: no cover
    raise ImportError("tilewright.torch needs PyTorch: pip install torch") from error

if TYPE_CHECKING:
    Tensor: TypeAlias = Any
else:
    Tensor = torch.Tensor

__all__ = ["attention", "layer_norm", "matmul", "rms_norm", "softmax"]


def fake_of(operator: Any) -> Any:
    """Decorates what gives the shape and type of an operator's result, without data."""
    return operator.register_fake


def differentiable(operator: Any, plain: Callable[..., Any]) -> None:
    """Gives an operator the gradients of `plain`, the same function of the same arguments by PyTorch."""

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
        ctx.save_for_backward(*tensors)
        ctx.rest = [None if isinstance(x, torch.Tensor) else (x,) for x in inputs]

    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        def of_tensors(*tensors: Any) -> Any:
            found = iter(tensors)
            return plain(*(next(found) if kept is None else kept[0] for kept in ctx.rest))

        _, pull = torch.func.vjp(of_tensors, *ctx.saved_tensors)
        found = iter(pull(gradient))
        return tuple(next(found) if kept is None else None for kept in ctx.rest)

    operator.register_autograd(backward, setup_context=keep)


@torch.library.custom_op("tilewright::matmul", mutates_args=())
def matmul(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    activation: str | None = None,
) -> Tensor:
    """act(a @ b + bias) + residual; see `tilewright.ops.matmul`."""
    return ops.matmul(a, b, bias=bias, residual=residual, activation=activation)


@fake_of(matmul)
def _(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    activation: str | None = None,
) -> Tensor:
    torch._check(a.ndim >= 2 and b.ndim >= 2, lambda: "matmul takes tensors of rank 2 and more")
    torch._check(a.shape[-1] == b.shape[-2], lambda: f"matmul of {a.shape} and {b.shape}")
    torch._check(activation is None or activation in ACTIVATIONS, lambda: f"no {activation}")
    batch = (a if a.ndim > 2 else b).shape[:-2]
    dtype = a.dtype if a.dtype.is_floating_point else torch.int32
    return a.new_empty((*batch, a.shape[-2], b.shape[-1]), dtype=dtype)


@torch.library.custom_op("tilewright::attention", mutates_args=())
def attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None
) -> Tensor:
    """softmax(q k^T scale) v per head; see `tilewright.ops.attention`."""
    return ops.attention(q, k, v, causal=causal, scale=scale)


@fake_of(attention)
def _(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None) -> Tensor:
    torch._check(k.shape == v.shape, lambda: f"attention of k {k.shape} and v {v.shape}")
    return q.new_empty(q.shape)


@torch.library.custom_op("tilewright::softmax", mutates_args=())
def softmax(x: Tensor) -> Tensor:
    """Softmax over the last dimension; see `tilewright.ops.softmax`."""
    return ops.softmax(x)


@fake_of(softmax)
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.custom_op("tilewright::rms_norm", mutates_args=())
def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """x * rsqrt(mean(x^2) + eps) * weight; see `tilewright.ops.rms_norm`."""
    return ops.rms_norm(x, weight, eps=eps)


@fake_of(rms_norm)
def _(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.custom_op("tilewright::layer_norm", mutates_args=())
def layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """(x - mean) * rsqrt(var + eps) * weight + bias; see `tilewright.ops.layer_norm`."""
    return ops.layer_norm(x, weight, bias, eps=eps)


@fake_of(layer_norm)
def _(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    return x.new_empty(x.shape)


def _plain_matmul(a: Any, b: Any, bias: Any, residual: Any, activation: str | None) -> Any:
    act = {
        None: lambda x: x,
        "relu": torch.relu,
        "gelu": functional.gelu,
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "silu": functional.silu,
    }
    product = a @ b if bias is None else a @ b + bias
    return act[activation](product) + (0 if residual is None else residual)


def _plain_attention(q: Any, k: Any, v: Any, causal: bool, scale: float | None) -> Any:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)


functional = torch.nn.functional
differentiable(matmul, _plain_matmul)
differentiable(attention, _plain_attention)
differentiable(softmax, lambda x: torch.softmax(x, -1))
differentiable(rms_norm, lambda x, w, eps: functional.rms_norm(x, x.shape[-1:], w, eps))
differentiable(layer_norm, lambda x, w, b, eps: functional.layer_norm(x, x.shape[-1:], w, b, eps))
