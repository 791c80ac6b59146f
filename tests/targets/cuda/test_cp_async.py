"""Copies by threads (cp.async) as the stage IR has them: which loads, how deep, and that they compute the same."""

# Kernels are not typed Python.
# pyright: reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.dialects import gpu, scf
from xdsl.ir import Operation

import tilewright as tw
from tests.acceptance import kernels as k
from tests.acceptance.kernels_more import paged_attention
from tests.targets.cuda.threads import ThreadsTarget, run_threads
from tilewright.dialects import mach, stage, xetile
from tilewright.dialects.text import parse_module
from tilewright.reference import run
from tilewright.runtime.arrays import describe

SPECS = {d: tw.spec((256, 256), d) for d in (tw.f16, tw.f32)}


def staged(kernel: Any, *args: Any, **options: Any) -> list[Operation]:
    """The ops of the stage IR of a kernel for sm_80."""
    chosen = {name: options.pop(name) for name in ("num_stages", "disable") if name in options}
    compiled = kernel.options(**chosen).compile(*args, target="sm_80", **options)
    return list(parse_module(compiled.ir["stage"]).walk())


@pytest.mark.parametrize("slots", [2, 3, 4])
def test_the_stage_shows_the_copies(slots: int) -> None:
    """All fills but those that hold later iterations are waited for; they are issued behind the wait."""
    ops = staged(
        k.gemm_init_in_loop, SPECS[tw.f16], SPECS[tw.f16], SPECS[tw.f32],
        BM=64, BN=64, BK=32, num_stages=slots,
    )  # fmt: skip
    (buffer,) = [op for op in ops if isinstance(op, stage.MultiBufferOp)]
    assert buffer.by_threads and buffer.result.type.slots.data == slots
    issues = [op for op in ops if isinstance(op, stage.CopyIssueOp)]
    (wait,) = [op for op in ops if isinstance(op, stage.CopyWaitOp)]
    assert len(issues) == slots and wait.pending == slots - 2
    assert all(op.condition is not None for op in issues)
    assert issues[-1].parent is wait.parent and wait.is_before_in_block(issues[-1])
    assert not any(isinstance(op, xetile.LoadTileOp) for op in ops)
    assert sum(isinstance(op, stage.DeallocOp) for op in ops) == 1


def test_one_slot_leaves_loads() -> None:
    args = SPECS[tw.f16], SPECS[tw.f16], SPECS[tw.f32]
    options = {"target": "sm_80", "BM": 64, "BN": 64, "BK": 32}
    for chosen in ({"num_stages": 1}, {"disable": "cp-async"}):
        compiled = k.gemm_init_in_loop.options(**chosen).compile(*args, **options)
        assert "stage" not in compiled.ir and "cp.async" not in compiled.asm["ptx"]


@tw.kernel
def beside(A, B, C, ROWS: tw.constexpr):
    """A product beside an array in shared memory, of 1 KB a row."""
    held = tw.alloc_slm((ROWS, 256), tw.f32)
    tile = tw.init_tile(held, [0, 0], (8, 256))
    tw.store_tile(tw.load_tile(tw.init_tile(C, [0, 0], (8, 256))), tile)
    acc = tw.zeros((64, 64), tw.f32)
    for i in range(0, A.shape[1], 64):
        a = tw.load_tile(tw.init_tile(A, [0, i], (64, 64)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [i, 0], (64, 64))), acc)
    tw.barrier()
    tw.store_tile(tw.load_tile(tile), tw.init_tile(C, [0, 0], (8, 256)))
    tw.store_tile(acc, tw.init_tile(C, [8, 0], (64, 64)))


@pytest.mark.parametrize(
    "rows, slots, workgroups", [(8, 4, 2), (24, 3, 2), (48, 4, 1), (120, 2, 1), (136, 0, 1)]
)
def test_slots_have_what_the_rest_leaves(rows: int, slots: int, workgroups: int) -> None:
    """Slots of 16 KB; a multiprocessor has 163 KB for one workgroup, or for two."""
    args = SPECS[tw.f16], SPECS[tw.f16], SPECS[tw.f32]
    compiled = beside.compile(*args, target="sm_80", ROWS=rows)
    assert f".minnctapersm {workgroups}\n" in compiled.asm["ptx"]
    ops = parse_module(compiled.ir["stage" if slots else "xetile"]).walk()
    found = [op.result.type.slots.data for op in ops if isinstance(op, stage.MultiBufferOp)]
    assert found == [slots] * bool(slots)


@tw.kernel
def narrow(A, B, C, N: tw.constexpr = 48):
    """A row of 48 halves is six pieces of 16 bytes: not as many for each of a power of two threads."""
    acc = tw.zeros((16, N), tw.f32)
    for j in range(0, A.shape[1], N):
        a = tw.load_tile(tw.init_tile(A, [0, j], (16, N)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [j, 0], (N, N))), acc)
    tw.store_tile(acc, tw.init_tile(C, [0, 0], (16, N)))


