"""complex-pairs: complex numbers are what numpy makes of them, in functions, loops, branches, arrays and kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.draws import fresh_rng
from tests.passes.linalg.programs import program, run_on
from tilewright import reference
from tilewright.dialects.text import parse_module
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions
from tilewright.targets.entry import build_text, first_forms

COUNT = 12
UNARY: dict[str, Callable[[Any], Any]] = {
    "conj": np.conj, "neg": np.negative, "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p,
    "sqrt": np.sqrt, "rsqrt": lambda z: 1 / np.sqrt(z), "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "tanh": np.tanh, "sign": lambda z: z / np.abs(z),
}  # fmt: skip
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power,
}  # fmt: skip
REAL: dict[str, Callable[[Any], Any]] = {"abs": np.abs, "angle": np.angle}


def element(ops: list[str], at: str, kind: str) -> list[str]:
    """Each op on the numbers x[at] + i y[at] and y[at] + i x[at], their parts in rows of %o."""
    lines = [
        f"%a = memref.load %x[{at}] : memref<{COUNT}x{kind}>",
        f"%b = memref.load %y[{at}] : memref<{COUNT}x{kind}>",
        f"%z = complex.create %a, %b : complex<{kind}>",
        f"%w = complex.create %b, %a : complex<{kind}>",
    ]
    for n, op in enumerate(ops):
        given = "%z, %w" if op in BINARY else "%z"
        lines += [
            f"%v{n} = complex.{op} {given} : complex<{kind}>",
            f"%re{n} = arith.addf %v{n}, %zero : {kind}"
            if op in REAL
            else f"%re{n} = complex.re %v{n} : complex<{kind}>",
            f"%im{n} = arith.mulf %re{n}, %zero : {kind}"
            if op in REAL
            else f"%im{n} = complex.im %v{n} : complex<{kind}>",
            f"%n{n} = arith.constant {n} : index",
            f"memref.store %re{n}, %o[%n{n}, %c0, {at}] : memref<{len(ops)}x2x{COUNT}x{kind}>",
            f"memref.store %im{n}, %o[%n{n}, %c1, {at}] : memref<{len(ops)}x2x{COUNT}x{kind}>",
        ]
    return lines


def body(ops: list[str], kind: str) -> str:
    return "\n".join([
        "%c0 = arith.constant 0 : index",
        "%c1 = arith.constant 1 : index",
        f"%count = arith.constant {COUNT} : index",
        f"%zero = arith.constant 0.0 : {kind}",
        "scf.for %i = %c0 to %count step %c1 {",
        *element(ops, "%i", kind),
        "}",
    ])  # fmt: skip


def wanted(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> list[Any]:
    z, w = (a.astype(np.complex128) + 1j * b.astype(np.complex128) for a, b in ((x, y), (y, x)))
    found = [f(z) for f in (*UNARY.values(), *REAL.values())]
    return [*found, *(f(z, w) for f in BINARY.values())]


@pytest.mark.parametrize("target", ["reference", "cpu", "emu"])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_numbers(kind: str, target: str):
    rng, dtype = fresh_rng(), np.dtype(kind.replace("f", "float"))
    x, y = (rng.uniform(-3, 3, COUNT).astype(dtype) for _ in range(2))
    ops = [*UNARY, *REAL, *BINARY]
    out = np.full((len(ops), 2, COUNT), np.nan, dtype)
    level = '{tilewright.level = "lane", tilewright.lanes = 16 : i64}' if target == "emu" else ""
    arrays = f"%x: memref<{COUNT}x{kind}>, %y: memref<{COUNT}x{kind}>, %o: memref<{len(ops)}x2x{COUNT}x{kind}>"
    attributes = f"attributes {level}" if level else ""
    module = parse_module(
        f"gpu.module @m {{ gpu.func @k({arrays}) kernel {attributes} {{\n{body(ops, kind)}\ngpu.return }} }}"
    )
    if target == "reference":
        first_forms(module)
        reference.run(module, (1, 1, 1), [x, y, out])
    else:
        built = build_text(module, CompileOptions(target=target))
        built.launch((1, 1, 1), [describe(a) for a in (x, y, out)])
    for name, (re, im), right in zip(ops, out, wanted(x, y), strict=True):
        error = np.linalg.norm(re + 1j * im - right) / np.linalg.norm(right)
        assert error < 64 * np.finfo(dtype).eps, (name, error)


EDGES = """%big = complex.constant [3.0e30 : f32, 4.0e30 : f32] : complex<f32>
  %tiny = complex.constant [3.0e-30 : f32, -4.0e-30 : f32] : complex<f32>
  %none = complex.constant [0.0 : f32, 0.0 : f32] : complex<f32>
  %m = memref.alloc() : memref<8xcomplex<f32>>
  %abs = complex.abs %big : complex<f32>
  %low = complex.abs %tiny : complex<f32>
  %less = complex.abs %none : complex<f32>
  %made = complex.create %abs, %low : complex<f32>
  %one = complex.div %big, %big : complex<f32>
  %same = complex.div %tiny, %tiny : complex<f32>
  %root = complex.sqrt %none : complex<f32>
  %power = complex.pow %none, %none : complex<f32>
  %unsigned = complex.sign %none : complex<f32>
  %c8 = arith.constant 8 : index
  %sum = scf.for %i = %c0 to %c8 step %c1 iter_args(%s = %none) -> (complex<f32>) {
    memref.store %s, %m[%i] : memref<8xcomplex<f32>>
    %eq = complex.eq %s, %none : complex<f32>
    %next = scf.if %eq -> (complex<f32>) {
      %n = func.call @turn(%one) : (complex<f32>) -> complex<f32>
      scf.yield %n : complex<f32>
    } else {
      %ne = complex.neq %s, %none : complex<f32>
      %n = arith.select %ne, %one, %none : complex<f32>
      %t = complex.mul %s, %n : complex<f32>
      %u = complex.add %t, %same : complex<f32>
      scf.yield %u : complex<f32>
    }
    scf.yield %next : complex<f32>
  }
  memref.store %made, %m[%c0] : memref<8xcomplex<f32>>
  memref.store %root, %m[%c1] : memref<8xcomplex<f32>>
  %o = memref.alloc() : memref<8x2xf32>
  scf.for %i = %c0 to %c8 step %c1 {
    %z = memref.load %m[%i] : memref<8xcomplex<f32>>
    %re = complex.re %z : complex<f32>
    %im = complex.im %z : complex<f32>
    memref.store %re, %o[%i, %c0] : memref<8x2xf32>
    memref.store %im, %o[%i, %c1] : memref<8x2xf32>
  }
  %last = complex.sub %power, %unsigned : complex<f32>
  %lr = complex.re %last : complex<f32>
  %end = arith.addf %lr, %less : f32
  memref.store %end, %o[%c1, %c1] : memref<8x2xf32>"""


@pytest.mark.parametrize("target", ["cpu", None])
def test_a_program(target: str | None, capfd: pytest.CaptureFixture[str]):
    constants = "%c0 = arith.constant 0 : index\n  %c1 = arith.constant 1 : index\n  "
    text = program(constants + EDGES, {}, {"o": "memref<8x2xf32>"})
    text += """
func.func private @turn(%z: complex<f32>) -> complex<f32> {
  %i = complex.constant [0.0 : f32, 1.0 : f32] : complex<f32>
  %r = complex.mul %z, %i : complex<f32>
  return %r : complex<f32>
}"""
    module = parse_module(text)
    if target is None:
        first_forms(module)
    found, said = run_on(module, target, capfd)
    right = np.array([[5e30, 5e-30], [0, 1], *([n, 1] for n in range(1, 7))])
    assert not said
    np.testing.assert_allclose(found[0], right, rtol=1e-6)
