"""Lane programs on an OpenCL device (the `emu` table on a CPU's runtime) agree with the reference executor, bit by bit
where no sum of floats is involved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.targets.xe import kernels
from tests.targets.xe.conftest import agree, build
from tilewright.diagnostics import CheckError, LaunchError
from tilewright.runtime.arrays import describe
from tilewright.targets.xe import opencl

pytestmark = pytest.mark.usefixtures("device")

TYPES: dict[str, Any] = {
    "i8": np.int8,
    "ui8": np.uint8,
    "i32": np.int32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
}


def random(rng: np.random.Generator, shape: tuple[int, ...], element: str) -> np.ndarray[Any, Any]:
    dtype = np.dtype(TYPES[element])
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -100, 100, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


PAIRS = " <{transpose = array<i64: 1, 0>, transpose_bit_width = 32 : i32}>"

FORMS = {
    "plain": ((64, 64), "f16", (8, 16), {}),
    "two blocks": ((64, 64), "f16", (32, 16), {"count": 2}),
    "vnni": ((64, 64), "bf16", (32, 16), {"count": 2, "how": " <{packed}>"}),
    "bytes": ((64, 64), "i8", (8, 32), {}),
    "packed bytes": ((64, 64), "i8", (32, 16), {"how": " <{packed}>"}),
    "half a row": ((64, 64), "f32", (8, 8), {}),
    "transposed": ((64, 64), "f32", (16, 8), {"how": " <{transpose = array<i64: 1, 0>}>"}),
    "transposed, two rows a lane": (
        (64, 64),
        "f32",
        (32, 4),
        {"how": " <{transpose = array<i64: 1, 0>}>"},
    ),
    "transposed pairs": (
        (64, 64),
        "f16",
        (16, 16),
        {"how": PAIRS},
    ),
    "transposed pairs that begin at an odd column": (
        (64, 64),
        "f16",
        (16, 16),
        {"how": PAIRS, "at": (1, 3)},
    ),
    "transposed pairs of odd rows": ((64, 27), "f16", (16, 16), {"how": PAIRS, "at": (0, 12)}),
    "wide": ((64, 64), "f16", (8, 32), {}),
    "right and bottom edge": ((60, 64), "f16", (8, 16), {"at": (56, 56)}),
    "before the matrix": ((64, 64), "f16", (8, 16), {"at": (-3, -6)}),
    "narrow pitch": ((64, 24), "f16", (8, 16), {"at": (1, 4)}),
    "subgroups of 8": ((32, 32), "f16", (8, 16), {"lanes": 8}),
}


@pytest.mark.parametrize("name", FORMS)
def test_block_loads(name: str, rng: np.random.Generator) -> None:
    shape, element, block, more = FORMS[name]
    text, n = kernels.fragment(shape, element, block, **more)
    lanes = more.get("lanes", 16)
    out = random(rng, (lanes * n,), element)
    target = "xe-dg2" if lanes == 8 else "xe-pvc"
    agree(text, [random(rng, shape, element), out], [1], target=target)


@pytest.mark.parametrize("at", [(0, 0), (60, 56), (-2, -4)])
@pytest.mark.parametrize("element", ["f32", "f16"])
def test_block_stores(at: tuple[int, int], element: str, rng: np.random.Generator) -> None:
    text = kernels.store((64, 64), element, (8, 16), at)
    agree(text, [random(rng, (128,), element), random(rng, (64, 64), element)], [1])


PRODUCTS = [
    ("f16", "f16", "f32", 8, 16, 16),
    ("bf16", "bf16", "f32", 4, 16, 16),
    ("f16", "f16", "f16", 8, 16, 16),
    ("bf16", "bf16", "bf16", 8, 16, 16),
    ("i8", "i8", "i32", 8, 32, 16),
    ("ui8", "i8", "i32", 8, 32, 16),
    ("tf32", "tf32", "f32", 8, 8, 16),
    ("f16", "f16", "f32", 8, 16, 8),
    ("i8", "i8", "i32", 8, 32, 8),
]


@pytest.mark.parametrize("a, b, c, m, k, lanes", PRODUCTS)
def test_products(
    a: str, b: str, c: str, m: int, k: int, lanes: int, rng: np.random.Generator
) -> None:
    text = kernels.product(a, b, c, m, k, lanes=lanes)
    given = ["f32" if t == "tf32" else t for t in (a, b)]
    arrays = [
        random(rng, (m, k), given[0]),
        random(rng, (k, lanes), given[1]),
        random(rng, (m, lanes), c),
    ]
    narrow = c in ("f16", "bf16")
    if narrow:  # the sum's order decides the last bit
        arrays = [np.sign(x).astype(x.dtype) for x in arrays]
    target = "xe-dg2" if lanes == 8 else "xe-pvc"
    agree(text, arrays, [2], target=target, exact=c == "i32" or narrow)


def test_scattered(rng: np.random.Generator) -> None:
    """Masks, chunks, hints, atomics: a lane's own address."""
    text = (
        kernels.head(
            "%a: memref<256xf32>, %sum: memref<4xf32>, %count: memref<4xi32>, %out: memref<256xf32>"
        )
        + """
    %one = arith.constant 1 : i32
    %half = arith.constant 0.5 : f32
    %at = arith.muli %lane, %c4 : index
    %on = arith.cmpi ult, %lane, %c5 : index
    %v = xegpu.load %a[%at], %true <{chunk_size = 4 : i64, l1_hint = #xegpu.cache_hint<streaming>,
        l3_hint = #xegpu.cache_hint<cached>}> : memref<256xf32>, index, i1 -> vector<4xf32>
    %w = xegpu.load %a[%lane], %on : memref<256xf32>, index, i1 -> f32
    xegpu.prefetch %a[%at] : memref<256xf32>, index
    xegpu.store %v, %out[%at], %on <{chunk_size = 4 : i64}> : vector<4xf32>, memref<256xf32>, index, i1
    %few = arith.remui %lane, %c3 : index
    %old = xegpu.atomic_rmw addf %sum[%few], %on, %half : memref<4xf32>, index, i1, f32 -> f32
    %before = xegpu.atomic_rmw addi %count[%few], %true, %one : memref<4xi32>, index, i1, i32 -> i32
    xegpu.fence memory_kind = global, fence_scope = workgroup"""
        + kernels.FOOT
    )
    arrays = [random(rng, (256,), "f32"), np.zeros(4, np.float32), np.zeros(4, np.int32)]
    out = random(rng, (256,), "f32")
    _, count, _ = agree(text, [*arrays, out], [1, 2, 3])
    assert count.tolist() == [6, 5, 5, 0]


