# ruff: noqa: E501
"""Launches of any number of threads, as MLIR's passes make kernels of parallel loops: compiled, where no thread asks
who is in its subgroup."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.linalg.programs import program, run_on
from tests.peer.mlir_opt import mlir_opt, needs_mlir_opt

TURNED = """{constants}
  gpu.launch blocks(%p, %q, %r) in (%gx = %c3, %gy = %c1, %gz = %c1) threads(%x, %y, %z) in (%bx = %c{0}, %by = %c{1}, %bz = %c{2}) {{
    %s = memref.alloca() : memref<{n}xf32, #gpu.address_space<workgroup>>
    %last = arith.constant {last} : index
    %rows = arith.muli %z, %by : index
    %row = arith.addi %rows, %y : index
    %before = arith.muli %row, %bx : index
    %t = arith.addi %before, %x : index
    %v = memref.load %a[%p, %t] : memref<3x{n}xf32>
    memref.store %v, %s[%t] : memref<{n}xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    %u = arith.subi %last, %t : index
    %w = memref.load %s[%u] : memref<{n}xf32, #gpu.address_space<workgroup>>
    memref.store %w, %o[%p, %t] : memref<3x{n}xf32>
    gpu.terminator
  }}"""
"""Each workgroup turns its row round, through memory that its threads share."""


@pytest.mark.parametrize("block", [(1, 1, 1), (6, 1, 1), (5, 3, 1), (2, 5, 4), (7, 1, 1)])
def test_any_block(block: tuple[int, int, int], capfd: pytest.CaptureFixture[str]):
    n = int(np.prod(block))
    constants = "\n  ".join(f"%c{c} = arith.constant {c} : index" for c in sorted({1, 3, *block}))
    a = np.arange(3 * n, dtype=np.float32).reshape(3, n)
    body = TURNED.format(*block, n=n, last=n - 1, constants=constants)
    text = program(body, {"a": a, "o": np.zeros_like(a)}, {"o": f"memref<3x{n}xf32>"})
    for target in ("reference", "cpu"):
        found, said = run_on(text, target, capfd)
        np.testing.assert_array_equal(found[0], a[:, ::-1], target)
        assert not any("reference executor" in line for line in said), said


@needs_mlir_opt
def test_parallel_loops(capfd: pytest.CaptureFixture[str]):
    """Tiles of 2 x 3, a thread for each element."""
    body = """linalg.generic {indexing_maps = [affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
    ins(%a : memref<9x8xf32>) outs(%o : memref<8x9xf32>) {
  ^bb0(%x: f32, %y: f32):
    %z = arith.addf %x, %y : f32
    linalg.yield %z : f32
  }"""
    a = np.arange(72, dtype=np.float32).reshape(9, 8)
    text = program(body, {"a": a, "o": np.ones((8, 9), np.float32)}, {"o": "memref<8x9xf32>"})
    text = mlir_opt(
        text,
        pipeline="func.func(convert-linalg-to-parallel-loops,"
        "scf-parallel-loop-tiling{parallel-loop-tile-sizes=2,3},gpu-map-parallel-loops,"
        "convert-parallel-loops-to-gpu),lower-affine,gpu-kernel-outlining",
    )
    assert "gpu.launch_func" in text
    for target in ("reference", "cpu"):
        found, said = run_on(text, target, capfd)
        np.testing.assert_array_equal(found[0], a.T + 1, target)
        assert not any("reference executor" in line for line in said), said
