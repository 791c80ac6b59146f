"""What the passes for sm_90a make of kernels with two products in a loop, beyond ops.attention: masks, caps, biases."""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, SSAValue

import tilewright as tw
from tests.draws import fresh_rng
from tests.targets.cuda.test_asynchronous import (
    attention_case,
    check_passes,
    machine_code,
    text_of,
)
from tilewright import uarch
from tilewright.dialects import stage
from tilewright.dialects.text import parse_module
from tilewright.ops.attention import attention_kernel
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.passes import raster
from tilewright.targets.cuda.pipeline import run_pipeline

bf16 = ml_dtypes.bfloat16
Array = Any


@tw.kernel
def variant(
    Q, K, V, O, scale, KIND: tw.constexpr, D: tw.constexpr = 64, BM: tw.constexpr = 64, BN: tw.constexpr = 64,
):  # fmt: skip
    """Softmax of scores that are capped, windowed or biased; the sum begins at one (a sink of weight one)."""
    m, h = tw.program_id(0) * BM, tw.program_id(1)
    q = tw.load_tile(tw.init_tile(Q, [h, m, 0], (BM, D)))
    top = tw.full((BM, 1), 0.0, tw.f32)
    total = tw.full((BM, 1), 1.0, tw.f32)
    out = tw.zeros((BM, D), tw.f32)
    keys = min(m + BM, K.shape[1]) if KIND == "window" else K.shape[1]
    for n in range(0, keys, BN):
        k = tw.load_tile(tw.init_tile(K, [h, n, 0], (BN, D)))
        s = tw.tile_mma(q, tw.transpose(k)) * scale
        row = tw.arange(0, BM, axis=0, shape=(BM, BN)) + m
        key = tw.arange(0, BN, axis=1, shape=(BM, BN)) + n
        if KIND == "cap":
            s = tw.tanh(s * 0.5) * 2.0
        if KIND == "window":
            s = tw.where((key <= row) & (key + 40 > row), s, -1.0e30)
        if KIND == "bias":
            s = s + (key - row).to(tw.f32) * 0.01
        s = tw.where(key < K.shape[1], s, -1.0e30)
        new = tw.maximum(top, tw.max(s, 1))
        p = tw.exp(s - new)
        keep = tw.exp(top - new)
        total = total * keep + tw.sum(p, 1)
        v = tw.load_tile(tw.init_tile(V, [h, n, 0], (BN, D)))
        out = tw.tile_mma(p.to(V.dtype), v, out * keep)
        top = new
    tw.store_tile((out / total).to(O.dtype), tw.init_tile(O, [h, m, 0], (BM, D)))


def scores(kind: str, q: Array, k: Array) -> Array:
    s = q.astype(np.float64) @ k.astype(np.float64).swapaxes(1, 2) / 8
    row, key = np.indices(s.shape[1:])
    if kind == "cap":
        s = np.tanh(s * 0.5) * 2
    if kind == "window":
        s = np.where((key <= row) & (key + 40 > row), s, -np.inf)
    if kind == "bias":
        s = s + (key - row) * 0.01
    return s


@pytest.mark.parametrize("kind", ["cap", "window", "bias"])
def test_sums_are_kept_per_lane(kind: str) -> None:
    """Masks, caps and biases change nothing: the sum leaves the loop as four columns, its first value among them."""
    heads, length, depth = 1, 200, 64

    def fresh() -> tuple[list[Any], Array, Array]:
        r = fresh_rng()
        q, k, v = (r.standard_normal((heads, length, depth)).astype(bf16) for _ in range(3))
        o = np.full_like(q, np.nan)
        s = scores(kind, q, k)
        top = np.maximum(s.max(-1, keepdims=True), 0)
        p = np.exp(s - top)
        wanted = p / (p.sum(-1, keepdims=True) + np.exp(-top)) @ v.astype(np.float64)
        return [q, k, v, o, np.float32(0.125)], o, wanted

    text = text_of(variant, tuple(fresh()[0]), KIND=kind)
    names, (_, ir, _) = check_passes(
        text,
        (4, heads, 1),
        fresh,
        after=("index-set-splitting", "deferred-reduction", "warp-specialization"),
    )
    assert "deferred-reduction" in names
    assert "vector<64x4xf32> -> vector<64x1xf32>" in ir["stage"]
    assert ("mach.absolute" in ir["stage"]) == (kind == "cap")
    # A loop without masks, and one or two with them; the last product of each iteration runs beside the next.
    assert ir["stage"].count("{pending = 1 : i64}") == {"cap": 2, "window": 6, "bias": 2}[kind]


