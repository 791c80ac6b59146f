"""Ops that move or combine components, on x86 against numpy; the rearrangements also on the other cuts, by emission."""

import numpy as np
import pytest

from tests.codegen.harness import LEVELS, map_vectors, module
from tilewright.codegen import emit_module, nvptx, spirv, x86
from tilewright.codegen.remote import generate_ptx, generate_spirv

F32, I32 = np.float32, np.int32

MOVES = [
    (
        "vector.shape_cast %x0 : vector<4x8xf32> to vector<32xf32>",
        (4, 8),
        (32,),
        lambda x: x.reshape(32),
    ),
    (
        "vector.shape_cast %x0 : vector<32xf32> to vector<2x16xf32>",
        (32,),
        (2, 16),
        lambda x: x.reshape(2, 16),
    ),
    (
        "vector.shape_cast %x0 : vector<6x4xf32> to vector<2x12xf32>",
        (6, 4),
        (2, 12),
        lambda x: x.reshape(2, 12),
    ),
    (
        "vector.shape_cast %x0 : vector<16xf32> to vector<16x1xf32>",
        (16,),
        (16, 1),
        lambda x: x.reshape(16, 1),
    ),
    (
        "vector.transpose %x0, [1, 0] : vector<16x16xf32> to vector<16x16xf32>",
        (16, 16),
        (16, 16),
        lambda x: x.T,
    ),
    (
        "vector.transpose %x0, [1, 0] : vector<8x8xf32> to vector<8x8xf32>",
        (8, 8),
        (8, 8),
        lambda x: x.T,
    ),
    (
        "vector.transpose %x0, [1, 0] : vector<3x5xf32> to vector<5x3xf32>",
        (3, 5),
        (5, 3),
        lambda x: x.T,
    ),
    (
        "vector.transpose %x0, [2, 0, 1] : vector<2x3x4xf32> to vector<4x2x3xf32>",
        (2, 3, 4),
        (4, 2, 3),
        lambda x: x.transpose(2, 0, 1),
    ),
    (
        "vector.broadcast %x0 : vector<8xf32> to vector<3x8xf32>",
        (8,),
        (3, 8),
        lambda x: np.broadcast_to(x, (3, 8)),
    ),
    (
        "vector.broadcast %x0 : vector<4x1xf32> to vector<4x8xf32>",
        (4, 1),
        (4, 8),
        lambda x: np.broadcast_to(x, (4, 8)),
    ),
    (
        "vector.extract_strided_slice %x0 {offsets = [1, 2], sizes = [2, 4], strides = [1, 1]} "
        ": vector<4x8xf32> to vector<2x4xf32>",
        (4, 8),
        (2, 4),
        lambda x: x[1:3, 2:6],
    ),
    ("vector.extract %x0[2] : vector<8xf32> from vector<4x8xf32>", (4, 8), (8,), lambda x: x[2]),
    ("vector.extract %x0[3, 5] : f32 from vector<4x8xf32>", (4, 8), (1,), lambda x: x[3, 5]),
    (
        "vector.shuffle %x0, %x0 [7, 0, 9, 2, 15, 15] : vector<8xf32>, vector<8xf32>",
        (8,),
        (6,),
        lambda x: np.concatenate([x, x])[[7, 0, 9, 2, 15, 15]],
    ),
    (
        "vector.shuffle %x0, %x0 [3, 0] : vector<2x4xf32>, vector<2x4xf32>",
        (2, 4),
        (2, 4),
        lambda x: np.concatenate([x, x])[[3, 0]],
    ),
    (
        "vector.interleave %x0, %x0 : vector<8xf32> -> vector<16xf32>",
        (8,),
        (16,),
        lambda x: np.repeat(x, 2),
    ),
]


def text_type(shape: tuple[int, ...]) -> str:
    return f"vector<{'x'.join(map(str, shape))}xf32>"


@pytest.mark.parametrize("op, source, result, meaning", MOVES)
def test_moves(op, source, result, meaning, rng: np.random.Generator) -> None:
    x = rng.normal(size=source).astype(F32)
    kind = "f32" if op.startswith("vector.extract %x0[3, 5]") else text_type(result)
    got = map_vectors(f"%r = {op}", [x], [text_type(source)], kind, F32, count=int(np.prod(result)))
    np.testing.assert_array_equal(got, np.ascontiguousarray(meaning(x)).reshape(-1))


