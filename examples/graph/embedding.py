"""Rows of a table by index, then a product: the gather is how the product reads its operand."""

import numpy as np

import tilewright as tw
from tilewright import graph as G


def expected(ids, table, w):
    return table[ids] @ w


def graph(dtype=tw.f32):
    specs = G.array(["T"], tw.i32), G.array(["V", 64], dtype), G.array([64, 48], dtype)
    return G.trace(expected, *specs, name="embedding")


def arrays(rng):
    ids = rng.integers(0, 90, 50).astype(np.int32)
    return [
        ids,
        rng.standard_normal((90, 64), np.float32),
        rng.standard_normal((64, 48), np.float32),
    ]
