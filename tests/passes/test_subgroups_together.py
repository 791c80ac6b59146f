"""subgroups-together: subgroups that share memory, and meet, as one program of their workgroup."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.draws import fresh_rng
from tilewright import reference
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.text import parse_module
from tilewright.passes.kernel import kernel_of, level_of
from tilewright.passes.subgroups_together import subgroups_together
from tilewright.tools.cli import main

D, V, M = "!xegpu.tensor_desc<8x16xf32>", "vector<8x16xf32>", "!xegpu.mem_desc<32x16xf32>"
KERNEL = f"""
gpu.module @m {{{{ gpu.func @k(%i: memref<64x16xf32>, %o: memref<64x16xf32>) kernel
    attributes {{{{tilewright.level = "subgroup", tilewright.subgroups = 4 : i64}}}} {{{{
  %s = gpu.subgroup_id : index
  %count = gpu.num_subgroups : index
  %g = gpu.block_id x
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %three = arith.constant 3 : index
  %c8 = arith.constant 8 : index
  %c32 = arith.constant 32 : index
  %first = arith.cmpi eq, %s, %zero : index
  %mine = arith.muli %s, %c8 : index
  %next = arith.addi %s, %one : index
  %around = arith.remui %next, %count : index
  %other = arith.muli %around, %c8 : index
  %base = arith.muli %g, %c32 : index
  %row = arith.addi %base, %mine : index
  %a = xegpu.create_nd_tdesc %i : memref<64x16xf32> -> {D}
  %x = xegpu.load_nd %a[%row, 0] : {D} -> {V}
  %slm = memref.alloca() : memref<2048xi8, 3>
  %m = xegpu.create_mem_desc %slm : memref<2048xi8, 3> -> {M}
  {{}}
  %u = xegpu.create_nd_tdesc %o : memref<64x16xf32> -> {D}
  xegpu.store_nd %r, %u[%row, 0] : {V}, {D}
  gpu.return
}}}} }}}}
"""
AROUND = f"""
  %r = scf.for %t = %zero to %three step %one iter_args(%v = %x) -> ({V}) {{
    %w = scf.if %first -> {V} {{
      %n = arith.negf %v : {V}
      scf.yield %n : {V}
    }} else {{
      scf.yield %v : {V}
    }}
    xegpu.store_matrix %w, %m[%mine, 0] : {V}, {M}, index
    gpu.barrier
    %y = xegpu.load_matrix %m[%other, 0] : {M}, index -> {V}
    %z = xegpu.load_matrix %m[%zero, 0] : {M}, index -> {V}
    %sum = arith.addf %y, %z : {V}
    gpu.barrier
    scf.yield %sum : {V}
  }}
"""
ALONE = f"""
  %r = scf.if %first -> {V} {{
    xegpu.store_matrix %x, %m[%mine, 0] : {V}, {M}, index
    gpu.barrier
    scf.yield %x : {V}
  }} else {{
    scf.yield %x : {V}
  }}
"""


def test_parts_go_around_as_numpy_says() -> None:
    x = fresh_rng().standard_normal((64, 16)).astype(np.float32)
    module, o = parse_module(KERNEL.format(AROUND)), np.full_like(x, np.nan)
    reference.run(module, (2, 1, 1), [x, o])
    parts = x.reshape(2, 4, 8, 16).copy()
    for _ in range(3):
        parts[:, 0] *= -1
        parts = np.roll(parts, -1, axis=1) + parts[:, :1]
    np.testing.assert_array_equal(o, parts.reshape(64, 16))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_the_workgroup_s_program_agrees(target: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "around.mlir"
    path.write_text(KERNEL.format(AROUND))
    assert main(["check", str(path), "--target", target]) == 0
    assert "right: pass subgroups-together" in capsys.readouterr().out


def test_what_does_not_differ_is_done_once() -> None:
    kernel = kernel_of(parse_module(KERNEL.format(AROUND)))
    subgroups_together(kernel)
    assert level_of(kernel) == "workgroup"
    names = [op.name for op in kernel.walk()]
    assert names.count("gpu.barrier") == 2 and names.count("memref.alloca") == 1
    assert names.count("xegpu.load_matrix") == 5 and names.count("xegpu.store_matrix") == 4


NAMED = """
  %id = arith.constant 1 : i8
  %all = arith.constant {count} : i8
  xegpu.alloc_nbarrier 2
  %named = xegpu.init_nbarrier %id, %all : i8, i8 -> !xegpu.nbarrier
  xegpu.store_matrix %x, %m[%mine, 0] : {V}, {M}, index
  xegpu.fence memory_kind = slm, fence_scope = workgroup
  xegpu.nbarrier_arrive %named : !xegpu.nbarrier
  xegpu.nbarrier_wait %named : !xegpu.nbarrier
  %r = xegpu.load_matrix %m[%zero, 0] : {M}, index -> {V}
"""


def test_a_named_barrier_is_one_of_the_workgroup_where_all_subgroups_come_to_it() -> None:
    kernel = kernel_of(parse_module(KERNEL.format(NAMED.format(count=4, V=V, M=M))))
    subgroups_together(kernel)
    names = [op.name for op in kernel.walk()]
    assert names.count("gpu.barrier") == 1
    assert not any("nbarrier" in name or "fence" in name for name in names)
    with pytest.raises(UnsupportedError, match="expects 2 subgroups, and 4 do this op"):
        subgroups_together(kernel_of(parse_module(KERNEL.format(NAMED.format(count=2, V=V, M=M)))))


def test_a_barrier_that_not_all_come_to_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="where not all subgroups of a workgroup come"):
        subgroups_together(kernel_of(parse_module(KERNEL.format(ALONE))))