@pytest.mark.parametrize("op, source, result, meaning", MOVES[:-4])
@pytest.mark.parametrize("target", [nvptx(), spirv()], ids=["nvptx", "spirv"])
def test_moves_on_lanes(op, source, result, meaning, target) -> None:
    """On fragments of scalars a rearrangement prints no shuffle; both texts are code for LLVM."""
    kind = "f32" if op.startswith("vector.extract %x0[3, 5]") else text_type(result)
    text = f"""
    func.func @k(%p : !llvm.ptr<1>, %q : !llvm.ptr<1>) attributes {{mach.kernel}} {{
      %x0 = mach.load %p : !llvm.ptr<1> -> {text_type(source)}
      %r = {op}
      mach.store %r, %q : {kind}, !llvm.ptr<1>
      func.return
    }}"""
    llvm = emit_module(module(text), target)
    if target.name.startswith("nvptx"):
        assert "shufflevector" not in llvm
        generate_ptx(llvm, target)
    else:
        generate_spirv(llvm, target)


def test_deinterleave(rng: np.random.Generator) -> None:
    x = rng.normal(size=16).astype(F32)
    body = """%a, %b = vector.deinterleave %x0 : vector<16xf32> -> vector<8xf32>
    %r = arith.subf %a, %b : vector<8xf32>"""
    got = map_vectors(body, [x], ["vector<16xf32>"], "vector<8xf32>", F32)
    np.testing.assert_array_equal(got, x[0::2] - x[1::2])


def test_insertions(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(4, 8)).astype(F32), rng.normal(size=(2, 4)).astype(F32)
    wanted = x.copy()
    wanted[1:3, 3:7] = y
    wanted[0] = x[2]
    body = """
    %a = vector.insert_strided_slice %x1, %x0 {offsets = [1, 3], strides = [1, 1]}
      : vector<2x4xf32> into vector<4x8xf32>
    %row = vector.extract %x0[2] : vector<8xf32> from vector<4x8xf32>
    %r = vector.insert %row, %a [0] : vector<8xf32> into vector<4x8xf32>"""
    types = ["vector<4x8xf32>", "vector<2x4xf32>"]
    np.testing.assert_array_equal(map_vectors(body, [x, y], types, types[0], F32), wanted)


@pytest.mark.parametrize("i, j", [(0, 0), (2, 5), (3, 7)])
def test_dynamic_positions(i: int, j: int, rng: np.random.Generator) -> None:
    x = rng.normal(size=(4, 8)).astype(F32)
    at = np.array([i, j], np.int64)
    body = """
    %one = vector.extract %x1[0] : i64 from vector<2xi64>
    %two = vector.extract %x1[1] : i64 from vector<2xi64>
    %i = arith.index_cast %one : i64 to index
    %j = arith.index_cast %two : i64 to index
    %row = vector.extract %x0[%i] : vector<8xf32> from vector<4x8xf32>
    %v = vector.extract %x0[%i, %j] : f32 from vector<4x8xf32>
    %w = vector.extract %row[%j] : f32 from vector<8xf32>
    %u = arith.addf %v, %w : f32
    %a = vector.insert %u, %x0 [%i, %j] : f32 into vector<4x8xf32>
    %rev = vector.insert %v, %row [%j] : f32 into vector<8xf32>
    %r = vector.insert %rev, %a [0] : vector<8xf32> into vector<4x8xf32>"""
    wanted = x.copy()
    wanted[i, j] *= 2
    wanted[0] = x[i]
    types = ["vector<4x8xf32>", "vector<2xi64>"]
    np.testing.assert_array_equal(map_vectors(body, [x, at], types, types[0], F32), wanted)


def test_made_from_nothing() -> None:
    body = """
    %s = vector.step : vector<12xindex>
    %n = arith.constant dense<7> : vector<12xindex>
    %few = arith.cmpi slt, %s, %n : vector<12xindex>
    %zero = arith.constant dense<-1> : vector<12xindex>
    %r = arith.select %few, %s, %zero : vector<12xi1>, vector<12xindex>"""
    wanted = np.where(np.arange(12) < 7, np.arange(12), -1)
    got = map_vectors(body, [], [], "vector<12xindex>", np.int64)
    np.testing.assert_array_equal(got, wanted)


