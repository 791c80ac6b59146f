"""Iterations side by side in a thread's program (`loop_unrolling.py`)."""

# Kernels are not typed Python, and fixtures give what they say.
# pyright: reportMissingParameterType=false, reportUnknownMemberType=false
from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import arith, scf

import tilewright as tw
from tests.targets.cuda.fake_driver import Driver, host_launches
from tests.targets.cuda.threads import run_threads
from tilewright import uarch
from tilewright.dialects import mach
from tilewright.dialects.text import parse_module
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.lowered import LoweredThread
from tilewright.targets.cuda.pipeline import run_pipeline
from tilewright.targets.cuda.work_split import WorkSplit

__all__ = ["host_launches"]


@tw.kernel
def column_sums(
    X, Y, FROM, BY: tw.constexpr = 1, BM: tw.constexpr = 8, BN: tw.constexpr = 64, MANY: tw.constexpr = False
):  # fmt: skip
    """Sums of columns from row FROM on, every BY-th block of rows; of functions of each element where MANY."""
    n = tw.program_id(0) * BN
    total = tw.zeros((1, BN), tw.f32)
    for m in range(FROM, X.shape[0], BM * BY):
        x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN)))
        if MANY:
            x = tw.exp(x) + tw.sin(x) + tw.log(x)
        total += tw.sum(x, 0)
    tw.store_tile(total, tw.init_tile(Y, [n], (1, BN)))


def lowered(kernel, args, ahead: bool, **constants) -> LoweredThread:
    """The program of a thread, for launches of few programs or of many."""
    text = kernel.compile(*args, target="sm_90a", **constants).ir["xetile"]
    options, split = CompileOptions(target="cuda", machine="sm_90a"), WorkSplit(ahead=ahead)
    return run_pipeline(parse_module(text), uarch.machine("sm_90a"), options, [], split=split)


def loads(kernel, args, ahead: bool, **constants) -> int:
    """Loads of tiles in the thread's program."""
    module = lowered(kernel, args, ahead, **constants).module
    return sum(isinstance(op, mach.MaskedLoadOp) for op in module.walk())


@pytest.mark.parametrize(
    "rows, start, by", [(300, 0, 1), (128, 8, 3), (127, 7, 1), (8, 0, 1), (5, 9, 2)]
)
def test_what_is_left_over_comes_behind(rows, start, by, rng):
    x = rng.integers(-9, 9, (rows, 128)).astype(np.float32)
    y = np.full(128, np.nan, np.float32)
    code = lowered(column_sums, (x, y, start), True, BY=by)
    run_threads(code, [describe(x), describe(y), start], (2, 1, 1))
    taken = [x[m : m + 8] for m in range(start, rows, 8 * by)]
    np.testing.assert_array_equal(
        y, sum((each.sum(0) for each in taken), np.zeros(128, np.float32))
    )


def test_loads_stand_side_by_side():
    """As many as give a thread 256 bytes, and an iteration that may be left over."""
    args = tw.spec((4096, 256), tw.f32), tw.spec((256,), tw.f32), 0
    for rows, times in ((8, 16), (64, 4), (512, 2)):
        once = loads(column_sums, args, False, BM=rows)
        assert loads(column_sums, args, True, BM=rows) == once * (times + 1)


def test_launches_of_few_programs_have_code_of_their_own(host_launches: Driver):
    """Where programs are many, they wait for memory in turn, and registers are what each has too few of."""
    x, y = np.zeros((64, 64 * 500), np.float32), np.zeros(64 * 500, np.float32)
    kernel = tw.kernel(column_sums.function).options(target="sm_90a")
    for programs in (500, 264):
        kernel[programs](x, y, 0)
    many, few = (each.code.decode().count("ld.global") for each in host_launches.launches)
    assert few == 17 * many


@tw.kernel
def largest(X, Y, BM: tw.constexpr = 8, BN: tw.constexpr = 64):
    """What was stored is read again in the next iteration."""
    for m in range(0, X.shape[0], BM):
        x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, BN)))
        tw.store_tile(
            tw.maximum(x, tw.load_tile(tw.init_tile(Y, [0, 0], (BM, BN)))),
            tw.init_tile(Y, [0, 0], (BM, BN)),
        )


def test_loops_that_do_more_stay_as_they_are():
    args = tw.spec((4096, 64), tw.f32), tw.spec((8, 64), tw.f32)
    assert not lowered(largest, args, False).short
    assert loads(largest, args, True) == loads(largest, args, False)


