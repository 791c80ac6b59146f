# ruff: noqa: E501
"""Each op of xetile and xegpu alone, on each target: executed right, or refused at its place; never left out.

The result of an op that returns something is not always used: a target that evaluates on demand must still do, or
refuse, what writes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.draws import fresh_rng
from tilewright import reference
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.text import parse_module
from tilewright.dialects.xegpu import XeGPU
from tilewright.dialects.xetile import XeTile
from tilewright.dialects.xetile.aliases import ALIASES
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions
from tilewright.targets.entry import build_text
from tilewright.tools.check_results import difference

T, V, D = "!xetile.tile<8x16xf32>", "vector<8x16xf32>", "!xegpu.tensor_desc<8x16xf32>"
S = "!xetile.tile<16xf32, #xetile.tile_attr<scattered = true>>"
G = "!xegpu.tensor_desc<16xf32, #xegpu.scatter_tdesc_attr<>>"
M = "!xegpu.mem_desc<8x16xf32>"
TILE = f"%t = xetile.init_tile %a[0, 0] : memref<8x16xf32> -> {T}\n"
LOAD = TILE + f"%v = xetile.load_tile %t : {T} -> {V}\n"
STORE = f"%u = xetile.init_tile %b[0, 0] : memref<8x16xf32> -> {T}\nxetile.store_tile %q, %u : {V}, {T}\n"
SCATTER = f"%s = xetile.init_tile %r, %at : memref<16xf32>, vector<16xindex> -> {S}\n"
DESC = f"%t = xegpu.create_nd_tdesc %a : memref<8x16xf32> -> {D}\n"
LOAD_ND = DESC + f"%v = xegpu.load_nd %t[0, 0] : {D} -> {V}\n"
STORE_ND = f"%u = xegpu.create_nd_tdesc %b : memref<8x16xf32> -> {D}\nxegpu.store_nd %q, %u[0, 0] : {V}, {D}\n"
SHARED = f"%m = memref.alloc() : memref<512xi8, 3>\n%d = xegpu.create_mem_desc %m : memref<512xi8, 3> -> {M}\n"
BARRIER = """%one = arith.constant 1 : i8
xegpu.alloc_nbarrier 2
%n = xegpu.init_nbarrier %one, %one : i8, i8 -> !xegpu.nbarrier
"""
GATHERED = f"%s = xegpu.create_tdesc %r, %at : memref<16xf32>, vector<16xindex> -> {G}\n"
ONES = "%w = arith.constant dense<1.0> : vector<16xf32>\n"
ATOMIC = f"%old = xegpu.atomic_rmw addf %s, %on, %w : {G}, vector<16xi1>, vector<16xf32> -> vector<16xf32>\n"

PROGRAMS = {
    "xetile.init_tile": TILE,
    "xetile.load_tile": LOAD,
    "xetile.store_tile": LOAD + STORE.replace("%q", "%v"),
    "xetile.prefetch_tile": TILE + f"xetile.prefetch_tile %t : {T}",
    "xetile.update_tile_offset": TILE + f"%t2 = xetile.update_tile_offset %t, [%c0, %c0] : {T}",
    "xetile.tile_mma": LOAD + f"""%h = arith.truncf %v : {V} to vector<8x16xf16>
      %k = arith.constant dense<0.5> : vector<16x16xf16>
      %q = xetile.tile_mma %h, %k : vector<8x16xf16>, vector<16x16xf16> -> {V}
