"""What a loop changes of a tensor is changed where it lies, and nothing that is read afterwards changes."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import memref, scf
from xdsl.dialects.bufferization import AllocTensorOp

from tests.passes.linalg.programs import Array, drawn, program, run_on
from tilewright.dialects.text import parse_module
from tilewright.passes.linalg.bufferize import bufferize
from tilewright.passes.linalg.in_place import copy_before_changes

T = "tensor<8x8xf32>"
ROW = "tensor<1x8xf32>"
HEAD = f"""%c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  %tx = bufferization.to_tensor %x restrict : memref<8x8xf32> to {T}
  %init = linalg.exp ins(%tx : {T}) outs(%tx : {T}) -> {T}
"""


def _loop(result: str, init: str, body: str, start: str = "%c0", end: str = "%c4") -> str:
    return f"{result} = scf.for %i = {start} to {end} step %c1 iter_args(%t = {init}) -> {T} {{\n    {body}\n  }}\n  "


def _row(result: str, source: str, at: str) -> str:
    return f"{result} = tensor.extract_slice {source}[{at}, 0] [1, 8] [1, 1] : {T} to {ROW}\n    "


def _put(source: str, into: str, at: str) -> str:
    return f"%n = tensor.insert_slice {source} into {into}[{at}, 0] [1, 8] [1, 1] : {ROW} into {T}\n    "


ADD = f"%s = linalg.add ins(%a, %b : {ROW}, {ROW}) outs(%b : {ROW}) -> {ROW}\n    "
BEFORE = "%p = arith.subi %i, %c1 : index\n    "
YIELD = f"scf.yield %n : {T}"
RUNNING = (
    BEFORE + _row("%a", "%t", "%p") + _row("%b", "%t", "%i") + ADD + _put("%s", "%t", "%i") + YIELD
)


def _running(x: Array) -> Array:
    return np.cumsum(x, 0)


def _rotated(x: Array) -> Array:
    """The first row of what a round began with goes to its row i."""
    for i in range(4):
        x = x.copy()
        first = x[0].copy()
        x[0] += 1
        x[i] = first
    return x


def _handed_on(x: Array) -> Array:
    new, old = x, np.cumsum(x, 0)
    for i in range(4):
        changed = new.copy()
        changed[i] = old[i + 1]
        new, old = changed, new
    return new + 2 * old


def _shared(x: Array) -> Array:
    y = x.copy()
    y[:4] = x[4:]
    return y


def _swapped(x: Array) -> Array:
    one, other = x, np.cumsum(x, 0)
    total = np.zeros_like(x)
    for i in range(4):
        changed = one.copy(), other.copy()
        changed[0][i], changed[1][i] = other[i + 1], one[i + 1]
        total = changed[0] - changed[1]
        one, other = other, one
    return total + one


def _handed_round(x: Array) -> Array:
    one = other = x
    for i in range(4):
        changed, kept = other.copy(), x.copy()
        changed[:4], kept[i] = one[:4], 1
        one, other = changed, kept
    return one + 2 * other


PROGRAMS = {
    "neighbours": (_loop("%r", "%init", RUNNING, "%c1", "%c8"), _running, 0),
    "nested": (
        _loop("%r", "%init",
            f"%v = scf.for %j = %c0 to %c8 step %c1 iter_args(%u = %t) -> {T} {{\n"
            f"      %e = tensor.extract %u[%i, %j] : {T}\n      %f = arith.addf %e, %one : f32\n"
            f"      %n = tensor.insert %f into %u[%c0, %j] : {T}\n      {YIELD}\n    }}\n    scf.yield %v : {T}"),
        lambda x: np.concatenate([x[3:4] + 1, x[1:]]), 0,
    ),
    "vectors": (
        f"%w = vector.transfer_read %init[%c1, %c0], %one {{in_bounds = [true]}} : {T}, vector<8xf32>\n  "
        + _loop("%r", "%init",
            f"%a = vector.transfer_read %t[%i, %c0], %one {{in_bounds = [true]}} : {T}, vector<8xf32>\n    "
            "%b = arith.addf %a, %w : vector<8xf32>\n    "
            f"%n = vector.transfer_write %b, %t[%i, %c0] {{in_bounds = [true]}} : vector<8xf32>, {T}\n    " + YIELD),
        lambda x: np.concatenate([x[:4] + x[1], x[4:]]), 0,
    ),
    "gathered": (
        "%back = arith.constant dense<[7, 6, 5, 4, 3, 2, 1, 0]> : vector<8xindex>\n  "
        "%all = arith.constant dense<true> : vector<8xi1>\n  %w = arith.constant dense<0.0> : vector<8xf32>\n  "
        + _loop("%r", "%init",
            f"%a = vector.gather %t[%i, %c0] [%back], %all, %w : {T}, vector<8xindex>, vector<8xi1>, vector<8xf32> "
            "into vector<8xf32>\n    "
            f"%n = vector.transfer_write %a, %t[%i, %c0] {{in_bounds = [true]}} : vector<8xf32>, {T}\n    " + YIELD),
        lambda x: np.concatenate([x[:4, ::-1], x[4:]]), 0,
    ),
    "memory_beside": (
        "%w = memref.alloca() : memref<8xf32>\n  %v = arith.constant dense<3.0> : vector<8xf32>\n  "
        "vector.transfer_write %v, %w[%c0] {in_bounds = [true]} : vector<8xf32>, memref<8xf32>\n  "
        "%f = memref.load %w[%c4] : memref<8xf32>\n  "
        f"%r = linalg.fill ins(%f : f32) outs(%init : {T}) -> {T}\n  ",
        lambda x: np.full_like(x, 3), 0,
    ),
    "chosen_part": (
        f"%d = linalg.exp ins(%init : {T}) outs(%init : {T}) -> {T}\n  " + _row("%a", "%init", "1")
        + f"%h = linalg.add ins(%a, %a : {ROW}, {ROW}) outs(%a : {ROW}) -> {ROW}\n  "
        "%e = tensor.extract %init[%c0, %c0] : " + T + "\n  %is = arith.cmpf ogt, %e, %one : f32\n  "
        f"%g = scf.if %is -> {ROW} {{\n    scf.yield %h : {ROW}\n  }} else {{\n    scf.yield %a : {ROW}\n  }}\n  "
        f"%r = tensor.insert_slice %g into %d[%c4, 0] [1, 8] [1, 1] : {ROW} into {T}\n  ",
        lambda x: np.concatenate([np.exp(x[:4]), x[1:2] * (2 if x[0, 0] > 1 else 1), np.exp(x[5:])]), 0,
    ),
    "read_after": (
        _loop("%q", "%init", RUNNING, "%c1", "%c8")
        + f"%r = linalg.sub ins(%q, %init : {T}, {T}) outs(%q : {T}) -> {T}\n  ",
        lambda x: np.cumsum(x, 0) - x, 1,
    ),
    "part_read_after": (
        _loop("%r", "%init",
            _row("%a", "%t", "0") + f"%k = tensor.empty() : {ROW}\n    "
            f"%h = linalg.fill ins(%one : f32) outs(%k : {ROW}) -> {ROW}\n    "
            + f"%g = linalg.add ins(%a, %h : {ROW}, {ROW}) outs(%k : {ROW}) -> {ROW}\n    "
            + f"%m = tensor.insert_slice %g into %t[0, 0] [1, 8] [1, 1] : {ROW} into {T}\n    "
            + _put("%a", "%m", "%i") + YIELD),
        _rotated, 1,
    ),
    "old_handed_on": (
        _loop("%q", "%init", RUNNING, "%c1", "%c8")
        + f"%z:2 = scf.for %i = %c0 to %c4 step %c1 iter_args(%t = %init, %o = %q) -> ({T}, {T}) {{\n    "
        + "%p = arith.addi %i, %c1 : index\n    " + _row("%a", "%o", "%p") + _put("%a", "%t", "%i")
        + f"scf.yield %n, %t : {T}, {T}\n  }}\n  "
        + f"%d = linalg.add ins(%z#1, %z#1 : {T}, {T}) outs(%q : {T}) -> {T}\n  "
        + f"%r = linalg.add ins(%z#0, %d : {T}, {T}) outs(%q : {T}) -> {T}\n  ",
        _handed_on, 2,
    ),
    "swapped": (
        _loop("%q", "%init", RUNNING, "%c1", "%c8")
        + f"%z:3 = scf.for %i = %c0 to %c4 step %c1 iter_args(%t = %init, %o = %q, %u = %q) -> ({T}, {T}, {T}) {{\n    "
        + "%p = arith.addi %i, %c1 : index\n    " + _row("%a", "%o", "%p") + _row("%b", "%t", "%p")
        + _put("%a", "%t", "%i") + _put("%b", "%o", "%i").replace("%n", "%m")
        + f"%v = linalg.sub ins(%n, %m : {T}, {T}) outs(%n : {T}) -> {T}\n    "
        + f"scf.yield %o, %t, %v : {T}, {T}, {T}\n  }}\n  "
        + f"%r = linalg.add ins(%z#0, %z#2 : {T}, {T}) outs(%q : {T}) -> {T}\n  ",
        _swapped, 3,
    ),
    "handed_round": (
        f"%ones = arith.constant dense<1.0> : {ROW}\n  "
        f"%z:2 = scf.for %i = %c0 to %c4 step %c1 iter_args(%t = %init, %o = %init) -> ({T}, {T}) {{\n    "
        f"%n = scf.forall (%j) in (4) shared_outs(%s = %o) -> ({T}) {{\n      "
        + _row("%a", "%t", "%j") + "scf.forall.in_parallel {\n        "
        f"tensor.parallel_insert_slice %a into %s[%j, 0] [1, 8] [1, 1] : {ROW} into {T}\n      }}\n    }}\n    "
        + _put("%ones", "%t", "%i").replace("%n", "%m") + _put("%ones", "%init", "%i").replace("%n", "%k")
        + f"scf.yield %n, %k : {T}, {T}\n  }}\n  "
        f"%d = linalg.add ins(%z#1, %z#1 : {T}, {T}) outs(%z#1 : {T}) -> {T}\n  "
        f"%r = linalg.add ins(%z#0, %d : {T}, {T}) outs(%z#0 : {T}) -> {T}\n  ",
        _handed_round, 3,
    ),
    "part_of_itself": (
        f"%a = tensor.extract_slice %init[0, 0] [4, 8] [1, 1] : {T} to tensor<4x8xf32>\n  "
        f"%r = tensor.insert_slice %a into %init[1, 0] [4, 8] [1, 1] : tensor<4x8xf32> into {T}\n  ",
        lambda x: np.concatenate([x[:1], x[:4], x[5:]]), 1,
    ),
    "forall": (
        f"%r = scf.forall (%i) in (4) shared_outs(%t = %init) -> ({T}) {{\n    "
        "%p = arith.addi %i, %c4 : index\n    " + _row("%a", "%init", "%p")
        + "scf.forall.in_parallel {\n      "
        f"tensor.parallel_insert_slice %a into %t[%i, 0] [1, 8] [1, 1] : {ROW} into {T}\n    }}\n  }}\n  ",
        _shared, 1,
    ),
}  # fmt: skip
"""A program that makes %r of %init, what it makes, and how many tensors it copies before it changes them."""


def _text(name: str, x: Array) -> str:
    body = f"%o = bufferization.to_buffer %r : {T} to memref<8x8xf32>"
    return program(HEAD + "  " + PROGRAMS[name][0] + body, {"x": x}, {"o": "memref<8x8xf32>"})


@pytest.mark.parametrize("target", [None, "cpu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name: str, target: str | None, capfd: pytest.CaptureFixture[str]):
    x = drawn("float32", 8, 8)
    (found,), said = run_on(_text(name, x), target, capfd)
    wanted = PROGRAMS[name][1](np.exp(x.astype(np.float64)))
    assert np.linalg.norm(found - wanted) <= 1e-4 * np.linalg.norm(wanted)
    assert not any("reference executor" in line for line in said)


@pytest.mark.parametrize("name", PROGRAMS)
def test_copies(name: str):
    module = parse_module(_text(name, drawn("float32", 8, 8)))
    copy_before_changes(module)
    assert sum(isinstance(op, AllocTensorOp) for op in module.walk()) == PROGRAMS[name][2]


def test_loops_over_parts_allocate_parts():
    """Memory of a tiled program grows with its parts, not with parts times the whole."""
    module = parse_module(_text("neighbours", drawn("float32", 8, 8)))
    bufferize(module)
    (loop,) = [op for op in module.walk() if isinstance(op, scf.ForOp)]
    made = [op.memref.type.get_shape() for op in loop.walk() if isinstance(op, memref.AllocOp)]
    assert made == [(1, 8)]