def test_threads_with_one_part_copy_it_once(
    threads: ThreadsTarget, rng: np.random.Generator
) -> None:
    """Warps would write it one after the other, in any order."""
    a, b = rng.standard_normal((16, 144)).astype("f2"), rng.standard_normal((144, 48)).astype("f2")
    c = np.full((16, 48), np.nan, "f4")
    narrow.options(target="cuda")[1](a, b, c)
    assert threads.last is not None and "cp.async" in threads.last.ir["mach"]
    seed = int(rng.integers(1 << 30))
    run_threads(threads.last.lowered, [describe(x) for x in (a, b, c)], (1, 1, 1), "random", seed)
    np.testing.assert_allclose(c, a.astype(float) @ b.astype(float), atol=1e-2)


@tw.kernel
def both(A, B, C, D, N: tw.constexpr, BK: tw.constexpr):
    """Loops in a loop, of which each has copies of its own."""
    x, y = tw.zeros((32, 32), tw.f32), tw.zeros((32, 32), tw.f32)
    for i in range(0, A.shape[0], 32):
        for j in range(0, A.shape[1], BK):
            a = tw.load_tile(tw.init_tile(A, [i, j], (32, BK)))
            x = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [j, 0], (BK, 32))), x)
        a = tw.load_tile(tw.init_tile(A, [i, 0], (32, 32)))
        y = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [0, i], (32, 32))), y)
    tw.store_tile(x, tw.init_tile(C, [0, 0], (32, 32)))
    tw.store_tile(y, tw.init_tile(D, [0, 0], (32, 32)))


@pytest.mark.parametrize("step", [16, 24])
def test_loops_in_loops(step: int, threads: ThreadsTarget, rng: np.random.Generator) -> None:
    """Each has a multi-buffer, and shared memory for both at the same time."""
    a, b = rng.standard_normal((72, 88)).astype("f2"), rng.standard_normal((88, 72)).astype("f2")
    c, d = (np.full((32, 32), np.nan, "f4") for _ in range(2))
    both.options(target="cuda")[1](a, b, c, d, N=1, BK=step)
    rows = np.concatenate([a, np.zeros((24, 88), "f2")]).astype(float)
    columns = np.concatenate([b, np.zeros((88, 24), "f2")], 1).astype(float)
    steps = range(0, 72, 32)
    wanted = sum(rows[i : i + 32] @ columns[:, :32] for i in steps)
    np.testing.assert_allclose(c, wanted, atol=1e-3)
    wanted = sum(rows[i : i + 32, :32] @ columns[:32, i : i + 32] for i in steps)
    np.testing.assert_allclose(d, wanted, atol=1e-3)
    assert threads.last is not None
    text = threads.last.ir["stage"]
    assert text.count("= stage.multi_buffer") == 2 == text.count("stage.dealloc")


@pytest.mark.parametrize("depth", [0, 40, 96])
def test_the_stage_computes_the_product(depth: int, rng: np.random.Generator) -> None:
    """Also where the loop is shorter than what is copied ahead."""
    kernel, shapes = k.gemm_two_loops, ((40, depth), (depth, 56), (40, 56))
    a, b = (rng.standard_normal(shape).astype("f2") for shape in shapes[:2])
    c = np.full(shapes[2], np.nan, "f4")
    compiled = kernel.compile(a, b, c, target="sm_80", BM=32, BN=32, BK=16)
    module = parse_module(compiled.ir["stage"])
    assert sum(isinstance(op, stage.MultiBufferOp) for op in module.walk()) == 2
    run(module, (2, 2, 1), [a, b, c], schedule="random")
    np.testing.assert_allclose(c, a.astype(float) @ b.astype(float), atol=1e-3)


@pytest.mark.parametrize("pages", [0, 1, 2, 9])
@pytest.mark.parametrize("rows", [1, 8, 16])
def test_tiles_that_a_table_names(
    rows: int, pages: int, threads: ThreadsTarget, rng: np.random.Generator
) -> None:
    """What the table has behind the last page is never followed."""
    q = rng.standard_normal((2, rows, 64)).astype("f2")
    keys, values = (rng.standard_normal((19, 16, 64)).astype("f2") for _ in range(2))
    table = np.full((2, 12), -(1 << 30), "i4")
    table[:, :pages] = rng.permutation(19)[: 2 * pages].reshape(2, pages)
    lengths = np.array([max(0, 16 * pages - 5), 16 * pages], "i4")
    out = np.full((2, rows, 64), np.nan, "f2")
    paged_attention.options(target="cuda")[2](
        q, keys, values, table, out, lengths, 0.125, D=64, BN=16, G=rows
    )
    for b, length in enumerate(lengths):
        if not length:
            continue
        mine = table[b, :pages]
        k, v = (x[mine].reshape(-1, 64)[:length].astype(float) for x in (keys, values))
        p = np.exp(q[b].astype(float) @ k.T * 0.125)
        np.testing.assert_allclose(out[b], p @ v / p.sum(1, keepdims=True), atol=5e-3)


