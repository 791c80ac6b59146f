"""D = (A B) C as the document's pseudocode has it: the product of A and B never leaves the registers."""

import numpy as np

import tilewright as tw
from tilewright import graph as G


def graph(tm=64, tn=64, tk=32, tp=64, dtype=tw.f32):
    g = G.Builder("back_to_back", "M", "N", "K", "P")
    ass = g.input("A", dtype, ["M", "K"]).tiles(tm, tk)  # [M/TM][K/TK][TM, TK]
    bss = g.input("B", dtype, ["K", "N"]).tiles(tk, tn, order=(1, 0))  # [N/TN][K/TK][TK, TN]
    css = g.input("C", dtype, ["N", "P"]).tiles(tn, tp, order=(1, 0))  # [P/TP][N/TN][TN, TP]
    dss = g.output("D", dtype, ["M", "P"]).tiles(tm, tp)  # [M/TM][P/TP][TM, TP]
    for as_, ds in g.block(ass, dss):
        for cs, d in g.block(css, ds):
            d_r = g.zeros(tm, tp, name="d_r")
            for c, bs in g.sequential(cs, bss):
                c_s = g.load_g2s(c)
                p = g.zeros(tm, tn, name="p")
                for a, b in g.sequential(as_, bs):
                    a_s, b_s = g.load_g2s(a), g.load_g2s(b)
                    g.mma(g.load_s2r(a_s), g.load_s2r(b_s), into=p)
                g.mma(p, g.load_s2r(c_s), into=d_r)
            g.store_s2g(g.store_r2s(d_r, dtype), d)
    return g.graph()


def arrays(rng):
    return [rng.standard_normal(s, np.float32) for s in ((100, 48), (48, 150), (150, 64))]


def expected(a, b, c):
    return (a @ b) @ c
