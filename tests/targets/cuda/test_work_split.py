"""Several workgroups for each program: what is chosen, that clusters add up the same, and that launches find it."""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false, reportPrivateUsage=false
from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import tilewright as tw
from tests.arrays import error
from tests.draws import fresh_rng
from tests.targets.cuda.harness import needs_gpu
from tests.targets.cuda.test_asynchronous import text_of
from tests.targets.cuda.test_stored_bounds import summed
from tilewright import uarch
from tilewright.dialects.text import parse_module
from tilewright.reference import run
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda import inspect
from tilewright.targets.cuda.lowered import LaunchPlan, LoweredThread, plan_of
from tilewright.targets.cuda.pipeline import run_pipeline
from tilewright.targets.cuda.target import TARGET, build_split
from tilewright.targets.cuda.work_split import UNSPLIT, WorkSplit, _zeros, causes, choose, clocks

bf16 = ml_dtypes.bfloat16
OPTIONS = CompileOptions(target="cuda", machine="sm_90a")


@tw.kernel
def biased(A, B, bias, C, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 64):
    """C = gelu(A B + bias), the sum beginning with the bias."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32) + tw.load_tile(tw.init_tile(bias, [n], (1, BN)))
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        b = tw.load_tile(tw.init_tile(B, [k, n], (BK, BN)))
        acc = tw.tile_mma(a, b, acc)
    tw.store_tile(tw.maximum(acc, 0.0).to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


def lowered(text: str, split: WorkSplit, observe: Any = lambda name, module: None) -> LoweredThread:
    machine = uarch.machine("sm_90a")
    return run_pipeline(parse_module(text), machine, OPTIONS, [], observe=observe, split=split)


@pytest.mark.parametrize(
    "split", [WorkSplit(1, 4), WorkSplit(1, 3), WorkSplit(2, 2), WorkSplit(1, 2, 2)]
)
def test_a_cluster_adds_up_what_its_workgroups_summed(split: WorkSplit) -> None:
    """Five steps of k among two to four workgroups; the last rows and columns lie outside the arrays."""
    m, n, k = 72, 100, 320 if split.steps == 1 else 384
    side = 64 if split.tiles == 1 else 128

    def fresh() -> tuple[list[Any], Any, Any]:
        r = fresh_rng()
        a, b = r.standard_normal((m, k)).astype(bf16), r.standard_normal((n, k)).astype(bf16).T
        bias, c = r.standard_normal(n).astype(np.float32), np.full((m, n), np.nan, bf16)
        wanted = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + bias, 0)
        return [a, b, bias, c], c, wanted

    seen: list[str] = []

    def observe(name: str, module: ModuleOp) -> None:
        if name not in ("split-k", "multi-buffering", "tma-stores", "warp-specialization"):
            return
        seen.append(name)
        module.verify()
        ranks = {2: 2, 3: 2, 4: 4}[split.parts]  # of three, two have 32 columns each
        if name == "split-k":
            assert f"vector<64x64xf32> to vector<64x{64 // ranks}xf32>" in str(module)
            assert ("scf.if" in str(module)) == (ranks < split.parts)
        for schedule in ("late", "early", "random"):
            args, out, wanted = fresh()
            grid = (-(-m // side) * split.tiles * split.parts, -(-n // 64), 1)
            run(module, grid, args, schedule=schedule, seed=3)  # pyright: ignore
            assert error(out, wanted) < 1e-2, (name, schedule)

    made = lowered(text_of(biased, tuple(fresh()[0]), BM=side), split, observe)
    assert seen == ["split-k", "multi-buffering", "tma-stores", "warp-specialization"]
    assert made.cluster == (split.parts, 1, 1) and made.split == split.tiles * split.parts
    assert made.persistent == 0 and made.work is None


@tw.kernel
def normed(A, B, C, D, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 64):
    """D += A B in place; C: A B, each row of a tile by its sum, for which all of its columns are needed."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))), acc)
    if C is not None:
        tw.store_tile(acc / tw.sum(acc, 1), tw.init_tile(C, [m, n], (BM, BN)))
    if D is not None:
        at = tw.init_tile(D, [m, n], (BM, BN))
        tw.store_tile(tw.load_tile(at) + acc, at)


