"""Programs of workgroups with maps that nothing in the repository has: same results as subgroups and as lanes."""

from __future__ import annotations

from typing import Any

import pytest
from xdsl.dialects import gpu
from xdsl.dialects.builtin import MemRefType

from tests.draws import fresh_rng
from tests.lowering.programs import lowered
from tests.texts import parse_module
from tilewright import dtypes
from tilewright.dialects.text import print_module
from tilewright.passes.xegpu.pipeline import SUBGROUP, WORKGROUP, lower

V = "vector<32x32xf32>"
ROWS, TILES, COLUMNS = (
    f"#xegpu.layout<sg_layout = [{grid}], sg_data = [{data}]>"
    for grid, data in (("8, 1", "4, 32"), ("4, 2", "8, 16"), ("1, 8", "32, 4"))
)


def load(name: str, memory: str, shape: str, element: str = "f32", layout: str = "") -> str:
    kind = f"!xegpu.tensor_desc<{shape}x{element}{layout and f', {layout}'}>"
    return (
        f"%{name}_d = xegpu.create_nd_tdesc %{memory} : memref<{shape}x{element}> -> {kind}\n"
        f"%{name} = xegpu.load_nd %{name}_d[0, 0] : {kind} -> vector<{shape}x{element}>\n"
    )


def store(name: str, shape: str = "32x32", layout: str = TILES) -> str:
    kind = f"!xegpu.tensor_desc<{shape}xf32, {layout}>"
    return (
        f"%o_d = xegpu.create_nd_tdesc %o : memref<{shape}xf32> -> {kind}\n"
        f"xegpu.store_nd %{name}, %o_d[0, 0] : vector<{shape}xf32>, {kind}\n"
    )


X, Y = load("x", "a", "32x32", layout=ROWS), load("y", "b", "32x32", layout=TILES)
TILE_ARGS = "%a: memref<32x32xf32>, %b: memref<32x32xf32>, %o: memref<32x32xf32>"
DEEP = "#xegpu.layout<sg_layout = [2, 2, 2], sg_data = [4, 8, 32], order = [2, 1, 0]>"
PROGRAMS: dict[str, tuple[str, str]] = {
    "rows cut out of rows that are distributed": (
        TILE_ARGS,
        X
        + Y
        + f"""
%h = vector.extract_strided_slice %x {{offsets = [8, 0], sizes = [16, 32], strides = [1, 1]}} : {V} to vector<16x32xf32>
%g = arith.addf %h, %h : vector<16x32xf32>
%z = vector.insert_strided_slice %g, %y {{offsets = [4, 0], strides = [1, 1]}} : vector<16x32xf32> into {V}
"""
        + store("z"),
    ),
    "shapes without a common dimension": (
        TILE_ARGS,
        X
        + f"""
%f = vector.shape_cast %x : {V} to vector<8x128xf32>
%g = arith.mulf %f, %f {{layout_result_0 = #xegpu.layout<sg_layout = [2, 4], sg_data = [4, 32]>}} : vector<8x128xf32>
%z = vector.shape_cast %g : vector<8x128xf32> to {V}
"""
        + store("z"),
    ),
    "a reduction of a slice of a slice": (
        "%a: memref<8x32xf32>, %o: memref<32x32xf32>",
        load("x", "a", "8x32", layout=f"#xegpu.slice<{DEEP.replace('8, 32', '8, 16')}, dims = [1]>")
        + f"""
%n = arith.constant dense<0.0> : vector<32xf32>
%s = vector.multi_reduction <maximumf>, %x, %n
  {{layout_result_0 = #xegpu.slice<#xegpu.slice<{DEEP.replace("8, 32", "8, 16")}, dims = [1]>, dims = [0]>}} [0]
  : vector<8x32xf32> to vector<32xf32>
%z = vector.broadcast %s : vector<32xf32> to {V}
"""
        + store("z"),
    ),
    "indices in rows and columns": (
        "%a: memref<32x32xf32>, %o: memref<1024xf32>",
        X
        + """
%r = vector.step : vector<1024xindex>
%at = vector.shape_cast %r : vector<1024xindex> to vector<32x32xindex>
%mask = arith.constant dense<true> : vector<32x32xi1>
%old = xegpu.atomic_rmw addf %o[%at], %mask, %x
  : memref<1024xf32>, vector<32x32xindex>, vector<32x32xi1>, vector<32x32xf32> -> vector<32x32xf32>
""",
    ),
    "a right operand that is loaded packed": (
        "%a: memref<32x16xf16>, %b: memref<16x32xf16>, %o: memref<32x32xf32>",
        load("x", "a", "32x16", "f16")
        + """
%d = xegpu.create_nd_tdesc %b : memref<16x32xf16> -> !xegpu.tensor_desc<16x32xf16>
%y = xegpu.load_nd %d[0, 0] <{packed}> : !xegpu.tensor_desc<16x32xf16> -> vector<8x32x2xf16>
%z = xegpu.dpas %x, %y : vector<32x16xf16>, vector<8x32x2xf16> -> vector<32x32xf32>
"""
        + store("z"),
    ),
    "an op that only the whole has": (
        TILE_ARGS,
        X
        + Y
        + f"""
%w = vector.interleave %x, %y : {V} -> vector<32x64xf32>
%z = vector.extract_strided_slice %w {{offsets = [0, 9], sizes = [32, 32], strides = [1, 1]}} : vector<32x64xf32> to {V}
"""
        + store("z"),
    ),
    "a loop that swaps values of two owners": (
        TILE_ARGS,
        X
        + Y
        + f"""
%r:2 = scf.for %i = %c0 to %c3 step %c1 iter_args(%p = %x, %q = %y) -> ({V}, {V}) {{
  %t = vector.transpose %p, [1, 0] : {V} to {V}
  scf.yield %q, %t : {V}, {V}
}}
%z = arith.subf %r#0, %r#1 : {V}
"""
        + store("z", layout=COLUMNS),
    ),
}


