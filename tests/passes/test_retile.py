"""retile: tiles in parts, computed one after the other; the maps of the parts; what is not cut."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from xdsl.dialects import gpu, scf

from tests.draws import fresh_rng
from tests.fuzz.programs import Program
from tests.fuzz.test_programs import Case
from tests.lowering.programs import programs, run, wrong
from tests.lowering.test_random import lowering
from tests.passes.test_split_workgroups import STORE, kernel
from tilewright import reference
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.text import parse_module, verify_module
from tilewright.dialects.xetile import WgMapAttr
from tilewright.dialects.xetile.distribution import distribution
from tilewright.dialects.xetile.maps import split_map
from tilewright.passes.kernel import kernel_of
from tilewright.passes.retile import compute_in_passes
from tilewright.passes.split_workgroups import choices
from tilewright.passes.xegpu.pipeline import PIPELINE, compute_parts


@lowering
@given(program=programs(), seed=st.integers(0, 2**32 - 1), passes=st.sampled_from((2, 2, 4)))
def test_random_programs_keep_their_results(program: Program, seed: int, passes: int):
    case = Case(program, seed)
    assume(case.expected().finite)
    grid, args = (*program.grid, 1), [*case.inputs, *case.outputs]
    expected = run(case.module, grid, args)
    module = case.module.clone()
    try:
        compute_in_passes(kernel_of(module), passes)
    except UnsupportedError:
        assume(False)
    assert any(isinstance(op, scf.ForOp) for op in module.walk())
    verify_module(module)
    assert wrong(expected, run(module, grid, args, check=True)) is None


@given(st.data())
def test_the_subgroups_of_a_whole_share_a_part(data: st.DataObject):
    """Drawn maps: a part's map is legal, names the same grid, and gives every subgroup as much as any other."""
    powers = st.sampled_from((1, 2, 4, 8))
    grid, block, rounds = ([data.draw(powers) for _ in range(2)] for _ in range(3))
    shape = [g * b * r for g, b, r in zip(grid, block, rounds, strict=True)]
    dim, factor = data.draw(st.integers(0, 1)), data.draw(st.sampled_from((2, 4)))
    whole = WgMapAttr(grid, block)
    part = [n // factor if d == dim else n for d, n in enumerate(shape)]
    new = split_map(whole, shape, [dim], factor)
    if new is None:
        assert shape[dim] % factor
        return
    assert new.sg_layout == whole.sg_layout
    described, before = distribution(new), distribution(whole)
    assert described is not None and before is not None and described.fault(part) is None
    count = grid[0] * grid[1]
    sizes = [sum(np.prod(p.shape) for p in described.parts(part, n)) for n in range(count)]
    assert len(set(sizes)) == 1
    held = sum(np.prod(p.shape) for p in before.parts(shape, 0))
    assert sizes[0] <= max(held // factor, 1) or count * sizes[0] > part[0] * part[1]


@pytest.mark.parametrize(
    "grid, block, shape, dims, factor, expected",
    [
        ((2, 2), (32, 128), (128, 128), [0], 2, (32, 128)),
        ((2, 2), (32, 128), (128, 128), [0], 4, (16, 128)),
        ((2, 2), (32, 128), (128, 128), [1], 2, (32, 64)),
        ((8, 4), (64, 64), (512, 256), [0], 2, (32, 64)),
        ((32, 1), (16, 128), (512, 128), [0], 2, (8, 128)),
        ((8, 4), (2, 32), (16, 128), [0], 4, (1, 32)),  # now some own what others do
    ],
)
def test_maps_of_parts(
    grid: Sequence[int],
    block: Sequence[int],
    shape: Sequence[int],
    dims: Sequence[int],
    factor: int,
    expected: tuple[int, int],
):
    assert split_map(WgMapAttr(grid, block), shape, dims, factor) == WgMapAttr(grid, expected)


def test_instructions_of_a_part():
    whole = WgMapAttr((2, 1), (16, 64), (16, 16))
    assert split_map(whole, (32, 64), [0], 2) == WgMapAttr((2, 1), (8, 64), (8, 16))
    assert split_map(whole, (32, 63), [1], 2) is None


TWICE = """
        %y = arith.addf %x, %x : vector<64x32xf32>
        %b = xetile.init_tile %B[%m, 0], [%h, %w], [%w, 1]
          : memref<?x?xf32, strided<[?, 1]>> -> !xetile.tile<64x32xf32>
        %c = xetile.init_tile %B[SECOND, 0], [%h, %w], [%w, 1]
          : memref<?x?xf32, strided<[?, 1]>> -> !xetile.tile<64x32xf32>
        xetile.store_tile %x, %b : vector<64x32xf32>, !xetile.tile<64x32xf32>
        xetile.store_tile %y, %c : vector<64x32xf32>, !xetile.tile<64x32xf32>"""


def cut(function: gpu.FuncOp) -> bool:
    return bool(choices(function))


def test_what_is_stored_twice_keeps_its_order():
    """The second store has the last word in rows 32 to 64, which are the first rows of its tile."""
    move = "%s = arith.addi %m, %half : index\n" + TWICE.replace("SECOND", "%s")
    assert not cut(kernel("%half = arith.constant 32 : index\n" + move))
    assert cut(kernel("%half = arith.constant 64 : index\n" + move))
    assert cut(kernel(TWICE.replace("SECOND", "%m")))


@pytest.mark.parametrize("step, apart", [(32, False), (64, True)])
def test_what_a_loop_stores_keeps_its_order(step: int, apart: bool):
    body = f"""
        %c4 = arith.constant 4 : index
        %step = arith.constant {step} : index
        scf.for %i = %c0 to %c4 step %c1 {{
          %at = arith.muli %i, %step : index
          %b = xetile.init_tile %B[%at, 0], [%h, %w], [%w, 1]
            : memref<?x?xf32, strided<[?, 1]>> -> !xetile.tile<64x32xf32>
          xetile.store_tile %x, %b : vector<64x32xf32>, !xetile.tile<64x32xf32>
        }}"""
    assert cut(kernel(body)) == apart


def test_single_elements_are_stored_once():
    body = """
        %old = memref.load %B[%c0, %c0] : memref<?x?xf32, strided<[?, 1]>>
        %new = arith.addf %old, %old : f32
        memref.store %new, %B[%c0, %c0] : memref<?x?xf32, strided<[?, 1]>>
        %y = arith.addf %x, %x : vector<64x32xf32>"""
    assert not cut(kernel(body + STORE))


def test_barriers_that_order_nothing_are_no_obstacle():
    assert cut(kernel("gpu.barrier\n%y = arith.addf %x, %x : vector<64x32xf32>" + STORE))


COPY = """
gpu.module @m { gpu.func @k(%a: memref<64x96xf32>ARG, %o: memref<64x96xf32>ARG) kernel {
  %t = xegpu.create_nd_tdesc %a : memref<64x96xf32> -> !xegpu.tensor_desc<64x32xf32, #l>
  %v = xegpu.load_nd %t[0, 32] : !xegpu.tensor_desc<64x32xf32, #l> -> vector<64x32xf32>
  %w = arith.mulf %v, %v : vector<64x32xf32>
  %u = xegpu.create_nd_tdesc %o : memref<64x96xf32> -> !xegpu.tensor_desc<64x32xf32, #l>
  xegpu.store_nd %w, %u[0, 64] : vector<64x32xf32>, !xegpu.tensor_desc<64x32xf32, #l>
  gpu.return } }
"""


def test_xegpu_text_is_cut_as_tiles():
    layout = "#l = #xegpu.layout<sg_layout = [2, 2], sg_data = [16, 16]>\n"
    text = layout + COPY.replace("ARG", " {llvm.noalias}")
    module = parse_module(text)
    a, o = fresh_rng().random((64, 96), np.float32), np.full((64, 96), np.nan, np.float32)
    expected = run(module, (1, 1, 1), [a, o])
    PIPELINE.alone(compute_parts(4), module)
    verify_module(module)
    assert sum(isinstance(op, scf.ForOp) for op in module.walk()) == 2
    assert wrong(expected, run(module, (1, 1, 1), [a, o])) is None


def test_arrays_that_may_overlap_are_not_computed_in_passes():
    layout = "#l = #xegpu.layout<sg_layout = [2, 2], sg_data = [16, 16]>\n"
    module = parse_module(layout + COPY.replace("ARG", ""))
    with pytest.raises(UnsupportedError, match="cannot be computed in 4 passes, only in 1"):
        PIPELINE.alone(compute_parts(4), module)


@pytest.mark.parametrize("passes", [2, 4, 16])
def test_runs_that_a_reduction_adds_up_stay_together(passes: int):
    """64 rows in runs of 8 are apart in 4 passes of 2 runs each, then the columns are."""
    a, o = fresh_rng().standard_normal((64, 32)).astype(np.float32), np.zeros((8, 32), np.float32)
    module = parse_module(RUNS)
    compute_in_passes(kernel_of(module), passes)
    module.verify()
    reference.run(module, (1, 1, 1), [a, o])
    np.testing.assert_allclose(o, a.reshape(8, 8, 32).sum(axis=1), rtol=1e-4, atol=1e-5)
    (loaded,) = (op.results[0].type for op in module.walk() if op.name == "xetile.load_tile")
    rows, columns = 64 // min(passes, 4), 32 // max(passes // 4, 1)
    assert str(loaded) == f"vector<{rows}x{columns}xf32>"


RUNS = """gpu.module @m { gpu.func @k(%a: memref<64x32xf32>, %o: memref<8x32xf32>) kernel
    attributes {tilewright.level = "workgroup", tilewright.args = [{noalias}, {noalias}]} {
  %t = xetile.init_tile %a[0, 0] : memref<64x32xf32> -> !xetile.tile<64x32xf32>
  %v = xetile.load_tile %t : !xetile.tile<64x32xf32> -> vector<64x32xf32>
  %s = xetile.reduction <add>, %v [0] {reduction_size = 8 : i64} : vector<64x32xf32> -> vector<8x32xf32>
  %u = xetile.init_tile %o[0, 0] : memref<8x32xf32> -> !xetile.tile<8x32xf32>
  xetile.store_tile %s, %u : vector<8x32xf32>, !xetile.tile<8x32xf32>
  gpu.return } }
"""
