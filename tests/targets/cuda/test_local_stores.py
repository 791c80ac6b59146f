"""Products whose operands the copy engine or the instruction cannot read as they are: threads bring them there."""

# Kernels are not typed Python.
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import BFloat16Type

import tilewright as tw
from tests.acceptance.kernels import gemm_init_in_loop as product
from tests.acceptance.kernels_more import running_sums
from tests.draws import fresh_rng
from tests.targets.cuda.test_asynchronous import check_passes, text_of
from tilewright import uarch
from tilewright.dialects import stage
from tilewright.dialects.text import parse_module
from tilewright.layout.memory import bank_conflicts
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.blocked import deinterleaved
from tilewright.targets.cuda.lower_async_mma import left_operand
from tilewright.targets.cuda.lower_multi_buffers import boxes
from tilewright.targets.cuda.pipeline import run_pipeline
from tilewright.uarch.sm90 import smem_tile

bf16, f8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
Array = Any
Fresh = Callable[[], tuple[list[Any], Array, Array]]


@tw.kernel
def weights_of_8_bits(A, B, S, C, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 64):  # fmt: skip
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        b = tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))).to(A.dtype)
        acc = tw.tile_mma(a, b, acc)
    scale = tw.load_tile(tw.init_tile(S, [0, n], (1, BN)))
    tw.store_tile((acc * scale).to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def chunks(Q, K, V, Y, BM: tw.constexpr = 64, D: tw.constexpr = 64):
    """Linear attention: the sum of K^T V over earlier chunks is carried, and multiplied from the right."""
    h = tw.program_id(0)
    state = tw.zeros((D, D), tw.f32)
    row = tw.arange(0, BM, axis=0, shape=(BM, BM))
    col = tw.arange(0, BM, axis=1, shape=(BM, BM))
    for m in range(0, Q.shape[1], BM):
        q = tw.load_tile(tw.init_tile(Q, [h, m, 0], (BM, D)))
        k = tw.load_tile(tw.init_tile(K, [h, m, 0], (BM, D)))
        v = tw.load_tile(tw.init_tile(V, [h, m, 0], (BM, D)))
        s = tw.where(col <= row, tw.tile_mma(q, tw.transpose(k)), 0.0)
        y = tw.tile_mma(q, state.to(V.dtype), tw.tile_mma(s.to(V.dtype), v))
        state = tw.tile_mma(tw.transpose(k), v, state)
        tw.store_tile(y, tw.init_tile(Y, [h, m, 0], (BM, D)))


@tw.kernel
def experts(A, E, W, C, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 64):
    """Every block of rows has a matrix of its own, whose number is loaded."""
    block, n = tw.program_id(0), tw.program_id(1) * BN
    e = tw.load_tile(tw.init_tile(E, [block], (1, 1))).item()
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [block * BM, k], (BM, BK)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(W, [e, k, n], (BK, BN))), acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [block * BM, n], (BM, BN)))


