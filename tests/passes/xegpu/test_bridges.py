"""xetile-to-xegpu and xegpu-to-xetile keep values, both ways, as the reference executor sees them."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects import func
from xdsl.dialects.builtin import Float16Type, Float32Type, IndexType, MemRefType, ModuleOp

from tests.draws import fresh_rng
from tests.lowering.programs import lowered, ops
from tilewright import reference
from tilewright.dialects.text import parse_module, print_module, verify_module
from tilewright.passes.xegpu.from_xetile import xetile_to_xegpu
from tilewright.passes.xegpu.pipeline import WORKGROUP
from tilewright.passes.xegpu.to_xetile import xegpu_to_xetile

PROGRAMS = Path(__file__).parent / "programs"
XETILE = sorted(PROGRAMS.glob("xetile_*.mlir"))
XEGPU = sorted(PROGRAMS.glob("xegpu_*.mlir"))


def new_seed() -> int:
    return int(os.environ.get("TILEWRIGHT_TEST_SEED", random.randrange(2**31)))


def array_for(type: MemRefType[Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Random contents in the memref's memory order; unknown extents are 24."""
    shape = [24 if extent < 0 else extent for extent in type.get_shape()]
    strides = type.get_strides()
    column = strides is not None and len(shape) > 1 and strides[0] == 1
    match type.element_type:
        case Float16Type():
            data = rng.standard_normal(shape).astype(np.float16)
        case Float32Type():
            data = rng.standard_normal(shape).astype(np.float32)
        case element:
            info = np.dtype(f"int{element.width.data}")
            data = rng.integers(-100, 100, shape).astype(info)
    return np.asfortranarray(data) if column else data


def arguments(module: ModuleOp, seed: int) -> list[Any]:
    function = next(op for op in module.body.block.ops if isinstance(op, func.FuncOp))
    rng = np.random.default_rng(seed)
    args: list[Any] = []
    for type in function.function_type.inputs.data:
        if isinstance(type, MemRefType):
            args.append(array_for(type, rng))
        else:
            assert isinstance(type, IndexType)
            args.append(int(rng.integers(0, 30)))
    return args


def run(module: ModuleOp, seed: int) -> list[Any]:
    args = arguments(module, seed)
    reference.run(module, (1, 1, 1), args)
    return args


def assert_same(expected: list[Any], found: list[Any], what: str) -> None:
    for number, (a, b) in enumerate(zip(expected, found, strict=True)):
        if not isinstance(a, np.ndarray):
            continue
        if a.dtype.kind == "f":
            difference = np.linalg.norm(a.astype(np.float64) - b.astype(np.float64))
            scale = np.linalg.norm(a.astype(np.float64)) + 1e-30
            assert difference / scale < 1e-6, f"{what}: argument {number}, {difference / scale}"
        else:
            np.testing.assert_array_equal(a, b, err_msg=f"{what}: argument {number}")


def reparsed(module: ModuleOp) -> ModuleOp:
    verify_module(module)
    return parse_module(print_module(module), "printed.mlir")


@pytest.mark.parametrize("path", XETILE, ids=lambda path: path.stem)
def test_xetile_to_xegpu_and_back(path: Path):
    seed = new_seed()
    print("seed", seed)
    module = parse_module(path.read_text(), path.name)
    expected = run(module, seed)
    assert any(
        not np.array_equal(a, b) for a, b in zip(arguments(module, seed), expected, strict=True)
    )
    xetile_to_xegpu(module)
    assert "xetile." not in print_module(module)
    lowered = reparsed(module)
    assert_same(expected, run(lowered, seed), "XeGPU")
    xegpu_to_xetile(module)
    text = print_module(module)
    assert "xegpu." not in text
    assert_same(expected, run(reparsed(module), seed), "back in XeTile")


@pytest.mark.parametrize("path", XEGPU, ids=lambda path: path.stem)
def test_xegpu_to_xetile(path: Path):
    seed = new_seed()
    print("seed", seed)
    module = parse_module(path.read_text(), path.name)
    expected = run(module, seed)
    xegpu_to_xetile(module)
    text = print_module(module)
    for op in ("load", "store", "dpas", "create", "atomic", "convert_layout", "truncf"):
        assert f"xegpu.{op}" not in text
    assert_same(expected, run(reparsed(module), seed), "XeTile")


def test_maps_survive_the_way_there_and_back():
    module = parse_module((PROGRAMS / "xetile_gemm.mlir").read_text(), "gemm.mlir")
    xetile_to_xegpu(module)
    assert "layout_a = #xegpu.layout<sg_layout = [2, 2], sg_data = [8, 16]>" in print_module(module)
    xegpu_to_xetile(module)
    text = print_module(module)
    assert "wg_map_b = #xetile.wg_map<sg_layout = [2, 2], sg_data = [16, 16]>" in text
    assert "locality<2>" in text


def test_maps_of_another_rank_than_their_value_are_remarks():
    """IMEX writes the matrix's map on a cast of it to three dimensions and on sums; what fits is enough."""
    text = """
    gpu.module @m { gpu.func @f(%a: memref<32x32xf32>, %b: memref<1x32xf32>) kernel {
      %t = xetile.init_tile %a[0, 0] : memref<32x32xf32>
        -> !xetile.tile<32x32xf32, #xetile.tile_attr<wg_map = <sg_layout = [4, 2], sg_data = [8, 16]>>>
      %x = xetile.load_tile %t
        : !xetile.tile<32x32xf32, #xetile.tile_attr<wg_map = <sg_layout = [4, 2], sg_data = [8, 16]>>>
        -> vector<32x32xf32>
      %z = arith.constant {map = #xetile.wg_map<sg_layout = [4, 2], sg_data = [1, 16]>} dense<0.0> : vector<4x32xf32>
      %r = vector.shape_cast %x {map = #xetile.wg_map<sg_layout = [4, 2], sg_data = [8, 16]>}
        : vector<32x32xf32> to vector<4x8x32xf32>
      %s = vector.multi_reduction <add>, %r, %z {map = #xetile.wg_map<sg_layout = [4, 2], sg_data = [1, 16]>} [1]
        : vector<4x8x32xf32> to vector<4x32xf32>
      %o = arith.constant dense<0.0> : vector<32xf32>
      %u = vector.multi_reduction <add>, %s, %o {map = #xetile.wg_map<sg_layout = [1, 8], sg_data = [1, 4]>} [0]
        : vector<4x32xf32> to vector<32xf32>
      %v = vector.shape_cast %u : vector<32xf32> to vector<1x32xf32>
      %w = xetile.init_tile %b[0, 0] : memref<1x32xf32>
        -> !xetile.tile<1x32xf32, #xetile.tile_attr<wg_map = <sg_layout = [1, 8], sg_data = [1, 4]>>>
      xetile.store_tile %v, %w
        : vector<1x32xf32>, !xetile.tile<1x32xf32, #xetile.tile_attr<wg_map = <sg_layout = [1, 8], sg_data = [1, 4]>>>
      gpu.return } }
    """
    args = [fresh_rng().standard_normal((32, 32)).astype(np.float32), np.zeros((1, 32), np.float32)]
    found = lowered(parse_module(text), (1, 1, 1), args, WORKGROUP)
    (kernel,) = ops(found, "gpu.func")
    assert "is of another rank than vector<4x8x32xf32>: not used" in str(kernel.attributes)
    # One sum before the exchange, one behind it: a subgroup's row of partial sums needs none of its own.
    assert len(ops(found, "vector.multi_reduction")) == 2
    assert len(ops(found, "xegpu.store_matrix")) == 1
