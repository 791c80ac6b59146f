"""vector and memref: contractions, transfers, slices, masks, and views of memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.draws import fresh_rng
from tests.reference.kernels import run
from tests.reference.meanings.evaluate import evaluate
from tilewright.diagnostics import CheckError


def contraction(maps: str, types: tuple[str, str, str], out: str) -> str:
    names = " ".join(f"d{i}," for i in range(4)).rstrip(",")
    affine = ", ".join(f"affine_map<({names}) -> ({m})>" for m in maps.split(" | "))
    return f"""
  %r = vector.contract {{indexing_maps = [{affine}], iterator_types = ITERATORS,
    kind = #vector.kind<add>}} %0, %1, %2 : {types[0]}, {types[1]} into {types[2]}
"""


@pytest.mark.parametrize(
    ("maps", "einsum", "shapes"),
    [
        ("d0, d1, d3 | d0, d3, d2 | d0, d1, d2", "bmk,bkn->bmn", ((2, 3, 5), (2, 5, 4), (2, 3, 4))),
        ("d3, d1, d0 | d2, d3, d0 | d2, d0, d1", "kmb,nkb->nbm", ((5, 3, 2), (4, 5, 2), (4, 2, 3))),
    ],
)
def test_contract(maps: str, einsum: str, shapes: Any):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in shapes[:2])
    c = rng.standard_normal(shapes[2]).astype(np.float32)
    types = tuple(f"vector<{'x'.join(map(str, s))}xf32>" for s in shapes)
    text = contraction(maps, types, "f32").replace(  # type: ignore[arg-type]
        "ITERATORS", '["parallel", "parallel", "parallel", "reduction"]'
    )
    given = evaluate(text, [a, b, c], "f32", shapes[2])
    expected = np.einsum(einsum, a.astype(float), b.astype(float)) + c
    assert np.linalg.norm(given - expected) <= 1e-6 * np.linalg.norm(expected)


def test_contract_of_bytes_is_exact():
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((3, 70), (70, 4)))
    c = rng.integers(-1000, 1000, (3, 4)).astype(np.int32)
    text = """
  %r = vector.contract {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>,
    affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>],
    iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>}
    %0, %1, %2 : vector<3x70xi8>, vector<70x4xi8> into vector<3x4xi32>
"""
    given = evaluate(text, [a, b, c], "i32", (3, 4))
    assert (given == a.astype(int) @ b.astype(int) + c).all()


def test_transfers_pad_permute_and_mask():
    rng = np.random.default_rng(2)
    a, got = rng.random((5, 7), np.float32), np.zeros((4, 3), np.float32)
    out = np.zeros((5, 7), np.float32)
    body = """
  %p = arith.constant 8.0 : f32
  %v = vector.transfer_read %a[%c3, %c2], %p {permutation_map = affine_map<(d0, d1) -> (d1, d0)>}
    : memref<5x7xf32>, vector<4x3xf32>
  vector.store %v, %got[%c0, %c0] : memref<4x3xf32>, vector<4x3xf32>
  vector.transfer_write %v, %out[%c3, %c2] {permutation_map = affine_map<(d0, d1) -> (d1, d0)>}
    : vector<4x3xf32>, memref<5x7xf32>
"""
    run("%a: memref<5x7xf32>, %got: memref<4x3xf32>, %out: memref<5x7xf32>", body, [a, got, out])
    padded = np.full((6, 6), 8, np.float32)
    padded[:2, :5] = a[3:, 2:]
    assert (got == padded[:3, :4].T).all()
    expected = np.zeros((5, 7), np.float32)
    expected[3:, 2:6] = a[3:, 2:6]
    assert (out == expected).all()
    promise = body.replace("{permutation_map", "{in_bounds = [true, true], permutation_map")
    with pytest.raises(CheckError, match="outside its memref"):
        run(
            "%a: memref<5x7xf32>, %got: memref<4x3xf32>, %out: memref<5x7xf32>",
            promise,
            [a, got, out],
        )


def test_a_mask_keeps_a_promise_of_bounds():
    """As mlir-opt vectorizes with masks: what they leave out may lie outside, nothing else may."""
    a, out = fresh_rng().random((5, 7), np.float32), np.zeros((5, 7), np.float32)
    body = """
  %rows = arith.constant 5 : index
  %columns = arith.constant 7 : index
  %p = arith.constant 8.0 : f32
  %m = vector.create_mask %rows, %columns : vector<8x8xi1>
  %v = vector.mask %m { vector.transfer_read %a[%c0, %c0], %p {in_bounds = [true, true]}
    : memref<5x7xf32>, vector<8x8xf32> } : vector<8x8xi1> -> vector<8x8xf32>
  vector.transfer_write %v, %out[%c0, %c0], %m {in_bounds = [true, true]} : vector<8x8xf32>, memref<5x7xf32>
"""
    run("%a: memref<5x7xf32>, %out: memref<5x7xf32>", body, [a, out])
    assert (out == a).all()
    with pytest.raises(CheckError, match="outside its memref"):
        wider = body.replace("%columns = arith.constant 7", "%columns = arith.constant 8")
        run("%a: memref<5x7xf32>, %out: memref<5x7xf32>", wider, [a, out])


def test_pieces_and_shapes():
    a = np.arange(48, dtype=np.float32).reshape(2, 3, 8)
    cases = [
        ("%r = vector.shape_cast %0 : vector<2x3x8xf32> to vector<6x8xf32>", a.reshape(6, 8)),
        (
            "%r = vector.transpose %0, [2, 0, 1] : vector<2x3x8xf32> to vector<8x2x3xf32>",
            a.transpose(2, 0, 1),
        ),
        ("%r = vector.extract %0[1] : vector<3x8xf32> from vector<2x3x8xf32>", a[1]),
        (
            "%r = vector.extract_strided_slice %0 {offsets = [0, 1, 2], sizes = [2, 2, 4], "
            "strides = [1, 1, 1]} : vector<2x3x8xf32> to vector<2x2x4xf32>",
            a[:, 1:3, 2:6],
        ),
        (
            "%s = vector.extract %0[1] : vector<3x8xf32> from vector<2x3x8xf32>\n"
            "%r = vector.insert %s, %0[0] : vector<3x8xf32> into vector<2x3x8xf32>",
            np.stack([a[1], a[1]]),
        ),
        (
            "%s = vector.extract_strided_slice %0 {offsets = [1, 0, 0], sizes = [1, 2, 4], "
            "strides = [1, 1, 1]} : vector<2x3x8xf32> to vector<1x2x4xf32>\n"
            "%r = vector.insert_strided_slice %s, %0 {offsets = [0, 1, 4], strides = [1, 1, 1]} "
            ": vector<1x2x4xf32> into vector<2x3x8xf32>",
            None,
        ),
    ]
    for text, expected in cases:
        if expected is None:
            expected = a.copy()
            expected[0, 1:3, 4:8] = a[1, :2, :4]
        assert (evaluate(text, [a], "f32", expected.shape) == expected).all(), text


def test_dynamic_positions_differ_between_workgroups():
    a, out = np.arange(6, dtype=np.float32), np.zeros((4, 6), np.float32)
    body = """
  %i = gpu.block_id x
  %v = vector.load %a[%c0] : memref<6xf32>, vector<6xf32>
  %e = vector.extract %v[%i] : f32 from vector<6xf32>
  %d = arith.addf %e, %e : f32
  %w = vector.insert %d, %v[%i] : f32 into vector<6xf32>
  vector.store %w, %out[%i, %c0] : memref<4x6xf32>, vector<6xf32>
"""
    run("%a: memref<6xf32>, %out: memref<4x6xf32>", body, [a, out], (4,))
    for i in range(4):
        expected = a.copy()
        expected[i] *= 2
        assert (out[i] == expected).all()


def test_masks_and_masked_memory():
    a, out = np.arange(8, dtype=np.float32), np.full(8, -1, np.float32)
    got = np.zeros(8, np.float32)
    body = """
  %m = vector.create_mask %c5 : vector<8xi1>
  %p = arith.constant dense<9.0> : vector<8xf32>
  %v = vector.maskedload %a[%c0], %m, %p : memref<8xf32>, vector<8xi1>, vector<8xf32> into vector<8xf32>
  vector.store %v, %got[%c0] : memref<8xf32>, vector<8xf32>
  vector.maskedstore %out[%c0], %m, %v : memref<8xf32>, vector<8xi1>, vector<8xf32>
"""
    run("%a: memref<8xf32>, %got: memref<8xf32>, %out: memref<8xf32>", body, [a, got, out])
    assert got.tolist() == [0, 1, 2, 3, 4, 9, 9, 9]
    assert out.tolist() == [0, 1, 2, 3, 4, -1, -1, -1]


def test_some_of_a_row():
    """What a mask takes lies in memory one behind the other, and the rest of memory stays."""
    a, out = np.arange(8, dtype=np.float32), np.full(8, -1, np.float32)
    got = np.zeros(8, np.float32)
    body = """
  %m = arith.constant dense<[true, false, false, true, true, false, false, true]> : vector<8xi1>
  %p = arith.constant dense<9.0> : vector<8xf32>
  %v = vector.expandload %a[%c2], %m, %p : memref<8xf32>, vector<8xi1>, vector<8xf32> into vector<8xf32>
  vector.store %v, %got[%c0] : memref<8xf32>, vector<8xf32>
  vector.compressstore %out[%c2], %m, %v : memref<8xf32>, vector<8xi1>, vector<8xf32>
"""
    run("%a: memref<8xf32>, %got: memref<8xf32>, %out: memref<8xf32>", body, [a, got, out])
    assert got.tolist() == [2, 9, 9, 3, 4, 9, 9, 5]
    assert out.tolist() == [-1, -1, 2, 3, 4, 5, -1, -1]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_reductions_round_once(dtype: Any):
    """A sum that would lose every small term if it were rounded at each step."""
    element = {2: "f16", 4: "f32"}[np.dtype(dtype).itemsize]
    element = "bf16" if dtype is ml_dtypes.bfloat16 else element
    eps = float(ml_dtypes.finfo(dtype).eps)
    a = np.full(65, eps / 4, dtype)
    a[0] = 1
    text = f"""
  %s = vector.reduction <add>, %0 : vector<65x{element}> into {element}
  %r = vector.broadcast %s : {element} to vector<1x{element}>
"""
    assert float(evaluate(text, [a], element, (1,))[0]) == 1 + 16 * eps


def test_multi_reduction_with_an_accumulator():
    a = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    c = np.full(3, 100, np.int32)
    text = "%r = vector.multi_reduction <maxsi>, %0, %1 [0, 2] : vector<2x3x4xi32> to vector<3xi32>"
    assert evaluate(text, [a, c], "i32", (3,)).tolist() == [100, 100, 100]
    text = text.replace("maxsi", "add")
    assert evaluate(text, [a, c], "i32", (3,)).tolist() == (a.sum((0, 2)) + 100).tolist()


def test_views_of_memory():
    a = np.arange(48, dtype=np.float32).reshape(6, 8)
    out = np.zeros(4, np.float32)
    body = """
  %s = memref.subview %a[1, 2] [4, 3] [1, 2] : memref<6x8xf32>
    to memref<4x3xf32, strided<[8, 2], offset: 10>>
  %v0 = memref.load %s[%c2, %c1] : memref<4x3xf32, strided<[8, 2], offset: 10>>
  memref.store %v0, %out[%c0] : memref<4xf32>
  %f = memref.collapse_shape %a [[0, 1]] : memref<6x8xf32> into memref<48xf32>
  %v1 = memref.load %f[%c17] : memref<48xf32>
  memref.store %v1, %out[%c1] : memref<4xf32>
  %row = memref.subview %a[3, 0] [1, 8] [1, 1] : memref<6x8xf32>
    to memref<8xf32, strided<[1], offset: 24>>
  %v2 = memref.load %row[%c3] : memref<8xf32, strided<[1], offset: 24>>
  memref.store %v2, %out[%c2] : memref<4xf32>
  %r = memref.reinterpret_cast %a to offset: [9], sizes: [2, 2], strides: [16, 3]
    : memref<6x8xf32> to memref<2x2xf32, strided<[16, 3], offset: 9>>
  %v3 = memref.load %r[%c1, %c1] : memref<2x2xf32, strided<[16, 3], offset: 9>>
  memref.store %v3, %out[%c3] : memref<4xf32>
"""
    run("%a: memref<6x8xf32>, %out: memref<4xf32>", body, [a, out])
    assert out.tolist() == [a[3, 4], a[2, 1], a[3, 3], a.ravel()[9 + 16 + 3]]


def test_bytes_of_slm_as_another_type():
    out = np.zeros(2, np.float32)
    body = """
  %raw = memref.alloc() : memref<64xi8, 3>
  %v = memref.view %raw[%c8][] : memref<64xi8, 3> to memref<4xf32, 3>
  %x = arith.constant 1.5 : f32
  memref.store %x, %v[%c1] : memref<4xf32, 3>
  %y = memref.load %v[%c1] : memref<4xf32, 3>
  memref.store %y, %out[%c0] : memref<2xf32>
  %byte = memref.load %raw[%c15] : memref<64xi8, 3>
  %f = arith.sitofp %byte : i8 to f32
  memref.store %f, %out[%c1] : memref<2xf32>
"""
    assert run("%out: memref<2xf32>", body, [out], check=True).ok
    top_byte = np.float32(1.5).view(np.uint32) >> 24
    assert out.tolist() == [1.5, float(top_byte)]
