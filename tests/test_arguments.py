"""Views of memory by its address."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np
import pytest

from tilewright import dtypes
from tilewright.arguments import HOST, ArrayArg, array_of_memref, numpy_view

DTYPES = [np.float32, np.int8, np.bool_, ml_dtypes.bfloat16]


def arrays(dtype, rng):
    """Whole, turned round, spread, repeated, empty, and one element."""
    whole = rng.integers(0, 2, (4, 6)).astype(dtype)
    yield from (whole, whole[::-1, ::2], whole.T, np.broadcast_to(whole[0], (3, 6)))
    yield from (whole[:0], np.array(whole[1, 1]))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_views_are_the_memory(dtype, rng):
    for array in arrays(dtype, rng):
        strides = [s // array.itemsize for s in array.strides]
        words = (0, array.ctypes.data - 3 * array.itemsize, 3, *array.shape, *strides)
        at = (ctypes.c_int64 * len(words))(*words)
        seen = array_of_memref(array.ndim, ctypes.addressof(at), array.dtype)
        kind = dtypes.from_numpy(array.dtype)
        arg = ArrayArg(array.ctypes.data, array.shape, tuple(strides), kind, HOST, True, None)
        for view in (seen, numpy_view(arg)):
            assert view.dtype == array.dtype
            np.testing.assert_array_equal(view, array)
        assert not numpy_view(arg).flags.writeable


def test_what_is_written_through_a_view_is_in_the_array(rng):
    array = rng.random((3, 4))
    at = (ctypes.c_int64 * 7)(0, array.ctypes.data, 0, 3, 4, 4, 1)
    array_of_memref(2, ctypes.addressof(at), array.dtype)[1, 2] = 7.0
    assert array[1, 2] == 7.0
