# ruff: noqa: E501
"""Shared matrices that lanes read by columns lie so; the others stay as they are."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import NoneAttr

from tests.draws import fresh_rng
from tests.targets.xe.conftest import build
from tilewright import reference
from tilewright.dialects.text import parse_module, print_module, verify_module
from tilewright.dialects.xegpu import CreateMemDescOp, LoadMatrixOp, StoreMatrixOp
from tilewright.passes.xegpu.pipeline import PIPELINE, SUBGROUP

T, M = "!xegpu.tensor_desc", "!xegpu.mem_desc"


def product(row: str = "%mine", desc: str = "", rows: int = 8) -> str:
    """Two subgroups store A and B to shared memory, and multiply: C [16, 32] = A [16, 32] B [32, 32]."""
    a, b = f"{M}<16x32xf16{desc}>", f"{M}<32x32xf16{desc}>"
    return f"""gpu.module @m {{
  gpu.func @k(%a: memref<16x64xf16>, %b: memref<32x64xf16>, %c: memref<16x32xf32>) kernel attributes {{tilewright.level = "subgroup", tilewright.subgroups = 2 : i64}} {{
    %c0 = arith.constant 0 : index
    %c2 = arith.constant 2 : index
    %n8 = arith.constant 8 : index
    %n16 = arith.constant 16 : index
    %one = arith.constant 1 : index
    %s = gpu.subgroup_id : index
    %mine = arith.muli %s, %n8 : index
    %odd = arith.addi %mine, %c0 : index
    %half = arith.muli %s, %n16 : index
    %sa = memref.alloc() : memref<1024xi8, 3>
    %sb = memref.alloc() : memref<2048xi8, 3>
    %ma = xegpu.create_mem_desc %sa : memref<1024xi8, 3> -> {a}
    %mb = xegpu.create_mem_desc %sb : memref<2048xi8, 3> -> {b}
    %ta = xegpu.create_nd_tdesc %a : memref<16x64xf16> -> {T}<8x32xf16>
    %tb = xegpu.create_nd_tdesc %b : memref<32x64xf16> -> {T}<16x32xf16>
    %tc = xegpu.create_nd_tdesc %c : memref<16x32xf32> -> {T}<8x32xf32>
    %va = xegpu.load_nd %ta[%mine, 0] : {T}<8x32xf16> -> vector<8x32xf16>
    %vb = xegpu.load_nd %tb[%half, 0] : {T}<16x32xf16> -> vector<16x32xf16>
    xegpu.store_matrix %va, %ma[{row}, 0] : vector<8x32xf16>, {a}, index
    xegpu.store_matrix %vb, %mb[%half, 0] : vector<16x32xf16>, {b}, index
    gpu.barrier
    %wa = xegpu.load_matrix %ma[{row}, 0] : {a}, index -> vector<8x32xf16>
    %wb = xegpu.load_matrix %mb[0, 0] : {b} -> vector<32x32xf16>
    %p = xegpu.dpas %wa, %wb : vector<8x32xf16>, vector<32x32xf16> -> vector<8x32xf32>
    xegpu.store_nd %p, %tc[%mine, 0] : vector<8x32xf32>, {T}<8x32xf32>
    gpu.return
  }}
}}"""


def lower(text: str, count: int | None = None) -> Any:
    module = parse_module(text, "slm.mlir")
    for entry in SUBGROUP[:count]:
        PIPELINE.alone(entry, module, "pvc")
    verify_module(module)
    return parse_module(print_module(module), "slm.mlir")


def check(text: str, module: Any, *, transposed: bool = False) -> None:
    rng = fresh_rng()
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((16, 64), (32, 64)))
    c = np.full((16, 32), np.nan, np.float32)
    reference.run(module, (1,), [a, b, c])
    right = b[:, :32].T if transposed else b[:, :32]
    exact = a[:, :32].astype(np.float64) @ right.astype(np.float64)
    assert np.linalg.norm(c - exact) / np.linalg.norm(exact) < 1e-6


def test_one_access_for_a_fragment():
    text = product()
    for count in (2, 3, None):
        check(text, lower(text, count))
    module = lower(text)
    found = Counter(op.name for op in module.walk())
    # A: two fragments of 8 x 16; B: four of 16 x 16, stored as four of 8 x 16. No register moves.
    assert found["xegpu.load_matrix"] == 2 + 4
    assert found["xegpu.store_matrix"] == 2 + 4
    assert not found["vector.shuffle"] and not found["gpu.shuffle"]
    blocks = [op.desc.block for op in module.walk() if isinstance(op, CreateMemDescOp)]
    assert blocks == [(8, 16), (16, 16)]


TRANSPOSED = f"""gpu.module @m {{
  gpu.func @k(%a: memref<16x64xf16>, %b: memref<32x64xf16>, %c: memref<16x32xf32>) kernel
      attributes {{tilewright.level = "subgroup", tilewright.subgroups = 2 : i64}} {{
    %n8 = arith.constant 8 : index
    %n16 = arith.constant 16 : index
    %s = gpu.subgroup_id : index
    %mine = arith.muli %s, %n8 : index
    %half = arith.muli %s, %n16 : index
    %sb = memref.alloc() : memref<2048xi8, 3>
    %mb = xegpu.create_mem_desc %sb : memref<2048xi8, 3> -> {M}<32x32xf16>
    %ta = xegpu.create_nd_tdesc %a : memref<16x64xf16> -> {T}<8x32xf16>
    %tb = xegpu.create_nd_tdesc %b : memref<32x64xf16> -> {T}<16x32xf16>
    %tc = xegpu.create_nd_tdesc %c : memref<16x32xf32> -> {T}<8x32xf32>
    %va = xegpu.load_nd %ta[%mine, 0] : {T}<8x32xf16> -> vector<8x32xf16>
    %vb = xegpu.load_nd %tb[%half, 0] : {T}<16x32xf16> -> vector<16x32xf16>
    xegpu.store_matrix %vb, %mb[%half, 0] : vector<16x32xf16>, {M}<32x32xf16>, index
    gpu.barrier
    %wb = xegpu.load_matrix %mb[0, 0] : {M}<32x32xf16> -> vector<32x32xf16>
    %tr = vector.transpose %wb, [1, 0] : vector<32x32xf16> to vector<32x32xf16>
    %p = xegpu.dpas %va, %tr : vector<8x32xf16>, vector<32x32xf16> -> vector<8x32xf32>
    xegpu.store_nd %p, %tc[%mine, 0] : vector<8x32xf32>, {T}<8x32xf32>
    gpu.return
  }}
}}"""


def test_panels_on_the_way_to_a_transposition():
    """Rows of the subgroup go in, eight per message; a lane's rows come out, 32 bytes at once."""
    module = lower(TRANSPOSED)
    check(TRANSPOSED, module, transposed=True)
    found = [op for op in module.walk() if isinstance(op, (LoadMatrixOp, StoreMatrixOp))]
    assert [op.desc.block for op in found] == [(32, 16)] * len(found)
    stores = [op for op in found if isinstance(op, StoreMatrixOp)]
    # 16 x 32 of B: two panels of 16 columns, 8 rows per message.
    assert [str(op.value.type) for op in stores] == ["vector<8xf16>"] * 4
    assert all(op.subgroup_block_io for op in stores)
    loads = [op for op in found if isinstance(op, LoadMatrixOp)]
    assert [str(op.value.type) for op in loads] == ["vector<16xf16>"] * 4
    assert not any(op.name in ("vector.shuffle", "gpu.shuffle") for op in module.walk())
    calls = [
        str(op) for op in build(print_module(module)).ir["mach"].splitlines() if "row_st" in op
    ]
    assert len(calls) == 4 and all("xe_row_store_16b_x8_slm" in call for call in calls)


LAID_OUT = ", #xegpu.mem_layout<stride = [32, 1], block = [8, 16]>"


@pytest.mark.parametrize(("row", "desc"), [("%mine", LAID_OUT), ("%odd2", "")])
def test_what_stays(row: str, desc: str):
    """A layout that the text gives, and offsets of which nothing is known."""
    text = product(row, desc)
    if row == "%odd2":
        text = text.replace(
            "%half = arith.muli",
            "%odd2 = arith.xori %mine, %c0 : index\n    %half = arith.muli",
        )
    module = lower(text)
    check(text, module)
    first = next(op for op in module.walk() if isinstance(op, CreateMemDescOp))
    if desc:
        assert first.desc.stride == (32, 1)
    else:
        assert isinstance(first.desc.mem_layout, NoneAttr)
