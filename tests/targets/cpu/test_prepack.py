"""Arrays whose panels are kept: later launches read the panels, not the array, until they are told of a change."""

from __future__ import annotations

import gc
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.targets.cpu.test_thin import RUNNABLE
from tilewright import ops

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8]


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    if dtype is np.int8:
        return rng.integers(-128, 128, shape, dtype)
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", ["n", "t"])
def test_launches_read_what_is_kept(rng, level, dtype, form):
    m, n, k = 41, 70, 93
    a, b = random(rng, (m, k), dtype), random(rng, (k, n), dtype)
    if form == "t":
        b = np.asfortranarray(b)
    options: dict[str, Any] = {"machine": level, "target": "cpu", "num_threads": 2}
    want = ops.matmul(a, b, **options)
    kept = tw.prepack(b)
    assert kept.nbytes == 0
    for _ in range(3):
        assert np.array_equal(ops.matmul(a, b, **options), want)
    before = b.copy(order="A")
    b[:] = 0
    assert np.array_equal(ops.matmul(a, b, **options), want)
    kept.update()
    assert not ops.matmul(a, b, **options).any()
    b[:] = before
    del kept
    gc.collect()
    assert np.array_equal(ops.matmul(a, b, **options), want)


def test_one_form_for_kernels_that_pack_alike(rng):
    """Other epilogues, other rows, other threads and views share the panels; what they take is told."""
    b = random(rng, (300, 130), np.float32)
    kept = tw.prepack(b)
    assert tw.prepack(b) is kept and tw.prepack(b[:, :]) is kept
    x = [random(rng, (m, 300), np.float32) for m in (40, 500)]
    for a in x:
        for threads in (1, 4):
            for activation in (None, "relu"):
                got = ops.matmul(a, b, activation=activation, target="cpu", num_threads=threads)
                want = a @ b if activation is None else np.maximum(a @ b, 0)
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert b.nbytes <= kept.nbytes < 2 * b.nbytes  # blocks of 256 k are whole
    assert "300x130, 1 forms" in repr(kept)


def test_other_elements_at_the_same_address_are_not_kept(rng):
    b = random(rng, (200, 128), np.float32)
    kept = tw.prepack(b)
    for part in (b[:100], b[:, :64], b.reshape(100, 256), b.reshape(128, 200)):
        a = random(rng, (64, part.shape[0]), np.float32)
        np.testing.assert_allclose(
            ops.matmul(a, part, target="cpu"), a @ part, rtol=1e-4, atol=1e-4
        )
    assert kept.nbytes == 0
    square = random(rng, (96, 96), np.float32)
    kept = tw.prepack(square)
    a = random(rng, (64, 96), np.float32)
    for view in (square, square.T, square, square.T):
        np.testing.assert_allclose(
            ops.matmul(a, view, target="cpu"), a @ view, rtol=1e-4, atol=1e-4
        )
    assert "2 forms" in repr(kept)


def test_batches_and_left_operands(rng):
    a, b = random(rng, (3, 90, 64), np.float32), random(rng, (3, 64, 70), np.float32)
    kept = tw.prepack(a), tw.prepack(b)
    want = a @ b
    for _ in range(2):
        np.testing.assert_allclose(ops.matmul(a, b, target="cpu"), want, rtol=1e-4, atol=1e-4)
    assert all(w.nbytes >= x.nbytes for w, x in zip(kept, (a, b), strict=True))
    a[:], b[:] = 0, 0
    np.testing.assert_allclose(ops.matmul(a, b, target="cpu"), want, rtol=1e-4, atol=1e-4)


def test_first_launches_of_several_threads(rng):
    a, b = random(rng, (64, 256), np.float32), random(rng, (256, 256), np.float32)
    want = ops.matmul(a, b, target="cpu")
    for _ in range(20):
        kept = tw.prepack(b)
        wrong: list[Any] = []

        def launch(wrong: list[Any] = wrong) -> None:
            for _ in range(5):
                got = ops.matmul(a, b, target="cpu", num_threads=2)
                if not np.array_equal(got, want):
                    wrong.append(got)

        threads = [threading.Thread(target=launch) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        del kept


def test_a_shape_has_nothing_to_keep():
    with pytest.raises(tw.LaunchError, match="no memory"):
        tw.prepack(tw.spec((4, 4), tw.f32))
