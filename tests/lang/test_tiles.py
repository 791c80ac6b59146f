"""Tiles of arrays of any rank and any strides, and what init_tile refuses."""

import numpy as np
import pytest

import tilewright as tw
from tests.arrays import poison
from tests.lang.reference import ir, refused, run


@tw.kernel
def copy2(X, Y, BM: tw.constexpr = 4, BN: tw.constexpr = 8):
    at = [tw.program_id(0) * BM, tw.program_id(1) * BN]
    tw.store_tile(tw.load_tile(tw.init_tile(X, at, (BM, BN))), tw.init_tile(Y, at, (BM, BN)))


def layouts(x):
    wide = np.zeros((2 * x.shape[0], 3 * x.shape[1]), x.dtype)
    wide[::2, ::3] = x
    padded = np.zeros((x.shape[0], x.shape[1] + 5), x.dtype)
    padded[:, :-5] = x
    return {
        "row-major": x.copy(),
        "column-major": np.asfortranarray(x),
        "pitched": padded[:, :-5],
        "no unit stride": wide[::2, ::3],
        "reversed rows": x[::-1].copy()[::-1],
        "reversed columns": x[:, ::-1].copy()[:, ::-1],
        "repeated row": np.broadcast_to(x[:1], x.shape),
    }


@pytest.mark.parametrize("layout", layouts(np.zeros((1, 1), np.float32)))
@pytest.mark.parametrize("shape", [(9, 17), (4, 8), (1, 5), (5, 1), (1, 1)])
def test_strides_of_every_kind(rng, layout, shape):
    x = layouts(rng.standard_normal(shape).astype(np.float32))[layout]
    y = poison(*shape)
    run(copy2, (tw.cdiv(shape[0], 4), tw.cdiv(shape[1], 8)), x, y)
    np.testing.assert_array_equal(y, x)
    if layout not in ("repeated row",):
        target = layouts(np.zeros(shape, np.float32))[layout]
        run(copy2, (tw.cdiv(shape[0], 4), tw.cdiv(shape[1], 8)), y, target)
        np.testing.assert_array_equal(target, x)


@tw.kernel
def copy4(X, Y):
    b, h, m = tw.program_id(0), tw.program_id(1), tw.program_id(2) * 4
    x = tw.load_tile(tw.init_tile(X, [b, h, m, 0], (4, 8)))
    tw.store_tile(x, tw.init_tile(Y, [b, h, m, 0], (4, 8)))


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (0, 2, 1, 3), (0, 1, 3, 2), (3, 2, 1, 0)])
def test_leading_offsets_select_the_matrix(rng, axes):
    x = rng.standard_normal((2, 3, 6, 7)).astype(np.float32).transpose(axes)
    x = np.ascontiguousarray(x.transpose(np.argsort(axes))).transpose(axes)
    y = poison(*x.shape)
    if x.shape[3] <= 8:
        run(copy4, (x.shape[0], x.shape[1], tw.cdiv(x.shape[2], 4)), x, y)
        np.testing.assert_array_equal(y, x)


@tw.kernel
def row(X, Y):
    x = tw.load_tile(tw.init_tile(X, [tw.program_id(0) * 4], (1, 4)))
    tw.store_tile(x, tw.init_tile(Y, tw.program_id(0) * 4, 4))


@pytest.mark.parametrize("step", [1, 2, -1])
def test_a_vector_is_a_row(rng, step):
    x = rng.standard_normal(9).astype(np.float32)[::step]
    y = poison(*x.shape)
    run(row, tw.cdiv(len(x), 4), x, y)
    np.testing.assert_array_equal(y, x)


@tw.kernel
def shifted(X, Y, i, j):
    x = tw.load_tile(tw.init_tile(X, [i, j], (4, 4)), padding=-7)
    tw.store_tile(x, tw.init_tile(Y, [0, 0], (4, 4)))


@pytest.mark.parametrize("at", [(-2, 0), (0, -3), (4, 1), (2, 4), (-9, 0), (0, 99), (-1, -1)])
def test_a_tile_outside_its_matrix_in_each_direction(rng, at):
    x = rng.integers(0, 99, (5, 6)).astype(np.int32)
    y = poison(4, 4, dtype=np.int32)
    run(shifted, 1, x, y, *at)
    wide = np.full((5 + 400, 6 + 400), -7)
    wide[200:205, 200:206] = x
    np.testing.assert_array_equal(y, wide[200 + at[0] :, 200 + at[1] :][:4, :4])


@tw.kernel
def scattered_rows(X, Y, I):
    at = tw.load_tile(tw.init_tile(I, [0], (1, 4)))
    tile = tw.init_tile(X, tw.transpose(at) * 3 + tw.arange(0, 3, shape=(4, 3)))
    x = tw.load_gather(tile)
    tile = tw.update_tile_offset(tile, 3)
    tw.store_tile(x + tw.load_gather(tile), tw.init_tile(Y, [0, 0], (4, 3)))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_offset_vectors_index_the_flattened_array(rng, dtype):
    x = rng.standard_normal((6, 3)).astype(np.float32)
    i = np.array([4, 0, 2, 2], dtype)
    y = poison(4, 3)
    run(scattered_rows, 1, x, y, i)
    np.testing.assert_allclose(y, x[i] + x[i + 1], rtol=1e-6)


