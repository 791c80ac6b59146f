# ruff: noqa: E501
"""expand-ops: each op that others say as well: its text, its rules, its meaning, and every target."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.draws import fresh_rng
from tilewright import reference
from tilewright.dialects.text import parse_module, print_module
from tilewright.passes.expand_ops import EXPANSIONS, expand_ops
from tilewright.tools.cli import main

V, R = "vector<8x16xf32>", "vector<8xf32>"
TILES = """
gpu.module @m {{ gpu.func @k(%i: memref<8x16xf32>, %o: memref<8x16xf32>) kernel {{
  %t = xetile.init_tile %i[0, 0] : memref<8x16xf32> -> !xetile.tile<8x16xf32>
  %x = xetile.load_tile %t : !xetile.tile<8x16xf32> -> vector<8x16xf32>
  {body}
  %u = xetile.init_tile %o[0, 0] : memref<8x16xf32> -> !xetile.tile<8x16xf32>
  xetile.store_tile %r, %u : vector<8x16xf32>, !xetile.tile<8x16xf32>
  gpu.return
}} }}
"""
LANES = """
gpu.module @m {{ gpu.func @k(%i: memref<16xf32>, %o: memref<16xf32>) kernel
    attributes {{tilewright.level = "lane", tilewright.subgroups = 1 : i64, tilewright.lanes = 16 : i64}} {{
  %true = arith.constant true
  %lane = gpu.lane_id
  %zero = arith.constant 0.0 : f32
  %x = xegpu.load %i[%lane], %true : memref<16xf32>, index, i1 -> f32
  {body}
  xegpu.store %r, %o[%lane], %true : f32, memref<16xf32>, index, i1
  gpu.return
}} }}
"""
OF_CLASS = f"%c = math.{{}} %x : {V}\n  %z = arith.constant dense<0.0> : {V}\n  %r = arith.select %c, %x, %z : vector<8x16xi1>, {V}"
FIRST = f"%a = vector.extract_strided_slice %x {{offsets = [0, 0], sizes = [8, 1], strides = [1, 1]}} : {V} to vector<8x1xf32>\n  %f = vector.shape_cast %a : vector<8x1xf32> to {R}\n"
ROW = f"  %row = vector.extract %x[0] : vector<16xf32> from {V}\n"
LAST = f"  %back = vector.shape_cast %l : {R} to vector<8x1xf32>\n  %b = vector.broadcast %back : vector<8x1xf32> to {V}\n  %r = arith.addf %d, %b : {V}"


def where(test: Any) -> Any:
    return lambda x: np.where(test(x), x, 0)


def scanned(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    total = np.cumsum(x.astype(np.float64), axis=1)
    return total + total[:, -1:]


def exclusive(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    shifted = np.concatenate([x[:, :1], x[:, :-1]], axis=1).astype(np.float64)
    total = np.cumsum(shifted, axis=1)
    return total + total[:, -1:]


def powers(b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """x^(5 - b) + x^b of odd x; rounded to 0 where an exponent is negative."""
    pairs = [(int(x) | 1, int(x)) for x in b.flat]
    return np.reshape([int(float(x) ** (5 - n)) + int(float(x) ** n) for x, n in pairs], b.shape)


def product(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """0.5, and in a corner what the first nine columns of x xT add to it."""
    inside = np.outer(np.arange(8) < 5, np.arange(8) < 6)
    return placed(x, 0.5 + inside * (x[:, :9].astype(np.float64) @ x[:, :9].T))


def largest(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """0.5, or the largest product of a row and another, where this one is positive."""
    return placed(x, np.where(x > 0, x[:, None] * x, 0.5).max(axis=2, initial=0.5))


def placed(x: np.ndarray[Any, Any], part: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.concatenate([x[:, :4], part, x[:, 12:]], axis=1)


def contraction(kind: str) -> str:
    """A masked contraction of rows, in the place of eight columns."""
    maps = ", ".join(f"affine_map<(m, n, k) -> ({of})>" for of in ("m, k", "k, n", "m, n"))
    return (
        f"\n  %turned = vector.transpose %x, [1, 0] : {V} to vector<16x8xf32>\n  %half = arith.constant dense<0.5> : vector<8x8xf32>\n"
        f'  %p = vector.mask %m {{ vector.contract {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel", "reduction"], '
        f"kind = #vector.kind<{kind}>}} %x, %turned, %half : {V}, vector<16x8xf32> into vector<8x8xf32> }} : vector<8x8x16xi1> -> vector<8x8xf32>\n"
        f"  %r = vector.insert_strided_slice %p, %x {{offsets = [0, 4], strides = [1, 1]}} : vector<8x8xf32> into {V}"
    )


erfc = np.vectorize(math.erfc)
VECTORS: dict[str, tuple[str, Any]] = {
    "xetile.load_tile": (
        f"%c = xetile.init_tile %i[4, 2] : memref<8x16xf32> -> !xetile.tile<16x8xf32>\n  "
        f"%l = xetile.load_tile %c {{transpose = [1, 0], padding = 2.0 : f32}} : !xetile.tile<16x8xf32> -> {V}\n  "
        f"%q = xetile.load_tile %t {{transpose = [0, 1]}} : !xetile.tile<8x16xf32> -> {V}\n  %r = arith.addf %q, %l : {V}",
        lambda x: np.pad(x[4:, 2:10], ((0, 12), (0, 0)), constant_values=2).T + x,
    ),
    "math.isnan": (OF_CLASS.format("isnan").replace("%x, %z", "%z, %x"), where(lambda x: ~np.isnan(x))),
    "math.isinf": (OF_CLASS.format("isinf"), where(np.isinf)),
    "math.isfinite": (OF_CLASS.format("isfinite"), where(np.isfinite)),
    "math.isnormal": (
        OF_CLASS.format("isnormal"),
        where(lambda x: np.isfinite(x) & (np.abs(x) >= np.finfo(np.float32).smallest_normal)),
    ),
    "math.sincos": (f"%s, %c = math.sincos %x : {V}\n  %r = arith.subf %s, %c : {V}", lambda x: np.sin(x) - np.cos(x)),
    "math.clampf": (
        f"%l = arith.constant dense<-0.5> : {V}\n  %h = arith.constant dense<0.75> : {V}\n  %r = math.clampf %x to [%l, %h] : {V}",
        lambda x: np.clip(x, -0.5, 0.75),
    ),
    "math.erfc": (f"%r = math.erfc %x : {V}", erfc),
    "math.fpowi": (
        f"%n = arith.constant dense<3> : vector<8x16xi32>\n  %r = math.fpowi %x, %n : {V}, vector<8x16xi32>",
        lambda x: x.astype(np.float64) ** 3,
    ),
    "math.ipowi": (
        f"%b = arith.fptosi %x : {V} to vector<8x16xi32>\n  %n = arith.constant dense<5> : vector<8x16xi32>\n"
        f"  %e = arith.subi %n, %b : vector<8x16xi32>\n  %one = arith.constant dense<1> : vector<8x16xi32>\n"
        f"  %o1 = arith.ori %b, %one : vector<8x16xi32>\n  %p = math.ipowi %o1, %e : vector<8x16xi32>\n"
        f"  %less = math.ipowi %o1, %b : vector<8x16xi32>\n  %s = arith.addi %p, %less : vector<8x16xi32>\n"
        f"  %r = arith.sitofp %s : vector<8x16xi32> to {V}",
        lambda x: powers(x.astype(np.int32)),
    ),
    "scf.execute_region": (
        f"%r = scf.execute_region -> {V} {{\n    %n = arith.negf %x : {V}\n    scf.yield %n : {V}\n  }}",
        lambda x: -x,
    ),
    "scf.execute_region, of several blocks": (
        f"%yes = arith.constant true\n  %r = scf.execute_region -> {V} {{\n    cf.cond_br %yes, ^one, ^two(%x : {V})\n"
        f"  ^one:\n    %n = arith.negf %x : {V}\n    cf.br ^two(%n : {V})\n  ^two(%w: {V}):\n    scf.yield %w : {V}\n  }}",
        lambda x: -x,
    ),
    "scf.execute_region, of a loop that has one": (
        f"%i0 = arith.constant 0 : i32\n  %i1 = arith.constant 1 : i32\n  %i3 = arith.constant 3 : i32\n"
        f"  %r = scf.execute_region -> {V} {{\n    cf.br ^head(%i0, %x : i32, {V})\n  ^head(%a: i32, %v: {V}):\n"
        f"    %w = scf.execute_region -> {V} {{\n      %n = arith.negf %v : {V}\n      cf.br ^out\n    ^out:\n      scf.yield %n : {V}\n    }}\n"
        "    %next = arith.addi %a, %i1 : i32\n    %more = arith.cmpi slt, %next, %i3 : i32\n"
        f"    cf.cond_br %more, ^head(%next, %w : i32, {V}), ^end\n  ^end:\n    scf.yield %w : {V}\n  }}",
        lambda x: -x,
    ),
    "vector.from_elements": (
        f"%s = vector.extract %x[2, 3] : f32 from {V}\n  %n = arith.negf %s : f32\n"
        "  %f = vector.from_elements %s, %n, %s, %n, %n, %s, %s, %s : vector<1x8xf32>\n"
        f"  %r = vector.insert_strided_slice %f, %x {{offsets = [7, 4], strides = [1, 1]}} : vector<1x8xf32> into {V}",
        lambda x: np.concatenate([x.flat[:116], x[2, 3] * np.array([1, -1, 1, -1, -1, 1, 1, 1]), x.flat[124:]]).reshape(8, 16),
    ),
    "vector.to_elements": (
        f"%f = vector.extract_strided_slice %x {{offsets = [6, 3], sizes = [2, 2], strides = [1, 1]}} : {V} to vector<2x2xf32>\n"
        f"  %e:4 = vector.to_elements %f : vector<2x2xf32>\n  %n = arith.subf %e#1, %e#2 : f32\n  %r = vector.broadcast %n : f32 to {V}",
        lambda x: np.full_like(x, x[6, 4] - x[7, 3]),
    ),
    "vector.outerproduct": (
        FIRST
        + ROW
        + f"  %r = vector.outerproduct %f, %row, %x {{kind = #vector.kind<maximumf>}} : {R}, vector<16xf32>",
        lambda x: np.maximum(x[:, :1] * x[:1], x),
    ),
    "vector.outerproduct, by a scalar": (
        FIRST
        + f"  %two = arith.constant 2.0 : f32\n  %p = vector.outerproduct %f, %two, %f : {R}, f32\n"
        f"  %back = vector.shape_cast %p : {R} to vector<8x1xf32>\n  %r = vector.broadcast %back : vector<8x1xf32> to {V}",
        lambda x: np.broadcast_to(3 * x[:, :1], x.shape),
    ),
    "memref.reshape, by a shape of the thread's": (
        "%s = memref.alloca() : memref<2xindex>\n  %c0 = arith.constant 0 : index\n  %c1 = arith.constant 1 : index\n"
        "  %rows = arith.constant 16 : index\n  %n = arith.constant 8 : index\n  memref.store %rows, %s[%c0] : memref<2xindex>\n"
        "  memref.store %n, %s[%c1] : memref<2xindex>\n"
        "  %v = memref.reshape %i(%s) : (memref<8x16xf32>, memref<2xindex>) -> memref<?x8xf32>\n"
        "  %w = memref.dim %v, %c0 : memref<?x8xf32>\n"
        "  %p = xetile.init_tile %v[0, 0], [%w, 8], [8, 1] : memref<?x8xf32> -> !xetile.tile<16x8xf32>\n"
        "  %q = xetile.load_tile %p : !xetile.tile<16x8xf32> -> vector<16x8xf32>\n"
        f"  %r = vector.shape_cast %q : vector<16x8xf32> to {V}\n",
        lambda x: x,
    ),
    "vector.scan": (
        FIRST
        + f"  %d, %l = vector.scan <add>, %x, %f {{inclusive = true, reduction_dim = 1 : i64}} : {V}, {R}\n"
        + LAST,
        scanned,
    ),
    "vector.scan, exclusive": (
        FIRST
        + f"  %d, %l = vector.scan <add>, %x, %f {{inclusive = false, reduction_dim = 1 : i64}} : {V}, {R}\n"
        + LAST,
        exclusive,
    ),
}  # fmt: skip
MASK = "%five = arith.constant 5 : index\n  %nine = arith.constant 9 : index\n  %m = vector.create_mask %five, %nine : vector<8x16xi1>\n  "
MAP = "{permutation_map = affine_map<(d0, d1) -> (d1, d0)>}"
TURNED = MASK + "  %none = arith.constant 0 : index\n  %pad = arith.constant 2.0 : f32\n"
BACK = f"  %r = vector.transpose %v, [1, 0] : vector<16x8xf32> to {V}"
NUMBER = "%first = arith.constant 0 : index\n  %e = memref.load %i[%first, %first] : memref<8x16xf32>\n  %q = arith.fptosi %e : f32 to i32\n  %p = arith.index_cast %q : i32 to index\n"
SPLAT = f"  %j = arith.index_cast %n : index to i32\n  %f = arith.sitofp %j : i32 to f32\n  %r = vector.broadcast %f : f32 to {V}"
CORNER = np.outer(np.arange(8) < 5, np.arange(16) < 9)
TURN = f"  %y = arith.negf %x : {V}\n  %r = arith.select %m, %x, %y : vector<8x16xi1>, {V}"
VECTORS |= {
    "vector.create_mask": (MASK.replace("5 :", "-1 :") + TURN, lambda x: -x),
    "vector.create_mask, of all rows": (MASK.replace("5 :", "10 :") + TURN, lambda x: np.where(np.arange(16) < 9, x, -x)),
    "vector.constant_mask": ("%m = vector.constant_mask [5, 9] : vector<8x16xi1>\n" + TURN, lambda x: np.where(CORNER, x, -x)),
}  # fmt: skip
VECTORS |= {
    "vector.mask": (
        MASK
        + FIRST
        + f"  %l = vector.mask %m {{ vector.multi_reduction <maximumf>, %x, %f [1] : {V} to {R} }} : vector<8x16xi1> -> {R}\n"
        f"  %d = arith.negf %x : {V}\n" + LAST,
        lambda x: -x + np.maximum(np.where(CORNER, x, -np.inf).max(axis=1), x[:, 0])[:, None],
    ),
    "vector.mask, of an outer product": (
        MASK
        + FIRST
        + ROW
        + f"  %r = vector.mask %m {{ vector.outerproduct %f, %row, %x : {R}, vector<16xf32> }} : vector<8x16xi1> -> {V}",
        lambda x: np.where(CORNER, x[:, :1] * x[:1] + x, x),
    ),
    "vector.mask, of a product": (
        "%five = arith.constant 5 : index\n  %six = arith.constant 6 : index\n  %nine = arith.constant 9 : index\n"
        "  %m = vector.create_mask %five, %six, %nine : vector<8x8x16xi1>" + contraction("add"),
        product,
    ),
    "vector.mask, of any contraction": (
        f"%zero = arith.constant dense<0.0> : {V}\n  %up = arith.cmpf ogt, %x, %zero : {V}\n"
        "  %m = vector.broadcast %up : vector<8x16xi1> to vector<8x8x16xi1>"
        + contraction("maximumf"),
        largest,
    ),
    "vector.mask, of memory": (
        MASK + "%none = arith.constant 0 : index\n  %pad = arith.constant 2.0 : f32\n"
        f"  %v = vector.mask %m, %x {{ vector.transfer_read %i[%none, %none], %pad {{in_bounds = [true, true]}} : memref<8x16xf32>, {V} }} : vector<8x16xi1> -> {V}\n"
        f"  %w = arith.addf %v, %v : {V}\n"
        f"  vector.mask %m {{ vector.transfer_write %w, %o[%none, %none] {{in_bounds = [true, true]}} : {V}, memref<8x16xf32> }} : vector<8x16xi1>\n"
        f"  %y = vector.transfer_read %o[%none, %none], %pad, %m {{in_bounds = [true, true]}} : memref<8x16xf32>, {V}\n"
        f"  %r = arith.subf %y, %v : {V}",
        lambda x: np.where(CORNER, x, 2 - x),
    ),
    "vector.mask, of nothing": (
        MASK
        + f"%n = arith.negf %x : {V}\n  %r = vector.mask %m, %x {{ vector.yield %n : {V} }} : vector<8x16xi1> -> {V}",
        lambda x: np.where(CORNER, -x, x),
    ),
    "vector.transfer_read": (
        TURNED
        + f"  %v = vector.transfer_read %i[%none, %none], %pad, %m {MAP} : memref<8x16xf32>, vector<16x8xf32>\n"
        + BACK,
        lambda x: np.where(CORNER, x, 2),
    ),
    "vector.transfer_write": (
        TURNED + f"  %w = vector.transpose %x, [1, 0] : {V} to vector<16x8xf32>\n"
        f"  vector.transfer_write %w, %o[%none, %none], %m {MAP} : vector<16x8xf32>, memref<8x16xf32>\n"
        f"  %v = vector.transfer_read %o[%none, %none], %pad, %m {MAP} : memref<8x16xf32>, vector<16x8xf32>\n"
        + BACK,
        lambda x: np.where(CORNER, x, 2),
    ),
    "scf.index_switch": (
        NUMBER
        + f"  %r = scf.index_switch %p -> {V}\n  case 0 {{\n    %y = arith.negf %x : {V}\n    scf.yield %y : {V}\n  }}\n"
        f"  default {{\n    scf.yield %x : {V}\n  }}",
        lambda x: x if int(x[0, 0]) else -x,
    ),
    "affine.apply": (
        NUMBER
        + "  %n = affine.apply affine_map<(d0)[s0] -> (d0 * 3 + s0 mod 4 + (s0 - 5) ceildiv 2)>(%p)[%p]\n"
        + SPLAT,
        lambda x: np.full_like(x, 3 * int(x[0, 0]) + int(x[0, 0]) % 4 + -((5 - int(x[0, 0])) // 2)),
    ),
    "affine.min": (
        NUMBER
        + '  %n = "affine.min"(%p) {map = affine_map<(d0) -> (d0 + 1, 2 - d0 floordiv 2)>} : (index) -> index\n'
        + SPLAT,
        lambda x: np.full_like(x, min(int(x[0, 0]) + 1, 2 - int(x[0, 0]) // 2)),
    ),
    "affine.max": (
        NUMBER + "  %n = affine.max affine_map<(d0) -> (d0 + 1, 2 - d0 floordiv 2)>(%p)\n" + SPLAT,
        lambda x: np.full_like(x, max(int(x[0, 0]) + 1, 2 - int(x[0, 0]) // 2)),
    ),
    "affine.linearize_index": (
        NUMBER
        + "  %g = arith.constant 7 : index\n  %n = affine.linearize_index disjoint [%g, %p, %g] by (3, %g) : index\n"
        + SPLAT,
        lambda x: np.full_like(x, (7 * 3 + int(x[0, 0])) * 7 + 7),
    ),
    "xegpu.truncf": (
        f"%h = xegpu.truncf %x : {V} -> vector<8x16xf8E5M2>\n  %r = xegpu.extf %h : vector<8x16xf8E5M2> -> {V}",
        lambda x: x.astype(ml_dtypes.float8_e5m2),
    ),
    "xegpu.extf": (
        f"%h = arith.truncf %x : {V} to vector<8x16xbf16>\n  %r = xegpu.extf %h : vector<8x16xbf16> -> {V}",
        lambda x: x.astype(ml_dtypes.bfloat16),
    ),
}  # fmt: skip
BY_LANES: dict[str, tuple[str, Any]] = {
    "scf.index_switch, of a lane": (
        "%three = arith.constant 3 : index\n  %n = arith.remui %lane, %three : index\n"
        "  %r = scf.index_switch %n -> f32\n  case 0 {\n    %y = arith.addf %x, %x : f32\n    scf.yield %y : f32\n  }\n"
        "  case 2 {\n    %y = scf.index_switch %three -> f32\n    default {\n      scf.yield %zero : f32\n    }\n    scf.yield %y : f32\n  }\n"
        "  default {\n    scf.yield %x : f32\n  }",
        lambda x: x * np.array([2, 1, 0])[np.arange(16) % 3],
    ),
    "affine.apply, of a lane": (
        "%five = arith.constant -5 : index\n  %n = affine.apply affine_map<(d0)[s0] -> (((d0 * 3 + s0) mod 4) + d0 floordiv 4 + (s0 ceildiv 2) + 2)>(%lane)[%five]\n"
        "  %r = memref.load %i[%n] : memref<16xf32>",
        lambda x: x[[(3 * n - 5) % 4 + n // 4 for n in range(16)]],
    ),
    "affine.min, of a lane": (
        '%n = "affine.min"(%lane) {map = affine_map<(d0) -> (d0, d0 floordiv 2 + 1)>} : (index) -> index\n  %r = memref.load %i[%n] : memref<16xf32>',
        lambda x: x[[min(n, n // 2 + 1) for n in range(16)]],
    ),
    "affine.delinearize_index": (
        "%two = arith.constant 2 : index\n  %d:3 = affine.delinearize_index %lane into (2, %two) : index, index, index\n"
        "  %e:2 = affine.delinearize_index %d#0 into (9, 1) : index, index\n"
        "  %n = affine.linearize_index [%e#0, %d#2, %d#1] by (9, %two, 2) : index\n  %r = memref.load %i[%n] : memref<16xf32>",
        lambda x: x.reshape(4, 2, 2).transpose(0, 2, 1).flatten(),
    ),
    "gpu.subgroup_broadcast": ("%r = gpu.subgroup_broadcast %x, first_active_lane : f32", lambda x: np.full_like(x, x[0])),
    "gpu.subgroup_broadcast, of a lane": (
        "%five = arith.constant 5 : i32\n  %r = gpu.subgroup_broadcast %x, specific_lane %five : f32",
        lambda x: np.full_like(x, x[5]),
    ),
    "gpu.rotate": (
        "%y, %valid = gpu.rotate %x, 3, 8 : f32\n  %r = arith.select %valid, %y, %zero : f32",
        lambda x: np.concatenate([np.roll(x[:8], -3), np.zeros(8)]),
    ),
    "xegpu.lane_shuffle": (
        "%n = arith.negf %x : f32\n  %v = vector.from_elements %x, %n : vector<2xf32>\n  %p = xegpu.lane_shuffle %v pack : vector<2xf32>\n  %r = vector.extract %p[1] : f32 from vector<2xf32>",
        lambda x: np.stack([x, -x]).reshape(16, 2)[:, 1],
    ),
    "xegpu.lane_shuffle, back": (
        "%n = arith.negf %x : f32\n  %v = vector.from_elements %x, %n : vector<2xf32>\n  %p = xegpu.lane_shuffle %v unpack : vector<2xf32>\n  %r = vector.extract %p[1] : f32 from vector<2xf32>",
        lambda x: np.stack([x, -x], axis=1).reshape(2, 16)[1],
    ),
    "memref.generic_atomic_rmw": (
        "%old = memref.generic_atomic_rmw %o[%lane] : memref<16xf32> {\n  ^bb0(%now: f32):\n    memref.atomic_yield %x : f32\n  }\n"
        "  %two = arith.constant 2.0 : f32\n  %mid = memref.generic_atomic_rmw %o[%lane] : memref<16xf32> {\n  ^bb0(%now: f32):\n"
        "    %n = arith.mulf %two, %now : f32\n    memref.atomic_yield %n : f32\n  }\n"
        "  %r = memref.generic_atomic_rmw %o[%lane] : memref<16xf32> {\n  ^bb0(%now: f32):\n    %m = arith.mulf %now, %now : f32\n"
        "    %n = arith.subf %m, %x : f32\n    memref.atomic_yield %n : f32\n  }",
        lambda x: 2 * x,
    ),
    "memref.reshape": (
        "%s = memref.alloca() : memref<2xindex, 3>\n  %none = arith.constant 0 : index\n  %one = arith.constant 1 : index\n  %two = arith.constant 2 : index\n  %rows = gpu.subgroup_size : index\n"
        "  %half = arith.divui %rows, %two : index\n  %first = arith.cmpi eq, %lane, %none : index\n"
        "  scf.if %first {\n    memref.store %two, %s[%none] : memref<2xindex, 3>\n    memref.store %half, %s[%one] : memref<2xindex, 3>\n  }\n  gpu.barrier\n"
        "  %v = memref.reshape %i(%s) : (memref<16xf32>, memref<2xindex, 3>) -> memref<2x?xf32>\n"
        "  %d = arith.divui %lane, %half : index\n  %e = arith.remui %lane, %half : index\n  %r = memref.load %v[%d, %e] : memref<2x?xf32>",
        lambda x: x,
    ),
    "vector.mask, of a lane's memory": (
        "%five = arith.constant 5 : index\n  %one = arith.constant 1 : index\n  %none = arith.constant 0 : index\n  %pad = arith.constant 2.0 : f32\n"
        "  %few = arith.cmpi ult, %lane, %five : index\n  %n = arith.select %few, %one, %none : index\n  %m = vector.create_mask %n : vector<1xi1>\n"
        "  %other = arith.constant dense<3.0> : vector<1xf32>\n"
        "  %v = vector.mask %m, %other { vector.transfer_read %i[%lane], %pad {in_bounds = [true]} : memref<16xf32>, vector<1xf32> } : vector<1xi1> -> vector<1xf32>\n"
        "  %w = arith.negf %v : vector<1xf32>\n  vector.mask %m { vector.transfer_write %w, %o[%lane] {in_bounds = [true]} : vector<1xf32>, memref<16xf32> } : vector<1xi1>\n"
        "  %y = vector.transfer_read %o[%lane], %pad, %m {in_bounds = [true]} : memref<16xf32>, vector<1xf32>\n"
        "  %z = arith.subf %y, %v : vector<1xf32>\n  %r = vector.extract %z[0] : f32 from vector<1xf32>",
        lambda x: np.where(np.arange(16) < 5, -2 * x, -1),
    ),
}  # fmt: skip
XEGPU = """
gpu.module @m {{ gpu.func @k(%i: memref<8x16xf32>, %o: memref<8x16xf32>) kernel
    attributes {{tilewright.level = "subgroup", tilewright.subgroups = 1 : i64}} {{
  {body}
  gpu.return
}} }}
"""
EVERY_THIRD = "%m = arith.constant dense<[true, false, false, true, false, false, true, false, false, true, false, false, true, false, false, true]> : vector<16xi1>"
EXPANDED = "%p = arith.constant dense<1.0> : vector<16xf32>\n  %w = vector.expandload {}, %m, %p : {}, vector<16xi1>, vector<16xf32> into vector<16xf32>"
REPEATED = f"  %b = vector.broadcast %w : vector<16xf32> to {V}\n  %r = arith.addf %x, %b : {V}"
VECTORS |= {
    "vector.expandload": (
        f"{EVERY_THIRD}\n  %c = arith.constant 0 : index\n  "
        f"{EXPANDED.format('%i[%c, %c]', 'memref<8x16xf32>')}\n{REPEATED}",
        lambda x: x + np.where(np.arange(16) % 3, 1.0, x[0, np.arange(16) // 3]),
    ),
    "vector.compressstore": (
        f"{ROW}  {EVERY_THIRD}\n  %c = arith.constant 0 : index\n  %s = memref.alloc() : memref<16xf32, 3>\n"
        "  vector.compressstore %s[%c], %m, %row : memref<16xf32, 3>, vector<16xi1>, vector<16xf32>\n  gpu.barrier\n  "
        f"{EXPANDED.format('%s[%c]', 'memref<16xf32, 3>')}\n{REPEATED}",
        lambda x: x + np.where(np.arange(16) % 3, 1.0, x[0]),
    ),
}
D, PART = (
    "!xegpu.tensor_desc<8x16xf32>",
    "!xegpu.mem_desc<8x16xf32, #xegpu.mem_layout<stride = [32, 1]>>",
)
MATRICES: dict[str, tuple[str, Any]] = {
    "xegpu.mem_desc_subview": (
        f"""%a = xegpu.create_nd_tdesc %i : memref<8x16xf32> -> {D}
  %x = xegpu.load_nd %a[0, 0] : {D} -> vector<8x16xf32>
  %slm = memref.alloca() : memref<4096xi8, 3>
  %m = xegpu.create_mem_desc %slm : memref<4096xi8, 3> -> !xegpu.mem_desc<32x32xf32>
  %c = arith.constant 8 : index
  %half = xegpu.mem_desc_subview %m[%c, 0] : !xegpu.mem_desc<32x32xf32>, index -> !xegpu.mem_desc<16x32xf32, #xegpu.mem_layout<stride = [32, 1]>>
  %part = xegpu.mem_desc_subview %half[%c, 16] : !xegpu.mem_desc<16x32xf32, #xegpu.mem_layout<stride = [32, 1]>>, index -> {PART}
  xegpu.store_matrix %x, %part[0, 0] : vector<8x16xf32>, {PART}
  gpu.barrier
  %w = arith.constant 16 : index
  %y = xegpu.load_matrix %m[%w, 16] : !xegpu.mem_desc<32x32xf32>, index -> vector<8x16xf32>
  %r = arith.mulf %y, %y : vector<8x16xf32>
  %u = xegpu.create_nd_tdesc %o : memref<8x16xf32> -> {D}
  xegpu.store_nd %r, %u[0, 0] : vector<8x16xf32>, {D}""",
        lambda x: x * x,
    ),
    "xegpu.dpas_mx": (
        f"""%t = xegpu.create_nd_tdesc %i : memref<8x16xf32> -> {D}
  %x = xegpu.load_nd %t[0, 0] : {D} -> vector<8x16xf32>
  %a = arith.constant dense<0.5> : vector<8x64xf8E5M2>
  %b = arith.constant dense<2.0> : vector<64x16xf8E5M2>
  %s = arith.constant dense<4.0> : vector<8x2xf8E8M0FNU>
  %r = xegpu.dpas_mx %a, %b, %x scale_a = %s : (vector<8x64xf8E5M2>, vector<64x16xf8E5M2>, vector<8x16xf32>, vector<8x2xf8E8M0FNU>) -> vector<8x16xf32>
  %u = xegpu.create_nd_tdesc %o : memref<8x16xf32> -> {D}
  xegpu.store_nd %r, %u[0, 0] : vector<8x16xf32>, {D}""",
        lambda x: x + 256,
    ),
}
CASES = {n: (TILES.format(body=b), m) for n, (b, m) in VECTORS.items()}
CASES |= {n: (XEGPU.format(body=b), m) for n, (b, m) in MATRICES.items()}
CASES |= {n: (LANES.format(body=b), m) for n, (b, m) in BY_LANES.items()}


def test_every_op_has_a_case() -> None:
    assert {*EXPANSIONS, "xetile.load_tile"} == {name.split(",")[0] for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_the_text_is_a_fixed_point(name: str) -> None:
    text = print_module(parse_module(CASES[name][0]))
    assert print_module(parse_module(text)) == text
    assert print_module(parse_module(print_module(parse_module(text), generic=True))) == text


@pytest.mark.parametrize("name", CASES)
def test_the_reference_is_what_numpy_says(name: str) -> None:
    text, meaning = CASES[name]
    rng = fresh_rng()
    x = rng.standard_normal((8, 16) if "memref<8x16xf32>" in text else (16,)).astype(np.float32)
    if name.startswith("math.is"):
        x.flat[:5] = np.nan, np.inf, -np.inf, 1e-42, 0.0
    out = np.full_like(x, np.nan)
    reference.run(parse_module(text), args=[x, out])
    wanted = np.asarray(meaning(x))
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(out[~finite], wanted[~finite])
    error = np.linalg.norm(out[finite] - wanted[finite])
    assert error <= 1e-6 * np.linalg.norm(wanted[finite])


@pytest.mark.parametrize("target", ["cpu", "emu", "sm_80", "xe-pvc", "xe-dg2"])
@pytest.mark.parametrize("name", CASES)
def test_targets_agree(name: str, target: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "op.mlir"
    text = CASES[name][0]
    if name in BY_LANES and target == "xe-dg2":  # its subgroups have 8 lanes
        text = text.replace("lanes = 16", "lanes = 8").replace("memref<16xf32>", "memref<8xf32>")
    path.write_text(text)
    assert main(["check", str(path), "--target", target]) == 0
    assert "stages agree" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["maxnumf", "minnumf"])
def test_scans_begin_with_the_first_element_that_is_nan(kind: str) -> None:
    text = CASES["vector.scan"][0].replace("scan <add>", f"scan <{kind}>")
    module = parse_module(text.replace(LAST, f"  %r = arith.mulf %d, %d : {V}"))
    expand_ops(module)
    x, out = fresh_rng().standard_normal((2, 8, 16)).astype(np.float32)
    x[:, :2] = np.nan
    reference.run(module, args=[x, out])
    wanted = (np.fmax if kind == "maxnumf" else np.fmin).accumulate(x, axis=1)
    np.testing.assert_array_equal(out, wanted * wanted)


def test_small_results_of_erfc_are_precise(tmp_path: Path, capfd) -> None:
    path = tmp_path / "erfc.mlir"
    path.write_text("""func.func @main() {
      %x = arith.constant 6.5 : f32
      %y = math.erfc %x : f32
      vector.print %y : f32
      return
    }""")
    assert main(["run", str(path)]) == 0
    assert float(capfd.readouterr().out) == pytest.approx(math.erfc(6.5), rel=2e-5)
