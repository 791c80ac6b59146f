"""Raw memory ops on x86: masks, offsets, storage of i1, atomics, scratch; what must not be touched is checked."""

import ctypes
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tests.codegen.counts import expected, printed
from tests.codegen.harness import LEVELS, Function, map_vectors, module
from tilewright.codegen import emit_module, nvptx, spirv, x86
from tilewright.diagnostics import UnsupportedError

DTYPES = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i1": np.bool_,
}


def page_guarded(size: int) -> tuple[np.ndarray, object]:
    """`size` bytes that end where readable memory ends: one byte further is a fault."""
    import mmap

    area = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    libc = ctypes.CDLL(None)
    whole = np.frombuffer(area, np.uint8)
    start = whole.ctypes.data
    assert libc.mprotect(ctypes.c_void_p(start + mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0
    return whole[mmap.PAGESIZE - size : mmap.PAGESIZE], area


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("t", DTYPES)
@pytest.mark.parametrize("n", [0, 1, 3, 7, 8, 12, 16])
def test_masked_access_ends_at_the_array(level: str, t: str, n: int, rng) -> None:
    dtype = np.dtype(DTYPES[t])
    data, area = page_guarded(max(n, 1) * dtype.itemsize)
    x = rng.integers(0, 2, max(n, 1)).astype(dtype)
    data[:] = x.view(np.uint8)
    out, area2 = page_guarded(max(n, 1) * dtype.itemsize)
    out[:] = 0
    zero = "false" if t == "i1" else "0" if t.startswith("i") else "0.0"
    f = Function(
        f"""
    func.func @k(%p : !llvm.ptr, %q : !llvm.ptr, %n : index) {{
      %z = arith.constant dense<{zero}> : vector<16x{t}>
      %m = mach.mask_first %n : vector<16xi1>
      %x = mach.masked_load %p, %m, %z : !llvm.ptr, vector<16xi1> -> vector<16x{t}>
      mach.masked_store %x, %q, %m : vector<16x{t}>, !llvm.ptr, vector<16xi1>
      func.return
    }}""",
        target=x86(level),
    )
    f(data, out, n)
    used = n * dtype.itemsize
    np.testing.assert_array_equal(out[:used], data[:used])
    assert not out[used:].any()
    del data, out, area, area2


@pytest.mark.parametrize("lanes", [1, 2, 8, 16, 32, 64, 100, 300])
@pytest.mark.parametrize("where", ["below", "none", "some", "all", "above"])
def test_mask_first(lanes: int, where: str, rng) -> None:
    n = {
        "below": -(1 << 40),
        "none": 0,
        "some": int(rng.integers(0, lanes + 1)),
        "all": lanes,
        "above": 1 << 40,
    }[where]
    f = Function(f"""
    func.func @k(%q : !llvm.ptr, %n : index) {{
      %m = mach.mask_first %n : vector<{lanes}xi1>
      mach.store %m, %q : vector<{lanes}xi1>, !llvm.ptr
      func.return
    }}""")
    out = np.full(lanes, 0xA5, np.uint8)
    f(out, n)
    np.testing.assert_array_equal(out, np.arange(lanes) < n)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("offsets", ["i32", "i64", "index"])
@pytest.mark.parametrize("t", ["f32", "bf16", "f64", "i8", "i16"])
def test_gather_and_scatter(level: str, offsets: str, t: str, rng) -> None:
    dtype = np.dtype(DTYPES[t])
    memory, _area = page_guarded(101 * dtype.itemsize)  # it begins between words of four bytes
    table = memory.view(dtype)
    table[:] = rng.integers(-50, 50, 101).astype(dtype)
    picks = np.append(rng.permutation(99)[:14] + 1, [0, 100])
    mask = rng.random(16) < 0.6
    at = (picks * dtype.itemsize).astype(np.int32 if offsets == "i32" else np.int64)
    out = np.zeros(101, dtype)
    f = Function(
        f"""
    func.func @k(%table : !llvm.ptr, %at : !llvm.ptr, %mask : !llvm.ptr, %out : !llvm.ptr) {{
      %z = arith.constant dense<{"7" if t.startswith("i") else "7.0"}> : vector<16x{t}>
      %o = mach.load %at : !llvm.ptr -> vector<16x{offsets}>
      %m = mach.load %mask : !llvm.ptr -> vector<16xi1>
      %x = mach.gather %table, %o, %m, %z : !llvm.ptr, vector<16x{offsets}>, vector<16xi1> -> vector<16x{t}>
      %all = arith.constant dense<true> : vector<16xi1>
      mach.scatter %x, %out, %o, %all : vector<16x{t}>, !llvm.ptr, vector<16x{offsets}>, vector<16xi1>
      func.return
    }}""",
        target=x86(level),
    )
    f(table, at, mask, out)
    wanted = np.zeros(101, dtype)
    wanted[picks] = np.where(mask, table[picks], np.array(7, dtype))
    np.testing.assert_array_equal(out, wanted)


def test_scatter_to_one_place_keeps_the_last_lane() -> None:
    f = Function("""
    func.func @k(%q : !llvm.ptr) {
      %x = vector.step : vector<16xindex>
      %o = arith.constant dense<0> : vector<16xi32>
      %m = arith.constant dense<true> : vector<16xi1>
      mach.scatter %x, %q, %o, %m : vector<16xindex>, !llvm.ptr, vector<16xi32>, vector<16xi1>
      func.return
    }""")
    out = np.zeros(1, np.int64)
    f(out)
    assert out[0] == 15


@pytest.mark.parametrize(
    "kind, t, function",
    [
        ("addf", "f32", np.add),
        ("addi", "i32", np.add),
        ("assign", "f32", lambda a, b: b),
        ("maximumf", "f32", np.maximum),
        ("minnumf", "f32", np.fmin),
        ("maxs", "i64", np.maximum),
        ("mins", "i32", np.minimum),
        ("andi", "i16", np.bitwise_and),
        ("ori", "i8", np.bitwise_or),
        ("xori", "i32", np.bitwise_xor),
    ],
)
def test_atomics(kind, t, function, rng) -> None:
    dtypes = {**DTYPES, "i64": np.int64}
    x = rng.integers(-100, 100, 2).astype(dtypes[t])
    old = np.zeros(1, dtypes[t])
    f = Function(f"""
    func.func @k(%p : !llvm.ptr, %q : !llvm.ptr, %v : !llvm.ptr) {{
      %y = mach.load %v : !llvm.ptr -> {t}
      %old = mach.atomic_rmw "{kind}" %y, %p {{ordering = "monotonic"}} : {t}, !llvm.ptr
      mach.store %old, %q : {t}, !llvm.ptr
      mach.fence {{ordering = "seq_cst"}}
      func.return
    }}""")
    memory = x[:1].copy()
    f(memory, old, x[1:].copy())
    assert old[0] == x[0] and memory[0] == function(x[0], x[1])


def test_cmpxchg_and_flags() -> None:
    f = Function("""
    func.func @k(%p : !llvm.ptr, %e : index, %n : index) -> index {
      %old, %won = mach.cmpxchg %p, %e, %n {ordering = "acq_rel"} : !llvm.ptr, index
      %now = mach.atomic_load %p {ordering = "acquire"} : !llvm.ptr -> index
      %w = arith.extui %won : i1 to i64
      %wi = arith.index_cast %w : i64 to index
      %r = arith.addi %now, %wi : index
      func.return %r : index
    }""")
    cell = np.array([10], np.int64)
    assert f(cell, 10, 40, result=ctypes.c_int64) == 41
    assert f(cell, 10, 70, result=ctypes.c_int64) == 40


def test_scratch_does_not_grow_in_a_loop() -> None:
    f = Function("""
    func.func @k(%n : index) -> index {
      %r = scf.for %i = %c0 to %n step %c1 iter_args(%a = %c0) -> (index) {
        %s = mach.alloca {bytes = 65536 : i64, alignment = 64 : i64} : !llvm.ptr
        mach.store %i, %s : index, !llvm.ptr
        %x = mach.load %s {volatile} : !llvm.ptr -> index
        %b = arith.addi %a, %x : index
        scf.yield %b : index
      }
      func.return %r : index
    }""")
    assert f(10000, result=ctypes.c_int64) == 10000 * 9999 // 2


def test_pointers_and_indirect_calls() -> None:
    f = Function("""
    func.func private @twice(%x : index) -> index {
      %y = arith.addi %x, %x : index
      func.return %y : index
    }
    func.func @k(%x : index) -> index {
      %f = mach.address_of @twice : !llvm.ptr
      %i = mach.int_from_ptr %f : !llvm.ptr -> index
      %g = mach.ptr_from_int %i : index -> !llvm.ptr
      %y = mach.call_indirect %g(%x) : !llvm.ptr, (index) -> index
      %z = mach.call @labs(%y) : (index) -> index
      func.return %z : index
    }""")
    assert f(-21, result=ctypes.c_int64) == 42


PACKETS = """
func.func @k(%p : !llvm.ptr, %q : !llvm.ptr) {
  %x = mach.load %p {alignment = 64 : i64} : !llvm.ptr -> vector<3x24xf32>
  mach.prefetch %q {locality = 1 : i64} : !llvm.ptr
  mach.store %x, %q : vector<3x24xf32>, !llvm.ptr
  func.return
}"""


@pytest.mark.parametrize(
    "target, moves", [(x86("avx512"), 3), (spirv(), 5), (nvptx(), 18)], ids=str
)
def test_one_instruction_per_register_moved(target, moves) -> None:
    text = PACKETS.replace("!llvm.ptr", "!llvm.ptr<1>") if moves != 3 else PACKETS
    if moves != 3:
        text = text.replace("mach.prefetch %q {locality = 1 : i64} : !llvm.ptr<1>\n", "")
    m = module(text)
    counts = printed(emit_module(m, target))
    assert counts == expected(m, target)
    assert counts["load"] == counts["store"] == moves


def test_masks_are_refused_where_there_are_none() -> None:
    text = """
    func.func @k(%p : !llvm.ptr, %m : vector<4xi1>, %z : vector<4xf32>) {
      %x = mach.masked_load %p, %m, %z : !llvm.ptr, vector<4xi1> -> vector<4xf32>
      func.return
    }"""
    with pytest.raises(UnsupportedError, match="has no masked memory access"):
        emit_module(module(text), spirv())


@pytest.mark.parametrize("least", [8, 32])
@pytest.mark.parametrize("place", range(4))
def test_atomics_without_an_instruction(least: int, place: int, rng: np.random.Generator) -> None:
    """They are a loop on the element's bits, or on the word around it, whose other bits stay."""
    target = replace(x86(LEVELS[-1]), least_atomic=least)
    f = Function(
        """
    func.func @k(%p : !llvm.ptr, %at : index, %q : !llvm.ptr) {
      %v = arith.constant 3.0 : bf16
      %bytes = arith.muli %at, %c2 : index
      %place = mach.ptr_add %p, %bytes : !llvm.ptr
      %x = mach.atomic_rmw "mulf" %v, %place {ordering = "monotonic"} : bf16, !llvm.ptr
      mach.store %x, %q : bf16, !llvm.ptr
      func.return
    }""",
        target=target,
    )
    assert printed(f.llvm) == expected(f.module, target)
    x = rng.integers(-9, 9, 4).astype(ml_dtypes.bfloat16)
    wanted, old = x.copy(), np.zeros(1, x.dtype)
    wanted[place] *= 3
    f(x, place, old)
    np.testing.assert_array_equal(old, wanted[place : place + 1] / 3)
    np.testing.assert_array_equal(x, wanted)


def test_whole_values_move_as_bytes(rng) -> None:
    x = rng.integers(0, 256, 96, dtype=np.uint8)
    got = map_vectors(
        "%r = arith.addi %x0, %x0 : vector<6x16xi8>",
        [x],
        ["vector<6x16xi8>"],
        "vector<6x16xi8>",
        np.uint8,
    )
    np.testing.assert_array_equal(got.reshape(-1), (x.astype(np.int64) * 2 % 256))
