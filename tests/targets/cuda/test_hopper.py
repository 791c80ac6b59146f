"""sm_90a code in the reference executor, thread by thread: right under every schedule, and what orders it is needed."""

# Kernels are not typed Python, and fixtures give what they say.
# pyright: reportMissingParameterType=false, reportUnknownMemberType=false
from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests import arrays
from tests.acceptance import kernels as k
from tests.targets.cuda.test_local_stores import chunks, weights_of_8_bits
from tests.targets.cuda.threads import run_threads
from tilewright import uarch
from tilewright.diagnostics import CheckError
from tilewright.dialects.text import parse_module
from tilewright.observer import ignore
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.lowered import LoweredThread
from tilewright.targets.cuda.pipeline import run_pipeline
from tilewright.targets.cuda.work_split import UNSPLIT, WorkSplit
from tilewright.targets.stages import printed_into

bf16, f8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
Array = Any
SCHEDULES = ("late", "early", "random")


@tw.kernel
def scaled_blocks(A, B, SA, SB, C, BM: tw.constexpr = 64, BN: tw.constexpr = 64):
    """A scale per row, column and 128 of k: no sum over the loop stays in the product."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for i in range(tw.cdiv(A.shape[1], 128)):
        a = tw.load_tile(tw.init_tile(A, [m, i * 128], (BM, 128)))
        b = tw.load_tile(tw.init_tile(B, [i * 128, n], (128, BN)))
        rows = tw.load_tile(tw.init_tile(SA, [m, i], (BM, 1)))
        columns = tw.load_tile(tw.init_tile(SB, [i, n], (1, BN)))
        acc = acc + tw.tile_mma(a, b) * rows * columns
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


def lowered(
    kernel: Any,
    args: list[Any],
    split: WorkSplit = UNSPLIT,
    facts: str = "reference",
    **constants: Any,
) -> LoweredThread:
    """`facts`: of the arrays, what this target is told."""
    text = kernel.compile(*args, target=facts, **constants).ir["xetile"]
    ir: dict[str, str] = {}
    options = CompileOptions("cuda", "sm_90a")
    machine = uarch.machine("sm_90a")
    found = run_pipeline(parse_module(text), machine, options, [], printed_into(ir), ignore, split)
    assert "stage" in ir, "nothing of it is asynchronous"
    return found


def execute(
    code: LoweredThread, args: list[Any], grid: tuple[int, int, int], schedule: str, seed: int = 0
) -> list[Any]:
    """Copies of the arguments, as the kernel leaves them."""
    mine = [np.array(a, order="K") if isinstance(a, np.ndarray) else a for a in args]
    given = [describe(a) if isinstance(a, np.ndarray) else a for a in mine]
    run_threads(code, given, grid, schedule, seed)  # pyright: ignore
    return mine


def check(
    kernel: Any, args: list[Any], grid: tuple[int, int, int], limit: float, **constants: Any
) -> LoweredThread:
    """All results as the reference executor's, under every schedule."""
    wanted = [np.array(a, order="K") if isinstance(a, np.ndarray) else a for a in args]
    plain = {name: value for name, value in constants.items() if name not in ("split", "facts")}
    kernel.options(target="reference")[grid](*wanted, **plain)
    code = lowered(kernel, args, **constants)
    for schedule in SCHEDULES:
        for got, want in zip(execute(code, args, grid, schedule), wanted, strict=True):
            if isinstance(got, np.ndarray):
                difference = np.linalg.norm(got.astype(float) - want.astype(float))
                assert difference <= limit * np.linalg.norm(want.astype(float)), schedule
    return code


def values(rng: np.random.Generator, *shape: int, dtype: Any = bf16) -> Array:
    return rng.standard_normal(shape).astype(dtype)


poison = partial(arrays.poison, dtype=bf16)


@pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
def test_products(layout, rng):
    a, b = values(rng, 136, 160), values(rng, 160, 200)
    a = np.asfortranarray(a) if layout[0] == "T" else a
    b = np.asfortranarray(b) if layout[1] == "T" else b
    rows = 256 if layout == "NT" else 64  # two warpgroups with two products each, or one with one
    check(k.gemm, [a, b, poison(136, 200)], (3, 2, 1), 1e-2, BM=rows, BN=128, BK=64)


@tw.kernel
def somewhere(A, B, C, ROW, FROM, COUNT):
    """B from row FROM on, counted and as a sum; to C from ROW on."""
    acc = tw.zeros((64, 64), tw.f32)
    for i in range(FROM, FROM + COUNT, 64):
        a = tw.load_tile(tw.init_tile(A, [0, i - FROM], (64, 64)))
        b = tw.load_tile(tw.init_tile(B, [i, 0], (64, 64)))
        acc = tw.tile_mma(a, b, acc)
    for i in range(0, B.shape[0], 64):
        a = tw.load_tile(tw.init_tile(A, [0, i], (64, 64)))
        b = tw.load_tile(tw.init_tile(B, [FROM + i, 0], (64, 64)))
        acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [ROW, 0], (64, 64)))


