# ruff: noqa: E501
"""Programs about atomics, and about memory that a program allocates for itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.features.memory import ALL, ROW, V, gives
from tests.features.program import Program


def _computed(a: Any, x: Any, n: Any, b: Any) -> None:
    before = a.copy()
    a[1, 1:n] = before[5, 1:n]
    a[5, 1:n] = np.sqrt(np.abs(before[5, 1:n])) + x
    b[...] = a - before


def _allocated(a: Any, i: Any, b: Any, o: Any) -> None:
    own = a.copy()
    own[0, i] = own[i, 1]
    b[:8] = own[:, i : i + 8].T
    o[...] = 9


PROGRAMS = {
    # Memory of the workgroup, in programs of one subgroup.
    "a tile in SLM": Program(
        "a: f32 16x32, b: f32 32x16",
        """%m = memref.alloc() : memref<16x32xf32, 3>
        %t = xetile.init_tile %m[0, 0] : memref<16x32xf32, 3> -> !xetile.tile<16x32xf32, #xetile.tile_attr<memory_space = 3 : i64>>
        load %x = %a[0, 0] 16x32
        xetile.store_tile %x, %t : vector<16x32xf32>, !xetile.tile<16x32xf32, #xetile.tile_attr<memory_space = 3 : i64>>
        gpu.barrier
        %y = xetile.load_tile %t : !xetile.tile<16x32xf32, #xetile.tile_attr<memory_space = 3 : i64>> -> vector<16x32xf32>
        %z = xetile.transpose %y, [1, 0] : vector<16x32xf32> -> vector<32x16xf32>
        store %z, %b[0, 0] 32x16""",
        gives(lambda a: a.T),
    ),
    "tiles of an array of one dimension in SLM": Program(
        "a: f32 1x64, b: f32 1x64",
        f"""%m = memref.alloc() : memref<64xf32, 3>
        %t = xetile.init_tile %m[0] : memref<64xf32, 3> -> {ROW}
        %u = xetile.update_tile_offset %t, [0, 32] : {ROW}
        load %x = %a[0, 0] 1x32
        load %y = %a[0, 32] 1x32
        xetile.store_tile %x, %u : vector<1x32xf32>, {ROW}
        xetile.store_tile %y, %t : vector<1x32xf32>, {ROW}
        gpu.barrier
        %w = xetile.init_tile %m[16] : memref<64xf32, 3> -> {ROW}
        %z = xetile.load_tile %w : {ROW} -> vector<1x32xf32>
        %o = xetile.init_tile %m[48] : memref<64xf32, 3> -> {ROW}
        %v = xetile.load_tile %o : {ROW} -> vector<1x32xf32>
        store %z, %b[0, 0] 1x32
        store %v, %b[0, 32] 1x32""",
        gives(
            lambda a: np.pad(np.roll(a, 32, 1), ((0, 0), (0, 16)))[
                :, [*range(16, 48), *range(48, 80)]
            ]
        ),
    ),
    "an atomic of one number": Program(
        "a: i32 4, v: f32 8x16, b: f32 8x16",
        """%x = arith.constant 3 : i32
        %old = memref.atomic_rmw addi %x, %a[%c1] : (i32, memref<4xi32>) -> i32
        %f = arith.sitofp %old : i32 to f32
        %g = vector.broadcast %f : f32 to vector<8x16xf32>
        load %w = %v[0, 0] 8x16
        %r = arith.addf %w, %g : vector<8x16xf32>
        store %r, %b[0, 0] 8x16""",
        lambda a, v, b: (b.__setitem__(ALL, v + a[1]), a.__setitem__(1, a[1] + 3)),
    ),
    "an atomic whose region computes, of an array that tiles read": Program(
        "a: f32 8x16, x: f32 = 1.5, n: index = 3, b: f32 8x16",
        f"""load %before = %a[0, 0] 8x16
        scf.for %i = %c1 to %n step %c1 {{
          %was = memref.generic_atomic_rmw %a[%c5, %i] : memref<8x16xf32> {{
            ^bb0(%now: f32):
              %u = math.absf %now : f32
              %r = math.sqrt %u : f32
              %new = arith.addf %r, %x : f32
              memref.atomic_yield %new : f32
          }}
          memref.store %was, %a[%c1, %i] : memref<8x16xf32>
        }}
        load %after = %a[0, 0] 8x16
        %r = arith.subf %after, %before : {V}
        store %r, %b[0, 0] 8x16""",
        _computed,
        workgroup=True,
    ),
    "memory of the program, by vectors, numbers and atomics": Program(
        "a: f32 32x32, i: index = 3, b: f32 32x32, o: i16 1x1",
        """%p = arith.constant 0.0 : f32
        %h = arith.constant 3 : i16
        %m = memref.alloca() : memref<32x32xf32>
        %k = memref.alloca() : memref<i16>
        %v = vector.transfer_read %a[%c0, %c0], %p : memref<32x32xf32>, vector<32x32xf32>
        vector.transfer_write %v, %m[%c0, %c0] : vector<32x32xf32>, memref<32x32xf32>
        %x = memref.load %m[%i, %c1] : memref<32x32xf32>
        memref.store %x, %m[%c0, %i] : memref<32x32xf32>
        %s = memref.subview %m[0, %i] [32, 8] [1, 1] : memref<32x32xf32> to memref<32x8xf32, strided<[32, 1], offset: ?>>
        %w = vector.transfer_read %s[%c0, %c0], %p {permutation_map = affine_map<(d0, d1) -> (d1, d0)>}
          : memref<32x8xf32, strided<[32, 1], offset: ?>>, vector<8x32xf32>
        vector.transfer_write %w, %b[%c0, %c0] : vector<8x32xf32>, memref<32x32xf32>
        memref.store %h, %k[] : memref<i16>
        %t = memref.atomic_rmw muli %h, %k[] : (i16, memref<i16>) -> i16
        %d = memref.atomic_rmw addi %t, %k[] : (i16, memref<i16>) -> i16
        memref.store %d, %o[%c0, %c0] : memref<1x1xi16>""",
        _allocated,
        workgroup=True,
    ),
}


def _atomics() -> dict[str, Any]:
    def unsigned(f: Any) -> Any:
        def g(a: Any, v: Any) -> Any:
            word = f"u{a.itemsize}"
            return f(a.view(word), v.view(word)).view(a.dtype)

        return g

    floats = {"addf": np.add, "mulf": np.multiply, "assign": lambda a, v: v}
    floats |= {"maximumf": np.maximum, "minimumf": np.minimum, "maxnumf": np.fmax, "minnumf": np.fmin}  # fmt: skip
    integers = {"addi": np.add, "muli": np.multiply, "assign": lambda a, v: v, "maxs": np.maximum}
    integers |= {"mins": np.minimum, "maxu": unsigned(np.maximum), "minu": unsigned(np.minimum)}
    integers |= {"ori": np.bitwise_or, "andi": np.bitwise_and, "xori": np.bitwise_xor}
    found = {(k, t): f for t in ("f64", "f32", "f16", "bf16") for k, f in floats.items()}
    found |= {(k, t): f for t in ("i64", "i32", "i16", "i8") for k, f in integers.items()}
    common = {"mulf", "muli", "minimumf", "minnumf", "maxu", "mins", "andi"}
    return {(k, t): f for (k, t), f in found.items() if t in ("f32", "i32") or k not in common}


for (_kind, _element), _function in _atomics().items():
    PROGRAMS[f"atomic {_kind} of {_element}"] = Program(
        f"a: {_element} 8x16, v: {_element} 8x16, o: {_element} 8x16",
        f"""load %x = %v[0, 0] 8x16
        %t = xetile.init_tile %a[0, 0] : memref<8x16x{_element}> -> !xetile.tile<8x16x{_element}>
        %old = xetile.atomic_rmw {_kind} %x, %t : vector<8x16x{_element}>, !xetile.tile<8x16x{_element}> -> vector<8x16x{_element}>
        store %old, %o[0, 0] 8x16""",
        lambda a, v, o, f=_function: (o.__setitem__(ALL, a), a.__setitem__(ALL, f(a, v))),
    )
