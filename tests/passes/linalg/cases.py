# ruff: noqa: E501
"""Programs of linalg with what numpy makes of their inputs, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.passes.linalg.programs import Array, drawn, program

F = np.float64


@dataclass(frozen=True)
class Case:
    """`inputs`: dtype and shape by name; `result`: the type of %o, which `body` defines; `kernels` that it makes."""

    inputs: Mapping[str, str]
    result: str
    body: str
    meaning: Callable[[Mapping[str, Any]], Any]
    kernels: int = 1
    bound: float = 2e-5
    peer: bool = True
    """Whether mlir-opt's passes for a CPU take all of its ops."""

    def draw(self) -> tuple[str, Array]:
        arrays: dict[str, Array] = {}
        for name, spec in self.inputs.items():
            kind, *shape = spec.split()
            arrays[name] = drawn(kind, *map(int, shape))
        wide = {
            n: a.astype(F) if a.dtype.kind != "i" else a.astype(np.int64) for n, a in arrays.items()
        }
        return program(self.body, arrays, {"o": self.result}), np.asarray(self.meaning(wide))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def windows(x: Array, kh: int, kw: int, step: int = 1, apart: int = 1) -> Array:
    """[n, oh, ow, kh, kw, c] of [n, h, w, c]."""
    high, wide = (
        (n - apart * (k - 1) - 1) // step + 1 for n, k in ((x.shape[1], kh), (x.shape[2], kw))
    )
    found = np.empty((x.shape[0], high, wide, kh, kw, x.shape[3]), x.dtype)
    for i, j in np.ndindex(kh, kw):
        part = x[
            :,
            apart * i : apart * i + step * high : step,
            apart * j : apart * j + step * wide : step,
        ]
        found[:, :, :, i, j] = part[:, :high, :wide]
    return found


def _zero(result: str, zero: str = "0.0") -> str:
    element = result.removeprefix("memref<").rpartition("x")[2].rstrip(">")
    return (
        f"%zero = arith.constant {zero} : {element}\n  %o = memref.alloc() : {result}\n"
        f"  linalg.fill ins(%zero : {element}) outs(%o : {result})\n  "
    )


SOFTMAX = """%top = memref.alloc() : memref<{m}xf32>
  %sum = memref.alloc() : memref<{m}xf32>
  %e = memref.alloc() : memref<{m}x{n}xf32>
  %o = memref.alloc() : memref<{m}x{n}xf32>
  %low = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%low : f32) outs(%top : memref<{m}xf32>)
  linalg.reduce {{ arith.maximumf }} ins(%x : memref<{m}x{n}xf32>) outs(%top : memref<{m}xf32>) dimensions = [1]
  linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}} ins(%x, %top : memref<{m}x{n}xf32>, memref<{m}xf32>) outs(%e : memref<{m}x{n}xf32>) {{
  ^bb0(%a: f32, %b: f32, %c: f32):
    %d = arith.subf %a, %b : f32
    %f = math.exp %d : f32
    linalg.yield %f : f32
  }}
  linalg.fill ins(%zero : f32) outs(%sum : memref<{m}xf32>)
  linalg.reduce {{ arith.addf }} ins(%e : memref<{m}x{n}xf32>) outs(%sum : memref<{m}xf32>) dimensions = [1]
  linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}} ins(%e, %sum : memref<{m}x{n}xf32>, memref<{m}xf32>) outs(%o : memref<{m}x{n}xf32>) {{
  ^bb0(%a: f32, %b: f32, %c: f32):
    %d = arith.divf %a, %b : f32
    linalg.yield %d : f32
  }}"""

