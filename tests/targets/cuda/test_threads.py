"""Kernels as threads: every rule of the distributor against numpy, with races found."""

# Kernels are not typed Python, and fixtures give what they say.
# pyright: reportMissingParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.acceptance import kernels as k
from tests.acceptance.rank_n import RANK_N
from tests.arrays import error
from tests.targets.cuda.threads import ThreadsTarget
from tilewright import knobs, ops
from tilewright.dialects.text import parse_module
from tilewright.runtime.arrays import describe
from tilewright.targets import base
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda import retile

BF16 = np.dtype(ml_dtypes.bfloat16)
F8 = np.dtype(ml_dtypes.float8_e4m3fn)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("dtype", ["f4", "f2", BF16], ids=str)
@pytest.mark.parametrize("shape", [(5, 64), (1, 1), (7, 100), (3, 1000)], ids=str)
def test_rows(shape, dtype, threads: ThreadsTarget, rng):
    x = rng.standard_normal(shape).astype(dtype)
    y = np.full(shape, np.nan, dtype)
    ops.softmax(x, out=y, target="cuda")
    limit = {"f4": 2e-6, "f2": 1e-3}.get(dtype, 8e-3) if isinstance(dtype, str) else 8e-3
    assert error(y, softmax(x.astype(float))) < limit


def test_vectors_where_rows_are_aligned_and_elements_where_not(threads: ThreadsTarget, rng):
    """100 floats per row: the extent says nothing, the run-time branch chooses vectors; 101: elements."""
    for columns in (100, 101):
        x = rng.standard_normal((6, columns)).astype("f4")
        assert error(ops.softmax(x, target="cuda"), softmax(x.astype(float))) < 2e-6
    assert threads.last is not None and "mach.masked_load" in threads.last.ir["mach"]


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("dtype", ["f2", BF16], ids=str)
def test_products_of_16_bits(layout, dtype, threads: ThreadsTarget, rng):
    """ldmatrix reads either order of memory; copies run ahead of the loop."""
    a = rng.standard_normal((72, 88)).astype(dtype)
    b = rng.standard_normal((88, 80)).astype(dtype)
    a = np.asfortranarray(a) if layout[0] == "T" else a
    b = np.asfortranarray(b) if layout[1] == "T" else b
    c = np.full((72, 80), np.nan, "f4")
    k.gemm.options(target="cuda")[2, 2](a, b, c, BM=64, BN=64, BK=32)
    assert error(c, a.astype(float) @ b.astype(float)) < 1e-6
    text = threads.last.ir["mach"]  # pyright: ignore
    assert text.count("nvptx.mma.m16n8k16") == 16 and "nvptx.ldmatrix.x4" in text
    assert "nvptx.cp.async.16" in text


@pytest.mark.parametrize("off", ["cp-async", "mma", "split"])
def test_each_optimisation_can_be_left_out(off, threads: ThreadsTarget, rng):
    a, b = rng.standard_normal((40, 48)).astype("f2"), rng.standard_normal((48, 40)).astype("f2")
    c = np.full((40, 40), np.nan, "f4")
    k.gemm.options(target="cuda", disable=off)[2, 2](a, b, c, BM=32, BN=32, BK=16)
    assert error(c, a.astype(float) @ b.astype(float)) < 1e-6
    text = threads.last.ir["mach"]  # pyright: ignore
    assert ("nvptx.cp.async.16" in text) == (off == "split")
    assert ("nvptx.mma" in text) == (off != "mma")


@pytest.mark.parametrize("dtype", ["i1", "u1", "f8", "f4", F8], ids=str)
def test_products_of_other_types(dtype, threads: ThreadsTarget, rng):
    x, y = (rng.integers(0, 9, (32, 32)).astype(dtype) for _ in range(2))
    acc = (
        np.dtype("i4")
        if np.dtype(dtype).kind in "iu"
        else np.dtype("f8" if dtype == "f8" else "f4")
    )
    c = np.zeros((32, 32), acc)

    @tw.kernel
    def product(A, B, C):
        a, b = tw.init_tile(A, [0, 0], (32, 32)), tw.init_tile(B, [0, 0], (32, 32))
        r = tw.tile_mma(tw.load_tile(a), tw.load_tile(b))
        tw.store_tile(r.to(C.dtype), tw.init_tile(C, [0, 0], (32, 32)))

    product.options(target="cuda")[1](x, y, c)
    np.testing.assert_array_equal(c, (x.astype(float) @ y.astype(float)).astype(acc))


