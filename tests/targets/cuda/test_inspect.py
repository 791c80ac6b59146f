"""What breaks performance is found in machine code. Needs ptxas and nvdisasm, but no GPU."""

from __future__ import annotations

import pytest

from tests.codegen.harness import module
from tilewright.codegen import emit_module, nvptx
from tilewright.codegen.remote import generate_ptx
from tilewright.targets.cuda import inspect

needs_tools = pytest.mark.skipif(
    inspect.find_tool("ptxas") is None or inspect.find_tool("nvdisasm") is None,
    reason="pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm",
)

LOOP = """
    func.func @k(%p : !llvm.ptr<1>, %n : index, %b : !llvm.ptr<3>)
        attributes {mach.kernel, "nvvm.reqntid" = "128,1,1"} {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %z = arith.constant 0 : i32
      scf.for %i = %c0 to %n step %c1 {
        %v = mach.load %p {volatile} : !llvm.ptr<1> -> i32
        mach.instr "nvptx.mbarrier.wait.parity"(%b, %v) : (!llvm.ptr<3>, i32) -> ()
        INSIDE
      }
      OUTSIDE
      func.return
    }"""
FENCE = 'mach.fence {ordering = "acq_rel", scope = "device"}'


def ptx(text: str) -> str:
    target = nvptx("sm_90a")
    return generate_ptx(emit_module(module(text), target), target)


@needs_tools
def test_a_fence_of_the_device_in_a_loop_is_found_and_one_outside_is_not() -> None:
    inside = LOOP.replace("INSIDE", FENCE).replace("OUTSIDE", "")
    assert "device scope" in inspect.breakers(ptx(inside), "sm_90a")[0]
    outside = LOOP.replace("INSIDE", "").replace("OUTSIDE", FENCE)
    assert inspect.breakers(ptx(outside), "sm_90a") == []


@needs_tools
def test_an_accumulator_touched_before_its_wait_is_found() -> None:
    """ptxas injects a wait (C75xx) where the program uses what the tensor core still writes."""
    product = """
    func.func @k(%p : !llvm.ptr<1>, %a : i64, %b : i64) attributes {mach.kernel, "nvvm.reqntid" = "128,1,1"} {
      %zero = arith.constant dense<0.0> : vector<32xf32>
      %off = arith.constant false
      mach.instr "nvptx.wgmma.fence"() : () -> ()
      %d = mach.instr "nvptx.wgmma.m64n64k16.f32.bf16.bf16.ss"(%a, %b, %off, %zero)
        : (i64, i64, i1, vector<32xf32>) -> vector<32xf32>
      mach.instr "nvptx.wgmma.commit"() : () -> ()
      %w = WAIT
      mach.store %w, %p : vector<32xf32>, !llvm.ptr<1>
      func.return
    }"""
    wait = 'mach.instr "nvptx.wgmma.wait.f32x32"(%d) : (vector<32xf32>) -> vector<32xf32>'
    assert inspect.breakers(ptx(product.replace("WAIT", wait)), "sm_90a") == []
    early = inspect.breakers(
        ptx(product.replace("WAIT", "arith.addf %d, %d : vector<32xf32>")), "sm_90a"
    )
    assert early and "C75" in early[0]


@needs_tools
def test_summary() -> None:
    assembly = inspect.assemble(ptx(LOOP.replace("INSIDE", "").replace("OUTSIDE", "")), "sm_90a")
    assert assembly.registers > 0 and assembly.stack_bytes == 0
    assert "registers" in assembly.summary()
    code, _ = inspect.instructions(inspect.disassemble(assembly.cubin))
    assert any(op.name.startswith("EXIT") for op in code)
