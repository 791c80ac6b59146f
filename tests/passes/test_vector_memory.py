# ruff: noqa: E501
"""A workgroup's reads and writes of vectors, as blocks and by elements: every target gives what the executor does."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.draws import fresh_seed
from tilewright.dialects.text import parse_module
from tilewright.targets.base import CompileOptions
from tilewright.tools.check import check_stages, stages_of_target
from tilewright.tools.check_inputs import Inputs, make_args, specs_of
from tilewright.tools.check_kernels import kernel_in

TURNED = "{permutation_map = affine_map<(d0, d1) -> (d1, d0)>}"
MASK = "%m = vector.create_mask %n, %c11 : vector<16x32xi1>\n"
PART = "memref<20x24xf32, strided<[64, 1], offset: ?>>"
SHARED = "memref<16x32xf32, 3>"


class Case(NamedTuple):
    """`%a` and `%o` are of these types; `text` reads the one and writes the other."""

    a: str
    o: str
    text: str
    level: str = "workgroup"


def moved(a: str, o: str, v: str, read: str, write: str = "%o[%c0, %c0]", more: str = "") -> Case:
    """A transfer each way."""
    return Case(
        f"memref<{a}>",
        f"memref<{o}>",
        f"{more}%v = vector.transfer_read %a{read} : memref<{a}>, vector<{v}>\n"
        f"vector.transfer_write %v, {write} : vector<{v}>, memref<{o}>",
    )


def parts(mask: str) -> str:
    cut = f"[%n, 3] [20, 24] [1, 1] : memref<64x64xf32> to {PART}\n"
    return (
        f"%s = memref.subview %a{cut}%u = memref.subview %o{cut}%m = vector.create_mask %c11, %c5 : vector<32x32xi1>\n"
        f"%v = vector.transfer_read %s[%n, %c0], %p : {PART}, vector<32x32xf32>\n"
        f"vector.transfer_write %v, %u[%n, %c0]{mask} : vector<32x32xf32>, {PART}"
    )


BIG = "64x64xf32"
CASES = {
    "block": moved(BIG, BIG, "16x32xf32", "[%c5, %c11], %p"),
    "in bounds": moved(BIG, BIG, "16x32xf32", "[%c5, %c11], %p {in_bounds = [true, true]}"),
    "ragged": moved("30x40xf32", "20x24xf32", "32x32xf32", "[%c5, %c11], %p"),
    "padding when it runs": moved("24x20xf32", "32x32xf32", "32x32xf32", "[%c5, %c0], %pad"),
    "turned": moved(BIG, "32x16xf32", "32x16xf32", f"[%c60, %c0], %p {TURNED}"),
    "a row": moved(BIG, "64xf32", "64xf32", "[%c5, %c5], %p", "%o[%c0]"),
    "a column": moved(BIG, "64xf32", "64xf32", "[%c5, %c5], %p {permutation_map = affine_map<(d0, d1) -> (d0)>}", "%o[%c0]"),
    "repeated rows": moved(BIG, "16x32xf32", "16x32xf32", "[%c5, %c5], %p {permutation_map = affine_map<(d0, d1) -> (0, d1)>}"),
    "three dimensions": moved("4x8x16xf32", "4x8x16xf32", "2x8x16xf32", "[%n, %c0, %c0], %p", "%o[%c0, %c0, %c0]"),
    "a matrix of four": moved("4x16x32xf32", "4x16x32xf32", "16x32xf32", "[%c2, %c0, %c0], %p", "%o[%c3, %c0, %c0]"),
    "bytes": moved("60x60xi8", "64x64xi8", "32x64xi8", "[%c40, %n], %b"),
    "no unit stride": moved("64x64xf32, strided<[256, 2]>", "16x32xf32", "16x32xf32", "[%c0, %c40], %p"),
    "extents when it runs": moved("?x?xf32", "?x?xf32", "16x32xf32", "[%n, %c0], %p", "%o[%c0, %n]"),
    "a mask": moved(BIG, BIG, "16x32xf32", "[%c0, %c0], %p, %m", "%o[%c0, %c0], %m", MASK),
    "a mask, turned": moved(BIG, BIG, "32x16xf32", f"[%c0, %c0], %p, %m {TURNED}", f"%o[%c0, %c11], %m {TURNED}", MASK),
    "a mask, repeated": moved(BIG, BIG, "32x16xf32", "[%c0, %c0], %p, %m {permutation_map = affine_map<(d0, d1) -> (d1, 0)>}", more="%m = vector.create_mask %n : vector<32xi1>\n"),
    "masked ops": Case(f"memref<{BIG}>", f"memref<{BIG}>", MASK + f"""%z = arith.constant dense<3.0> : vector<32x16xf32>