def test_scattered_in_a_part_of_an_array(rng: np.random.Generator) -> None:
    """Its first element and its step are known at run time."""
    text = (
        kernels.head("%a: memref<256xf32>, %by: memref<2xindex>, %out: memref<256xf32>")
        + """
    %from = memref.load %by[%c0] : memref<2xindex>
    %step = memref.load %by[%c1] : memref<2xindex>
    %part = memref.subview %a[%from] [40] [%step]
        : memref<256xf32> to memref<40xf32, strided<[?], offset: ?>>
    %v = xegpu.load %part[%lane], %true : memref<40xf32, strided<[?], offset: ?>>, index, i1 -> f32
    xegpu.store %v, %out[%lane], %true : f32, memref<256xf32>, index, i1"""
        + kernels.FOOT
    )
    by = np.array([7, 3], np.int64)
    arrays = [random(rng, (256,), "f32"), by, random(rng, (256,), "f32")]
    (out,) = agree(text, arrays, [2])
    np.testing.assert_array_equal(out[:16], arrays[0][7 : 7 + 48 : 3])


def test_shared_memory(rng: np.random.Generator) -> None:
    """Two subgroups exchange through shared memory, one of its matrices blocked; lanes shuffle and reduce."""
    text = (
        "!m = !xegpu.mem_desc<16x16xf16, #xegpu.mem_layout<block = [8, 8]>>"
        + kernels.head(
            "%a: memref<64x16xf16>, %out: memref<32x8xf16>, %sums: memref<32xf32>", subgroups=2
        )
        + """
    %by = arith.constant 4 : i32
    %all = arith.constant 16 : i32
    %sg = gpu.subgroup_id : index
    %slm = memref.alloca() : memref<512xi8, 3>
    %m = xegpu.create_mem_desc %slm : memref<512xi8, 3> -> !m
    %row = arith.muli %sg, %c8 : index
    %t = xegpu.create_nd_tdesc %a : memref<64x16xf16> -> !xegpu.tensor_desc<8x16xf16>
    %v = xegpu.load_nd %t[%row, 0] : !xegpu.tensor_desc<8x16xf16> -> vector<8xf16>
    xegpu.store_matrix %v, %m[%row, 0] <{subgroup_block_io}>
        : vector<8xf16>, !m, index
    gpu.barrier
    %other = arith.subi %c1, %sg : index
    %half = arith.muli %other, %c8 : index
    %w = xegpu.load_matrix %m[%lane, %half] : !m, index, index -> vector<8xf16>
    %s, %ok = gpu.shuffle xor %w, %by, %all : vector<8xf16>
    %mine = arith.muli %sg, %c16 : index
    %at = arith.addi %mine, %lane : index
    %to = arith.muli %at, %c8 : index
    %p = memref.extract_aligned_pointer_as_index %out : memref<32x8xf16> -> index
    %addr = arith.index_cast %p : index to i64
    xegpu.store %s, %addr[%to], %true <{chunk_size = 8 : i64}> : vector<8xf16>, i64, index, i1
    %x = vector.extract %s[3] : f16 from vector<8xf16>
    %wide = arith.extf %x : f16 to f32
    %max = gpu.subgroup_reduce maximumf %wide : (f32) -> f32
    xegpu.store %max, %sums[%at], %true : f32, memref<32xf32>, index, i1"""
        + kernels.FOOT
    )
    arrays = [random(rng, (64, 16), "f16"), random(rng, (32, 8), "f16"), random(rng, (32,), "f32")]
    agree(text, arrays, [1, 2])


