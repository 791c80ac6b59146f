"""A search on a GPU: the arrays of the device are put back, times are those of work that is done."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tilewright import knobs
from tilewright.arguments import ArrayArg, contiguous_strides
from tilewright.dtypes import f32
from tilewright.targets.base import get_target
from tilewright.targets.cuda import driver, mirror

pytestmark = pytest.mark.skipif(driver.missing() is not None, reason=str(driver.missing()))


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with knobs.override(cache_dir=tmp_path):
        yield


def on_host(array: np.ndarray) -> ArrayArg:
    strides = tuple(s // array.itemsize for s in array.strides)
    return ArrayArg(array.ctypes.data, array.shape, strides, f32, "cpu", False, array)


def test_what_an_array_holds_is_fetched_and_put_back():
    host = fresh_rng().standard_normal((40, 64), np.float32)
    target = get_target("cuda")
    with mirror.mirrored([on_host(host), on_host(host[::2, ::-4])]) as (whole, part):
        assert np.array_equal(target.fetched(whole), host)
        assert np.array_equal(target.fetched(part), host[::2, ::-4])
        target.put(part, np.zeros(part.shape, np.float32))
        expected = host.copy()
        expected[::2, ::-4] = 0
        assert np.array_equal(target.fetched(whole), expected)
    assert contiguous_strides(host.shape) == whole.strides


def test_a_kernel_that_adds_adds_once():
    torch = pytest.importorskip("torch")

    @tw.autotune(budget=20)
    @tw.kernel
    def added(X, Y, BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto):
        m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
        y = tw.init_tile(Y, [m, n], (BM, BN))
        tw.store_tile(tw.load_tile(y) + tw.load_tile(tw.init_tile(X, [m, n], (BM, BN))), y)

    x, y = (torch.randn(1000, 512, device="cuda") for _ in range(2))
    expected = x + y
    added[lambda c: (tw.cdiv(1000, c.BM), tw.cdiv(512, c.BN))](x, y)
    assert torch.equal(y, expected)
