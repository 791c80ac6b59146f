"""Loops around structured ops: one launch where their rounds are independent, as they are where not."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from xdsl.dialects import func, gpu, scf
from xdsl.ir import Operation

from tests.arrays import error
from tests.passes.linalg.programs import Array, drawn, program, run_on
from tilewright.dialects.text import parse_module
from tilewright.passes.linalg.to_xetile import linalg_to_xetile
from tilewright.passes.planner import Request
from tilewright.targets.entry import host_to_tiles

N, TILE = 128, 8
T, MEMORY = f"tensor<{N}x{N}xf32>", f"memref<{N}x{N}xf32>"
HEAD = f"""%c0 = arith.constant 0 : index
  %end = arith.constant {N} : index
  %step = arith.constant {TILE} : index
  %c1 = arith.constant 1 : index
  %z = arith.constant 0.0 : f32
  %tx = bufferization.to_tensor %x restrict : {MEMORY} to {T}
  %ty = bufferization.to_tensor %y restrict : {MEMORY} to {T}
  %tz = bufferization.to_tensor %w restrict : {MEMORY} to {T}
"""


def _slices(into: str, i: str = "%i", j: str = "%j", k: str = "%k", n: int = TILE) -> str:
    part = f"[{n}, {n}] [1, 1] : {T} to tensor<{n}x{n}xf32>"
    kinds = f"tensor<{n}x{n}xf32>"
    return (
        f"%a = tensor.extract_slice %tx[{i}, {k}] {part}\n  %b = tensor.extract_slice %ty[{k}, {j}] {part}\n"
        f"  %c = tensor.extract_slice {into}[{i}, {j}] {part}\n"
        f"  %m = linalg.matmul ins(%a, %b : {kinds}, {kinds}) outs(%c : {kinds}) -> {kinds}\n"
    )


def _tensor_loops(order: str) -> str:
    """Loops over the tiles of a product, each of which hands the tensor on, in this order."""
    text, given = "", "%tz"
    for name in order:
        text += f"%r{name} = scf.for %{name} = %c0 to %end step %step iter_args(%t{name}_ = {given}) -> ({T}) {{\n  "
        given = f"%t{name}_"
    text += _slices(given)
    text += (
        f"  %v = tensor.insert_slice %m into {given}[%i, %j] [{TILE}, {TILE}] [1, 1]"
        f" : tensor<{TILE}x{TILE}xf32> into {T}\n  scf.yield %v : {T}\n  }}\n"
    )
    for inner in order[:0:-1]:
        text += f"  scf.yield %r{inner} : {T}\n  }}\n"
    return text + f"  %o = bufferization.to_buffer %r{order[0]} : {T} to {MEMORY}"


FORALL = (
    f"%r = scf.forall (%i, %j) = (0, 0) to ({N}, {N}) step ({TILE}, {TILE}) shared_outs(%t = %tz) -> ({T}) {{\n  "
    + f"""%rows = tensor.extract_slice %tx[%i, 0] [{TILE}, {N}] [1, 1] : {T} to tensor<{TILE}x{N}xf32>
  %columns = tensor.extract_slice %ty[0, %j] [{N}, {TILE}] [1, 1] : {T} to tensor<{N}x{TILE}xf32>
  %c = tensor.extract_slice %t[%i, %j] [{TILE}, {TILE}] [1, 1] : {T} to tensor<{TILE}x{TILE}xf32>
  %m = linalg.matmul ins(%rows, %columns : tensor<{TILE}x{N}xf32>, tensor<{N}x{TILE}xf32>)
    outs(%c : tensor<{TILE}x{TILE}xf32>) -> tensor<{TILE}x{TILE}xf32>
  scf.forall.in_parallel {{
    tensor.parallel_insert_slice %m into %t[%i, %j] [{TILE}, {TILE}] [1, 1]
      : tensor<{TILE}x{TILE}xf32> into {T}
  }}
  }}
  %o = bufferization.to_buffer %r : {T} to {MEMORY}"""
)
PART = f"memref<{TILE}x{TILE}xf32, strided<[{N}, 1], offset: ?>>"


def _part(name: str, of: str, i: str, j: str) -> str:
    return (
        f"%{name} = memref.subview {of}[{i}, {j}] [{TILE}, {TILE}] [1, 1] : {MEMORY} to {PART}\n  "
    )


MEMREFS = (
    "scf.parallel (%i, %j) = (%c0, %c0) to (%end, %end) step (%step, %step) {\n  "
    + f"%s = memref.alloc() : memref<{TILE}x{TILE}xf32>\n  "
    + f"linalg.fill ins(%z : f32) outs(%s : memref<{TILE}x{TILE}xf32>)\n  "
    + "scf.for %k = %c0 to %end step %step {\n  "
    + _part("a", "%x", "%i", "%k")
    + _part("b", "%y", "%k", "%j")
    + f"linalg.matmul ins(%a, %b : {PART}, {PART}) outs(%s : memref<{TILE}x{TILE}xf32>)\n  }}\n  "
    + _part("p", "%w", "%i", "%j")
    + f"linalg.add ins(%p, %s : {PART}, memref<{TILE}x{TILE}xf32>) outs(%p : {PART})\n  "
    + f"memref.copy %p, %p : {PART} to {PART}\n  "
    + f"memref.dealloc %s : memref<{TILE}x{TILE}xf32>\n  scf.reduce\n  }}\n"
    + f"  %o = memref.cast %w : {MEMORY} to {MEMORY}"
)
ROW = f"memref<1x{N}xf32, strided<[{N}, 1], offset: ?>>"


def _rows(before: str, first: str) -> str:
    """Each row gets what another one of the same array is added to it."""
    return (
        f"scf.for %i = {first} to %end step %c1 {{\n  {before}\n  %s = memref.alloc() : memref<1x{N}xf32>\n  "
        f"%a = memref.subview %w[%p, 0] [1, {N}] [1, 1] : {MEMORY} to {ROW}\n  "
        f"%b = memref.subview %w[%i, 0] [1, {N}] [1, 1] : {MEMORY} to {ROW}\n  "
        f"linalg.add ins(%a, %b : {ROW}, {ROW}) outs(%s : memref<1x{N}xf32>)\n  "
        f"memref.copy %s, %b : memref<1x{N}xf32> to {ROW}\n  }}\n"
        f"  %o = memref.cast %w : {MEMORY} to {MEMORY}"
    )


def _product(x: Array, y: Array, w: Array) -> Array:
    return w + x.astype(np.float64) @ y


def _running(x: Array, y: Array, w: Array) -> Array:
    return np.cumsum(w.astype(np.float64), 0)


CASES: dict[str, tuple[str, Callable[[Array, Array, Array], Array], int]] = {
    "tensors, k innermost": (_tensor_loops("ijk"), _product, 0),
    "tensors, k in the middle": (_tensor_loops("ikj"), _product, 0),
    "tensors, k outermost": (_tensor_loops("kij"), _product, 1),
    "forall": (FORALL, _product, 0),
    "memrefs": (MEMREFS, _product, 0),
    "each row needs the one before": (_rows("%p = arith.subi %i, %c1 : index", "%c1"), _running, 1),
}
"""A program that makes %o, its result, and the number of loops of the host around its launches."""


def _text(name: str, *arrays: Array) -> str:
    inputs = dict(zip("xyw", arrays, strict=True))
    return program(HEAD + "  " + CASES[name][0], inputs, {"o": MEMORY})


def _loops_around(op: Operation) -> int:
    outer, number = op.parent_op(), 0
    while outer is not None:
        number += isinstance(outer, scf.ForOp | scf.ParallelOp)
        outer = outer.parent_op()
    return number


@pytest.mark.parametrize("name", CASES)
def test_one_launch_for_independent_rounds(name: str):
    module = parse_module(_text(name, *(drawn("float32", N, N) for _ in range(3))))
    host_to_tiles(module, "cpu")
    launches = [op for op in module.walk() if isinstance(op, gpu.LaunchFuncOp | func.CallOp)]
    depths = [_loops_around(op) for op in launches]
    assert max(depths) == CASES[name][2]


@pytest.mark.parametrize("target", [None, "cpu"])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, target: str | None, capfd: pytest.CaptureFixture[str]):
    arrays = [drawn("float32", N, N) for _ in range(3)]
    (found,), said = run_on(_text(name, *arrays), target, capfd)
    assert error(found, CASES[name][1](*arrays)) < 1e-5
    assert not any("reference executor" in line for line in said)


def test_a_planner_is_asked_once_for_a_kernel():
    """That of a loop which is no launch is made again, of a loop in it."""
    asked: list[str] = []

    def choose(request: Request) -> dict[str, int]:
        asked.append(re.sub(r"@\w+", "", str(request.build(dict.fromkeys(request.names, 32)))))
        return dict.fromkeys(request.names, 32)

    arrays = [drawn("float32", N, N) for _ in "xyw"]
    linalg_to_xetile(parse_module(_text("tensors, k outermost", *arrays)), choose)
    assert len(asked) == len(set(asked)) > 0