def test_a_counter_and_the_subgroup_of_a_place(rng: np.random.Generator) -> None:
    """Every subgroup reads and writes in a loop whose trip count is known at run time: a CPU's OpenCL runtime that
    starts the sums of both wrongly left out elements of the second half of the subgroups."""
    text = (
        kernels.head("%x: memref<4x256xf32>, %y: memref<4x256xf32>, %n: memref<1xi32>", subgroups=8)
        + """
    %sg = gpu.subgroup_id : index
    %half = arith.divui %sg, %c4 : index
    %row = arith.muli %half, %c2 : index
    %quarter = arith.remui %sg, %c4 : index
    %column = arith.muli %quarter, %c16 : index
    %told = memref.load %n[%c0] : memref<1xi32>
    %end = arith.index_cast %told : i32 to index
    %tx = xegpu.create_nd_tdesc %x : memref<4x256xf32> -> !xegpu.tensor_desc<2x16xf32>
    %ty = xegpu.create_nd_tdesc %y : memref<4x256xf32> -> !xegpu.tensor_desc<2x16xf32>
    scf.for %k = %c0 to %end step %c64 {
      %at = arith.addi %k, %column : index
      %v = xegpu.load_nd %tx[%row, %at] : !xegpu.tensor_desc<2x16xf32> -> vector<2xf32>
      xegpu.store_nd %v, %ty[%row, %at] : vector<2xf32>, !xegpu.tensor_desc<2x16xf32>
    }"""
        + kernels.FOOT
    )
    x = random(rng, (4, 256), "f32")
    (y,) = agree(text, [x, np.full_like(x, np.nan), np.array([256], np.int32)], [1])
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("op", ["negf %v", "subf %zero, %v", "mulf %v, %one", "divf %one, %v"])
def test_negated_before_a_barrier(op: str, rng: np.random.Generator) -> None:
    """A CPU's OpenCL runtime keeps one negated value for all subgroups where a barrier follows."""
    text = (
        kernels.head("%x: memref<32x16xf32>, %y: memref<32x16xf32>", subgroups=4)
        + f"""
    %sg = gpu.subgroup_id : index
    %row = arith.muli %sg, %c8 : index
    %zero = arith.constant dense<-0.0> : vector<8xf32>
    %one = arith.constant dense<-1.0> : vector<8xf32>
    %tx = xegpu.create_nd_tdesc %x : memref<32x16xf32> -> !xegpu.tensor_desc<8x16xf32>
    %ty = xegpu.create_nd_tdesc %y : memref<32x16xf32> -> !xegpu.tensor_desc<8x16xf32>
    %v = xegpu.load_nd %tx[%row, 0] : !xegpu.tensor_desc<8x16xf32> -> vector<8xf32>
    %w = arith.{op} : vector<8xf32>
    gpu.barrier
    xegpu.store_nd %w, %ty[%row, 0] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>"""
        + kernels.FOOT
    )
    x = random(rng, (32, 16), "f32")
    (y,) = agree(text, [x, np.full_like(x, np.nan)], [1])
    np.testing.assert_allclose(y, -1 / x if "div" in op else -x, 1e-6)


