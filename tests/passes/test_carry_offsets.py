"""carry-offsets: loops and branches give the offsets of tiles, each access makes its own tile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.texts import parse_module
from tilewright import reference
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects import xetile
from tilewright.passes.carry_offsets import carry_offsets
from tilewright.passes.kernel import kernel_of
from tilewright.tools.cli import main

T = "!xetile.tile<8x16xf32>"
MOVES = {
    "a tile that a loop moves": f"""
    %r = scf.for %i = %c0 to %c3 step %c1 iter_args(%t = %a) -> ({T}) {{
      %v = xetile.load_tile %t : {T} -> vector<8x16xf32>
      xetile.store_tile %v, %o : vector<8x16xf32>, {T}
      %u = xetile.update_tile_offset %t, [8, 0] : {T}
      scf.yield %u : {T}
    }}
    %w = xetile.load_tile %r : {T} -> vector<8x16xf32>
    xetile.store_tile %w, %o : vector<8x16xf32>, {T}""",
    "a tile that is another's of the iteration before": f"""
    %b = xetile.update_tile_offset %a, [8, 0] : {T}
    %r:2 = scf.for %i = %c0 to %c3 step %c1 iter_args(%t = %a, %ahead = %b) -> ({T}, {T}) {{
      %v = xetile.load_tile %t : {T} -> vector<8x16xf32>
      xetile.store_tile %v, %o : vector<8x16xf32>, {T}
      %u = xetile.update_tile_offset %ahead, [8, 0] : {T}
      scf.yield %ahead, %u : {T}, {T}
    }}
    %w = xetile.load_tile %r#0 : {T} -> vector<8x16xf32>
    xetile.store_tile %w, %o : vector<8x16xf32>, {T}""",
    "a tile of one place or another": f"""
    %b = xetile.update_tile_offset %a, [16, 0] : {T}
    %h = arith.cmpi slt, %p, %c2 : index
    %t = scf.if %h -> ({T}) {{ scf.yield %a : {T} }} else {{ scf.yield %b : {T} }}
    %v = xetile.load_tile %t : {T} -> vector<8x16xf32>
    xetile.store_tile %v, %o : vector<8x16xf32>, {T}""",
}

SWAPS = {
    "tiles that change places": "%u, %t",
    "one that takes another's place, which stays": "%u, %u",
    "one that is given back as it came": "%t, %t",
}
MOVES.update(
    {
        f"{name}, to {end}": f"""
    %b = xetile.update_tile_offset %a, [8, 0] : {T}
    %r:2 = scf.for %i = %c0 to {end} step %c1 iter_args(%t = %a, %u = %b) -> ({T}, {T}) {{
      scf.yield {given} : {T}, {T}
    }}
    %v = xetile.load_tile %r#0 : {T} -> vector<8x16xf32>
    %w = xetile.load_tile %r#1 : {T} -> vector<8x16xf32>
    %d = arith.subf %v, %w : vector<8x16xf32>
    xetile.store_tile %d, %o : vector<8x16xf32>, {T}"""
        for name, given in SWAPS.items()
        for end in ("%c0", "%p")
    }
)


@pytest.mark.parametrize(
    "array, stated",
    [("memref<32x16xf32>", ""), ("memref<32x16xf32, strided<[?, 1]>>", ", [32, 16], [%c16, 1]")],
    ids=["an array", "one whose strides are stated"],
)
@pytest.mark.parametrize("body", MOVES.values(), ids=MOVES)
def test_tiles_are_made_where_they_are_accessed(
    body: str, array: str, stated: str, rng: np.random.Generator
):
    text = f"""gpu.module @m {{ gpu.func @k(%A: {array}, %O: memref<32x16xf32>) kernel
      attributes {{tilewright.level = "workgroup"}} {{
    %p = gpu.block_id x
    %at = arith.muli %p, %c8 : index
    %a = xetile.init_tile %A[0, 0]{stated} : {array} -> {T}
    %o = xetile.init_tile %O[%at, 0] : memref<32x16xf32> -> {T}
    {body}
    gpu.return }} }}"""
    module = parse_module(text)
    values = rng.standard_normal((32, 16)).astype(np.float32)
    results: list[np.ndarray] = []
    for change in (False, True):
        if change:
            carry_offsets(kernel_of(module))
        results.append(np.full((32, 16), np.nan, np.float32))
        reference.run(module, (4, 1, 1), [values, results[-1]])
    np.testing.assert_array_equal(results[0], results[1])
    made = [r for op in module.walk() for r in op.results if isinstance(r.type, xetile.TileType)]
    assert all(isinstance(r.owner, xetile.InitTileOp) for r in made)


REFUSED = {
    "what reaches this value is of two different bases": f"""
    %r = scf.for %i = %c0 to %c3 step %c1 iter_args(%t = %a) -> ({T}) {{
      %m = memref.subview %O[%i, 0] [16, 16] [1, 1]
        : memref<32x16xf32> to memref<16x16xf32, strided<[16, 1], offset: ?>>
      %b = xetile.init_tile %m[0, 0] : memref<16x16xf32, strided<[16, 1], offset: ?>> -> {T}
      scf.yield %b : {T}
    }}""",
    "is of two different bases, of which one is made inside": f"""
    %first = arith.cmpi eq, %p, %c0 : index
    %r = scf.if %first -> ({T}) {{
      memref.store %q, %P[%c0] : memref<1xi64>
      %n = memref.load %P[%c0] : memref<1xi64>
      %b = xetile.init_tile %n[0, 0], [32, 16], [16, 1] : i64 -> {T}
      scf.yield %b : {T}
    }} else {{ scf.yield %a : {T} }}""",
    "is of two different bases, of which one is made inside, or of other": f"""
    %some = arith.cmpi ne, %p, %c0 : index
    %r = scf.if %some -> ({T}) {{
      %n = arith.divsi %c8, %p : index
      %m = memref.subview %A[%n, 0] [8, 16] [1, 1] : memref<32x16xf32> to memref<8x16xf32, strided<[16, 1], offset: ?>>
      %b = xetile.init_tile %m[0, 0] : memref<8x16xf32, strided<[16, 1], offset: ?>> -> {T}
      scf.yield %b : {T}
    }} else {{ scf.yield %a : {T} }}""",
    "scf.index_switch gives a value whose position is unknown": f"""
    %r = scf.index_switch %p -> {T}
    case 0 {{ scf.yield %a : {T} }}
    default {{ scf.yield %o : {T} }}""",
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_is_refused(said: str):
    kind = "memref<32x16xf32>"
    text = f"""gpu.module @m {{ gpu.func @k(%A: {kind}, %O: {kind}, %P: memref<1xi64>, %q: i64) kernel
      attributes {{tilewright.level = "workgroup"}} {{
    %p = gpu.block_id x
    %a = xetile.init_tile %A[0, 0] : {kind} -> {T}
    %o = xetile.init_tile %A[%p, 0] : {kind} -> {T}
    {REFUSED[said]}
    gpu.return }} }}"""
    with pytest.raises(UnsupportedError, match=said) as caught:
        carry_offsets(kernel_of(parse_module(text)))
    assert caught.value.location is not None and caught.value.hint


ARRAYS = """
import tilewright as tw

