"""The copy engine and mbarriers, as the instruction table emits them. Needs a GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.targets.cuda.harness import Buffer, Kernel, architecture, needs_gpu
from tilewright.targets.cuda import driver
from tilewright.uarch.sm90 import smem_tile

pytestmark = needs_gpu

HEAD = """
      %t = gpu.thread_id x
      %c0 = arith.constant 0 : index
      %c16 = arith.constant 16 : index
      %z = arith.constant 0 : i32
      %one = arith.constant 1 : i32
      %shared = mach.shared_base {alignment = 1024 : i64} : !llvm.ptr<3>
      %first = arith.cmpi eq, %t, %c0 : index
      %mine = arith.muli %t, %c16 : index
      %at = mach.ptr_add %shared, %mine : !llvm.ptr<3>"""


def hopper_only() -> None:
    if architecture() != "sm_90a":
        pytest.skip("this GPU lacks sm_90a")


LOAD = f"""
    func.func @k(%map : !llvm.ptr {{mach.tensor_map}}, %out : !llvm.ptr<1>, %x : i32, %y : i32)
        attributes {{mach.kernel, "nvvm.reqntid" = "512,1,1"}} {{{HEAD}
      %size = arith.constant 8192 : index
      %bytes = arith.constant 8192 : i32
      %bar = mach.ptr_add %shared, %size : !llvm.ptr<3>
      scf.if %first {{
        mach.instr "nvptx.mbarrier.init"(%bar, %one) : (!llvm.ptr<3>, i32) -> ()
        mach.instr "nvptx.fence.mbarrier_init"() : () -> ()
        mach.instr "nvptx.fence.proxy.async"() : () -> ()
      }}
      gpu.barrier
      scf.if %first {{
        mach.instr "nvptx.mbarrier.arrive.expect_tx"(%bar, %bytes) : (!llvm.ptr<3>, i32) -> ()
        mach.instr "nvptx.tma.load.2d"(%shared, %bar, %map, %x, %y)
          : (!llvm.ptr<3>, !llvm.ptr<3>, !llvm.ptr, i32, i32) -> ()
      }}
      mach.instr "nvptx.mbarrier.wait.parity"(%bar, %z) : (!llvm.ptr<3>, i32) -> ()
      %w = mach.load %at {{alignment = 16 : i64}} : !llvm.ptr<3> -> vector<4xi32>
      %to = mach.ptr_add %out, %mine : !llvm.ptr<1>
      mach.store %w, %to {{alignment = 16 : i64}} : vector<4xi32>, !llvm.ptr<1>
      func.return
    }}"""


@pytest.mark.parametrize("swizzle", [128, 64, 32])
def test_tma_loads_boxes_as_the_machine_table_says(swizzle: int, rng: np.random.Generator) -> None:
    """64 rows by `swizzle` bytes, over the array's edge: zeros outside, chunks swizzled."""
    hopper_only()
    columns, rows = swizzle // 2, 8192 // swizzle
    array = rng.normal(size=(200, 72)).astype(ml_dtypes.bfloat16)
    driver.device(0).make_current()
    buffer = Buffer(array)
    tensor = driver.TensorMap(
        buffer.address.value, "bf16", (72, 200), (144,), (columns, rows), swizzle
    )
    kernel = Kernel(LOAD, shared=8192 + 64 + 1024)
    for x, y in ((0, 0), (48, 180), (-8, -3)):
        out = np.full(4096, 7, np.uint16)
        kernel(tensor, out, np.int32(x), np.int32(y), threads=512)
        wanted = np.zeros((rows, columns), ml_dtypes.bfloat16)
        for r in range(rows):
            for c in range(columns):
                if 0 <= y + r < 200 and 0 <= x + c < 72:
                    wanted[r, c] = array[y + r, x + c]
        got = np.zeros_like(wanted)
        layout = smem_tile(rows, columns, 2, swizzle)
        at = layout.address(*np.indices((rows, columns)))
        got[:] = out.view(ml_dtypes.bfloat16)[at]
        np.testing.assert_array_equal(got.view(np.uint16), wanted.view(np.uint16))
    buffer.back()


