"""Products one operand of which is computed of what is loaded: warpgroups take it from registers, in slices of k."""

# Kernels are not typed Python, and fixtures give what they say.
# pyright: reportMissingParameterType=false, reportUnknownMemberType=false
from __future__ import annotations

import numpy as np
import pytest
from ml_dtypes import float8_e4m3fn

import tilewright as tw
from tests.targets.cuda.test_hopper import check, lowered, poison, values


@tw.kernel
def by_columns(A, W, scale, C, BM: tw.constexpr = 128, BN: tw.constexpr = 64, BK: tw.constexpr = 32):  # fmt: skip
    """C = A (W scale): W is [K, N] of i8, scaled by column in the loop."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    s = tw.load_tile(tw.init_tile(scale, [n], (1, BN)))
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        w = tw.load_tile(tw.init_tile(W, [k, n], (BK, BN))).to(tw.f32) * s + 0.5
        acc = tw.tile_mma(a, w.to(A.dtype), acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def of_nibbles(A, W, scale, C, BM: tw.constexpr = 128, BN: tw.constexpr = 64, BK: tw.constexpr = 64):  # fmt: skip
    """C = A w^T: W is [N, K / 2] bytes of two numbers each, the low bits first, scale [N, K / BK]."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        q = tw.load_tile(tw.init_tile(W, [n, k // 2], (BN, BK // 2)))
        s = tw.load_tile(tw.init_tile(scale, [n, k // BK], (BN, 1)))
        w = tw.interleave(q << 4 >> 4, q >> 4).to(A.dtype) * s
        acc = tw.tile_mma(a, tw.transpose(w), acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def of_rows(X, inverse, G, W, C, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 64):  # fmt: skip
    """C = (X inverse G) W^T: inverse a column, G a row along k."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    r = tw.load_tile(tw.init_tile(inverse, [m, 0], (BM, 1)))
    for k in range(0, X.shape[1], BK):
        g = tw.load_tile(tw.init_tile(G, [k], (1, BK))).to(tw.f32)
        x = tw.load_tile(tw.init_tile(X, [m, k], (BM, BK))).to(tw.f32) * r * g
        w = tw.load_tile(tw.init_tile(W, [n, k], (BN, BK)))
        acc = tw.tile_mma(x.to(X.dtype), tw.transpose(w), acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


def code_of(kernel, args, grid, **constants) -> str:
    return str(check(kernel, args, grid, 1e-2, **constants).module)


@pytest.mark.parametrize("rows", [128, 24])
@pytest.mark.parametrize("layout", ["N", "T"])
def test_a_computed_right_operand_comes_from_registers(rows, layout, rng):
    """Its product is computed transposed, with many rows as with few."""
    w = rng.integers(-128, 128, (96, 80)).astype("i1")
    w = np.asfortranarray(w) if layout == "T" else w
    scale = rng.random(80).astype("f4")
    args = [values(rng, 40, 96), w, scale, poison(40, 80)]
    text = code_of(by_columns, args, (-(-40 // rows), 2, 1), BM=rows)
    assert f"wgmma.m64n{rows}k16.f32.bf16.bf16.rs" in text and ".ss" not in text
    assert text.count(f"wgmma.m64n{rows}k16") == 2  # one for each slice of k


def test_two_numbers_of_a_byte_come_from_registers(rng):
    w = rng.integers(-128, 128, (64, 96)).astype("i1")
    scale = (rng.random((64, 3)) + 0.5).astype(values(rng, 1).dtype)
    args = [values(rng, 72, 192), w, scale, poison(72, 64)]
    text = code_of(of_nibbles, args, (1, 1, 1))
    assert text.count("wgmma.m64n128k16.f32.bf16.bf16.rs") == 4
    assert "nvptx.tma.load" in text


def test_a_row_along_k_is_loaded_in_slices(rng):
    args = [
        values(rng, 64, 160),
        rng.random((64, 1)).astype("f4"),
        values(rng, 160),
        values(rng, 64, 160),
    ]
    code = check(of_rows, [*args, poison(64, 64)], (1, 1, 1), 1e-2)
    assert str(code.module).count("wgmma.m64n64k16.f32.bf16.bf16.rs") == 4


@tw.kernel
def twice(A, W, C, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 64):
    """Both operands are computed: the right one is written to shared memory."""
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [0, k], (BM, BK))).to(tw.bf16)
        w = tw.load_tile(tw.init_tile(W, [k, 0], (BK, BN))).to(tw.bf16)
        acc = tw.tile_mma(a, w, acc)
    tw.store_tile(acc, tw.init_tile(C, [0, 0], (BM, BN)))


def test_of_two_computed_operands_the_left_one_comes_from_registers(rng):
    a, w = (rng.integers(-9, 10, s).astype("i1") for s in ((64, 128), (128, 64)))
    code = lowered(twice, [a, w, poison(64, 64, dtype="f4")])
    assert "wgmma.m64n64k16.f32.bf16.bf16.rs" in str(code.module)


def loop_of(kernel, *args, **sizes) -> list[str]:
    """The ops of the loop of products in the stage IR, a line each."""
    text = kernel.compile(*args, target="sm_90a", **sizes).ir["stage"]
    lines = [line.strip() for line in text.splitlines()]
    first = next(i for i, line in enumerate(lines) if "stage.mma.issue" in line)
    start = max(i for i, line in enumerate(lines[:first]) if "scf.for" in line)
    return lines[start : lines.index("}", first)]


ROWS = (tw.spec((4096, 4096), tw.bf16), tw.spec((4096, 1), tw.f32), tw.spec((4096,), tw.bf16))
NIBBLES = (tw.spec((4096, 4096), tw.bf16), tw.spec((4096, 2048), tw.i8), tw.spec((4096, 64), tw.bf16))  # fmt: skip
SQUARE = tw.spec((4096, 4096), tw.bf16)


@pytest.mark.parametrize(
    "kernel, args", [(of_rows, (*ROWS, SQUARE, SQUARE)), (of_nibbles, (*NIBBLES, SQUARE))]
)
def test_rows_and_columns_are_loaded_an_iteration_ahead(kernel, args) -> None:
    lines = loop_of(kernel, *args)
    loads = [i for i, line in enumerate(lines) if "xetile.load_tile" in line]
    wait = next(i for i, line in enumerate(lines) if "stage.copy.wait" in line)
    names = [lines[i].split(" = ")[0] for i in loads]
    assert loads and max(loads) < wait
    assert all(name in lines[-1] for name in names)  # carried, not used
    assert not any(name in line for name in names for line in lines[max(loads) + 1 : -1])


@tw.kernel
def along_columns(A, W, scale, C, BM: tw.constexpr = 128, BN: tw.constexpr = 64, BK: tw.constexpr = 64):  # fmt: skip
    """C = A W: W is [K, N / 2] bytes of two numbers each, the low bits first, scale [K / BK, N]."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        q = tw.load_tile(tw.init_tile(W, [k, n // 2], (BK, BN // 2)))
        s = tw.load_tile(tw.init_tile(scale, [k // BK, n], (1, BN)))
        w = tw.interleave(q << 4 >> 4, q >> 4).to(A.dtype) * s
        acc = tw.tile_mma(a, w, acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@pytest.mark.parametrize("rows, columns", [(128, 64), (16, 64), (40, 128)])
@pytest.mark.parametrize("result", ["bf16", "f4"])
def test_numbers_that_alternate_along_n_come_from_registers(rows, columns, result, rng):
    """Threads hold neighbouring rows of the transposed product, and store them side by side."""
    w = rng.integers(-128, 128, (192, 64)).astype("i1")
    scale = (rng.random((3, 128)) + 0.5).astype(values(rng, 1).dtype)
    out = poison(72, 128) if result == "bf16" else poison(72, 128, dtype="f4")
    grid = (-(-72 // rows), 128 // columns, 1)
    text = code_of(along_columns, [values(rng, 72, 192), w, scale, out], grid, BM=rows, BN=columns)
    assert text.count(f"wgmma.m64n{rows}k16.f32.bf16.bf16.rs") == 4
    assert "nvptx.tma.store" in text and "stmatrix" not in text


def test_bytes_along_n_are_read_two_at_a_time(rng):
    w = rng.integers(-128, 128, (64, 64)).astype("i1")
    args = [values(rng, 40, 64), w, rng.random(64).astype("f4"), poison(40, 64)]
    code = code_of(by_columns, args, (1, 1, 1))
    assert "vector<1xi16>" in code


@tw.kernel
def by_blocks(A, B, left, right, C, BM: tw.constexpr = 128, BN: tw.constexpr = 64, BK: tw.constexpr = 128):  # fmt: skip
    """C = A B^T of f8, where each BK of k have a scale for each row of A, and one for all of B."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        b = tw.load_tile(tw.init_tile(B, [n, k], (BN, BK)))
        x = tw.load_tile(tw.init_tile(left, [m, k // BK], (BM, 1)))
        y = tw.load_tile(tw.init_tile(right, [0, k // BK], (1, 1)))
        acc += tw.tile_mma(a, tw.transpose(b), tw.zeros((BM, BN), tw.f32)) * (x * y)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


BLOCKS = (
    tw.spec((4096, 4096), tw.f8e4m3), tw.spec((4096, 4096), tw.f8e4m3),
    tw.spec((4096, 64), tw.f32), tw.spec((1, 64), tw.f32), SQUARE,
)  # fmt: skip


@pytest.mark.parametrize(
    "sizes, turns",
    [({}, True), ({"BM": 64}, False), ({"BK": 32}, False)],  # one warpgroup; more arithmetic
)
def test_warpgroups_take_turns_where_they_compute_on_one_product(sizes, turns):
    found = loop_of(by_blocks, *BLOCKS, **sizes)
    assert any("stage.ping_pong.acquire" in line for line in found) == turns
    issue, load, wait = (
        next(i for i, line in enumerate(found) if what in line)
        for what in ("stage.mma.issue", "xetile.load_tile", "stage.mma.wait")
    )
    assert issue < load < wait  # what their places take is computed beside the product


def test_scales_by_blocks(rng):
    a, b = (
        rng.standard_normal(s).astype("f4").astype(float8_e4m3fn) for s in ((136, 384), (72, 384))
    )
    left, right = (rng.random(s).astype("f4") + 0.5 for s in ((136, 3), (1, 3)))
    text = code_of(by_blocks, [a, b, left, right, poison(136, 72)], (2, 2, 1))
    assert "bar.arrive" in text