@pytest.mark.parametrize(
    "row, start", [(0, 1 << 32), (0, (-1 << 32) - 32), (1 << 32, 0), ((-1 << 32) - 8, -64)]
)
def test_places_beyond_32_bits_lie_outside(row, start, rng):
    """What is loaded there is zero, and what is stored there is dropped."""
    a, b = values(rng, 64, 128), values(rng, 128, 64)
    old = values(rng, 64, 64)
    check(somewhere, [a, b, old, row, start, 128], (1, 1, 1), 1e-2)


@pytest.mark.parametrize(
    "split, cluster",
    [
        (WorkSplit(1, 4, 1), 4),
        (WorkSplit(1, 3), 3),
        (WorkSplit(1, 7), 7),
        (WorkSplit(2, 2, 1), 2),
        (WorkSplit(2, 1, 2), 1),
    ],
    ids=str,
)
def test_products_of_several_workgroups(split, cluster, rng):
    a, b = values(rng, 128, 256), np.asfortranarray(values(rng, 256, 72))
    args = [a, b, poison(128, 72)]
    code = check(k.gemm, args, (1, 1, 1), 1e-2, split=split, BM=128, BN=128, BK=32)
    assert code.cluster == (cluster, 1, 1)


def test_a_cluster_adds_up_one_sum_after_the_other(rng):
    """What rank 0 still collects of the first is not overwritten by the second."""
    x, w, v = values(rng, 64, 256), values(rng, 256, 64), values(rng, 256, 64)
    args = [x, w, v, poison(64, 64)]
    code = check(k.gate_up, args, (1, 1, 1), 1e-2, split=WorkSplit(1, 4, 1), BM=64, BN=64)
    wanted = execute(code, args, (1, 1, 1), "early")[3]
    for seed in range(6):
        got = execute(code, args, (1, 1, 1), "random", seed)[3]
        assert np.array_equal(got, wanted)


def test_two_sums_and_an_epilogue_that_adds_to_memory(rng):
    x, w, v = values(rng, 64, 96), values(rng, 96, 128), values(rng, 96, 128)
    check(k.gate_up, [x, w, v, poison(64, 128)], (1, 2, 1), 1e-2)
    bias, rows = values(rng, 128, dtype="f4"), np.zeros((64, 1), "f4")
    check(k.bias_gelu_rowsum, [x, w, bias, poison(64, 128), rows], (1, 1, 1), 1e-2)


def test_products_that_depend_on_one_another(rng):
    q, key, v = (values(rng, 1, 150, 64) for _ in range(3))
    args = [q, key, v, poison(1, 150, 64, dtype="f4"), 0.125]
    check(k.window_attention, args, (2, 1, 1), 1e-2, W=70, CAP=20.0, BM=128, BN=64)
    check(chunks, [q, key, v, poison(1, 150, 64, dtype="f4")], (1, 1, 1), 1e-2)


def test_operands_of_bytes(rng):
    a, b = values(rng, 64, 256, dtype=f8), np.asfortranarray(values(rng, 256, 64, dtype=f8))
    rows, columns = values(rng, 64, 2, dtype="f4"), values(rng, 2, 64, dtype="f4")
    check(scaled_blocks, [a, b, rows, columns, poison(64, 64)], (1, 1, 1), 1e-2)
    weights = rng.integers(-128, 128, (128, 64), np.int8)
    scales = values(rng, 1, 64, dtype="f4")
    check(weights_of_8_bits, [values(rng, 64, 128), weights, scales, poison(64, 64)], (1, 1, 1), 1e-2)  # fmt: skip


ORDERS = (
    *("gpu.barrier", "bar.sync", "fence.proxy.async", "fence.mbarrier_init"),
    *("mbarrier.init", "mbarrier.arrive", "mbarrier.arrive.expect_tx", "mbarrier.wait.parity"),
    *("wgmma.fence", "wgmma.commit", "wgmma.wait", "wgmma.wait.f32x32"),
    *("bulk.commit_group", "bulk.wait_group", "bulk.wait_group.read"),
)


@pytest.mark.parametrize("which", ORDERS)
def test_nothing_that_orders_can_be_left_out(which, rng):
    """Checking mode finds it under any schedule: a race, a deadlock, or a rule that is broken."""
    # The last programs' rows and columns end within their tiles, and are copied by other instructions than whole
    # tiles.
    args = [values(rng, 300, 640), values(rng, 640, 104), poison(300, 104)]
    code = lowered(k.gemm, args, BM=64, BN=64, BK=64)
    names = [(op, getattr(op, "instruction", None)) for op in code.module.walk()]
    found = [op for op, name in names if which in (op.name, name and name[len("nvptx.") :])]
    op = rng.choice(found)
    for result, operand in zip(op.results, op.operands, strict=False):
        result.replace_all_uses_with(operand)
    op.detach()
    with pytest.raises(CheckError):
        execute(code, args, (5, 2, 1), str(rng.choice(SCHEDULES)))
