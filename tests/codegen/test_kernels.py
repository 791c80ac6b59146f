"""The same emitter for three machines: an elementwise and a row reduction kernel for x86, nvptx64 and spirv64.

x86 runs and is compared with numpy; the GPU texts become PTX and SPIR-V, in child processes.
"""

import struct

import numpy as np
import pytest

from tests.codegen.counts import expected, printed
from tests.codegen.harness import LEVELS, Function, module
from tilewright.codegen import emit_module, nvptx, spirv, x86
from tilewright.codegen.remote import generate_ptx, generate_spirv

SWISH = """
      %y = arith.negf %x fastmath<contract,afn> : V
      %e = math.exp %y fastmath<contract,afn> : V
      %u = arith.addf %e, %one fastmath<contract,afn> : V
      %s = arith.divf %x, %u fastmath<contract,afn> : V
"""

# SIMD: 16 elements per register, a mask for the ragged end.
SIMD_ELEMENTWISE = (
    """
func.func @k(%p : !llvm.ptr {llvm.noalias}, %q : !llvm.ptr {llvm.noalias}, %n : index) {
  %one = arith.constant dense<1.0> : V
  %zero = arith.constant dense<0.0> : V
  scf.for %i = %c0 to %n step %c16 {
    %off = arith.muli %i, %c4 : index
    %from = mach.ptr_add %p, %off : !llvm.ptr
    %to = mach.ptr_add %q, %off : !llvm.ptr
    %left = arith.subi %n, %i : index
    %m = mach.mask_first %left : vector<16xi1>
    %x = mach.masked_load %from, %m, %zero : !llvm.ptr, vector<16xi1> -> V
"""
    + SWISH
    + """
    mach.masked_store %s, %to, %m : V, !llvm.ptr, vector<16xi1>
  }
  func.return
}"""
).replace("V", "vector<16xf32>")

# Lanes: each owns a fragment of consecutive elements.
LANE_ELEMENTWISE = (
    """
func.func @k(%p : !llvm.ptr<1>, %q : !llvm.ptr<1>, %n : index) attributes {mach.kernel} {
  %c = arith.constant BYTES : index
  %one = arith.constant dense<1.0> : V
  %b = gpu.block_id x
  %d = gpu.block_dim x
  %t = gpu.thread_id x
  %o = arith.muli %b, %d : index
  %i = arith.addi %o, %t : index
  %in = arith.cmpi slt, %i, %n : index
  scf.if %in {
    %off = arith.muli %i, %c : index
    %from = mach.ptr_add %p, %off : !llvm.ptr<1>
    %to = mach.ptr_add %q, %off : !llvm.ptr<1>
    %x = mach.load %from {alignment = 16 : i64} : !llvm.ptr<1> -> V
"""
    + SWISH
    + """
    mach.store %s, %to {alignment = 16 : i64} : V, !llvm.ptr<1>
  }
  func.return
}"""
)

SIMD_ROW_SUM = """
func.func @k(%p : !llvm.ptr, %q : !llvm.ptr, %rows : index, %n : index) {
  %zero = arith.constant dense<0.0> : vector<16xf32>
  %pitch = arith.muli %n, %c4 : index
  scf.for %r = %c0 to %rows step %c1 {
    %at = arith.muli %r, %pitch : index
    %row = mach.ptr_add %p, %at : !llvm.ptr
    %acc = scf.for %i = %c0 to %n step %c16 iter_args(%a = %zero) -> (vector<16xf32>) {
      %off = arith.muli %i, %c4 : index
      %from = mach.ptr_add %row, %off : !llvm.ptr
      %left = arith.subi %n, %i : index
      %m = mach.mask_first %left : vector<16xi1>
      %x = mach.masked_load %from, %m, %zero : !llvm.ptr, vector<16xi1> -> vector<16xf32>
      %b = arith.addf %a, %x : vector<16xf32>
      scf.yield %b : vector<16xf32>
    }
    %s = vector.reduction <add>, %acc : vector<16xf32> into f32
    %o = arith.muli %r, %c4 : index
    %to = mach.ptr_add %q, %o : !llvm.ptr
    mach.store %s, %to : f32, !llvm.ptr
  }
  func.return
}"""

