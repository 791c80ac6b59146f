"""Launches by tiles that the machine does not like: which others are taken, and that the results are the same."""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false, reportPrivateUsage=false
from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import tilewright as tw
from tests.arrays import error
from tests.draws import fresh_rng
from tests.targets.cuda.harness import needs_gpu
from tilewright import cache, uarch
from tilewright.arguments import Grid
from tilewright.dialects.text import parse_module
from tilewright.reference import run
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda import retiling
from tilewright.targets.cuda.executable import CudaExecutable, work_split_of
from tilewright.targets.cuda.lowered import LaunchPlan, plan_of
from tilewright.targets.cuda.pipeline import run_pipeline
from tilewright.targets.cuda.target import TARGET

bf16 = ml_dtypes.bfloat16
MULTIPROCESSORS = 132


@tw.kernel
def sums(A, B, m, n, BM: tw.constexpr, BN: tw.constexpr, BK: tw.constexpr):
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))), acc)
    return acc


@tw.kernel
def plain(A, B, C, BM: tw.constexpr, BN: tw.constexpr, BK: tw.constexpr = 64):
    """Places each element's column into what it adds."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = sums(A, B, m, n, BM, BN, BK)
    acc = acc + (n + tw.arange(0, BN, axis=1, shape=(BM, BN))).to(tw.f32)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def grouped(A, B, C, BM: tw.constexpr, BN: tw.constexpr, BK: tw.constexpr = 64):
    """Rows of tiles in groups of three."""
    number = tw.program_id(0)
    tall, wide = tw.cdiv(A.shape[0], BM), tw.cdiv(B.shape[1], BN)
    first = number // (3 * wide) * 3
    size = tw.minimum(tall - first, 3)
    m, n = (first + number % (3 * wide) % size) * BM, number % (3 * wide) // size * BN
    acc = sums(A, B, m, n, BM, BN, BK)
    acc = acc + (n + tw.arange(0, BN, axis=1, shape=(BM, BN))).to(tw.f32)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def counted(A, B, C, BM: tw.constexpr, BN: tw.constexpr, BK: tw.constexpr = 64):
    """Told how many programs there are along both axes."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = sums(A, B, m, n, BM, BN, BK)
    acc = acc * (tw.num_programs(0) + tw.num_programs(1)).to(tw.f32)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def moved(A, B, C, BM: tw.constexpr, BN: tw.constexpr, BK: tw.constexpr = 64):
    """By tiles that move, of weights of bytes."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    a, b = tw.init_tile(A, [m, 0], (BM, BK)), tw.init_tile(B, [0, n], (BK, BN))
    acc = tw.zeros((BM, BN), tw.f32)
    for _ in range(0, A.shape[1], BK):
        acc = tw.tile_mma(tw.load_tile(a), tw.load_tile(b).to(tw.bf16), acc)
        a, b = tw.update_tile_offset(a, [0, BK]), tw.update_tile_offset(b, [BK, 0])
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


def grid_of(kernel: Any, m: int, n: int, bm: int, bn: int) -> Grid:
    tall, wide = -(-m // bm), -(-n // bn)
    return (tall, wide, 1) if kernel is not grouped else (tall * wide, 1, 1)


def compiled(kernel: Any, shape: tuple[int, int, int], tile: tuple[int, ...], **options: Any):
    m, n, k = shape
    weights = tw.i8 if kernel is moved else tw.bf16
    specs = [tw.spec((m, k), tw.bf16), tw.spec((k, n), weights), tw.spec((m, n), tw.bf16)]
    sizes = dict(zip(("BM", "BN", "BK"), tile, strict=False))
    made = kernel.compile(*specs, **sizes, target="sm_90a", **options).executable
    assert isinstance(made, CudaExecutable)
    types, _, _ = kernel.options(target="sm_90a").launcher.describe(
        kernel.launcher.bind((*specs,), sizes)
    )
    return made, types


def taken(kernel: Any, shape: tuple[int, int, int], tile: tuple[int, ...], **options: Any):
    """What a launch asks for, and its grid."""
    made, types = compiled(kernel, shape, tile, **options)
    grid = grid_of(kernel, *shape[:2], *tile[:2])
    return work_split_of(made, grid, types, types, MULTIPROCESSORS)


@pytest.mark.parametrize("kernel", [plain, grouped])
@pytest.mark.parametrize("tile", [(32, 32, 32), (64, 64, 32), (104, 136, 64)])
def test_small_and_odd_tiles_become_those_of_the_planner(kernel: Any, tile: tuple[int, ...]):
    split, grid = taken(kernel, (4096, 3072, 2048), tile)
    ways = [tile[:2], tile[1::-1]] if kernel is grouped else [tile[:2]]
    found = [[Fraction(*f) * n for f, n in zip(split.merged, way, strict=False)] for way in ways]
    rows, columns = next(way for way in found if all(n.denominator == 1 for n in way))
    assert rows * columns >= 128 * 128 and (rows % 64 == 0 or columns % 64 == 0)
    assert np.prod(grid) in [
        -(-4096 // x) * -(-3072 // y) for x, y in ((rows, columns), (columns, rows))
    ]


def test_good_tiles_and_what_cannot_be_told_apart_stay() -> None:
    shape = (4096, 4096, 4096)
    assert not taken(plain, shape, (128, 256))[0].merged
    assert not taken(counted, shape, (104, 136))[0].merged
    assert taken(plain, shape, (64, 64))[0].merged
    assert taken(moved, shape, (64, 64))[0].merged
    assert not taken(plain, shape, (64, 64), disable="merge-programs")[0].merged
    assert not taken(plain, shape, (64, 64), num_stages=3)[0].merged
    small = (256, 256, 128)
    assert not taken(plain, small, (64, 64))[0].merged


def test_what_a_smaller_grid_leaves_out_stays_left_out() -> None:
    """41 programs of 72 rows, where the array has 4096: by no other tile but one that ends where these do."""
    made, types = compiled(plain, (4096, 4096, 4096), (72, 64))
    split, _ = work_split_of(made, (41, 64, 1), types, types, MULTIPROCESSORS)
    by, of = (*split.merged, (1, 1))[0]
    assert 41 * of % by == 0


def test_sizes_that_were_chosen_are_taken_as_they_are() -> None:
    chosen = TARGET.of_chosen(CompileOptions(target="cuda", machine="sm_90a"))
    assert chosen.disable == {"merge-programs"}


@pytest.mark.parametrize("kernel", [plain, grouped])
@pytest.mark.parametrize(
    ("tile", "other"), [((40, 72), (64, 128)), ((104, 136), (128, 64)), ((64, 64), (128, 96))]
)
def test_other_tiles_have_the_same_results(
    kernel: Any, tile: tuple[int, int], other: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    r = fresh_rng()
    m, n, k = (int(x) for x in r.integers((100, 100, 65), (320, 320, 200)))
    n, k = n // 8 * 8, k // 8 * 8
    a, b = r.standard_normal((m, k)).astype(bf16), r.standard_normal((k, n)).astype(bf16)
    wanted = a.astype(np.float64) @ b.astype(np.float64) + np.arange(n)
    tilings = retiling._Loop.tilings

    def only(loop: Any, launch: Any) -> list[Any]:
        found = tilings(loop, launch)[0]
        return [replace(found, values={"rows": other[0], "columns": other[1], "steps": 1})]

    monkeypatch.setattr(retiling, "LEAST_CLOCKS", 0)
    monkeypatch.setattr(retiling._Loop, "tilings", only)
    monkeypatch.setattr(cache, "kept", lambda names, make: make())
    made, types = compiled(kernel, (m, n, k), tile)
    grid = grid_of(kernel, m, n, *tile)
    found = made.retiling.choice(grid, types, MULTIPROCESSORS)
    assert found is not None
    split, programs = replace(found[0], parts=1), found[1]
    assert np.prod(programs) == -(-m // other[0]) * -(-n // other[1])
    numbered = (-(-m // tile[0]), -(-n // tile[1]), 1)
    if Fraction(*split.merged[0]) != Fraction(
        other[0], tile[0]
    ):  # numbers along columns come first
        assert kernel is grouped
        numbered = numbered[1], numbered[0], 1
    seen: list[str] = []

    def observe(name: str, module: ModuleOp) -> None:
        if name == "merge-programs":
            seen.append(name)
            module.verify()
            assert f"vector<{other[0]}x{other[1]}xf32>" in str(module)
            out = np.full((m, n), np.nan, bf16)
            run(module, numbered, [a, b, out], check=True).raise_on_error()  # pyright: ignore
            assert error(out, wanted) < 1e-2

    options = CompileOptions(target="cuda", machine="sm_90a")
    module, machine = parse_module(made.ir.source), uarch.machine("sm_90a")
    plan = plan_of(run_pipeline(module, machine, options, [], observe=observe, split=split))
    assert seen and not plan.merges
    assert LaunchPlan.from_json(plan.to_json()) == plan


@needs_gpu
@pytest.mark.parametrize("kernel", [plain, grouped, counted, moved])
def test_launches_by_odd_tiles_are_right(kernel: Any) -> None:
    torch = pytest.importorskip("torch")

    r = fresh_rng()
    m, n, k = (int(x) for x in r.integers((1500, 1500, 600), (3000, 3000, 1500)))
    n, k = n // 8 * 8, k // 8 * 8
    bm, bn = (int(x) for x in r.integers(4, 20, 2) * 8)
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(k, n, device="cuda", dtype=torch.bfloat16)
    if kernel is moved:
        b = torch.randint(-128, 128, (k, n), device="cuda", dtype=torch.int8)
    c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
    grid = grid_of(kernel, m, n, bm, bn)
    kernel[grid](a, b, c, BM=bm, BN=bn)
    wanted = a.double() @ b.double()
    if kernel is counted:
        wanted *= grid[0] + grid[1]
    elif kernel is not moved:
        wanted += torch.arange(n, device="cuda")
    assert float((c.double() - wanted).norm() / wanted.norm()) < 1e-2