@tw.kernel
def sweeps(A, B, n: tw.index):
    \"\"\"Two arrays that a loop swaps.\"\"\"
    a, b = tw.init_tile(A, [0, 0], (8, 16)), tw.init_tile(B, [0, 0], (8, 16))
    for i in range(n):
        tw.store_tile(tw.load_tile(a) * 2.0 + 1.0, b)
        a, b = b, a

@tw.kernel
def buffers(X, Y, n: tw.index):
    \"\"\"Two of shared memory, alike: what is written into one is read from it in the next round.\"\"\"
    a, b = (tw.init_tile(tw.alloc_slm((8, 16), tw.f32), [0, 0], (8, 16)) for _ in range(2))
    tw.store_tile(tw.load_tile(tw.init_tile(X, [0, 0], (8, 16))), a)
    total = tw.zeros((8, 16), tw.f32)
    tw.barrier()
    for i in range(n):
        tw.store_tile(tw.load_tile(tw.init_tile(X, [8 * i + 8, 0], (8, 16))), b)
        total += tw.load_tile(a)
        tw.barrier()
        a, b = b, a
    tw.store_tile(total, tw.init_tile(Y, [0, 0], (8, 16)))

@tw.kernel
def ring(A, B, C, Y, n: tw.index):
    \"\"\"Three of unequal extents, one of which moves, another begins in the middle; a branch chooses one more.\"\"\"
    a, b, c = tw.init_tile(A, [0, 0], (8, 16)), tw.init_tile(B, [3, 1], (8, 16)), tw.init_tile(C, [0, 2], (8, 16))
    first = a
    total = tw.zeros((8, 16), tw.f32)
    i = 0
    while i < n:
        total = total * 0.5 + tw.load_tile(a, padding=1) - tw.load_tile(first)
        a, b, c = b, c, tw.update_tile_offset(a, [1, 1])
        if i == 2:
            first = c
        i += 1
    tw.store_tile(total + tw.load_tile(b), tw.init_tile(Y, [0, 0], (8, 16)))

