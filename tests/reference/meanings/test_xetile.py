"""The XeTile ops: bounds, layouts of memory, scattered access, atomics, reductions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.reference.kernels import run


def tile_type(shape: tuple[int, ...], element: str, **attributes: str) -> str:
    extra = ", ".join(f"{k} = {v}" for k, v in attributes.items())
    encoding = f", #xetile.tile_attr<{extra}>" if extra else ""
    return f"!xetile.tile<{'x'.join(map(str, shape))}x{element}{encoding}>"


@pytest.mark.parametrize("at", [(0, 0), (-3, 2), (4, -5), (7, 9), (-9, 0), (100, 100)])
def test_a_tile_over_every_edge(at: tuple[int, int]):
    rng = np.random.default_rng(0)
    a, loaded = rng.random((10, 12), np.float32), np.zeros((6, 8), np.float32)
    stored = np.full((10, 12), -1, np.float32)
    t = tile_type((6, 8), "f32")
    body = f"""
  %0 = xetile.init_tile %a[{at[0]}, {at[1]}] : memref<10x12xf32> -> {t}
  %v = xetile.load_tile %0 {{padding = 9.0 : f32}} : {t} -> vector<6x8xf32>
  %1 = xetile.init_tile %b[0, 0] : memref<6x8xf32> -> {t}
  xetile.store_tile %v, %1 : vector<6x8xf32>, {t}
  %2 = xetile.init_tile %c[{at[0]}, {at[1]}] : memref<10x12xf32> -> {t}
  xetile.prefetch_tile %2 : {t}
  xetile.store_tile %v, %2 : vector<6x8xf32>, {t}
"""
    run(
        "%a: memref<10x12xf32>, %b: memref<6x8xf32>, %c: memref<10x12xf32>",
        body,
        [a, loaded, stored],
    )
    for i in range(6):
        for j in range(8):
            row, column = at[0] + i, at[1] + j
            inside = 0 <= row < 10 and 0 <= column < 12
            assert loaded[i, j] == (a[row, column] if inside else 9)
    touched = np.zeros((10, 12), bool)
    touched[max(at[0], 0) : max(at[0] + 6, 0), max(at[1], 0) : max(at[1] + 8, 0)] = True
    assert (stored == np.where(touched, a, -1)).all()


@pytest.mark.parametrize("layout", ["columns", "gaps", "reversed", "transposed gaps"])
def test_arrays_of_any_strides(layout: str):
    rng = np.random.default_rng(1)
    whole = rng.random((40, 36), np.float32)
    a = {
        "columns": lambda: whole[:20, :18].T,
        "gaps": lambda: whole[::2, ::2],
        "reversed": lambda: whole[::-2, ::-2],
        "transposed gaps": lambda: whole[3::2, 1::2].T,
    }[layout]()
    out = np.zeros((8, 8), np.float32)
    type_ = "memref<?x?xf32, strided<[?, ?]>>"
    t = tile_type((8, 8), "f32")
    body = f"""
  %b, %o, %h, %w, %s0, %s1 = memref.extract_strided_metadata %a
    : {type_} -> memref<f32>, index, index, index, index, index
  %0 = xetile.init_tile %a[3, 13], [%h, %w], [%s0, %s1] : {type_} -> {t}
  %v = xetile.load_tile %0 : {t} -> vector<8x8xf32>
  %1 = xetile.init_tile %out[0, 0] : memref<8x8xf32> -> {t}
  xetile.store_tile %v, %1 : vector<8x8xf32>, {t}