def test_gemm_by_hand(rng: np.random.Generator) -> None:
    """The inner loop of appendix 1.1, on two workgroups and with ragged edges."""
    text = kernels.gemm(120, 112, 96, sg=(2, 1), rows=32, columns=64)
    a, b = random(rng, (120, 96), "f16"), random(rng, (96, 112), "f16")
    (c,) = agree(text, [a, b, random(rng, (120, 112), "f32")], [2], grid=(2, 2, 1), exact=False)
    want = a.astype(np.float64) @ b.astype(np.float64)
    assert np.linalg.norm(c - want) <= 1e-6 * np.linalg.norm(want)


@tw.kernel
def in_turn(X, Y, S, step):
    """Programs add elements in turn, and those that are `step` apart."""
    total = 0
    for i in range(tw.program_id(0), X.shape[0], tw.num_programs(0)):
        total += X[i]
    Y[tw.program_id(0)] = total
    total = 0
    for i in range(0, X.shape[0], step):
        total += X[i]
    S[tw.program_id(0)] = total


@tw.kernel
def positive(X, Y):
    i = tw.program_id(0) + 3 * tw.program_id(1)
    x = tw.load_tile(tw.init_tile(X, [i, 0], (1, 16)))
    tw.device_assert(x >= 0, "negative input")
    tw.store_tile(x + 1, tw.init_tile(Y, [i, 0], (1, 16)))


def test_assertions_that_hold(rng: np.random.Generator) -> None:
    x = rng.integers(-100, 100, 37, np.int32)
    y, s = np.full(5, -1, np.int32), np.full(5, -1, np.int32)
    kernel = in_turn.options(target="xe-pvc")
    kernel[5](x, y, s, 3)
    np.testing.assert_array_equal(y, [x[i::5].sum() for i in range(5)])
    np.testing.assert_array_equal(s, [x[::3].sum()] * 5)
    assert len(kernel.compile(x, y, s, 3).executable.meta["assertions"]) == 1, "a grid has programs"


@pytest.mark.parametrize("target", ["xe-pvc", "xe-dg2", "reference", "cpu"])
def test_assertions_that_fail(rng: np.random.Generator, target: str) -> None:
    """The launch tells of the first program that failed, in the order of the grid, as on every target."""
    x = rng.integers(0, 100, (6, 16), np.int32)
    kernel, y = positive.options(target=target), np.zeros_like(x)
    kernel[3, 2](x, y)
    np.testing.assert_array_equal(y, x + 1)
    x[4, 3] = x[5, 0] = -1
    with pytest.raises(CheckError, match=r"in workgroup \(1, 1, 0\): negative input") as caught:
        kernel[3, 2](x, np.zeros_like(x))
    assert caught.value.location is not None
    assert (
        "device_assert" in Path(__file__).read_text().splitlines()[caught.value.location.line - 1]
    )


