"""retile of programs that make too much shared memory: arrays are cut with their tiles, or nothing is."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tests.draws import fresh_rng
from tests.lowering.programs import lowered, run, wrong
from tests.texts import parse_module
from tilewright.dialects.text import verify_module
from tilewright.passes.carry_offsets import carry_offsets
from tilewright.passes.kernel import kernel_of
from tilewright.passes.retile import compute_in_passes, shared_memory
from tilewright.passes.views import fold_views
from tilewright.passes.xegpu.pipeline import SUBGROUP, WORKGROUP

S = "#xetile.tile_attr<memory_space = 3>"
KERNEL = """gpu.module @m {{ gpu.func @k({args}) kernel attributes {{tilewright.level = "workgroup"}} {{
  {body}
  gpu.return }} }}
"""
RING = """
  %s_a = memref.alloc() : {memory}
  %s_b = memref.alloc() : memref<16x16xf32, 3>
  %g0 = xetile.init_tile %a[0, 0] : memref<32x32xf32> -> !xetile.tile<32x8xf32>
  %first = xetile.load_tile %g0 : !xetile.tile<32x8xf32> -> vector<32x8xf32>
  %t0 = xetile.init_tile %s_a{first} : {memory} -> !xetile.tile<32x8xf32, {s}>
  xetile.store_tile %first, %t0 : vector<32x8xf32>, !xetile.tile<32x8xf32, {s}>
  %zero = arith.constant dense<0.0> : vector<32x16xf32>
  %r = scf.for %i = %c0 to %c4 step %c1 iter_args(%sum = %zero) -> (vector<32x16xf32>) {{
    %k = arith.muli %i, %c8 : index
    %ib = arith.remui %k, %c16 : index
    %gb = xetile.init_tile %b[%k, 0] : memref<32x16xf32> -> !xetile.tile<8x16xf32>
    %xb = xetile.load_tile %gb : !xetile.tile<8x16xf32> -> vector<8x16xf32>
    %tb = xetile.init_tile %s_b[%ib, 0] : memref<16x16xf32, 3> -> !xetile.tile<8x16xf32, {s}>
    xetile.store_tile %xb, %tb : vector<8x16xf32>, !xetile.tile<8x16xf32, {s}>
    %ahead = arith.addi %i, %c1 : index
    %at = arith.muli %ahead, %c8 : index
    %ga = xetile.init_tile %a[0, %at] : memref<32x32xf32> -> !xetile.tile<32x8xf32>
    %xa = xetile.load_tile %ga : !xetile.tile<32x8xf32> -> vector<32x8xf32>
    %slot = arith.remui %i, %c2 : index
    %other = arith.subi %c1, %slot : index
    %width = arith.constant {width} : index
    %mine = arith.muli %slot, %width : index
    %next = arith.muli %other, %width : index
    %here = xetile.init_tile %s_a{mine} : {memory} -> !xetile.tile<32x8xf32, {s}>
    %ya = xetile.load_tile %here : !xetile.tile<32x8xf32, {s}> -> vector<32x8xf32>
    %yb = xetile.load_tile %tb : !xetile.tile<8x16xf32, {s}> -> vector<8x16xf32>
    %d = xetile.tile_mma %ya, %yb, %sum
      : vector<32x8xf32>, vector<8x16xf32>, vector<32x16xf32> -> vector<32x16xf32>
    gpu.barrier
    %there = xetile.init_tile %s_a{next} : {memory} -> !xetile.tile<32x8xf32, {s}>
    xetile.store_tile %xa, %there : vector<32x8xf32>, !xetile.tile<32x8xf32, {s}>
    scf.yield %d : vector<32x16xf32>
  }}
  %q = xetile.reduction <add>, %r [1] : vector<32x16xf32> -> vector<32x1xf32>
  %tq = xetile.init_tile %sums[0, 0] : memref<32x1xf32> -> !xetile.tile<32x1xf32>
  xetile.store_tile %q, %tq : vector<32x1xf32>, !xetile.tile<32x1xf32>