@tw.kernel
def arrays(A, B, C, n: tw.index, c: tw.i32):
    \"\"\"Arrays themselves, of unequal extents: a branch exchanges them; extents and elements are asked for.\"\"\"
    x = A if c > 0 else B
    for i in range(n):
        t = tw.load_tile(tw.init_tile(x, [0, i], (8, 16))) + x[0, i] + x.shape[1].to(tw.f32)
        tw.store_tile(t, tw.init_tile(C, [i, 0], (8, 16)))
        tw.atomic_rmw("addf", t, tw.init_tile(x, [1, 0], (8, 16)))
        if i % 2 == 0:
            x = B
        else:
            x = A

@tw.kernel
def shared(X, Y, n: tw.index):
    \"\"\"Shared memory that changes places.\"\"\"
    a, b = tw.alloc_slm((8, 16), tw.f32), tw.alloc_slm((8, 16), tw.f32)
    tw.store_tile(tw.load_tile(tw.init_tile(X, [0, 0], (8, 16))), tw.init_tile(a, [0, 0], (8, 16)))
    for i in range(n):
        tw.barrier()
        x = tw.load_tile(tw.init_tile(a, [1, 0], (8, 16)))
        tw.store_tile(x * 0.5 + 1, tw.init_tile(b, [0, 0], (8, 16)))
        a, b = b, a
    tw.barrier()
    tw.store_tile(tw.load_tile(tw.init_tile(a, [0, 0], (8, 16))), tw.init_tile(Y, [0, 0], (8, 16)))
"""
GIVEN = {
    "arrays": ["f32[9,33]", "f32[7,20]", "f32[20,16]", "6", "1"],
    "shared": ["f32[8,16]", "f32[8,16]", "3"],
    "sweeps": ["f32[8,16]", "f32[8,16]", "5"],
    "buffers": ["f32[64,16]", "f32[8,16]", "5"],
    "ring": ["f32[9,20]", "f32[12,16]", "f32[7,17]", "f32[8,16]", "7"],
}


@pytest.mark.parametrize("target", ["cpu", "sm_80", "sm_90a", "xe-pvc"])
@pytest.mark.parametrize("name", GIVEN)
def test_arrays_that_a_loop_exchanges(name: str, target: str, tmp_path: Path, capsys) -> None:
    """Each access is made in the array of its number; two allocations that are alike had been one."""
    path = tmp_path / "arrays.py"
    path.write_text(ARRAYS)
    found = main(["check", f"{path}:{name}", "--target", target, "--args", *GIVEN[name]])
    assert found == 0, capsys.readouterr().err
    assert "pass carry-offsets" in capsys.readouterr().out


def test_addresses_that_a_rebuilt_loop_gives():
    """Tiles of them meet others behind the loop: they are of what the new loop gives."""
    module = parse_module("""