@pytest.mark.parametrize("in_place", [False, True])
def test_ranks_finish_what_does_not_need_all_columns(in_place: bool) -> None:
    r = fresh_rng()
    a, b = (r.random(shape).astype(bf16) for shape in ((64, 256), (256, 128)))
    start = r.random((64, 128)).astype(np.float32)
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    of_tiles = np.split(wanted, 2, axis=1)
    wanted = (
        start + wanted if in_place else np.hstack([t / t.sum(1, keepdims=True) for t in of_tiles])
    )
    arrays = (a, b, None, start) if in_place else (a, b, start, None)

    def observe(name: str, module: ModuleOp) -> None:
        if name in ("split-k", "warp-specialization"):
            out = start.copy()
            run(module, (2, 2, 1), [a, b, out], schedule="random", seed=1)  # pyright: ignore
            assert error(out, wanted) < 1e-5
        if name == "split-k":
            assert ("to vector<64x32xf32>" in str(module)) == in_place

    assert lowered(text_of(normed, arrays), WorkSplit(1, 2), observe).cluster == (2, 1, 1)


def plan(m: int, n: int, k: int, **tile: int) -> LaunchPlan:
    text = text_of(
        biased,
        (
            tw.spec((m, k), tw.bf16),
            tw.spec((k, n), tw.bf16, (1, k)),
            tw.spec((n,), tw.f32),
            tw.spec((m, n), tw.bf16),
        ),
        **tile,
    )
    return plan_of(lowered(text, UNSPLIT))


def test_few_programs_with_long_loops_are_shared() -> None:
    work = plan(128, 128, 16384, BM=128, BN=128).work
    assert work is not None
    assert LaunchPlan.from_json(plan(128, 128, 16384, BM=128, BN=128).to_json()).work == work

    def chosen(programs: int, m: int, n: int, k: int) -> WorkSplit:
        return choose(work, programs, k, [(m, k), (k, n), (n,), (m, n)], 132)

    assert chosen(1, 128, 128, 16384) == WorkSplit(4, 8, 2)
    assert chosen(1, 128, 128, 16384 - 64) == WorkSplit(4, 8, 1)
    assert chosen(1, 128, 128, 128).parts == 1
    for programs, m, n, k in ((132, 1408, 1536, 4096), (512, 4096, 8192, 64)):
        assert chosen(programs, m, n, k) == UNSPLIT
    for programs in (1, 2, 4, 8, 16, 32):
        split = chosen(programs, 128, 128 * programs, 8192)
        assert programs * split.tiles * split.parts <= 132
    # 162 programs take two rounds of 132, the second nearly empty: tiles of half the size take three half as long.
    large = plan(2304, 2304, 2304, BM=128, BN=256).work
    assert large is not None
    square = [(2304, 2304), (2304, 2304), (2304,), (2304, 2304)]
    split = choose(large, 162, 2304, square, 132)
    assert (
        split.tiles in (2, 4) and split.parts * split.steps == 1
    )  # quarters take as long as halves
    assert choose(large, 128, 2048, [(2048, 2048)] * 2, 132) == UNSPLIT
    wide = plan(1, 8192, 8192, BM=64, BN=256).work
    assert wide is not None
    shapes = [(1, 8192), (8192, 8192), (8192,), (1, 8192)]
    split = choose(wide, 32, 8192, shapes, 132)
    assert split.tiles * split.parts in (3, 4)  # which take as long: memory is what is waited for


