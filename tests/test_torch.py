"""`tilewright.torch`: operators of torch.library, eagerly, in fake mode, and kept whole by torch.compile."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import tilewright as tw
from tilewright import ops

torch = pytest.importorskip("torch")
tt = pytest.importorskip("tilewright.torch")
F = torch.nn.functional

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param


def randn(*shape: int, device: str) -> Any:
    return torch.randn(shape, device=device)


def cases(device: str) -> dict[str, tuple[Any, tuple[Any, ...], dict[str, Any], Any]]:
    """Operator, arguments, what PyTorch itself gives."""
    a, b = randn(40, 30, device=device), randn(30, 50, device=device)
    bias, x, w = randn(50, device=device), randn(6, 70, device=device), randn(70, device=device)
    q, k, v = (randn(2, 33, 32, device=device) for _ in range(3))
    return {
        "matmul": (tt.matmul, (a, b), {"bias": bias, "activation": "gelu"}, F.gelu(a @ b + bias)),
        "attention": (tt.attention, (q, k, v), {"causal": True},
                      F.scaled_dot_product_attention(q, k, v, is_causal=True)),
        "softmax": (tt.softmax, (x,), {}, torch.softmax(x, -1)),
        "rms_norm": (tt.rms_norm, (x, w), {}, F.rms_norm(x, (70,), w, 1e-6)),
        "layer_norm": (tt.layer_norm, (x, w, w), {}, F.layer_norm(x, (70,), w, w)),
    }  # fmt: skip


NAMES = ["matmul", "attention", "softmax", "rms_norm", "layer_norm"]


@pytest.mark.parametrize("name", NAMES)
def test_operators_compute_and_are_registered(name: str, device: str) -> None:
    op, args, kwargs, expected = cases(device)[name]
    torch.testing.assert_close(op(*args, **kwargs), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        getattr(torch.ops.tilewright, name)(*args, **kwargs), expected, rtol=1e-4, atol=1e-4
    )
    torch.library.opcheck(op, args, kwargs, test_utils=("test_schema", "test_faketensor"))


def test_a_compiled_function_keeps_them_whole(device: str) -> None:
    """fullgraph=True raises at a graph break; the graph holds the operators themselves."""
    graphs: list[Any] = []

    def backend(module: Any, inputs: Any) -> Any:
        graphs.append(module)
        return module.forward

    @torch.compile(fullgraph=True, backend=backend)
    def block(x: Any, w: Any, b: Any) -> Any:
        return tt.rms_norm(tt.matmul(x, w, b, activation="silu")) + 1

    x, w, b = randn(20, 30, device=device), randn(30, 48, device=device), randn(48, device=device)
    expected = F.rms_norm(F.silu(x @ w + b), (48,), None, 1e-6) + 1
    torch.testing.assert_close(block(x, w, b), expected, rtol=1e-4, atol=1e-4)
    called = {str(n.target) for n in graphs[0].graph.nodes if n.op == "call_function"}
    assert {"tilewright.matmul.default", "tilewright.rms_norm.default"} <= called


def test_shapes_that_do_not_fit_are_refused_while_tracing() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        a, b = torch.empty(3, 4), torch.empty(5, 6)
        with pytest.raises(RuntimeError, match="matmul of"):
            tt.matmul(a, b)
        q = tt.matmul(torch.empty(2, 3, 4, dtype=torch.int8), torch.empty(4, 5, dtype=torch.int8))
    assert q.shape == (2, 3, 5) and q.dtype == torch.int32


def test_parameters_are_tensors_like_others(device: str) -> None:
    layer = torch.nn.Linear(30, 16, device=device)
    x = randn(8, 30, device=device)
    with torch.inference_mode():
        got = tt.matmul(x, layer.weight.T, layer.bias)
        torch.testing.assert_close(got, layer(x), rtol=1e-4, atol=1e-4)


def gradients(function: Any, args: tuple[Any, ...]) -> list[Any]:
    """Of a weighted sum of the result, with respect to every tensor."""
    fresh = [a.detach().clone().requires_grad_() for a in args]
    result = function(*fresh)
    weights = torch.linspace(-1, 1, result.numel(), device=result.device).reshape(result.shape)
    return list(torch.autograd.grad((result * weights).sum(), fresh))


FUNCTIONS = {
    **{f"matmul {a}": (tt.matmul, {"activation": a}) for a in (None, *tt.ACTIVATIONS)},
    "attention": (tt.attention, {"causal": True}),
    "softmax": (tt.softmax, {}),
    "rms_norm": (tt.rms_norm, {}),
    "layer_norm": (tt.layer_norm, {}),
}
PLAIN = {
    None: lambda x: x,
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name: str, device: str) -> None:
    """Those of PyTorch's own operators, of every operand, eagerly and through torch.compile."""
    op, options = FUNCTIONS[name]
    if name.startswith("matmul"):
        args = tuple(randn(*s, device=device) for s in ((20, 30), (30, 12), (12,), (20, 12)))
        act = PLAIN[options["activation"]]
        expected = gradients(lambda a, b, bias, rest: act(a @ b + bias) + rest, args)
    else:
        args = tuple(a for a in cases(device)[name][1])
        plain = {
            "attention": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            "softmax": lambda x: torch.softmax(x, -1),
            "rms_norm": lambda x, w: F.rms_norm(x, (70,), w, 1e-6),
            "layer_norm": lambda x, w, b: F.layer_norm(x, (70,), w, b),
        }
        expected = gradients(plain[name], args)
    torch.testing.assert_close(
        gradients(lambda *a: op(*a, **options), args), expected, rtol=1e-3, atol=1e-4
    )


def test_gradients_through_a_compiled_function(device: str) -> None:
    def block(x: Any, w: Any, b: Any) -> Any:
        return tt.rms_norm(tt.matmul(x, w, b, activation="silu")) + 1

    args = tuple(randn(*s, device=device) for s in ((20, 30), (30, 48), (48,)))
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(gradients(compiled, args), gradients(block, args))


def test_a_launch_says_that_it_cuts_a_gradient() -> None:
    """Once it would go unnoticed: not where gradients are off, nor for what needs none."""
    x = torch.ones(8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copied[1](x, torch.empty(8, 8))
        with torch.no_grad():
            copied[1](x.clone().requires_grad_(), torch.empty(8, 8))
    # A launch of its own shape: one that has been seen at its addresses is repeated unseen.
    with pytest.warns(UserWarning, match="X of kernel copied requires a gradient") as found:
        copied[1](torch.ones(8, 9, requires_grad=True), torch.empty(8, 8))
    assert found[0].filename == __file__
    with pytest.warns(UserWarning, match="requires a gradient"):
        ops.softmax(x.clone().requires_grad_())


@tw.kernel
def copied(X: Any, Y: Any) -> None:
    tw.store_tile(tw.load_tile(tw.init_tile(X, [0, 0], (8, 8))), tw.init_tile(Y, [0, 0], (8, 8)))