%v = vector.mask %m, %z {{ vector.transfer_read %a[%c0, %c0], %p {TURNED} : memref<64x64xf32>, vector<32x16xf32> }} : vector<16x32xi1> -> vector<32x16xf32>
vector.mask %m {{ vector.transfer_write %v, %o[%c0, %c11] {TURNED} : vector<32x16xf32>, memref<64x64xf32> }} : vector<16x32xi1>"""),
    "parts": Case(f"memref<{BIG}>", f"memref<{BIG}>", parts("")),
    "parts, masked": Case(f"memref<{BIG}>", f"memref<{BIG}>", parts(", %m")),
    "shared memory": Case("memref<16x32xf32>", "memref<32x16xf32>", f"""%s = memref.alloc() : {SHARED}
%v = vector.transfer_read %a[%c0, %c0], %p : memref<16x32xf32>, vector<16x32xf32>
vector.transfer_write %v, %s[%c0, %c0] : vector<16x32xf32>, {SHARED}
gpu.barrier
%w = vector.transfer_read %s[%c0, %c0], %p {TURNED} : {SHARED}, vector<32x16xf32>
vector.transfer_write %w, %o[%c0, %c0] : vector<32x16xf32>, memref<32x16xf32>"""),
    "load and store": Case(f"memref<{BIG}>", "memref<64xf32>", """%v = vector.load %a[%c5, %c0] : memref<64x64xf32>, vector<64xf32>
vector.store %v, %o[%c0] : memref<64xf32>, vector<64xf32>"""),
    "of a subgroup": Case(f"memref<{BIG}>", "memref<64xf32>", """%v = vector.load %a[%c5, %c0] : memref<64x64xf32>, vector<32xf32>
vector.store %v, %o[%c5] : memref<64xf32>, vector<32xf32>""", "subgroup"),
    "maskedload": Case("memref<64xf32>", "memref<64xf32>", """%z = arith.constant dense<2.0> : vector<64xf32>
%m = vector.create_mask %n : vector<64xi1>
%v = vector.maskedload %a[%c0], %m, %z : memref<64xf32>, vector<64xi1>, vector<64xf32> into vector<64xf32>
vector.maskedstore %o[%c0], %m, %v : memref<64xf32>, vector<64xi1>, vector<64xf32>"""),
    "some of a row": Case("memref<64xf32>", "memref<64xf32>", """%z = arith.constant dense<2.0> : vector<8xf32>
%v = vector.load %a[%c0] : memref<64xf32>, vector<8xf32>
%m = arith.cmpf ogt, %v, %z : vector<8xf32>
%k = arith.constant dense<[true, false, true, true, false, true, false, true]> : vector<8xi1>
%w = vector.expandload %a[%c11], %k, %v : memref<64xf32>, vector<8xi1>, vector<8xf32> into vector<8xf32>
vector.compressstore %o[%c5], %m, %w : memref<64xf32>, vector<8xi1>, vector<8xf32>
vector.compressstore %o[%c40], %k, %v : memref<64xf32>, vector<8xi1>, vector<8xf32>"""),
    "gather": Case("memref<8x1024xf32>", "memref<8x1024xf32>", """%z = arith.constant dense<2.0> : vector<8x16xf32>
%s1 = vector.step : vector<128xindex>
%t = vector.shape_cast %s1 : vector<128xindex> to vector<8x16xindex>
%k = arith.constant dense<7> : vector<8x16xindex>
%x = arith.muli %t, %k : vector<8x16xindex>
%i = arith.index_cast %x : vector<8x16xindex> to vector<8x16xi32>
%l = arith.constant dense<100> : vector<8x16xindex>
%m = arith.cmpi ult, %t, %l : vector<8x16xindex>
%v = vector.gather %a[%n, %n][%i], %m, %z : memref<8x1024xf32>, vector<8x16xi32>, vector<8x16xi1>, vector<8x16xf32> into vector<8x16xf32>
vector.scatter %o[%c0, %n][%x], %m, %v : memref<8x1024xf32>, vector<8x16xindex>, vector<8x16xi1>, vector<8x16xf32>"""),
}  # fmt: skip


TARGETS = ("cpu", "sm_90a", "xe-pvc", "xe-dg2")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_every_stage_agrees(name: str, target: str):
    case = CASES[name]
    numbers = "\n".join(f"%c{n} = arith.constant {n} : index" for n in (0, 1, 2, 3, 5, 11, 40, 60))
    module = parse_module(
        f"""gpu.module @m {{
gpu.func @k(%a: {case.a}, %o: {case.o}, %n: index, %pad: f32) kernel
  attributes {{tilewright.level = "{case.level}", tilewright.subgroups = 1 : i64}} {{
{numbers}
%p = arith.constant 1.5 : f32
%b = arith.constant 3 : i8
{case.text}
gpu.return }} }}"""
    )
    kernel = kernel_in(module)
    assert kernel is not None
    inputs = Inputs((1, 1, 1), make_args(specs_of(kernel), fresh_seed()))
    stages = stages_of_target(module, CompileOptions(target=target))
    found = check_stages(stages[: -1 if target.startswith("xe") else None], inputs)
    assert found is None, found
