"""Buffers that values share on the cpu: what a loop or a branch gives and nobody reads is written all the same."""

from __future__ import annotations

import numpy as np
import pytest

from tests.draws import fresh_rng
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
