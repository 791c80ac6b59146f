"""other-integers: integers of 2 to 63 bits wrap around, compare and convert as they do in MLIR, in any width."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.draws import fresh_rng
from tests.passes.linalg.programs import program, run_on
from tilewright.dialects.text import parse_module
from tilewright.passes.other_integers import other_integers
from tilewright.runtime.program.isolate import alone
from tilewright.targets.base import CompileOptions
from tilewright.targets.entry import build_text, host_to_tiles
from tilewright.tools.cli import main

COUNT = 24


def signed(value: int, bits: int) -> int:
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def unsigned(value: int, bits: int) -> int:
    return value % (1 << bits)


BINARY: dict[str, Callable[[int, int, int], int]] = {
    "addi": lambda a, b, n: a + b,
    "subi": lambda a, b, n: a - b,
    "muli": lambda a, b, n: a * b,
    "xori": lambda a, b, n: a ^ b,
    "maxsi": lambda a, b, n: max(a, b),
    "minui": lambda a, b, n: min(unsigned(a, n), unsigned(b, n)),
    "floordivsi": lambda a, b, n: a // b,
    "divui": lambda a, b, n: unsigned(a, n) // unsigned(b, n),
    "remui": lambda a, b, n: unsigned(a, n) % unsigned(b, n),
    "shrui": lambda a, b, n: unsigned(a, n) >> 1,
    "shli": lambda a, b, n: a << 1,
}
UNARY: dict[str, Callable[[int, int], int]] = {
    "absi": lambda a, n: abs(a),
    "ctpop": lambda a, n: unsigned(a, n).bit_count(),
    "ctlz": lambda a, n: n - unsigned(a, n).bit_length(),
    "cttz": lambda a, n: n if not a else (a & -a).bit_length() - 1,
}


def source(bits: int) -> tuple[str, list[list[int]]]:
    """A program of tensors of `bits`, and the numbers of each array that it prints."""
    rng = fresh_rng()
    x, y = (rng.integers(-(1 << 31), 1 << 31, COUNT, np.int64) << 8 for _ in "xy")
    x, y = x >> rng.integers(0, 40, COUNT), y >> rng.integers(0, 40, COUNT)
    kind, wide = f"tensor<{COUNT}xi{bits}>", f"tensor<{COUNT}xi64>"
    body = [
        f"%{v}t = bufferization.to_tensor %{v} restrict : {wide.replace('tensor', 'memref')} to {wide}\n"
        f"%{v}n = arith.trunci %{v}t : {wide} to {kind}"
        for v in "xy"
    ]
    body += [
        f"%one = arith.constant dense<1> : {kind}",
        f"%b = arith.ori %yn, %one : {kind}",
        f"%less = arith.cmpi ult, %xn, %b : {kind}",
        f"%u_less = arith.extui %less : tensor<{COUNT}xi1> to {wide}",
        f"%u_zero = arith.extui %xn : {kind} to {wide}",
    ]
    a = [signed(int(v), bits) for v in x]
    b = [signed(int(v) | 1, bits) for v in y]
    wanted = [
        [int(unsigned(p, bits) < unsigned(q, bits)) for p, q in zip(a, b, strict=True)],
        [unsigned(p, bits) for p in a],
    ]
    for name, meaning in BINARY.items():
        body.append(f"%{name} = arith.{name} %xn, {'%one' if name[:2] == 'sh' else '%b'} : {kind}")
        # The least by -1 has no quotient.
        body.append(f"%u_{name} = arith.extsi %{name} : {kind} to {wide}")
        wanted.append([signed(meaning(p, q, bits), bits) for p, q in zip(a, b, strict=True)])
    for name, each in UNARY.items():
        body.append(f"%{name} = math.{name} %xn : {kind}")
        body.append(f"%u_{name} = arith.extsi %{name} : {kind} to {wide}")
        wanted.append([signed(each(p, bits), bits) for p in a])
    shown = ["less", "zero", *BINARY, *UNARY]
    memory = wide.replace("tensor", "memref")
    body += [f"%o_{n} = bufferization.to_buffer %u_{n} : {wide} to {memory}" for n in shown]
    results = {f"o_{n}": memory for n in shown}
    return program("\n  ".join(body), {"x": x, "y": y}, results), wanted


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("bits", [2, 4, 7, 12, 24, 40])
def test_results(bits: int, target: str, capfd: pytest.CaptureFixture[str]):
    text, wanted = source(bits)
    found, _ = run_on(text, target, capfd)
    np.testing.assert_array_equal([each.astype(np.int64) for each in found], wanted)


@pytest.mark.parametrize("target", ["xe-pvc", "sm_90a"])
def test_gpus_compile(target: str):
    module = parse_module(source(4)[0])
    other_integers(module)
    host_to_tiles(module, target)
    kernels = [op for op in module.walk() if op.name == "gpu.func"]
    assert kernels and "i4" not in str(module)
    for kernel in kernels:
        build_text(alone(kernel, "workgroup", 1), CompileOptions(target=target))  # pyright: ignore


def test_memory_calls_and_sums(capfd: pytest.CaptureFixture[str]):
    """Each element has a byte of its own; constants are what their bits say."""
    text = program(
        """%g = memref.get_global @table : memref<4xi4>
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0 : i4
  %v = vector.transfer_read %g[%c0], %zero {in_bounds = [true]} : memref<4xi4>, vector<4xi4>
  %s = vector.reduction <add>, %v : vector<4xi4> into i4
  %q = call @five(%s) : (i4) -> i4
  %w = arith.extsi %v : vector<4xi4> to vector<4xi32>
  %n = arith.extsi %q : i4 to i32
  %r = vector.insert %n, %w[1] : i32 into vector<4xi32>
  %o = memref.alloc() : memref<4xi32>
  vector.store %r, %o[%c0] : memref<4xi32>, vector<4xi32>""",
        {},
        {"o": "memref<4xi32>"},
    )
    text += """
memref.global "private" constant @table : memref<4xi4> = dense<[1, -8, 7, 15]>
func.func private @five(%a: i4) -> i4 {
  %five = arith.constant 5 : i4
  %r = arith.muli %a, %five : i4
  return %r : i4
}"""
    for target in ("cpu", "reference"):
        (found,), _ = run_on(text, target, capfd)
        np.testing.assert_array_equal(found, [1, signed(-5, 4), 7, -1])


LAUNCHED = """\
module attributes {gpu.container_module} {
  gpu.module @m { gpu.func @k(%a: memref<8xi4>) kernel {
    %c0 = arith.constant 0 : index
    %c = arith.constant -3 : i4
    memref.store %c, %a[%c0] : memref<8xi4>
    gpu.return } }
  func.func @main() {
    %a = memref.alloc() : memref<8xi4>
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    gpu.launch_func @m::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%a : memref<8xi4>)
    %v = memref.load %a[%c0] : memref<8xi4>
    %w = arith.extsi %v : i4 to i32
    vector.print %w : i32
    return } }
"""


@pytest.mark.parametrize("options", [[], ["--target", "reference"], ["--check"]])
def test_arrays_of_a_program(options: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """However a program is run: its kernels and its host code keep an element of its arrays alike."""
    (tmp_path / "launched.mlir").write_text(LAUNCHED)
    assert main(["run", str(tmp_path / "launched.mlir"), *options]) == 0
    assert capfd.readouterr().out == "-3\n"
