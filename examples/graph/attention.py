"""Attention as an expression: the softmax between two products becomes one pass over the keys, by rule."""

import numpy as np

import tilewright as tw
from tilewright import graph as G


def expected(q, k, v):
    return G.softmax((q @ k.swapaxes(-1, -2)) * 0.125) @ v


def graph(dtype=tw.f32):
    q, k, v = (G.array(["H", length, 32], dtype) for length in ("M", "N", "N"))
    return G.trace(expected, q, k, v, name="attention")


def arrays(rng):
    return [rng.standard_normal((2, n, 32), np.float32) for n in (70, 90, 90)]
