"""A GEMM through shared memory that reuses micro_op_a, a level up: extents are symbols, edges are ragged."""

import numpy as np
from register_gemm import expected, micro_op_a

import tilewright as tw
from tilewright import graph as G

__all__ = ["arrays", "expected", "graph", "micro_op_a"]


def graph(tm=64, tn=64, tk=32, dtype=tw.f32):
    """C = A B: tiles of A and B go to shared memory, then to registers."""
    g = G.Builder("shared_gemm", "M", "N", "K")
    a = g.input("A", dtype, ["M", "K"]).tiles(tm, tk)
    b = g.input("B", dtype, ["K", "N"]).tiles(tk, tn, order=(1, 0))
    c = g.output("C", tw.f32, ["M", "N"]).tiles(tm, tn)
    for a_row, c_row in g.block(a, c):
        for b_column, c_tile in g.block(b, c_row):
            p = g.zeros(tm, tn)
            for a_tile, b_tile in g.sequential(a_row, b_column):
                a_r, b_r = g.load_s2r(g.load_g2s(a_tile)), g.load_s2r(g.load_g2s(b_tile))
                g.set(p, g.apply("micro_op_a", a_r, b_r, p, shape=(tm, tn)))
            g.store_s2g(g.store_r2s(p), c_tile)
    return g.graph()


def arrays(rng):
    return [rng.standard_normal(s, np.float32) for s in ((150, 70), (70, 100))]