""" + STORE,
    "xetile.transpose": LOAD + f"%x = xetile.transpose %v, [1, 0] : {V} -> vector<16x8xf32>\n%q = xetile.transpose %x, [1, 0] : vector<16x8xf32> -> {V}\n" + STORE,
    "xetile.reduction": LOAD + f"%x = xetile.reduction <add>, %v [0] : {V} -> vector<1x16xf32>\n%q = xetile.broadcast %x [0] : vector<1x16xf32> -> {V}\n" + STORE,
    "xetile.broadcast": LOAD + f"%x = xetile.reduction <add>, %v [1] : {V} -> vector<8x1xf32>\n%q = xetile.broadcast %x [1] : vector<8x1xf32> -> {V}\n" + STORE,
    "xetile.convert_layout": LOAD + f"%q = xetile.convert_layout %v {{wg_map_result = #xetile.wg_map<sg_layout = [1, 1], sg_data = [8, 16]>}} : {V}\n" + STORE,
    "xetile.load": SCATTER + f"%g = xetile.load %s, %on : {S}, vector<16xi1> -> vector<16xf32>",
    "xetile.store": SCATTER + ONES + f"xetile.store %w, %s, %on : vector<16xf32>, {S}, vector<16xi1>",
    "xetile.atomic_rmw": LOAD + f"%q = arith.negf %v : {V}\n%old = xetile.atomic_rmw addf %q, %t : {V}, {T} -> {V}",
    "xegpu.create_nd_tdesc": DESC,
    "xegpu.update_nd_offset": f"%t = xegpu.create_nd_tdesc %a[0, 0] : memref<8x16xf32> -> {D}\n%t2 = xegpu.update_nd_offset %t, [%c0, %c0] : {D}\n%q = xegpu.load_nd %t2 : {D} -> {V}\n" + STORE_ND,
    "xegpu.load_nd": LOAD_ND,
    "xegpu.store_nd": LOAD_ND + STORE_ND.replace("%q", "%v"),
    "xegpu.prefetch_nd": DESC + f"xegpu.prefetch_nd %t[0, 0] : {D}",
    "xegpu.create_tdesc": GATHERED,
    "xegpu.update_offset": GATHERED + f"%s2 = xegpu.update_offset %s, %at : {G}, vector<16xindex>",
    "xegpu.load": GATHERED + f"%g = xegpu.load %s, %on : {G}, vector<16xi1> -> vector<16xf32>",
    "xegpu.store": GATHERED + ONES + f"xegpu.store %w, %s, %on : vector<16xf32>, {G}, vector<16xi1>",
    "xegpu.prefetch": GATHERED + f"xegpu.prefetch %s : {G}",
    "xegpu.atomic_rmw": GATHERED + ONES + ATOMIC,
    "xegpu.dpas": LOAD_ND + f"""%h = arith.truncf %v : {V} to vector<8x16xf16>
      %k = arith.constant dense<0.5> : vector<16x16xf16>
      %q = xegpu.dpas %h, %k : vector<8x16xf16>, vector<16x16xf16> -> {V}
""" + STORE_ND,
    "xegpu.dpas_mx": f"""%x = arith.constant dense<2.0> : vector<8x32xf8E5M2>
      %y = arith.constant dense<0.5> : vector<32x16xf8E5M2>
      %q = xegpu.dpas_mx %x, %y : (vector<8x32xf8E5M2>, vector<32x16xf8E5M2>) -> {V}
""" + STORE_ND,
    "xegpu.convert_layout": LOAD_ND + f"%q = xegpu.convert_layout %v <{{target_layout = #xegpu.layout<lane_layout = [1, 16], lane_data = [1, 1]>}}> : {V}\n" + STORE_ND,
    "xegpu.truncf": LOAD_ND + f"%h = xegpu.truncf %v : {V} -> vector<8x16xf16>\n%q = arith.extf %h : vector<8x16xf16> to {V}\n" + STORE_ND,
    "xegpu.extf": LOAD_ND + f"%h = arith.truncf %v : {V} to vector<8x16xf16>\n%q = xegpu.extf %h : vector<8x16xf16> -> {V}\n" + STORE_ND,
    "xegpu.create_mem_desc": SHARED,
    "xegpu.mem_desc_subview": LOAD_ND + SHARED + f"""xegpu.store_matrix %v, %d[0, 0] : {V}, {M}
      gpu.barrier
      %w = xegpu.mem_desc_subview %d[0, 0] : {M} -> !xegpu.mem_desc<8x16xf32, #xegpu.mem_layout<stride = [16, 1]>>
      %q = xegpu.load_matrix %w[0, 0] : !xegpu.mem_desc<8x16xf32, #xegpu.mem_layout<stride = [16, 1]>> -> {V}