BY_SUBGROUP = """
module { gpu.module @m { gpu.func @k(%a: memref<4x16xi32>) kernel
    attributes {tilewright.level = "LEVEL", tilewright.subgroups = 4 : i64} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0 : i32
  %sg = gpu.subgroup_id : index
  BODY
  gpu.return
} } }
"""
LOADED = {
    "subgroup": """%t = xegpu.create_nd_tdesc %a : memref<4x16xi32> -> !xegpu.tensor_desc<1x16xi32>
  %v = xegpu.load_nd %t[%sg, %c0] : !xegpu.tensor_desc<1x16xi32> -> vector<1x16xi32>
  %m = vector.multi_reduction <minsi>, %v, %zero [0, 1] : vector<1x16xi32> to i32
  %c = arith.cmpi sge, %m, %zero : i32
  cf.assert %c, "first"
  cf.assert %c, "second" """,
    "lane": """%l = gpu.lane_id
  %v = memref.load %a[%sg, %l] : memref<4x16xi32>
  %c = arith.cmpi sge, %v, %zero : i32
  %odd = arith.constant 3 : index
  %skip = arith.cmpi ugt, %sg, %odd : index
  scf.if %skip {
    cf.assert %skip, "never"
    cf.assert %c, "never, too"
  }
  cf.assert %c, "first" """,
}


@pytest.mark.parametrize("level", list(LOADED))
def test_a_subgroup_that_fails(rng: np.random.Generator, level: str) -> None:
    text = BY_SUBGROUP.replace("LEVEL", level).replace("BODY", LOADED[level])
    x = rng.integers(0, 100, (4, 16), np.int32)
    found = build(text)
    found.launch((1, 1, 1), [describe(x, "x")])
    x[2, 5] = x[3, 7] = -2
    with pytest.raises(CheckError, match=r"in workgroup \(0, 0, 0\) subgroup 2: first"):
        found.launch((1, 1, 1), [describe(x, "x")])
    assert "mach.atomic_rmw" in found.ir["mach"] and "%failed" in found.ir["mach"]


@pytest.mark.parametrize("space", ["3", "#gpu.address_space<workgroup>"])
def test_shared_memory_by_either_name(rng: np.random.Generator, space: str) -> None:
    kind = f"memref<64xf32, {space}>"
    text = (
        kernels.head("%a: memref<64xf32>", subgroups=4)
        + f"""
    %m = memref.alloca() : {kind}
    %t = gpu.thread_id x
    %v = memref.load %a[%t] : memref<64xf32>
    memref.store %v, %m[%t] : {kind}
    gpu.barrier
    %last = arith.constant 63 : index
    %other = arith.subi %last, %t : index
    %w = memref.load %m[%other] : {kind}
    memref.store %w, %a[%t] : memref<64xf32>"""
        + kernels.FOOT
    )
    x = random(rng, (64,), "f32")
    found, want = build(text), x[::-1].copy()
    found.launch((1, 1, 1), [describe(x, "x")])
    np.testing.assert_array_equal(x, want)


def test_writes_outside_of_an_array_are_told() -> None:
    """Scattered stores of a lane are not bounded: on a CPU a guard behind every array sees them."""
    text = (
        kernels.head("%a: memref<16xi32>, %b: memref<16xi32>, %n: index")
        + """
    %at = arith.addi %lane, %n : index
    %v = arith.index_cast %lane : index to i32
    xegpu.store %v, %a[%lane], %true : i32, memref<16xi32>, index, i1
    xegpu.store %v, %b[%at], %true : i32, memref<16xi32>, index, i1"""
        + kernels.FOOT
    )
    found = build(text)
    a, b = (np.zeros(16, np.int32) for _ in range(2))
    found.launch((1, 1, 1), [describe(a, "array"), describe(b, "array"), 0])
    np.testing.assert_array_equal(b, np.arange(16))
    with pytest.raises(
        LaunchError, match="wrote outside of its argument 1: 12 bytes behind"
    ) as told:
        found.launch((1, 1, 1), [describe(a, "array"), describe(b, "array"), 19])
    assert "mask" in str(told.value.hint)


