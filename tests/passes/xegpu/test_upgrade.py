"""xegpu-upgrade keeps values and leaves nothing of the older text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.draws import fresh_rng
from tests.lowering.programs import lowered, ops
from tests.texts import parse_module
from tilewright import reference
from tilewright.dialects import xegpu
from tilewright.dialects.movement import shape_of
from tilewright.dialects.text import print_module
from tilewright.passes.xegpu.pipeline import SUBGROUP, WORKGROUP
from tilewright.passes.xegpu.upgrade import upgrade

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("xegpu_*.mlir"))
OLD = ("update_nd_offset", "create_tdesc", "update_offset", "sg_map", "scatter_tdesc_attr")

LOOPS = """
func.func @f(%m: memref<64x64xf32>, %o: memref<64x64xf32>, %n: index, %p: i1) {
  %t = xegpu.create_nd_tdesc %m[%c0, 4] : memref<64x64xf32> -> !xegpu.tensor_desc<8x16xf32>
  %d = xegpu.create_nd_tdesc %o[0, 0] : memref<64x64xf32> -> !xegpu.tensor_desc<8x16xf32>
  %zero = arith.constant dense<0.0> : vector<8x16xf32>
  // Two loops deep, with the inner one's end carried on; a branch that moves; a while loop.
  %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %t, %s = %zero)
      -> (!xegpu.tensor_desc<8x16xf32>, vector<8x16xf32>) {
    %q:2 = scf.for %j = %c0 to %n step %c1 iter_args(%b = %a, %u = %s)
        -> (!xegpu.tensor_desc<8x16xf32>, vector<8x16xf32>) {
      %v = xegpu.load_nd %b : !xegpu.tensor_desc<8x16xf32> -> vector<8x16xf32>
      %w = arith.addf %v, %u : vector<8x16xf32>
      %b2 = xegpu.update_nd_offset %b, [0, 3] : !xegpu.tensor_desc<8x16xf32>
      scf.yield %b2, %w : !xegpu.tensor_desc<8x16xf32>, vector<8x16xf32>
    }
    %x = scf.if %p -> (!xegpu.tensor_desc<8x16xf32>) {
      %y = xegpu.update_nd_offset %q#0, [%c8, 0] : !xegpu.tensor_desc<8x16xf32>
      scf.yield %y : !xegpu.tensor_desc<8x16xf32>
    } else {
      scf.yield %q#0 : !xegpu.tensor_desc<8x16xf32>
    }
    xegpu.prefetch_nd %x : !xegpu.tensor_desc<8x16xf32>
    %chosen = arith.select %p, %x, %q#0 : !xegpu.tensor_desc<8x16xf32>
    scf.yield %chosen, %q#1 : !xegpu.tensor_desc<8x16xf32>, vector<8x16xf32>
  }
  %e:2 = scf.while (%k = %c0, %g = %d) : (index, !xegpu.tensor_desc<8x16xf32>)
      -> (index, !xegpu.tensor_desc<8x16xf32>) {
    %go = arith.cmpi ult, %k, %n : index
    scf.condition(%go) %k, %g : index, !xegpu.tensor_desc<8x16xf32>
  } do {
  ^bb0(%k: index, %g: !xegpu.tensor_desc<8x16xf32>):
    %k2 = arith.addi %k, %c1 : index
    %g2 = xegpu.update_nd_offset %g, [%c8, 5] : !xegpu.tensor_desc<8x16xf32>
    scf.yield %k2, %g2 : index, !xegpu.tensor_desc<8x16xf32>
  }
  xegpu.store_nd %r#1, %e#1 : vector<8x16xf32>, !xegpu.tensor_desc<8x16xf32>
  %z = xegpu.load_nd %r#0 : !xegpu.tensor_desc<8x16xf32> -> vector<8x16xf32>
  xegpu.store_nd %z, %d : vector<8x16xf32>, !xegpu.tensor_desc<8x16xf32>
  return
}
"""


@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_descriptors_carried_by_loops_become_offsets(count: int, taken: bool):
    rng = fresh_rng()
    matrix = rng.standard_normal((64, 64)).astype(np.float32)
    results: list[np.ndarray] = []
    module = parse_module(LOOPS, "loops.mlir")
    for _ in range(2):
        out = np.full((64, 64), np.nan, np.float32)
        reference.run(module, (1, 1, 1), [matrix.copy(), out, count, taken])
        results.append(out)
        upgrade(module)
        text = print_module(module)
        assert "update_nd_offset" not in text
        module = parse_module(text, "modern.mlir")
    np.testing.assert_array_equal(results[0], results[1])
    assert np.isfinite(results[0][:8, :16]).all()


def test_coordinates_that_a_loop_leaves_alone_are_not_carried():
    module = parse_module(LOOPS, "loops.mlir")
    upgrade(module)
    inner = next(line for line in print_module(module).splitlines() if "%j = " in line)
    assert inner.count("=") == 4  # results, the counter, the sum, and the column


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_values_stay_and_old_text_goes(path: Path):
    from .test_bridges import assert_same, new_seed, reparsed, run

    seed = new_seed()
    print("seed", seed)
    module = parse_module(path.read_text(), path.name)
    expected = run(module, seed)
    upgrade(module)
    text = print_module(module)
    for word in OLD:
        assert word not in text
    assert_same(expected, run(reparsed(module), seed), "modern")


def test_the_older_generation_of_every_op():
    path = Path(__file__).parents[2] / "dialects/xegpu/programs/before.mlir"
    module = parse_module(path.read_text(), path.name)
    upgrade(module)
    text = print_module(module)
    for word in OLD:
        assert word not in text
    parse_module(text, "modern.mlir")


def test_two_bases_that_a_loop_carries_are_numbered():
    text = """gpu.module @m {
gpu.func @f(%a: memref<64x64xf32>, %b: memref<64x64xf32>, %c: memref<64x64xf32>) kernel
    attributes {tilewright.level = "workgroup"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %t = xegpu.create_nd_tdesc %a[0, 0] : memref<64x64xf32> -> !xegpu.tensor_desc<8x16xf32>
  %u = xegpu.create_nd_tdesc %b[8, 0] : memref<64x64xf32> -> !xegpu.tensor_desc<8x16xf32>
  %x:2 = scf.for %i = %c0 to %c3 step %c1 iter_args(%y = %t, %z = %u)
      -> (!xegpu.tensor_desc<8x16xf32>, !xegpu.tensor_desc<8x16xf32>) {
    %v = xegpu.load_nd %y : !xegpu.tensor_desc<8x16xf32> -> vector<8x16xf32>
    %w = arith.addf %v, %v : vector<8x16xf32>
    xegpu.store_nd %w, %z : vector<8x16xf32>, !xegpu.tensor_desc<8x16xf32>
    %n = xegpu.update_nd_offset %y, [8, 0] : !xegpu.tensor_desc<8x16xf32>
    scf.yield %z, %n : !xegpu.tensor_desc<8x16xf32>, !xegpu.tensor_desc<8x16xf32>
  }
  gpu.return
} }
"""
    module = parse_module(text, "meet.mlir")
    results: list[list[np.ndarray]] = []
    for change in (False, True):
        if change:
            upgrade(module)
            module.verify()
        arrays = [np.arange(4096, dtype=np.float32).reshape(64, 64) * s for s in (1, -1, 0)]
        reference.run(module, args=arrays)
        results.append(arrays)
    for before, after in zip(*results, strict=True):
        np.testing.assert_array_equal(before, after)


def test_a_map_that_no_message_has_stays_on_the_op():
    """Pairs of bf16 side by side, as 32 bits would be distributed: a message of bf16 gives a lane a column."""
    desc = "!xegpu.tensor_desc<12x32xbf16, #xegpu.sg_map<wi_layout = [1, 16], wi_data = [1, 2]>>"
    module = parse_module(
        f"""gpu.module @m {{ gpu.func @f(%a: memref<64x64xbf16>) kernel attributes {{tilewright.level = "lane"}} {{
  %t = xegpu.create_nd_tdesc %a[4, 16] : memref<64x64xbf16> -> {desc}
  %v = xegpu.load_nd %t : {desc} -> vector<12x2xbf16>
  gpu.return }} }}"""
    )
    upgrade(module)
    (load,) = (op for op in module.walk() if isinstance(op, xegpu.LoadNdOp))
    assert isinstance(load.layout, xegpu.SgMapAttr) and shape_of(load.value) == (24,)


def test_descriptors_of_one_base_meet():
    """Made alike, one of them inside of the branch: the branch gives the place."""
    text = """
