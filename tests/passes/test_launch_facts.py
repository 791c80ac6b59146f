# ruff: noqa: E501
"""launch-facts: memory and clusters that a launch gives a kernel, and lanes that exchange among themselves."""

from __future__ import annotations

import re

import numpy as np
import pytest
from xdsl.dialects import gpu

from tests.draws import fresh_rng
from tests.passes.linalg.programs import program, run_on
from tests.peer.mlir_opt import mlir_opt, needs_mlir_opt
from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module, print_module
from tilewright.passes.kernel_outlining import outline_launches
from tilewright.passes.launch_facts import launch_facts
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions, get_target
from tilewright.targets.xe import opencl

SHARED = "#gpu.address_space<workgroup>"
BODY = f"""%tok = gpu.wait async
  %done = gpu.launch async [%tok] clusters(%kx, %ky, %kz) in (%cx = %c2, %cy = %c1, %cz = %c1) blocks(%b, %by, %bz) in (%gx = %c4, %gy = %c1, %gz = %c1)
      threads(%t, %ty, %tz) in (%ux = %c64, %uy = %c1, %uz = %c1) dynamic_shared_memory_size %bytes module(@parts) function(@turned)
      workgroup(%w : memref<64xf32, {SHARED}>, %w2 : memref<2x64xf32, 3>) private(%p : memref<4xf32, #gpu.address_space<private>>) {{
    %v = memref.load %x[%b, %t] : memref<4x64xf32>
    memref.store %v, %w[%t] : memref<64xf32, {SHARED}>
    memref.store %v, %w2[%c1, %t] : memref<2x64xf32, 3>
    memref.store %v, %p[%c1] : memref<4xf32, #gpu.address_space<private>>
    %room = gpu.dynamic_shared_memory : memref<?xi8, {SHARED}>
    %again = gpu.dynamic_shared_memory : memref<?xi8, {SHARED}>
    %d = memref.view %room[%c64][] : memref<?xi8, {SHARED}> to memref<64xf32, {SHARED}>
    %e = memref.view %again[%c64][] : memref<?xi8, {SHARED}> to memref<64xf32, {SHARED}>
    memref.store %v, %d[%t] : memref<64xf32, {SHARED}>
    gpu.barrier
    %up = arith.addi %t, %c1 : index
    %next = arith.remui %up, %c64 : index
    %m0 = memref.load %w[%next] : memref<64xf32, {SHARED}>
    %m1 = memref.load %w2[%c1, %next] : memref<2x64xf32, 3>
    %m2 = memref.load %p[%c1] : memref<4xf32, #gpu.address_space<private>>
    %m3 = memref.load %e[%next] : memref<64xf32, {SHARED}>
    %most = gpu.all_reduce %v {{
    ^bb0(%l : f32, %r : f32):
      %larger = arith.maximumf %l, %r : f32
      gpu.yield %larger : f32
    }} : (f32) -> f32
    %other, %valid = gpu.shuffle xor %v, %c16_i32, %c32_i32 : f32
    %in = gpu.cluster_block_id x
    %of = gpu.cluster_dim_blocks x
    %all = gpu.cluster_dim x
    %first = arith.muli %kx, %of : index
    %second = arith.addi %first, %in : index
    %third = arith.muli %second, %all : index
    %n = arith.index_cast %third : index to i32
    %m4 = arith.sitofp %n : i32 to f32
    %s0 = arith.addf %m0, %m1 : f32
    %s1 = arith.addf %s0, %m2 : f32
    %s2 = arith.addf %s1, %m3 : f32
    %s3 = arith.addf %s2, %most : f32
    %s4 = arith.addf %s3, %other : f32
    %s5 = arith.addf %s4, %m4 : f32
    memref.store %s5, %o[%b, %t] : memref<4x64xf32>
    gpu.terminator
  }}
  gpu.wait [%done]"""


def whole(x: np.ndarray, body: str = BODY) -> str:
    constants = "".join(f"%c{n} = arith.constant {n} : index\n  " for n in (1, 2, 4, 64))
    numbers = "".join(
        f"%{n} = arith.constant {v} : i32\n  "
        for n, v in (("bytes", 320), ("c16_i32", 16), ("c32_i32", 32))
    )
    zero = np.zeros_like(x)
    return program(constants + numbers + body, {"x": x, "o": zero}, {"o": "memref<4x64xf32>"})


def wanted(x: np.ndarray) -> np.ndarray:
    lane, following = np.arange(64), np.roll(x, -1, axis=1)
    number = 2.0 * np.arange(4)[:, None]
    return 3 * following + x + x.max(axis=1, keepdims=True) + x[:, lane ^ 16] + number


def drawn() -> np.ndarray:
    return fresh_rng().integers(-99, 99, (4, 64)).astype(np.float32)


