"""A gated MLP: the two products of the hidden layer share the load of x, the gate is their epilogue."""

import numpy as np

import tilewright as tw
from tilewright import graph as G


def expected(x, gate, up, down):
    return (G.silu(x @ gate) * (x @ up)) @ down


def graph(dtype=tw.f32):
    specs = [["T", 64], [64, 160], [64, 160], [160, 64]]
    return G.trace(expected, *(G.array(s, dtype) for s in specs), name="gated_mlp")


def arrays(rng):
    shapes = [(100, 64), (64, 160), (64, 160), (160, 64)]
    return [rng.standard_normal(s, np.float32) / 8 for s in shapes]