"""
    run(f"%a: {type_}, %out: memref<8x8xf32>", body, [a, out])
    expected = np.zeros((8, 8), np.float32)
    part = a[3:11, 13:21]
    expected[: part.shape[0], : part.shape[1]] = part
    assert (out == expected).all()


def test_batch_dimensions_and_addresses():
    rng = np.random.default_rng(2)
    a, out = rng.random((3, 5, 8, 8), np.float32), np.zeros((2, 8, 8), np.float32)
    t = tile_type((8, 8), "f32")
    body = f"""
  %0 = xetile.init_tile %a[2, 3, 0, 0] : memref<3x5x8x8xf32> -> {t}
  %v = xetile.load_tile %0 : {t} -> vector<8x8xf32>
  %p = memref.extract_aligned_pointer_as_index %a : memref<3x5x8x8xf32> -> index
  %q = arith.index_cast %p : index to i64
  %1 = xetile.init_tile %q[0, 0], [%c8, %c8], [%c8, %c1] : i64 -> {t}
  %w = xetile.load_tile %1 : {t} -> vector<8x8xf32>
  %2 = xetile.init_tile %out[0, 0, 0] : memref<2x8x8xf32> -> {t}
  xetile.store_tile %v, %2 : vector<8x8xf32>, {t}
  %3 = xetile.init_tile %out[1, 0, 0] : memref<2x8x8xf32> -> {t}
  xetile.store_tile %w, %3 : vector<8x8xf32>, {t}
  %4 = xetile.init_tile %out[2, 0, 0] : memref<2x8x8xf32> -> {t}
  xetile.store_tile %w, %4 : vector<8x8xf32>, {t}
"""
    run("%a: memref<3x5x8x8xf32>, %out: memref<2x8x8xf32>", body, [a, out])
    assert (out[0] == a[2, 3]).all() and (out[1] == a[0, 0]).all()


@pytest.mark.parametrize(
    ("dtype", "element", "result"),
    [
        (np.float32, "f32", "f32"),
        (np.float16, "f16", "f32"),
        (ml_dtypes.bfloat16, "bf16", "f32"),
        (ml_dtypes.float8_e4m3fn, "f8E4M3FN", "f32"),
        (np.int8, "i8", "i32"),
        (np.uint8, "ui8", "i32"),
        (np.float64, "f64", "f64"),
    ],
)
@pytest.mark.parametrize("accumulate", [False, True])
def test_tile_mma(dtype: Any, element: str, result: str, accumulate: bool):
    rng = np.random.default_rng(3)
    kind = {"f32": np.float32, "i32": np.int32, "f64": np.float64}[result]
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        a, b = (rng.integers(info.min, info.max, s, dtype, endpoint=True) for s in ((5, 9), (9, 4)))
        c = rng.integers(-1000, 1000, (5, 4)).astype(kind)
    else:
        a, b = (rng.standard_normal(s).astype(dtype) for s in ((5, 9), (9, 4)))
        c = rng.standard_normal((5, 4)).astype(kind)
    out = np.zeros((5, 4), kind)
    ta, tb, tc = (
        tile_type(s, e) for s, e in (((5, 9), element), ((9, 4), element), ((5, 4), result))
    )
    with_c = ("%c, ", f", vector<5x4x{result}>") if accumulate else ("", "")
    body = f"""
  %0 = xetile.init_tile %x[0, 0] : memref<5x9x{element}> -> {ta}
  %1 = xetile.init_tile %y[0, 0] : memref<9x4x{element}> -> {tb}
  %2 = xetile.init_tile %z[0, 0] : memref<5x4x{result}> -> {tc}
  %3 = xetile.init_tile %o[0, 0] : memref<5x4x{result}> -> {tc}
  %a = xetile.load_tile %0 : {ta} -> vector<5x9x{element}>
  %b = xetile.load_tile %1 : {tb} -> vector<9x4x{element}>
  %c = xetile.load_tile %2 : {tc} -> vector<5x4x{result}>
  %r = xetile.tile_mma %a, %b{", %c" if accumulate else ""}
    : vector<5x9x{element}>, vector<9x4x{element}>{with_c[1]} -> vector<5x4x{result}>
  xetile.store_tile %r, %3 : vector<5x4x{result}>, {tc}