def test_no_iteration_waits_for_what_a_table_names() -> None:
    """The number of a page is loaded an iteration before its copies are issued."""
    pages, q = tw.spec((19, 16, 64), tw.f16), tw.spec((2, 8, 64), tw.f16)
    integers = tw.spec((2, 12), tw.i32), tw.spec((2,), tw.i32)
    ops = staged(
        paged_attention, q, pages, pages, integers[0], q, integers[1], 0.125, D=64, BN=16, G=8
    )
    (wait,) = [op for op in ops if isinstance(op, stage.CopyWaitOp)]
    block = wait.parent
    assert block is not None
    (named,) = [op for op in block.ops if isinstance(op, xetile.LoadTileOp)]
    (issue,) = [op for op in block.ops if isinstance(op, stage.CopyIssueOp)]
    assert wait.is_before_in_block(named) and named.is_before_in_block(issue)
    behind = {named}
    for op in block.ops:
        if any(value.owner in behind for value in op.operands):
            behind.add(op)
    assert issue not in behind, "an iteration waits for what it loads"


def test_what_no_iteration_changes_is_brought_once() -> None:
    """Queries go to the threads that multiply by them before the loop; in it these exchange maxima and products."""
    pages, q = tw.spec((19, 16, 64), tw.f16), tw.spec((2, 8, 64), tw.f16)
    integers = tw.spec((2, 12), tw.i32), tw.spec((2,), tw.i32)
    args = q, pages, pages, integers[0], q, integers[1], 0.125
    code = paged_attention.compile(*args, D=64, BN=16, G=8, target="sm_90a").ir["mach"]
    (loop,) = [op for op in parse_module(code).walk() if isinstance(op, scf.ForOp)]
    ops = list(loop.walk())
    barriers = [op for op in ops if isinstance(op, gpu.BarrierOp)]
    stores = [op for op in ops if isinstance(op, mach.StoreOp)]
    assert (len(barriers), len(stores)) == (3, 2)


@pytest.mark.parametrize("dtype", ["i1", "f2", "f8"])
@pytest.mark.parametrize("turned", [False, True])
def test_lines_that_are_no_power_of_two(
    dtype: str, turned: bool, threads: ThreadsTarget, rng: np.random.Generator
) -> None:
    """They stand one after the other; products read them as they do panels."""
    a, b = (rng.integers(-9, 9, (96, 96)).astype(dtype) for _ in range(2))
    a = np.asfortranarray(a) if turned else a
    acc = {"i1": (tw.i32, "i4"), "f2": (tw.f32, "f4"), "f8": (tw.f64, "f8")}[dtype]
    c = np.zeros((96, 96), acc[1])
    k.gemm_init_in_loop.options(target="cuda")[2, 2](a, b, c, BM=48, BN=48, BK=32, ACC=acc[0])
    np.testing.assert_array_equal(c, a.astype(float) @ b.astype(float))
    assert threads.last is not None
    text = threads.last.ir["stage"]
    assert "#stage.part<32x48x" in text and "order = [1, 0], swizzle = 0>" in text


@pytest.mark.parametrize("dtype, depth, columns, bytes_", [
    ("f2", 100, 72, {8, 16}),
    ("f2", 104, 70, {16, 4}),
    ("f2", 98, 76, {4, 8}),
    ("f2", 99, 72, {16}),
    ("i1", 100, 72, {4, 8}),
    ("f8", 99, 71, {8}),
], ids=str)  # fmt: skip
def test_lines_are_copied_as_they_are_aligned(
    dtype, depth, columns, bytes_, threads: ThreadsTarget, rng: np.random.Generator
) -> None:
    """By 16, 8 or 4 bytes: what lies behind a ragged end is zero."""
    a, b = (rng.integers(-9, 9, n).astype(dtype) for n in ((70, depth), (depth, columns)))
    acc = {"i1": (tw.i32, "i4"), "f2": (tw.f32, "f4"), "f8": (tw.f64, "f8")}[dtype]
    c = np.full((70, columns), 99, acc[1])
    k.gemm_init_in_loop.options(target="cuda")[2, 2](a, b, c, BM=64, BN=64, BK=32, ACC=acc[0])
    np.testing.assert_array_equal(c, a.astype(float) @ b.astype(float))
    assert threads.last is not None
    found = {n for n in (4, 8, 16) if f"nvptx.cp.async.{n}" in threads.last.ir["mach"]}
    assert found == bytes_
