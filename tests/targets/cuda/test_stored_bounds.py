"""Rows and columns that no store writes are not copied, and nothing sees what lies in their place."""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects import arith

import tilewright as tw
from tests.arrays import error
from tests.draws import fresh_rng
from tests.targets.cuda.test_asynchronous import gemm, text_of
from tests.targets.cuda.threads import run_threads
from tilewright import uarch
from tilewright.dialects import mach, stage
from tilewright.dialects.text import parse_module
from tilewright.reference import run
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.lowered import LoweredThread, TensorMapOf
from tilewright.targets.cuda.pipeline import run_pipeline
from tilewright.targets.cuda.work_split import UNSPLIT, WorkSplit
from tilewright.targets.stages import printed_into

bf16 = ml_dtypes.bfloat16
OPTIONS = CompileOptions(target="cuda", machine="sm_90a")


def built(text: str, split: WorkSplit = UNSPLIT) -> tuple[LoweredThread, str]:
    """The last stage, and the text of the stage before it."""
    ir: dict[str, str] = {}
    machine = uarch.machine("sm_90a")
    made = run_pipeline(parse_module(text), machine, OPTIONS, [], printed_into(ir), split=split)
    return made, ir["stage"]


def issues(text: str) -> list[stage.CopyIssueOp]:
    return [op for op in parse_module(text).walk() if isinstance(op, stage.CopyIssueOp)]


def operands(layout: str, m: int, n: int, k: int, kind: Any) -> tuple[Any, Any, Any]:
    r = fresh_rng()
    a = r.standard_normal((k, m) if layout[0] == "T" else (m, k)) * 4
    b = r.standard_normal((n, k) if layout[1] == "T" else (k, n)) * 4
    a, b = a.astype(kind), b.astype(kind)
    a, b = a.T if layout[0] == "T" else a, b.T if layout[1] == "T" else b
    return a, b, a.astype(np.float64) @ b.astype(np.float64)


CASES = [
    ("NT", 70, 200, 96, bf16, UNSPLIT),
    ("NN", 200, 136, 72, np.float16, UNSPLIT),
    ("TN", 136, 72, 64, bf16, UNSPLIT),
    ("NT", 70, 136, 200, ml_dtypes.float8_e4m3fn, UNSPLIT),
    ("NT", 70, 136, 200, np.int8, UNSPLIT),
    ("NT", 72, 200, 264, bf16, WorkSplit(1, 2)),
    ("NN", 72, 200, 264, bf16, WorkSplit(2, 2)),
    ("NT", 200, 200, 264, bf16, WorkSplit(2, 1)),
]


@pytest.mark.parametrize(("layout", "m", "n", "k", "kind", "split"), CASES)
def test_products_of_ragged_arrays(
    layout: str, m: int, n: int, k: int, kind: Any, split: WorkSplit
) -> None:
    a, b, wanted = operands(layout, m, n, k, kind)
    integer = np.dtype(kind).kind == "i"
    c = np.zeros((m, n), np.int32 if integer else np.float32)
    constants = {"ACC": tw.i32} if integer else {}
    text = text_of(product if integer else gemm, (a, b, c), **constants)
    lowered, staged = built(text, split)
    assert all(op.stored for op in issues(staged))
    grid = (-(-m // 64) * lowered.split, -(-n // 128), 1)
    for schedule in ("late", "early", "random"):
        c.fill(77)
        run(parse_module(staged), grid, [a, b, c], schedule=schedule, seed=3)  # pyright: ignore
        assert error(c, wanted) < 1e-3, schedule
        c.fill(77)
        launch = (-(-m // 64), -(-n // 128), 1)
        run_threads(lowered, [describe(x) for x in (a, b, c)], launch, schedule, 3)  # pyright: ignore
        assert error(c, wanted) < 1e-3, schedule


@tw.kernel
def product(A, B, C, ACC: tw.constexpr, BM: tw.constexpr = 64, BN: tw.constexpr = 128):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), ACC)
    for k in range(0, A.shape[1], 128):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, 128)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (128, BN))), acc)
    tw.store_tile(acc, tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def summed(A, B, C, S):
    """C = A B, and the sums of its columns."""
    m, n = tw.program_id(0) * 64, tw.program_id(1) * 128
    acc = tw.zeros((64, 128), tw.f32)
    for k in range(0, A.shape[1], 64):
        a = tw.load_tile(tw.init_tile(A, [m, k], (64, 64)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (64, 128))), acc)
    tw.store_tile(acc, tw.init_tile(C, [m, n], (64, 128)))
    tw.store_tile(tw.sum(acc, 0), tw.init_tile(S, [tw.program_id(0), n], (1, 128)))


@tw.kernel
def shifted(A, B, C):
    """C = A[8:] B: a row of A is stored to another row."""
    m, n = tw.program_id(0) * 64, tw.program_id(1) * 128
    acc = tw.zeros((64, 128), tw.f32)
    for k in range(0, A.shape[1], 64):
        a = tw.load_tile(tw.init_tile(A, [m + 8, k], (64, 64)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (64, 128))), acc)
    tw.store_tile(acc, tw.init_tile(C, [m, n], (64, 128)))


