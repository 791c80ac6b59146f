"""Rules of upstream ops that stock xDSL leaves open: a wrong text is refused at its place, its neighbour is taken."""

from __future__ import annotations

import pytest

from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module

VECTOR = "%v: vector<4x8xf32>, %i: vector<16xi32>, %x: f32, %n: i32, %r: vector<8xf32>, %m: memref<4x8xf32>, %c: i8, "
VECTOR += "%a: memref<64xf32>, %j: index"


def parse(line: str) -> None:
    parse_module(f"func.func @f({VECTOR}) {{\n  {line}\n  return\n}}\n", "rules.mlir")


REFUSED = {
    "%0 = vector.extract %v[4] : vector<8xf32> from vector<4x8xf32>": "position 4 of dimension 0",
    "%0 = vector.extract %v[0, -3] : f32 from vector<4x8xf32>": "position -3 of dimension 1",
    "%0 = vector.extract %v[0] : vector<16xf32> from vector<4x8xf32>": "is vector<8xf32>, not",
    "%0 = vector.insert %x, %v[3, 8] : f32 into vector<4x8xf32>": "position 8 of dimension 1",
    "%0 = vector.broadcast %r : vector<8xf32> to vector<4x4xf32>": r"mismatch \(8 vs. 4\)",
    "%0 = vector.broadcast %v : vector<4x8xf32> to vector<8xf32>": "rank higher",
    "%0 = vector.load %a[%j] : memref<64xf32>, vector<4x8xf32>": "destination memref has lower rank",
    "vector.store %v, %a[%j] : memref<64xf32>, vector<4x8xf32>": "source memref .* 2 dimensions along 1",
    "%0 = vector.from_elements %x, %x : vector<3xf32>": "has 3 elements, 2 are given",
    "%0 = vector.from_elements %x, %x : vector<2xi32>": "i32",
    "%0 = vector.from_elements %x : f32": "expected a vector type",
    "%0:3 = vector.to_elements %r : vector<8xf32>": "8",
    "%0 = vector.reduction <and>, %r : vector<8xf32> into f32": "'f32' for kind 'and'",
    "%0 = vector.reduction <maximumf>, %i : vector<16xi32> into i32": "'i32' for kind 'maximumf'",
    "%0 = vector.multi_reduction <xor>, %v, %x [0, 1] : vector<4x8xf32> to f32": "kind 'xor'",
    "%0 = arith.constant dense<1.0> : vector<0xf32>": "positive constant sizes but got 0",
    "%0 = arith.constant 1 : f32": "unexpected decimal integer literal .*: 1.0 is one",
    "%0 = arith.constant -3 : f16": "unexpected decimal integer literal",
    "%0 = arith.constant -0x1 : f32": "hexadecimal float literal should not have a leading minus",
    "%0 = arith.constant dense<1> : vector<2xf32>": "unexpected decimal integer literal .*: 1.0 is one",
    "%0 = arith.constant dense<[1.0, -3]> : vector<2xf32>": "unexpected decimal integer literal .*: -3.0 is one",
    "%0 = arith.constant dense<-0x1> : vector<2xf32>": "should not have a leading minus",
    "%0 = arith.constant dense<[1.0, 7.0e4]> : vector<2xf16>": "beyond what the element type holds",
    "%0 = arith.constant 1.0 : f80": "a number of type f80",
    "%0 = arith.constant dense<1.0> : vector<2xf128>": "a number of type f128",
    "%b = xegpu.init_nbarrier %x, %x : f32, f32 -> !xegpu.nbarrier": "nbarrier_id",
    "func.func @g() {\n  return\n}": "a symbol belongs in a module",
    "memref.prefetch %a[%j], read, locality<4>, data : memref<64xf32>": "locality is 0, 1, 2 or 3, got 4",
    "affine.prefetch %a[0], write, locality<-1>, data : memref<64xf32>": "locality is 0, 1, 2 or 3, got -1",
    "%0 = memref.subview %m[0, 0, 0] [2, 2, 1] [1, 1, 1] : memref<4x8xf32> to memref<2x2xf32, strided<[8, 1]>>":
        "expected 2 offset values, got 3",
    "%0 = memref.subview %m[0, 0] [2, 2] [1, 1] : memref<4x8xf32> to memref<300x2xf32, strided<[8, 1]>>":
        r"of shape \[2, 2\]",
    "%0 = memref.subview %m[0, 0] [2, 2] [1, 1] : memref<4x8xf32> to memref<2x2xf32, strided<[4, 1]>>":
        r"layout strided<\[8, 1\], offset: 0>",
    "%0 = memref.subview %m[1, 0] [2, 2] [1, 1] : memref<4x8xf32> to memref<2x2xf32, strided<[8, 1]>>":
        "offset: 8",
    "%0 = memref.subview %m[0, 0] [2, 9] [1, 1] : memref<4x8xf32> to memref<2x9xf32, strided<[8, 1]>>":
        "dimension 1 runs out-of-bounds: 8 of 8",
    "%0 = memref.subview %m[0, 0] [2, 5] [1, 2] : memref<4x8xf32> to memref<2x5xf32, strided<[8, 2]>>":
        "dimension 1 runs out-of-bounds: 8 of 8",
    "%0 = memref.subview %m[-1, 0] [2, 2] [1, 1] : memref<4x8xf32> to memref<2x2xf32, strided<[8, 1], offset: -8>>":
        "offset 0 is out-of-bounds: -1",
    "%0 = memref.subview %m[0, 0] [2, 2] [1, 1] : memref<4x8xf32> to memref<2x2xf64, strided<[8, 1]>>":
        "element type",
    "%0 = memref.reinterpret_cast %m to offset: [-1], sizes: [4], strides: [1] : memref<4x8xf32> to memref<4xf32>":
        "expected offsets to be non-negative, but got -1",
    "scf.for unsigned %k = %x to %x step %x : f32 { }": "'lb' at position 0 does not verify",
    '"scf.for"(%j, %j, %j) <{unsignedCmp}> ({ ^bb0(%k: index): }) : (index, index, index) -> ()': "empty block",
    '"scf.for"(%j, %j, %j) <{unsignedCmp}> : (index, index, index) -> ()': "expected 1 region",
    '%0 = "memref.distinct_objects"(%m) : (memref<4x8xf32>) -> memref<64xf32>': "results of the same types",
    '"memref.distinct_objects"() : () -> ()': "expected arrays",
    "%0 = arith.constant 9223372036854775808 : index": "integer constant out of range",
    "affine.for %j = 0 to 99999999999999999999 { }": "integer constant out of range",
    "%0 = affine.apply affine_map<(d0) -> (d0 + 99999999999999999999)>(%c)": "integer constant out of range",
}  # fmt: skip


