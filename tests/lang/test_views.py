"""tw.view: what it takes, and what is refused."""

# Kernels are not typed Python.
# pyright: reportMissingParameterType=false

import numpy as np
import pytest

import tilewright as tw
from tests.arrays import poison
from tests.lang.reference import ir, run


@tw.kernel
def rows(X, Y, first: tw.i32, n):
    part = tw.view(X, [first, 0], [n, None])
    tw.static_assert(part.ndim == 2 and part.dtype is X.dtype)
    tw.store_tile(part.shape[0], tw.init_tile(Y, [0], (1, 1)))
    tw.store_tile(part.shape[1], tw.init_tile(Y, [1], (1, 1)))


@pytest.mark.parametrize(
    ("first", "n", "count"), [(0, 3, 3), (4, 9, 2), (6, 1, 0), (9, 1, 0), (-1, 4, 0), (2, -5, 0)]
)
def test_a_part_is_clipped_to_its_array(first, n, count):
    y = poison(2, dtype=np.int64)
    run(rows, 1, np.zeros((6, 5), np.float32), y, np.int32(first), n)
    assert y.tolist() == [count, 5]


@tw.kernel
def whole(X, Y):
    x = tw.load_tile(tw.init_tile(tw.view(X, [0, 0], [None, None]), [0, 0], (4, 8)))
    tw.store_tile(x, tw.init_tile(Y, [0, 0], (4, 8)))


def test_the_whole_of_an_array_costs_nothing():
    text = ir(whole, *np.zeros((2, 3, 5), np.float32))
    assert "memref.subview" in text and not any(w in text for w in ("select", "minsi", "cmpi"))