"""
"""A product whose workgroup loads A one step ahead, to one of two slots, and adds up the rows of the result."""
RINGS = {
    "side by side": ("memref<32x16xf32, 3>", "[0, 0]", "[0, %mine]", "[0, %next]", 8),
    "one below the other": ("memref<64x8xf32, 3>", "[0, 0]", "[%mine, 0]", "[%next, 0]", 32),
    "of three dimensions": (
        "memref<2x32x8xf32, 3>",
        "[0, 0, 0]",
        "[%slot, 0, 0]",
        "[%other, 0, 0]",
        8,
    ),
}
MATRIX = "memref<32x32xf32> {llvm.noalias}"


def ring(name: str) -> str:
    memory, first, mine, following, width = RINGS[name]
    args = f"%a: {MATRIX}, %b: memref<32x16xf32> {{llvm.noalias}}, %sums: memref<32x1xf32> {{llvm.noalias}}"
    places = {"first": first, "mine": mine, "next": following, "width": width}
    return KERNEL.format(args=args, body=RING.format(memory=memory, s=S, **places))


def as_bytes(text: str) -> str:
    """The arrays as views of one allocation."""
    a, b = "memref<32x16xf32, 3>", "memref<16x16xf32, 3>"
    arena = "memref<4096xi8, 3>"
    text = text.replace(
        f"%s_a = memref.alloc() : {a}",
        f"%arena = memref.alloc() : {arena}\n  %s_a = memref.view %arena[%c0][] : {arena} to {a}",
    )
    view = f"%half = arith.constant 2048 : index\n  %s_b = memref.view %arena[%half][] : {arena} to {b}"
    return text.replace(f"%s_b = memref.alloc() : {b}", view)


def as_parts(text: str) -> str:
    """Each slot as a part of the array."""
    part = "memref<32x8xf32, strided<[8, 1], offset: ?>, 3>"
    text = text.replace("%s_a[0, 0, 0]", "%s_a[%c0, 0, 0]")
    slot = rf"\1_slot = memref.subview %s_a\2 [1, 32, 8] [1, 1, 1] : \3 to {part}"
    tile = rf"\1 = xetile.init_tile \1_slot[0, 0] : {part} ->"
    found = r"(%\w+) = xetile.init_tile %s_a(\[.*?\]) : (memref<.*?>) ->"
    return re.sub(found, rf"{slot}\n    {tile}", text)


SPELLED: dict[str, tuple[str, Callable[[str], str]]] = {
    **{name: (name, str) for name in RINGS},
    "of bytes": ("side by side", as_bytes),
    "by parts": ("of three dimensions", as_parts),
}


@pytest.mark.parametrize("name", SPELLED)
def test_slots_of_a_ring_are_cut_with_the_tiles_in_them(name: str):
    """Its columns are added up and stay whole, so that only A's slots are cut: 2 KiB + 1 become 512 bytes + 1 KiB."""
    of, spelled = SPELLED[name]
    module = parse_module(spelled(ring(of)))
    rng = fresh_rng()
    a, b = (rng.standard_normal((32, n)).astype(np.float32) for n in (32, 16))
    args = [a, b, np.full((32, 1), np.nan, np.float32)]
    expected = run(module, (1, 1, 1), args)
    right = a.astype(np.float64) @ b.astype(np.float64).sum(axis=1)
    assert np.linalg.norm(expected[2][:, 0] - right) < 1e-5 * np.linalg.norm(right)
    fold_views(kernel_of(module))
    assert compute_in_passes(kernel_of(module), room=1600) == 4
    assert sum(shared_memory(kernel_of(module)).values()) == 1536
    verify_module(module)
    assert wrong(expected, run(module, (1, 1, 1), args, check=True)) is None


