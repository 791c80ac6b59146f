"""Programs of lanes: what each lane of a subgroup computes, what lanes tell one another, blocks that they share."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.features.memory import gives
from tests.features.program import Program

HERE = "%i = gpu.lane_id\n%x = memref.load %a[%i] : memref<16xf32>\n"
STORE = "\nmemref.store %r, %b[%i] : memref<16xf32>"
AB = "a: f32 16, b: f32 16"
BLOCK = "load_nd %x = %a[0, 0] 8x16 -> vector<8xf32>\n"
STORE_BLOCK = """
%d = xegpu.create_nd_tdesc %b : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
xegpu.store_nd %r, %d[0, 0] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>"""
BLOCKS = "a: f32 8x16, b: f32 8x16"


def _lanes(arguments: str, body: str, function: Any, **more: Any) -> Program:
    return Program(arguments, body, gives(function), lanes=16, **more)


def _between(body: str, function: Any) -> Program:
    return _lanes(AB, HERE + body + STORE, function)


def _block(body: str, function: Any) -> Program:
    return _lanes(BLOCKS, BLOCK + body + STORE_BLOCK, function)


PROGRAMS: dict[str, Program] = {
    "lanes: a shuffle by xor": _between(
        "%n = arith.constant 5 : i32\n%w = arith.constant 16 : i32\n%r, %ok = gpu.shuffle xor %x, %n, %w : f32",
        lambda a: a[np.arange(16) ^ 5],
    ),
    "lanes: a shuffle by index": _between(
        "%n = arith.constant 11 : i32\n%w = arith.constant 16 : i32\n%r, %ok = gpu.shuffle idx %x, %n, %w : f32",
        lambda a: a[11],
    ),
    "lanes: a shuffle that goes round": _between(
        "%n = arith.constant 3 : i32\n%w = arith.constant 8 : i32\n%r, %ok = gpu.shuffle rotate %x, %n, %w : f32",
        lambda a: np.roll(a.reshape(2, 8), -3, axis=1).reshape(16),
    ),
    "lanes: rows that end beside their arrays": _lanes(
        "a: f32 40, b: f32 60",
        """%t = xegpu.create_nd_tdesc %a : memref<40xf32> -> !xegpu.tensor_desc<32xf32>
        %v = xegpu.load_nd %t[16] : !xegpu.tensor_desc<32xf32> -> vector<2xf32>
        %n = arith.negf %v : vector<2xf32>
        %d = xegpu.create_nd_tdesc %b : memref<60xf32> -> !xegpu.tensor_desc<32xf32>
        xegpu.store_nd %v, %d[0] : vector<2xf32>, !xegpu.tensor_desc<32xf32>
        xegpu.store_nd %n, %d[32] : vector<2xf32>, !xegpu.tensor_desc<32xf32>""",
        lambda a: np.pad(np.concatenate([a[16:], np.zeros(8), -a[16:]]), (0, 4)),
    ),
    "lanes: a sum": _between("%r = gpu.subgroup_reduce add %x : (f32) -> f32", lambda a: a.sum()),
    "lanes: the greatest": _between(
        "%r = gpu.subgroup_reduce maximumf %x : (f32) -> f32", lambda a: a.max()
    ),
    "lanes: one lane's value": _between(
        "%n = arith.constant 3 : i32\n%r = gpu.subgroup_broadcast %x, specific_lane %n : f32",
        lambda a: a[3],
    ),
    "lanes: values go round": _between(
        "%r, %ok = gpu.rotate %x, 3, 16 : f32", lambda a: np.roll(a, -3)
    ),
    "lanes: branches part them": _between(
        """%n = arith.constant 6 : index
        %z = arith.constant 0.0 : f32
        %c = arith.cmpi ult, %i, %n : index
        %r = scf.if %c -> (f32) {
        %y = arith.mulf %x, %x : f32
        scf.yield %y : f32 } else {
        %y = arith.subf %z, %x : f32
        scf.yield %y : f32 }""",
        lambda a: np.where(np.arange(16) < 6, a * a, -a),
    ),
    "lanes: loops of their own lengths": _between(
        """%r = scf.for %k = %c0 to %i step %c1 iter_args(%s = %x) -> (f32) {
        %y = memref.load %a[%k] : memref<16xf32>
        %n = arith.addf %s, %y : f32
        scf.yield %n : f32 }""",
        np.cumsum,
    ),
    "lanes: a block": _block("%r = arith.addf %x, %x : vector<8xf32>", lambda a: 2 * a),
    "lanes: sums of a block's rows": _block(
        "%r = gpu.subgroup_reduce add %x : (vector<8xf32>) -> vector<8xf32>",
        lambda a: a.sum(1, keepdims=True),
    ),
    "lanes: sums of a block's columns": _block(
        """%s = vector.reduction <add>, %x : vector<8xf32> into f32
        %r = vector.broadcast %s : f32 to vector<8xf32>""",
        lambda a: a.sum(0),
    ),
    "lanes: a product": _lanes(
        "a: f16 8x16, b: f16 16x16, c: f32 8x16",
        """load_nd %x = %a[0, 0] 8x16 -> vector<8xf16>
        load_nd %y = %b[0, 0] <{packed}> 16x16 -> vector<16xf16>
        %r = xegpu.dpas %x, %y : vector<8xf16>, vector<16xf16> -> vector<8xf32>
        %d = xegpu.create_nd_tdesc %c : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
        xegpu.store_nd %r, %d[0, 0] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>""",
        lambda a, b: a @ b,
        error=1e-5,
    ),
    "lanes: a gather": _lanes(
        "a: f32 64, b: f32 16",
        """%i = gpu.lane_id
        %n = arith.constant 3 : index
        %j = arith.muli %i, %n : index
        %x = memref.load %a[%j] : memref<64xf32>
        memref.store %x, %b[%i] : memref<16xf32>""",
        lambda a: a[:48:3],
    ),
    "lanes: an atomic sum": Program(
        "a: f32 16, b: f32 1",
        """%i = gpu.lane_id
        %x = memref.load %a[%i] : memref<16xf32>
        %o = memref.atomic_rmw addf %x, %b[%c0] : (f32, memref<1xf32>) -> f32""",
        lambda a, b: b.__iadd__(a.sum()),
        lanes=16,
        error=1e-5,
    ),
}
