"""Views of memory on the cpu: parts of arrays, and bytes of shared memory as arrays of any type."""

from __future__ import annotations

import numpy as np
import pytest

from tests.draws import fresh_rng
from tests.targets.cuda.threads import ThreadsTarget
from tests.texts import parse_module
from tilewright import reference
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions, get_target
from tilewright.targets.entry import build_text

SLM = "#xetile.tile_attr<memory_space = 3>"
KERNEL = """
gpu.module @m {{
  gpu.func @k({arguments}) kernel attributes {{tilewright.level = "workgroup"}} {{
{body}
    gpu.return
  }}
}}
"""


def agree(arguments: str, body: str, inputs: list[np.ndarray], out: np.ndarray) -> np.ndarray:
    """The kernel compiled, which is the same as the executor's, for a GPU too (thread by thread)."""
    text = KERNEL.format(arguments=arguments, body=body)
    meant, got, threads = out.copy(), out.copy(), out.copy()
    reference.run(parse_module(text), (1, 1, 1), [*inputs, meant])
    executable = get_target("cpu").build(parse_module(text), CompileOptions(target="cpu"))
    executable.launch((1, 1, 1), [describe(a) for a in [*inputs, got]])
    np.testing.assert_array_equal(got, meant)
    executable = ThreadsTarget().build(parse_module(text), CompileOptions(target="cuda"))
    executable.launch((1, 1, 1), [describe(a) for a in [*inputs, threads]])
    np.testing.assert_array_equal(threads, meant)
    return got


def tile(name: str, place: str, kind: str, shape: str = "8x16", space: str = "") -> str:
    attribute = f", {SLM}" if space else ""
    element = kind.partition("<")[2].split("x")[-1].split(",")[0].rstrip(">")
    return (
        f"%{name} = xetile.init_tile {place} : {kind} -> !xetile.tile<{shape}x{element}{attribute}>"
    )


BYTES = f"""
    %slm = memref.alloca() : memref<2048xi8, 3>
    %half = arith.constant 1024 : index
    %a = memref.view %slm[%c0][] : memref<2048xi8, 3> to memref<8x16xf32, 3>
    %b = memref.view %slm[%half][] : memref<2048xi8, 3> to memref<8x16xf32, 3>
    %bits = memref.view %slm[%c0][] : memref<2048xi8, 3> to memref<8x16xi32, 3>
    {tile("tx", "%x[0, 0]", "memref<8x16xf32>")}
    %v = xetile.load_tile %tx : !xetile.tile<8x16xf32> -> vector<8x16xf32>
    %w = arith.addf %v, %v : vector<8x16xf32>
    {tile("ta", "%a[0, 0]", "memref<8x16xf32, 3>", space="3")}
    {tile("tb", "%b[0, 0]", "memref<8x16xf32, 3>", space="3")}
    {tile("ti", "%bits[0, 0]", "memref<8x16xi32, 3>", space="3")}
    xetile.store_tile %v, %ta : vector<8x16xf32>, !xetile.tile<8x16xf32, {SLM}>
    xetile.store_tile %w, %tb : vector<8x16xf32>, !xetile.tile<8x16xf32, {SLM}>
    gpu.barrier
    %i = xetile.load_tile %ti : !xetile.tile<8x16xi32, {SLM}> -> vector<8x16xi32>
    %one = arith.constant dense<1> : vector<8x16xi32>
    %j = arith.addi %i, %one : vector<8x16xi32>
    xetile.store_tile %j, %ti : vector<8x16xi32>, !xetile.tile<8x16xi32, {SLM}>
    gpu.barrier
    %p = xetile.load_tile %ta : !xetile.tile<8x16xf32, {SLM}> -> vector<8x16xf32>
    %q = xetile.load_tile %tb : !xetile.tile<8x16xf32, {SLM}> -> vector<8x16xf32>
    %r = arith.addf %p, %q : vector<8x16xf32>
    {tile("ty", "%y[0, 0]", "memref<8x16xf32>")}
    xetile.store_tile %r, %ty : vector<8x16xf32>, !xetile.tile<8x16xf32>"""


