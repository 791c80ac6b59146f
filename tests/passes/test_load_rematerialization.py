"""rematerialize-loads: kernels that copy ahead by hand load where they use, and compute the same."""

# Kernels are not typed Python.
# pyright: reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp

import tilewright as tw
from tilewright import reference
from tilewright.dialects import xetile
from tilewright.dialects.text import parse_module, verify_module
from tilewright.passes.carry_offsets import carry_offsets
from tilewright.passes.kernel import kernel_of
from tilewright.passes.load_rematerialization import rematerialize_loads


@tw.kernel
def ahead(A, B, C, BK: tw.constexpr = 16):
    """The last of them are loaded for nobody."""
    a = tw.load_tile(tw.init_tile(A, [0, 0], (16, BK)))
    b = tw.load_tile(tw.init_tile(B, [0, 0], (BK, 16)))
    acc = tw.zeros((16, 16), tw.f32)
    for k in range(BK, A.shape[1] + BK, BK):
        next_a = tw.load_tile(tw.init_tile(A, [0, k], (16, BK)))
        next_b = tw.load_tile(tw.init_tile(B, [k, 0], (BK, 16)))
        acc = tw.tile_mma(a, b, acc)
        a, b = next_a, next_b
    tw.store_tile(acc, tw.init_tile(C, [0, 0], (16, 16)))


@tw.kernel
def peeled(A, B, C, BK: tw.constexpr = 16):
    """The last product stands behind the loop; tiles are moved."""
    at, bt = tw.init_tile(A, [0, 0], (16, BK)), tw.init_tile(B, [0, 0], (BK, 16))
    a, b = tw.load_tile(at), tw.load_tile(bt)
    acc = tw.zeros((16, 16), tw.f32)
    for _ in range(0, A.shape[1] - BK, BK):
        at, bt = tw.update_tile_offset(at, [0, BK]), tw.update_tile_offset(bt, [BK, 0])
        next_a, next_b = tw.load_tile(at), tw.load_tile(bt)
        acc = tw.tile_mma(a, b, acc)
        a, b = next_a, next_b
    acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc, tw.init_tile(C, [0, 0], (16, 16)))


@tw.kernel
def elsewhere(A, B, C, BK: tw.constexpr = 16):
    """The first tile is not the one before the second; what is loaded is also used at once."""
    a = tw.load_tile(tw.init_tile(A, [0, 3], (16, BK)))
    b = tw.load_tile(tw.init_tile(B, [0, 0], (BK, 16)))
    acc = tw.zeros((16, 16), tw.f32)
    for k in range(BK, A.shape[1] + BK, BK):
        next_a = tw.load_tile(tw.init_tile(A, [0, k], (16, BK)))
        next_b = tw.load_tile(tw.init_tile(B, [k, 0], (BK, 16)))
        acc = tw.tile_mma(a, b, acc) + tw.sum(next_b)
        a, b = next_a, next_b
    tw.store_tile(acc, tw.init_tile(C, [0, 0], (16, 16)))


@tw.kernel
def written(A, B, C, BK: tw.constexpr = 16):
    """Each iteration reads what the one before wrote over."""
    a = tw.load_tile(tw.init_tile(C, [0, 0], (16, 16)))
    acc = tw.zeros((16, 16), tw.f32)
    for k in range(16, A.shape[1] + 16, 16):
        next_a = tw.load_tile(tw.init_tile(C, [0, k - 16], (16, 16)))
        b = tw.load_tile(tw.init_tile(B, [k - 16, 0], (16, 16)))
        acc = tw.tile_mma(a, b, acc)
        tw.store_tile(acc, tw.init_tile(C, [0, 0], (16, 16)))
        a = next_a


def carried(module: ModuleOp) -> int:
    """Tiles that loops carry but for their sums."""
    loops = [op for op in module.walk() if isinstance(op, scf.ForOp)]
    return sum(v.type.get_shape() != (16, 16) or v.type.element_type.name != "f32"  # pyright: ignore
               for loop in loops for v in loop.iter_args if hasattr(v.type, "get_shape"))  # fmt: skip


def both(kernel: Any, args: list[Any]) -> tuple[ModuleOp, ModuleOp]:
    """As written, and after the pass."""
    text = kernel.compile(*args, target="reference").ir["xetile"]
    before, after = parse_module(text), parse_module(text)
    carry_offsets(after)
    rematerialize_loads(kernel_of(after))
    verify_module(after)
    return before, after


