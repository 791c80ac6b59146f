# ruff: noqa: E501
"""Programs about memory and control: how arrays lie, what loops carry, scalars, scattered tiles, SLM."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.features.program import Program

ALL = slice(None)


def gives(function: Any) -> Any:
    """Writes the last argument, as a function of the others."""

    def does(*values: Any) -> None:
        values[-1][...] = function(*values[:-1])

    return does


def window(*values: Any) -> None:
    """The last array is rows 4.. and columns 2.. of the first."""
    last = [v for v in values if isinstance(v, np.ndarray)][-1]
    last[...] = values[0][4:20, 2:34]


def _chosen(a: Any, b: Any, p: Any, o: Any) -> None:
    o[...] = b[2:10, 7:23]
    b[1:9, 3:19] = 2 * o


def _positioned(a: Any, i: Any, b: Any) -> None:
    b[...] = a
    b[2] = a[i]
    b[i, 7] = a[i, 5]


ORDER = "#xetile.tile_attr<order = [0, 1]>"
SCATTERED = "#xetile.tile_attr<scattered = true>"
COPY = "load %v = %a[4, 2] 16x32\nstore %v, %b[0, 0] 16x32"
T, V, D = "!xetile.tile<8x16xf32>", "vector<8x16xf32>", "!xegpu.tensor_desc<8x16xf32>"
S = f"!xetile.tile<16xf32, {SCATTERED}>"
LOAD, STORE = "load %v = %a[0, 0] 8x16\n", "\nstore %r, %b[0, 0] 8x16"

ROW = "!xetile.tile<1x32xf32, #xetile.tile_attr<memory_space = 3 : i64>>"
PROGRAMS: dict[str, Program] = {
    "rows with gaps": Program("a: f32 32x40 | strided<[44, 1]>, b: f32 16x32 | strided<[37, 1]>", COPY, window),
    "a view that begins anywhere": Program("a: f32 32x40 | strided<[40, 1], offset: ?>, b: f32 16x32", COPY, window),
    "strides known when it runs": Program(
        "a: f16 32x40 as ?x? | strided<[?, 1]>, b: f16 16x32",
        "load %v = %a[4, 2], [32, 40], [45, 1] 16x32\nstore %v, %b[0, 0] 16x32",
        window,
    ),
    "extents known when it runs": Program(
        "a: f64 32x40 as ?x?, b: f64 16x32, h: index = 32, w: index = 40",
        "load %v = %a[4, 2], [%h, %w], [%w, 1] 16x32\nstore %v, %b[0, 0] 16x32",
        window,
    ),
    "columns": Program(
        "a: i8 32x40 | strided<[1, 32]>, b: i8 16x32", f"load %v = %a[4, 2] 16x32 | {ORDER}\nstore %v, %b[0, 0] 16x32", window
    ),
    "to columns": Program(
        "a: f64 16x32, b: f64 32x40 | strided<[1, 33]>",
        f"load %v = %a[0, 0] 16x32\nstore %v, %b[4, 2] 16x32 | {ORDER}",
        lambda a, b: b.__setitem__((slice(4, 20), slice(2, 34)), a),
    ),
    "rank 5": Program(
        "a: f32 2x2x3x20x40, b: f32 2x16x32",
        "load %v = %a[1, 0, 2, 4, 2] 16x32\nstore %v, %b[1, 0, 0] 16x32",
        lambda a, b: b.__setitem__(1, a[1, 0, 2, 4:20, 2:34]),
    ),
    "an address": Program(
        "a: f32 32x40, b: f32 16x32",
        f"""%p = memref.extract_aligned_pointer_as_index %a : memref<32x40xf32> -> index
        %q = arith.index_castui %p : index to ui64
        %t = xetile.init_tile %q[4, 2], [32, 40], [40, 1] : ui64 -> {T.replace("8x16", "16x32")}
        %v = xetile.load_tile %t : {T.replace("8x16", "16x32")} -> vector<16x32xf32>
        store %v, %b[0, 0] 16x32""",
        window,
    ),
    "a batch of products": Program(
        "a: f16 3x16x32, b: f16 3x32x16, c: f32 3x16x16",
        """%n = gpu.block_id z
        load %x = %a[%n, 0, 0] 16x32
        load %y = %b[%n, 0, 0] 32x16
        %r = xetile.tile_mma %x, %y : vector<16x32xf16>, vector<32x16xf16> -> vector<16x16xf32>
        store %r, %c[%n, 0, 0] 16x16""",
        gives(lambda a, b: a @ b),
        grid=(1, 1, 3),
        error=1e-5,
    ),
    "a subview clips": Program(
        "a: f32 20x40, b: f32 8x16",
        f"""%s = memref.subview %a[2, 4] [4, 8] [1, 1] : memref<20x40xf32> to memref<4x8xf32, strided<[40, 1], offset: 84>>
        %t = xetile.init_tile %s[0, 0] : memref<4x8xf32, strided<[40, 1], offset: 84>> -> {T}
        %r = xetile.load_tile %t : {T} -> {V}{STORE}""",
        gives(lambda a: np.pad(a[2:6, 4:12], ((0, 4), (0, 8)))),
    ),
    "a subview with steps": Program(
        "a: f32 20x40, b: f32 8x16",
        f"""%s = memref.subview %a[2, 4] [8, 16] [2, 1] : memref<20x40xf32> to memref<8x16xf32, strided<[80, 1], offset: 84>>
        %t = xetile.init_tile %s[0, 0] : memref<8x16xf32, strided<[80, 1], offset: 84>> -> {T}
        %r = xetile.load_tile %t : {T} -> {V}{STORE}""",
        gives(lambda a: a[2:18:2, 4:20]),
    ),
    # Control flow.
    "a while loop with a tile": Program(
        "a: f32 24x16, b: f32 8x16, n: i32 = 3",
        f"""%c0 = arith.constant 0 : i32
        %c1 = arith.constant 1 : i32
        %z = arith.constant dense<0.0> : {V}
        %t = xetile.init_tile %a[0, 0] : memref<24x16xf32> -> {T}
        %w:3 = scf.while (%s = %z, %u = %t, %i = %c0) : ({V}, {T}, i32) -> ({V}, {T}, i32) {{
          %p = arith.cmpi slt, %i, %n : i32
          scf.condition(%p) %s, %u, %i : {V}, {T}, i32
        }} do {{
        ^bb0(%s: {V}, %u: {T}, %i: i32):
          %v = xetile.load_tile %u : {T} -> {V}
          %w = arith.addf %s, %v : {V}
          %next = xetile.update_tile_offset %u, [8, 0] : {T}
          %j = arith.addi %i, %c1 : i32
          scf.yield %w, %next, %j : {V}, {T}, i32
        }}
        store %w#0, %b[0, 0] 8x16""",
        lambda a, b, n: b.__setitem__(ALL, a.reshape(3, 8, 16).sum(0)),
    ),
    "a counter of i32 that begins below zero": Program(
        "a: f32 8x16, b: f32 8x16, n: i32 = 2",
        f"""%two = arith.constant 2 : i32
        %low = arith.constant -3 : i32
        {LOAD}%r = scf.for %i = %low to %n step %two iter_args(%s = %v) -> {V} : i32 {{
          %f = arith.sitofp %i : i32 to f32
          %g = vector.broadcast %f : f32 to {V}
          %w = arith.addf %s, %g : {V}
          scf.yield %w : {V}
        }}{STORE}""",
        lambda a, b, n: b.__setitem__(ALL, a - 3),
    ),
    "values that change places": Program(
        "a: f32 8x16, c: f32 8x16, n: index = 3, b: f32 8x16",
        f"""{LOAD}load %u = %c[0, 0] 8x16
        %w:2 = scf.for %i = %c0 to %n step %c1 iter_args(%s = %v, %t = %u) -> ({V}, {V}) {{
          %x = arith.addf %t, %s : {V}
          scf.yield %x, %s : {V}, {V}
        }}
        %r = arith.subf %w#0, %w#1 : {V}{STORE}""",
        gives(lambda a, c, n: a + c),
    ),
    "branches in branches": Program(
        "a: f32 8x16, n: i32 = 3, m: i32 = 5, b: f32 8x16",
        f"""%four = arith.constant 4 : i32
        %p = arith.cmpi slt, %n, %four : i32
        %q = arith.cmpi slt, %m, %four : i32
        {LOAD}%w:2 = scf.if %p -> ({V}, i32) {{
          %x:2 = scf.if %q -> ({V}, i32) {{
            scf.yield %v, %n : {V}, i32
          }} else {{
            %y = arith.negf %v : {V}
            scf.yield %y, %m : {V}, i32
          }}
          scf.yield %x#0, %x#1 : {V}, i32
        }} else {{
          scf.yield %v, %m : {V}, i32
        }}
        %f = arith.sitofp %w#1 : i32 to f32
        %s = vector.broadcast %f : f32 to {V}
        %r = arith.mulf %w#0, %s : {V}{STORE}""",
        gives(lambda a, n, m: -5 * a),
    ),
    "affine.for": Program(
        "a: f32 32x16, b: f32 32x16",
        "affine.for %i = 0 to 32 step 8 {\nload %v = %a[%i, 0] 8x16\nstore %v, %b[%i, 0] 8x16\n}",
        gives(lambda a: a),
    ),
    "scf.execute_region": Program(
        "a: f32 8x16, b: f32 8x16",
        f"{LOAD}%r = scf.execute_region -> {V} {{\n%w = arith.negf %v : {V}\nscf.yield %w : {V}\n}}{STORE}",
        gives(lambda a: -a),
    ),
    # Numbers in memory.
    "numbers that a workgroup reads and writes": Program(
        "a: f32 4x8, i: i32 4, b: f32 8x16",
        f"""%x = memref.load %a[%c2, %c3] : memref<4x8xf32>
        %k = memref.load %i[%c2] : memref<4xi32>
        %f = arith.sitofp %k : i32 to f32
        %y = arith.addf %x, %f : f32
        %r = vector.broadcast %y : f32 to {V}{STORE}
        memref.store %y, %a[%c3, %c2] : memref<4x8xf32>
        %z = memref.load %a[%c3, %c2] : memref<4x8xf32>
        %w = arith.addf %z, %z : f32
        memref.store %w, %a[%c2, %c2] : memref<4x8xf32>""",
        lambda a, i, b: (
            b.__setitem__(ALL, a[2, 3] + i[2]),
            a.__setitem__((3, 2), a[2, 3] + i[2]),
            a.__setitem__((2, 2), 2 * a[3, 2]),
        ),
    ),
    "views that count from the array's base": Program(
        "a: f32 8x16, b: f32 4x8, c: f32 4x8",
        """%w = memref.subview %a[2, 1] [4, 8] [1, 1] : memref<8x16xf32> to memref<4x8xf32, strided<[16, 1], offset: 33>>
        %u = memref.reinterpret_cast %w to offset: [3], sizes: [4, 8], strides: [16, 1] : memref<4x8xf32, strided<[16, 1], offset: 33>> to memref<4x8xf32, strided<[16, 1], offset: 3>>
        %t = xetile.init_tile %u[0, 0] : memref<4x8xf32, strided<[16, 1], offset: 3>> -> !xetile.tile<4x8xf32>
        %x = xetile.load_tile %t : !xetile.tile<4x8xf32> -> vector<4x8xf32>
        store %x, %b[0, 0] 4x8
        %h, %o, %s:2, %d:2 = memref.extract_strided_metadata %w : memref<4x8xf32, strided<[16, 1], offset: 33>> -> memref<f32>, index, index, index, index, index
        %r = memref.reinterpret_cast %h to offset: [%o], sizes: [4, 8], strides: [%d#0, 1] : memref<f32> to memref<4x8xf32, strided<[?, 1], offset: ?>>
        %q = xetile.init_tile %r[0, 0], [4, 8], [%d#0, 1] : memref<4x8xf32, strided<[?, 1], offset: ?>> -> !xetile.tile<4x8xf32>
        %y = xetile.load_tile %q : !xetile.tile<4x8xf32> -> vector<4x8xf32>
        store %y, %c[0, 0] 4x8""",
        lambda a, b, c: (b.__setitem__(ALL, a[:4, 3:11]), c.__setitem__(ALL, a[2:6, 1:9])),
    ),
    "a copy of an array": Program(
        "a: f32 18x140 | strided<[150, 1]>, n: index = 5, b: f32 5x11x70, c: f32 5x11x70",
        """%w = memref.subview %a[1, 3] [%n, 66] [2, 1] : memref<18x140xf32, strided<[150, 1]>> to memref<?x66xf32, strided<[300, 1], offset: 153>>
        %p = memref.subview %b[0, 4, 2] [5, 1, 66] [1, 1, 1] : memref<5x11x70xf32> to memref<5x66xf32, strided<[770, 1], offset: 282>>
        memref.copy %w, %p : memref<?x66xf32, strided<[300, 1], offset: 153>> to memref<5x66xf32, strided<[770, 1], offset: 282>>
        memref.copy %b, %c : memref<5x11x70xf32> to memref<5x11x70xf32>""",
        lambda a, n, b, c: (b.__setitem__((ALL, 4, slice(2, 68)), a[1:10:2, 3:69]), c.__setitem__(ALL, b)),
        workgroup=True,
    ),
    "loops of two dimensions that sum": Program(
        "a: i32 8x6, n: index = 6, b: i32 8x16",
        """%c2 = arith.constant 2 : index
        %one = arith.constant 1 : i32
        %s, %m = scf.parallel (%i, %j) = (%c0, %c1) to (%c8, %n) step (%c2, %c1) init (%one, %one) -> (i32, i32) {
          %x = memref.load %a[%i, %j] : memref<8x6xi32>
          %y = arith.addi %x, %one : i32
          memref.store %y, %a[%i, %j] : memref<8x6xi32>
          scf.reduce(%x, %y : i32, i32) { ^bb0(%p: i32, %q: i32):
            %r = arith.addi %p, %q : i32 scf.reduce.return %r : i32
          }, { ^bb0(%p: i32, %q: i32):
            %r = arith.maxsi %p, %q : i32 scf.reduce.return %r : i32
          } }
        %t = arith.addi %s, %m : i32
        %r = vector.broadcast %t : i32 to vector<8x16xi32>
        store %r, %b[0, 0] 8x16""",
        lambda a, n, b: (
            b.__setitem__(ALL, 1 + a[::2, 1:].sum() + max(1, a[::2, 1:].max() + 1)),
            a.__setitem__((slice(0, 8, 2), slice(1, 6)), a[::2, 1:] + 1),
        ),
    ),
    "a number in an array without a unit stride": Program(
        "a: f16 4x8 | strided<[16, 2]>, b: f16 8x16",
        f"""%x = memref.load %a[%c2, %c2] : memref<4x8xf16, strided<[16, 2]>>
        %r = vector.broadcast %x : f16 to vector<8x16xf16>{STORE}""",
        gives(lambda a: a[2, 2]),
    ),
    "a number that a loop reads and writes": Program(
        "a: i32 4, n: index = 5, b: i32 8x16",
        """%one = arith.constant 1 : i32
        scf.for %i = %c0 to %n step %c1 {
          %x = memref.load %a[%c1] : memref<4xi32>
          %y = arith.addi %x, %one : i32
          memref.store %y, %a[%c1] : memref<4xi32>
        }
        %x = memref.load %a[%c1] : memref<4xi32>
        %r = vector.broadcast %x : i32 to vector<8x16xi32>
        store %r, %b[0, 0] 8x16""",
        lambda a, n, b: (a.__setitem__(1, a[1] + 5), b.__setitem__(ALL, a[1])),
    ),
    "numbers of an array that tiles read and write": Program(
        "a: f32 8x16, b: f32 8x16",
        f"""load %v = %a[0, 0] 8x16
        %w = arith.addf %v, %v : {V}
        store %w, %a[0, 0] 8x16
        %x = memref.load %a[%c3, %c0] : memref<8x16xf32>
        memref.store %x, %a[%c0, %c3] : memref<8x16xf32>
        load %r = %a[0, 0] 8x16
        store %r, %b[0, 0] 8x16
        store %v, %a[0, 0] 8x16
        memref.store %x, %a[%c3, %c3] : memref<8x16xf32>""",
        lambda a, b: (
            b.__setitem__(ALL, 2 * a),
            b.__setitem__((0, 3), 2 * a[3, 0]),
            a.__setitem__((3, 3), 2 * a[3, 0]),
        ),
    ),
    "a row and an element at positions of run time": Program(
        "a: f32 8x16, i: index = 3, b: f32 8x16",
        f"""load_nd %v = %a[0, 0] 8x16
        %x = vector.extract %v[%i, 5] : f32 from {V}
        %row = vector.extract %v[%i] : vector<16xf32> from {V}
        %w = vector.insert %row, %v[2] : vector<16xf32> into {V}
        %r = vector.insert %x, %w[%i, 7] : f32 into {V}
        store_nd %r, %b[0, 0] 8x16""",
        _positioned,
        subgroup=True,
    ),
    "tiles of two arrays, one of which a branch chooses": Program(
        "a: f32 16x32, b: f32 16x32, p: i1 = 0, o: f32 8x16",
        f"""%t = scf.if %p -> {T} {{
          %x = xetile.init_tile %a[0, 0] : memref<16x32xf32> -> {T}
          scf.yield %x : {T}
        }} else {{
          %x = xetile.init_tile %b[%c1, 3] : memref<16x32xf32> -> {T}
          scf.yield %x : {T}
        }}
        %u = xetile.update_tile_offset %t, [%c1, 4] : {T}
        %v = xetile.load_tile %u : {T} -> vector<8x16xf32>
        %w = arith.addf %v, %v : vector<8x16xf32>
        xetile.store_tile %w, %t : vector<8x16xf32>, {T}
        store %v, %o[0, 0] 8x16""",
        _chosen,
    ),
    "a tile of two arrays of different extents that a loop moves": Program(
        "a: f32 16x32 as ?x?, b: f32 16x24 as ?x?, p: i1 = 0, n: index = 3, o: f32 8x16",
        f"""%z = arith.constant dense<0.0> : {V}
        %x = xetile.init_tile %a[0, 0], [16, 32], [32, 1] : memref<?x?xf32> -> {T}
        %y = xetile.init_tile %b[8, %c1], [16, 24], [24, 1] : memref<?x?xf32> -> {T}
        %t = arith.select %p, %x, %y : {T}
        %w:2 = scf.for %i = %c0 to %n step %c1 iter_args(%u = %t, %s = %z) -> ({T}, {V}) {{
          %v = xetile.load_tile %u : {T} -> {V}
          %m = arith.addf %s, %v : {V}
          %next = xetile.update_tile_offset %u, [1, 5] : {T}
          scf.yield %next, %m : {T}, {V}
        }}
        store %w#1, %o[0, 0] 8x16""",
        lambda a, b, p, n, o: o.__setitem__(
            ALL, sum(np.pad(b, ((0, 8), (0, 8)))[8 + i : 16 + i, 1 + 5 * i : 17 + 5 * i] for i in range(n))
        ),
    ),
    "a tile of an array of one dimension that a loop moves": Program(
        "a: f32 80 as ?, n: index = 5, o: f32 1x32",
        """%z = arith.constant dense<0.0> : vector<1x32xf32>
        %t = xetile.init_tile %a[%c1], [80], [1] : memref<?xf32> -> !xetile.tile<1x32xf32>
        %x = xetile.update_tile_offset %t, [0, %c1] : !xetile.tile<1x32xf32>
        %w:2 = scf.for %i = %c0 to %n step %c1 iter_args(%u = %x, %s = %z) -> (!xetile.tile<1x32xf32>, vector<1x32xf32>) {
          %v = xetile.load_tile %u : !xetile.tile<1x32xf32> -> vector<1x32xf32>
          %m = arith.addf %s, %v : vector<1x32xf32>
          %next = xetile.update_tile_offset %u, [0, 13] : !xetile.tile<1x32xf32>
          scf.yield %next, %m : !xetile.tile<1x32xf32>, vector<1x32xf32>
        }
        store %w#1, %o[0, 0] 1x32""",
        lambda a, n, o: o.__setitem__(ALL, sum(np.pad(a, (0, 16))[2 + 13 * i : 34 + 13 * i] for i in range(n))),
    ),
    # Scattered tiles.
    "a scattered tile that a loop moves": Program(
        "a: f32 256, b: f32 16",
        f"""%at = vector.step : vector<16xindex>
        %by = arith.constant dense<16> : vector<16xindex>
        %z = arith.constant dense<0.0> : vector<16xf32>
        %s = xetile.init_tile %a, %at : memref<256xf32>, vector<16xindex> -> {S}
        %w:2 = scf.for %i = %c0 to %c4 step %c1 iter_args(%u = %s, %sum = %z) -> ({S}, vector<16xf32>) {{
          %v = xetile.load %u : {S} -> vector<16xf32>
          %x = arith.addf %sum, %v : vector<16xf32>
          %next = xetile.update_tile_offset %u, %by : {S}, vector<16xindex>
          %y = xetile.load %next : {S} -> vector<16xf32>
          %more = arith.addf %x, %y : vector<16xf32>
          scf.yield %next, %more : {S}, vector<16xf32>
        }}
        %d = xetile.init_tile %b, %at : memref<16xf32>, vector<16xindex> -> {S}
        %last = xetile.load %w#0 : {S} -> vector<16xf32>
        %r = arith.addf %w#1, %last : vector<16xf32>
        xetile.store %r, %d : vector<16xf32>, {S}""",
        gives(lambda a: a[:64].reshape(4, 16).sum(0) + a[16:80].reshape(4, 16).sum(0) + a[64:80]),
    ),
    "a scattered tile of a view that a loop moves": Program(
        "a: f32 16x16, b: f32 16",
        f"""%at = vector.step : vector<16xindex>
        %by = arith.constant dense<16> : vector<16xindex>
        %z = arith.constant dense<0.0> : vector<16xf32>
        %m = memref.collapse_shape %a [[0, 1]] : memref<16x16xf32> into memref<256xf32>
        %s = xetile.init_tile %m, %at : memref<256xf32>, vector<16xindex> -> {S}
        %w:2 = scf.for %i = %c0 to %c4 step %c1 iter_args(%u = %s, %sum = %z) -> ({S}, vector<16xf32>) {{
          %v = xetile.load %u : {S} -> vector<16xf32>
          %x = arith.addf %sum, %v : vector<16xf32>
          %next = xetile.update_tile_offset %u, %by : {S}, vector<16xindex>
          scf.yield %next, %x : {S}, vector<16xf32>
        }}
        %d = xetile.init_tile %b, %at : memref<16xf32>, vector<16xindex> -> {S}
        xetile.store %w#1, %d : vector<16xf32>, {S}""",
        gives(lambda a: a[:4].sum(0)),
    ),
    "a tile that goes from matrix to matrix": Program(
        "a: f32 3x8x16, o: f32 8x16",
        f"""%z = arith.constant dense<0.0> : {V}
        %t = xetile.init_tile %a[%c0, 0, 0] : memref<3x8x16xf32> -> {T}
        %w:2 = scf.for %i = %c1 to %c3 step %c1 iter_args(%u = %t, %sum = %z) -> ({T}, {V}) {{
          %v = xetile.load_tile %u : {T} -> {V}
          %x = arith.addf %sum, %v : {V}
          %next = xetile.init_tile %a[%i, 1, 0] : memref<3x8x16xf32> -> {T}
          scf.yield %next, %x : {T}, {V}
        }}
        %last = xetile.load_tile %w#0 : {T} -> {V}
        %r = arith.addf %w#1, %last : {V}
        store %r, %o[0, 0] 8x16""",
        gives(lambda a: a[0] + np.pad(a[1:, 1:], ((0, 0), (0, 1), (0, 0))).sum(0)),
    ),
    "a scattered tile that a branch chooses": Program(
        "a: f32 256, p: i1 = 1, b: f32 16",
        f"""%at = vector.step : vector<16xindex>
        %by = arith.constant dense<16> : vector<16xindex>
        %s = xetile.init_tile %a, %at : memref<256xf32>, vector<16xindex> -> {S}
        %u = scf.if %p -> {S} {{
          %next = xetile.update_tile_offset %s, %by : {S}, vector<16xindex>
          scf.yield %next : {S}
        }} else {{
          scf.yield %s : {S}
        }}
        %v = xetile.load %u : {S} -> vector<16xf32>
        %d = xetile.init_tile %b, %at : memref<16xf32>, vector<16xindex> -> {S}
        xetile.store %v, %d : vector<16xf32>, {S}""",
        gives(lambda a, p: a[16:32]),
    ),
    "a scattered tile that is selected": Program(
        "a: f32 256, p: i1 = 1, b: f32 16",
        f"""%at = vector.step : vector<16xindex>
        %by = arith.constant dense<16> : vector<16xindex>
        %s = xetile.init_tile %a, %at : memref<256xf32>, vector<16xindex> -> {S}
        %next = xetile.update_tile_offset %s, %by : {S}, vector<16xindex>
        %u = arith.select %p, %next, %s : {S}
        %v = xetile.load %u : {S} -> vector<16xf32>
        %d = xetile.init_tile %b, %at : memref<16xf32>, vector<16xindex> -> {S}
        xetile.store %v, %d : vector<16xf32>, {S}""",
        gives(lambda a, p: a[16:32]),
    ),
    "a descriptor in a while loop": Program(
        "a: f32 32x16, n: i32 = 3, b: f32 8x16",
        f"""%c0 = arith.constant 0 : i32
        %c1 = arith.constant 1 : i32
        %z = arith.constant dense<0.0> : {V}
        %t = xegpu.create_nd_tdesc %a[0, 0] : memref<32x16xf32> -> {D}
        %w:3 = scf.while (%u = %t, %sum = %z, %i = %c0) : ({D}, {V}, i32) -> ({D}, {V}, i32) {{
          %p = arith.cmpi slt, %i, %n : i32
          scf.condition(%p) %u, %sum, %i : {D}, {V}, i32
        }} do {{
        ^bb0(%u: {D}, %sum: {V}, %i: i32):
          %v = xegpu.load_nd %u : {D} -> {V}
          %x = arith.addf %sum, %v : {V}
          %next = xegpu.update_nd_offset %u, [8, 0] : {D}
          %j = arith.addi %i, %c1 : i32
          scf.yield %next, %x, %j : {D}, {V}, i32
        }}
        store_nd %w#1, %b[0, 0] 8x16""",
        gives(lambda a, n: a[:24].reshape(3, 8, 16).sum(0)),
        subgroup=True,
    ),
}  # fmt: skip

