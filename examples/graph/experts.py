"""Mixture of experts: gather the rows of each expert, multiply, weigh, and add to where they came from."""

import numpy as np

import tilewright as tw
from tilewright import graph as G


def expected(x, rows, gate, w):
    """x [T, D], rows [E, C] and gate [E, C] for E experts of capacity C, w [E, D, F]."""
    return G.scatter_add(x.shape[0], rows, (x[rows] @ w) * gate[:, :, None])


def graph(dtype=tw.f32):
    """The weights of rows are f32, and so is the result: GPUs add to memory in f32."""
    x, w = G.array(["T", 32], dtype), G.array([4, 32, 48], dtype)
    rows, gate = G.array([4, "C"], tw.i32), G.array([4, "C"])
    return G.trace(expected, x, rows, gate, w, name="experts")


def arrays(rng):
    x, w = (rng.standard_normal(s, np.float32) for s in ((60, 32), (4, 32, 48)))
    rows = rng.integers(0, 60, (4, 20)).astype(np.int32)
    return [x, rows, rng.random((4, 20), np.float32), w]
