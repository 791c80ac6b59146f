"""Gathers and scatters of rows move whole vectors, where offsets and masks are known to run; results are the same."""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false
from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright as tw
from tests.targets.cuda.threads import ThreadsTarget


@tw.kernel
def pick_rows(
    IDS, X, Y, BM: tw.constexpr = 16, BN: tw.constexpr = 32, SHIFT: tw.constexpr = 0,
    CUT: tw.constexpr = 0,
):  # fmt: skip
    """Y[ids[m], n] = X[ids[m], n] but for the last CUT columns; columns are read SHIFT further on."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    ids = tw.load_tile(tw.init_tile(IDS, [m, 0], (BM, 1))).to(tw.i64)
    column = tw.arange(0, BN, axis=1, shape=(1, BN)) + n
    row = tw.arange(0, BM, axis=0, shape=(BM, 1)) + m
    inside = (row < IDS.shape[0]) & (column + SHIFT < X.shape[1] - CUT)
    x = tw.load_gather(tw.init_tile(X, ids * X.shape[1] + (column + SHIFT)), inside, padding=7)
    tw.store_scatter(
        x, tw.init_tile(Y, ids * Y.shape[1] + column), (row < IDS.shape[0]) & (column < Y.shape[1])
    )


def expected(ids, x, y, shift, cut):
    result, width = y.copy(), x.shape[1] - cut - shift
    moved = np.full_like(y, 7)
    moved[:, :width] = x[:, shift : shift + width]
    result[ids[:, 0]] = moved[ids[:, 0]]
    return result


CASES = {
    "whole": (64, 0, 0),
    "ragged": (48, 0, 0),
    "no multiple": (45, 0, 0),
    "shifted": (64, 3, 0),
    "cut at a vector": (64, 0, 8),
    "cut inside one": (64, 0, 3),
}


@pytest.mark.parametrize("dtype", ["f4", "f2"])
@pytest.mark.parametrize("case", list(CASES))
def test_rows_by_index(case, dtype, threads: ThreadsTarget, rng):
    width, shift, cut = CASES[case]
    ids = rng.permutation(40).astype(np.int32)[:37, None]
    x = rng.random((40, width)).astype(dtype)
    y = np.full_like(x, -1)
    want = expected(ids, x, y, shift, cut)
    pick_rows.options(target="cuda")[3, 2](ids, x, y, SHIFT=shift, CUT=cut)
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("case", list(CASES))
def test_code_moves_vectors_where_elements_run(case):
    """Four elements of a thread: one access where offsets and masks run so far, else one for each."""
    width, shift, cut = CASES[case]
    specs = tw.spec((40, 1), tw.i32), *[tw.spec((40, width), tw.bf16)] * 2
    code = pick_rows.compile(*specs, target="sm_90a", SHIFT=shift, CUT=cut).asm["ptx"]
    loads, stores = (len(re.findall(rf"{op}\.global\S*v2\.b32", code)) for op in ("ld", "st"))
    runs = width % 4 == 0
    assert (loads, stores) == (runs and shift % 4 == 0 and cut % 4 == 0, runs)
    assert ("ld.global.b16" in code) == (loads == 0)
