"""xegpu-positions-as-masks: the same elements, to the sign of zero, and no position that is known only at run time."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lowering.programs import run
from tests.movement import CASES, GRID, arguments, kernel
from tilewright.passes.xegpu.pipeline import PIPELINE, POSITIONS

POSITIONED = [name for name in CASES if name.startswith(("vector.extract,", "vector.insert,"))]


@pytest.mark.parametrize("name", POSITIONED)
def test_the_same_elements(name: str, rng: np.random.Generator):
    args = arguments(name, rng)
    args[0][:, ::3] = -0.0
    args[0][:, 1::3] = np.inf
    before, after = kernel(name), kernel(name)
    PIPELINE.alone(POSITIONS, after, "pvc")
    after.verify()
    moved = [op for op in after.walk() if op.name in ("vector.extract", "vector.insert")]
    assert all(DYNAMIC not in op.properties["static_position"].get_values() for op in moved)  # type: ignore[attr-defined]
    right, found = (run(module, GRID, args)[-1] for module in (before, after))
    np.testing.assert_array_equal(right.view(np.uint32), found.view(np.uint32))


DYNAMIC = -(2**63)


@pytest.mark.parametrize("element", ["f16", "i8", "i1", "index"])
def test_elements_of_every_kind(element: str, rng: np.random.Generator):
    made = {
        "f16": "arith.truncf %a : vector<16x32xf32> to vector<16x32xf16>",
        "i8": "arith.fptosi %a : vector<16x32xf32> to vector<16x32xi8>",
        "i1": "arith.cmpf olt, %a, %b : vector<16x32xf32>",
        "index": "arith.index_cast %qf : vector<16x32xi32> to vector<16x32xindex>",
    }
    back = {
        "f16": "arith.extf %k : vector<16x32xf16> to vector<16x32xf32>",
        "i8": "arith.sitofp %k : vector<16x32xi8> to vector<16x32xf32>",
        "i1": "arith.uitofp %k : vector<16x32xi1> to vector<16x32xf32>",
        "index": "arith.sitofp %l : vector<16x32xi32> to vector<16x32xf32>",
    }
    text = f"""
    %qf = arith.fptosi %a : vector<16x32xf32> to vector<16x32xi32>
    %v = {made[element]}
    %e = vector.extract %v[%i] : vector<32x{element}> from vector<16x32x{element}>
    %k = vector.insert %e, %v[2] : vector<32x{element}> into vector<16x32x{element}>
    """
    if element == "index":
        text += "%l = arith.index_cast %k : vector<16x32xindex> to vector<16x32xi32>\n"
    text += f"%r = {back[element]}"
    before, after = kernel(text), kernel(text)
    PIPELINE.alone(POSITIONS, after, "pvc")
    args = arguments(text, rng)
    args[0] *= 20
    right, found = (run(module, GRID, args)[-1] for module in (before, after))
    np.testing.assert_array_equal(right, found)
