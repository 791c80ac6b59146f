"""Indices that march in step are carried once, and mean what they meant."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import scf

from tests.draws import fresh_rng
from tests.texts import parse_module
from tilewright import reference
from tilewright.dialects.text import print_module, verify_module
from tilewright.passes.cleanup import cleanup
from tilewright.passes.xegpu.pipeline import MERGE_INDUCTIONS, PIPELINE

HEAD = """gpu.module @m {
  gpu.func @k(%a: memref<64x64xf32>, %out: memref<64x64xf32>, %n: index) kernel
      attributes {tilewright.level = "subgroup"} {
    %m8 = arith.constant -8 : index
    %ta = xegpu.create_nd_tdesc %a : memref<64x64xf32> -> !xegpu.tensor_desc<8x16xf32>
    %to = xegpu.create_nd_tdesc %out : memref<64x64xf32> -> !xegpu.tensor_desc<8x16xf32>
"""
COPY = """
      %v = xegpu.load_nd %ta[%p, %c0] : !xegpu.tensor_desc<8x16xf32> -> vector<8x16xf32>
      %w = xegpu.load_nd %ta[%q, %c0] : !xegpu.tensor_desc<8x16xf32> -> vector<8x16xf32>
      %s = arith.subf %v, %w : vector<8x16xf32>
      xegpu.store_nd %s, %to[%q, %c16] : vector<8x16xf32>, !xegpu.tensor_desc<8x16xf32>
"""
FOOT = "    gpu.return\n  }\n}"


def loop(bounds: str, starts: tuple[str, str], steps: tuple[str, str], behind: str = "") -> str:
    """Two numbers march from `starts`."""
    return f"""{HEAD}
    %r:2 = scf.for %i = {bounds} iter_args(%p = {starts[0]}, %q = {starts[1]}) -> (index, index) {{{COPY}
      %p1 = arith.addi %p, {steps[0]} : index
      %q1 = arith.addi {steps[1]}, %q : index
      scf.yield %p1, %q1 : index, index
    }}
{behind}{FOOT}"""


USED = """    %z = arith.constant dense<5.0> : vector<8x16xf32>
    xegpu.store_nd %z, %to[%r#1, %c40] : vector<8x16xf32>, !xegpu.tensor_desc<8x16xf32>
"""
CASES = {
    "the counter": (loop("%c0 to %c40 step %c8", ("%c0", "%c16"), ("%c8", "%c8")), 0),
    "a counter that starts elsewhere": (
        loop("%c8 to %c40 step %c8", ("%c0", "%n"), ("%c8", "%c8")),
        0,
    ),
    "another step": (loop("%c0 to %c3 step %c1", ("%c0", "%n"), ("%c8", "%c8")), 1),
    "two steps": (loop("%c0 to %c3 step %c1", ("%c0", "%c48"), ("%c8", "%m8")), 2),
    "a step of run time": (loop("%c0 to %c3 step %c1", ("%c16", "%c0"), ("%n", "%n")), 1),
    "none at all": (loop("%c3 to %c0 step %c8", ("%c0", "%c16"), ("%c8", "%c8")), 0),
    "used behind the loop": (
        loop("%c0 to %c40 step %c8", ("%c0", "%c8"), ("%c8", "%c8"), USED),
        1,
    ),
    "multiplied": (
        loop("%c1 to %c8 step %c8", ("%c0", "%c16"), ("%c8", "%c8")).replace(
            "%p1 = arith.addi", "%p1 = arith.muli"
        ),
        0,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_marching(case: str) -> None:
    text, carried = CASES[case]
    module = parse_module(text, "march.mlir")
    trimmed = module.clone()
    PIPELINE.alone(MERGE_INDUCTIONS, trimmed)
    for op in trimmed.walk():
        if op.name == "gpu.func":
            cleanup(op)  # pyright: ignore
    verify_module(trimmed)
    trimmed = parse_module(print_module(trimmed), "march.mlir")
    found = next(op for op in trimmed.walk() if isinstance(op, scf.ForOp))
    assert len(found.results) == carried + (case == "multiplied")
    rng = fresh_rng()
    a = rng.standard_normal((64, 64)).astype(np.float32)
    before, after = (np.full((64, 64), np.nan, np.float32) for _ in range(2))
    reference.run(module, (1,), [a, before, 8])
    reference.run(trimmed, (1,), [a, after, 8])
    np.testing.assert_array_equal(before, after)