@pytest.mark.parametrize("rows, columns", [(8, 64), (1, 32), (2, 8), (4, 12), (24, 16), (5, 2)])
@pytest.mark.parametrize("dtype", ["i1", "f2", "f8"], ids=str)
def test_products_of_few_rows(rows, columns, dtype, threads: ThreadsTarget, rng):
    """Half of an instruction's rows, or some of them several times; the right operand in either order of memory."""
    acc = {"i1": tw.i32, "f2": tw.f32, "f8": tw.f64}[dtype]
    a = rng.integers(-9, 9, (rows, 64)).astype(dtype)
    b = rng.integers(-9, 9, (64, 2 * columns)).astype(dtype)
    for right in (b, np.asfortranarray(b)):
        c = np.zeros((rows, 2 * columns), {"i1": "i4", "f2": "f4"}.get(dtype, dtype))
        k.gemm_init_in_loop.options(target="cuda")[1, 2](
            a, right, c, BM=rows, BN=columns, BK=32, ACC=acc
        )
        np.testing.assert_array_equal(c, a.astype(float) @ b.astype(float))
        assert "nvptx.mma.m8n8" in threads.last.ir["mach"]  # pyright: ignore


@pytest.mark.parametrize("step", [16, 8, 4])
@pytest.mark.parametrize("layout", ["NN", "TT"])
def test_products_of_f64_on_hopper(step, layout, monkeypatch, rng):
    """16 rows at once, in steps of four."""
    a, b = (rng.integers(-99, 99, shape).astype("f8") for shape in ((40, 56), (56, 48)))
    a, b = (x if layout == "NN" else np.asfortranarray(x) for x in (a, b))
    c = np.full((40, 48), np.nan)
    hopper = ThreadsTarget("sm_90a")
    monkeypatch.setitem(base._loaded, "cuda", hopper)  # pyright: ignore
    with knobs.override(cache=False, num_threads=3):
        k.gemm_init_in_loop.options(target="cuda")[2, 2](a, b, c, BM=32, BN=32, BK=step, ACC=tw.f64)
    np.testing.assert_array_equal(c, a @ b)
    assert "nvptx.mma.m16n8k4.f64" in hopper.last.ir["mach"]  # pyright: ignore


def test_sums_have_as_many_warps_as_hold_them():
    """Products that feed one another have a warp for 16 rows, or more where these are long."""
    text = latent.compile(
        *(tw.spec((64, 576), tw.bf16),) * 2, tw.spec((64, 512), tw.bf16), target="sm_80"
    ).asm["ptx"]
    assert ".reqntid 256" in text


@tw.kernel
def latent(Q, C, O):
    """Values are the first columns of the keys."""
    q = tw.load_tile(tw.init_tile(Q, [0, 0], (64, 512)))
    out = tw.zeros((64, 512), tw.f32)
    for i in range(0, C.shape[0], 32):
        k = tw.load_tile(tw.init_tile(C, [i, 0], (32, 512)))
        out = tw.tile_mma(tw.tile_mma(q, tw.transpose(k)).to(tw.bf16), k, out)
    tw.store_tile(out.to(O.dtype), tw.init_tile(O, [0, 0], (64, 512)))


@tw.kernel
def turned(X, Y, BM: tw.constexpr, BN: tw.constexpr):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN))) + 1
    tw.store_tile(tw.transpose(x), tw.init_tile(Y, [n, m], (BN, BM)))


