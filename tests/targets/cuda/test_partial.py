"""What loops reduce is kept apart for each lane (`deferred-reduction`): of any kind, along any dimensions, in any
layout.
"""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false
from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.targets.cuda.threads import ThreadsTarget

Array = Any


@tw.kernel
def reduced(
    X, O, KIND: tw.constexpr, AXIS: tw.constexpr, START: tw.constexpr, BM: tw.constexpr, BN: tw.constexpr,
):  # fmt: skip
    """A reduction of the whole of X along an axis, tile by tile, or of both: sums fade by half with each tile."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    shape = ((1, 1), (1, BN), (BM, 1))[AXIS + 1]
    t = tw.full(shape, START, X.dtype)
    for at in range(0, X.shape[1] if AXIS == 1 else X.shape[0], BN if AXIS == 1 else BM):
        x = tw.load_tile(tw.init_tile(X, [m, at] if AXIS == 1 else [at, n], (BM, BN)))
        part = tw.reduction(KIND, x, None if AXIS < 0 else AXIS)
        if KIND == "add":
            t = t / 2.0 + part if X.dtype == tw.f32 else t * 3 + part
        if KIND in ("maximumf", "maxsi"):
            t = tw.maximum(t, part)
        if KIND in ("minimumf", "minsi"):
            t = tw.minimum(part, t)
    tw.store_tile(t, tw.init_tile(O, [m, n], shape))


def expected(x: Array, kind: str, axis: int, start: int, tile: int) -> Array:
    """The same in float64, or in integers."""
    x = x.astype(np.float64 if x.dtype.kind == "f" else np.int32)
    over = (0, 1) if axis < 0 else axis
    tiles = np.split(x, x.shape[max(axis, 0)] // tile, axis=max(axis, 0)) if x.size else []
    function = {"add": np.sum, "ma": np.max, "mi": np.min}[kind if kind == "add" else kind[:2]]
    shape = tuple(1 if axis in (-1, d) else n for d, n in enumerate(x.shape))
    found = np.full(shape, start, x.dtype)
    for each in tiles:
        part = function(each, axis=over, keepdims=True)
        if kind == "add":
            found = found / 2 + part if x.dtype.kind == "f" else found * 3 + part.astype(x.dtype)
        else:
            found = (np.maximum if kind[:2] == "ma" else np.minimum)(found, part)
    return found


KINDS = {
    "add": (np.float32, np.int32),
    "maximumf": (np.float32,),
    "minimumf": (np.float32,),
    "maxsi": (np.int32,),
    "minsi": (np.int32,),
}


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("kind,dtype", [(k, d) for k, types in KINDS.items() for d in types])
def test_parts_meet_after_the_loop(
    kind: str, dtype: type, axis: int, threads: ThreadsTarget, rng: np.random.Generator
) -> None:
    bm, bn = (int(2 ** rng.integers(2, 7)) for _ in range(2))
    # A start that changes nothing, one that does; loops of none, one and some iterations.
    start, trips = int(rng.choice([0, -7])), int(rng.choice([0, 1, 3]))
    rows, columns = (bm * trips, bn) if axis < 1 else (bm, bn * trips)
    x = (rng.standard_normal((max(rows, 1), max(columns, 1))) * 50).astype(dtype)
    x = x[:rows, :columns]
    wanted = expected(x, kind, axis, start, bn if axis == 1 else bm)
    out = np.full(wanted.shape, np.nan if dtype is np.float32 else -1, dtype)
    kernel = reduced.options(target="cuda")
    kernel[1, 1](x, out, KIND=kind, AXIS=axis, START=start, BM=bm, BN=bn)
    if dtype is np.float32:
        assert np.linalg.norm(out - wanted) <= 1e-6 * (np.linalg.norm(wanted) + bm * bn)
    else:
        np.testing.assert_array_equal(out, wanted)
    assert threads.last is not None
    loop = re.search(r"scf\.for.*?\n    }", threads.last.ir["mach"], re.DOTALL)
    assert loop is not None
    assert not re.search(r"gpu\.shuffle|gpu\.barrier|bar\.sync", loop.group())