@tw.kernel
def several(
    Q, R, K, L, V, W, O, P, KIND: tw.constexpr, D: tw.constexpr = 64, BM: tw.constexpr = 64, BN: tw.constexpr = 64,
):  # fmt: skip
    """Attention whose scores are the sum of two products (KIND "two"), or whose result has two parts ("parts"), or
    whose keys count half as much as those of the block after, by a product at the iteration's begin ("fading")."""
    m = tw.program_id(0) * BM
    q = tw.load_tile(tw.init_tile(Q, [m, 0], (BM, D)))
    r = tw.load_tile(tw.init_tile(R, [m, 0], (BM, D)))
    top = tw.full((BM, 1), 0.0, tw.f32)
    out = tw.zeros((BM, D), tw.f32)
    other = tw.zeros((BM, D), tw.f32)
    for n in range(0, K.shape[0], BN):
        if KIND == "fading":
            out = out * 0.5
        k = tw.load_tile(tw.init_tile(K, [n, 0], (BN, D)))
        s = tw.tile_mma(q, tw.transpose(k))
        if KIND == "two":
            s = tw.tile_mma(r, tw.transpose(tw.load_tile(tw.init_tile(L, [n, 0], (BN, D)))), s)
        new = top if KIND == "fading" else tw.maximum(top, tw.max(s * 0.125, 1))
        p = tw.exp(s * 0.125 - new).to(V.dtype)
        keep = tw.exp(top - new)
        top = new
        if KIND != "fading":
            out = out * keep
        out = tw.tile_mma(p, tw.load_tile(tw.init_tile(V, [n, 0], (BN, D))), out)
        if KIND == "parts":
            other = tw.tile_mma(p, tw.load_tile(tw.init_tile(W, [n, 0], (BN, D))), other * keep)
    tw.store_tile(out.to(O.dtype), tw.init_tile(O, [m, 0], (BM, D)))
    if KIND == "parts":
        tw.store_tile(other.to(P.dtype), tw.init_tile(P, [m, 0], (BM, D)))