@tw.kernel
def twice(A, B, C):
    """C = (A B) B: the columns of the first product are k of the second, and so are the rows of the second B."""
    m = tw.program_id(0) * 64
    acc = tw.zeros((64, 64), tw.f32)
    b = tw.load_tile(tw.init_tile(B, [0, 0], (64, 64)))
    for k in range(0, A.shape[1], 64):
        acc = tw.tile_mma(tw.load_tile(tw.init_tile(A, [m, k], (64, 64))), b, acc)
    tw.store_tile(tw.tile_mma(acc.to(bf16_), b), tw.init_tile(C, [m, 0], (64, 64)))


bf16_ = tw.bf16


def bounded(kernel: Any, *args: Any) -> set[tuple[int, int]]:
    """(tile, dimension) of what copies leave out."""
    _, text = built(text_of(kernel, args))
    return {
        (n, dim) for op in issues(text) for n in range(len(op.tiles)) for dim, *_ in op.bounds(n)
    }


def test_what_is_seen_is_copied() -> None:
    a, b, c = np.zeros((70, 200), bf16), np.zeros((200, 136), bf16), np.zeros((70, 136), np.float32)
    assert bounded(gemm, a, b, c) == {(0, 0), (1, 1)}
    # Sums over rows see every row of A; columns of B stay columns, but reach two arrays.
    assert not bounded(summed, a, b, c, np.zeros((2, 136), np.float32))
    assert bounded(shifted, a, b, c) == {(1, 1)}
    found = bounded(
        twice, np.zeros((70, 64), bf16), np.zeros((64, 64), bf16), np.zeros((70, 64), np.float32)
    )
    assert (1, 1) not in found and (1, 0) not in found


def test_results_where_rows_are_seen() -> None:
    a, b, wanted = operands("NT", 70, 136, 96, bf16)
    c, s = np.full((70, 136), 77, np.float32), np.full((2, 136), 77, np.float32)
    lowered, _ = built(text_of(summed, (a, b, c, s)))
    run_threads(lowered, [describe(x) for x in (a, b, c, s)], (2, 2, 1))
    assert error(c, wanted) < 1e-3
    assert error(s, np.stack([wanted[:64].sum(0), wanted[64:].sum(0)])) < 1e-3


def test_an_array_that_ends_before_what_is_stored() -> None:
    """Rows that C has and A lacks are zero."""
    a, b, wanted = operands("NT", 66, 136, 96, bf16)
    c = np.full((100, 136), 77, np.float32)
    lowered, _ = built(text_of(gemm, (a, b, c)))
    run_threads(lowered, [describe(x) for x in (a, b, c)], (2, 2, 1))
    assert error(c[:66], wanted) < 1e-3 and not c[66:].any()


def test_boxes_of_a_launch() -> None:
    """What is left of C's rows behind whole boxes; a whole box where nothing is."""
    slot = TensorMapOf(0, (1, 0), (64, 128), "bf16", rest=(2, 0))
    assert slot.box_of(lambda argument, dim: 404) == (64, 20)
    assert slot.box_of(lambda argument, dim: 384) == (64, 128)
    assert TensorMapOf(0, (1, 0), (64, 128), "bf16").box_of(lambda argument, dim: 404) == (64, 128)


def test_the_last_programs_copy_without_a_condition_at_each_box() -> None:
    """Whether all of a box's lines are seen chooses its tensor map; a program asks once whether any are."""
    a, b, _ = operands("NT", 70, 136, 96, bf16)
    lowered, _ = built(text_of(gemm, (a, b, np.zeros((70, 136), np.float32))))
    loads: list[list[mach.InstrOp]] = []
    for op in lowered.module.walk():
        if isinstance(op, mach.InstrOp) and "expect_tx" in op.instruction:
            block = op.parent
            assert block is not None
            here = [o for o in block.ops if isinstance(o, mach.InstrOp)]
            loads.append([o for o in here if "tma.load" in o.instruction])
    # All of the lines, what is left of them, and tiles that lie behind the last.
    chosen = [sum(isinstance(o.operands[2].owner, arith.SelectOp) for o in each) for each in loads]
    assert [len(each) for each in loads] == [2, 2, 0]
    assert chosen == [0, 2, 0]


@pytest.mark.parametrize("m", [100, 200, 500, 600])
def test_tiles_of_several_boxes(m: int) -> None:
    """384 lines are two boxes, of which any may end at the last row, or lie behind it; so may whole programs."""
    a, b, wanted = operands("NT", m, 64, 96, bf16)
    c = np.full((m, 64), 77, np.float32)
    lowered, _ = built(text_of(product, (a, b, c), ACC=tw.f32, BM=384, BN=64))
    for schedule in ("late", "early"):
        run_threads(lowered, [describe(x) for x in (a, b, c)], (3, 1, 1), schedule, 3)  # pyright: ignore
        assert error(c, wanted) < 1e-3, schedule