def module_of(arguments: str, body: str) -> Any:
    return parse_module(
        f"gpu.module @m {{ gpu.func @f({arguments}) kernel attributes {{tilewright.level = "
        f'"workgroup"}} {{\n{body}gpu.return }} }}',
        "program.mlir",
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_results(name: str):
    module = module_of(*PROGRAMS[name])
    rng = fresh_rng()
    args: list[Any] = []
    for argument in next(f for f in module.walk() if isinstance(f, gpu.FuncOp)).body.block.args:
        assert isinstance(argument.type, MemRefType)
        dtype: Any = dtypes.from_mlir(argument.type.element_type).numpy
        args.append(rng.standard_normal(argument.type.get_shape()).astype(dtype))
    subgroups = lowered(module, (1, 1, 1), args, WORKGROUP)
    lowered(subgroups, (1, 1, 1), args, SUBGROUP, check=False)


LANES = "sg_layout = [8, 1], sg_data = [4, 32], inst_data = [4, 32], lane_layout = [1, {}], lane_data = [{}]"


def test_lanes_that_the_machine_lacks_are_left_out():
    layout = f"#xegpu.layout<{LANES.format(32, '1, 1')}>"
    module = module_of(TILE_ARGS, load("x", "a", "32x32", layout=layout) + store("x", layout=ROWS))
    lower(module)
    assert "lane_layout = [1, 32] is for 32 lanes, xe-pvc has 16" in print_module(module)


def test_named_barriers_of_a_workgroup_are_its_subgroups():
    body = """
%i = arith.constant 1 : i8
%n = arith.constant 8 : i8
xegpu.alloc_nbarrier 4
%bar = xegpu.init_nbarrier %i, %n : i8, i8 -> !xegpu.nbarrier
xegpu.nbarrier_arrive %bar : !xegpu.nbarrier
xegpu.nbarrier_wait %bar : !xegpu.nbarrier
"""
    module = module_of(TILE_ARGS, X + body + store("x"))
    lower(module)
    assert print_module(module).count("xegpu.nbarrier_arrive") == 1


def test_a_shape_between_two_owners_is_one_exchange():
    """Stored in one shape and loaded in the other: nobody holds the whole."""
    module = module_of(*PROGRAMS["shapes without a common dimension"])
    lower(module, WORKGROUP)
    text = print_module(module)
    assert "!xegpu.mem_desc<32x32xf32>" in text and "!xegpu.mem_desc<8x128xf32>" in text
    assert "-> vector<32x32xf32>" not in text and "-> vector<8x128xf32>" not in text
