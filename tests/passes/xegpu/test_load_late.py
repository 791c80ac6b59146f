"""Loads of shared memory move to their users, and not over a write of that memory."""

from __future__ import annotations

import pytest

from tilewright.dialects.text import parse_module
from tilewright.passes.kernel import kernel_of
from tilewright.passes.xegpu.load_late import load_late

DESC = "!xegpu.mem_desc<16x16xf32>"


def text(between: str) -> str:
    return f"""
gpu.module @m {{ gpu.func @k(%x: vector<16x16xf32>, %w: memref<1xf32>, %v: f32) kernel {{
  %c0 = arith.constant 0 : index
  %p = memref.alloc() : memref<1024xi8, 3>
  %q = memref.alloc() : memref<1024xi8, 3>
  %m = xegpu.create_mem_desc %p : memref<1024xi8, 3> -> {DESC}
  %n = xegpu.create_mem_desc %q : memref<1024xi8, 3> -> {DESC}
  xegpu.store_matrix %x, %m[0, 0] : vector<16x16xf32>, {DESC}
  %b = xegpu.load_matrix %m[0, 0] : {DESC} -> vector<16x16xf32>
  %y = arith.addf %x, %x : vector<16x16xf32>
  {between}
  %r = arith.mulf %b, %y : vector<16x16xf32>
  xegpu.store_matrix %r, %n[0, 0] : vector<16x16xf32>, {DESC}
  gpu.return
}} }}"""


OTHER = f"xegpu.store_matrix %y, %n[0, 0] : vector<16x16xf32>, {DESC}"
SAME = f"xegpu.store_matrix %y, %m[0, 0] : vector<16x16xf32>, {DESC}"
LOOP = f"scf.for %i = %c0 to %c0 step %c0 {{ {SAME} }}"


@pytest.mark.parametrize(
    "between, behind",
    [
        (OTHER, "arith.mulf"),
        ("memref.store %v, %w[%c0] : memref<1xf32>", "arith.mulf"),
        (SAME, "xegpu.store_matrix"),
        (LOOP, "scf.for"),
        ("gpu.barrier", "gpu.barrier"),
    ],
    ids=["other memory", "global memory", "the same memory", "in a loop", "a barrier"],
)
def test_where_it_is_loaded(between: str, behind: str) -> None:
    module = parse_module(text(between), "kernel.mlir")
    load_late(kernel_of(module))
    module.verify()
    (load,) = (op for op in module.walk() if op.name == "xegpu.load_matrix")
    assert load.next_op is not None and load.next_op.name == behind
