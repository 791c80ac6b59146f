"""A diagnostic about shapes that do not fit, or a name that is not known, says what to do."""

from __future__ import annotations

import pytest

from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module
from tilewright.runtime.program import run_program

MAPS = "affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>"
CASES = {
    "%t = xegpu.create_nd_tdesc %m : memref<64x64xf32> -> !xegpu.tensor_desc<8x16xf32>\n"
    "%r = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<8x16xf32> -> vector<8x16xf16>": "do not convert",
    "%r = xegpu.truncf %v : vector<4xf32> -> vector<4xf64>": "fewer bits",
    "%o = arith.constant dense<0> : vector<4xindex>\n%f = memref.reinterpret_cast %m to offset: [0], sizes: [4096], "
    "strides: [1] : memref<64x64xf32> to memref<4096xf32>\n"
    "%r = xegpu.load %f[%o] : memref<4096xf32>, vector<4xindex> -> vector<4xf32>": "dense<true>",
    "%s = memref.alloc() : memref<2048xi8>\n"
    "%r = xegpu.create_mem_desc %s : memref<2048xi8> -> !xegpu.mem_desc<32x32xf16>": "memory space 3",
    "%i = arith.constant 1 : i32\n%r = xegpu.init_nbarrier %i, %i : i32, i32 -> !xegpu.nbarrier": "convert it",
    "%i = arith.constant 1 : i32\n%r = arith.cmpi lt, %i, %i : i32": "signed (slt)",
    "%i = index.constant 1\n%r = scf.for %k = %i to %i step %i iter_args(%x = %i) -> (index) {\n"
    "%y = arith.addi %x, %k : index\n}": "scf.yield of what",
    "%r = xegpu.convert_layout %p : vector<8x16xf16>": "target_layout = ",
    "%r = vector.multi_reduction <add>, %p, %w [1] : vector<8x16xf16> to vector<8xf32>": "not reduced",
    "%r = arith.addf %v, %v": "ends with its types",
    "%r = linalg.matmul ins(%a, %b : tensor<4x5xf32>, tensor<6x7xf32>) outs(%c : tensor<4x7xf32>) -> tensor<4x7xf32>":
        "a loop of the op has one extent",
    f'%r = vector.contract {{indexing_maps = [{MAPS}], iterator_types = ["parallel", "parallel", "reduction"]}} '
    "%p, %p, %p : vector<8x16xf16>, vector<8x16xf16> into vector<8x16xf16>": "a loop of the op has one extent",
    '%r = "arith.addf"(%v, %w) {fastmath = #arith.fastmath<none>} : (vector<4xf32>, vector<8xf32>) -> vector<4xf32>':
        "give both the same type",
    "%r = xetile.tile_mma %p, %p : vector<8x16xf16>, vector<8x16xf16> -> vector<8x16xf32>": "A is m x k, B is k x n",
    "%r = xegpu.dpas %p, %p : vector<8x16xf16>, vector<8x16xf16> -> vector<8x16xf32>": "A is m x k, B is k x n",
    "%t = xetile.init_tile %m[0, 0] : memref<64x64xf32> -> !xetile.tile<8x16xf32>\n"
    "%r = xetile.load_tile %t : !xetile.tile<8x16xf32> -> vector<16x16xf32>": "write the shape of the tile",
    "%t = xetile.init_tile %m[0, 0] : memref<64x64xf32> -> !xetile.tile<8x16xf16>": "of the array's element type",
    "%r = xetile.transpose %p, [1, 0] : vector<8x16xf16> -> vector<8x16xf16>": "[1, 0] makes 16x8 of 8x16",
    "%r = xetile.broadcast %p [0] : vector<8x16xf16> -> vector<16x16xf16>": "repeated if it has one element",
    "%r = vector.broadcast %v : vector<4xf32> to vector<4x8xf32>": "repeated if it has one element",
    "%r = xetile.reduction <add>, %p [1] : vector<8x16xf16> -> vector<1x16xf16>": "name the dimension among",
    "%r = vector.shape_cast %v : vector<4xf32> to vector<2x3xf32>": "as many elements",
    "%r = tensor.collapse_shape %a [[0, 1]] : tensor<4x5xf32> into tensor<21xf32>": "as many elements",
    "%r = tensor.extract_slice %a[0, 0] [4, 4] [1, 1] : tensor<4x5xf32> to tensor<4x5xf32>": "the sizes of the part",
    "%r = memref.subview %m[0, 0] [8, 8] [1, 1] : memref<64x64xf32> to memref<8x8xf32>": "write that layout",
    "%r = vector.foo_bar_baz %v : vector<4xf32>": "the nearest names of vector are vector.",
    "%r = stablehlo.add %a, %a : tensor<4x5xf32>": "stablehlo-opt --stablehlo-legalize-to-linalg makes linalg",
    "%r = tosa.abs %a : (tensor<4x5xf32>) -> tensor<4x5xf32>": "func.func(tosa-to-linalg-named,",
    "%r = shape.shape_of %a : tensor<4x5xf32> -> tensor<2xindex>": "convert-shape-to-std",
    "%r = nvgpu.device_async_copy %m": "the program as it was before",
    "%r = complex.foo %m": "real and imaginary parts",
    "omp.parallel { omp.terminator }": "scf.parallel or scf.forall",
    "gpu.binary @m [#gpu.object<#nvvm.target, bin = 1>]": "before gpu-module-to-binary",
    "bufferization.dealloc (%m : memref<64x64xf32>) if (%p)": "--bufferization-lower-deallocations",
    "%r = ml_ops.foo %m": "mlir-opt, or the project that the dialect is of",
    "%r = tt.load %m : f32": "docs/from-triton.md",
    "%r = arith.constant dense<1> : vector<4xi99999999>": "a wider type",
    "%r = tensor.empty() : tensor<99999999999999999999xf32>": "a wider type",
    "%r = memref.alloc() : memref<4x4xf32, strided<[1]>>": "a stride for each dimension",
    "%r = memref.alloc() : memref<4xf32, affine_map<(i, j) -> (j, i)>>": "a stride for each dimension",
    "%r = memref.load %m[] : memref<64x64xf32>": "a subscript for each dimension",
    "%r = vector.transpose %p, [0, 0] : vector<8x16xf16> to vector<8x8xf16>": "every dimension once",
    "%r = vector.reduction <xor>, %v : vector<4xf32> into f32": "take integers",
    "cf.br ^a\n^a:\ncf.br ^a\n^a:": "blocks of their own region",
    "cf.br ^nowhere": "blocks of their own region",
    "hello world": "an op is written with its dialect",
    "%r = arith.constant 1 : !tt.ptr<f32>": "docs/from-triton.md",
}  # fmt: skip


