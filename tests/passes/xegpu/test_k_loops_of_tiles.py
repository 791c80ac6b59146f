"""k-loops: deep products of tiles that are loaded become loops; on Xe, those that no matrix instruction does."""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np
import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp

from tests.draws import fresh_rng
from tests.lowering.programs import lowered, run, wrong
from tilewright.dialects.text import parse_module, verify_module
from tilewright.dialects.xetile import LoadTileOp
from tilewright.passes.kernel import kernel_of
from tilewright.passes.xegpu.k_loops import loop_over_k
from tilewright.passes.xegpu.pipeline import PIPELINE, SUBGROUP, WORKGROUP
from tilewright.targets.base import CompileOptions
from tilewright.targets.entry import build_text

PRODUCT = """
gpu.module @m { gpu.func @k(%a: memref<32x64xTYPE>, %b: memref<32x64xTYPE>, %c: memref<32x32xSUM>) kernel
    attributes {tilewright.level = "LEVEL"} {
  %ta = xetile.init_tile %a[0, 0] : memref<32x64xTYPE> -> !xetile.tile<32x64xTYPE>
  %tb = xetile.init_tile %b[0, 0] : memref<32x64xTYPE> -> !xetile.tile<32x64xTYPE>
  %tc = xetile.init_tile %c[0, 0] : memref<32x32xSUM> -> !xetile.tile<32x32xSUM>
  %x = xetile.load_tile %ta : !xetile.tile<32x64xTYPE> -> vector<32x64xTYPE>
  %y = xetile.load_tile %tb : !xetile.tile<32x64xTYPE> -> vector<32x64xTYPE>
  %z = xetile.load_tile %tc : !xetile.tile<32x32xSUM> -> vector<32x32xSUM>
  BETWEEN
  %va = arith.ADD %x, %x : vector<32x64xTYPE>
  %vb = xetile.transpose %y, [1, 0] : vector<32x64xTYPE> -> vector<64x32xTYPE>
  %d = xetile.tile_mma %va, RIGHT, %z : vector<32x64xTYPE>, vector<64x32xTYPE>, vector<32x32xSUM> -> vector<32x32xSUM>
  xetile.store_tile %d, %tc : vector<32x32xSUM>, !xetile.tile<32x32xSUM>
  gpu.return } }
"""
DEPTH = 64
WORDS = {
    "TYPE": "f32",
    "SUM": "f32",
    "LEVEL": "workgroup",
    "BETWEEN": "",
    "ADD": "addf",
    "RIGHT": "%vb",
}


def product(DEEP: str = "64", **words: str) -> ModuleOp:
    text = PRODUCT.replace("64", DEEP)
    for word, value in {**WORDS, **words}.items():
        text = text.replace(word, value)
    return parse_module(text)


def arrays(dtype: Any = np.float32) -> list[Any]:
    return [
        fresh_rng().integers(-9, 9, shape).astype(dtype) for shape in ((32, 64), (32, 64), (32, 32))
    ]


def loops(module: ModuleOp) -> int:
    return sum(isinstance(op, scf.ForOp) for op in module.walk())


def shapes(module: ModuleOp) -> list[tuple[int, ...]]:
    return [op.values[0].type.get_shape() for op in module.walk() if isinstance(op, LoadTileOp)]


@pytest.mark.parametrize("most, step", [(16, 16), (24, 8)])
def test_what_makes_the_operands_moves_into_the_loop(most: int, step: int):
    module, args = product(), arrays()
    expected = run(module, (1, 1, 1), args)
    loop_over_k(kernel_of(module), lambda op: gcd(DEPTH, most))
    verify_module(module)
    assert shapes(module) == [(32, 32), (32, step), (32, step)]
    assert wrong(expected, run(module, (1, 1, 1), args, check=True)) is None


@pytest.mark.parametrize(
    "words",
    [
        {"SUM": "f16", "TYPE": "f16"},
        {"BETWEEN": "xetile.store_tile %z, %tc : vector<32x32xf32>, !xetile.tile<32x32xf32>"},
        {"BETWEEN": "gpu.barrier"},
    ],
    ids=["sums are rounded", "arrays that may overlap are written", "a barrier"],
)
def test_what_is_left_alone(words: dict[str, str]):
    module = product(**words)
    loop_over_k(kernel_of(module), lambda op: 16)
    assert not loops(module)


def test_a_square_that_is_multiplied_by_itself_is_left_alone():
    """Its rows and its columns are k: a step would be a block of the diagonal."""
    text = PRODUCT.replace("32", "64").replace("RIGHT", "%va")
    for word, value in {**WORDS, "TYPE": "fTT", "SUM": "fTT"}.items():
        text = text.replace(word, value)
    module = parse_module(text.replace("fTT", "f32").replace("f64", "f32"))
    loop_over_k(kernel_of(module), lambda op: 16)
    assert not loops(module)


@pytest.mark.parametrize("chip", ["pvc", "dg2"])
def test_lanes(chip: str):
    """No dpas multiplies f32; dpas of i8 need no loop."""
    module, args = product(LEVEL="subgroup"), arrays()
    passes = [p for p in WORKGROUP if "subgroup" in p.requires]
    final = lowered(module, (1, 1, 1), args, (*passes, *SUBGROUP), chip)
    assert loops(final) == 1
    small = product(TYPE="i8", SUM="i32", ADD="addi")
    PIPELINE.alone(next(p for p in WORKGROUP if p.name == "k-loops"), small, chip)
    assert not loops(small)


@pytest.mark.parametrize("machine", ["xe-pvc", "xe-bmg", "xe-dg2"])
def test_depth_takes_no_registers(machine: str):
    built: Any = build_text(product(DEEP="4096"), CompileOptions(target=machine))
    assert not any("passes" in remark for remark in built.remarks)


@pytest.mark.parametrize("machine", ["xe-pvc", "xe-bmg", "xe-dg2"])
@pytest.mark.parametrize("level", ["workgroup", "subgroup"])
def test_depth_takes_no_instructions(machine: str, level: str):
    """A subgroup's operands that would fill its registers twice come step by step, products of dpas too."""
    lines: list[int] = []
    for depth in (1024, 4096):
        module = product(TYPE="f16", LEVEL=level, DEEP=str(depth))
        built: Any = build_text(module, CompileOptions(target=machine))
        assert not built.remarks
        lines.append(built.llvm("intel").count("\n"))
    assert lines[0] == lines[1] < 1500


@pytest.mark.parametrize("chip", ["pvc", "dg2"])
@pytest.mark.parametrize("level", ["workgroup", "subgroup"])
def test_steps_of_a_deep_dpas(chip: str, level: str):
    module = product(TYPE="f16", LEVEL=level, DEEP="1024")
    args = [
        *(fresh_rng().integers(-3, 4, (32, 1024)).astype(np.float16) for _ in "ab"),
        arrays()[2],
    ]
    passes = WORKGROUP if level == "workgroup" else [p for p in WORKGROUP if level in p.requires]
    assert loops(lowered(module, (1, 1, 1), args, (*passes, *SUBGROUP), chip)) == 1
