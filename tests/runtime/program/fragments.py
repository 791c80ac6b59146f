"""Programs that cut loads into the shapes of an instruction, at subgroup and lane level, and how to launch them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import StringAttr

from tests.texts import parse_module
from tilewright.passes.host.to_calls import Launch
from tilewright.runtime.program.kernels import Kernels

Grid = tuple[int, int, int]


def launch(text: str, grid: Grid, block: Grid, arguments: Sequence[Any], target: str) -> list[str]:
    """Launches the only kernel of `text`, @k::@f, and gives what is said of it."""
    said: list[str] = []
    kernels = Kernels(
        parse_module(text, "pieces.mlir"), level="auto", target=target, say=said.append
    )
    where = Launch("launch", ("k", "f"), (), StringAttr("here"))
    kernels.launch(where, grid, block, arguments)
    return said


def gemm(
    m: int,
    n: int,
    k: int,
    *,
    lane: bool,
    barrier: bool = False,
    start: bool = False,
    alias: str = "b",
) -> str:
    """C = A B (+ C where `start`), 16x32 per subgroup in pieces of 8x16x16; two subgroups across, two down.

    `alias`: the argument that B's tiles are loaded from.
    """
    a_piece, b_piece, c_piece = (
        ("vector<8xf16>", "vector<16xf16>", "vector<8xf32>")
        if lane
        else ("vector<8x16xf16>", "vector<16x16xf16>", "vector<8x16xf32>")
    )
    a_whole = "vector<32xf16>" if lane else "vector<2x16x16xf16>"
    b_whole = "vector<32xf16>" if lane else "vector<32x16xf16>"
    out = [
        f"""gpu.module @k {{
  gpu.func @f(%a: memref<{m}x{k}xf16>, %b: memref<{k}x{n}xf16>, %c: memref<{m}x{n}xf32>) kernel {{
    %bx = gpu.block_id x
    %by = gpu.block_id y
    %K = arith.constant {k} : index"""
    ]
    say = out.append
    if lane:
        say("%t = gpu.thread_id x\n%sm = arith.divui %t, %c32 : index")
        say("%tr = arith.remui %t, %c32 : index\n%sn = arith.divui %tr, %c16 : index")
    else:
        say("%s = gpu.subgroup_id : index")
        say("%sm = arith.divui %s, %c2 : index\n%sn = arith.remui %s, %c2 : index")
    say("""%m0 = arith.muli %bx, %c32 : index
    %m1 = arith.muli %sm, %c16 : index
    %m = arith.addi %m0, %m1 : index
    %m8 = arith.addi %m, %c8 : index
    %n0 = arith.muli %by, %c64 : index
    %n1 = arith.muli %sn, %c32 : index
    %n = arith.addi %n0, %n1 : index
    %n16 = arith.addi %n, %c16 : index""")
    wide = "!xegpu.tensor_desc<16x16xf16, #xegpu.block_tdesc_attr<array_length = 2>>"
    say(f"%ta = xegpu.create_nd_tdesc %a : memref<{m}x{k}xf16> -> {wide}")
    say(
        f"%tb = xegpu.create_nd_tdesc %{alias} : memref<{k}x{n}xf16> -> !xegpu.tensor_desc<32x16xf16>"
    )
    say(f"%tc = xegpu.create_nd_tdesc %c : memref<{m}x{n}xf32> -> !xegpu.tensor_desc<8x16xf32>")
    places = {(i, j): f"[{('%m', '%m8')[i]}, {('%n', '%n16')[j]}]" for i in (0, 1) for j in (0, 1)}
    for (i, j), place in places.items():
        if start:
            say(f"%z{i}{j} = xegpu.load_nd %tc{place} : !xegpu.tensor_desc<8x16xf32> -> {c_piece}")
        else:
            say(f"%z{i}{j} = arith.constant dense<0.0> : {c_piece}")
    carried = ", ".join(f"%x{i}{j} = %z{i}{j}" for i, j in places)
    say(
        f"%r:4 = scf.for %k = %c0 to %K step %c32 iter_args({carried}) -> "
        f"({', '.join([c_piece] * 4)}) {{"
    )
    if barrier:
        say("gpu.barrier")
    say(f"%av = xegpu.load_nd %ta[%m, %k] : {wide} -> {a_whole}")
    packed = " {packed}" if lane else ""
    for j, place in enumerate(("%n", "%n16")):
        say(
            f"%bv{j} = xegpu.load_nd %tb[%k, {place}]{packed} : !xegpu.tensor_desc<32x16xf16> -> {b_whole}"
        )
    for h in (0, 1):
        if lane:
            for i in (0, 1):
                say(
                    f"%a{i}{h} = vector.extract_strided_slice %av {{offsets = [{16 * h + 8 * i}], "
                    f"sizes = [8], strides = [1]}} : {a_whole} to {a_piece}"
                )
        else:
            say(f"%ah{h} = vector.extract %av[{h}] : vector<16x16xf16> from {a_whole}")
            for i in (0, 1):
                say(
                    f"%a{i}{h} = vector.extract_strided_slice %ah{h} {{offsets = [{8 * i}], "
                    f"sizes = [8], strides = [1]}} : vector<16x16xf16> to {a_piece}"
                )
        for j in (0, 1):
            say(
                f"%b{h}{j} = vector.extract_strided_slice %bv{j} {{offsets = [{16 * h}], "
                f"sizes = [16], strides = [1]}} : {b_whole} to {b_piece}"
            )
    for i, j in places:
        for h, (old, new) in enumerate((("x", "d"), ("d", "e"))):
            say(
                f"%{new}{i}{j} = xegpu.dpas %a{i}{h}, %b{h}{j}, %{old}{i}{j} : "
                f"{a_piece}, {b_piece}, {c_piece} -> {c_piece}"
            )
    say(f"scf.yield {', '.join(f'%e{i}{j}' for i, j in places)} : {', '.join([c_piece] * 4)} }}")
    for number, place in enumerate(places.values()):
        say(f"xegpu.store_nd %r#{number}, %tc{place} : {c_piece}, !xegpu.tensor_desc<8x16xf32>")
    say("gpu.return } }")
    return "\n".join(out)


def operands(rng: np.random.Generator, m: int, n: int, k: int) -> list[np.ndarray[Any, Any]]:
    """A, B of small integers, so that every order of the sum gives the same; C is poisoned by the caller."""
    return [
        rng.integers(-4, 5, (m, k)).astype(np.float16),
        rng.integers(-4, 5, (k, n)).astype(np.float16),
    ]