def test_functions_are_few_side_by_side(rng) -> None:
    """They take longer than what they read, and are many instructions."""
    args = (rng.random((512, 256)).astype(np.float32), np.zeros(256, np.float32), 0)
    sizes = {"BM": 8, "BN": 256}
    alone = loads(column_sums, args, False, **sizes)
    assert loads(column_sums, args, True, **sizes) >= 4 * alone
    assert loads(column_sums, args, True, MANY=True, **sizes) <= 3 * alone


@tw.kernel
def recurrence(A, B, H, START, IN_PLACE: tw.constexpr = False, BD: tw.constexpr = 64):
    """h[t] = a[t] h[t - 1] + b[t], each stored; B may be where it is stored."""
    d = tw.program_id(0) * BD
    h = tw.load_tile(tw.init_tile(START, [d], (1, BD)))
    for t in range(A.shape[0]):
        b = tw.load_tile(tw.init_tile(H if IN_PLACE else B, [t, d], (1, BD)))
        h = tw.load_tile(tw.init_tile(A, [t, d], (1, BD))) * h + b
        tw.store_tile(h, tw.init_tile(H, [t, d], (1, BD)))
    tw.store_tile(h, tw.init_tile(START, [d], (1, BD)))


@pytest.mark.parametrize("turns", [3, 32, 101])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("columns", [128, 102, 99])
def test_loops_that_store_read_first_what_nothing_writes(turns, in_place, columns, rng):
    """Behind the end of B's rows, too, where what is left over begins, as where pairs of columns are no pairs."""
    a, b = (rng.integers(-1, 2, (turns, 128)).astype(np.float32)[:, :columns] for _ in range(2))
    rows = turns if in_place else turns - 2
    b[rows:] = 0
    start = rng.integers(-2, 3, 128).astype(np.float32)[:columns]
    h = np.full((turns, 128), np.nan, np.float32)[:, :columns]
    h[:], want, last = b if in_place else np.nan, [], start.copy()
    for t in range(turns):
        last = a[t] * last + b[t]
        want.append(last)
    args = (a, b[:rows], h, start)
    code = lowered(recurrence, args, True, IN_PLACE=in_place)
    run_threads(code, [describe(x) for x in args], (2, 1, 1))
    np.testing.assert_array_equal(h, np.stack(want))
    np.testing.assert_array_equal(start, last)
    once = loads(recurrence, args, False, IN_PLACE=in_place)
    assert (loads(recurrence, args, True, IN_PLACE=in_place) > once) is not in_place


@tw.kernel
def from_a_row(A, H, FROM, N, BD: tw.constexpr = 64):
    """Sums of N rows from row FROM on, in every program of the grid's second axis N rows further; each stored."""
    d, r = tw.program_id(0) * BD, tw.program_id(1) * N + FROM
    h = tw.zeros((1, BD), tw.f32)
    for t in range(N):
        h = tw.load_tile(tw.init_tile(A, [r + t, d], (1, BD))) + h
        tw.store_tile(h, tw.init_tile(H, [r + t, d], (1, BD)))


@pytest.mark.parametrize("first, rows, n", [(0, 80, 40), (-5, 75, 40), (7, 100, 33), (-50, 60, 40)])
def test_rows_from_a_number_on_are_compared_once(first, rows, n, rng):
    """Those in front of the array, and behind its end, read nothing and store nothing."""
    a = rng.integers(-9, 9, (rows, 100)).astype(np.float32)
    h, want = np.full((rows, 100), np.nan, np.float32), np.full((rows, 100), np.nan, np.float32)
    wide = np.pad(a, [(50, 50), (0, 0)])
    for p in range(2):
        at = first + p * n
        sums = np.cumsum(wide[50 + at : 50 + at + n], 0)
        inside = [t for t in range(n) if 0 <= at + t < rows]
        want[[at + t for t in inside]] = sums[inside]
    code = lowered(from_a_row, (a, h, first, n), True)
    run_threads(code, [describe(a), describe(h), first, n], (2, 2, 1))
    np.testing.assert_array_equal(h, want)
    main = next(op for op in code.module.walk() if isinstance(op, scf.ForOp))
    assert sum(isinstance(op, mach.MaskedLoadOp) for op in main.body.block.ops) >= 8
    assert not any(isinstance(op, arith.CmpiOp) for op in main.body.block.ops)