@pytest.mark.parametrize("depth", [0, 5, 16, 40, 96])
@pytest.mark.parametrize("kernel", [ahead, peeled, elsewhere, written], ids=lambda k: k.function.__name__)  # fmt: skip
def test_the_same_results(kernel: Any, depth: int, rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((16, depth)), rng.standard_normal((depth, 16))
    args = [a.astype(np.float16), b.astype(np.float16), np.zeros((16, 16), np.float32)]
    if kernel is written:
        args[1:] = [x.astype(np.float32) for x in args[1:]]
    found = list[Any]()
    for module in both(kernel, args):
        mine = [x.copy() for x in args]
        reference.run(module, 1, mine)
        found.append(mine[-1])
    np.testing.assert_array_equal(*found)
    if kernel in (ahead, peeled):
        np.testing.assert_allclose(found[0], args[0].astype(float) @ args[1].astype(float), atol=1e-2)  # fmt: skip


ARGS = [np.zeros((16, 64), np.float16), np.zeros((64, 16), np.float16), np.zeros((16, 16), np.float32)]  # fmt: skip


@pytest.mark.parametrize("kernel", [ahead, peeled], ids=lambda k: k.function.__name__)
def test_loops_carry_sums_alone(kernel: Any) -> None:
    before, after = both(kernel, ARGS)
    assert carried(before) >= 2 and carried(after) == 0
    loads = [op for op in after.walk() if isinstance(op, xetile.LoadTileOp)]
    assert len(loads) == (2 if kernel is ahead else 4)


@pytest.mark.parametrize("kernel", [elsewhere, written], ids=lambda k: k.function.__name__)
def test_other_loops_stay(kernel: Any) -> None:
    args = ARGS if kernel is elsewhere else [ARGS[0], *(x.astype(np.float32) for x in ARGS[1:])]
    before, after = both(kernel, args)
    count = [sum(isinstance(op, xetile.LoadTileOp) for op in m.walk()) for m in (before, after)]
    assert count[0] == count[1]


INSIDE = """
gpu.module @m { gpu.func @k(%a: memref<?x?xf16>, %b: memref<?x?xf16>, %c: memref<16x16xf32>)
    kernel attributes {tilewright.level = "workgroup", tilewright.args = [{noalias}, {noalias}, {noalias}]} {
  %zero = arith.constant dense<0.0> : vector<16x16xf32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %m = memref.dim %a, %c0 : memref<?x?xf16>
  %n = memref.dim %a, %c1 : memref<?x?xf16>
  %t = xetile.init_tile %a[0, 0], [%m, %n], [%n, 1] : memref<?x?xf16> -> !xetile.tile<16x16xf16>
  %first = xetile.load_tile %t : !xetile.tile<16x16xf16> -> vector<16x16xf16>
  %end = arith.addi %n, %c16 : index
  %r:2 = scf.for %k = %c16 to %end step %c16 iter_args(%x = %first, %s = %zero)
      -> (vector<16x16xf16>, vector<16x16xf32>) {
    %p = memref.dim %a, %c0 : memref<?x?xf16>
    %q = memref.dim %a, %c1 : memref<?x?xf16>
    %u = xetile.init_tile %a[0, %k], [%p, %q], [%q, 1] : memref<?x?xf16> -> !xetile.tile<16x16xf16>
    %next = xetile.load_tile %u : !xetile.tile<16x16xf16> -> vector<16x16xf16>
    %w = xetile.init_tile %b[0, 0], [%p, %q], [%q, 1] : memref<?x?xf16> -> !xetile.tile<16x16xf16>
    %y = xetile.load_tile %w : !xetile.tile<16x16xf16> -> vector<16x16xf16>
    %z = xetile.tile_mma %x, %y, %s : vector<16x16xf16>, vector<16x16xf16>, vector<16x16xf32> -> vector<16x16xf32>
    scf.yield %next, %z : vector<16x16xf16>, vector<16x16xf32>
  }
  %o = xetile.init_tile %c[0, 0] : memref<16x16xf32> -> !xetile.tile<16x16xf32>
  xetile.store_tile %r#1, %o : vector<16x16xf32>, !xetile.tile<16x16xf32>
  gpu.return } }
"""
"""Extents are read in the loop, behind where the tile is loaded then."""


def test_extents_that_are_read_in_the_loop(rng: np.random.Generator) -> None:
    a, b = (rng.standard_normal((16, 40)).astype(np.float16) for _ in range(2))
    found = list[Any]()
    for changed in (False, True):
        module, c = parse_module(INSIDE), np.zeros((16, 16), np.float32)
        if changed:
            rematerialize_loads(kernel_of(module))
            verify_module(module)
            assert carried(module) == 0
        reference.run(module, 1, [a, b, c])
        found.append(c)
    np.testing.assert_array_equal(*found)
