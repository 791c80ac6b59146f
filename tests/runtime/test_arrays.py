"""What kernels take as arrays: read without copying, or refused with the reason."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.arrays import DLPackOnly
from tilewright import LaunchError, dtypes
from tilewright.arguments import ArraySpec, numpy_view
from tilewright.runtime.arrays import describe, likeness, torch_type
from tilewright.targets.cuda import driver


@pytest.mark.parametrize(
    "dtype", [d for d in dtypes.ALL if d.name not in ("tf32", "index")], ids=str
)
def test_every_dtype(dtype):
    arg = describe(np.zeros((3, 5), dtype.numpy))
    assert (arg.dtype, arg.shape, arg.strides, arg.device) == (dtype, (3, 5), (5, 1), "cpu")


def test_views_are_read_as_they_are():
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    start = describe(x).pointer
    for view, shape, strides, offset in [
        (x.T, (6, 4), (1, 6), 0),
        (x[::-1], (4, 6), (-6, 1), 72),
        (x[1:, ::-2], (3, 3), (6, -2), 44),
        (x[None], (1, 4, 6), (0, 6, 1), 0),
        (np.broadcast_to(x[0], (7, 6)), (7, 6), (0, 1), 0),
    ]:
        arg = describe(view)
        assert (arg.shape, arg.strides, arg.pointer - start) == (shape, strides, offset)
        np.testing.assert_array_equal(numpy_view(arg), view)


@tw.kernel
def loss(X, SCALE, TOTAL, B: tw.constexpr = 8):
    x = tw.load_tile(tw.init_tile(X, [tw.program_id(0) * B], (1, B)))
    tw.atomic_rmw("add", tw.sum(x * SCALE[0]), tw.init_tile(TOTAL, [0], (1, 1)))


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("make", [np.asarray, DLPackOnly, "torch"])
def test_an_array_without_dimensions_has_one_element(target, make):
    x = np.arange(-3.0, 10, dtype=np.float32)
    kernel = loss.options(target=target)
    for scale in (2.0, 3.0):
        factor, total = np.array(scale, np.float32), np.zeros((), np.float32)
        if make == "torch":
            torch = pytest.importorskip("torch")
            result = torch.zeros(())
            kernel[2](torch.from_numpy(x), torch.tensor(scale), result)
            assert result.item() == scale * x.sum()
            continue
        kernel[2](x, make(factor), make(total))
        assert total == scale * x.sum()
    arg = describe(tw.spec((), tw.f32))
    assert (arg.shape, arg.strides) == ((1,), (1,))


def test_stride_of_a_last_dimension_without_steps_is_one():
    x = np.zeros((5, 7), np.float32)
    assert describe(x[:, 3:4]).strides == (7, 1)
    assert describe(x[:, 1::4][:, :1]).strides == (7, 1)
    assert describe(x[:, :0]).strides == (7, 1)
    assert describe(x.T[3:4]).strides == (1, 7)  # the last dimension has steps


def test_byte_range():
    x = np.zeros((4, 6), np.float32)
    base = describe(x).pointer
    assert describe(x).byte_range() == (base, base + 96)
    assert describe(x[::-1, ::-1]).byte_range() == (base, base + 96)
    assert describe(x[1:3, 2:4]).byte_range() == (base + 32, base + 64)
    low, high = describe(x[:0]).byte_range()
    assert low == high


def test_readonly():
    x = np.zeros((4, 4), np.float32)
    x.flags.writeable = False
    assert describe(x).readonly and not describe(x.copy()).readonly


def test_misaligned_elements_have_an_address():
    raw = np.zeros(4 * 16 + 1, np.uint8)
    arg = describe(raw[1:].view(np.float32).reshape(4, 4))
    assert arg.pointer == describe(raw).pointer + 1


@pytest.mark.parametrize("make, words", [
    (lambda: np.zeros((2, 2), ">f4"), "byte-swapped"),
    (lambda: np.zeros((2, 2), np.complex64), "complex64"),
    (lambda: np.zeros((2, 2), "M8[s]"), "(?s)datetime64.*hint: x.view"),
    (lambda: np.array(["a", "b"]), "hint: number the strings"),
    (lambda: np.zeros(2, np.longdouble), "hint: x.astype"),
    (lambda: np.zeros(2, "f4,i4"), "hint: pass each field"),
    (lambda: np.zeros((2, 2), object), "object"),
    (lambda: np.ma.masked_array(np.zeros((2, 2)), np.ones((2, 2))), "masked"),
    (lambda: np.zeros(8, "f4,i2")["f0"], "no multiple"),
    (lambda: [[1.0]], "list"),
    (lambda: (np.zeros(2), np.zeros(2)), "hint: pass each array"),
    (lambda: None, "NoneType"),
    (lambda: "text", "str"),
])  # fmt: skip
def test_refusals(make, words):
    with pytest.raises(LaunchError, match=words) as caught:
        describe(make(), "weights")
    assert "weights" in str(caught.value)


@pytest.mark.parametrize("shape, strides, words", [
    (4, None, "an extent for each dimension, not 4"),
    (-4, None, "not -4"),
    ("ab", None, "not 'ab'"),
    ((3, "a"), None, "not (3, 'a')"),
    ((3.5,), None, "not (3.5,)"),
    ((-3,), None, "not (-3,)"),
    ((True,), None, "not (True,)"),
    ((1 << 63,), None, "an extent"),
    ((3,), (1, 2), "each of 1 dimensions, not (1, 2)"),
    ((3,), ("a",), "not ('a',)"),
    ((3, 4), 4, "not 4"),
])  # fmt: skip
def test_what_is_no_spec(shape: Any, strides: Any, words: str):
    with pytest.raises(LaunchError, match=re.escape(words)):
        tw.spec(shape, tw.f32, strides)
    assert tw.spec([np.int64(3), 0], tw.f32, (-4, 1)).dtype is tw.f32  # pyright: ignore


def test_subclasses_of_ndarray(tmp_path):
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=(3, 4))
    assert describe(mapped).shape == (3, 4)


def test_torch():
    torch = pytest.importorskip("torch")
    for dtype in dtypes.ALL:
        if dtype.name in ("tf32", "index"):
            continue
        t = torch.empty((4, 6), dtype=torch_type(dtype))
        arg = describe(t)
        assert (arg.dtype, arg.shape, arg.strides, arg.pointer) == (
            dtype, (4, 6), (6, 1), t.data_ptr(),
        )  # fmt: skip
    t = torch.arange(24.0).reshape(4, 6)
    assert describe(t.T).strides == (1, 6)
    view = numpy_view(describe(t[1:, ::2]))
    np.testing.assert_array_equal(view, t[1:, ::2].numpy())
    view[0, 0] = -1
    assert t[1, 0] == -1
    half = torch.ones(3, 4).bfloat16()
    assert numpy_view(describe(half)).dtype == ml_dtypes.bfloat16


def test_torch_refusals():
    torch = pytest.importorskip("torch")
    with pytest.raises(LaunchError, match="sparse"):
        describe(torch.eye(3).to_sparse())
    with pytest.raises(LaunchError, match="complex64"):
        describe(torch.zeros(3, dtype=torch.complex64))
    with pytest.raises(LaunchError, match="resolve_neg"):
        describe(torch.zeros(3, dtype=torch.complex64).conj().imag)
    with pytest.raises(LaunchError, match="to_padded_tensor"):
        describe(torch.nested.nested_tensor([torch.ones(3), torch.ones(2)]))
    assert describe(torch.empty((3, 4), device="meta")).device == "spec"


def test_tensors_without_memory():
    """Also of a kind that was described before: code that followed the address 0 would crash."""
    torch = pytest.importorskip("torch")
    freed, empty = torch.ones(40), torch.ones(0, 40)
    assert likeness(freed) is not None and describe(empty).pointer == 0
    freed.untyped_storage().resize_(0)
    assert likeness(freed) is None
    with pytest.raises(LaunchError, match="weights is a tensor without memory"):
        describe(freed, "weights")

    def mapped(x: Any) -> Any:
        with pytest.raises(LaunchError, match="without memory"):
            describe(x)
        return x

    assert torch.vmap(mapped)(torch.ones(3, 4)).shape == (3, 4)


def test_dlpack_shares_memory():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    arg = describe(DLPackOnly(x))
    assert (arg.pointer, arg.shape, arg.readonly) == (describe(x).pointer, (3, 4), False)


def test_dlpack_on_a_device_that_no_target_reads():
    class Elsewhere(DLPackOnly):
        def __dlpack_device__(self):
            return (10, 0)

    with pytest.raises(LaunchError, match="device type 10"):
        describe(Elsewhere(np.zeros(3)))


class CudaArray:
    __cuda_array_interface__ = {
        "typestr": "<f4", "shape": (8, 4), "data": (4096, False), "strides": None, "version": 3,
    }  # fmt: skip


def test_cuda_array_interface(monkeypatch):
    monkeypatch.setattr(driver, "available", lambda: False)  # which would ask for the memory there
    arg = describe(CudaArray())
    assert (arg.pointer, arg.strides, arg.device) == (4096, (4, 1), "cuda:0")


def test_spec():
    arg = describe(ArraySpec((8, 16), dtypes.bf16))
    assert (arg.strides, arg.device, arg.pointer) == ((16, 1), "spec", 0)
    assert describe(ArraySpec((8, 16), dtypes.bf16, (1, 8))).strides == (1, 8)


def test_likeness_is_as_good_as_a_description():
    """Arrays with equal likeness have equal descriptions but for address and owner."""
    torch = pytest.importorskip("torch")
    x = np.zeros((8, 8), np.float32)
    readonly = x.copy()
    readonly.flags.writeable = False
    variants = [
        *(x, x.T, x[::-1], x[:4], x.astype(np.float64), x.view(np.int32), readonly),
        *(torch.zeros(8, 8), torch.zeros(8, 8).T, torch.zeros(8, 8).bfloat16()),
    ]
    keys = [likeness(v) for v in variants]
    assert all(
        k is not None and k[1] == describe(v).pointer for k, v in zip(keys, variants, strict=True)
    )
    assert len({k[0] for k in keys if k}) == len(variants)
    assert likeness(torch.zeros(2, dtype=torch.complex64).conj().imag) is None
    assert likeness(3) is None and likeness(None) is None


def test_dlpack_capsules_are_read_without_numpy() -> None:
    """What DLPack objects on a GPU go through: here a capsule of host memory."""
    torch = pytest.importorskip("torch")
    from tilewright.runtime.arrays import from_capsule

    for dtype, name in ((torch.bfloat16, "bf16"), (torch.int16, "i16"), (torch.float64, "f64")):
        x = torch.arange(24).reshape(4, 6).to(dtype)[:, 1:4].T
        arg = from_capsule(x.__dlpack__(), "x", "cuda:0")
        assert (arg.pointer, arg.shape, arg.strides) == (x.data_ptr(), (3, 4), (1, 6))
        assert str(arg.dtype) == name and arg.device == "cuda:0"
    with pytest.raises(LaunchError, match="an unsupported element type"):
        from_capsule(torch.zeros(3, dtype=torch.complex64).__dlpack__(), "x", "cuda:0")
