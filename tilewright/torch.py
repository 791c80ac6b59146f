"""The ready-made kernels as operators of PyTorch: `torch.ops.tilewright.matmul` and the rest.

Importing this module registers them with `torch.library`, with fake implementations, so that
torch.compile keeps them in its graph (no graph break) and exports see their shapes. They run on CPU
and CUDA tensors, on the current stream, and have no gradients: call them where none is needed, as
in `torch.inference_mode()`.

    import torch, tilewright.torch as tt

    @torch.compile(fullgraph=True)
    def block(x, w, b):
        return tt.rms_norm(tt.matmul(x, w, b, activation="gelu"))
"""

# torch may be missing where types are checked: it is Any there, its decorators among it.
# pyright: reportUntypedFunctionDecorator=false

from __future__ import annotations

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
