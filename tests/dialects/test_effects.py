"""What ops say of memory: a prefetch is not dead and writes no array, a print stays, what only reads is dead unused."""

from __future__ import annotations

import numpy as np
from xdsl.dialects import gpu
from xdsl.traits import MemoryEffect
from xdsl.transforms.common_subexpression_elimination import cse
from xdsl.transforms.dead_code_elimination import dce

import tilewright as tw
from tilewright.dialects import make_context
from tilewright.dialects.effects import written
from tilewright.dialects.text import parse_module
from tilewright.passes.memory_objects import is_quiet, may_read, may_write

TEXT = """
gpu.module @m { gpu.func @k(%a: memref<64x64xf16>) kernel {
  %c0 = arith.constant 0 : index
  %v = arith.constant dense<1.0> : vector<8xf16>
  %t = xegpu.create_nd_tdesc %a : memref<64x64xf16> -> !xegpu.tensor_desc<8x16xf16>
  xegpu.prefetch_nd %t[0, 0] : !xegpu.tensor_desc<8x16xf16>
  memref.prefetch %a[%c0, %c0], read, locality<3>, data : memref<64x64xf16>
  %unused = vector.load %a[%c0, %c0] : memref<64x64xf16>, vector<8xf16>
  vector.store %v, %a[%c0, %c0] : memref<64x64xf16>, vector<8xf16>
  vector.print %v : vector<8xf16>
  gpu.return } }
"""
QUIET = ("xegpu.prefetch_nd", "memref.prefetch", "vector.print")


def test_every_op_says_what_it_does_to_memory() -> None:
    module = parse_module(TEXT, "effects.mlir")
    found = {op.name: (may_write(op), may_read(op)) for op in module.walk() if not op.regions}
    assert {name: found[name] for name in QUIET} == dict.fromkeys(QUIET, (False, False))
    assert found["vector.load"] == (False, True) and found["vector.store"] == (True, False)
    quiet = {op.name for op in module.walk() if op.name in QUIET and is_quiet(op)}
    assert quiet == {"xegpu.prefetch_nd", "memref.prefetch"}, "a print is seen"
    (store,) = [op for op in module.walk() if op.name == "vector.store"]
    assert list(written(store)) == [store.operands[1]]


SILENT = {"builtin.module", "builtin.unregistered", "func.call", "func.func", "gpu.func", "gpu.module"}  # fmt: skip
"""Definitions, which do nothing, and ops of which nothing is known."""


def test_no_op_of_a_kernel_is_silent() -> None:
    context = make_context()
    for dialect in list(context.registered_dialect_names):
        context.load_registered_dialect(dialect)
    dialects = ("builtin", "arith", "math", "cf", "func", "gpu", "index", "memref", "scf", "vector")
    names = (*dialects, "mach", "stage", "tw", "xegpu", "xetile")
    ops = [op for op in context.loaded_ops if op.name.partition(".")[0] in names]
    silent = {
        op.name for op in ops if not any(isinstance(t, MemoryEffect) for t in op.traits.traits)
    }
    assert len(ops) > 300 and silent <= SILENT


def test_passes_of_xdsl_keep_what_acts() -> None:
    module = parse_module(TEXT, "effects.mlir")
    (kernel,) = [op for op in module.walk() if isinstance(op, gpu.FuncOp)]
    cse(kernel)
    dce(module)
    names = [op.name for op in kernel.body.block.ops]
    assert [n for n in names if n in QUIET] == list(QUIET)
    assert "vector.store" in names and "vector.load" not in names


@tw.kernel
def prefetched(A, B):
    at = tw.init_tile(A, [0, 0], (16, 16))
    tw.prefetch_tile(at)
    tw.store_tile(tw.load_tile(at), tw.init_tile(B, [0, 0], (16, 16)))


def test_an_array_that_is_prefetched_may_be_read_only() -> None:
    a, b = np.arange(256, dtype=np.float32).reshape(16, 16), np.zeros((16, 16), np.float32)
    a.flags.writeable = False
    prefetched.options(target="reference")[1](a, b)
    np.testing.assert_array_equal(a, b)
