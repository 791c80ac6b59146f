"""Printing as mlir-opt: names, floats, types, default dialects."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import AnyFloat, bf16, f8E4M3FN, f16, f32, f64

from tests.calls import calls
from tilewright.dialects.numerals import float_text, six_digits
from tilewright.dialects.text import parse_module, print_module

NUMBERED = """\
module {
  func.func private @g(f32)
  func.func @f(%arg0: memref<8xf32>, %arg1: index, %arg2: i1) -> f32 {
    %c0 = arith.constant 0 : index
    %c0_0 = arith.constant 0 : index
    %c-1_i32 = arith.constant -1 : i32
    %true = arith.constant true
    %cst = arith.constant 1.500000e+00 : f32
    %alloc = memref.alloc() : memref<8xf32, 3>
    %dim = memref.dim %arg0, %c0 : memref<8xf32>
    %base_buffer, %offset, %sizes, %strides = memref.extract_strided_metadata %arg0 : \
memref<8xf32> -> memref<f32>, index, index, index
    %0:2 = scf.for %arg3 = %c0 to %arg1 step %arg1 iter_args(%arg4 = %cst, %arg5 = %cst) -> \
(f32, f32) {
      %2 = arith.addf %arg4, %arg5 : f32
      %c0_1 = arith.constant 0 : index
      %3 = scf.if %arg2 -> (f32) {
        %4 = arith.addf %2, %2 : f32
        scf.yield %4 : f32
      } else {
        %4 = arith.mulf %2, %2 : f32
        scf.yield %4 : f32
      }
      scf.yield %2, %3 : f32, f32
    }
    %1 = arith.addf %0#0, %0#1 : f32
    call @g(%1) : (f32) -> ()
    return %1 : f32
  }
  func.func @h(%arg0: i32) {
    cf.br ^bb1(%arg0 : i32)
  ^bb1(%0: i32):
    %1 = arith.addi %0, %arg0 : i32
    return
  }
}
"""


def test_values_are_numbered_as_in_mlir() -> None:
    assert print_module(parse_module(NUMBERED), renumber=True) == NUMBERED


def test_names_are_kept_unless_asked() -> None:
    text = "module {\n  func.func @f(%row: index) {\n    %twice = arith.addi %row, %row : index\n"
    text += "    return\n  }\n}\n"
    assert print_module(parse_module(text)) == text


def test_results_that_share_a_name_stay_together() -> None:
    text = (
        "module {\n  func.func @f(%m: memref<8x8xf32>) {\n    %base_buffer, %offset, %sizes:2, "
        "%strides:2 = memref.extract_strided_metadata %m : memref<8x8xf32> -> memref<f32>, index, "
        "index, index, index, index\n    %x = arith.addi %sizes#0, %strides#1 : index\n    return\n"
        "  }\n}\n"
    )
    assert print_module(parse_module(text)) == text
    assert (
        print_module(parse_module(print_module(parse_module(text), renumber=True))).count(":2") == 2
    )


def test_locations_read_back() -> None:
    module = parse_module(NUMBERED, "n.mlir")
    text = print_module(module, locations=True)
    assert 'loc("n.mlir":' in text
    assert print_module(parse_module(text), renumber=True) == NUMBERED


@pytest.mark.parametrize(
    "kind, printed",
    [
        ("memref<8xf32, 0>", "memref<8xf32>"),
        ("memref<8xf32, 0 : i64>", "memref<8xf32>"),
        ("memref<8xf32, 3 : i64>", "memref<8xf32, 3>"),
        ("memref<8xf32, 3 : i32>", "memref<8xf32, 3 : i32>"),
        ("memref<?x4xf32, strided<[?, 1], offset: ?>, 3>",) * 2,
        ("memref<*xf32, 1>", "memref<*xf32, 1>"),
    ],
)
def test_memory_spaces(kind: str, printed: str) -> None:
    text = print_module(parse_module(f"func.func private @f({kind})"))
    assert f"@f({printed})" in text


@pytest.mark.parametrize(
    "written, printed",
    [
        ("(d0) -> (d0 * 2)", "(d0) -> (d0 * 2)"),
        ("(a, b)[s] -> (a + b * 4 + s)", "(d0, d1)[s0] -> (d0 + d1 * 4 + s0)"),
        ("(a, b) -> (a - b, a - 3, -a)", "(d0, d1) -> (d0 - d1, d0 - 3, -d0)"),
        ("(a, b) -> (a - b * 2)", "(d0, d1) -> (d0 - d1 * 2)"),
        ("(a, b) -> ((a + b) mod 4)", "(d0, d1) -> ((d0 + d1) mod 4)"),
        (
            "(a) -> ((a floordiv 4) mod 2, a ceildiv 3)",
            "(d0) -> ((d0 floordiv 4) mod 2, d0 ceildiv 3)",
        ),
        ("() -> (7)", "() -> (7)"),
    ],
)
def test_affine_maps(written: str, printed: str) -> None:
    module = parse_module(f'"test.op"() {{map = affine_map<{written}>}} : () -> ()')
    text = print_module(module, generic=True)
    assert f"#map = affine_map<{printed}>" in text
    assert print_module(parse_module(text), generic=True) == text


def test_splats_cost_one_element() -> None:
    """A million copies of one number are not looked at one by one; zeros keep their signs."""
    text = "%x = arith.constant dense<5> : memref<1024x1024xi32>"
    module = parse_module(text)
    assert calls(lambda: parse_module(text)) < 100_000
    assert "dense<5>" in print_module(module)
    zeros = "%x = arith.constant dense<[0.000000e+00, -0.000000e+00]> : vector<2xf32>"
    assert zeros.split("= ")[1] in print_module(parse_module(zeros))


@pytest.mark.parametrize(
    "value, kind, printed",
    [
        (0.1, f16, "9.997550e-02"),  # APFloat drops digits before it rounds
        (0.1, f32, "1.000000e-01"),
        (0.1, f64, "1.000000e-01"),
        (3.2, f32, "3.200000e+00"),
        (-0.0, f32, "-0.000000e+00"),
        (float("-inf"), f32, "0xFF800000"),
        (float("inf"), f16, "0x7C00"),
        (float("-inf"), bf16, "0xFF80"),
        (16777217.0, f64, "0x4170000010000000"),
        (1 / 3, f64, "0.33333333333333331"),
        (448.0, f8E4M3FN, "4.480000e+02"),
    ],
)
def test_floats(value: float, kind: AnyFloat, printed: str) -> None:
    held = kind.unpack(kind.pack((value,)), 1)[0]
    assert float_text(held, kind) == printed


@settings(max_examples=300, deadline=None)
@given(st.floats(width=64), st.sampled_from([f16, bf16, f32, f64]))
def test_printed_floats_read_back(value: float, kind: AnyFloat) -> None:
    try:
        held = kind.unpack(kind.pack((value,)), 1)[0]
    except OverflowError:
        return
    text = f"%x = arith.constant {float_text(held, kind)} : {kind}"
    op = parse_module(text).body.block.first_op
    assert op is not None
    read = op.properties["value"].value.data  # pyright: ignore[reportAttributeAccessIssue]
    assert read == held or (read != read and held != held)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_six_digits_are_close(value: float) -> None:
    text = six_digits(value)
    assert abs(float(text) - value) <= abs(value) * 1.1e-5
    mantissa, exponent = text.lstrip("-").split("e")
    assert len(mantissa) == 8 and mantissa[1] == "." and len(exponent) >= 3