@tw.kernel
def rounded(A, B, C, ABOVE: tw.constexpr = False, BM: tw.constexpr = 64, BN: tw.constexpr = 64,
            BK: tw.constexpr = 32):  # fmt: skip
    """A B of f32 arrays, multiplied as tf32; ABOVE: of what is above zero in A."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        if ABOVE:
            a = tw.maximum(a, 0.0)
        b = tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))).to(tw.tf32)
        acc = tw.tile_mma(a.to(tw.tf32), b, acc)
    tw.store_tile(acc, tw.init_tile(C, [m, n], (BM, BN)))


def wide(*arrays: Array) -> list[Array]:
    return [a.astype(np.float64) for a in arrays]


def matrices(m: int, n: int, k: int, layout: str, dtype: Any) -> Fresh:
    def fresh() -> tuple[list[Any], Array, Array]:
        r = fresh_rng()
        a = r.standard_normal((k, m) if layout[0] == "T" else (m, k)).astype(dtype)
        b = r.standard_normal((n, k) if layout[1] == "T" else (k, n)).astype(dtype)
        a, b = a.T if layout[0] == "T" else a, b.T if layout[1] == "T" else b
        c = np.full((m, n), np.nan, np.float32)
        x, y = wide(a, b)
        return [a, b, c], c, x @ y

    return fresh


def above(layout: str) -> Fresh:
    plain = matrices(72, 80, 136, layout, np.float32)

    def fresh() -> tuple[list[Any], Array, Array]:
        (a, b, c), *_ = plain()
        x, y = wide(a, b)
        return [a, b, c], c, np.maximum(x, 0) @ y

    return fresh


def quantised() -> tuple[list[Any], Array, Array]:
    r = fresh_rng()
    a, b = r.standard_normal((72, 192)).astype(bf16), r.integers(-128, 128, (192, 80), np.int8)
    s, c = r.standard_normal((1, 80)).astype(np.float32), np.full((72, 80), np.nan, bf16)
    x, y, z = wide(a, b, s)
    return [a, b, s, c], c, x @ y * z


def linear() -> tuple[list[Any], Array, Array]:
    r = fresh_rng()
    q, k, v = (r.standard_normal((2, 150, 64)).astype(bf16) for _ in range(3))
    y = np.full(q.shape, np.nan, np.float32)
    x = wide(q, k, v)
    return [q, k, v, y], y, np.tril(x[0] @ x[1].swapaxes(1, 2)) @ x[2]


def sums() -> tuple[list[Any], Array, Array]:
    x = fresh_rng().standard_normal((72, 200)).astype(bf16)
    y = np.full(x.shape, np.nan, np.float32)
    return [x, y], y, np.cumsum(wide(x)[0], 1)


def of_experts() -> tuple[list[Any], Array, Array]:
    r = fresh_rng()
    a, w = r.standard_normal((128, 136)).astype(bf16), r.standard_normal((3, 136, 72)).astype(bf16)
    e, c = np.array([2, 0], np.int32), np.full((128, 72), np.nan, bf16)
    x, y = wide(a, w)
    return [a, e, w, c], c, np.concatenate([x[:64] @ y[2], x[64:] @ y[0]])


TILE = {"BM": 64, "BN": 64, "BK": 64}
LONG = {**TILE, "BK": 128}
CASES: dict[str, tuple[Any, tuple[int, ...], Fresh, dict[str, Any], int]] = {
    "f8, B's lines across k": (product, (2, 2, 1), matrices(72, 80, 256, "NN", f8), LONG, 0),
    "f8, both across": (product, (1, 1, 1), matrices(64, 64, 256, "TN", f8), LONG, 2),
    "tf32, both across": (rounded, (2, 2, 1), matrices(72, 80, 136, "TN", np.float32), {}, 2),
    "tf32, one step": (rounded, (2, 2, 1), matrices(72, 80, 32, "TN", np.float32), {}, 2),
    "tf32, A computed": (rounded, (2, 2, 1), above("TN"), {"ABOVE": True}, 2),
    "tf32, A along k computed": (rounded, (2, 2, 1), above("NN"), {"ABOVE": True}, 2),
    "rows of B unaligned": (product, (2, 2, 1), matrices(72, 75, 136, "NN", bf16), TILE, 1),
    "all rows unaligned": (product, (2, 2, 1), matrices(72, 75, 133, "NT", bf16), TILE, 1),
    "weights of 8 bits": (weights_of_8_bits, (2, 2, 1), quantised, {}, 0),
    "a carried operand": (chunks, (2, 1, 1), linear, {}, 1),
    "one operand for a loop": (running_sums, (2, 1, 1), sums, {"BM": 64, "BN": 64}, 0),
    "a loaded number": (experts, (2, 2, 1), of_experts, {}, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_warpgroups_do_the_product(name: str) -> None:
    kernel, grid, fresh, settings, puts = CASES[name]
    text = text_of(kernel, tuple(fresh()[0]), **settings)
    names, (_, ir, _) = check_passes(text, grid, fresh, after=("warp-specialization",))
    assert "xetile.tile_mma" not in ir["stage"]
    assert ir["stage"].count("stage.local_store") == puts
    assert ("stage.roles" in ir["stage"]) == ("stage.copy.issue" in ir["stage"])
    assert "local-stores" in names


def test_the_next_right_operand_is_written_beside_products() -> None:
    """A slot of A and B is free as soon as threads have read it, and the products of it are issued."""
    text = text_of(rounded, tuple(matrices(72, 80, 136, "TN", np.float32)()[0]))
    module, options = parse_module(text), CompileOptions(target="cuda", machine="sm_90a")
    seen: dict[str, str] = {}
    run_pipeline(
        module, uarch.machine("sm_90a"), options, [], lambda n, m: seen.update({n: str(m)})
    )
    loops = [part.split("scf.yield")[0] for part in seen["stage"].split("scf.for")[1:]]
    (loop,) = [part for part in loops if "stage.mma.issue" in part]
    names = (
        "stage.read.part",
        "stage.mma.issue",
        "stage.copy.release %buffer",
        "stage.local_store",
        "stage.mma.wait",
    )
    places = [loop.index(name) for name in names]
    assert places == sorted(places) and loop.rindex("stage.mma.issue") < places[2]


def test_lanes_read_deinterleaved_operands_without_bank_conflicts() -> None:
    """A [64, 32] of 4 bytes whose lines run along rows, as the lanes of a product hold it."""
    places, memory = left_operand(64, 32, 1, 4), smem_tile(32, 64, 4).permuted((1, 0))
    assert bank_conflicts(deinterleaved(places, 1), memory, 4) == 1
    assert bank_conflicts(places, memory, 4) == 2


def test_loops_without_a_counter_keep_threads_products() -> None:
    @tw.kernel
    def until(A, B, C, limit, BK: tw.constexpr = 64):
        acc = tw.zeros((64, 64), tw.f32)
        k = 0
        while k < A.shape[1]:
            if k >= limit:
                break
            a = tw.load_tile(tw.init_tile(A, [0, k], (64, BK)))
            acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, 0], (BK, 64))), acc)
            k += BK
        tw.store_tile(acc, tw.init_tile(C, [0, 0], (64, 64)))

    a, b = np.zeros((64, 256), bf16), np.zeros((256, 64), bf16)
    text = text_of(until, (a, b, np.zeros((64, 64), np.float32), 128))
    remarks: list[str] = []
    options = CompileOptions(target="cuda", machine="sm_90a")
    run_pipeline(parse_module(text), uarch.machine("sm_90a"), options, remarks)
    assert any("a loop without a counter" in r for r in remarks)


@pytest.mark.parametrize(("columns", "pending"), [(64, 0), (128, 1)])
def test_a_panel_is_written_when_it_has_been_read(columns: int, pending: int) -> None:
    """Of an odd number of panels the last is the next store's first."""
    specs = [tw.spec((256, 256), tw.bf16)] * 3
    code = product.compile(*specs, BM=64, BN=columns, BK=64, target="sm_90a").asm["ptx"]
    assert code.count(f"cp.async.bulk.wait_group.read \t{pending}") == columns // 64


@pytest.mark.parametrize(
    ("lines", "each"), [(64, 64), (256, 256), (320, 160), (384, 192), (512, 256)]
)
def test_boxes_of_a_panel_are_equal(lines: int, each: int) -> None:
    """A multi-buffer waits for as many bytes as its parts have: a box beyond a panel's end would keep it waiting."""
    part = stage.PartAttr((lines, 32), BFloat16Type(), (1, 0), 64)
    found, height = boxes(part)
    assert height == each and [line for line, *_ in found] == list(range(0, lines, each))
