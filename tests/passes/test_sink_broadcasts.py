"""sink-broadcasts keeps results and shrinks what is computed."""

from __future__ import annotations

import numpy as np

from tests.draws import fresh_rng
from tests.lowering.programs import run, wrong
from tilewright.dialects.text import parse_module, print_module, verify_module
from tilewright.passes.kernel import kernel_of
from tilewright.passes.sink_broadcasts import sink_broadcasts

TEXT = """
gpu.module @m { gpu.func @f(%a: memref<8x32xf32>, %o: memref<8x32xf32>, %n: index, %s: f32) kernel
    attributes {tilewright.level = "workgroup"} {
  %ta = xegpu.create_nd_tdesc %a : memref<8x32xf32> -> !xegpu.tensor_desc<8x32xf32>
  %to = xegpu.create_nd_tdesc %o : memref<8x32xf32> -> !xegpu.tensor_desc<8x32xf32>
  %x = xegpu.load_nd %ta[0, 0] : !xegpu.tensor_desc<8x32xf32> -> vector<8x32xf32>
  %step = vector.step : vector<32xindex>
  %row = vector.shape_cast %step : vector<32xindex> to vector<1x32xindex>
  %k = vector.broadcast %row : vector<1x32xindex> to vector<8x32xindex>
  %two = arith.constant dense<2> : vector<8x32xindex>
  %k2 = arith.muli %k, %two : vector<8x32xindex>
  %b = vector.broadcast %n : index to vector<8x32xindex>
  %m = arith.cmpi slt, %k2, %b : vector<8x32xindex>
  %w = vector.broadcast %s : f32 to vector<8x32xf32>
  %e = math.exp %w : vector<8x32xf32>
  %half = arith.constant dense<0.5> : vector<8x32xf32>
  %h = arith.mulf %e, %half : vector<8x32xf32>
  %z = arith.select %m, %x, %h : vector<8x32xi1>, vector<8x32xf32>
  xegpu.store_nd %z, %to[0, 0] : vector<8x32xf32>, !xegpu.tensor_desc<8x32xf32>
  gpu.return
} }
"""


def test_masks_and_numbers_are_computed_once():
    rng = fresh_rng()
    module = parse_module(TEXT, "late.mlir")
    args = [rng.standard_normal((8, 32)).astype(np.float32), np.zeros((8, 32), np.float32)]
    given = [*args, int(rng.integers(0, 64)), np.float32(rng.standard_normal())]
    expected = run(module, (1, 1, 1), given)
    sink_broadcasts(kernel_of(module))
    verify_module(module)
    assert wrong(expected, run(module, (1, 1, 1), given)) is None
    text = print_module(module)
    assert "arith.cmpi slt" in text and ": vector<1x32xindex>" in text.split("arith.cmpi")[1]
    assert "math.exp %s : f32" in text
    assert ": vector<8x32xi1>, vector<8x32xf32>" in text