@tw.kernel
def placed(A, B, C, ORDER: tw.constexpr, BM: tw.constexpr = 64, BN: tw.constexpr = 64):
    """C = A B, programs along rows or columns of tiles first, or numbered along one axis alone."""
    if ORDER == 0:
        i, j = tw.program_id(0), tw.program_id(1)
    elif ORDER == 1:
        i, j = tw.program_id(1), tw.program_id(0)
    else:
        i, j = tw.program_id(0) // 8, tw.program_id(0) % 8
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], 64):
        a = tw.load_tile(tw.init_tile(A, [i * BM, k], (BM, 64)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, j * BN], (64, BN))), acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [i * BM, j * BN], (BM, BN)))


def test_neighbours_fetch_once_what_both_need() -> None:
    """Tiles of 64 x 256 that wait for L2 alone: neighbours along rows share the larger operand."""
    a, b, c = (
        np.zeros((512, 2048), bf16),
        np.zeros((2048, 2048), bf16),
        np.zeros((512, 2048), bf16),
    )
    made = [
        lowered(text_of(placed, (a, b, c), ORDER=order, BM=64, BN=256), UNSPLIT).work
        for order in range(3)
    ]
    assert [work and (work.row_axis, work.column_axis) for work in made] == [
        (0, 1),
        (1, 0),
        (-1, -1),
    ]

    def cost(order: int, m: int, n: int, split: WorkSplit = UNSPLIT) -> float:
        work = made[order]
        assert work is not None
        slow = replace(work, rates={**work.rates, "cache": 100.0, "far": 1e9})
        return clocks(slow, split, 64, 32, (m, n), 132)

    many = [cost(order, 512, 2048) for order in range(3)]
    # Of 5 parts fetched, the operand of 4 or that of 1 is shared by two.
    assert many[0] / many[2] == pytest.approx(3 / 5, rel=0.02)
    assert many[1] / many[2] == pytest.approx(4.5 / 5, rel=0.02)
    # Of three rows of tiles one has no neighbour; of one alone, neighbours lie along columns.
    assert cost(0, 192, 2048) / many[2] == pytest.approx((1 + 4 * 2 / 3) / 5, rel=0.02)
    assert cost(0, 64, 2048) == pytest.approx(many[1], rel=0.001)
    assert cost(0, 512, 2048, WorkSplit(1, 2)) == cost(2, 512, 2048, WorkSplit(1, 2))
    # Halves of a program's columns share its rows.
    assert cost(2, 512, 2048, WorkSplit(2)) == cost(0, 512, 2048, WorkSplit(2))


