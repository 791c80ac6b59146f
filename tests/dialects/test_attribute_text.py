"""Attributes as other tools write them: places at the end of the text, data behind the module, packed constants."""

from __future__ import annotations

import re
import struct

import numpy as np
import pytest
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import CallSiteLoc, FusedLoc

from tests.peer.mlir_opt import mlir_opt, needs_mlir_opt
from tilewright.diagnostics import CompileError
from tilewright.dialects.text import parse_module, print_module


def constant(text: str):
    """The elements of a constant."""
    module = parse_module(f"func.func @f() {{\n  %c = arith.constant {text}\n  return\n}}")
    (found,) = [op for op in module.walk() if isinstance(op, arith.ConstantOp)]
    return [abs(n) if "xi1>" in text else n for n in found.value.get_values()]  # pyright: ignore


LOCATED = """
#loc = loc("model.py":3:4)
module {
  func.func @f(%a: i32 loc(#loc5)) -> i32 {
    %b = arith.addi %a, %a : i32 loc(#loc2)
    return %b : i32 loc(#loc4)
  } loc(#loc1)
} loc(unknown)
#loc1 = loc("model.py":7:1)
#loc3 = loc("inner"(#loc1))
#loc2 = loc(callsite(#loc3 at #loc))
#loc4 = loc(fused<"why">["z", #loc3, "x":1:2 to 3:4])
#loc5 = loc("model.py":5:1 to :9)
"""


def test_places_that_are_defined_at_the_end():
    module = parse_module(LOCATED)
    add, end = (op for op in module.walk() if op.name in ("arith.addi", "func.return"))
    assert isinstance(add.location, CallSiteLoc) and isinstance(end.location, FusedLoc)
    assert "callsite" in str(add.location) and "model.py" in str(add.location)
    with pytest.raises(CompileError, match="undefined symbol alias '#loc9'"):
        parse_module(LOCATED.replace("(#loc2)", "(#loc9)"))
    with pytest.raises(CompileError, match="undefined symbol alias"):
        parse_module(LOCATED.replace('loc("inner"(#loc1))', "loc(#loc2)"))  # one within itself


@needs_mlir_opt
def test_places_that_mlir_opt_accepts():
    mlir_opt(LOCATED)


def blob(*numbers: float) -> str:
    return (struct.pack("<I", 4) + struct.pack(f"<{len(numbers)}f", *numbers)).hex().upper()


RESOURCES = """
memref.global "private" constant @w : memref<2x2xf32> = dense_resource<blob>
func.func @f() -> tensor<4xf32> {{
  %c = arith.constant dense_resource<"an other"> : tensor<4xf32>
  return %c : tensor<4xf32>
}}
{{-#
  dialect_resources: {{ builtin: {{ blob: "0x{}", "an other": "0x{}" }} }},
  external_resources: {{ mlir_reproducer: {{ pipeline: "builtin.module(cse) #-}}", verify_each: true }} }}
#-}}
"""


def test_data_behind_the_module(rng):
    one, other = (rng.standard_normal(4).astype(np.float32).tolist() for _ in "ab")
    module = parse_module(RESOURCES.format(blob(*one), blob(*other)))
    (held,) = [op for op in module.walk() if isinstance(op, memref.GlobalOp)]
    (made,) = [op for op in module.walk() if isinstance(op, arith.ConstantOp)]
    assert [*held.initial_value.get_values()] == one  # pyright: ignore
    assert [*made.value.get_values()] == other  # pyright: ignore
    again = parse_module(print_module(module))
    assert print_module(again) == print_module(module)
    with pytest.raises(CompileError, match="expected 4 elements from the type, but got 12 bytes"):
        parse_module(RESOURCES.format(blob(*one), blob(*other[:3])))
    with pytest.raises(CompileError, match="no data of dense_resource blob") as found:
        parse_module(RESOURCES.format("", "").replace(" blob:", " lost:"))
    assert found.value.hint is not None


@pytest.mark.parametrize("count", [4, 9, 130])
def test_bits_are_packed(count: int, rng):
    """mlir-opt writes long constants of i1 so."""
    bits = rng.integers(0, 2, count)
    bits[:2] = (0, 1)
    data = np.packbits(bits, bitorder="little").tobytes().hex()
    assert constant(f'dense<"0x{data}"> : tensor<{count}xi1>') == bits.tolist()
    assert constant(f'dense<"0xFF"> : tensor<{count}xi1>') == [1] * count  # one for all
    with pytest.raises(CompileError, match="but got"):
        constant(f'dense<"0x{data}00"> : tensor<{count}xi1>')


def test_sparse_elements():
    assert constant("sparse<[[0, 0], [1, 2]], [1, 5]> : tensor<2x3xi32>") == [1, 0, 0, 0, 0, 5]
    assert constant("sparse<[[1]], 2.5> : tensor<3xf16>") == [0, 2.5, 0]
    assert constant("sparse<> : tensor<2xi8>") == [0, 0]
    with pytest.raises(CompileError, match="do not fit"):
        constant("sparse<[[0, 3]], [1]> : tensor<2x3xi32>")


def test_one_for_many_elements_takes_no_list():
    module = parse_module(
        "func.func @f() {\n%c = arith.constant dense<1.5> : tensor<4000x2000xf32>\nreturn\n}"
    )
    assert "dense<1.500000e+00>" in print_module(module)


def test_one_for_no_elements():
    assert constant("dense<1.5> : tensor<0xf32>") == constant("dense<> : tensor<0xf32>") == []
    assert constant("dense<2> : tensor<3x0xi32>") == []


def test_wide_integers():
    text = "func.func @f() {\n  %c = arith.constant 100000000000000000000 : i128\n  return\n}"
    assert "100000000000000000000 : i128" in print_module(parse_module(text))


def test_attributes_of_other_dialects_are_kept():
    said = '#other.thing<a = [1, {b}], "x>">'
    text = f"module attributes {{nvvm.y = #nvvm.zz<1>, o.x = {said}}} {{\n}}"
    assert f"o.x = {said}" in print_module(parse_module(text))
    with pytest.raises(CompileError, match=re.escape("'xegpu.lyout' is not registered")):
        parse_module("module attributes {x = #xegpu.lyout<a>} {\n}")


def test_the_attributes_of_a_structured_op_may_have_a_name():
    text = """
#maps = {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"], doc = "x"}
func.func @f(%a: memref<4xf32>, %b: memref<4xf32>) {
  linalg.generic #maps ins(%a : memref<4xf32>) outs(%b : memref<4xf32>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  }
  return
}"""
    assert "linalg.generic" in print_module(parse_module(text))
