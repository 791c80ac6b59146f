"""A small workgroup kernel for each op that rearranges elements: what the tests run and the docs' table is made of.

    kernel("vector.interleave")      # a module: loads tiles, applies the op, stores what it made

Tiles are 16x32 f32; every kernel stores one result of two dimensions to its last argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from tests.texts import parse_module

SHAPE = (16, 32)
GRID = (2, 1, 1)
"""Programs: each has rows of its own of every argument."""


@dataclass(frozen=True)
class Case:
    """Text that makes %r of `%a`, `%b` (16x32 f32), `%i` (a number from 0 to 3) and `%s` (a scalar); its shape."""

    text: str
    shape: tuple[int, int]
    element: str = "f32"


def _cast(made: str, source: str, shape: tuple[int, int], element: str = "f32") -> Case:
    """Text that makes %v of another rank."""
    target = f"vector<{shape[0]}x{shape[1]}x{element}>"
    return Case(f"{made}\n%r = vector.shape_cast %v : {source} to {target}", shape, element)


T = "vector<16x32xf32>"
ROW = "%row = vector.extract %b[5] : vector<32xf32> from vector<16x32xf32>\n"
FLAT = "%x = vector.shape_cast %a : vector<16x32xf32> to vector<512xf32>\n"
CUBE = "%x = vector.shape_cast %a : vector<16x32xf32> to vector<4x4x32xf32>\n"
REVERSED = ", ".join(str(n) for n in reversed(range(32)))
ANY = ", ".join(str(n * 7 % 64) for n in range(32))

CASES: dict[str, Case] = {
    "vector.broadcast": Case(f"{ROW}%r = vector.broadcast %row : vector<32xf32> to {T}", SHAPE),
    "vector.broadcast, of a scalar": Case(f"%r = vector.broadcast %s : f32 to {T}", SHAPE),
    "vector.transpose": Case(f"%r = vector.transpose %a, [1, 0] : {T} to vector<32x16xf32>", (32, 16)),
    "vector.transpose, of rank 3": _cast(
        f"{CUBE}%v = vector.transpose %x, [1, 2, 0] : vector<4x4x32xf32> to vector<4x32x4xf32>",
        "vector<4x32x4xf32>",
        (16, 32),
    ),
    "vector.shape_cast": Case(f"%r = vector.shape_cast %a : {T} to vector<64x8xf32>", (64, 8)),
    "vector.bitcast": Case(f"%r = vector.bitcast %a : {T} to vector<16x64xf16>", (16, 64), "f16"),
    "vector.bitcast, to wider elements": Case(
        f"%h = arith.truncf %a : {T} to vector<16x32xf16>\n"
        "%r = vector.bitcast %h : vector<16x32xf16> to vector<16x16xf32>",
        (16, 16),
    ),
    "vector.extract, of a row": _cast(
        f"%v = vector.extract %a[3] : vector<32xf32> from {T}", "vector<32xf32>", (1, 32)
    ),
    "vector.extract, of a row known at run time": _cast(
        f"%v = vector.extract %a[%i] : vector<32xf32> from {T}", "vector<32xf32>", (1, 32)
    ),
    "vector.extract, of an element": Case(
        f"%e = vector.extract %a[3, 5] : f32 from {T}\n%r = vector.broadcast %e : f32 to {T}", SHAPE
    ),
    "vector.extract, of an element known at run time": Case(
        f"%e = vector.extract %a[%i, 5] : f32 from {T}\n%r = vector.broadcast %e : f32 to {T}", SHAPE
    ),
    "vector.insert, of a row": Case(f"{ROW}%r = vector.insert %row, %a[3] : vector<32xf32> into {T}", SHAPE),
    "vector.insert, of a row known at run time": Case(
        f"{ROW}%r = vector.insert %row, %a[%i] : vector<32xf32> into {T}", SHAPE
    ),
    "vector.insert, of an element": Case(f"%r = vector.insert %s, %a[3, 5] : f32 into {T}", SHAPE),
    "vector.insert, of an element known at run time": Case(
        f"%r = vector.insert %s, %a[%i, 5] : f32 into {T}", SHAPE
    ),
    "vector.extract_strided_slice": Case(
        "%r = vector.extract_strided_slice %a {offsets = [8, 16], sizes = [8, 16], strides = [1, 1]} "
        f": {T} to vector<8x16xf32>",
        (8, 16),
    ),
    "vector.extract_strided_slice, of rank 3": _cast(
        f"{CUBE}%v = vector.extract_strided_slice %x {{offsets = [1, 2], sizes = [2, 2], strides = [1, 1]}} "
        ": vector<4x4x32xf32> to vector<2x2x32xf32>",
        "vector<2x2x32xf32>",
        (4, 32),
    ),
    "vector.extract_strided_slice, of a mask": Case(
        f"%m = arith.cmpf olt, %a, %b : {T}\n"
        "%k = vector.extract_strided_slice %m {offsets = [4, 3], sizes = [8, 16], strides = [1, 1]} "
        ": vector<16x32xi1> to vector<8x16xi1>\n"
        "%x = vector.extract_strided_slice %a {offsets = [4, 16], sizes = [8, 16], strides = [1, 1]} "
        f": {T} to vector<8x16xf32>\n"
        "%y = vector.extract_strided_slice %b {offsets = [1, 5], sizes = [8, 16], strides = [1, 1]} "
        f": {T} to vector<8x16xf32>\n"
        "%r = arith.select %k, %x, %y : vector<8x16xi1>, vector<8x16xf32>",
        (8, 16),
    ),
    "vector.insert_strided_slice": Case(
        "%part = vector.extract_strided_slice %b {offsets = [0, 0], sizes = [8, 16], strides = [1, 1]} "
        f": {T} to vector<8x16xf32>\n"
        "%r = vector.insert_strided_slice %part, %a {offsets = [4, 8], strides = [1, 1]} "
        f": vector<8x16xf32> into {T}",
        SHAPE,
    ),
    "vector.insert_strided_slice, of a row": Case(
        f"{ROW}%r = vector.insert_strided_slice %row, %a {{offsets = [2, 0], strides = [1]}} "
        f": vector<32xf32> into {T}",
        SHAPE,
    ),
    "vector.from_elements": Case(
        "%e = vector.extract %a[3, 5] : f32 from vector<16x32xf32>\n"
        "%r = vector.from_elements %s, %e, %e, %s, %s, %s, %s, %e : vector<2x4xf32>",
        (2, 4),
    ),
    "vector.to_elements": Case(
        "%x = vector.extract_strided_slice %a {offsets = [1, 2], sizes = [2, 2], strides = [1, 1]} "
        f": {T} to vector<2x2xf32>\n"
        "%e:4 = vector.to_elements %x : vector<2x2xf32>\n"
        "%y = arith.subf %e#0, %e#3 : f32\n"
        f"%z = arith.addf %y, %e#1 : f32\n%r = vector.broadcast %z : f32 to {T}",
        SHAPE,
    ),
    "vector.interleave": Case(f"%r = vector.interleave %a, %b : {T} -> vector<16x64xf32>", (16, 64)),
    "vector.deinterleave": Case(
        f"%e, %o = vector.deinterleave %a : {T} -> vector<16x16xf32>\n"
        "%r = arith.subf %e, %o : vector<16x16xf32>",
        (16, 16),
    ),
    "vector.shuffle": _cast(
        "%row = vector.extract %a[3] : vector<32xf32> from vector<16x32xf32>\n"
        f"%v = vector.shuffle %row, %row [{REVERSED}] : vector<32xf32>, vector<32xf32>",
        "vector<32xf32>",
        (1, 32),
    ),
    "vector.shuffle, in no order": _cast(
        f"{ROW}%x = vector.extract %a[3] : vector<32xf32> from {T}\n"
        f"%v = vector.shuffle %row, %x [{ANY}] : vector<32xf32>, vector<32xf32>",
        "vector<32xf32>",
        (1, 32),
    ),
    "vector.step": Case(
        "%v = vector.step : vector<32xindex>\n%w = arith.index_cast %v : vector<32xindex> to vector<32xi32>\n"
        "%f = arith.sitofp %w : vector<32xi32> to vector<32xf32>\n"
        f"%u = vector.broadcast %f : vector<32xf32> to {T}\n%r = arith.addf %u, %a : {T}",
        SHAPE,
    ),
    "xetile.convert_layout": Case(
        "%r = xetile.convert_layout %a {wg_map_result = "
        f"#xetile.wg_map<sg_layout = [2, 2], sg_data = [8, 16]>}} : {T}",
        SHAPE,
    ),
    "xetile.transpose": Case(f"%r = xetile.transpose %a, [1, 0] : {T} -> vector<32x16xf32>", (32, 16)),
    "xetile.broadcast": Case(
        "%c = vector.extract_strided_slice %a {offsets = [0, 3], sizes = [16, 1], strides = [1, 1]} "
        f": {T} to vector<16x1xf32>\n"
        f"%r = xetile.broadcast %c [1] : vector<16x1xf32> -> {T}",
        SHAPE,
    ),
}  # fmt: skip

PROGRAM = """
gpu.module @m {{
  gpu.func @k(%A: memref<32x32xf32>, %B: memref<32x32xf32>, %s: f32, %q: index,
              %C: memref<{rows}x{columns}x{element}>) kernel attributes {{"tilewright.level" = "workgroup"}} {{
    %cr = arith.constant {own} : index
    %p = gpu.block_id x
    %at = arith.muli %p, %c16 : index
    %to = arith.muli %p, %cr : index
    %i = arith.addi %q, %p : index
    %n = arith.addi %i, %c16 : index
    %ta = xetile.init_tile %A[%at, 0] : memref<32x32xf32> -> !xetile.tile<16x32xf32>
    %tb = xetile.init_tile %B[%at, 0] : memref<32x32xf32> -> !xetile.tile<16x32xf32>
    %a = xetile.load_tile %ta : !xetile.tile<16x32xf32> -> vector<16x32xf32>
    %b = xetile.load_tile %tb : !xetile.tile<16x32xf32> -> vector<16x32xf32>
    {text}
    %tc = xetile.init_tile %C[%to, 0] : memref<{rows}x{columns}x{element}> -> !xetile.tile<{own}x{columns}x{element}>
    xetile.store_tile %r, %tc : vector<{own}x{columns}x{element}>, !xetile.tile<{own}x{columns}x{element}>
    gpu.return
  }}
}}
"""


def kernel(name: str) -> ModuleOp:
    """The kernel of one of `CASES`, or of text that makes %r : vector<16x32xf32>."""
    case = CASES.get(name, Case(name, SHAPE))
    (own, columns), element = case.shape, case.element
    rows = own * GRID[0]
    return parse_module(
        PROGRAM.format(text=case.text, rows=rows, columns=columns, element=element, own=own), "kernel.mlir"
    )  # fmt: skip


def arguments(name: str, rng: np.random.Generator) -> list[Any]:
    """Random arguments; the last, the result, is poisoned."""
    case = CASES.get(name, Case(name, SHAPE))
    a, b = (rng.standard_normal((32, 32)).astype(np.float32) for _ in range(2))
    dtype = {"f32": np.float32, "f16": np.float16}[case.element]
    out = np.full((GRID[0] * case.shape[0], case.shape[1]), np.nan, dtype)
    return [a, b, np.float32(rng.standard_normal()), int(rng.integers(0, 3)), out]