def test_what_few_read_at_once_crosses_between_the_halves_of_the_cache() -> None:
    """Of a line with one reader a half crosses, 3/4 of a read of two that do not fetch it together, 1 of 16."""
    work = plan(64, 4096, 4096, BM=64, BN=64).work
    assert work is not None and work.row_bytes == work.column_bytes
    assert work.row_axis >= 0 and work.column_axis >= 0
    far = replace(work, rates={**work.rates, "cache": 1e12, "far": 1.0})

    def per_byte(rows: int, columns: int, parts: int = 1) -> float:
        """Crossing bytes, of those that a workgroup fetches for its rows (and as many for its columns)."""
        found = causes(far, WorkSplit(1, parts), rows * columns, 32, (64 * rows, 64 * columns), 132)
        workgroups = rows * columns * parts
        return found["L2"] / (-(-32 // parts) * workgroups * far.row_bytes)

    assert per_byte(1, 1) == pytest.approx(2 * 0.5)
    # Of two rows of tiles, neighbours fetch once what columns need; clusters do not.
    assert per_byte(2, 1) == pytest.approx(0.5 + 0.5 * 0.5)
    assert per_byte(2, 1, 2) == pytest.approx(0.5 + 0.75 / 2)
    assert per_byte(1, 16, 2) == pytest.approx((1 - 2**-16) / 16 + 0.5)
    assert per_byte(2, 16, 4) > per_byte(4, 16, 2)


def test_rows_outside_of_an_array_take_longer_than_others() -> None:
    """Tiles of 128 rows: of 129, the last one makes zeros of 127, unless copies leave them out."""
    work = plan(256, 4096, 4096, BM=128, BN=64).work
    assert work is not None and work.rows_clipped and work.columns_clipped

    def cost(rows: int, clipped: bool) -> float:
        placed = -(-rows // 128) * 64, 64, (rows, 4096), 132
        return clocks(replace(work, rows_clipped=clipped), UNSPLIT, *placed)

    assert cost(129, False) > 1.2 * cost(256, False)
    assert cost(129, False) > cost(192, False) > cost(256, False)
    assert cost(129, True) <= cost(192, True) <= cost(256, True) == cost(256, False)
    operands = tw.spec((256, 4096), tw.bf16), tw.spec((4096, 4096), tw.bf16)
    results = tw.spec((256, 4096), tw.f32), tw.spec((4, 4096), tw.f32)
    seen = lowered(text_of(summed, (*operands, *results)), UNSPLIT).work
    assert seen is not None and not seen.rows_clipped and not seen.columns_clipped


def test_results_are_stored_panel_by_panel() -> None:
    """112 columns of 16 bits are seven panels, 96 three, 128 two; transposed, eight lines or more are one."""
    work = plan(256, 4096, 4096, BM=128, BN=64).work
    assert work is not None and work.stored == 2
    slow = replace(work, rates={**work.rates, "panel": 1e6})

    def panels(columns: int, transposed: bool = False) -> float:
        tiled = replace(slow, columns=columns, column_bytes=128 * columns, transposed=transposed)
        return clocks(tiled, UNSPLIT, 64, 64, (256, 64 * columns), 132) / 1e6

    assert [round(panels(n)) for n in (64, 96, 112, 128)] == [1, 3, 7, 2]
    assert [round(panels(n, True)) for n in (64, 96, 112, 176)] == [1, 2, 2, 11]


@tw.kernel
def bounded(A, B, C, K, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 64):
    """The first K columns of A times the first K rows of B."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, K, BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))), acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


def test_a_loop_may_end_at_a_scalar() -> None:
    a, b, c = (np.zeros((128, 128), bf16) for _ in range(3))
    work = lowered(text_of(bounded, (a, b, c, 128)), UNSPLIT).work
    assert work is not None and (work.argument, work.dimension) == (3, -1)


@tw.kernel
def narrow(A, B, C, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 32):
    """C = A B^T with short steps, B turned after it was loaded."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    a = tw.init_tile(A, [m, 0], (BM, BK))
    b = tw.init_tile(B, [n, 0], (BN, BK))
    acc = tw.zeros((BM, BN), tw.f32)
    for _ in range(0, A.shape[1], BK):
        acc = tw.tile_mma(tw.load_tile(a), tw.transpose(tw.load_tile(b)), acc)
        a = tw.update_tile_offset(a, [0, BK])
        b = tw.update_tile_offset(b, [0, BK])
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@pytest.mark.parametrize(("k", "merged"), [(128, True), (96, False)])
def test_short_steps_are_merged_where_the_length_allows_it(k: int, merged: bool) -> None:
    m, n = 72, 64
    seen: list[str] = []

    def observe(name: str, module: ModuleOp) -> None:
        if name in ("k-coarsening", "warp-specialization"):
            seen.append(name)
            module.verify()
            r = fresh_rng()
            a, b = (r.standard_normal(s).astype(bf16) for s in ((m, k), (n, k)))
            c = np.full((m, n), np.nan, np.float32)
            run(module, (2, 1, 1), [a, b, c], schedule="late", seed=3)  # pyright: ignore
            assert error(c, a.astype(np.float64) @ b.T.astype(np.float64)) < 1e-6
            assert ("64x64xbf16" in str(module)) == merged

    arrays = (np.zeros((m, k), bf16), np.zeros((n, k), bf16), np.zeros((m, n), np.float32))
    lowered(text_of(narrow, arrays), UNSPLIT, observe)
    assert seen == (["k-coarsening", "warp-specialization"] if merged else ["warp-specialization"])


@tw.kernel
def rows_sums(A, B, C, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 64):
    """What else the loop carries keeps it from being shared."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    rows = tw.zeros((BM, 1), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))), acc)
        rows = rows + tw.sum(a.to(tw.f32), 1)
    tw.store_tile((acc + rows).to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


def test_what_has_no_room_for_a_cluster_runs_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c = (np.zeros((256, 256), bf16) for _ in range(3))
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    for bk, fits in (
        (64, True),
        (192, False),
    ):  # four slots of 53 KB; one of 159 KB, for sums of 160 KB
        text = text_of(biased, (a, b.T, np.zeros(256, np.float32), c), BM=256, BN=160, BK=bk)
        assert (build_split(text, "sm_90a", WorkSplit(1, 2)) is not None) == fits


@tw.kernel
def stores_before(A, B, C, D, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 64):
    """A store in a loop before that of the products."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    for k in range(0, D.shape[1], BK):
        tw.store_tile(tw.zeros((BM, BK), tw.f32), tw.init_tile(D, [m, k], (BM, BK)))
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))), acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@pytest.mark.parametrize("kernel", [rows_sums, stores_before])
def test_other_kernels_are_not_shared(kernel: Any) -> None:
    arrays = [np.zeros((128, 128), bf16) for _ in range(3)]
    if kernel is stores_before:
        arrays.append(np.zeros((128, 128), np.float32))
    text = text_of(kernel, tuple(arrays))
    assert lowered(text, UNSPLIT).work is None
    assert lowered(text, WorkSplit(1, 2)).cluster == (1, 1, 1)


