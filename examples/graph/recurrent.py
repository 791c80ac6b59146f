"""A stack of recurrent cells over time: one kernel, in which the states of all layers stay in registers."""

import numpy as np

import tilewright as tw
from tilewright import graph as G


def expected(xs, h0, h1, w0, u0, w1, u1):
    def cells(states, x):
        first = np.tanh(x @ w0 + states[0] @ u0)
        second = np.tanh(first @ w1 + states[1] @ u1)
        return (first, second), second

    return G.scan(cells, (h0, h1), xs)[1]


def graph(dtype=tw.f32):
    specs = [["T", "B", 32], ["B", 64], ["B", 64], [32, 64], [64, 64], [64, 64], [64, 64]]
    return G.trace(expected, *(G.array(s, dtype) for s in specs), name="recurrent")


def arrays(rng):
    shapes = [(5, 20, 32), (20, 64), (20, 64), (32, 64), (64, 64), (64, 64), (64, 64)]
    return [rng.standard_normal(s, np.float32) / 8 for s in shapes]