gpu.module @m {
 gpu.func @k(%A: memref<64x64xf32>, %p: i64, %q: i64, %c: i1) kernel attributes {tilewright.level = "workgroup"} {
  %t = xetile.init_tile %A[0, 0] : memref<64x64xf32> -> !xetile.tile<16x16xf32>
  %last, %moved = scf.for %i = %c0 to %c4 step %c1 iter_args(%n = %p, %u = %t) -> (i64, !xetile.tile<16x16xf32>) {
    %m = arith.addi %n, %q : i64
    %w = xetile.update_tile_offset %u, [0, 16] : !xetile.tile<16x16xf32>
    scf.yield %m, %w : i64, !xetile.tile<16x16xf32>
  }
  %b = xetile.init_tile %last[0, 0], [64, 64], [64, 1] : i64 -> !xetile.tile<16x16xf32>
  %d = xetile.init_tile %p[0, 0], [64, 64], [64, 1] : i64 -> !xetile.tile<16x16xf32>
  %e = arith.select %c, %b, %d : !xetile.tile<16x16xf32>
  %v = xetile.load_tile %e : !xetile.tile<16x16xf32> -> vector<16x16xf32>
  %w = xetile.load_tile %moved : !xetile.tile<16x16xf32> -> vector<16x16xf32>
  xetile.store_tile %v, %t : vector<16x16xf32>, !xetile.tile<16x16xf32>
  gpu.return
 }
}""")
    carry_offsets(module)
    module.verify()


@pytest.mark.parametrize("chosen", [True, False])
def test_addresses_of_one_loop_are_of_their_own(chosen: bool):
    """Two results of one op had been one base."""
    module = parse_module("""
gpu.module @m {
 gpu.func @k(%A: memref<16x16xf32>, %B: memref<16x16xf32>, %O: memref<16x16xf32>, %c: i1) kernel
     attributes {tilewright.level = "workgroup"} {
  %p0 = memref.extract_aligned_pointer_as_index %A : memref<16x16xf32> -> index
  %q0 = memref.extract_aligned_pointer_as_index %B : memref<16x16xf32> -> index
  %p = arith.index_cast %p0 : index to i64
  %q = arith.index_cast %q0 : index to i64
  %l:2 = scf.for %i = %c0 to %c3 step %c1 iter_args(%x = %p, %y = %q) -> (i64, i64) {
    scf.yield %y, %x : i64, i64
  }
  %b = xetile.init_tile %l#0[0, 0], [16, 16], [16, 1] : i64 -> !xetile.tile<16x16xf32>
  %d = xetile.init_tile %l#1[0, 0], [16, 16], [16, 1] : i64 -> !xetile.tile<16x16xf32>
  %e = arith.select %c, %b, %d : !xetile.tile<16x16xf32>
  %v = xetile.load_tile %e : !xetile.tile<16x16xf32> -> vector<16x16xf32>
  %o = xetile.init_tile %O[0, 0] : memref<16x16xf32> -> !xetile.tile<16x16xf32>
  xetile.store_tile %v, %o : vector<16x16xf32>, !xetile.tile<16x16xf32>
  gpu.return
 }
}""")
    carry_offsets(module)
    module.verify()
    a, b = (np.full((16, 16), n, np.float32) for n in (1, 2))
    o = np.zeros_like(a)
    reference.run(module, (1, 1, 1), [a, b, o, chosen])
    np.testing.assert_array_equal(o, b if chosen else a)
