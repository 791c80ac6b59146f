"""Layer norm, then a linear layer: rows are normalised as they go into the product, where that is worth it."""

import numpy as np

import tilewright as tw
from tilewright import graph as G


def expected(x, weight, bias, w):
    return G.layer_norm(x, weight, bias) @ w


def graph(dtype=tw.f32):
    specs = [["T", 96], [96], [96], [96, 64]]
    return G.trace(expected, *(G.array(s, dtype) for s in specs), name="norm_linear")


def arrays(rng):
    return [rng.standard_normal(s, np.float32) for s in ((70, 96), (96,), (96,), (96, 64))]
