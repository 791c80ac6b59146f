"""Tiles that do not fit registers or shared memory are computed in passes; what cannot be spills, or is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xdsl.dialects.builtin import ModuleOp

from tests.texts import parse_module
from tilewright.diagnostics import UnsupportedError
from tilewright.targets.base import CompileOptions
from tilewright.targets.entry import build_text

RFC = Path(__file__).parents[3] / "examples" / "rfc"
PRODUCT = """
gpu.module @m { gpu.func @k(%a: memref<64x256xf16>ARG, %b: memref<256x64xf16>ARG, %c: memref<64x64xf32>ARG) kernel {
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %sum = scf.for %k = %c0 to %c256 step %c16 iter_args(%acc = %zero) -> vector<64x64xf32> {
    %ta = xetile.init_tile %a[0, %k] : memref<64x256xf16> -> !xetile.tile<64x16xf16>
    %tb = xetile.init_tile %b[%k, 0] : memref<256x64xf16> -> !xetile.tile<16x64xf16>
    %va = xetile.load_tile %ta : !xetile.tile<64x16xf16> -> vector<64x16xf16>
    %vb = xetile.load_tile %tb : !xetile.tile<16x64xf16> -> vector<16x64xf16>
    %d = xetile.tile_mma %va, %vb, %acc
      : vector<64x16xf16>, vector<16x64xf16>, vector<64x64xf32> -> vector<64x64xf32>
    scf.yield %d : vector<64x64xf32>
  }
  %tc = xetile.init_tile %c[0, 0] : memref<64x64xf32> -> !xetile.tile<64x64xf32>
  xetile.store_tile %sum, %tc : vector<64x64xf32>, !xetile.tile<64x64xf32>
  gpu.return } }
"""
"""The program of one subgroup."""


def build(module: ModuleOp, machine: str = "xe-pvc", **options: Any) -> list[str]:
    """The remarks of a kernel that compiles."""
    return build_text(module, CompileOptions(target=machine, **options)).remarks


def rfc(name: str) -> ModuleOp:
    return parse_module((RFC / name).read_text(), name)


@pytest.mark.parametrize("name", ["xetile_2_5_two_cache_levels", "xegpu_1_3_two_cache_levels"])
@pytest.mark.parametrize("machine, passes", [("xe-pvc", 2), ("xe-bmg", 2), ("xe-dg2", 4)])
def test_two_cache_levels_as_printed(name: str, machine: str, passes: int):
    """64 x 64 of f32 are all registers of a subgroup of pvc, twice those of dg2."""
    said = "\n".join(build(rfc(f"{name}.mlir"), machine))
    assert f"a workgroup's tiles are computed in {passes} passes" in said


def test_shared_memory_as_printed():
    """Four slots of A and of B are twice what dg2 has: two passes leave 96 KiB, four 64."""
    said = "\n".join(build(rfc("xetile_2_4_cooperative_slm.mlir"), "xe-dg2"))
    assert "a workgroup's tiles are computed in 4 passes" in said


@pytest.mark.parametrize("name, passes", [("xetile_2_2", 4), ("xetile_2_3", 4), ("xegpu_1_2", 4)])
def test_more_passes_where_the_first_estimate_was_too_low(name: str, passes: int):
    """What a loop carries fits dg2 in two passes; with the operands that a lane holds besides it takes more."""
    (path,) = RFC.glob(f"{name}_*.mlir")
    assert any(
        f"computed in {passes} passes" in remark for remark in build(rfc(path.name), "xe-dg2")
    )


def test_a_subgroups_own_tile():
    remarks = build(parse_module(PRODUCT.replace("ARG", " {llvm.noalias}")))
    assert any("are computed in 2 passes" in each for each in remarks)


def test_what_may_not_be_cut_spills_or_is_refused_as_it_was():
    module = parse_module(PRODUCT.replace("ARG", ""))
    assert any("bytes per thread spill" in each for each in build(module.clone()))
    with pytest.raises(UnsupportedError, match="would carry 256 registers") as found:
        build(module, disable=frozenset({"xe-spill"}))
    assert "{llvm.noalias}" in str(found.value.hint)


def test_passes_can_be_left_out():
    with pytest.raises(UnsupportedError, match="would carry 256 registers through this loop"):
        build(rfc("xetile_2_5_two_cache_levels.mlir"), disable=frozenset({"retile", "xe-spill"}))


HANDED = """
#a = #xegpu.layout<sg_layout = [3, 2], sg_data = [64, 96]>
#b = #xegpu.layout<sg_layout = [2, 3], sg_data = [96, 64]>
gpu.module @m { gpu.func @k(%a: memref<192x192xf16>ARG, %o: memref<192x192xf16>ARG) kernel {
  %t = xegpu.create_nd_tdesc %a : memref<192x192xf16> -> !xegpu.tensor_desc<192x192xf16, #a>
  %v = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<192x192xf16, #a> -> vector<192x192xf16>
  %w = xegpu.convert_layout %v <{input_layout = #a, target_layout = #b}> : vector<192x192xf16>
  %u = xegpu.create_nd_tdesc %o : memref<192x192xf16> -> !xegpu.tensor_desc<192x192xf16, #b>
  xegpu.store_nd %w, %u[0, 0] : vector<192x192xf16>, !xegpu.tensor_desc<192x192xf16, #b>
  gpu.return } }
"""
"""Each hands parts to several others along both dimensions: 72 KiB at once."""


def test_what_shared_memory_does_not_hold_is_handed_over_in_passes():
    said = "\n".join(build(parse_module(HANDED.replace("ARG", " {llvm.noalias}")), "xe-dg2"))
    assert "a workgroup's tiles are computed in 2 passes" in said
    with pytest.raises(UnsupportedError, match="exchanges 73728 bytes") as found:
        build(parse_module(HANDED.replace("ARG", "")), "xe-dg2")
    assert "{llvm.noalias}" in str(found.value.hint)