def test_code_of_a_cluster_has_no_performance_breakers() -> None:
    if inspect.find_tool("ptxas") is None or inspect.find_tool("nvdisasm") is None:
        pytest.skip('pip install "tilewright[cuda-inspect]"')
    a, b, c = (np.zeros((256, 256), bf16) for _ in range(3))
    text = text_of(biased, (a, b.T, np.zeros(256, np.float32), c))
    made = TARGET.build_split(parse_module(text), OPTIONS, WorkSplit(1, 4))
    ptx = made.asm["ptx"]
    assert "ld.shared::cluster" in ptx and "wgmma.mma_async" in ptx
    assert inspect.breakers(ptx, "sm_90a") == []


@needs_gpu
@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 16384), (1, 2048, 8192), (100, 72, 4096)])
def test_on_a_gpu_the_sums_are_right_and_the_same_every_time(m: int, n: int, k: int) -> None:
    torch = pytest.importorskip("torch")
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(n, k, device="cuda", dtype=torch.bfloat16).T
    bias = torch.randn(n, device="cuda")
    wanted = torch.relu(a.double() @ b.double() + bias.double()).cpu().numpy()
    first = None
    for _ in range(3):
        c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.float32)
        biased[tw.cdiv(m, 128), tw.cdiv(n, 128)](a, b, bias, c, BM=128, BN=128)
        got = c.cpu().numpy()
        assert error(got, wanted) < 1e-4
        first = got if first is None else first
        assert np.array_equal(got, first)


@pytest.mark.parametrize("tiles, groups", [(1, 1), (2, 2), (4, 4), (64, 16)])
def test_tiles_are_split_as_often_as_asked(tiles: int, groups: int) -> None:
    """Not until nothing can be halved: of 256 x 256, into 16 of 64 x 64 at most."""
    args = [tw.spec(shape, tw.bf16) for shape in ((256, 512), (512, 256), (256,), (256, 256))]
    sizes = {"BM": 256, "BN": 256 if tiles == 64 else 128}
    text = biased.compile(*args, target="sm_90a", **sizes).ir["xetile"]
    assert lowered(text, WorkSplit(tiles)).split == groups


@pytest.mark.parametrize("own", [64, 96, 160, 192, 240])
def test_lines_that_end_with_the_array_are_not_filled(own: int) -> None:
    """Of panels of 32 bytes along an edge: by 16-bit columns, to the next 16 of them."""
    for extent in range(8, 2048, 8):
        filled = _zeros(extent, own, float(own * 2 * 64), 64, True, 32)[0]
        assert filled == -((extent - 1) % own + 1) * 2 % 32 * 64