for _element, _bytes in (("f32", 4), ("f16", 2), ("i8", 1), ("f64", 8)):
    _matrix = f"!xegpu.mem_desc<16x32x{_element}>"
    PROGRAMS[f"a matrix of {_element} in SLM"] = Program(
        f"a: {_element} 16x32, b: {_element} 16x16",
        f"""%m = memref.alloc() : memref<{512 * _bytes}xi8, 3>
        %d = xegpu.create_mem_desc %m : memref<{512 * _bytes}xi8, 3> -> {_matrix}
        load_nd %v = %a[0, 0] 16x32
        xegpu.store_matrix %v, %d[0, 0] : vector<16x32x{_element}>, {_matrix}
        gpu.barrier
        %w = xegpu.load_matrix %d[0, 8] : {_matrix} -> vector<16x16x{_element}>
        store_nd %w, %b[0, 0] 16x16""",
        gives(lambda a: a[:, 8:24]),
        subgroup=True,
    )


def _shares(a: Any) -> Any:
    return a - a.max(1, keepdims=True)


for _element in ("f64", "bf16", "i8"):
    _kind = "maxsi" if _element == "i8" else "maximumf"
    _sub = "subi" if _element == "i8" else "subf"
    PROGRAMS[f"extents of {_element} that nothing divides"] = Program(
        f"a: {_element} 20x60, b: {_element} 37x13",
        f"""load %v = %a[3, 5] 13x37
        %m = xetile.reduction <{_kind}>, %v [1] : vector<13x37x{_element}> -> vector<13x1x{_element}>
        %w = xetile.broadcast %m [1] : vector<13x1x{_element}> -> vector<13x37x{_element}>
        %s = arith.{_sub} %v, %w : vector<13x37x{_element}>
        %t = xetile.transpose %s, [1, 0] : vector<13x37x{_element}> -> vector<37x13x{_element}>
        store %t, %b[0, 0] 37x13""",
        gives(lambda a: _shares(a[3:16, 5:42]).T),
    )
