"""What the target refuses, and what it says: the op, the number, the limit."""

from __future__ import annotations

import pytest

from tests.targets.xe import kernels
from tests.targets.xe.conftest import build
from tilewright.diagnostics import CompileError, ToolMissing, UnsupportedError
from tilewright.targets.base import CompileOptions, get_target
from tilewright.targets.xe import offline, pipeline

CASES = {
    "registers": (
        kernels.gemm(rows=64),
        "xe-pvc",
        r"a subgroup would need \d+ registers here \(256 of vector<8xf32>",
    ),
    "registers of 64 subgroups": (
        kernels.gemm(sg=(16, 4)),
        "xe-pvc",
        r"has 128 with 64 subgroups in a workgroup: it would spill",
    ),
    "subgroups": (
        kernels.gemm(sg=(32, 4), rows=8),
        "xe-pvc",
        "workgroup of 128 subgroups is not possible on xe-pvc",
    ),
    "lanes": (
        kernels.gemm(lanes=8),
        "xe-pvc",
        "subgroups of 8 lanes are not possible on xe-pvc: they have 16 or 32",
    ),
    "parts of bytes": (
        kernels.head("%a: memref<64x64xi4>") + kernels.FOOT,
        "xe-pvc",
        "argument 0 is a memref<64x64xi4>: arrays of elements smaller than a byte",
    ),
    "column major": (
        kernels.head("%a: memref<64x64xf16, strided<[1, 64]>>")
        + """
    %t = xegpu.create_nd_tdesc %a : memref<64x64xf16, strided<[1, 64]>> -> !xegpu.tensor_desc<8x16xf16>
    %v = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<8x16xf16> -> vector<8xf16>
    xegpu.store_nd %v, %t[0, 0] : vector<8xf16>, !xegpu.tensor_desc<8x16xf16>"""
        + kernels.FOOT,
        "xe-pvc",
        "rows of the base matrix are not contiguous: its innermost stride is 64",
    ),
    "barrier of the workgroup": (
        kernels.head("%a: memref<64xf16>")
        + """
    %id = arith.constant 0 : i8
    %n = arith.constant 8 : i8
    %b = xegpu.init_nbarrier %id, %n : i8, i8 -> !xegpu.nbarrier"""
        + kernels.FOOT,
        "xe-pvc",
        "barrier 0 is the workgroup's own",
    ),
    "named barrier": (
        kernels.head("%a: memref<64xf16>, %id: i8", lanes=8)
        + """
    %n = arith.constant 8 : i8
    %b = xegpu.init_nbarrier %id, %n : i8, i8 -> !xegpu.nbarrier"""
        + kernels.FOOT,
        "xe-dg2",
        "xe-dg2 has no named barrier 1: it is at most 0",
    ),
    "type": (
        kernels.product("tf32", "tf32", "f32", 8, 8, lanes=8).replace("8xtf32", "8xtf32"),
        "xe-dg2",
        "xe-dg2 has no matrix instruction for tf32 x tf32 -> f32",
    ),
    "rows of a product": (
        kernels.product("f16", "f16", "f32", 16, 16),
        "xe-pvc",
        "are no f16 x f16 product of xe-pvc: M is 1, 2, 4, 8, K 16",
    ),
    "shared memory": (
        kernels.head("%a: memref<64xf16>")
        + """
    %slm = memref.alloca() : memref<131080xi8, 3>"""
        + kernels.FOOT,
        "xe-pvc",
        "shared local memory of 131136 bytes is not possible on xe-pvc",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(name: str) -> None:
    text, target, message = CASES[name]
    with pytest.raises(UnsupportedError, match=message) as caught:
        build(text, target)
    assert caught.value.location is not None or name in ("subgroups", "shared memory")


def test_one_kernel() -> None:
    from tilewright.dialects.text import parse_module

    module = parse_module("gpu.module @m {\n}", "empty.mlir")
    with pytest.raises(CompileError, match="this one has none"):
        get_target("xe").build(module, CompileOptions(target="xe"))


def test_machines() -> None:
    assert get_target("xe").fingerprint(CompileOptions(target="xe-bmg")).startswith("xe-bmg|")
    with pytest.raises(UnsupportedError, match="there is no machine table 'xe-adl'"):
        get_target("xe").fingerprint(CompileOptions(target="xe-adl"))


def test_missing_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline.shutil, "which", lambda tool: None)
    found = build(kernels.product("f16", "f16", "f32", 8, 16))
    with pytest.raises(ToolMissing, match="ocloc and iga64 are not installed") as caught:
        found.asm["asm"]
    assert caught.value.hint == offline.HINT


def test_reloaded_from_disk() -> None:
    """What the cache keeps is enough to make everything again."""
    target, options = get_target("xe"), CompileOptions(target="xe-pvc")
    first = build(kernels.product("f16", "f16", "f32", 8, 16))
    again = target.load(first.artifacts(), options)  # pyright: ignore
    assert again.asm["spirv"] == first.asm["spirv"]  # pyright: ignore
    assert again.ir == first.ir


WIDE = """
gpu.module @m { gpu.func @k(%a: memref<128x512xf32>, %c: memref<128x256xf32>) kernel
    attributes {tilewright.level = "subgroup"} {
  %c0 = arith.constant 0 : index
  %c256 = arith.constant 256 : index
  %c512 = arith.constant 512 : index
  %z = arith.constant dense<0.0> : vector<128x256xf32>
  %t = xegpu.create_nd_tdesc %a : memref<128x512xf32> -> !xegpu.tensor_desc<128x256xf32>
  %u = xegpu.create_nd_tdesc %c : memref<128x256xf32> -> !xegpu.tensor_desc<128x256xf32>
  %r = scf.for %k = %c0 to %c512 step %c256 iter_args(%sum = %z) -> (vector<128x256xf32>) {
    %x = xegpu.load_nd %t[0, %k] : !xegpu.tensor_desc<128x256xf32> -> vector<128x256xf32>
    %s = arith.addf %x, %sum : vector<128x256xf32>
    scf.yield %s : vector<128x256xf32>
  }
  xegpu.store_nd %r, %u[0, 0] : vector<128x256xf32>, !xegpu.tensor_desc<128x256xf32>
  gpu.return } }
"""


def test_what_a_loop_carries_is_refused_before_it_is_cut() -> None:
    with pytest.raises(
        UnsupportedError, match=r"carry 2048 registers .* in one vector<128x256xf32>"
    ) as caught:
        build(WIDE)
    assert caught.value.location is not None and caught.value.location.line == 10


def test_an_order_of_the_program_has_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "BUDGET", 0.0)
    with pytest.raises(UnsupportedError, match="operations of a subgroup stand between") as caught:
        build(kernels.gemm(rows=64))
    assert caught.value.location is not None