func.func @f(%a: memref<64x64xf32>, %o: memref<64x64xf32>, %p: i1) {
  %t = xegpu.create_nd_tdesc %a[8, 0] : memref<64x64xf32> -> !xegpu.tensor_desc<8x16xf32>
  %x = scf.if %p -> (!xegpu.tensor_desc<8x16xf32>) {
    scf.yield %t : !xegpu.tensor_desc<8x16xf32>
  } else {
    %u = xegpu.create_nd_tdesc %a[3, 32] : memref<64x64xf32> -> !xegpu.tensor_desc<8x16xf32>
    scf.yield %u : !xegpu.tensor_desc<8x16xf32>
  }
  %v = xegpu.load_nd %x : !xegpu.tensor_desc<8x16xf32> -> vector<8x16xf32>
  %d = xegpu.create_nd_tdesc %o[0, 0] : memref<64x64xf32> -> !xegpu.tensor_desc<8x16xf32>
  xegpu.store_nd %v, %d : vector<8x16xf32>, !xegpu.tensor_desc<8x16xf32>
  return
}
"""
    a = fresh_rng().standard_normal((64, 64)).astype(np.float32)
    for first, corner in ((True, a[8:16, :16]), (False, a[3:11, 32:48])):
        module = parse_module(text)
        upgrade(module)
        o = np.zeros((64, 64), np.float32)
        reference.run(module, (1, 1, 1), [a, o, first], kernel="f")
        assert (o[:8, :16] == corner).all()


def test_vector_gathers_are_loads_of_lanes():
    """Masked elements keep what the op says, indices of another type count too; down to lanes."""
    text = """
    gpu.module @m { gpu.func @f(%a: memref<8x32xf32>, %c: memref<2x32xf32>, %d: memref<64xf32>) kernel {
      %s = vector.step : vector<32xindex>
      %o = vector.broadcast %s : vector<32xindex> to vector<2x32xindex>
      %m = vector.constant_mask [2, 20] : vector<2x32xi1>
      %p = arith.constant dense<2.5> : vector<2x32xf32>
      %x = vector.gather %a[%c3, %c0] [%o], %m, %p
        : memref<8x32xf32>, vector<2x32xindex>, vector<2x32xi1>, vector<2x32xf32> into vector<2x32xf32>
      %t = xegpu.create_nd_tdesc %c : memref<2x32xf32>
        -> !xegpu.tensor_desc<2x32xf32, #xegpu.layout<sg_layout = [1, 2], sg_data = [2, 16]>>
      xegpu.store_nd %x, %t[0, 0] : vector<2x32xf32>,
        !xegpu.tensor_desc<2x32xf32, #xegpu.layout<sg_layout = [1, 2], sg_data = [2, 16]>>
      %q = vector.extract %x[1] : vector<32xf32> from vector<2x32xf32>
      %i = arith.index_cast %s : vector<32xindex> to vector<32xi32>
      %all = arith.constant dense<true> : vector<32xi1>
      vector.scatter %d[%c3] [%i], %all, %q
        : memref<64xf32>, vector<32xi32>, vector<32xi1>, vector<32xf32>
      gpu.return } }
    """
    a = fresh_rng().standard_normal((8, 32)).astype(np.float32)
    args = [a, np.zeros((2, 32), np.float32), np.zeros(64, np.float32)]
    found = lowered(parse_module(text), (1, 1, 1), args, (*WORKGROUP, *SUBGROUP))
    assert not ops(found, "vector.gather") and not ops(found, "vector.scatter")