def test_numbers_of_8_bits() -> None:
    @tw.kernel
    def numbers(Y: Any, a: tw.f8e4m3, b: tw.f8e5m2):  # pyright: ignore[reportInvalidTypeForm]
        Y[0] = a.to(tw.f32)
        Y[1] = b.to(tw.f32)

    y = np.full(2, np.nan, np.float32)
    numbers.options(target="xe-pvc")[1](y, -1.75, 0.5)
    np.testing.assert_array_equal(y, [-1.75, 0.5])


@tw.kernel
def two_results(X, Y, Z):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (8, 16)))
    tw.store_tile(x + 1, tw.init_tile(Y, [0, 0], (8, 16)))
    y = tw.load_tile(tw.init_tile(X, [0, 0], (8, 16)))
    tw.store_tile(y * 2, tw.init_tile(Z, [0, 0], (8, 16)))


@pytest.mark.usefixtures("device")
def test_arrays_in_one_memory(rng: np.random.Generator) -> None:
    """The device has copies: of columns in turn each brings its own back, an array that is given twice is one, and a
    store into a part of another is told, which the other would not have seen."""
    run = two_results.options(target="xe-pvc")[1]
    x = rng.standard_normal((8, 16)).astype(np.float32)
    both = np.full((8, 32), np.nan, np.float32)
    run(x, both[:, ::2], both[:, 1::2])
    np.testing.assert_array_equal(both[:, ::2], x + 1)
    np.testing.assert_array_equal(both[:, 1::2], x * 2)
    one = x.copy()
    run(one, one, both[:, ::2])
    np.testing.assert_array_equal(one, x + 1)
    np.testing.assert_array_equal(both[:, ::2], (x + 1) * 2)
    rows = rng.standard_normal((9, 16)).astype(np.float32)
    with pytest.raises(LaunchError, match="argument 1 is written where it overlaps argument 0"):
        run(rows[:8], rows[1:], both[:, ::2])


@tw.kernel
def extremes(X, Y, Z):
    x, y = (tw.load_tile(tw.init_tile(A, [0], (1, 16))) for A in (X, Y))
    found = (
        tw.maximum(x, y),
        tw.minimum(x, y),
        tw.maximum(x, 0),
        tw.minimum(0, x),
        tw.max(x, 1),
        tw.min(x, 1),
    )
    for row, value in enumerate(found):
        tw.store_tile(
            tw.broadcast(value, 1, 16) if row > 3 else value, tw.init_tile(Z, [row, 0], (1, 16))
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_extremes_beside_nan(dtype: Any, rng: np.random.Generator) -> None:
    """NaN wins, as in numpy: OpenCL's fmax, which LLVM takes for SPIR-V, drops it."""
    x, y = rng.standard_normal((2, 16)).astype(dtype)
    x[[2, 3]], y[[3, 4]] = np.nan, np.nan
    z = np.zeros((6, 16), dtype)
    for a in (x, y[::-1].copy()):
        extremes.options(target="xe-pvc")[1](a, y, z)
        wide = a.astype(np.float64)
        wanted = [f(wide, b) for b in (y.astype(np.float64), 0.0) for f in (np.maximum, np.minimum)]
        np.testing.assert_array_equal(z[:4].astype(np.float64), wanted)
        assert np.isnan(z[4:].astype(np.float64)).all()


def test_a_dead_runtime_is_named() -> None:
    assert opencl._of_what(-6) == "(SIGABRT)"  # pyright: ignore[reportPrivateUsage]
    assert opencl._of_what(3) == "(status 3)"  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    "what, hint", [("build", "own compiler failed"), ("run", "an access outside")]
)
def test_what_to_do_when_the_runtime_dies(
    what: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No kernel has run when its compiler ends."""

    def ended(*_: object, **__: object) -> None:
        raise opencl.HelperEnded(-6)

    worker = object.__new__(opencl.OpenCLWorker)
    monkeypatch.setattr(worker, "ask", ended)
    with pytest.raises(LaunchError, match="SIGABRT") as told:
        worker.done(what, {"name": "k"})
    assert told.value.hint is not None and hint in told.value.hint
