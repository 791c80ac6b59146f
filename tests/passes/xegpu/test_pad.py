"""xegpu-pad: extents that nothing divides are padded, and no element that the program reads or writes changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp, VectorType

from tests.lowering.programs import run
from tests.texts import parse_module
from tilewright.passes.xegpu.pipeline import PAD, PIPELINE, lower

KINDS = {"add": 0.0, "mul": 1.0, "maximumf": -np.inf, "minimumf": np.inf}


def text(m: int, n: int, p: int, kind: str, at: tuple[int, int], level: str = "workgroup") -> str:
    """Rows reduced, columns multiplied; memory by blocks, elements and atomics, one block in a loop that moves."""
    mn, mp, np_ = f"vector<{m}x{n}xf32>", f"vector<{m}x{p}xf32>", f"vector<{n}x{p}xf32>"
    start = {"add": "0.0", "mul": "1.0", "maximumf": "0xFF800000", "minimumf": "0x7F800000"}[kind]
    return f"""
gpu.module @m {{ gpu.func @k(%a: memref<90x90xf32>, %b: memref<?x?xf32>, %s: memref<8100xf32>, %h: memref<8100xf32>,
    %y: memref<90x90xf32>, %z: memref<90x90xf32>) kernel attributes {{tilewright.level = "{level}"}} {{
  %y0 = arith.constant {at[0]} : index
  %x0 = arith.constant {at[1]} : index
  %cm = arith.constant {m} : index
  %da = xegpu.create_nd_tdesc %a : memref<90x90xf32> -> !xegpu.tensor_desc<{m}x{n}xf32>
  %hb = memref.dim %b, %c0 : memref<?x?xf32>
  %wb = memref.dim %b, %c1 : memref<?x?xf32>
  %db = xegpu.create_nd_tdesc %b, shape : [%hb, %wb], strides : [%wb, 1]
    : memref<?x?xf32> -> !xegpu.tensor_desc<{n}x{p}xf32>
  %none = arith.constant dense<0.0> : {mp}
  %sum, %row = scf.for %i = %c0 to %c2 step %c1 iter_args(%acc = %none, %r = %y0) -> ({mp}, index) {{
    %u = xegpu.load_nd %da[%r, %x0] : !xegpu.tensor_desc<{m}x{n}xf32> -> {mn}
    %e = math.exp %u : {mn}
    %v = xegpu.load_nd %db[%x0, %y0] : !xegpu.tensor_desc<{n}x{p}xf32> -> {np_}
    %d = xegpu.dpas %e, %v, %acc : {mn}, {np_}, {mp} -> {mp}
    %next = arith.addi %r, %cm : index
    scf.yield %d, %next : {mp}, index
  }}
  %dz = xegpu.create_nd_tdesc %z : memref<90x90xf32> -> !xegpu.tensor_desc<{m}x{p}xf32>
  xegpu.store_nd %sum, %dz[%y0, %x0] : {mp}, !xegpu.tensor_desc<{m}x{p}xf32>
  %w = xegpu.load_nd %da[%y0, %x0] : !xegpu.tensor_desc<{m}x{n}xf32> -> {mn}
  %c = math.exp %w : {mn}
  %start = arith.constant dense<{start}> : vector<{m}xf32>
  %q = vector.multi_reduction <{kind}>, %c, %start [1] : {mn} to vector<{m}xf32>
  %col = vector.shape_cast %q : vector<{m}xf32> to vector<{m}x1xf32>
  %wide = vector.broadcast %col : vector<{m}x1xf32> to {mn}
  %o = arith.subf %c, %wide : {mn}
  %t = vector.transpose %o, [1, 0] : {mn} to vector<{n}x{m}xf32>
  %dy = xegpu.create_nd_tdesc %y : memref<90x90xf32> -> !xegpu.tensor_desc<{n}x{m}xf32>
  xegpu.store_nd %t, %dy[%x0, %y0] : vector<{n}x{m}xf32>, !xegpu.tensor_desc<{n}x{m}xf32>
  %is = vector.step : vector<{m}xindex>
  %js = vector.step : vector<{n}xindex>
  %by = arith.constant dense<{n + 3}> : vector<{m}xindex>
  %im = arith.muli %is, %by : vector<{m}xindex>
  %ic = vector.shape_cast %im : vector<{m}xindex> to vector<{m}x1xindex>
  %iw = vector.broadcast %ic : vector<{m}x1xindex> to vector<{m}x{n}xindex>
  %jw = vector.broadcast %js : vector<{n}xindex> to vector<{m}x{n}xindex>
  %at = arith.addi %iw, %jw : vector<{m}x{n}xindex>
  %on = arith.constant dense<true> : vector<{m}x{n}xi1>
  %g = xegpu.load %s[%at], %on : memref<8100xf32>, vector<{m}x{n}xindex>, vector<{m}x{n}xi1> -> {mn}
  xegpu.store %g, %h[%at], %on : {mn}, memref<8100xf32>, vector<{m}x{n}xindex>, vector<{m}x{n}xi1>
  %old = xegpu.atomic_rmw addf %h[%at], %on, %g
    : memref<8100xf32>, vector<{m}x{n}xindex>, vector<{m}x{n}xi1>, {mn} -> {mn}
  gpu.return
}} }}"""


def arguments(rng: np.random.Generator) -> list[Any]:
    big = [rng.standard_normal((90, 90), dtype=np.float32) for _ in range(4)]
    return [
        big[0],
        big[1],
        *(rng.standard_normal(8100, dtype=np.float32) for _ in range(2)),
        *big[2:],
    ]


def extents(module: ModuleOp) -> set[int]:
    types = [r.type for op in module.walk() for r in op.results]
    return {n for type in types if isinstance(type, VectorType) for n in type.get_shape()}


@pytest.mark.parametrize("level", ["workgroup", "subgroup"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_results(kind: str, level: str, rng: np.random.Generator):
    m, n, p = (int(v) for v in rng.choice([3, 5, 7, 9, 11, 13, 17, 21, 33, 37], 3, replace=False))
    at = int(rng.integers(-4, 60)), int(rng.integers(-4, 60))
    source = text(m, n, p, kind, at, level)
    before, after = parse_module(source, "k.mlir"), parse_module(source, "k.mlir")
    PIPELINE.alone(PAD, after, "pvc")
    after.verify()
    if n > 16:
        assert n not in extents(after)
    args = arguments(rng)
    for right, found in zip(
        *(run(module, (1, 1, 1), args) for module in (before, after)), strict=True
    ):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chip", ["pvc", "dg2"])
def test_tiles_of_one_array_end_in_several_places(chip: str):
    """Parts of 2 x 6 of one subgroup are padded each: lanes see where each of them ends, not where the first does."""
    layout = "#xegpu.layout<sg_layout = [1, 1], sg_data = [2, 6]>"
    kind = f"!xegpu.tensor_desc<8x24xf32, {layout}>"
    source = f"""
    gpu.module @m {{ gpu.func @k(%a: memref<?x?xf32>, %y: memref<?x?xf32>, %h: index, %w: index) kernel {{
      %d = xegpu.create_nd_tdesc %a, shape : [%h, %w], strides : [%w, 1] : memref<?x?xf32> -> {kind}
      %v = xegpu.load_nd %d[0, 0] : {kind} -> vector<8x24xf32>
      %o = xegpu.create_nd_tdesc %y, shape : [%h, %w], strides : [%w, 1] : memref<?x?xf32> -> {kind}
      xegpu.store_nd %v, %o[0, 0] : vector<8x24xf32>, {kind}
      gpu.return }} }}"""
    module = parse_module(source, "k.mlir")
    a, y = np.arange(96, dtype=np.float32).reshape(6, 16), np.full((6, 16), np.nan, np.float32)
    lower(module, chip=chip)
    np.testing.assert_array_equal(run(module, (1, 1, 1), [a, y, 6, 16])[1], a)


def test_what_moves_or_is_owned_keeps_its_extent():
    """Elements that a reshape mixes, and rows that the text gives to subgroups."""
    mixed = """
    gpu.module @m { gpu.func @k(%a: memref<90x90xf32>, %y: memref<481xf32>) kernel {
      %d = xegpu.create_nd_tdesc %a : memref<90x90xf32> -> !xegpu.tensor_desc<13x37xf32>
      %v = xegpu.load_nd %d[0, 0] : !xegpu.tensor_desc<13x37xf32> -> vector<13x37xf32>
      %f = vector.shape_cast %v : vector<13x37xf32> to vector<481xf32>
      %o = xegpu.create_nd_tdesc %y : memref<481xf32> -> !xegpu.tensor_desc<481xf32>
      xegpu.store_nd %f, %o[0] : vector<481xf32>, !xegpu.tensor_desc<481xf32>
      gpu.return } }"""
    layout = ", #xegpu.layout<sg_layout = [1, 1], sg_data = [13, 37]>"
    owned = mixed[: mixed.index("%f =")].replace("13x37xf32>", f"13x37xf32{layout}>", 3)
    owned = owned.replace(f"vector<13x37xf32{layout}>", "vector<13x37xf32>") + "gpu.return } }"
    for source in (mixed, owned):
        module = parse_module(source, "k.mlir")
        before = str(module)
        PIPELINE.alone(PAD, module, "pvc")
        assert str(module) == before