@tw.kernel
def running(X, Y, BD: tw.constexpr):
    total = tw.zeros((1, BD), tw.f32)
    for t in range(X.shape[0]):
        total += tw.load_tile(tw.init_tile(X, [t, 0], (1, BD))).to(tw.f32)
        tw.store_tile(total, tw.init_tile(Y, [t, 0], (1, BD)))


@pytest.mark.parametrize("dtype", [tw.bf16, tw.f16, tw.i8])
@pytest.mark.parametrize("columns", [32, 64, 128])
def test_words_are_held_until_the_next_lot(dtype, columns, rng):
    """Of one, two and four numbers in a thread."""
    x = rng.integers(-3, 4, (150, columns)).astype(dtype.numpy)
    y = np.full(x.shape, np.nan, np.float32)
    run_threads(lowered(running, (x, y), True, BD=columns), [describe(x), describe(y)], (1, 1, 1))
    np.testing.assert_array_equal(y, x.astype(np.float32).cumsum(0))


@tw.kernel
def shifted(X, Y, N):
    for t in range(N):
        x = tw.load_tile(tw.init_tile(X, [t, 0], (1, 64)))
        tw.store_tile(x + 1, tw.init_tile(Y, [t, 0], (1, 64)))


def test_what_a_launch_stores_to_under_another_name_is_read_in_order(host_launches: Driver):
    x, kernel = np.zeros((80, 64), np.float32), tw.kernel(shifted.function)
    for args in ((x[:40], x[40:]), (x, x), (x[:50], x[1:51])):
        kernel.options(target="sm_90a")[1](*args, 30)
    reads = [each.code.decode().count("ld.global") for each in host_launches.launches]
    # 32 in front of the loop and in it, 8 of what is left over, and one of that.
    assert reads[0] == 73 * reads[1] and reads[1] == reads[2]


@tw.kernel
def sums(X, Y, BY: tw.constexpr):
    for n in range(0, 128, BY):
        x = tw.load_tile(tw.init_tile(X, [0, n], (1, 64)))
        y = tw.init_tile(Y, [0, n], (1, 64))
        tw.store_tile(tw.load_tile(y) + tw.transpose(tw.transpose(x)), y)


@pytest.mark.parametrize("by", [64, 32])
def test_threads_meet_where_iterations_store_to_the_same_places(by, rng):
    x, y = (rng.integers(-9, 9, (1, 192)).astype(np.float32) for _ in range(2))
    want = y.copy()
    for n in range(0, 128, by):
        want[:, n : n + 64] += x[:, n : n + 64]
    code = lowered(sums, (x, y), False, BY=by)
    run_threads(code, [describe(x), describe(y)], (1, 1, 1))
    np.testing.assert_array_equal(y, want)
    assert ("gpu.barrier" in str(code.module)) == (by == 32)


@tw.kernel
def overlap_add(X, Y):
    for n in range(4):
        y = tw.init_tile(Y, [n, 0], (1, 64))
        frame = tw.load_tile(tw.init_tile(X, [n, 0], (1, 64)))
        tw.store_tile(
            tw.transpose(tw.transpose(tw.load_tile(y))) + tw.transpose(tw.transpose(frame)), y
        )


@pytest.mark.parametrize("hop, met", [(64, False), (32, True), (48, True)])
def test_threads_meet_where_rows_overlap(hop, met, rng) -> None:
    """What an iteration stores to one row, the next reads of another."""
    rows = (4, 64), (4 * hop, 4)
    frames, signal = (rng.integers(-9, 9, n).astype("f4") for n in ((4, 64), 3 * hop + 64))
    want = signal.copy()
    for n, row in enumerate(np.lib.stride_tricks.as_strided(want, *rows)):
        row += frames[n]
    arrays = frames, np.lib.stride_tricks.as_strided(signal, *rows)
    code = lowered(overlap_add, arrays, False)
    assert ("gpu.barrier" in str(code.module)) == met
    run_threads(code, [describe(a) for a in arrays], (1, 1, 1))
    np.testing.assert_array_equal(signal, want)


@tw.kernel
def once(X, Y):
    total = tw.zeros((16, 64), tw.f32)
    for k in range(0, 16, 16):
        x = tw.load_tile(tw.init_tile(X, [0, k], (16, 64)))
        if k < X.shape[1]:
            total += x
    tw.store_tile(total, tw.init_tile(Y, [0, 0], (16, 64)))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_the_counter_of_a_loop_that_runs_once_is_a_number_and_a_value(target: str) -> None:
    x = np.zeros((16, 64), np.float32)
    assert "ld.global" in once.compile(x, x, target=target).asm["ptx"]