STORE = f"""
    func.func @k(%map : !llvm.ptr {{mach.tensor_map}}, %x : i32, %y : i32)
        attributes {{mach.kernel, "nvvm.reqntid" = "512,1,1"}} {{{HEAD}
      %i = arith.index_cast %t : index to i32
      %f = arith.sitofp %i : i32 to f32
      %v = vector.broadcast %f : f32 to vector<4xf32>
      mach.store %v, %at {{alignment = 16 : i64}} : vector<4xf32>, !llvm.ptr<3>
      mach.instr "nvptx.fence.proxy.async"() : () -> ()
      gpu.barrier
      scf.if %first {{
        mach.instr "nvptx.tma.NAME.2d"(%shared, %map, %x, %y) : (!llvm.ptr<3>, !llvm.ptr, i32, i32) -> ()
        mach.instr "nvptx.bulk.commit_group"() : () -> ()
        mach.instr "nvptx.bulk.wait_group"() : () -> ()
      }}
      func.return
    }}"""


@pytest.mark.parametrize("name", ["store", "reduce.add"])
def test_tma_stores_drop_what_lies_outside(name: str) -> None:
    """A box of 64 rows by 32 f32, without swizzle."""
    hopper_only()
    array = np.ones((100, 40), np.float32)
    driver.device(0).make_current()
    buffer = Buffer(array)
    tensor = driver.TensorMap(buffer.address.value, "f32", (40, 100), (160,), (32, 64), 0)
    Kernel(STORE.replace("NAME", name), shared=8192 + 1024)(
        tensor, np.int32(16), np.int32(50), threads=512
    )
    buffer.back()
    wanted = np.ones((100, 40), np.float32)
    box = np.repeat(np.arange(512, dtype=np.float32), 4).reshape(64, 32)[:50, :24]
    wanted[50:, 16:] = box + (name != "store")
    np.testing.assert_array_equal(array, wanted)


COPY = f"""
    func.func @k(%from : !llvm.ptr<1>, %out : !llvm.ptr<1>)
        attributes {{mach.kernel, "nvvm.reqntid" = "64,1,1"}} {{{HEAD}
      %i = arith.index_cast %t : index to i32
      %bytes = arith.SIZEOF
      %src = mach.ptr_add %from, %mine : !llvm.ptr<1>
      mach.instr "nvptx.cp.async.16"(%at, %src, %bytes) : (!llvm.ptr<3>, !llvm.ptr<1>, i32) -> ()
      mach.instr "nvptx.cp.async.commit_group"() : () -> ()
      mach.instr "nvptx.cp.async.wait_group"() : () -> ()
      gpu.barrier
      %w = mach.load %at {{alignment = 16 : i64}} : !llvm.ptr<3> -> vector<4xi32>
      %to = mach.ptr_add %out, %mine : !llvm.ptr<1>
      mach.store %w, %to {{alignment = 16 : i64}} : vector<4xi32>, !llvm.ptr<1>
      func.return
    }}"""


def test_cp_async_fills_with_zeros(rng: np.random.Generator) -> None:
    """Thread i copies i modulo 17 bytes."""
    source, out = rng.integers(1, 256, 1024, dtype=np.uint8), np.full(1024, 9, np.uint8)
    text = COPY.replace("arith.SIZEOF", "arith.remsi %i, %c17 : i32").replace(
        "%bytes =", "%c17 = arith.constant 17 : i32\n      %bytes ="
    )
    Kernel(text, shared=2048)(source, out, threads=64)
    wanted = source.reshape(64, 16).copy()
    for i in range(64):
        wanted[i, i % 17 :] = 0
    np.testing.assert_array_equal(out.reshape(64, 16), wanted)


