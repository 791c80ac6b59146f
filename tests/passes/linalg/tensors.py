# ruff: noqa: E501
"""Programs on tensors: what users write around structured ops, and what mlir-opt leaves of them; with their meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.passes.linalg.cases import Case, softmax

_ELEMENTS = {"float32": "f32", "int32": "i32", "int8": "i8"}


def _case(
    inputs: str,
    result: str,
    body: str,
    meaning: Callable[..., Any],
    kernels: int = 1,
    peer: bool = True,
) -> Case:
    """`inputs`: `x float32 20 30, ..`, each also there as the tensor %tx; `body` defines %r."""
    specs = dict(each.strip().split(" ", 1) for each in inputs.split(","))
    lines: list[str] = []
    for name, spec in specs.items():
        kind, *shape = spec.split()
        type_ = "x".join([*shape, _ELEMENTS[kind]])
        lines.append(
            f"%t{name} = bufferization.to_tensor %{name} restrict : memref<{type_}> to tensor<{type_}>"
        )
    lines += [body, f"%o = bufferization.to_buffer %r : tensor<{result}> to memref<{result}>"]
    return Case(specs, f"memref<{result}>", "\n  ".join(lines), meaning, kernels=kernels, peer=peer)


def _empty(name: str, shape: str) -> str:
    return f"%{name} = tensor.empty() : tensor<{shape}xf32>\n  "


def _zero(name: str, shape: str) -> str:
    return (
        f"%{name}z = arith.constant 0.0 : f32\n  {_empty(name + 'e', shape)}"
        f"%{name} = linalg.fill ins(%{name}z : f32) outs(%{name}e : tensor<{shape}xf32>) -> tensor<{shape}xf32>\n  "
    )


def _tanh(result: str, source: str, into: str, shape: str) -> str:
    return f"%{result} = linalg.tanh ins(%{source} : tensor<{shape}xf32>) outs(%{into} : tensor<{shape}xf32>) -> tensor<{shape}xf32>"


_MAPPED = """%r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> ({0})>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
    ins(%tx : tensor<{1}xf32>) outs(%e : tensor<20x30xf32>) {{
  ^bb0(%a: f32, %b: f32):
    linalg.yield %a : f32
  }} -> tensor<20x30xf32>"""
_STEPS = "%c0 = arith.constant 0 : index\n  %c1 = arith.constant 1 : index\n  %c5 = arith.constant 5 : index\n  %c20 = arith.constant 20 : index\n  "


def _two_results(v: dict[str, Any]) -> Any:
    a = v["x"] * 1000000007
    a = (a + (1 << 31)) % (1 << 32) - (1 << 31)
    product, low_a = a * v["y"], a % (1 << 32)
    total = product % (1 << 32) + low_a
    return ((product >> 32) + (total >> 32)).astype(np.int32) ^ total.astype(np.uint32).view(
        np.int32
    )


def _undefined_at_zero(v: dict[str, Any]) -> Any:
    x, some = v["x"], v["y"] & 7 | 1
    return x // some + (x % (1 << 32)) % some + (x >> (some - 1)) + np.trunc(x / some).astype(int)


def _scattered(v: dict[str, Any]) -> Any:
    made = np.zeros_like(v["x"])
    made[:, [3, 29, 7]] = v["y"][:, 0].T - v["x"][:, [3, 29, 7]]
    return made


TENSORS: dict[str, Case] = {
    "softmax_op": _case(
        "x float32 6 20 33", "6x20x33xf32",
        _empty("e", "6x20x33") + "%r = linalg.softmax dimension(1) ins(%tx : tensor<6x20x33xf32>) outs(%e : tensor<6x20x33xf32>) -> tensor<6x20x33xf32>",
        lambda v: np.moveaxis(softmax(np.moveaxis(v["x"], 1, 2)), 2, 1), peer=False,
    ),
    "attention": _case(  # both products, and the softmax between them
        "q float32 2 16 8, k float32 2 24 8, v float32 2 24 8", "2x16x8xf32",
        _zero("f", "2x16x24") + """%s = linalg.batch_matmul indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (b, n, k)>, affine_map<(b, m, n, k) -> (b, m, n)>]
      ins(%tq, %tk : tensor<2x16x8xf32>, tensor<2x24x8xf32>) outs(%f : tensor<2x16x24xf32>) -> tensor<2x16x24xf32>
  %p = linalg.softmax dimension(2) ins(%s : tensor<2x16x24xf32>) outs(%fe : tensor<2x16x24xf32>) -> tensor<2x16x24xf32>
  """ + _zero("h", "2x16x8") + "%r = linalg.batch_matmul ins(%p, %tv : tensor<2x16x24xf32>, tensor<2x24x8xf32>) outs(%h : tensor<2x16x8xf32>) -> tensor<2x16x8xf32>",
        lambda v: softmax(v["q"] @ v["k"].swapaxes(1, 2)) @ v["v"], kernels=3, peer=False,
    ),
    "pack_ragged": _case(
        "x float32 13 30", "4x2x8x8xf32",
        _empty("e", "4x2x8x8") + """%p = arith.constant 3.5 : f32
  %r = linalg.pack %tx padding_value(%p : f32) outer_dims_perm = [1, 0] inner_dims_pos = [1, 0] inner_tiles = [8, 8] into %e : tensor<13x30xf32> -> tensor<4x2x8x8xf32>""",
        lambda v: np.pad(v["x"], ((0, 3), (0, 2)), constant_values=3.5).reshape(2, 8, 4, 8).transpose(2, 0, 3, 1), kernels=3, peer=False,
    ),
    "unpack_ragged": _case(
        "x float32 2 4 8 8", "13x30xf32",
        _empty("e", "13x30") + "%r = tensor.unpack %tx inner_dims_pos = [0, 1] inner_tiles = [8, 8] into %e : tensor<2x4x8x8xf32> -> tensor<13x30xf32>",
        lambda v: v["x"].transpose(0, 2, 1, 3).reshape(16, 32)[:13, :30], kernels=2, peer=False,
    ),
    "quantized": _case(
        "a int8 20 40, b int8 40 24", "20x24xi32",
        """%za = arith.constant 3 : i32
  %zb = arith.constant -5 : i32
  %z = arith.constant 0 : i32
  %e = tensor.empty() : tensor<20x24xi32>
  %f = linalg.fill ins(%z : i32) outs(%e : tensor<20x24xi32>) -> tensor<20x24xi32>
  %r = linalg.quantized_matmul ins(%ta, %tb, %za, %zb : tensor<20x40xi8>, tensor<40x24xi8>, i32, i32) outs(%f : tensor<20x24xi32>) -> tensor<20x24xi32>""",
        lambda v: (v["a"] - 3) @ (v["b"] + 5),
    ),
    "slice_alone": _case(
        "x float32 20 30", "5x7xf32",
        "%r = tensor.extract_slice %tx[3, 4] [5, 7] [2, 3] : tensor<20x30xf32> to tensor<5x7xf32>",
        lambda v: v["x"][3:13:2, 4:25:3],
    ),
    "pad": _case(
        "x float32 5 7", "9x10xf32",
        """%r = tensor.pad %tx low[1, 2] high[3, 1] {
  ^bb0(%i: index, %j: index):
    %s = arith.addi %i, %j : index
    %q = arith.index_cast %s : index to i32
    %f = arith.sitofp %q : i32 to f32
    tensor.yield %f : f32
  } : tensor<5x7xf32> to tensor<9x10xf32>""",
        lambda v: np.where(np.pad(np.ones((5, 7)), ((1, 3), (2, 1))) > 0, np.pad(v["x"], ((1, 3), (2, 1))), np.add.outer(np.arange(9), np.arange(10))), kernels=2,
    ),
    "pad_to": _case(  # what is known only at run time makes up a known extent
        "x float32 5 7", "8x10xf32",
        """%c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = arith.constant 2.5 : f32
  %d = tensor.cast %tx : tensor<5x7xf32> to tensor<?x7xf32>
  %m = tensor.dim %d, %c0 : tensor<?x7xf32>
  %h = affine.apply affine_map<()[s0] -> (8 - s0)>()[%m]
  %r = tensor.pad %d low[0, %c1] high[%h, 2] {
  ^bb0(%i: index, %j: index):
    tensor.yield %p : f32
  } : tensor<?x7xf32> to tensor<8x10xf32>""",
        lambda v: np.pad(v["x"], ((0, 3), (1, 2)), constant_values=2.5), kernels=2,
    ),
    "masked": _case(  # as mlir-opt vectorizes what has open extents
        "x float32 11 19", "11x19xf32",
        """%c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %c11 = arith.constant 11 : index
  %c19 = arith.constant 19 : index
  %p = ub.poison : f32
  %e = tensor.empty() : tensor<11x19xf32>
  %r = scf.for %i = %c0 to %c11 step %c4 iter_args(%a = %e) -> (tensor<11x19xf32>) {
    %q = scf.for %j = %c0 to %c19 step %c8 iter_args(%b = %a) -> (tensor<11x19xf32>) {
      %m = affine.min affine_map<(d0) -> (-d0 + 11, 4)>(%i)
      %n = affine.min affine_map<(d0) -> (-d0 + 19, 8)>(%j)
      %s = tensor.extract_slice %tx[%i, %j] [%m, %n] [1, 1] : tensor<11x19xf32> to tensor<?x?xf32>
      %t = tensor.extract_slice %b[%i, %j] [%m, %n] [1, 1] : tensor<11x19xf32> to tensor<?x?xf32>
      %k = vector.create_mask %m, %n : vector<4x8xi1>
      %v = vector.mask %k { vector.transfer_read %s[%c0, %c0], %p {in_bounds = [true, true]} : tensor<?x?xf32>, vector<4x8xf32> } : vector<4x8xi1> -> vector<4x8xf32>
      %w = arith.addf %v, %v : vector<4x8xf32>
      %u = vector.mask %k { vector.transfer_write %w, %t[%c0, %c0] {in_bounds = [true, true]} : vector<4x8xf32>, tensor<?x?xf32> } : vector<4x8xi1> -> tensor<?x?xf32>
      %o = tensor.insert_slice %u into %b[%i, %j] [%m, %n] [1, 1] : tensor<?x?xf32> into tensor<11x19xf32>
      scf.yield %o : tensor<11x19xf32>
    }
    scf.yield %q : tensor<11x19xf32>
  }""",
        lambda v: 2 * v["x"], kernels=0, peer=False,
    ),
    "reshape_to": _case(  # to extents that are values
        "x float32 6 4", "2x3x4xf32",
        """%c2 = arith.constant 2 : index
  %c12 = arith.constant 12 : index
  %s = tensor.from_elements %c2, %c12 : tensor<2xindex>
  %y = tensor.reshape %tx(%s) : (tensor<6x4xf32>, tensor<2xindex>) -> tensor<?x?xf32>
  %z = tensor.cast %y : tensor<?x?xf32> to tensor<2x12xf32>
  %b = tensor.bitcast %z : tensor<2x12xf32> to tensor<2x12xi32>
  %k = arith.constant dense<0x80000000> : tensor<2x12xi32>
  %n = arith.xori %b, %k : tensor<2x12xi32>
  %o2 = tensor.bitcast %n : tensor<2x12xi32> to tensor<2x12xf32>
  %r = tensor.expand_shape %o2 [[0], [1, 2]] output_shape [2, 3, 4] : tensor<2x12xf32> into tensor<2x3x4xf32>""",
        lambda v: -v["x"].reshape(2, 3, 4), peer=False,
    ),
    "concat": _case(
        "x float32 5 7, y float32 5 3", "5x10xf32",
        "%r = tensor.concat dim(1) %tx, %ty : (tensor<5x7xf32>, tensor<5x3xf32>) -> tensor<5x10xf32>",
        lambda v: np.concatenate([v["x"], v["y"]], 1), kernels=2, peer=False,
    ),
    "elements": _case(  # arith and math on whole tensors
        "x float32 20 30, y float32 20 30", "20x30xf32",
        """%k = arith.constant dense<0.5> : tensor<20x30xf32>
  %a = arith.mulf %tx, %k : tensor<20x30xf32>
  %b = math.tanh %a : tensor<20x30xf32>
  %c = arith.cmpf ogt, %b, %ty : tensor<20x30xf32>
  %r = arith.select %c, %a, %b : tensor<20x30xi1>, tensor<20x30xf32>""",
        lambda v: np.where(np.tanh(v["x"] / 2) > v["y"], v["x"] / 2, np.tanh(v["x"] / 2)), peer=False,
    ),
    "parts_in_a_loop": _case(
        "x float32 20 30", "20x30xf32",
        _STEPS + _empty("e", "20x30") + """%r = scf.for %i = %c0 to %c20 step %c5 iter_args(%a = %e) -> tensor<20x30xf32> {
    %s = tensor.extract_slice %tx[%i, 0] [5, 30] [1, 1] : tensor<20x30xf32> to tensor<5x30xf32>
    %d = tensor.extract_slice %a[%i, 0] [5, 30] [1, 1] : tensor<20x30xf32> to tensor<5x30xf32>
    """ + _tanh("b", "s", "d", "5x30") + """
    %n = tensor.insert_slice %b into %a[%i, 0] [5, 30] [1, 1] : tensor<5x30xf32> into tensor<20x30xf32>
    scf.yield %n : tensor<20x30xf32>
  }""",
        lambda v: np.tanh(v["x"]),
    ),
    "forall": _case(
        "x float32 20 30", "20x30xf32",
        _empty("e", "20x30") + """%r = scf.forall (%i, %j) = (0, 0) to (20, 30) step (5, 10) shared_outs(%a = %e) -> (tensor<20x30xf32>) {
    %s = tensor.extract_slice %tx[%i, %j] [5, 10] [1, 1] : tensor<20x30xf32> to tensor<5x10xf32>
    %d = tensor.extract_slice %a[%i, %j] [5, 10] [1, 1] : tensor<20x30xf32> to tensor<5x10xf32>
    """ + _tanh("b", "s", "d", "5x10") + """
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %b into %a[%i, %j] [5, 10] [1, 1] : tensor<5x10xf32> into tensor<20x30xf32>
    }
  }""",
        lambda v: np.tanh(v["x"]), peer=False,
    ),
    "gather": _case(
        "x float32 20 30, k int32 7", "7x30xf32",
        _empty("e", "7x30") + """%r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
    ins(%tk : tensor<7xi32>) outs(%e : tensor<7x30xf32>) {
  ^bb0(%a: i32, %b: f32):
    %four = arith.constant 4 : i32
    %p = arith.addi %a, %four : i32
    %q = arith.index_cast %p : i32 to index
    %j = linalg.index 1 : index
    %v = tensor.extract %tx[%q, %j] : tensor<20x30xf32>
    linalg.yield %v : f32
  } -> tensor<7x30xf32>""",
        lambda v: v["x"][v["k"] + 4],
    ),
    "gather_open": _case(
        "x float32 20 30", "30x20xf32",
        """%d = tensor.cast %tx : tensor<20x30xf32> to tensor<?x?xf32>
  %i0 = arith.constant 0 : index
  %i1 = arith.constant 1 : index
  %m = tensor.dim %d, %i0 : tensor<?x?xf32>
  %n = tensor.dim %d, %i1 : tensor<?x?xf32>
  %e = tensor.empty(%n, %m) : tensor<?x?xf32>
  %g = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
    ins(%d : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %i = linalg.index 0 : index
    %q = arith.remsi %i, %m : index
    %v = tensor.extract %d[%q, %i1] : tensor<?x?xf32>
    %s = arith.addf %a, %v : f32
    linalg.yield %s : f32
  } -> tensor<?x?xf32>
  %r = tensor.cast %g : tensor<?x?xf32> to tensor<30x20xf32>""",
        lambda v: v["x"].T + v["x"][np.arange(30) % 20, 1][:, None],
    ),
    "parallel_rounds_to_one_place": _case(
        "x float32 20 30", "20xf32",
        """%i = tensor.extract_slice %tx[0, 3] [20, 1] [1, 1] : tensor<20x30xf32> to tensor<20xf32>
  %l = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "parallel"]}
    ins(%tx : tensor<20x30xf32>) outs(%i : tensor<20xf32>) {
  ^bb0(%a: f32, %b: f32):
    linalg.yield %a : f32
  } -> tensor<20xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "parallel"]}
    ins(%tx : tensor<20x30xf32>) outs(%l : tensor<20xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<20xf32>""",
        lambda v: v["x"][:, -1] + v["x"].sum(1),
    ),
    "gather_slices": _case(
        "x float32 11 30 9, k int32 3 7 2", "3x7x30xf32",
        """%four = arith.constant dense<4> : tensor<3x7x2xi32>
  %p = arith.addi %tk, %four : tensor<3x7x2xi32>
  %g = tensor.gather %tx[%p] gather_dims([0, 2]) : (tensor<11x30x9xf32>, tensor<3x7x2xi32>) -> tensor<3x7x1x30x1xf32>
  %s = tensor.collapse_shape %g [[0], [1], [2, 3, 4]] : tensor<3x7x1x30x1xf32> into tensor<3x7x30xf32>
  %h = tensor.gather %tx[%p] gather_dims([0, 2]) unique : (tensor<11x30x9xf32>, tensor<3x7x2xi32>) -> tensor<3x7x30xf32>
  %r = arith.addf %s, %h : tensor<3x7x30xf32>""",
        lambda v: 2 * v["x"][v["k"][..., 0] + 4, :, v["k"][..., 1] + 4], kernels=2, peer=False,
    ),
    "scatter_slices": _case(  # to a tensor that is read again
        "x float32 20 30, y float32 3 1 20", "20x30xf32",
        """%p = arith.constant dense<[[[3]], [[29]], [[7]]]> : tensor<3x1x1xindex>
  %q = tensor.cast %p : tensor<3x1x1xindex> to tensor<?x1x1xindex>
  %z = tensor.cast %ty : tensor<3x1x20xf32> to tensor<?x1x20xf32>
  %s = tensor.scatter %z into %tx[%q] scatter_dims([1]) unique : (tensor<?x1x20xf32>, tensor<20x30xf32>, tensor<?x1x1xindex>) -> tensor<20x30xf32>
  %r = arith.subf %s, %tx : tensor<20x30xf32>""",
        _scattered, kernels=2, peer=False,
    ),
    "two_results": _case(
        "x int32 20 30, y int32 20 30", "20x30xi32",
        """%c = arith.constant dense<1000000007> : tensor<20x30xi32>
  %a = arith.muli %tx, %c : tensor<20x30xi32>
  %low, %high = arith.mulsi_extended %a, %ty : tensor<20x30xi32>
  %s, %over = arith.addui_extended %low, %a : tensor<20x30xi32>, tensor<20x30xi1>
  %w = arith.extui %over : tensor<20x30xi1> to tensor<20x30xi32>
  %p = arith.addi %high, %w : tensor<20x30xi32>
  %r = arith.xori %p, %s : tensor<20x30xi32>""",
        _two_results,
    ),
    "undefined_beyond_edges": _case(  # where operands are 0
        "x int32 20 30, y int32 20 30", "20x30xi32",
        """%one = arith.constant dense<1> : tensor<20x30xi32>
  %seven = arith.constant dense<7> : tensor<20x30xi32>
  %low = arith.andi %ty, %seven : tensor<20x30xi32>
  %some = arith.ori %low, %one : tensor<20x30xi32>
  %less = arith.subi %some, %one : tensor<20x30xi32>
  %d = arith.floordivsi %tx, %some : tensor<20x30xi32>
  %u = arith.remui %tx, %some : tensor<20x30xi32>
  %s = arith.shrsi %tx, %less : tensor<20x30xi32>
  %f = arith.sitofp %tx : tensor<20x30xi32> to tensor<20x30xf32>
  %g = arith.sitofp %some : tensor<20x30xi32> to tensor<20x30xf32>
  %q = arith.divf %f, %g : tensor<20x30xf32>
  %i = arith.fptosi %q : tensor<20x30xf32> to tensor<20x30xi32>
  %ds = arith.addi %d, %s : tensor<20x30xi32>
  %ui = arith.addi %u, %i : tensor<20x30xi32>
  %r = arith.addi %ds, %ui : tensor<20x30xi32>""",
        _undefined_at_zero,
    ),
    "rows_again": _case(
        "x float32 4 30", "20x30xf32", _empty("e", "20x30") + _MAPPED.format("i mod 4, j", "4x30"), lambda v: np.tile(v["x"], (5, 1)),
    ),
    "rows_repeated": _case(
        "x float32 4 30", "20x30xf32", _empty("e", "20x30") + _MAPPED.format("i floordiv 5, j", "4x30"), lambda v: np.repeat(v["x"], 5, 0),
    ),
    "backwards": _case(
        "x float32 20 30", "20x30xf32", _empty("e", "20x30") + _MAPPED.format("19 - i, 29 - j", "20x30"), lambda v: v["x"][::-1, ::-1],
    ),
}  # fmt: skip
