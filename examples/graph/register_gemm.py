"""The document's micro_op_a: load a', load b', mma (a', b'), composed at the register level, used one level up."""

import numpy as np

import tilewright as tw
from tilewright import graph as G


@G.micro_op
def micro_op_a(m, a, b, p):
    """p + a b: a Task at the register level, and an Operation wherever it is used."""
    a_r, b_r = m.copy(a), m.copy(b)
    return m.mma(a_r, b_r, into=p)


def graph(dtype=tw.f32):
    """C = A B for one tile: everything from global memory to registers, and back."""
    g = G.Builder("register_gemm")
    a = g.input("A", dtype, [64, 32]).tiles(64, 32)
    b = g.input("B", dtype, [32, 48]).tiles(32, 48, order=(1, 0))
    c = g.output("C", tw.f32, [64, 48]).tiles(64, 48)
    for a_row, c_row in g.block(a, c):
        for b_column, c_tile in g.block(b, c_row):
            p = g.zeros(64, 48)
            for a_tile, b_tile in g.sequential(a_row, b_column):
                a_r, b_r = g.load_g2r(a_tile), g.load_g2r(b_tile)
                g.set(p, g.apply("micro_op_a", a_r, b_r, p, shape=(64, 48)))
            g.store_r2g(p, c_tile)
    return g.graph()


def arrays(rng):
    return [rng.standard_normal(s, np.float32) for s in ((64, 32), (32, 48))]


def expected(a, b):
    return a @ b
