"""Causal linear attention, chunk by chunk: what earlier chunks leave is one matrix per head, carried in registers."""

import numpy as np

import tilewright as tw
from tilewright import graph as G


def expected(q, k, v):
    """q, k [chunks, heads, 16, 32], v [chunks, heads, 16, 64]: sum over m <= n of (q_n . k_m) v_m."""

    def chunk(state, qkv):
        q, k, v = qkv
        scores = q @ k.swapaxes(-1, -2)
        causal = G.indices(scores, -2) >= G.indices(scores, -1)
        y = np.where(causal, scores, 0.0) @ v + q @ state
        return state + k.swapaxes(-1, -2) @ v, y

    begin = np.zeros_like(q, shape=(q.shape[1], q.shape[3], v.shape[3]))
    return G.scan(chunk, begin, (q, k, v))[1]


def graph(dtype=tw.f32):
    specs = [["C", "H", 16, n] for n in (32, 32, 64)]
    return G.trace(expected, *(G.array(s, dtype) for s in specs), name="linear_attention")


def arrays(rng):
    return [rng.standard_normal((4, 3, 16, n), np.float32) for n in (32, 32, 64)]