PIPELINES = (
    "",
    "gpu-kernel-outlining",
    "gpu-kernel-outlining,func.func(gpu-async-region),canonicalize,cse",
    "func.func(gpu-launch-sink-index-computations),gpu-kernel-outlining,gpu-decompose-memrefs,canonicalize",
)


@needs_mlir_opt
@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_launches_as_mlir_opt_leaves_them(
    pipeline: str, target: str, capfd: pytest.CaptureFixture[str]
):
    x = drawn()
    text = mlir_opt(whole(x), pipeline=pipeline)
    found, said = run_on(text, target, capfd)
    np.testing.assert_array_equal(found[0], wanted(x))
    assert not any("reference" in line for line in said)


@needs_mlir_opt
@pytest.mark.parametrize("outlined", [False, True])
@pytest.mark.parametrize("generic", [False, True])
def test_mlir_opt_reads_what_is_printed(generic: bool, outlined: bool):
    text = mlir_opt(whole(drawn()), pipeline="gpu-kernel-outlining" if outlined else "")
    ours = print_module(parse_module(text), generic=generic)
    assert mlir_opt(ours) == mlir_opt(text)


@needs_mlir_opt
@pytest.mark.parametrize("outlined", [False, True])
def test_the_generic_form_of_mlir_opt_is_read(outlined: bool, capfd: pytest.CaptureFixture[str]):
    x = drawn()
    passes = "gpu-kernel-outlining" if outlined else ""
    text = mlir_opt(whole(x), pipeline=passes, generic=True)
    np.testing.assert_array_equal(run_on(text, "cpu", capfd)[0][0], wanted(x))


def test_names_memory_and_clusters_are_the_launches():
    module = parse_module(whole(drawn()))
    outline_launches(module)
    kernel = next(op for op in module.walk() if isinstance(op, gpu.FuncOp))
    assert kernel.sym_name.data == "turned"
    assert len(kernel.body.blocks[0].args) == len(kernel.function_type.inputs)
    text = print_module(module)
    assert "memref<320xi8" in text
    assert not re.search(r"gpu\.(cluster|dynamic_shared)", text)


def test_a_kernel_has_the_launches_of_its_own_module():
    text = """module { gpu.module @m { gpu.func @k() kernel {
      %s = gpu.dynamic_shared_memory : memref<?xi8, 3>
      memref.dealloc %s : memref<?xi8, 3>
      gpu.return } }
    func.func @run() {
      %c1 = arith.constant 1 : index
      %bytes = arith.constant 64 : i32
      gpu.launch_func @m::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) dynamic_shared_memory_size %bytes
      return } }"""
    module = parse_module(text + text.replace("64", "96"))
    launch_facts(module)
    made = [op.results[0].type for op in module.walk() if op.name == "memref.alloca"]
    assert [kind.get_shape() for kind in made] == [(64,), (96,)]


@pytest.mark.parametrize("target", ["cpu", "xe-pvc"])
def test_a_kernel_launched_alone_gets_its_own_numbers(target: str):
    """Whatever the program around it passes."""
    if target != "cpu" and opencl.device() is None:
        pytest.skip(f"no OpenCL device: {opencl.HINT}")
    module = parse_module("""
gpu.module @m { gpu.func @k(%a: memref<8x16xf32>, %n: f32) kernel attributes {tilewright.level = "workgroup"} {
  %t = xetile.init_tile %a[0, 0] : memref<8x16xf32> -> !xetile.tile<8x16xf32>
  %v = vector.broadcast %n : f32 to vector<8x16xf32>
  xetile.store_tile %v, %t : vector<8x16xf32>, !xetile.tile<8x16xf32>
  gpu.return
} }
func.func @main() {
  %one = arith.constant 1 : index
  %five = arith.constant 5.0 : f32
  %a = memref.alloc() : memref<8x16xf32>
  gpu.launch_func @m::@k blocks in (%one, %one, %one) threads in (%one, %one, %one)
    args(%a : memref<8x16xf32>, %five : f32)
  return
}""")
    x = np.zeros((8, 16), np.float32)
    kernel = get_target(target).build(module, CompileOptions(target=target))
    kernel.launch((1, 1, 1), [describe(x, "x"), 7.0])
    np.testing.assert_array_equal(x, 7)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("%bytes module", "%asked module", "no constant"),
        ("%larger = arith.maximumf %l, %r", "%larger = arith.subf %l, %r", "not one op"),
        ("gpu.yield %larger", "gpu.yield %l", "not one op"),
        ("%bytes module", "%negative module", "fewer than 0 bytes"),
    ],
)
def test_what_is_refused(old: str, new: str, said: str, capfd: pytest.CaptureFixture[str]):
    head = "%u = memref.cast %x : memref<4x64xf32> to memref<*xf32>\n  %k = memref.rank %u : memref<*xf32>\n  %asked = arith.index_cast %k : index to i32\n  %negative = arith.constant -4 : i32\n  "
    with pytest.raises(TilewrightError, match=said):
        run_on(whole(drawn(), head + BODY.replace(old, new)), None, capfd)