CLUSTER = f"""
    func.func @k(%map : !llvm.ptr {{mach.tensor_map}}, %out : !llvm.ptr<1>)
        attributes {{mach.kernel, "nvvm.reqntid" = "512,1,1", "nvvm.cluster_dim" = "2,1,1"}} {{{HEAD}
      %size = arith.constant 8192 : index
      %bytes = arith.constant 8192 : i32
      %half = arith.constant 4096 : i32
      %two = arith.constant 2 : i32
      %both = arith.constant 3 : i16
      %bar = mach.ptr_add %shared, %size : !llvm.ptr<3>
      %eight = arith.constant 8 : index
      %done = mach.ptr_add %bar, %eight : !llvm.ptr<3>
      %rank = mach.instr "nvptx.sreg.cluster.ctarank"() : () -> i32
      scf.if %first {{
        mach.instr "nvptx.mbarrier.init"(%bar, %one) : (!llvm.ptr<3>, i32) -> ()
        mach.instr "nvptx.mbarrier.init"(%done, %two) : (!llvm.ptr<3>, i32) -> ()
        mach.instr "nvptx.fence.mbarrier_init"() : () -> ()
      }}
      mach.instr "nvptx.cluster.arrive.relaxed.aligned"() : () -> ()
      mach.instr "nvptx.cluster.wait.aligned"() : () -> ()
      scf.if %first {{
        mach.instr "nvptx.mbarrier.arrive.expect_tx"(%bar, %bytes) : (!llvm.ptr<3>, i32) -> ()
        %c32 = arith.constant 32 : i32
        %row = arith.muli %rank, %c32 : i32
        %my = arith.muli %rank, %half : i32
        %myi = arith.index_cast %my : i32 to index
        %part = mach.ptr_add %shared, %myi : !llvm.ptr<3>
        mach.instr "nvptx.tma.load.2d.multicast"(%part, %bar, %map, %z, %row, %both)
          : (!llvm.ptr<3>, !llvm.ptr<3>, !llvm.ptr, i32, i32, i16) -> ()
      }}
      mach.instr "nvptx.mbarrier.wait.parity"(%bar, %z) : (!llvm.ptr<3>, i32) -> ()
      scf.if %first {{
        %there = mach.instr "nvptx.mapa"(%done, %z) : (!llvm.ptr<3>, i32) -> !llvm.ptr<7>
        mach.instr "nvptx.mbarrier.arrive.remote"(%there, %one) : (!llvm.ptr<7>, i32) -> ()
      }}
      %leader = arith.cmpi eq, %rank, %z : i32
      scf.if %leader {{
        mach.instr "nvptx.mbarrier.wait.parity"(%done, %z) : (!llvm.ptr<3>, i32) -> ()
      }}
      %w = mach.load %at {{alignment = 16 : i64}} : !llvm.ptr<3> -> vector<4xi32>
      %ranki = arith.index_cast %rank : i32 to index
      %off = arith.muli %ranki, %size : index
      %mine2 = arith.addi %off, %mine : index
      %to = mach.ptr_add %out, %mine2 : !llvm.ptr<1>
      mach.store %w, %to {{alignment = 16 : i64}} : vector<4xi32>, !llvm.ptr<1>
      mach.instr "nvptx.cluster.arrive"() : () -> ()
      mach.instr "nvptx.cluster.wait"() : () -> ()
      func.return
    }}"""


def test_a_cluster_shares_what_it_loads(rng: np.random.Generator) -> None:
    """Each workgroup of two loads half of the rows for both; arrivals cross over."""
    hopper_only()
    array = rng.integers(0, 1 << 31, (64, 32), np.int32)
    driver.device(0).make_current()
    buffer = Buffer(array)
    tensor = driver.TensorMap(buffer.address.value, "i32", (32, 64), (128,), (32, 32), 0)
    out: Any = np.zeros((2, 64, 32), np.int32)
    Kernel(CLUSTER, shared=8192 + 64 + 1024)(tensor, out, threads=512, grid=(2, 1, 1))
    buffer.back()
    np.testing.assert_array_equal(out, np.stack([array, array]))


def test_faults_are_told_by_name_at_the_next_call() -> None:
    """In a process of its own: a fault ends the context."""
    import subprocess
    import sys

    script = """
import numpy as np
from tests.targets.cuda.harness import Kernel
from tilewright.targets.cuda import driver
text = '''func.func @k(%p : !llvm.ptr<1>) attributes {mach.kernel} {
  %v = mach.load %p : !llvm.ptr<1> -> i32
  mach.store %v, %p {volatile} : i32, !llvm.ptr<1>
  func.return
}'''
try:
    Kernel(text)(np.int64(1 << 20))
except driver.DriverError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stdout, done.stdout + done.stderr