""" + STORE_ND,
    "xegpu.load_matrix": LOAD_ND + SHARED + f"xegpu.store_matrix %v, %d[0, 0] : {V}, {M}\ngpu.barrier\n%q = xegpu.load_matrix %d[0, 0] : {M} -> {V}\n" + STORE_ND,
    "xegpu.store_matrix": LOAD_ND + SHARED + f"xegpu.store_matrix %v, %d[0, 0] : {V}, {M}\n",
    "xegpu.alloc_nbarrier": BARRIER,
    "xegpu.init_nbarrier": BARRIER,
    "xegpu.nbarrier_arrive": BARRIER + "xegpu.nbarrier_arrive %n : !xegpu.nbarrier\nxegpu.nbarrier_wait %n : !xegpu.nbarrier\n",
    "xegpu.nbarrier_wait": BARRIER + "xegpu.nbarrier_arrive %n : !xegpu.nbarrier\nxegpu.nbarrier_wait %n : !xegpu.nbarrier\n",
    "xegpu.fence": LOAD_ND + "xegpu.fence memory_kind = global, fence_scope = workgroup\n" + STORE_ND.replace("%q", "%v"),
    "xegpu.compile_hint": "xegpu.compile_hint\n",
}  # fmt: skip
TARGETS = {"workgroup": ("sm_90a",), "subgroup": ("cpu", "emu")}
OTHER_NAMES = {op.name for op in ALIASES}
OF_LANES = {"xegpu.lane_shuffle"}
"""What each lane has for itself has no program of a whole subgroup: `tests/passes/test_expand_ops.py`."""


def text(name: str, level: str) -> str:
    return f"""gpu.module @m {{
gpu.func @k(%a: memref<8x16xf32>, %b: memref<8x16xf32>, %r: memref<16xf32>) kernel
    attributes {{tilewright.level = "{level}", tilewright.subgroups = 1 : i64}} {{
  %c0 = arith.constant 0 : index
  %at = vector.step : vector<16xindex>
  %on = arith.constant dense<true> : vector<16xi1>
  %last = arith.constant 7.0 : f32
  {PROGRAMS[name]}
  gpu.return }} }}"""


def test_every_op_has_a_program():
    names = {op.name for dialect in (XeTile, XeGPU) for op in dialect.operations}
    assert names - OTHER_NAMES - OF_LANES == set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_done_or_refused(name: str):
    rng = fresh_rng()
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in ((8, 16), (8, 16), (16,))]
    refused: list[str] = []
    for level in ("workgroup", "subgroup"):
        module = parse_module(text(name, level), "alone.mlir")
        expected = [x.copy() for x in inputs]
        reference.run(module, 1, expected)
        writes = any((x != y).any() for x, y in zip(expected, inputs, strict=True))
        for target in TARGETS[level]:
            options = CompileOptions(target=target)
            try:
                executable = build_text(module.clone(), options)
            except UnsupportedError as error:
                assert error.location is not None, f"{level}, {target}: {error}"
                refused.append(f"{level} {target}")
                continue
            if target == "sm_90a":
                code = executable.asm["ptx"]
                assert not writes or any(
                    w in code for w in ("st.global", "atom.", "red.", "bulk")
                ), level
                continue
            found: list[Any] = [x.copy() for x in inputs]
            executable.launch((1, 1, 1), [describe(x) for x in found])
            for right, given in zip(expected, found, strict=True):
                message = difference(right, given)
                assert message is None, f"{level}, {target}: {message}"
    assert len(refused) < 3, "no target takes it"