@pytest.mark.parametrize("line", CASES)
def test_what_to_do(line: str):
    text = f"""func.func @main(%a: tensor<4x5xf32>, %b: tensor<6x7xf32>, %c: tensor<4x7xf32>, %v: vector<4xf32>,
    %w: vector<8xf32>, %m: memref<64x64xf32>, %p: vector<8x16xf16>) {{
  {line}
  return
}}"""
    with pytest.raises(TilewrightError) as caught:
        parse_module(text, "program.mlir")
    assert caught.value.hint is not None and CASES[line] in caught.value.hint, caught.value


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_ops_that_are_read_and_not_run(target: str, capfd: pytest.CaptureFixture[str]):
    """Stock xDSL reads some of TOSA: what is said then is what to lower it by."""
    kind = "tensor<4xf32>"
    one = f"%a = arith.constant dense<1.0> : {kind}"
    text = f"func.func @main() {{ {one} %b = tosa.add %a, %a : ({kind}, {kind}) -> {kind} return }}"
    with pytest.raises(TilewrightError) as caught:
        run_program(parse_module(text), target=target, say=print)
    assert caught.value.hint is not None and "tosa-to-linalg" in caught.value.hint


@pytest.mark.parametrize(
    "behind", ["// the sum\n  // of both\n  %c = arith.addi %a, %a : i32", '"some.op"() : () -> ()']
)
def test_what_is_missing_is_shown_behind_the_op(behind: str) -> None:
    text = f"func.func @f(%a: i32) {{\n  %b = arith.addi %a, %a\n  {behind}\n  return\n}}"
    with pytest.raises(TilewrightError, match="expected ':'") as caught:
        parse_module(text)
    assert caught.value.location is not None and caught.value.location.line == 2