def test_bytes_of_shared_memory_seen_as_two_types(rng: np.random.Generator) -> None:
    x = rng.standard_normal((8, 16)).astype(np.float32)
    got = agree("%x: memref<8x16xf32>, %y: memref<8x16xf32>", BYTES, [x], np.full_like(x, np.nan))
    np.testing.assert_array_equal(got, (x.view(np.int32) + 1).view(np.float32) + (x + x))


@pytest.mark.parametrize(
    "subview, kind, of",
    [
        ("%x[2, 16] [8, 16] [1, 1]", "memref<8x16xf32, strided<[64, 1], offset: 144>>", np.s_[2:10, 16:32]),
        ("%x[1, 3] [8, 16] [2, 1]", "memref<8x16xf32, strided<[128, 1], offset: 67>>", np.s_[1:17:2, 3:19]),
        ("%x[5, 8] [1, 16] [1, 1]", "memref<16xf32, strided<[1], offset: 328>>", np.s_[5:6, 8:24]),
    ],
)  # fmt: skip
def test_a_part_of_an_array(subview: str, kind: str, of: tuple, rng: np.random.Generator) -> None:
    x = rng.standard_normal((32, 64)).astype(np.float32)
    rank = 1 if "16xf32, strided<[1]" in kind else 2
    shape = "1x16" if rank == 1 else "8x16"
    at = "%s[0]" if rank == 1 else "%s[0, 0]"
    body = f"""
    %s = memref.subview {subview} : memref<32x64xf32> to {kind}
    %tx = xetile.init_tile {at} : {kind} -> !xetile.tile<{shape}xf32>
    %v = xetile.load_tile %tx : !xetile.tile<{shape}xf32> -> vector<{shape}xf32>
    {tile("ty", "%y[0, 0]", "memref<8x16xf32>", shape)}
    xetile.store_tile %v, %ty : vector<{shape}xf32>, !xetile.tile<{shape}xf32>"""
    out = np.zeros((8, 16), np.float32)
    got = agree("%x: memref<32x64xf32>, %y: memref<8x16xf32>", body, [x], out)
    wanted = out.copy()
    part = x[of]
    wanted[: part.shape[0]] = part
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    "view, kind, make",
    [
        ("memref.transpose %x (i, j) -> (j, i) : memref<16x8xf32> to", "memref<8x16xf32, strided<[1, 8]>>",
         np.transpose),
        ("memref.expand_shape %flat [[0, 1]] output_shape [8, 16] : memref<128xf32> into", "memref<8x16xf32>",
         lambda x: x.reshape(8, 16)),
        ("memref.reinterpret_cast %x to offset: [3], sizes: [8, 9], strides: [12, 1] : memref<16x8xf32> to",
         "memref<8x9xf32, strided<[12, 1], offset: 3>>",
         lambda x: np.pad(x.reshape(-1)[3 + np.arange(8)[:, None] * 12 + np.arange(9)], ((0, 0), (0, 7)))),
    ],
)  # fmt: skip
def test_an_array_seen_otherwise(view: str, kind: str, make, rng: np.random.Generator) -> None:
    x = rng.standard_normal((16, 8)).astype(np.float32)
    columns = ", #xetile.tile_attr<order = [0, 1]>" * ("[1, 8]" in kind)
    whole = f"!xetile.tile<8x16xf32{columns}>"
    body = f"""
    %flat = memref.collapse_shape %x [[0, 1]] : memref<16x8xf32> into memref<128xf32>
    %s = {view} {kind}
    %tx = xetile.init_tile %s[0, 0] : {kind} -> {whole}
    %v = xetile.load_tile %tx : {whole} -> vector<8x16xf32>
    {tile("ty", "%y[0, 0]", "memref<8x16xf32>")}
    xetile.store_tile %v, %ty : vector<8x16xf32>, !xetile.tile<8x16xf32>"""
    out = np.full((8, 16), np.nan, np.float32)
    got = agree("%x: memref<16x8xf32>, %y: memref<8x16xf32>", body, [x], out)
    np.testing.assert_array_equal(got, make(x))


