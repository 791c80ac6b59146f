"""A convolution with bias and ReLU: windows are an access map, so that no patches are ever written."""

import numpy as np

import tilewright as tw
from tilewright import graph as G


def expected(x, w, bias):
    """x [B, H, W, C], w [3, 3, C, F]."""
    patches = G.windows(x, (3, 3), (1, 2))
    return G.relu(np.einsum("bhwcrs,rscf->bhwf", patches, w) + bias)


def graph(dtype=tw.f32):
    specs = [["B", 18, 18, 16], [3, 3, 16, 32], [32]]
    return G.trace(expected, *(G.array(s, dtype) for s in specs), name="convolution")


def arrays(rng):
    return [rng.standard_normal(s, np.float32) for s in ((2, 18, 18, 16), (3, 3, 16, 32), (32,))]
