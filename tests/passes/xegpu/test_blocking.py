"""What a k-step of a GEMM costs a subgroup at lane level, counted; and that the result stays right at every stage."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from xdsl.dialects import scf

from tests.calls import calls
from tests.draws import fresh_rng
from tests.passes.xegpu.subgroup_gemm import Gemm
from tests.passes.xegpu.test_subgroup_distribute import TYPES
from tilewright import reference
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.text import parse_module, print_module, verify_module
from tilewright.dialects.xegpu import DpasOp, LoadNdOp, PrefetchNdOp, StoreNdOp
from tilewright.passes.xegpu.pipeline import PIPELINE, SUBGROUP
from tilewright.uarch.xe import XeMachine, xe_machine

F16 = Gemm("pvc", "f16", "f32", 32, 64, 32)

# gemm, loads, of them packed and transposed, dpas per k-step
BARS = [
    (F16, 3, 2, 0, 32),
    (replace(F16, transposed=True), 9, 0, 8, 32),
    (replace(F16, element="bf16"), 3, 2, 0, 32),
    (Gemm("pvc", "i8", "i32", 32, 64, 64), 3, 2, 0, 32),
    (Gemm("pvc", "i8", "i32", 32, 64, 64, transposed=True), 9, 0, 8, 32),
    (Gemm("pvc", "tf32", "f32", 32, 64, 16), 5, 0, 0, 32),
    (Gemm("pvc", "tf32", "f32", 32, 64, 16, transposed=True), 9, 0, 8, 32),
    (Gemm("pvc", "f16", "f16", 16, 32, 32), 2, 1, 0, 8),
    (replace(F16, chip="bmg"), 3, 2, 0, 32),
]

NAMES = [
    f"{g.chip} {g.element} {g.accumulator}{' transposed' if g.transposed else ''}" for g, *_ in BARS
]


def lower(gemm: Gemm) -> list[tuple[str, Any]]:
    """The module as it was, with instructions, and of a lane."""
    module = parse_module(gemm.text(), "gemm.mlir")
    found = [("as written", module.clone())]
    for position, entry in enumerate(SUBGROUP):
        PIPELINE.alone(entry, module, gemm.chip)
        if entry.name == "xegpu-blocking" or position == len(SUBGROUP) - 1:
            found.append((entry.name, module.clone()))
    return found


def check(gemm: Gemm, stages: list[tuple[str, Any]]) -> None:
    """Every stage gives A B."""
    rng = fresh_rng()
    kind = TYPES.get(gemm.element, np.float32)
    a, b = (
        rng.integers(-100, 100, shape).astype(kind)
        if gemm.element == "i8"
        else rng.standard_normal(shape).astype(kind)
        for shape in gemm.shapes[:2]
    )
    right = b.T if gemm.transposed else b
    exact = a.astype(np.float64) @ right.astype(np.float64)
    for name, module in stages:
        c = np.empty(gemm.shapes[2], TYPES[gemm.accumulator])
        c.view(np.uint8).fill(0xFF)
        reference.run(module, (2,), [a, b, c])
        error = np.linalg.norm(c.astype(np.float64) - exact) / np.linalg.norm(exact)
        limit = {"i32": 0, "f32": 1e-6, "f16": 2e-3}[gemm.accumulator]
        assert error <= limit, f"{name}: {error}"


@pytest.mark.parametrize(("gemm", "loads", "packed", "transposed", "products"), BARS, ids=NAMES)
def test_a_step_costs(gemm: Gemm, loads: int, packed: int, transposed: int, products: int):
    stages = lower(gemm)
    check(gemm, stages)
    module = stages[-1][1]
    verify_module(module)
    parse_module(print_module(module), "lane.mlir")
    loop = next(op for op in module.walk() if isinstance(op, scf.ForOp))
    ops = list(loop.body.block.ops)
    found = [op for op in ops if isinstance(op, LoadNdOp)]
    assert len(found) == loads
    assert sum(op.packed for op in found) == packed
    assert sum(op.transposes for op in found) == transposed
    assert sum(isinstance(op, DpasOp) for op in ops) == products
    assert sum(isinstance(op, PrefetchNdOp) for op in ops) == 2
    # Nothing else but slices of what was loaded, each a run of registers, and offsets.
    rest = Counter(op.name for op in ops if not op.name.startswith("xegpu."))
    assert set(rest) <= {"vector.extract_strided_slice", "arith.addi", "scf.yield"}, rest
    for op in ops:
        if op.name == "vector.extract_strided_slice":
            assert isinstance(op.operands[0].owner, LoadNdOp)
        if isinstance(op, DpasOp):
            assert op.result.type == op.operands[-1].type
    stores = [op for op in module.walk() if isinstance(op, StoreNdOp)]
    assert {op.tdesc.get_shape() for op in stores} == {(8, 16)}
    machine = xe_machine(gemm.chip)
    assert isinstance(machine, XeMachine)
    for op in found:
        height, width = op.tdesc.get_shape()
        bits = 32 if gemm.element == "tf32" else int(gemm.element.strip("bfiu"))
        if op.transposes:
            width, bits = width * bits // 32, 32
        form = "transpose" if op.transposes else "transform" if op.packed else "load"
        machine.block("load", form, bits, width, height, op.tdesc.array_length)


def test_a_depth_that_no_dpas_has():
    """k = 24 of f16 is padded to that of two, and right."""
    gemm = Gemm("pvc", "f16", "f32", 8, 16, 24, steps=2)
    stages = lower(gemm)
    check(gemm, stages)
    assert any(isinstance(op, DpasOp) for op in stages[-1][1].walk())


def test_a_depth_that_lanes_do_not_divide():
    """Without dpas k = 200 is a loop of 8 at once."""
    gemm = Gemm("pvc", "f32", "f32", 16, 32, 200, steps=1)
    stages = lower(gemm)
    check(gemm, stages)
    assert sum(1 for _ in stages[-1][1].walk()) < 2000


def test_a_large_product_without_dpas_is_refused():
    """Done without dpas, and at once for no step divides k, 198 of 64 x 96 would be more code than any kernel has."""
    module = parse_module(Gemm("pvc", "f32", "f32", 64, 96, 198, steps=1).text(), "gemm.mlir")
    with pytest.raises(UnsupportedError, match="no dpas does a product of 64 x 96 x 198"):
        for entry in SUBGROUP:
            PIPELINE.alone(entry, module, "pvc")


MIXED = """
gpu.module @m {{ gpu.func @mixed(%a: memref<64x64xf32>, %b: memref<64x64xf32>) kernel {{
  %s = xegpu.create_nd_tdesc %a : memref<64x64xf32> -> !xegpu.tensor_desc<64x64xf32>
  %t = xegpu.create_nd_tdesc %b : memref<64x64xf32> -> !xegpu.tensor_desc<64x64xf32>
  %x = xegpu.load_nd %s[0, 0] : !xegpu.tensor_desc<64x64xf32> -> vector<64x64xf32>
  %y = arith.negf %x : vector<64x64xf32>
  %p, %q = vector.deinterleave %y : vector<64x64xf32> -> vector<64x32xf32>
  %u = vector.interleave %q, %p : vector<64x32xf32> -> vector<64x64xf32>
  %z = vector.shuffle %x, %u {mask} : vector<64x64xf32>, vector<64x64xf32>
  xegpu.store_nd %z, %t[0, 0] : vector<64x64xf32>, !xegpu.tensor_desc<64x64xf32>
  gpu.return
}} }}
"""


def test_shuffles_and_interleaves_are_cut_into_fragments():
    """No op takes the whole value; rows of both operands, in no order, and of one side by side."""
    rng = fresh_rng()
    mask = [*rng.integers(0, 128, 32).tolist(), *range(64, 96)]
    module = parse_module(MIXED.format(mask=mask), "mixed.mlir")
    a = rng.standard_normal((64, 64)).astype(np.float32)
    swapped = -a.reshape(64, 32, 2)[:, :, ::-1].reshape(64, 64)
    expected = np.concatenate([a, swapped])[mask]
    for passes in ((), SUBGROUP[:4], SUBGROUP[4:]):
        for each in passes:
            PIPELINE.alone(each, module, "pvc")
            if each.name == "xegpu-blocking":
                kinds = [str(r.type) for op in module.walk() for r in op.results]
                assert "vector<64x64xf32>" not in kinds and "vector<8x16xf32>" in kinds
        b = np.full((64, 64), np.nan, np.float32)
        reference.run(module, (1,), [a, b])
        np.testing.assert_array_equal(b, expected)


def test_what_is_refused():
    text = (
        F16.text()
        .replace("%tb[%k, %n]", "%tx[%k, %n]")
        .replace(
            "%r = scf.for",
            "%tx = arith.select %yes, %tb, %tb : !xegpu.tensor_desc<32x64xf16>\n    %r = scf.for",
        )
    )
    text = text.replace("%bx = gpu", "%yes = arith.constant true\n    %bx = gpu")
    module = parse_module(text, "gemm.mlir")
    with pytest.raises(UnsupportedError, match="a descriptor is carried by it or chosen"):
        for entry in SUBGROUP:
            PIPELINE.alone(entry, module, "pvc")


def test_work_grows_with_the_fragments():
    """Eight times as many fragments are about eight times the work."""

    def work(columns: int) -> int:
        gemm = replace(F16, columns=columns, steps=1)
        return calls(lambda: lower(gemm))

    work(64)
    assert work(512) < 8 * 1.5 * work(64)
