"""xegpu-k-loops: deep products of a subgroup whose operands lie in memory are loops, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.dialects import scf

from tests.draws import fresh_rng
from tests.texts import parse_module
from tilewright import reference
from tilewright.dialects import xegpu
from tilewright.passes.kernel import kernel_of
from tilewright.passes.xegpu.k_loops import k_loops
from tilewright.uarch.xe import xe_machine

PRODUCT = """
gpu.module @m { gpu.func @k(%p: memref<16x64xf32>, %q: memref<16x64xf32>,
    %r: memref<8x16xf32> {llvm.noalias}) kernel
    attributes {tilewright.level = "subgroup", tilewright.subgroups = 1 : i64} {
  %two = arith.constant 2.0 : f32
  %tp = xegpu.create_nd_tdesc %p : memref<16x64xf32> -> !xegpu.tensor_desc<8x64xf32>
  %tq = xegpu.create_nd_tdesc %q : memref<16x64xf32> -> !xegpu.tensor_desc<16x64xf32>
  %tr = xegpu.create_nd_tdesc %r : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
  %m = memref.alloc() : memref<2048xi8, 3>
  %d = xegpu.create_mem_desc %m : memref<2048xi8, 3> -> !xegpu.mem_desc<8x64xf32>
  %v = xegpu.load_nd %tp[8, 0] : !xegpu.tensor_desc<8x64xf32> -> vector<8x64xf32>
  xegpu.store_matrix %v, %d[0, 0] : vector<8x64xf32>, !xegpu.mem_desc<8x64xf32>
  %y = xegpu.load_nd %tq[0, 0] : !xegpu.tensor_desc<16x64xf32> -> vector<16x64xf32>
  xegpu.fence memory_kind = slm, fence_scope = workgroup
  gpu.barrier
  %x = xegpu.load_matrix %d[0, 0] : !xegpu.mem_desc<8x64xf32> -> vector<8x64xf32>
  BETWEEN
  %f = vector.broadcast %two : f32 to vector<8x64xf32>
  %a = arith.mulf %x, %f : vector<8x64xf32>
  %b = vector.transpose %y, [1, 0] : vector<16x64xf32> to vector<64x16xf32>
  %z = xegpu.dpas LEFT, %b SUM -> vector<8x16xf32>
  xegpu.store_nd %z, %tr[0, 0] : vector<8x16xf32>, !xegpu.tensor_desc<8x16xf32>
  gpu.return } }
"""
AB = "vector<8x64xf32>, vector<64x16xf32>"
PLAIN = {"BETWEEN": "", "LEFT": "%a", "SUM": f": {AB}"}


def product(words: dict[str, str]) -> Any:
    text = PRODUCT
    for word, value in {**PLAIN, **words}.items():
        text = text.replace(word, value)
    return parse_module(text)


WITH_C = """%c = xegpu.load_nd %tr[0, 0] : !xegpu.tensor_desc<8x16xf32> -> vector<8x16xf32>"""
WRITES = "xegpu.store_matrix %v, %d[0, 0] : vector<8x64xf32>, !xegpu.mem_desc<8x64xf32>"
TO_Q = """%w = xegpu.load_nd %tq[0, 0] : !xegpu.tensor_desc<16x64xf32> -> vector<16x64xf32>
  xegpu.store_nd %w, %tq[0, 0] : vector<16x64xf32>, !xegpu.tensor_desc<16x64xf32>"""


@pytest.mark.parametrize(
    "words, loops",
    [
        ({}, 1),
        ({"BETWEEN": WITH_C, "SUM": f", %c : {AB}, vector<8x16xf32>"}, 1),
        ({"BETWEEN": WRITES}, 0),
        ({"BETWEEN": TO_Q}, 0),
        ({"LEFT": "%v"}, 0),
    ],
    ids=["plain", "with C", "A is written", "B is written", "A is used twice"],
)
@pytest.mark.parametrize("chip", ["pvc", "dg2"])
def test_products(words: dict[str, str], loops: int, chip: str) -> None:
    rng = fresh_rng()
    p, q = (rng.integers(-9, 9, (16, 64)).astype(np.float32) for _ in range(2))
    r = rng.integers(-9, 9, (8, 16)).astype(np.float32)
    module = product(words)
    want, got = r.copy(), r.copy()
    reference.run(module.clone(), (1, 1, 1), [p, q, want])
    exact = (1 if "LEFT" in words else 2) * p[8:].astype(np.float64) @ q.T
    np.testing.assert_array_equal(want, exact + r if "SUM" in words else exact)
    kernel = kernel_of(module)
    k_loops(kernel, xe_machine(chip))
    module.verify()
    found = [op for op in kernel.walk() if isinstance(op, scf.ForOp)]
    assert len(found) == loops
    for loop in found:
        steps = [op for op in loop.body.block.ops if isinstance(op, xegpu.DpasOp)]
        lanes = xe_machine(chip).lanes
        assert [op.lhs.type.get_shape() for op in steps] == [(8, lanes)]
    reference.run(module, (1, 1, 1), [p, q, got])
    np.testing.assert_array_equal(got, want)


def test_what_an_instruction_does_stays() -> None:
    text = PRODUCT.replace("LEFT", "%a").replace("SUM", f": {AB}").replace("BETWEEN", "")
    halves = text.replace("f32", "f16").replace("2.0 : f16", "2.0 : f16").replace("2048", "1024")
    halves = halves.replace(
        "-> vector<8x16xf16>\n  xegpu.store", "-> vector<8x16xf32>\n  xegpu.store"
    )
    for name in (
        "memref<8x16x",
        "tensor_desc<8x16x",
        "xegpu.store_nd %z, %tr[0, 0] : vector<8x16x",
    ):
        halves = halves.replace(f"{name}f16", f"{name}f32")
    module = parse_module(halves)
    before = str(module)
    k_loops(kernel_of(module), xe_machine("pvc"))
    assert str(module) == before
