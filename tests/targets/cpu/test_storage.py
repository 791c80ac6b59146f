"""Buffers that values share on the cpu: what a loop or a branch gives and nobody reads is written all the same."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.arrays import poison
from tests.draws import fresh_rng
from tests.targets.cpu.test_programs import both, close
from tests.targets.cpu.test_views import agree, tile

V = "vector<8x16xf32>"
HEAD = f"""
    {tile("tx", "%x[0, 0]", "memref<8x16xf32>")}
    {tile("to", "%o[0, 0]", "memref<8x16xf32>")}
    %v = xetile.load_tile %tx : !xetile.tile<8x16xf32> -> {V}
    %w = arith.addf %v, %v : {V}
"""
STORES = f"""
    %s = arith.mulf %w, %w : {V}
    xetile.store_tile %s, %to : {V}, !xetile.tile<8x16xf32>
    %d = arith.subf %r#READ, %s : {V}
    xetile.store_tile %d, %to : {V}, !xetile.tile<8x16xf32>
"""
LOOP = f"""
    %n = arith.constant TIMES : index
    %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%p = %w, %q = %v) -> ({V}, {V}) {{
      scf.yield %q, %q : {V}, {V}
    }}
"""
BRANCH = f"""
    %c = arith.cmpi CASE, %c0, %c1 : index
    %r:2 = scf.if %c -> ({V}, {V}) {{
      scf.yield %w, %w : {V}, {V}
    }} else {{
      %u = arith.negf %v : {V}
      scf.yield %v, %u : {V}, {V}
    }}
"""


@pytest.mark.parametrize("read", [0, 1])
@pytest.mark.parametrize("times", [0, 1, 3])
def test_a_carried_value_that_nobody_reads(times: int, read: int) -> None:
    _check(LOOP.replace("TIMES", str(times)), read)


@pytest.mark.parametrize("read", [0, 1])
@pytest.mark.parametrize("case", ["eq", "ne"])
def test_a_result_of_a_branch_that_nobody_reads(case: str, read: int) -> None:
    _check(BRANCH.replace("CASE", case), read)


def _check(flow: str, read: int) -> None:
    x = fresh_rng().standard_normal((8, 16)).astype(np.float32)
    body = HEAD + flow + STORES.replace("READ", str(read))
    agree("%x: memref<8x16xf32>, %o: memref<8x16xf32>", body, [x], np.full_like(x, np.nan))


@tw.kernel
def decaying(X, Y, n, BM: tw.constexpr, BN: tw.constexpr):
    """Wide values are made of what a column was before this turn of the loop."""
    x = tw.load_tile(tw.init_tile(X, [0, 0], (BM, BN)))
    rate, acc = tw.max(x, 1), tw.zeros((BM, BN), tw.f32)
    for _ in range(n):
        acc = acc * tw.exp2(-rate) + x
        rate = rate * 0.5 + 1.0
    tw.store_tile(acc + rate, tw.init_tile(Y, [0, 0], (BM, BN)))


@tw.kernel
def converted(X, Y, n, BM: tw.constexpr, BN: tw.constexpr):
    """The column is read by a conversion, which is cheap enough to be done again for every vector."""
    x = tw.load_tile(tw.init_tile(X, [0, 0], (BM, BN)))
    rate, acc = tw.max(x, 1).to(tw.f16), tw.zeros((BM, BN), tw.f32)
    for _ in range(n):
        acc = acc * 0.5 + x * rate.to(tw.f32)
        rate = rate * 0.5 + 1.0
    tw.store_tile(acc + rate.to(tw.f32), tw.init_tile(Y, [0, 0], (BM, BN)))


@tw.kernel
def two_columns(X, Y, n, BM: tw.constexpr, BN: tw.constexpr):
    """One column is made of what was kept of itself, another one of the first as it was."""
    x = tw.load_tile(tw.init_tile(X, [0, 0], (BM, BN)))
    a, b = tw.max(x, 1) * 0.1, tw.min(x, 1)
    for _ in range(n):
        e = tw.exp(a)
        total = tw.sum(x * e, 1) / BN
        a, b = e * 0.1 + total, a + total * 0.3 + b
    tw.store_tile(x * a + b, tw.init_tile(Y, [0, 0], (BM, BN)))


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (3, 8), (8, 40), (37, 16)])
@pytest.mark.parametrize("kernel", [decaying, converted, two_columns], ids=lambda k: k.__name__)
def test_a_column_is_overwritten_when_all_have_read_it(kernel, size: tuple[int, int]) -> None:
    x = fresh_rng().uniform(0, 1, size).astype(np.float32)
    close(both(kernel, 1, [x, poison(*size), 3], [1], BM=size[0], BN=size[1]), 1e-3)