@pytest.mark.parametrize("line, words", REFUSED.items(), ids=range(len(REFUSED)))
def test_what_is_wrong_is_refused_at_its_place(line: str, words: str) -> None:
    with pytest.raises(TilewrightError, match=words) as error:
        parse(line)
    assert error.value.location is not None and error.value.location.line == 2


@pytest.mark.parametrize(
    "line",
    [
        "%0 = vector.extract %v[3, 7] : f32 from vector<4x8xf32>",
        "%0 = vector.insert %r, %v[3] : vector<8xf32> into vector<4x8xf32>",
        "%0 = vector.broadcast %r : vector<8xf32> to vector<4x8xf32>",
        "%0 = vector.reduction <and>, %i : vector<16xi32> into i32",
        "%0 = arith.constant 0x3F800000 : f32",
        "%0 = arith.constant 1.5e3 : f32",
        "%b = xegpu.init_nbarrier %c, %c : i8, i8 -> !xegpu.nbarrier",
        "%0 = memref.subview %m[1, 2] [3, 3] [1, 2] : memref<4x8xf32> to memref<3x3xf32, strided<[8, 2], offset: 10>>",
        "%0 = memref.subview %m[1, 0] [1, 8] [1, 1] : memref<4x8xf32> to memref<8xf32, strided<[1], offset: 8>>",
        "%0 = memref.subview %m[1, 0] [2, 8] [1, 1] : memref<4x8xf32> to memref<2x8xf32, strided<[?, 1], offset: ?>>",
        "%0 = memref.subview %m[4, 8] [0, 0] [1, 1] : memref<4x8xf32> to memref<0x0xf32, strided<[8, 1], offset: 40>>",
    ],
)
def test_what_is_right_is_taken(line: str) -> None:
    parse(line)


def test_a_launch_names_a_kernel_of_its_module() -> None:
    text = """module {attribute} {{
  func.func @main() {{
    %c1 = arith.constant 1 : index
    gpu.launch_func @m::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
    return
  }}
}}
"""
    with pytest.raises(TilewrightError, match="'@m::@k' is undefined") as error:
        parse_module(text.format(attribute="attributes {gpu.container_module}"))
    assert error.value.location is not None and error.value.location.line == 4
    parse_module(text.format(attribute=""))  # its kernels may stand in another file


def test_an_empty_block_has_a_place() -> None:
    with pytest.raises(TilewrightError) as error:
        parse_module("// nothing\n\nfunc.func @f() {\n^bb0:\n}\n", "empty.mlir")
    assert error.value.location is not None and error.value.location.line == 3