"""
    run(
        f"%x: memref<5x9x{element}>, %y: memref<9x4x{element}>, %z: memref<5x4x{result}>, "
        f"%o: memref<5x4x{result}>",
        body,
        [a, b, c, out],
    )
    wide = np.int64 if out.dtype.kind == "i" else np.float64
    expected = a.astype(wide) @ b.astype(wide) + (c if accumulate else 0)
    if out.dtype.kind == "i":
        assert (out == expected).all()
    else:
        assert np.linalg.norm(out - expected) <= 1e-6 * np.linalg.norm(expected)


def test_reduction_size_and_broadcast_size():
    rng = np.random.default_rng(4)
    a = rng.integers(-9, 9, (6, 8)).astype(np.float32)
    parts, spread = np.zeros((2, 8), np.float32), np.zeros((6, 8), np.float32)
    ta, tp = tile_type((6, 8), "f32"), tile_type((2, 8), "f32")
    body = f"""
  %0 = xetile.init_tile %a[0, 0] : memref<6x8xf32> -> {ta}
  %1 = xetile.init_tile %p[0, 0] : memref<2x8xf32> -> {tp}
  %2 = xetile.init_tile %s[0, 0] : memref<6x8xf32> -> {ta}
  %v = xetile.load_tile %0 : {ta} -> vector<6x8xf32>
  %r = xetile.reduction <add>, %v [0] {{reduction_size = 3 : i64}} : vector<6x8xf32> -> vector<2x8xf32>
  xetile.store_tile %r, %1 : vector<2x8xf32>, {tp}
  %b = xetile.broadcast %r [0] {{broadcast_size = 3 : i64}} : vector<2x8xf32> -> vector<6x8xf32>
  xetile.store_tile %b, %2 : vector<6x8xf32>, {ta}
"""
    run("%a: memref<6x8xf32>, %p: memref<2x8xf32>, %s: memref<6x8xf32>", body, [a, parts, spread])
    assert (parts == a.reshape(2, 3, 8).sum(1)).all()
    assert (spread == np.repeat(parts, 3, axis=0)).all()


def test_gather_and_scatter_with_masks_and_bounds():
    rng = np.random.default_rng(5)
    a, out = rng.random(20, np.float32), np.full(20, -1, np.float32)
    indices = np.array([3, 19, -1, 20, 0, 7, 7, 2], np.int64)
    mask = np.array([1, 1, 1, 1, 0, 1, 1, 1], np.int8)
    st = tile_type((8,), "f32", scattered="true")
    body = f"""
  %i64 = vector.load %idx[%c0] : memref<8xi64>, vector<8xi64>
  %i = arith.index_cast %i64 : vector<8xi64> to vector<8xindex>
  %m8 = vector.load %mask[%c0] : memref<8xi8>, vector<8xi8>
  %m = arith.trunci %m8 : vector<8xi8> to vector<8xi1>
  %t = xetile.init_tile %a, %i : memref<20xf32>, vector<8xindex> -> {st}
  %v = xetile.load %t, %m {{padding = 5.0 : f32}} : {st}, vector<8xi1> -> vector<8xf32>
  vector.store %v, %got[%c0] : memref<8xf32>, vector<8xf32>
  %u = xetile.init_tile %out, %i : memref<20xf32>, vector<8xindex> -> {st}
  xetile.store %v, %u, %m : vector<8xf32>, {st}, vector<8xi1>
"""
    got = np.zeros(8, np.float32)
    run(
        "%a: memref<20xf32>, %idx: memref<8xi64>, %mask: memref<8xi8>, %got: memref<8xf32>, "
        "%out: memref<20xf32>",
        body,
        [a, indices, mask, got, out],
    )
    assert got.tolist() == [a[3], a[19], 5, 5, 5, a[7], a[7], a[2]]
    expected = np.full(20, -1, np.float32)
    for i, m in zip(indices.tolist(), mask.tolist(), strict=True):
        if m and 0 <= i < 20:
            expected[i] = a[i]
    assert (out == expected).all()


@pytest.mark.parametrize(
    ("kind", "dtype", "combine"),
    [
        ("addf", np.float32, lambda x, y: x + y),
        ("addi", np.int32, lambda x, y: x + y),
        ("maxs", np.int32, max),
        ("mins", np.int32, min),
        ("assign", np.int32, lambda x, y: y),
        ("ori", np.int32, lambda x, y: x | y),
        ("xori", np.int32, lambda x, y: x ^ y),
        ("maximumf", np.float32, max),
        ("muli", np.int32, lambda x, y: (x * y + 2**31) % 2**32 - 2**31),
    ],
)
def test_atomics_happen_one_after_the_other(kind: str, dtype: Any, combine: Any):
    """Sixteen elements hit four cells, from three workgroups: the old values are a valid order."""
    rng = np.random.default_rng(6)
    cells = rng.integers(-5, 5, 4).astype(dtype)
    before = cells.copy()
    indices = rng.integers(0, 5, 16).astype(np.int64)  # 4 is outside
    values = rng.integers(-5, 5, 16).astype(dtype)
    old = np.full((3, 16), 77, dtype)
    e = "f32" if dtype is np.float32 else "i32"
    st = tile_type((16,), e, scattered="true")
    body = f"""
  %w = gpu.block_id x
  %i64 = vector.load %idx[%c0] : memref<16xi64>, vector<16xi64>
  %i = arith.index_cast %i64 : vector<16xi64> to vector<16xindex>
  %v = vector.load %val[%c0] : memref<16x{e}>, vector<16x{e}>
  %t = xetile.init_tile %cells, %i : memref<4x{e}>, vector<16xindex> -> {st}
  %r = xetile.atomic_rmw {kind} %v, %t : vector<16x{e}>, {st} -> vector<16x{e}>
  vector.store %r, %old[%w, %c0] : memref<3x16x{e}>, vector<16x{e}>