@pytest.mark.parametrize("kind", ["two", "parts", "fading"])
def test_any_number_of_products_is_rotated(kind: str) -> None:
    length, depth = 192, 64

    def fresh() -> tuple[list[Any], Array, Array]:
        rng = fresh_rng()
        q, r, k, l, v, w = (rng.standard_normal((length, depth)).astype(bf16) for _ in range(6))
        out = np.full((2, length, depth), np.nan, bf16)
        s = q.astype(np.float64) @ k.T.astype(np.float64)
        if kind == "two":
            s += r.astype(np.float64) @ l.T.astype(np.float64)
        p = np.exp(s / 8 - np.maximum(s.max(-1, keepdims=True) / 8, 0))
        if kind == "fading":
            p = np.exp(s / 8) * 0.5 ** ((length - 1 - np.arange(length)) // 64)
        wanted = np.stack([p @ x.astype(np.float64) for x in (v, w)])
        count = 1 + (kind == "parts")
        return [q, r, k, l, v, w, out[0], out[1]], out[:count], wanted[:count]

    _, (_, ir, _) = check_passes(
        text_of(several, tuple(fresh()[0]), KIND=kind),
        (3, 1, 1),
        fresh,
        after=("mma-pipelining", "warp-specialization"),
    )
    loop = ir["stage"].split('stage.role "compute"')[1].split("scf.if")[1]
    # The loop's first wait leaves the products of the iteration before in flight.
    body = loop[loop.index("scf.for") :]
    late = {"two": 1, "parts": 2, "fading": 1}[kind]
    assert f"{{pending = {late} : i64}}" in body
    first = 2 if kind == "two" else 1
    assert body[: body.index("stage.mma.wait")].count("stage.mma.issue") == first + late


@pytest.mark.parametrize("causal", [False, True])
def test_three_warpgroups_share_192_rows(causal: bool) -> None:
    text = text_of(
        attention_kernel, tuple(attention_case(1, 200, 64, causal)[0]),
        CAUSAL=causal, D=64, BM=192, BN=64,
    )  # fmt: skip
    _, (lowered, ir, _) = check_passes(
        text, (2, 1, 1), lambda: attention_case(1, 200, 64, causal), after=("warp-specialization",)
    )
    assert lowered.threads == 512 and "{warps = 12 : i64" in ir["stage"]
    # Registers of all: a warpgroup that copies, three that compute.
    assert lowered.registers == {"copy": 128 * 32, "compute": 384 * 160}


def test_masked_loops_follow_without_a_gap() -> None:
    """Two loops in a row hand on the last product: one wait for it after both, not after each."""
    text = text_of(
        attention_kernel, tuple(attention_case(1, 136, 64, True)[0]),
        CAUSAL=True, D=64, BM=64, BN=64,
    )  # fmt: skip
    _, (_, ir, _) = check_passes(
        text,
        (3, 1, 1),
        lambda: attention_case(1, 136, 64, True),
        after=("mma-pipelining", "warp-specialization"),
    )
    compute = ir["stage"].split('stage.role "compute"')[1]
    first = compute.index("{pending = 1 : i64}")
    second = compute.index("{pending = 1 : i64}", first + 1)
    # Between the loops there is no product: only those of the iterations wait.
    assert compute[first:second].count("stage.mma.issue") == 2
    full = text_of(
        attention_kernel, tuple(attention_case(1, 128, 64, False)[0]), D=64, BM=64, BN=64
    )
    _, (_, ir, _) = check_passes(
        full, (2, 1, 1), lambda: attention_case(1, 128, 64, False), after=("warp-specialization",)
    )
    compute = ir["stage"].split('stage.role "compute"')[1]
    first = compute.index("{pending = 1 : i64}")
    second = compute.index("{pending = 1 : i64}", first + 1)
    # A ragged end, which few programs have, is no reason to keep the scalars of both.
    assert compute[first:second].count("stage.mma.issue") == 4


def test_long_programs_come_first_and_are_distributed_evenly() -> None:
    """More heads than a section has, and a number of programs that the workgroups do not divide."""
    heads, length = 18, 136
    text = text_of(
        attention_kernel, tuple(attention_case(heads, length, 32, True)[0]),
        CAUSAL=True, D=32, BM=64, BN=64,
    )  # fmt: skip
    names, (_, ir, _) = check_passes(
        text, (3, heads, 1), lambda: attention_case(heads, length, 32, True), after=("persistent",)
    )
    assert "persistent" in names
    assert ir["stage"].count("} {stage.programs}") == 4  # sections and programs, in both roles


@pytest.mark.parametrize(
    "grid", [(5, 7, 1), (3, 40, 2), (32, 64, 1), (1, 1, 1), (22, 17, 1), (2, 125, 1), (4, 186, 1)]
)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("workers", [6, 66])
def test_every_program_once(grid: tuple[int, int, int], axis: int, workers: int) -> None:
    """The order in which workgroups take programs whose work grows, run as it is printed."""
    if axis:
        grid = (grid[1], grid[0], grid[2])
    for way in (1, -1):
        taken = [order(grid, axis, way, worker, workers) for worker in range(workers)]
        flat = [p for programs in taken for p in programs]
        assert sorted(flat) == sorted(np.ndindex(*grid))
        work = [sum(p[axis] + 1 if way > 0 else grid[axis] - p[axis] for p in t) for t in taken]
        # No workgroup has much more than its share: at most one program's worth in a plane.
        assert max(work) <= sum(work) / workers + grid[axis] * grid[2]


@pytest.mark.parametrize(("heads", "blocks"), [(39, 31), (105, 21), (200, 8), (20, 86)])
def test_no_few_long_programs_are_left_to_the_end(heads: int, blocks: int) -> None:
    """Three heads behind two sections of eighteen were a seventh of the time of 39, on 132 multiprocessors."""
    taken = [order((blocks, heads, 1), 0, 1, worker, 132) for worker in range(132)]
    work = [sum(row + 1 for row, *_ in programs) for programs in taken]
    assert max(work) <= 1.07 * sum(work) / len(work)


def order(
    grid: tuple[int, int, int], axis: int, way: int, worker: int, workers: int
) -> list[tuple[int, int, int]]:
    """The programs that one of `workers` takes: the loops of `raster.falling`, interpreted."""
    top = Block()
    worker_op = stage.WorkerOp()
    programs = [stage.ProgramsOp(i) for i in range(3)]
    top.add_ops([*programs, worker_op])
    body = Block(arg_types=[IndexType()])
    body.add_op(scf.YieldOp())
    counts = [p.result for p in programs]
    sections, ids, inner = raster.falling(body, counts, worker_op, axis, way)
    known: dict[SSAValue, int] = dict(zip(counts, grid, strict=True))
    known |= dict(zip(worker_op.results, (worker, workers), strict=True))
    found: list[tuple[int, int, int]] = []
    outside = Block([end := scf.YieldOp()])
    count = raster.sections(raster.At(end), counts, worker_op, axis)
    evaluate(list(outside.ops)[:-1], known)
    for section in range(known[count]):
        known[sections.args[0]] = section
        evaluate([op for op in sections.ops if op not in (inner, sections.last_op)], known)
        for turn in range(known[inner.ub]):
            known[body.args[0]] = turn
            evaluate(list(body.ops)[:-1], known)
            found.append(tuple(known[i] for i in ids))  # pyright: ignore
    return found


def evaluate(ops: list[Any], known: dict[SSAValue, int]) -> None:
    """Scalar arithmetic on non-negative numbers."""
    meaning = {
        "arith.addi": lambda a, b: a + b, "arith.subi": lambda a, b: a - b,
        "arith.muli": lambda a, b: a * b, "arith.divui": lambda a, b: a // b,
        "arith.minui": min, "arith.maxui": max, "arith.cmpi": lambda a, b: int(a < b),
        "arith.select": lambda c, a, b: a if c else b, "arith.trunci": lambda a: a & 1,
        "arith.extui": lambda a: a, "arith.index_cast": lambda a: a,
        "arith.index_castui": lambda a: a,
    }  # fmt: skip
    for op in ops:
        if op.name == "arith.constant":
            known[op.result] = op.value.value.data
        else:
            known[op.results[0]] = meaning[op.name](*(known[v] for v in op.operands))


def test_code_of_three_warpgroups() -> None:
    """What the assembler says: registers as shared out, products not serialised, a few scalars spilled at most."""
    text = text_of(
        attention_kernel, tuple(attention_case(1, 200, 64, True)[0]),
        CAUSAL=True, D=64, BM=192, BN=128,
    )  # fmt: skip
    code, ptx = machine_code(text)
    assert code.registers == 128 and "C75" not in code.log
    assert (
        "setmaxnreg.inc.sync.aligned.u32 \t160" in ptx
        or "setmaxnreg.inc.sync.aligned.u32 160" in ptx
    )
    assert code.spill_store_bytes <= 256


@tw.kernel
def masked_product(
    A, B, C, K, BM: tw.constexpr = 128, BN: tw.constexpr = 64, BK: tw.constexpr = 64
):
    """The sum over k < K: columns of A beyond are nothing, whatever they hold."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        column = tw.arange(0, BK, axis=1, shape=(BM, BK)) + k
        a = tw.where(column < K, a, 0.0)
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))), acc)
    tw.store_tile(acc, tw.init_tile(C, [m, n], (BM, BN)))


@pytest.mark.parametrize("end", [0, 100, 128, 250])
def test_a_mask_on_an_operand(end: int) -> None:
    """Where the mask holds, A is read by the matrix unit from shared memory as it is."""

    def fresh() -> tuple[list[Any], Array, Array]:
        r = fresh_rng()
        a = r.standard_normal((136, 192)).astype(bf16)
        b = r.standard_normal((192, 72)).astype(bf16)
        c = np.full((136, 72), np.nan, np.float32)
        wanted = a[:, :end].astype(np.float64) @ b[:end].astype(np.float64)
        return [a, b, c, end], c, wanted if end else wanted + 1e-30

    text = text_of(masked_product, tuple(fresh()[0]))
    _, (_, ir, _) = check_passes(
        text,
        (2, 2, 1),
        fresh,
        after=("index-set-splitting", "warp-specialization"),
        limit=1e-2 if end else 1e40,
    )
    compute = ir["stage"].split('stage.role "compute"')[1]
    assert compute.count("stage.mma.issue") == 2 and compute.count("arith.select") >= 1


@pytest.mark.parametrize("depth", [64, 128])
def test_two_warpgroups_multiply_beside_functions(depth: int) -> None:
    """Where the second product takes at most half as long as the exponentials it is spread among them, and the
    warpgroups take turns at these; where it takes longer it is issued first, and waited for before them."""
    text = text_of(
        attention_kernel, tuple(attention_case(1, 256, depth, False)[0]), D=depth, BM=128, BN=128
    )
    _, (lowered, ir, _) = check_passes(
        text,
        (2, 1, 1),
        lambda: attention_case(1, 256, depth, False),
        after=("mma-pipelining", "ping-pong", "warp-specialization"),
    )
    compute = ir["stage"].split('stage.role "compute"')[1]
    body = compute[compute.index("stage.ping_pong.acquire") :]
    marks = ("acquire", "mma.issue", "mma.wait", "math.exp2", "sched_barrier", "release")
    places = {mark: body.index(mark) for mark in marks}
    order = sorted(places, key=lambda mark: places[mark])
    code, _ = machine_code(text)
    assert "Performance Loss" not in code.log and code.spill_store_bytes <= 64
    # The eight products of a step along k and what is computed beside each.
    threads = str(lowered.module)
    spread = threads.count('"nvptx.sched.barrier"') - ir["stage"].count("stage.sched_barrier")
    if depth == 64:
        assert order == [
            "acquire",
            "mma.issue",
            "math.exp2",
            "release",
            "sched_barrier",
            "mma.wait",
        ]
        assert spread >= 9 and "math.exp2 %" in threads and ": vector<8xf32>" in threads
    else:
        assert order == [
            "acquire",
            "mma.issue",
            "release",
            "mma.wait",
            "sched_barrier",
            "math.exp2",
        ]
        assert spread == 0


def test_products_stay_together_where_that_is_asked_for() -> None:
    args = tuple(attention_case(1, 256, 64, False)[0])
    text = text_of(attention_kernel, args, D=64, BM=128, BN=128)
    _, (lowered, ir, _) = check_passes(
        text,
        (2, 1, 1),
        lambda: attention_case(1, 256, 64, False),
        disable=frozenset({"interleave-products"}),
        after=("warp-specialization",),
    )
    barriers = ir["stage"].count("stage.sched_barrier")
    assert barriers and str(lowered.module).count('"nvptx.sched.barrier"') == barriers


def test_warpgroups_with_two_blocks_of_rows_interleave() -> None:
    """The parts of a pending product are joined behind it, also where its functions are spread among its steps."""
    text = text_of(
        attention_kernel, tuple(attention_case(1, 256, 64, False)[0]), D=64, BM=256, BN=64
    )
    _, (lowered, ir, _) = check_passes(
        text, (1, 1, 1), lambda: attention_case(1, 256, 64, False), after=("warp-specialization",)
    )
    spread = str(lowered.module).count('"nvptx.sched.barrier"')
    assert spread > ir["stage"].count("stage.sched_barrier")
    code, _ = machine_code(text)
    assert "Performance Loss" not in code.log


@tw.kernel
def read_back(Q, K, V, O, W, D: tw.constexpr = 64, BM: tw.constexpr = 128, BN: tw.constexpr = 128):
    """Each iteration stores its weights, and reads them again for their sums."""
    q = tw.load_tile(tw.init_tile(Q, [0, 0], (BM, D)))
    w = tw.init_tile(W, [0, 0], (BM, BN))
    total = tw.zeros((BM, 1), tw.f32)
    out = tw.zeros((BM, D), tw.f32)
    for n in range(0, K.shape[0], BN):
        k = tw.load_tile(tw.init_tile(K, [n, 0], (BN, D)))
        p = tw.exp(tw.tile_mma(q, tw.transpose(k)) * 0.125)
        tw.store_tile(p.to(W.dtype), w)
        total = total + tw.sum(tw.load_tile(w).to(tw.f32), 1)
        out = tw.tile_mma(p.to(V.dtype), tw.load_tile(tw.init_tile(V, [n, 0], (BN, D))), out)
    tw.store_tile((out / total).to(O.dtype), tw.init_tile(O, [0, 0], (BM, D)))


def test_stores_stay_before_what_reads_them() -> None:
    """Only what a late product reads is computed behind the wait for the one before."""

    def fresh() -> tuple[list[Any], Array, Array]:
        r = fresh_rng()
        q, k, v = (r.standard_normal((n, 64)).astype(bf16) for n in (128, 256, 256))
        w, o = np.full((128, 128), np.nan, bf16), np.full((128, 64), np.nan, bf16)
        p = np.exp(q.astype(np.float64) @ k.astype(np.float64).T / 8)
        wanted = p / p.sum(-1, keepdims=True) @ v.astype(np.float64)
        return [q, k, v, o, w], o, wanted

    after = ("mma-pipelining", "warp-specialization")
    _, (_, ir, _) = check_passes(
        text_of(read_back, tuple(fresh()[0])), (1, 1, 1), fresh, after=after
    )
    assert "stage.sched_barrier" in ir["stage"]


def test_rows_of_a_warpgroup_stay_together():
    """192 rows of 128 columns exceed the registers: they become three programs of 64, not two of 96."""
    args = [tw.spec((2, 384, 128), tw.bf16)] * 4
    made = rows_by_keys.compile(*args, target="sm_90a")
    assert made.remarks == ["a workgroup's tiles are shared by 3 workgroups along x"]


@tw.kernel
def rows_by_keys(Q, K, V, O, BM: tw.constexpr = 192, BN: tw.constexpr = 128, D: tw.constexpr = 128):
    h, m = tw.program_id(1), tw.program_id(0) * BM
    q = tw.load_tile(tw.init_tile(Q, [h, m, 0], (BM, D)))
    acc = tw.zeros((BM, D), tw.f32)
    for n in range(0, K.shape[1], BN):
        p = tw.exp(tw.tile_mma(q, tw.transpose(tw.load_tile(tw.init_tile(K, [h, n, 0], (BN, D))))))
        acc = tw.tile_mma(
            p.to(V.dtype), tw.load_tile(tw.init_tile(V, [h, n, 0], (BN, D))), acc * 0.5
        )
    tw.store_tile(acc.to(O.dtype), tw.init_tile(O, [h, m, 0], (BM, D)))


def test_products_that_feed_products_are_no_loop_of_sums():
    """Where all have one shape, too: the model of plain loops split such programs, which made them slower."""
    args = [tw.spec((2, 384, 64), tw.bf16)] * 4
    made = rows_by_keys.compile(*args, target="sm_90a", BM=64, BN=64, D=64)
    text = parse_module(made.ir["xetile"])
    options = CompileOptions(target="cuda", machine="sm_90a")
    assert run_pipeline(text, uarch.machine("sm_90a"), options, []).work is None
