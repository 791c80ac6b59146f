"""Blocking and distribution to lanes on text that comes to them alone: older spellings, offsets as constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.draws import fresh_rng
from tests.lowering.programs import ops, run, wrong
from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module, verify_module
from tilewright.passes.pipeline import Pass
from tilewright.passes.xegpu.pipeline import BLOCKING, PIPELINE, distribute_to_lanes

OLDER = """
gpu.module @m { gpu.func @f(%a: memref<64x64xf16>, %c: memref<64x64xf16>) kernel {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %t = xegpu.create_nd_tdesc %a[%c0, %c32] : memref<64x64xf16> -> !xegpu.tensor_desc<16x32xf16, #l>
  %x = xegpu.load_nd %t : !xegpu.tensor_desc<16x32xf16, #l> -> vector<16x32xf16>
  %u = xegpu.create_nd_tdesc %c[%c0, %c0] : memref<64x64xf16> -> !xegpu.tensor_desc<16x32xf16, #l>
  %v = xegpu.update_nd_offset %u, [%c32, %c0] : !xegpu.tensor_desc<16x32xf16, #l>
  xegpu.store_nd %x, %v : vector<16x32xf16>, !xegpu.tensor_desc<16x32xf16, #l>
  gpu.return } }
"""


@pytest.mark.parametrize(
    "layout", ["inst_data = [8, 16]", "lane_layout = [1, 16], lane_data = [1, 1]"]
)
@pytest.mark.parametrize("each", [BLOCKING, distribute_to_lanes()], ids=lambda p: p.name)
def test_older_text(each: Pass[Any], layout: str):
    """Offsets on descriptors need no pass of one's own before."""
    text = OLDER.replace("#l", f"#xegpu.layout<{layout}>")
    args = [
        fresh_rng().standard_normal((64, 64)).astype(np.float16),
        np.zeros((64, 64), np.float16),
    ]
    module = parse_module(text)
    PIPELINE.alone(each, module)
    verify_module(module)
    assert not ops(module, "xegpu.update_nd_offset")
    expected = [args[0], np.zeros_like(args[1])]
    expected[1][32:48, :32] = args[0][:16, 32:]
    assert wrong(expected, run(module, (1, 1, 1), args, check=True)) is None


def test_offsets_as_constants_are_arithmetic_on_the_lane():
    """Numbers that grow from lane to lane are a product, not a choice of one of sixteen."""
    offsets = ", ".join(str(24 * n + 3) for n in range(16))
    module = parse_module(f"""
    gpu.module @m {{ gpu.func @f(%a: memref<512xf32>, %c: memref<512xf32>) kernel {{
      %o = arith.constant dense<[{offsets}]> : vector<16xindex>
      %m = arith.constant dense<true> : vector<16xi1>
      %x = xegpu.load %a[%o], %m <{{chunk_size = 4}}>
        : memref<512xf32>, vector<16xindex>, vector<16xi1> -> vector<16x4xf32>
      xegpu.store %x, %c[%o], %m <{{chunk_size = 4}}>
        : vector<16x4xf32>, memref<512xf32>, vector<16xindex>, vector<16xi1>
      gpu.return }} }}""")
    args = [fresh_rng().standard_normal(512).astype(np.float32), np.zeros(512, np.float32)]
    expected = run(module, (1, 1, 1), args)
    PIPELINE.alone(distribute_to_lanes(), module)
    verify_module(module)
    assert not ops(module, "arith.select")
    assert wrong(expected, run(module, (1, 1, 1), args, check=True)) is None


@pytest.mark.parametrize("each", [BLOCKING, distribute_to_lanes()], ids=lambda p: p.name)
def test_vectors_as_arguments_are_refused(each: Pass[Any]):
    module = parse_module("""
    func.func @f(%a: vector<16x16xf32>, %c: memref<64x64xf32>) {
      %t = xegpu.create_nd_tdesc %c : memref<64x64xf32> -> !xegpu.tensor_desc<16x16xf32>
      xegpu.store_nd %a, %t[0, 0] : vector<16x16xf32>, !xegpu.tensor_desc<16x16xf32>
      return
    }""")
    with pytest.raises(TilewrightError, match="takes no vectors"):
        PIPELINE.alone(each, module)
