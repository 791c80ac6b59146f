# ruff: noqa: E501
"""chosen-arrays: loops, branches and selections give arrays; each access is made in the one that was chosen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.draws import fresh_rng
from tilewright import reference
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.text import parse_module
from tilewright.passes.chosen_arrays import chosen_arrays
from tilewright.passes.kernel import kernel_of
from tilewright.tools.cli import main

A, V = "memref<16x16xf32>", "vector<8x16xf32>"
PART = "memref<8x16xf32, strided<[16, 1], offset: {}>>"
KERNEL = f"""
gpu.module @m {{{{ gpu.func @k(%a: {A}, %b: {A}, %o: {A}, %q: {A}) kernel attributes {{{{tilewright.level = "workgroup"}}}} {{{{
  %i = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %five = arith.constant 5 : index
  %p = arith.constant 0.0 : f32
  %z = arith.constant dense<0.0> : {V}
  %e = memref.load %a[%one, %i] : {A}
  %up = arith.cmpf ogt, %e, %p : f32
  {{}}
  gpu.return
}}}} }}}}
"""
CARRIED = f"""
  %first = arith.select %up, %a, %b : {A}
  %r:3 = scf.for %j = %i to %five step %one iter_args(%x = %first, %y = %q, %s = %z) -> ({A}, {A}, {V}) {{
    %w = memref.subview %x[2, 0] [8, 16] [1, 1] : {A} to {PART.format(32)}
    %v = vector.transfer_read %w[%i, %i], %p {{in_bounds = [true, true]}} : {PART.format(32)}, {V}
    %n = arith.subf %v, %s : {V}
    %odd = arith.remui %j, %two : index
    %is = arith.cmpi eq, %odd, %one : index
    %g = scf.if %is -> {A} {{
      scf.yield %x : {A}
    }} else {{
      scf.yield %y : {A}
    }}
    scf.yield %g, %x, %n : {A}, {A}, {V}
  }}
  vector.transfer_write %r#2, %o[%i, %i] {{in_bounds = [true, true]}} : {V}, {A}
"""
WRITTEN = f"""
  %d = scf.if %up -> {A} {{
    scf.yield %o : {A}
  }} else {{
    scf.yield %q : {A}
  }}
  %w = scf.if %up -> {PART.format("?")} {{
    %part = memref.subview %a[2, 0] [8, 16] [1, 1] : {A} to {PART.format(32)}
    %any = memref.cast %part : {PART.format(32)} to {PART.format("?")}
    scf.yield %any : {PART.format("?")}
  }} else {{
    %part = memref.subview %b[7, 0] [8, 16] [1, 1] : {A} to {PART.format(112)}
    %any = memref.cast %part : {PART.format(112)} to {PART.format("?")}
    scf.yield %any : {PART.format("?")}
  }}
  %v = vector.transfer_read %w[%i, %i], %p {{in_bounds = [true, true]}} : {PART.format("?")}, {V}
  vector.transfer_write %v, %d[%i, %i] {{in_bounds = [true, true]}} : {V}, {A}
"""
MOVING = f"""
  %r = scf.for %j = %i to %five step %one iter_args(%x = %a) -> ({A}) {{
    %w = memref.reinterpret_cast %x to offset: [0], sizes: [16, 16], strides: [16, 1] : {A} to {A}
    scf.yield %w : {A}
  }}
"""


@pytest.mark.parametrize("up", [True, False])
def test_the_arrays_that_numpy_takes(up: bool) -> None:
    a, b, q = (fresh_rng().standard_normal((16, 16)).astype(np.float32) for _ in range(3))
    a[1, 0] = 1 if up else -1
    module, total = parse_module(KERNEL.format(CARRIED)), np.zeros((8, 16), np.float32)
    assert chosen_arrays(kernel_of(module))
    module.verify()
    assert not chosen_arrays(kernel_of(module))
    o = np.full_like(a, np.nan)
    reference.run(module, args=[a, b, o, q])
    x, y = (a if up else b), q
    for j in range(5):
        total = x[2:10] - total
        x, y = (x if j % 2 else y), x
    np.testing.assert_array_equal(o[:8], total)
    assert np.isnan(o[8:]).all()


@pytest.mark.parametrize("target", ["cpu", "sm_80", "xe-pvc"])
@pytest.mark.parametrize("body", [CARRIED, WRITTEN], ids=["carried", "written"])
def test_targets_agree(body: str, target: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "chosen.mlir"
    path.write_text(KERNEL.format(body))
    assert main(["check", str(path), "--target", target]) == 0
    assert "pass chosen-arrays" in capsys.readouterr().out


def test_an_array_that_moves_in_the_loop_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="changes inside of the loop that chooses it"):
        chosen_arrays(kernel_of(parse_module(KERNEL.format(MOVING))))


DIVIDED = f"""
  %k = arith.fptosi %e : f32 to i32
  %by = arith.index_cast %k : i32 to index
  %w = scf.if %up -> {PART.format("?")} {{{{
    %n = arith.divsi %five, {{}} : index
    %part = memref.subview %a[%n, 0] [8, 16] [1, 1] : {A} to {PART.format("?")}
    scf.yield %part : {PART.format("?")}
  }}}} else {{{{
    %part = memref.subview %b[%two, 0] [8, 16] [1, 1] : {A} to {PART.format("?")}
    scf.yield %part : {PART.format("?")}
  }}}}
  %v = vector.transfer_read %w[%i, %i], %p {{{{in_bounds = [true, true]}}}} : {PART.format("?")}, {V}
  vector.transfer_write %v, %o[%i, %i] {{{{in_bounds = [true, true]}}}} : {V}, {A}
"""


def test_a_division_by_what_may_be_0_stays_in_its_branch() -> None:
    assert chosen_arrays(kernel_of(parse_module(KERNEL.format(DIVIDED.format("%two")))))
    with pytest.raises(UnsupportedError, match="an array that is made inside of"):
        chosen_arrays(kernel_of(parse_module(KERNEL.format(DIVIDED.format("%by")))))