"""
    run(
        f"%cells: memref<4x{e}>, %idx: memref<16xi64>, %val: memref<16x{e}>, "
        f"%old: memref<3x16x{e}>",
        body,
        [cells, indices, values, old],
        (3,),
    )
    now = before.tolist()
    for workgroup in range(3):
        for i, value, seen in zip(
            indices.tolist(), values.tolist(), old[workgroup].tolist(), strict=True
        ):
            if i == 4:
                assert seen == 0
                continue
            assert seen == now[i]
            now[i] = combine(now[i], value)
    assert cells.tolist() == now


def test_array_length_and_early_transpose():
    a, out = np.arange(64, dtype=np.float32).reshape(4, 16), np.zeros((3, 4, 4), np.float32)
    t = tile_type((4, 4), "f32", array_length="2")
    o = tile_type((4, 4), "f32")
    body = f"""
  %0 = xetile.init_tile %a[0, 8] : memref<4x16xf32> -> {t}
  %v, %w = xetile.load_tile %0 : {t} -> vector<4x4xf32>, vector<4x4xf32>
  %1 = xetile.init_tile %a[0, 0] : memref<4x16xf32> -> {o}
  %x = xetile.load_tile %1 {{transpose = [1, 0]}} : {o} -> vector<4x4xf32>
  %o0 = xetile.init_tile %out[0, 0, 0] : memref<3x4x4xf32> -> {o}
  %o1 = xetile.init_tile %out[1, 0, 0] : memref<3x4x4xf32> -> {o}
  %o2 = xetile.init_tile %out[2, 0, 0] : memref<3x4x4xf32> -> {o}
  xetile.store_tile %v, %o0 : vector<4x4xf32>, {o}
  xetile.store_tile %w, %o1 : vector<4x4xf32>, {o}
  xetile.store_tile %x, %o2 : vector<4x4xf32>, {o}
"""
    run("%a: memref<4x16xf32>, %out: memref<3x4x4xf32>", body, [a, out])
    assert (out[0] == a[:, 8:12]).all() and (out[1] == a[:, 12:]).all()
    assert (out[2] == a[:, :4].T).all()


def test_maps_do_not_change_values():
    a, out = np.arange(256, dtype=np.float32).reshape(16, 16), np.zeros((16, 16), np.float32)
    map_ = "<sg_layout = [2, 2], sg_data = [8, 8]>"
    t = tile_type((16, 16), "f32", wg_map=map_)
    body = f"""
  %0 = xetile.init_tile %a[0, 0] : memref<16x16xf32> -> {t}
  %v = xetile.load_tile %0 : {t} -> vector<16x16xf32>
  %w = xetile.convert_layout %v {{wg_map_result = #xetile.wg_map<sg_layout = [4, 1], sg_data = [4, 16]>}}
    : vector<16x16xf32>
  %x = xetile.transpose %w, [1, 0] : vector<16x16xf32> -> vector<16x16xf32>
  %1 = xetile.init_tile %out[0, 0] : memref<16x16xf32> -> {t}
  xetile.store_tile %x, %1 : vector<16x16xf32>, {t}
"""
    run("%a: memref<16x16xf32>, %out: memref<16x16xf32>", body, [a, out])
    assert (out == a.T).all()
