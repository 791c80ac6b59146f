"""Programs of subgroups on CPUs: workgroups where subgroups share nothing, otherwise as they are written."""

from __future__ import annotations

import numpy as np
import pytest

from tests.draws import fresh_rng
from tests.targets.emu.agree import subgroup_kernel
from tests.targets.emu.test_blocks import NUMPY
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions, Executable, get_target
from tilewright.targets.cpu.target import CpuExecutable

M, N, K = 30, 60, 64
HEAD = """
  %sg = gpu.subgroup_id
  %zero = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
  %depth = arith.constant 64 : index
  %n = arith.muli %sg, %c32 : index
  %z = arith.constant dense<{zero}> : {w}
  %ta = xegpu.create_nd_tdesc %a : memref<30x64x{element}> -> {t}
  %tb = xegpu.create_nd_tdesc %b : memref<64x60x{element}> -> {t}
  %tc = xegpu.create_nd_tdesc %c : memref<30x60x{out}> -> {tc}
"""
WHOLE = """
  %r = scf.for %k = %zero to %depth step %c32 iter_args(%acc = %z) -> ({w}) {{
    %x = xegpu.load_nd %ta[0, %k] : {t} -> {v}
    %y = xegpu.load_nd %tb[%k, %n] : {t} -> {v}
    %d = xegpu.dpas %x, %y, %acc : {v}, {v}, {w} -> {w}
    scf.yield %d : {w}
  }}
"""
BLOCKED = """
  %h = arith.constant dense<{zero}> : {wh}
  %r0, %r1 = scf.for %k = %zero to %depth step %c32 iter_args(%p = %h, %q = %h) -> ({wh}, {wh}) {{
    %x = xegpu.load_nd %ta[0, %k] : {t} -> {v}
    %y = xegpu.load_nd %tb[%k, %n] : {t} -> {v}
    %y0 = vector.extract_strided_slice %y {{offsets = [0, 0], {half}}} : {v} to {vh}
    %y1 = vector.extract_strided_slice %y {{offsets = [0, 16], {half}}} : {v} to {vh}
    %d0 = xegpu.dpas %x, %y0, %p : {v}, {vh}, {wh} -> {wh}
    %d1 = xegpu.dpas %x, %y1, %q : {v}, {vh}, {wh} -> {wh}
    scf.yield %d0, %d1 : {wh}, {wh}
  }}
  %s = vector.insert_strided_slice %r0, %z {{offsets = [0, 0], strides = [1, 1]}} : {wh} into {w}
  %r = vector.insert_strided_slice %r1, %s {{offsets = [0, 16], strides = [1, 1]}} : {wh} into {w}
"""
MEET = WHOLE + "  %slm = memref.alloca() : memref<64xi8, 3>\n  gpu.barrier\n"
TAIL = "  xegpu.store_nd %r, %tc[0, %n] : {w}, {tc}"


def product(middle: str, element: str) -> Executable:
    """C = A B by two subgroups of one workgroup, each of 32 columns: the last of C and its last rows are not there."""
    out = "i32" if element == "i8" else "f32"
    t, tc = (f"!xegpu.tensor_desc<32x32x{each}>" for each in (element, out))
    body = (HEAD + middle + TAIL).format(
        element=element,
        out=out,
        t=t,
        tc=tc,
        zero="0" if out == "i32" else "0.0",
        v=f"vector<32x32x{element}>",
        vh=f"vector<32x16x{element}>",
        w=f"vector<32x32x{out}>",
        wh=f"vector<32x16x{out}>",
        half="sizes = [32, 16], strides = [1, 1]",
    )
    args = f"%a: memref<30x64x{element}>, %b: memref<64x60x{element}>, %c: memref<30x60x{out}>"
    module = subgroup_kernel(args, body, subgroups=2)
    return get_target("cpu").build(module, CompileOptions("cpu"))


@pytest.mark.parametrize("element", ["bf16", "f16", "i8", "f32"])
@pytest.mark.parametrize(("middle", "raised"), [(WHOLE, True), (BLOCKED, False), (MEET, False)])
def test_products(middle: str, raised: bool, element: str) -> None:
    """What is blocked in registers, or meets, stays the subgroups'; all give the product."""
    rng = fresh_rng()
    found = product(middle, element)
    assert isinstance(found, CpuExecutable) == raised
    kind = np.dtype(NUMPY[element])
    a, b = (rng.integers(-9, 9, shape).astype(kind) for shape in ((M, K), (K, N)))
    c = np.full((M, N), 77, np.int32 if element == "i8" else np.float32)
    found.launch((1, 1, 1), [describe(x) for x in (a, b, c)])
    np.testing.assert_array_equal(c, a.astype(np.int64) @ b.astype(np.int64))