# One subgroup per row; each lane strides through it, then a butterfly of shuffles.
LANE_ROW_SUM = """
func.func @k(%p : !llvm.ptr<1>, %q : !llvm.ptr<1>, %n : index) attributes {mach.kernel KERNEL} {
  %zero = arith.constant 0.0 : f32
  %r = gpu.block_id x
  %lane = gpu.lane_id
  %lanes = gpu.subgroup_size : index
  %pitch = arith.muli %n, %c4 : index
  %at = arith.muli %r, %pitch : index
  %row = mach.ptr_add %p, %at : !llvm.ptr<1>
  %acc = scf.for %i = %lane to %n step %lanes iter_args(%a = %zero) -> (f32) {
    %off = arith.muli %i, %c4 : index
    %from = mach.ptr_add %row, %off : !llvm.ptr<1>
    %x = mach.load %from : !llvm.ptr<1> -> f32
    %b = arith.addf %a, %x : f32
    scf.yield %b : f32
  }
  %s = gpu.subgroup_reduce add %acc : (f32) -> f32
  %first = arith.cmpi eq, %lane, %c0 : index
  scf.if %first {
    %o = arith.muli %r, %c4 : index
    %to = mach.ptr_add %q, %o : !llvm.ptr<1>
    mach.store %s, %to : f32, !llvm.ptr<1>
  }
  func.return
}"""


def lane_elementwise(width: int) -> str:
    return LANE_ELEMENTWISE.replace("V", f"vector<{width}xf32>").replace("BYTES", str(4 * width))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n", [1, 16, 37, 1000])
def test_elementwise_on_x86(level: str, n: int, rng: np.random.Generator) -> None:
    x = rng.normal(size=n).astype(np.float32)
    y = np.full(n + 16, np.nan, np.float32)
    Function(SIMD_ELEMENTWISE, target=x86(level))(x, y, n)
    wide = x.astype(np.float64)
    wanted = wide / (1 + np.exp(-wide))
    assert np.linalg.norm(y[:n] - wanted) <= 1e-6 * np.linalg.norm(wanted)
    assert np.isnan(y[n:]).all(), "wrote behind the array"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("rows, n", [(1, 1), (3, 16), (5, 37), (7, 256)])
def test_row_sum_on_x86(level: str, rows: int, n: int, rng: np.random.Generator) -> None:
    x = rng.normal(size=(rows, n)).astype(np.float32)
    y = np.full(rows + 1, np.nan, np.float32)
    Function(SIMD_ROW_SUM, target=x86(level))(x, y, rows, n)
    wanted = x.astype(np.float64).sum(axis=1)
    scale = np.abs(x).astype(np.float64).sum(axis=1)
    assert (np.abs(y[:rows] - wanted) <= 1e-6 * scale).all()
    assert np.isnan(y[rows])


@pytest.mark.parametrize("cpu", ["sm_80", "sm_90a"])
def test_ptx(cpu: str) -> None:
    target = nvptx(cpu)
    elementwise = emit_module(module(lane_elementwise(4)), target)
    ptx = generate_ptx(elementwise, target)
    assert f".target {cpu}" in ptx and ".entry k(" in ptx
    assert ptx.count("ld.global.v4.b32") == 1 and ptx.count("st.global.v4.b32") == 1
    assert ptx.count("ex2.approx") == 4
    row_sum = emit_module(module(LANE_ROW_SUM.replace("KERNEL", "")), target)
    ptx = generate_ptx(row_sum, target)
    assert ptx.count("shfl.sync.bfly") == 5


def words(spirv_bytes: bytes) -> dict[int, int]:
    """Opcode -> count of a SPIR-V module, after checking its header."""
    stream = struct.unpack(f"<{len(spirv_bytes) // 4}I", spirv_bytes)
    assert stream[0] == 0x07230203
    counts: dict[int, int] = {}
    at = 5
    while at < len(stream):
        counts[stream[at] & 0xFFFF] = counts.get(stream[at] & 0xFFFF, 0) + 1
        at += stream[at] >> 16
    return counts


def test_spirv() -> None:
    target = spirv()
    elementwise = emit_module(module(lane_elementwise(8)), target)
    counts = words(generate_spirv(elementwise, target))
    assert counts[61] >= 1 and counts[62] == 1, "OpLoad and OpStore"
    assert counts[15] == 1, "one OpEntryPoint"
    size = ", spirv.intel_reqd_sub_group_size = 16 : i32"
    row_sum = emit_module(module(LANE_ROW_SUM.replace("KERNEL", size)), target)
    counts = words(generate_spirv(row_sum, target))
    assert counts[346] == 4, "a butterfly over 16 lanes is four OpGroupNonUniformShuffleXor"
    assert counts[16] >= 1, "OpExecutionMode SubgroupSize"


@pytest.mark.parametrize(
    "text, target",
    [
        (SIMD_ELEMENTWISE, x86("avx512")),
        (SIMD_ROW_SUM, x86("avx2")),
        (lane_elementwise(4), nvptx()),
        (lane_elementwise(24), nvptx()),
        (LANE_ROW_SUM.replace("KERNEL", ""), nvptx()),
        (lane_elementwise(24), spirv()),
        (LANE_ROW_SUM.replace("KERNEL", ""), spirv()),
    ],
)
def test_counts(text: str, target: object) -> None:
    m = module(text)
    assert printed(emit_module(m, target)) == expected(m, target)