@pytest.mark.parametrize("tile", [(64, 64), (32, 128), (16, 8), (24, 40)])
@pytest.mark.parametrize("dtype", ["i1", BF16, "f4", "f8"], ids=str)
def test_what_is_written_across_what_is_read(tile, dtype, threads: ThreadsTarget, rng):
    """Threads hold square blocks of vectors: both ways memory moves vectors, at ragged edges, too."""
    for shape in ((128, 256), (72, 88), (70, 81)):
        x = rng.integers(-9, 9, shape).astype(dtype)
        y = np.full(shape[::-1], 99, dtype)
        grid = tuple(-(-n // side) for n, side in zip(shape, tile, strict=True))
        turned.options(target="cuda")[grid](x, y, BM=tile[0], BN=tile[1])
        np.testing.assert_array_equal(y, (x + 1).T)


@pytest.mark.parametrize("dtype, blocks", [(tw.bf16, 8), (tw.f32, 4), (tw.f64, 2)])
def test_vectors_of_16_bytes_both_ways(dtype, blocks):
    array = tw.spec((1024, 1024), dtype)
    text = turned.compile(array, array, target="sm_80", BM=64, BN=64).ir["mach"]
    loads, stores = (
        re.findall(rf"mach.(?:masked_)?{op} .*alignment = 16", text) for op in ("load", "store")
    )
    assert len(loads) == len(stores) > 0 and len(loads) % blocks == 0


def test_extents_that_no_instruction_has(threads: ThreadsTarget, rng):
    a, b = rng.standard_normal((9, 11)), rng.standard_normal((11, 7))
    assert error(ops.matmul(a, b, target="cuda"), a @ b) < 1e-14
    x, y = rng.standard_normal((24, 20)).astype("f2"), rng.standard_normal((20, 12)).astype("f2")
    c = np.full((24, 12), np.nan, "f4")
    k.gemm.options(target="cuda")[1, 1](x, y, c, BM=24, BN=12, BK=4)
    assert "nvptx.mma" not in threads.last.ir["mach"]  # pyright: ignore
    assert error(c, x.astype(float) @ y.astype(float)) < 1e-6


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal, threads: ThreadsTarget, rng):
    q, key, v = (rng.standard_normal((1, 70, 32)).astype("f2") for _ in range(3))
    s = q.astype(float) @ key.astype(float).swapaxes(1, 2) / 32**0.5
    if causal:
        s[:, ~np.tri(70, dtype=bool)] = -np.inf
    got = ops.attention(q, key, v, causal=causal, target="cuda")
    assert error(got, softmax(s) @ v.astype(float)) < 2e-3


def test_split_workgroups_compute_the_same(threads: ThreadsTarget, rng, monkeypatch):
    monkeypatch.setattr(retile, "MOST_ELEMENTS", 256)
    monkeypatch.setattr(retile, "MOST_ACCUMULATORS", 1024)
    monkeypatch.setattr(retile, "LEAST_SIDE", 16)
    x = rng.standard_normal((10, 300)).astype("f4")
    assert error(ops.softmax(x, target="cuda"), softmax(x.astype(float))) < 2e-6
    assert threads.last is not None and threads.last.lowered.split == 4
    a, b = rng.standard_normal((48, 32)).astype("f2"), rng.standard_normal((32, 40)).astype("f2")
    bias, c = rng.standard_normal(40).astype("f4"), np.zeros((48, 40), "f2")
    rows = np.zeros((48, 1), "f4")
    k.bias_gelu_rowsum.options(target="cuda")[1, 1](a, b, bias, c, rows, BM=64, BN=64)
    assert threads.last.lowered.split > 1
    assert error(rows, c.astype(float).sum(1, keepdims=True)) < 1e-3


@tw.kernel
def gradient(DY, X, DX, DW, BM: tw.constexpr = 8, N: tw.constexpr = 4096):
    total = tw.zeros((1, N), tw.f32)
    for m in range(0, X.shape[0], BM):
        x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, N))).to(tw.f32)
        dy = tw.load_tile(tw.init_tile(DY, [m, 0], (BM, N))).to(tw.f32)
        dx = dy - x * tw.sum(x * dy, 1)
        tw.store_tile(dx.to(DX.dtype), tw.init_tile(DX, [m, 0], (BM, N)))
        total = total + tw.sum(x * dy, 0)
    tw.store_tile(total, tw.init_tile(DW, [0, 0], (1, N)))


@pytest.mark.parametrize("rows, columns", [(8, 4096), (13, 3999), (3, 1000)])
@pytest.mark.parametrize("dtype", ["f4", BF16], ids=str)
def test_warps_have_columns_of_their_own_of_wide_tiles(
    rows, columns, dtype, threads: ThreadsTarget, rng
):
    """What goes from warp to warp are sums along rows, eight numbers of each of 32 warps at most."""
    x, dy = (rng.standard_normal((rows, columns)).astype(dtype) for _ in range(2))
    dx, dw = np.full_like(x, np.nan), np.full((1, columns), np.nan, "f4")
    gradient.options(target="cuda")[1](dy, x, dx, dw)
    p = x.astype(float) * dy.astype(float)
    assert error(dw, p.sum(0, keepdims=True)) < 1e-6
    want = dy.astype(float) - x.astype(float) * p.sum(1, keepdims=True)
    assert error(dx, want) < (1e-6 if dtype == "f4" else 4e-3)
    assert threads.last is not None
    assert threads.last.lowered.shared_bytes <= 8 * 32 * 4


def test_reductions_across_warps_and_ragged_runs(threads: ThreadsTarget, rng):
    x = rng.standard_normal((70, 130)).astype("f4")
    mean, var = np.full((130,), np.nan, "f4"), np.full((130,), np.nan, "f4")
    k.column_stats.options(target="cuda")[3](x, mean, var)
    assert error(mean, x.astype(float).mean(0)) < 1e-5
    assert error(var, x.astype(float).var(0)) < 1e-5


def test_gather_slm_and_atomics(threads: ThreadsTarget, rng):
    x = rng.standard_normal((20, 100)).astype("f4")
    i = rng.integers(0, 20, 7).astype("i4")
    y = np.full((7, 100), np.nan, "f4")
    k.gather_rows.options(target="cuda")[7, 2](x, i, y)
    np.testing.assert_array_equal(y, x[i])
    t = np.full((100, 20), np.nan, "f4")
    k.transpose_through_slm.options(target="cuda")[1, 4](x, t)
    np.testing.assert_array_equal(t, x.T)
    c = np.zeros((20, 20), "f4")
    k.split_k.options(target="cuda")[1, 1, 2](
        x.astype("f2"), x.T.astype("f2"), c, S=2, BM=32, BN=32
    )
    h = x.astype("f2").astype(float)
    assert error(c, h @ h.T) < 1e-6


