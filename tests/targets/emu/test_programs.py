"""Whole programs: the executor, the compiler and the emulator print and compute the same."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tests.runtime.program.fragments import gemm, launch
from tests.texts import parse_module
from tilewright.runtime.program import run_program

TARGETS = ("reference", "cpu", "emu")
PROGRAMS = Path(__file__).parent / "programs"
GEMM = Path(__file__).parents[2] / "runtime" / "program" / "gemm_subgroup.mlir"


@pytest.mark.parametrize("path", [GEMM, *sorted(PROGRAMS.glob("*.mlir"))], ids=lambda p: p.stem)
def test_the_three_agree(path, capsys):
    """Printed results are the same, and the program's own comparisons hold."""
    printed: list[str] = []
    for target in TARGETS:
        said: list[str] = []
        module = parse_module(path.read_text(), path.name)
        failures = run_program(module, target=target, seed=7, strict=True, say=said.append)
        assert failures == [], (target, failures)
        out = capsys.readouterr().out
        assert "FALSE" not in out
        printed.append(re.sub(r"base@ = 0x[0-9a-f]+", "", out))
        if target == "emu":
            assert all("compiled for emu" in line and "because" not in line for line in said), said
    assert printed[0] == printed[1] == printed[2] != ""


@pytest.mark.parametrize("lane", [False, True])
@pytest.mark.parametrize("barrier", [False, True])
def test_products_in_pieces(lane, barrier):
    rng = fresh_rng()
    m, n, k = 64, 64, 64
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((m, k), (k, n)))
    text = gemm(m, n, k, lane=lane, barrier=barrier)
    results: list[np.ndarray] = []
    for target in TARGETS:
        c = np.full((m, n), np.nan, np.float32)
        said = launch(text, (m // 32, n // 64, 1), (64, 1, 1), [a, b, c], target)
        if target == "emu":
            assert "compiled for emu" in said[0] and "because" not in said[0]
        results.append(c)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    for c in results:
        assert np.linalg.norm(c - expected) / np.linalg.norm(expected) < 1e-6


@tw.kernel(level="subgroup", subgroups=4)
def row_sums(A, S, M: tw.constexpr, N: tw.constexpr):
    """Every subgroup sums a part of each row; the first adds the parts."""
    s = tw.subgroup_id()
    slm = tw.alloc_slm((4, M), tw.f32)
    width: tw.constexpr = N // 4
    part = tw.load_tile(tw.init_tile(A, [0, s * width], (M, width)))
    mine = tw.transpose(tw.sum(part, 1))
    tw.store_tile(mine, tw.init_tile(slm, [s, 0], (1, M)))
    tw.barrier()
    if s == 0:
        parts = tw.load_tile(tw.init_tile(slm, [0, 0], (4, M)))
        tw.store_tile(tw.sum(parts, 0), tw.init_tile(S, [0, 0], (1, M)))


def test_kernels_of_the_language_at_subgroup_level():
    rng = fresh_rng()
    a = rng.standard_normal((16, 64)).astype(np.float32)
    results: list[np.ndarray] = []
    for target in ("reference", "emu"):
        out = np.full((1, 16), np.nan, np.float32)
        row_sums.options(target=target)[1](a, out, M=16, N=64)
        results.append(out)
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(results[1][0], a.sum(axis=1), rtol=1e-4, atol=1e-4)


THREADS = """
gpu.module @k {
  gpu.func @f(%o: memref<8xindex>) kernel attributes {tilewright.level = "subgroup"} {
    %x = gpu.thread_id x
    %y = gpu.thread_id y
    %n = gpu.block_dim x
    %s = gpu.subgroup_id
    %a = arith.muli %y, %c100 : index
    %b = arith.muli %n, %c10 : index
    %c = arith.addi %a, %b : index
    %d = arith.addi %c, %x : index
    memref.store %d, %o[%s] : memref<8xindex>
    gpu.return
  }
}
"""


def test_a_subgroups_threads_are_those_of_the_launch():
    """A subgroup's program launched with a thread per lane, along two axes: it has the ids of its first lane."""
    results: list[np.ndarray] = []
    for target in ("reference", "emu"):
        o = np.full(8, -1)
        launch(THREADS, (1, 1, 1), (32, 4, 1), [o], target)
        results.append(o)
    expected = [100 * (s // 2) + 320 + 16 * (s % 2) for s in range(8)]
    np.testing.assert_array_equal(results[0], expected)
    np.testing.assert_array_equal(results[1], expected)
