"""matmul: shapes, element types, views, batches and epilogues, against float64."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.arrays import error, poison
from tilewright import knobs, ops
from tilewright.ops.matmul import ACTIVATIONS

from .conftest import normal

BF16 = np.dtype(ml_dtypes.bfloat16)
LIMIT = {np.dtype("f8"): 1e-14, np.dtype("f4"): 2e-6, np.dtype("f2"): 1e-3, BF16: 8e-3}


def wide(x):
    return x.astype(np.float64)


@pytest.mark.parametrize("dtype", LIMIT, ids=str)
@pytest.mark.parametrize("shape", [(40, 70, 50), (1, 33, 7), (257, 1, 65), (3, 5, 1)], ids=str)
def test_matrices(shape, dtype, target, rng):
    m, n, k = shape
    a, b, c = normal(rng, (m, k), dtype), normal(rng, (k, n), dtype), poison(m, n, dtype=dtype)
    assert ops.matmul(a, b, out=c, target=target) is c
    assert error(c, wide(a) @ wide(b)) < LIMIT[dtype]


@pytest.mark.parametrize("batch_a", [(), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("batch_b", [(), (3,), (2, 3)], ids=str)
def test_batches(batch_a, batch_b, target, rng):
    a = normal(rng, (*batch_a, 20, 30), "f4")
    b = normal(rng, (*batch_b, 30, 40), "f4")
    if batch_a and batch_b and batch_a != batch_b:
        with pytest.raises(tw.LaunchError, match="batch dimensions"):
            ops.matmul(a, b, target=target)
        return
    assert error(ops.matmul(a, b, target=target), wide(a) @ wide(b)) < 2e-6


@pytest.mark.parametrize("views", ["NT", "TN", "TT", "steps", "batch"])
def test_views(views, target, rng):
    a = normal(rng, (30, 50), "f4").T if views[0] == "T" else normal(rng, (50, 30), "f4")
    b = normal(rng, (70, 30), "f4").T if views[1] == "T" else normal(rng, (30, 70), "f4")
    if views == "steps":
        a, b = normal(rng, (100, 60), "f4")[::2, ::-2], normal(rng, (30, 80), "f4")[:, 10:]
    if views == "batch":
        a = normal(rng, (30, 4, 50), "f4").transpose(1, 2, 0)
        b = normal(rng, (4, 70, 30), "f4").swapaxes(1, 2)
    assert error(ops.matmul(a, b, target=target), wide(a) @ wide(b)) < 2e-6


MEANING = {
    None: lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(__import__("math").erf)(x / np.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


@pytest.mark.parametrize("activation", MEANING, ids=str)
@pytest.mark.parametrize("with_bias, with_residual", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_epilogue(activation, with_bias, with_residual, target, rng):
    a, b = normal(rng, (2, 33, 40), "f4"), normal(rng, (40, 70), "f4")
    bias = normal(rng, (70,), "f4") if with_bias else None
    residual = normal(rng, (2, 33, 70), "f4") if with_residual else None
    c = ops.matmul(a, b, bias=bias, activation=activation, residual=residual, target=target)
    want = wide(a) @ wide(b) + (0 if bias is None else wide(bias))
    want = MEANING[activation](want) + (0 if residual is None else wide(residual))
    assert error(c, want) < 1e-5


def test_every_activation_has_its_meaning_here():
    assert {*ACTIVATIONS, None} == MEANING.keys()


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_integers_are_exact(dtype, target, rng):
    info = np.iinfo(dtype)
    a = rng.integers(info.min, info.max, (35, 60), dtype, endpoint=True)
    b = rng.integers(info.min, info.max, (60, 45), dtype, endpoint=True)
    c = ops.matmul(a, b, target=target)
    assert c.dtype == np.int32
    np.testing.assert_array_equal(c, a.astype(np.int64) @ b.astype(np.int64))


def test_a_call_seen_before_is_not_planned_again(rng, monkeypatch):
    """But it computes what its operands hold now; another activation, view, place or number of threads is planned."""
    module = sys.modules["tilewright.ops.matmul"]
    a, b, c = normal(rng, (20, 20), "f4"), normal(rng, (20, 20), "f4"), poison(20, 20)
    for _ in range(3):
        ops.matmul(a, b, out=c)
    monkeypatch.setattr(module, "_planned", lambda *_: pytest.fail("planned"))
    a[...], c[...] = normal(rng, a.shape, "f4"), np.nan
    assert ops.matmul(a, b, out=c) is c
    assert error(c, wide(a) @ wide(b)) < 2e-6
    for operands, others in (
        ((a.T, b), {}), ((a.copy(), b), {}), ((a, b), {"activation": "relu"}),
        ((a, b), {"num_threads": 1}), ((a, b), {"residual": a}),
    ):  # fmt: skip
        with pytest.raises(pytest.fail.Exception, match="planned"):
            ops.matmul(*operands, out=c, **others)
    with knobs.override(num_threads=1), pytest.raises(pytest.fail.Exception, match="planned"):
        ops.matmul(a, b, out=c)


def test_a_call_over_again_copies_again_what_is_no_view(rng):
    a, b = normal(rng, (2, 3, 8, 16), "f4").swapaxes(0, 1), normal(rng, (16, 8), "f4")
    for _ in range(4):
        a[...], c = normal(rng, a.shape, "f4"), poison(3, 2, 8, 8)
        assert error(ops.matmul(a, b, out=c), wide(a) @ wide(b)) < 2e-6
    for _ in range(3):
        a[...] = normal(rng, a.shape, "f4")
        assert error(ops.matmul(a, b, out=c), wide(a) @ wide(b)) < 2e-6


def test_result_dtype_of_out(target, rng):
    a, b, c = normal(rng, (20, 30), BF16), normal(rng, (30, 20), BF16), poison(20, 20)
    ops.matmul(a, b, out=c, target=target)
    assert error(c, wide(a) @ wide(b)) < 1e-6


def test_out_that_is_a_view_with_gaps(target, rng):
    a, b = normal(rng, (2, 3, 20, 30), "f4"), normal(rng, (30, 20), "f4")
    whole = poison(3, 2, 20, 40)
    out = whole.swapaxes(0, 1)[..., ::2]
    ops.matmul(a, b, out=out, target=target)
    assert error(out, wide(a) @ wide(b)) < 2e-6
    assert np.isnan(whole[..., 1::2]).all()


def test_torch_tensors(target):
    torch = pytest.importorskip("torch")
    a, b = torch.randn(33, 40), torch.randn(50, 40).T
    for dtype, limit in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
        c = ops.matmul(a.to(dtype), b.to(dtype), target=target)
        assert c.dtype is dtype and c.shape == (33, 50)
        want = a.to(dtype).double() @ b.to(dtype).double()
        assert error(c.float().numpy(), want.numpy()) < limit


@pytest.mark.parametrize("shapes, words", [
    (((4, 5), (4, 5)), "matmul of"),
    (((5,), (5, 5)), "matmul of"),
])  # fmt: skip
def test_refusals(shapes, words):
    a, b = (np.zeros(s, np.float32) for s in shapes)
    with pytest.raises(tw.LaunchError, match=words):
        ops.matmul(a, b)


def test_refuses_operands_that_do_not_fit():
    a = np.zeros((4, 4), np.float32)
    for wrong in ({"bias": a}, {"residual": a[1:]}, {"activation": "tan"}, {"out": a[:, 1:]}):
        with pytest.raises(tw.LaunchError, match=next(iter(wrong))):
            ops.matmul(a, a, **wrong)


def test_refusals_of_batches_name_the_shapes_that_were_given():
    a, b = np.zeros((3, 4, 7), np.float32), np.zeros((7, 5), np.float32)
    with pytest.raises(tw.LaunchError, match=r"out has shape \(3, 4, 6\)"):
        ops.matmul(a, b, out=np.zeros((3, 4, 6), np.float32))
    with pytest.raises(tw.LaunchError, match=r"3, 4, 7\)?.*6, 5"):
        ops.matmul(a, b[:6])


@pytest.mark.parametrize("m, n, k", [(0, 3, 5), (4, 0, 5), (4, 3, 0)])
def test_empty_operands_give_an_empty_result_or_zeros(m, n, k):
    a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    assert np.array_equal(ops.matmul(a, b), np.zeros((m, n), np.float32))


def test_products_that_look_alike_are_planned_once(monkeypatch, rng):
    module = sys.modules["tilewright.ops.matmul"]
    asked = []
    plan = module.product_tile
    monkeypatch.setattr(module, "product_tile", lambda *a: asked.append(a) or plan(*a))
    module._planned.cache_clear()
    for m in (5, 5, 7):
        a = rng.standard_normal((m, 9)).astype(np.float32)
        wanted = a @ a.T
        off = np.linalg.norm(ops.matmul(a, a.T, num_threads=1) - wanted)
        assert off < 1e-6 * np.linalg.norm(wanted)
        with pytest.raises(tw.LaunchError, match="must be equal"):
            ops.matmul(a, a, num_threads=1)
        with pytest.raises(tw.LaunchError, match="b is a list, which is no array"):
            ops.matmul(a, [a])
        with pytest.raises(tw.LaunchError, match="bias is a list, which is no array"):
            ops.matmul(a, a.T, bias=[1])
    assert len(asked) == 2


@pytest.mark.parametrize("cores", [1, 2, 16, 96])
def test_tiles_of_a_cpu_are_no_larger_than_the_product_and_enough_for_its_threads(cores):
    from tilewright.ops.tiles import product_tile

    for m, n, k in ((333, 64, 500), (1024, 1024, 1024), (4096, 4096, 4096), (1, 4096, 4096)):
        types, options = (tw.f32,) * 3, {"target": "cpu", "num_threads": cores}
        tile = product_tile(types, "cpu", (1, m, n, k), (True, False), options)
        bm, bn = tile["BM"], tile["BN"]
        assert bm < 2 * m and bn < 2 * n
        assert -(-m // bm) * -(-n // bn) >= cores or max(bm, bn) <= 64


def test_tiles_of_a_short_side_are_as_short():
    from tilewright.ops.tiles import product_tile

    for m, n, name, short in ((1, 4096, "BM", {1}), (3, 9000, "BM", {4}), (8, 4096, "BM", {8}),
                              (4096, 1, "BN", {1}), (4096, 3, "BN", {4}), (4096, 17, "BN", {24, 32})):  # fmt: skip
        tile = product_tile(
            (tw.f32,) * 3, "cpu", (1, m, n, 4096), (True, False), {"num_threads": 2}
        )
        assert tile[name] in short
    # A target without a model of products gets what covers them.
    types, options = (tw.f32,) * 3, {"target": "reference"}
    tile = product_tile(types, "cpu", (1, 40, 9000, 64), (True, False), options)
    assert tile == {"BM": 64, "BN": 256}
