"""What a search may try holds the fixed tilings that it is measured beside, on every machine."""

from __future__ import annotations

import pytest

import tilewright as tw
from benchmarks import shapes
from benchmarks.suites import planner
from benchmarks.suites.layers import product
from tilewright.runtime.search import candidates_of

CPU = [{"BM": m, "BN": n, "BK": 64} for m, n in planner.TILINGS]
CUDA = [dict(zip(("BM", "BN", "BK"), each, strict=True)) for each in shapes.TILINGS]


@pytest.mark.parametrize("target, tilings", [("cpu", CPU), ("sm_90a", CUDA)])
@pytest.mark.parametrize("transposed", [True, False])
def test_every_tiling_is_a_candidate(target, tilings, transposed):
    m, n, k = 1058, 2560, 2560
    b = tw.spec((k, n), tw.bf16, (1, k) if transposed else (n, 1))
    kernel = product.options(target=target)
    values = kernel.launcher.bind((tw.spec((m, k), tw.bf16), b, tw.spec((m, n), tw.bf16)), {})
    request, _, options = kernel.variant_for(values).chooser.request(values)
    found = candidates_of(request, options, [], planned=True)
    tried = [c.constexprs for c in found]
    missing = [each for each in tilings if each not in tried]
    assert not missing and found[0].planned and not any(c.planned for c in found[1:])
    assert all(c.estimate is not None for c in found) and len(tried) == len(set(map(repr, tried)))