def test_offset_vectors_need_a_contiguous_array():
    x = np.zeros((6, 6), np.float32)[:, :3]
    with pytest.raises(tw.LaunchError, match="X"):
        run(scattered_rows, 1, x, np.zeros((4, 3), np.float32), np.zeros(4, np.int32))


@tw.kernel
def facts(X, Y):
    tw.static_assert(X.ndim == 3)
    tw.static_assert(X.dtype == tw.f16)
    values = (*X.shape, *X.strides)
    for i, v in enumerate(values):
        tw.store_tile(v, tw.init_tile(Y, [i], (1, 1)))


def test_facts_of_an_array():
    x = np.zeros((2, 3, 10), np.float16)[:, :, :7]
    y = poison(6, dtype=np.int64)
    run(facts, 1, x, y)
    assert y.tolist() == [2, 3, 7, 30, 10, 1]


@tw.kernel
def slm(X, Y):
    a = tw.alloc_slm((4, 8), tw.f32)
    b = tw.alloc_slm(8, tw.f32)
    x = tw.load_tile(tw.init_tile(X, [0, 0], (4, 8)))
    for i in range(2):
        tw.store_tile(x * 2, tw.init_tile(a, [0, 0], (4, 8), memory_space=3))
        tw.store_tile(tw.sum(x, 0), tw.init_tile(b, [0], (1, 8)))
        tw.barrier()
        x = tw.load_tile(tw.init_tile(a, [0, 0], (4, 8))) + tw.load_tile(tw.init_tile(b, 0, 8)) + i
        tw.barrier()
    tw.store_tile(x, tw.init_tile(Y, [0, 0], (4, 8)))


def test_shared_local_memory(rng):
    x = rng.standard_normal((4, 8)).astype(np.float32)
    y = poison(4, 8)
    run(slm, 1, x, y)
    for i in range(2):
        x = x * 2 + x.sum(0) + i
    np.testing.assert_allclose(y, x, rtol=1e-4, atol=1e-5)
    text = ir(slm, x, y)
    assert text.count("memref.alloc()") == 2 and "memory_space = 3" in text


def test_maps_stand_on_tiles_and_ops():
    text = ir(mapped, np.zeros((64, 64), np.float32))
    wg = "wg_map = <sg_layout = [2, 2], sg_data = [32, 32]>"
    assert f"!xetile.tile<64x64xf32, #xetile.tile_attr<{wg}>>" in text
    assert "sg_map = <wi_layout = [1, 16], wi_data = [1, 1]>" in text
    assert "wg_map_c = #xetile.wg_map<sg_layout = [2, 2], sg_data = [32, 32]>" in text
    assert "xetile.convert_layout" in text
    for op in ("math.exp", "math.fma", "math.absf", "arith.select", "arith.maximumf"):
        line = next(line for line in text.splitlines() if op in line)
        assert "map = #xetile.wg_map<sg_layout = [2, 2]" in line or "map = #" in line


@tw.kernel
def mapped(X):
    m = tw.wg_map([2, 2], [32, 32])
    x = tw.load_tile(tw.init_tile(X, [0, 0], (64, 64), wg_map=m))
    s = tw.init_tile(X, [0, 0], (8, 16), sg_map=tw.sg_map([1, 16], [1, 1]))
    tw.store_tile(tw.load_tile(s), s)
    y = tw.tile_mma(x, x, tw.zeros((64, 64), tw.f32, wg_map=m), wg_map=m)
    y = tw.where(y > 0, tw.maximum(y, x, wg_map=m), y, wg_map=m)
    y = tw.fma(y, x, tw.abs(x, wg_map=m), wg_map=m)
    y = tw.convert_layout(tw.exp(y, wg_map=m), tw.wg_map([4, 1], [16, 64]), m)
    tw.store_tile(y, tw.init_tile(X, [0, 0], (64, 64)))


def test_order_agrees_with_the_strides():
    x = np.zeros((8, 8), np.float32)
    assert "order = [0, 1]" in ir(ordered, x.T, ORDER=None)
    assert "order = [0, 1]" in ir(ordered, x.T, ORDER=(0, 1))
    assert "order =" not in ir(ordered, x, ORDER=(1, 0))
    text, under = refused(ordered, x, ORDER=(0, 1))
    assert "is [1, 0] (row-major) by its strides" in text and under == "ORDER"


@tw.kernel
def ordered(X, ORDER: tw.constexpr):
    t = tw.init_tile(X, [0, 0], (4, 4), order=ORDER)
    tw.store_tile(tw.load_tile(t), t)


# --- Errors ------------------------------------------------------------------------------------