def test_a_branch_that_gives_one_value_twice():
    """What one branch copies on the way to its results is not there in the other."""
    text = """gpu.module @m { gpu.func @f(%a: memref<4xi16>, %b: memref<1xi32>) kernel
    attributes {tilewright.level = "workgroup"} {
  %one = arith.constant 1 : i32
  %v = vector.load %a[%c0] : memref<4xi16>, vector<4xi16>
  %n = memref.load %b[%c0] : memref<1xi32>
  %p = arith.cmpi eq, %n, %one : i32
  %r:2 = scf.if %p -> (vector<4xi16>, vector<4xi16>) {
    scf.yield %v, %v : vector<4xi16>, vector<4xi16>
  } else {
    scf.yield %v, %v : vector<4xi16>, vector<4xi16>
  }
  %s = arith.addi %r#0, %r#1 : vector<4xi16>
  vector.store %s, %a[%c0] : memref<4xi16>, vector<4xi16>
  gpu.return } }"""
    for taken in (0, 1):
        a = fresh_rng().integers(-99, 99, 4).astype(np.int16)
        wanted = 2 * a
        code = build_text(parse_module(text), CompileOptions(target="cpu"))
        code.launch((1, 1, 1), [describe(a), describe(np.array([taken], np.int32))])
        np.testing.assert_array_equal(a, wanted)


def test_an_array_is_not_packed_where_a_view_of_it_ends():
    """The tiles of a part of A give zeros past its end, where the array has numbers; B has numbers there, too."""
    text = """gpu.module @m { gpu.func @k(%a: memref<64x192xf32> {llvm.noalias},
        %b: memref<192x64xf32> {llvm.noalias}, %c: memref<64x64xf32> {llvm.noalias}) kernel {
      %v = memref.subview %a[0, 0] [50, 100] [1, 1] : memref<64x192xf32> to memref<50x100xf32, strided<[192, 1]>>
      %z = arith.constant dense<0.0> : vector<64x64xf32>
      %r = scf.for %k = %c0 to %c192 step %c64 iter_args(%sum = %z) -> (vector<64x64xf32>) {
        %ta = xetile.init_tile %v[0, %k] : memref<50x100xf32, strided<[192, 1]>> -> !xetile.tile<64x64xf32>
        %tb = xetile.init_tile %b[%k, 0] : memref<192x64xf32> -> !xetile.tile<64x64xf32>
        %va = xetile.load_tile %ta : !xetile.tile<64x64xf32> -> vector<64x64xf32>
        %vb = xetile.load_tile %tb : !xetile.tile<64x64xf32> -> vector<64x64xf32>
        %d = xetile.tile_mma %va, %vb, %sum
          : vector<64x64xf32>, vector<64x64xf32>, vector<64x64xf32> -> vector<64x64xf32>
        scf.yield %d : vector<64x64xf32>
      }
      %t = xetile.init_tile %c[0, 0] : memref<64x64xf32> -> !xetile.tile<64x64xf32>
      xetile.store_tile %r, %t : vector<64x64xf32>, !xetile.tile<64x64xf32>
      gpu.return } }"""
    rng = fresh_rng()
    a, b = (rng.standard_normal(n).astype(np.float32) for n in ((64, 192), (192, 64)))
    c = np.full((64, 64), np.nan, np.float32)
    code = build_text(parse_module(text), CompileOptions(target="cpu"))
    code.launch((1, 1, 1), [describe(each) for each in (a, b, c)])
    wanted = np.zeros((64, 64))
    wanted[:50] = a[:50, :100].astype(np.float64) @ b[:100]
    assert np.linalg.norm(c - wanted) < 1e-5 * np.linalg.norm(wanted)