COPY = """
  %s = memref.alloc() : memref<32x32xf32, 3>
  %ta = xetile.init_tile %a[0, 0] : memref<32x32xf32> -> !xetile.tile<16x32xf32>
  %tb = xetile.init_tile %a[16, 0] : memref<32x32xf32> -> !xetile.tile<16x32xf32>
  %va = xetile.load_tile %ta : !xetile.tile<16x32xf32> -> vector<16x32xf32>
  %vb = xetile.load_tile %tb : !xetile.tile<16x32xf32> -> vector<16x32xf32>
  %s0 = xetile.init_tile %s[0, 0] : memref<32x32xf32, 3> -> !xetile.tile<16x32xf32, {s}>
  %s1 = xetile.init_tile %s[16, 0] : memref<32x32xf32, 3> -> !xetile.tile<16x32xf32, {s}>
  xetile.store_tile %va, %s0 : vector<16x32xf32>, !xetile.tile<16x32xf32, {s}>
  xetile.store_tile %vb, %s1 : vector<16x32xf32>, !xetile.tile<16x32xf32, {s}>
  gpu.barrier
  {load}
  %to = xetile.init_tile %o[0, 0] : memref<32x32xf32> -> !xetile.tile<{shape}xf32>
  xetile.store_tile %x, %to : vector<{shape}xf32>, !xetile.tile<{shape}xf32>
"""
TILE = f"""%sx = xetile.init_tile %s[ROW, 0] : memref<32x32xf32, 3> -> !xetile.tile<SHAPExf32, {S}>
  %x = xetile.load_tile %sx : !xetile.tile<SHAPExf32, {S}> -> vector<SHAPExf32>"""
MOVED = f"""%sx = xetile.update_tile_offset %s0, [%ROW, %c0] : !xetile.tile<16x32xf32, {S}>
  %x = xetile.load_tile %sx : !xetile.tile<16x32xf32, {S}> -> vector<16x32xf32>"""
SQUARE = f"""%sx = xetile.init_tile %s[0, 0] : memref<32x32xf32, 3> -> !xetile.tile<32x32xf32, {S}>
  %y = xetile.load_tile %sx : !xetile.tile<32x32xf32, {S}> -> vector<32x32xf32>
  %z = xetile.transpose %y, [1, 0] : vector<32x32xf32> -> vector<32x32xf32>
  %x = arith.addf %y, %z : vector<32x32xf32>"""
ELEMENT = (
    TILE.replace("%x", "%y")
    + """
  %e = memref.load %s[%c1, %c8] : memref<32x32xf32, 3>
  %w = vector.broadcast %e : f32 to vector<16x32xf32>
  %x = arith.addf %y, %w : vector<16x32xf32>"""
)
BOTH, COLUMNS, NEITHER = 128, 16, 1
CASES = {
    "another slot": (TILE, "16", "16x32", BOTH),
    "half of two slots": (TILE, "8", "16x32", COLUMNS),
    "both slots at once": (TILE, "0", "32x32", COLUMNS),
    "moved to another slot": (MOVED, "c16", "16x32", BOTH),
    "moved by half of a slot": (MOVED, "c8", "16x32", COLUMNS),
    "rows that meet columns": (SQUARE, "", "32x32", NEITHER),
    "one element of all": (ELEMENT, "0", "16x32", NEITHER),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_cut_of_shared_memory(name: str):
    """Along an axis of which tiles keep their number in the array, down to two elements: 16 rows, 32 columns."""
    load, row, shape, most = CASES[name]
    body = COPY.format(load=load.replace("ROW", row).replace("SHAPE", shape), shape=shape, s=S)
    module = parse_module(KERNEL.format(args=f"%a: {MATRIX}, %o: {MATRIX}", body=body))
    a = fresh_rng().standard_normal((32, 32)).astype(np.float32)
    args = [a, np.zeros((32, 32), np.float32)]
    expected = run(module, (1, 1, 1), args)
    carry_offsets(module)
    assert compute_in_passes(kernel_of(module), room=0) == most
    verify_module(module)
    assert wrong(expected, run(module, (1, 1, 1), args, check=True)) is None


def test_a_program_of_lanes():
    """96 KiB of a ring's slots on a machine with 64, down to its lanes."""
    load = TILE.replace("ROW", "128").replace("SHAPE", "128x96")
    text = KERNEL.format(
        args=f"%a: {MATRIX}, %o: {MATRIX}", body=COPY.format(load=load, shape="128x96", s=S)
    )
    for old, new in (("32x32", "256x96"), ("16x32", "128x96"), ("[16, 0]", "[128, 0]")):
        text = text.replace(old, new)
    a = fresh_rng().standard_normal((256, 96)).astype(np.float32)
    args = [a, np.zeros((256, 96), np.float32)]
    final = lowered(parse_module(text), (1, 1, 1), args, (*WORKGROUP, *SUBGROUP), "dg2")
    assert sum(shared_memory(kernel_of(final)).values()) <= 64 << 10