def test_in_place_work_waits_for_all_threads(threads: ThreadsTarget, rng):
    """The same array is read in one layout and written in another: a barrier stands between."""

    @tw.kernel
    def turn(X):
        tile = tw.init_tile(X, [0, 0], (32, 32))
        tw.store_tile(tw.transpose(tw.load_tile(tile)), tile)

    x = rng.standard_normal((32, 32)).astype("f4")
    want = x.T.copy()
    turn.options(target="cuda")[1](x)
    np.testing.assert_array_equal(x, want)


def test_a_failed_assertion_stops_the_launch(threads: ThreadsTarget):
    @tw.kernel
    def checked(X, n):
        tw.device_assert(n < 3, "too many")
        tw.store_tile(tw.zeros((1, 4), tw.f32), tw.init_tile(X, [0, 0], (1, 4)))

    x = np.ones((1, 4), "f4")
    checked.options(target="cuda")[1](x, 2)
    assert not x.any()
    with pytest.raises(tw.CheckError, match="trap"):
        checked.options(target="cuda")[1](x, 3)


def test_shared_memory_beyond_the_machine_is_refused_with_the_ledger(threads: ThreadsTarget):
    @tw.kernel
    def large(X):
        slm = tw.alloc_slm((256, 256), tw.f32)
        tile = tw.init_tile(slm, [0, 0], (256, 256))
        tw.store_tile(tw.zeros((256, 256), tw.f32), tile)
        tw.store_tile(tw.load_tile(tile), tw.init_tile(X, [0, 0], (256, 256)))

    with pytest.raises(tw.UnsupportedError, match="262144 bytes in all, and sm_80 has 166912"):
        large.options(target="cuda")[1](np.zeros((256, 256), "f4"))


def test_maps_are_left_out_with_a_remark_or_refused(threads: ThreadsTarget):
    @tw.kernel
    def mapped(X):
        tile = tw.init_tile(X, [0, 0], (32, 32), wg_map=tw.wg_map([2, 1], [16, 32]))
        tw.store_tile(tw.load_tile(tile) + 1.0, tw.init_tile(X, [0, 0], (32, 32)))

    x = np.zeros((32, 32), "f4")
    mapped.options(target="cuda")[1](x)
    assert (x == 1).all() and "map" in threads.last.remarks[0]  # pyright: ignore
    with pytest.raises(tw.UnsupportedError, match="has a map"):
        mapped.options(target="cuda", maps="strict")[1](x)


def test_vectors_of_rank_n(threads: ThreadsTarget, rng):
    built = threads.build(parse_module(RANK_N, "rank_n.mlir"), CompileOptions())
    a = rng.standard_normal((8, 48)).astype("f4")
    b, c = np.full((4, 24), np.nan, "f4"), np.full((12, 8), np.nan, "f4")
    built.launch((1, 1, 1), [describe(x) for x in (a, b, c)])
    y = a.reshape(4, 2, 12, 4)
    sums = np.broadcast_to(y.sum((1, 3)), (2, 4, 12)).transpose(1, 2, 0).reshape(4, 24)
    np.testing.assert_allclose(b, sums, atol=1e-5)
    tops = np.maximum(y.transpose(2, 0, 1, 3).max(3), 0).reshape(12, 8)
    np.testing.assert_array_equal(c, tops)


@tw.kernel
def distances(O, first, BM: tw.constexpr = 16, BN: tw.constexpr = 32):
    m = tw.program_id(0) * BM
    for n in range(0, O.shape[1], BN):
        at = tw.arange(0, BN, axis=1, shape=(BM, BN)) + n
        row = tw.arange(0, BM, axis=0, shape=(BM, BN)) + m
        far = (at - row).to(tw.f32) + 0.5 * (at + min(m, 64) * FAR).to(tw.f32)
        tw.store_tile(far, tw.init_tile(O, [m, n], (BM, BN)))


FAR = 2**24 + 3


def test_positions_are_rounded_once_as_floats(threads: ThreadsTarget):
    """A thread's number is converted, not that of each element; what it leaves out beyond 24 bits is added first."""
    o = np.full((40, 100), np.nan, "f4")
    distances.options(target="cuda")[3](o, 0)
    row, at = np.arange(40)[:, None], np.arange(100)[None]
    far = (at + row // 16 * 16 * FAR).astype("f4")
    assert (o == (at - row).astype("f4") + np.float32(0.5) * far).all()
    assert "xi64> to vector" not in threads.last.ir["mach"]  # pyright: ignore