INTEGER_KINDS = {
    "add": np.add.reduce,
    "mul": np.multiply.reduce,
    "minsi": np.minimum.reduce,
    "maxsi": np.maximum.reduce,
    "and": np.bitwise_and.reduce,
    "or": np.bitwise_or.reduce,
    "xor": np.bitwise_xor.reduce,
}


@pytest.mark.parametrize("kind", INTEGER_KINDS)
@pytest.mark.parametrize("n", [1, 7, 16, 40])
def test_integer_reduction(kind: str, n: int, rng: np.random.Generator) -> None:
    x = rng.integers(-100, 100, n).astype(I32)
    body = f"%r = vector.reduction <{kind}>, %x0 : vector<{n}xi32> into i32"
    got = map_vectors(body, [x], [f"vector<{n}xi32>"], "i32", I32, count=1)
    with np.errstate(over="ignore"):
        assert got[0] == np.asarray(INTEGER_KINDS[kind](x)).astype(I32)


@pytest.mark.parametrize("kind", ["maximumf", "minimumf", "maxnumf", "minnumf"])
@pytest.mark.parametrize("nan", [False, True])
def test_float_extremes(kind: str, nan: bool, rng: np.random.Generator) -> None:
    x = rng.normal(size=21).astype(F32)
    if nan:
        x[rng.integers(21)] = np.nan
    body = f"%r = vector.reduction <{kind}>, %x0 : vector<21xf32> into f32"
    got = map_vectors(body, [x], ["vector<21xf32>"], "f32", F32, count=1)
    functions = {
        "maximumf": np.max,
        "minimumf": np.min,
        "maxnumf": np.nanmax,
        "minnumf": np.nanmin,
    }
    np.testing.assert_array_equal(got[0], functions[kind](x))


@pytest.mark.parametrize(
    "dims, shape",
    [([0], (6, 16)), ([1], (6, 16)), ([0, 1], (4, 8)), ([1], (2, 3, 4)), ([0, 2], (2, 3, 4))],
)
def test_multi_reduction(dims, shape, rng: np.random.Generator) -> None:
    x = rng.normal(size=shape).astype(F32)
    kept = [n for d, n in enumerate(shape) if d not in dims]
    out = text_type(tuple(kept)) if kept else "f32"
    acc = np.asarray(rng.normal(size=kept or 1), F32)
    body = f"%r = vector.multi_reduction <add>, %x0, %x1 {dims} : {text_type(shape)} to {out}"
    got = map_vectors(body, [x, acc], [text_type(shape), out], out, F32, count=acc.size)
    wanted = x.astype(np.float64).sum(axis=tuple(dims)) + acc
    np.testing.assert_allclose(got.reshape(-1), np.reshape(wanted, -1), rtol=1e-5, atol=1e-6)


CONTRACTION = """
    %r = vector.contract {{indexing_maps = [{maps}], iterator_types = [{kinds}], kind = #vector.kind<add>}}
      %x0, %x1, %x2 : {a}, {b} into {c}"""


def test_contract(rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(4, 6)).astype(F32), rng.normal(size=(8, 6)).astype(F32)
    c = rng.normal(size=(4, 8)).astype(F32)
    maps = ", ".join(f"affine_map<(m, n, k) -> {t}>" for t in ("(m, k)", "(n, k)", "(m, n)"))
    types = ["vector<4x6xf32>", "vector<8x6xf32>", "vector<4x8xf32>"]
    body = CONTRACTION.format(
        maps=maps, kinds='"parallel", "parallel", "reduction"', a=types[0], b=types[1], c=types[2]
    )
    got = map_vectors(body, [a, b, c], types, types[2], F32)
    wanted = a.astype(np.float64) @ b.astype(np.float64).T + c
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("level", LEVELS)
def test_transpose_of_16_rows_is_64_shuffles(level: str) -> None:
    text = """
    func.func @k(%p : !llvm.ptr, %q : !llvm.ptr) {
      %x = mach.load %p : !llvm.ptr -> vector<16x16xf32>
      %r = vector.transpose %x, [1, 0] : vector<16x16xf32> to vector<16x16xf32>
      mach.store %r, %q : vector<16x16xf32>, !llvm.ptr
      func.return
    }"""
    assert emit_module(module(text), x86(level)).count("shufflevector") == 64