CASES: dict[str, Case] = {
    "matmul": Case(
        {"a": "float32 70 33", "b": "float32 33 50"}, "memref<70x50xf32>",
        _zero("memref<70x50xf32>") + "linalg.matmul ins(%a, %b : memref<70x33xf32>, memref<33x50xf32>) outs(%o : memref<70x50xf32>)",
        lambda v: v["a"] @ v["b"],
    ),
    "matmul_bf16": Case(
        {"a": "bfloat16 40 96", "b": "bfloat16 72 96"}, "memref<40x72xf32>",
        _zero("memref<40x72xf32>") + """linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
          ins(%a, %b : memref<40x96xbf16>, memref<72x96xbf16>) outs(%o : memref<40x72xf32>)""",
        lambda v: v["a"] @ v["b"].T,
    ),
    "matmul_i8": Case(
        {"a": "int8 40 96", "b": "int8 96 24"}, "memref<40x24xi32>",
        _zero("memref<40x24xi32>", "0") + "linalg.matmul ins(%a, %b : memref<40x96xi8>, memref<96x24xi8>) outs(%o : memref<40x24xi32>)",
        lambda v: v["a"] @ v["b"], bound=0,
    ),
    "matmul_i32": Case(
        {"a": "int32 9 17", "b": "int32 17 20"}, "memref<9x20xi32>",
        _zero("memref<9x20xi32>", "0") + "linalg.matmul ins(%a, %b : memref<9x17xi32>, memref<17x20xi32>) outs(%o : memref<9x20xi32>)",
        lambda v: v["a"] @ v["b"], bound=0,
    ),
    "an op of two results": Case(
        {"a": "int32 9 20", "b": "int32 9 20"}, "memref<9x20xi32>",
        _zero("memref<9x20xi32>", "0") + """%three = arith.constant 3 : i32
        linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
          ins(%a, %b : memref<9x20xi32>, memref<9x20xi32>) outs(%o : memref<9x20xi32>) {
        ^bb0(%x: i32, %y: i32, %z: i32):
          %low, %high = arith.mulsi_extended %x, %y : i32
          %thrice = arith.muli %high, %three : i32
          %r = arith.addi %low, %thrice : i32
          linalg.yield %r : i32
        }""",
        lambda v: v["a"] * v["b"] - 3 * (v["a"] * v["b"] < 0), bound=0,
    ),
    "batch_matmul": Case(
        {"a": "float32 3 20 33", "b": "float32 3 33 40"}, "memref<3x20x40xf32>",
        _zero("memref<3x20x40xf32>") + "linalg.batch_matmul ins(%a, %b : memref<3x20x33xf32>, memref<3x33x40xf32>) outs(%o : memref<3x20x40xf32>)",
        lambda v: v["a"] @ v["b"],
    ),
    "heads": Case(  # attention's scores of heads that lie side by side: [m, h, k] [n, h, k] -> [h, m, n]
        {"a": "float32 20 3 16", "b": "float32 24 3 16"}, "memref<3x20x24xf32>",
        _zero("memref<3x20x24xf32>") + """linalg.contract indexing_maps = [affine_map<(h, m, n, k) -> (m, h, k)>, affine_map<(h, m, n, k) -> (n, h, k)>, affine_map<(h, m, n, k) -> (h, m, n)>]
          ins(%a, %b : memref<20x3x16xf32>, memref<24x3x16xf32>) outs(%o : memref<3x20x24xf32>)""",
        lambda v: np.einsum("mhk,nhk->hmn", v["a"], v["b"]),
    ),
    "mmt4d": Case(
        {"a": "float32 3 5 8 4", "b": "float32 2 5 8 4"}, "memref<3x2x8x8xf32>",
        _zero("memref<3x2x8x8xf32>") + "linalg.mmt4d ins(%a, %b : memref<3x5x8x4xf32>, memref<2x5x8x4xf32>) outs(%o : memref<3x2x8x8xf32>)",
        lambda v: np.einsum("mkac,nkbc->mnab", v["a"], v["b"]),
    ),
    "transposed_result": Case(
        {"a": "float32 20 33", "b": "float32 33 40"}, "memref<40x20xf32>",
        _zero("memref<40x20xf32>") + """linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (n, m)>]
          ins(%a, %b : memref<20x33xf32>, memref<33x40xf32>) outs(%o : memref<40x20xf32>)""",
        lambda v: (v["a"] @ v["b"]).T,
    ),
    "matvec": Case(
        {"a": "float32 37 300", "x": "float32 300"}, "memref<37xf32>",
        _zero("memref<37xf32>") + "linalg.matvec ins(%a, %x : memref<37x300xf32>, memref<300xf32>) outs(%o : memref<37xf32>)",
        lambda v: v["a"] @ v["x"],
    ),
    "vecmat": Case(
        {"x": "float32 100", "a": "float32 100 37"}, "memref<37xf32>",
        _zero("memref<37xf32>") + "linalg.vecmat ins(%x, %a : memref<100xf32>, memref<100x37xf32>) outs(%o : memref<37xf32>)",
        lambda v: v["x"] @ v["a"],
    ),
    "dot": Case(
        {"x": "float32 1000", "y": "float32 1000"}, "memref<f32>",
        _zero("memref<f32>") + "linalg.dot ins(%x, %y : memref<1000xf32>, memref<1000xf32>) outs(%o : memref<f32>)",
        lambda v: v["x"] @ v["y"],
        bound=1e-3,  # one sum of both signs, of which little may be left
    ),
    "epilogue": Case(
        {"a": "float32 40 33", "b": "float32 33 50", "bias": "float32 50", "r": "float32 40 50"}, "memref<40x50xf32>",
        _zero("memref<40x50xf32>").replace("%o", "%t") + """linalg.matmul ins(%a, %b : memref<40x33xf32>, memref<33x50xf32>) outs(%t : memref<40x50xf32>)
  %u = memref.alloc() : memref<40x50xf32>
  %w = memref.alloc() : memref<40x50xf32>
  %o = memref.alloc() : memref<40x50xf32>
  linalg.broadcast ins(%bias : memref<50xf32>) outs(%u : memref<40x50xf32>) dimensions = [0]
  linalg.add ins(%t, %u : memref<40x50xf32>, memref<40x50xf32>) outs(%w : memref<40x50xf32>)
  linalg.map { math.tanh } ins(%w : memref<40x50xf32>) outs(%u : memref<40x50xf32>)
  linalg.add ins(%u, %r : memref<40x50xf32>, memref<40x50xf32>) outs(%o : memref<40x50xf32>)""",
        lambda v: np.tanh(v["a"] @ v["b"] + v["bias"]) + v["r"],
    ),
    "prologue": Case(  # cosine of what lies outside is 1: it must not be multiplied
        {"a": "float32 40 33", "b": "float32 33 50"}, "memref<40x50xf32>",
        _zero("memref<40x50xf32>") + """%t = memref.alloc() : memref<40x33xf32>
  %u = memref.alloc() : memref<33x50xf32>
  linalg.map { math.cos } ins(%a : memref<40x33xf32>) outs(%t : memref<40x33xf32>)
  linalg.map { math.cos } ins(%b : memref<33x50xf32>) outs(%u : memref<33x50xf32>)
  linalg.matmul ins(%t, %u : memref<40x33xf32>, memref<33x50xf32>) outs(%o : memref<40x50xf32>)""",
        lambda v: np.cos(v["a"]) @ np.cos(v["b"]),
    ),
    "two_products": Case(
        {"a": "float32 20 33", "b": "float32 33 50", "c": "float32 33 50"}, "memref<20x50xf32>",
        _zero("memref<20x50xf32>").replace("%o", "%t") + """%u = memref.alloc() : memref<20x50xf32>
  %o = memref.alloc() : memref<20x50xf32>
  linalg.fill ins(%zero : f32) outs(%u : memref<20x50xf32>)
  linalg.matmul ins(%a, %b : memref<20x33xf32>, memref<33x50xf32>) outs(%t : memref<20x50xf32>)
  linalg.matmul ins(%a, %c : memref<20x33xf32>, memref<33x50xf32>) outs(%u : memref<20x50xf32>)
  linalg.mul ins(%t, %u : memref<20x50xf32>, memref<20x50xf32>) outs(%o : memref<20x50xf32>)""",
        lambda v: (v["a"] @ v["b"]) * (v["a"] @ v["c"]),
    ),
    "chain": Case(  # a product of a product: the first is in memory
        {"a": "float32 20 33", "b": "float32 33 50", "c": "float32 50 24"}, "memref<20x24xf32>",
        _zero("memref<20x24xf32>") + """%t = memref.alloc() : memref<20x50xf32>
  linalg.fill ins(%zero : f32) outs(%t : memref<20x50xf32>)
  linalg.matmul ins(%a, %b : memref<20x33xf32>, memref<33x50xf32>) outs(%t : memref<20x50xf32>)
  linalg.matmul ins(%t, %c : memref<20x50xf32>, memref<50x24xf32>) outs(%o : memref<20x24xf32>)""",
        lambda v: v["a"] @ v["b"] @ v["c"], kernels=2,
    ),
    "conv_hwcf": Case(
        {"x": "float32 2 9 11 6", "w": "float32 3 3 6 8"}, "memref<2x7x9x8xf32>",
        _zero("memref<2x7x9x8xf32>") + "linalg.conv_2d_nhwc_hwcf ins(%x, %w : memref<2x9x11x6xf32>, memref<3x3x6x8xf32>) outs(%o : memref<2x7x9x8xf32>)",
        lambda v: np.einsum("nhwijc,ijcf->nhwf", windows(v["x"], 3, 3), v["w"]),
    ),
    "conv_steps": Case(
        {"x": "float32 1 13 15 6", "w": "float32 3 2 6 8"}, "memref<1x5x7x8xf32>",
        _zero("memref<1x5x7x8xf32>") + """linalg.conv_2d_nhwc_hwcf {strides = dense<2> : tensor<2xi64>, dilations = dense<2> : tensor<2xi64>}
          ins(%x, %w : memref<1x13x15x6xf32>, memref<3x2x6x8xf32>) outs(%o : memref<1x5x7x8xf32>)""",
        lambda v: np.einsum("nhwijc,ijcf->nhwf", windows(v["x"], 3, 2, 2, 2)[:, :5, :7], v["w"]),
    ),
    "conv_nchw": Case(
        {"x": "float32 2 6 9 11", "w": "float32 8 6 3 3"}, "memref<2x8x7x9xf32>",
        _zero("memref<2x8x7x9xf32>") + "linalg.conv_2d_nchw_fchw ins(%x, %w : memref<2x6x9x11xf32>, memref<8x6x3x3xf32>) outs(%o : memref<2x8x7x9xf32>)",
        lambda v: np.einsum("nhwijc,fcij->nfhw", windows(v["x"].transpose(0, 2, 3, 1), 3, 3), v["w"]),
    ),
    "conv_1d": Case(
        {"x": "float32 90", "w": "float32 7"}, "memref<84xf32>",
        _zero("memref<84xf32>") + "linalg.conv_1d ins(%x, %w : memref<90xf32>, memref<7xf32>) outs(%o : memref<84xf32>)",
        lambda v: np.correlate(v["x"], v["w"]),
    ),
    "depthwise": Case(
        {"x": "float32 1 9 11 20", "w": "float32 3 3 20"}, "memref<1x7x9x20xf32>",
        _zero("memref<1x7x9x20xf32>") + "linalg.depthwise_conv_2d_nhwc_hwc ins(%x, %w : memref<1x9x11x20xf32>, memref<3x3x20xf32>) outs(%o : memref<1x7x9x20xf32>)",
        lambda v: np.einsum("nhwijc,ijc->nhwc", windows(v["x"], 3, 3), v["w"]),
    ),
    "pooling": Case(
        {"x": "float32 1 9 11 20", "w": "float32 3 2"}, "memref<1x4x5x20xf32>",
        _zero("memref<1x4x5x20xf32>", "0xFF800000") + "linalg.pooling_nhwc_max {strides = dense<2> : tensor<2xi64>, dilations = dense<1> : tensor<2xi64>} ins(%x, %w : memref<1x9x11x20xf32>, memref<3x2xf32>) outs(%o : memref<1x4x5x20xf32>)",
        lambda v: windows(v["x"], 3, 2, 2).max((3, 4)),
    ),
    "softmax": Case(
        {"x": "float32 13 200"}, "memref<13x200xf32>", SOFTMAX.format(m=13, n=200), lambda v: softmax(v["x"])
    ),
    "softmax_long": Case(
        {"x": "float32 3 5000"}, "memref<3x5000xf32>", SOFTMAX.format(m=3, n=5000), lambda v: softmax(v["x"])
    ),
    "columns": Case(
        {"x": "float32 70 45"}, "memref<45xf32>",
        _zero("memref<45xf32>") + "linalg.reduce { arith.addf } ins(%x : memref<70x45xf32>) outs(%o : memref<45xf32>) dimensions = [0]",
        lambda v: v["x"].sum(0),
    ),
    "middle": Case(
        {"x": "float32 5 17 40"}, "memref<5x40xf32>",
        _zero("memref<5x40xf32>", "0xFF800000") + "linalg.reduce { arith.maximumf } ins(%x : memref<5x17x40xf32>) outs(%o : memref<5x40xf32>) dimensions = [1]",
        lambda v: v["x"].max(1),
    ),
    "centred_columns": Case(  # a sum over rows, read again by every row
        {"x": "float32 70 45"}, "memref<70x45xf32>",
        _zero("memref<45xf32>").replace("%o", "%s") + """%o = memref.alloc() : memref<70x45xf32>
  linalg.reduce { arith.addf } ins(%x : memref<70x45xf32>) outs(%s : memref<45xf32>) dimensions = [0]
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%x, %s : memref<70x45xf32>, memref<45xf32>) outs(%o : memref<70x45xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %n = arith.constant 70.0 : f32
    %m = arith.divf %b, %n : f32
    %d = arith.subf %a, %m : f32
    linalg.yield %d : f32
  }""",
        lambda v: v["x"] - v["x"].mean(0),
    ),
    "transpose": Case(
        {"x": "float32 30 45"}, "memref<45x30xf32>",
        "%o = memref.alloc() : memref<45x30xf32>\n  linalg.transpose ins(%x : memref<30x45xf32>) outs(%o : memref<45x30xf32>) permutation = [1, 0]",
        lambda v: v["x"].T,
    ),
    "permuted": Case(
        {"x": "float32 3 4 5 6"}, "memref<5x3x6x4xf32>",
        "%o = memref.alloc() : memref<5x3x6x4xf32>\n  linalg.transpose ins(%x : memref<3x4x5x6xf32>) outs(%o : memref<5x3x6x4xf32>) permutation = [2, 0, 3, 1]",
        lambda v: v["x"].transpose(2, 0, 3, 1),
    ),
    "diagonal": Case(
        {"x": "float32 40 40"}, "memref<40xf32>",
        """%o = memref.alloc() : memref<40xf32>
  linalg.generic {indexing_maps = [affine_map<(i) -> (i, i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : memref<40x40xf32>) outs(%o : memref<40xf32>) {
  ^bb0(%a: f32, %c: f32):
    linalg.yield %a : f32
  }""",
        lambda v: np.diagonal(v["x"]),
    ),
    "positions": Case(
        {"x": "float32 30 45"}, "memref<30x45xf32>",
        """%o = memref.alloc() : memref<30x45xf32>
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<30x45xf32>) outs(%o : memref<30x45xf32>) {
  ^bb0(%a: f32, %c: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %keep = arith.cmpi sge, %i, %j : index
    %z = arith.constant 0.0 : f32
    %r = arith.select %keep, %a, %z : f32
    linalg.yield %r : f32
  }""",
        lambda v: np.tril(v["x"]),
    ),
    "argmax": Case(  # two results that go on together
        {"x": "float32 12 40"}, "memref<12xi32>",
        """%o = memref.alloc() : memref<12xi32>
  %best = memref.alloc() : memref<12xf32>
  %low = arith.constant 0xFF800000 : f32
  %none = arith.constant -1 : i32
  linalg.fill ins(%low : f32) outs(%best : memref<12xf32>)
  linalg.fill ins(%none : i32) outs(%o : memref<12xi32>)
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : memref<12x40xf32>) outs(%best, %o : memref<12xf32>, memref<12xi32>) {
  ^bb0(%a: f32, %b: f32, %n: i32):
    %j = linalg.index 1 : index
    %k = arith.index_cast %j : index to i32
    %more = arith.cmpf ogt, %a, %b : f32
    %v = arith.select %more, %a, %b : f32
    %p = arith.select %more, %k, %n : i32
    linalg.yield %v, %p : f32, i32
  }""",
        lambda v: v["x"].argmax(1), bound=0,
    ),
    "in_place": Case(
        {"x": "float32 30 45"}, "memref<30x45xf32>",
        """%o = memref.alloc() : memref<30x45xf32>
  linalg.copy ins(%x : memref<30x45xf32>) outs(%o : memref<30x45xf32>)
  linalg.map { math.exp } ins(%o : memref<30x45xf32>) outs(%o : memref<30x45xf32>)
  linalg.mul ins(%o, %x : memref<30x45xf32>, memref<30x45xf32>) outs(%o : memref<30x45xf32>)""",
        lambda v: np.exp(v["x"]) * v["x"],
    ),
    "halves": Case(
        {"a": "float16 20 64", "b": "float16 64 40"}, "memref<20x40xf32>",
        """%h = memref.alloc() : memref<20x40xf16>
  %o = memref.alloc() : memref<20x40xf32>
  %zero = arith.constant 0.0 : f16
  linalg.fill ins(%zero : f16) outs(%h : memref<20x40xf16>)
  linalg.matmul ins(%a, %b : memref<20x64xf16>, memref<64x40xf16>) outs(%h : memref<20x40xf16>)
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%h : memref<20x40xf16>) outs(%o : memref<20x40xf32>) {
  ^bb0(%x: f16, %y: f32):
    %w = arith.extf %x : f16 to f32
    linalg.yield %w : f32
  }""",
        lambda v: v["a"] @ v["b"], bound=3e-3,
    ),
    "dynamic": Case(
        {"a": "float32 30 45", "b": "float32 45 20"}, "memref<?x?xf32>",
        """%da = memref.cast %a : memref<30x45xf32> to memref<?x?xf32>
  %db = memref.cast %b : memref<45x20xf32> to memref<?x?xf32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = memref.dim %da, %c0 : memref<?x?xf32>
  %n = memref.dim %db, %c1 : memref<?x?xf32>
  %o = memref.alloc(%m, %n) : memref<?x?xf32>
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%o : memref<?x?xf32>)
  linalg.matmul ins(%da, %db : memref<?x?xf32>, memref<?x?xf32>) outs(%o : memref<?x?xf32>)""",
        lambda v: v["a"] @ v["b"],
    ),
    "part": Case(  # a part of a memref, in place of all of it
        {"a": "float32 30 45", "b": "float32 20 24"}, "memref<16x24xf32>",
        _zero("memref<16x24xf32>") + """%p = memref.subview %a[3, 5] [16, 20] [1, 2] : memref<30x45xf32> to memref<16x20xf32, strided<[45, 2], offset: 140>>
  linalg.matmul ins(%p, %b : memref<16x20xf32, strided<[45, 2], offset: 140>>, memref<20x24xf32>) outs(%o : memref<16x24xf32>)""",
        lambda v: v["a"][3:19, 5:45:2] @ v["b"],
    ),
    "tensors": Case(
        {"a": "float32 30 45", "b": "float32 45 20"}, "memref<30x20xf32>",
        """%ta = bufferization.to_tensor %a restrict : memref<30x45xf32> to tensor<30x45xf32>
  %tb = bufferization.to_tensor %b restrict : memref<45x20xf32> to tensor<45x20xf32>
  %k = arith.constant dense<0.5> : tensor<20xf32>
  %e = tensor.empty() : tensor<30x20xf32>
  %zero = arith.constant 0.0 : f32
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<30x20xf32>) -> tensor<30x20xf32>
  %p = linalg.matmul ins(%ta, %tb : tensor<30x45xf32>, tensor<45x20xf32>) outs(%z : tensor<30x20xf32>) -> tensor<30x20xf32>
  %w = linalg.broadcast ins(%k : tensor<20xf32>) outs(%e : tensor<30x20xf32>) dimensions = [0]
  %q = linalg.add ins(%p, %w : tensor<30x20xf32>, tensor<30x20xf32>) outs(%e : tensor<30x20xf32>) -> tensor<30x20xf32>
  %o = bufferization.to_buffer %q : tensor<30x20xf32> to memref<30x20xf32>""",
        lambda v: v["a"] @ v["b"] + 0.5,
    ),
    "tensors_of_parts": Case(  # memory with strides, which a tensor's type does not tell
        {"a": "float32 30 45", "b": "float32 20 24"}, "memref<16x24xf32>",
        """%p = memref.subview %a[3, 5] [16, 20] [1, 2] : memref<30x45xf32> to memref<16x20xf32, strided<[45, 2], offset: 140>>
  %tp = bufferization.to_tensor %p restrict : memref<16x20xf32, strided<[45, 2], offset: 140>> to tensor<16x20xf32>
  %tb = bufferization.to_tensor %b restrict : memref<20x24xf32> to tensor<20x24xf32>
  %z = arith.constant dense<0.0> : tensor<16x24xf32>
  %q = linalg.matmul ins(%tp, %tb : tensor<16x20xf32>, tensor<20x24xf32>) outs(%z : tensor<16x24xf32>) -> tensor<16x24xf32>
  %m = bufferization.to_buffer %q : tensor<16x24xf32> to memref<16x24xf32, strided<[?, ?], offset: ?>>
  %o = memref.cast %m : memref<16x24xf32, strided<[?, ?], offset: ?>> to memref<16x24xf32>""",
        lambda v: v["a"][3:19, 5:45:2] @ v["b"],
    ),
}  # fmt: skip
