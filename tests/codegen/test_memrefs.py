"""Host code on memrefs, compiled and run on x86: descriptors, views, allocation, transfers, calls of C functions."""

import ctypes

import numpy as np
import pytest

from tests.codegen.counts import expected, printed
from tests.codegen.harness import Function, module
from tilewright.codegen import emit_module, x86
from tilewright.codegen.jit import compile_object
from tilewright.codegen.loading import LoadedObject
from tilewright.diagnostics import UnsupportedError

I64 = ctypes.c_int64
F64 = ctypes.c_double

ALLOCATED = """
    func.func @k(%n : index, %m : index) -> f64 {{
      %a = memref.alloc(%n, %m) : memref<?x?xf64>
      scf.for %i = %c0 to %n step %c1 {{
        scf.for %j = %c0 to %m step %c1 {{
          %t = arith.muli %i, %m : index
          %s = arith.addi %t, %j : index
          %w = arith.index_cast %s : index to i64
          %f = arith.sitofp %w : i64 to f64
          memref.store %f, %a[%i, %j] : memref<?x?xf64>
        }}
      }}
      {body}
      memref.dealloc %a : memref<?x?xf64>
      func.return %r : f64
    }}"""

VIEWS = {
    "load": (
        "%c2 = arith.constant 2 : index\n%r = memref.load %a[%c1, %c2] : memref<?x?xf64>",
        lambda x: x[1, 2],
    ),
    "subview": (
        """
      %v = memref.subview %a[1, %c2] [%c2, 3] [1, 2] : memref<?x?xf64> to memref<?x3xf64, strided<[?, 2], offset: ?>>
      %r = memref.load %v[%c1, %c2] : memref<?x3xf64, strided<[?, 2], offset: ?>>""",
        lambda x: x[1:3, 2:8:2][1, 2],
    ),
    "rank reducing subview": (
        """%v = memref.subview %a[%c2, 1] [1, 4] [1, 1] : memref<?x?xf64> to memref<4xf64, strided<[1], offset: ?>>
      %r = memref.load %v[%c1] : memref<4xf64, strided<[1], offset: ?>>""",
        lambda x: x[2, 1:5][1],
    ),
    "transpose": (
        """%v = memref.transpose %a (i, j) -> (j, i) : memref<?x?xf64> to memref<?x?xf64, strided<[1, ?]>>
      %r = memref.load %v[%c2, %c1] : memref<?x?xf64, strided<[1, ?]>>""",
        lambda x: x.T[2, 1],
    ),
    "cast and dim": (
        """%v = memref.cast %a : memref<?x?xf64> to memref<4x8xf64>
      %u = memref.cast %v : memref<4x8xf64> to memref<?x8xf64, strided<[8, 1], offset: ?>>
      %d = memref.dim %u, %c0 : memref<?x8xf64, strided<[8, 1], offset: ?>>
      %d1 = arith.subi %d, %c1 : index
      %r = memref.load %u[%d1, %c0] : memref<?x8xf64, strided<[8, 1], offset: ?>>""",
        lambda x: x[3, 0],
    ),
    "dim by a variable": (
        """%d = memref.dim %a, %n : memref<?x?xf64>
      %e = memref.dim %a, %c1 : memref<?x?xf64>
      %w = arith.index_cast %e : index to i64
      %r = arith.sitofp %w : i64 to f64""",
        lambda x: 8.0,
    ),
    "collapse and expand": (
        """%v = memref.cast %a : memref<?x?xf64> to memref<4x8xf64>
      %f = memref.collapse_shape %v [[0, 1]] : memref<4x8xf64> into memref<32xf64>
      %g = memref.expand_shape %f [[0, 1, 2]] output_shape [2, 2, 8] : memref<32xf64> into memref<2x2x8xf64>
      %r = memref.load %g[%c1, %c0, %c5] : memref<2x2x8xf64>""",
        lambda x: x.reshape(2, 2, 8)[1, 0, 5],
    ),
    "reinterpret_cast": (
        """%v = memref.reinterpret_cast %a to offset: [%c1], sizes: [3, %n], strides: [%m, 2]
          : memref<?x?xf64> to memref<3x?xf64, strided<[?, 2], offset: ?>>
      %r = memref.load %v[%c2, %c1] : memref<3x?xf64, strided<[?, 2], offset: ?>>""",
        lambda x: x[2, 3],
    ),
    "metadata": (
        """%base, %off, %sizes:2, %strides:2 = memref.extract_strided_metadata %a
          : memref<?x?xf64> -> memref<f64>, index, index, index, index, index
      %w = arith.index_cast %strides#0 : index to i64
      %r = arith.sitofp %w : i64 to f64""",
        lambda x: 8.0,
    ),
    "pointer": (
        """%p = memref.extract_aligned_pointer_as_index %a : memref<?x?xf64> -> index
      %q = mach.ptr_from_int %p : index -> !llvm.ptr
      %z = mach.ptr_add %q, %c16 : !llvm.ptr
      %r = mach.load %z : !llvm.ptr -> f64""",
        lambda x: x[0, 2],
    ),
    "alloca and copy": (
        """%v = memref.cast %a : memref<?x?xf64> to memref<4x8xf64>
      %b = memref.alloca() : memref<4x8xf64>
      memref.copy %v, %b : memref<4x8xf64> to memref<4x8xf64>
      %r = memref.load %b[%c2, %c1] : memref<4x8xf64>""",
        lambda x: x[2, 1],
    ),
    "select": (
        """%b = memref.alloc(%n, %m) : memref<?x?xf64>
      %t = arith.cmpi slt, %n, %m : index
      %s = arith.select %t, %a, %b : memref<?x?xf64>
      %r = memref.load %s[%c1, %c1] : memref<?x?xf64>
      memref.dealloc %b : memref<?x?xf64>""",
        lambda x: x[1, 1],
    ),
    "view": (
        """%raw = memref.alloc() : memref<128xi8>
      %v = memref.view %raw[%c16][%n] : memref<128xi8> to memref<?x2xf64>
      %x = memref.load %a[%c1, %c0] : memref<?x?xf64>
      memref.store %x, %v[%c1, %c1] : memref<?x2xf64>
      %p = memref.extract_aligned_pointer_as_index %raw : memref<128xi8> -> index
      %s = arith.addi %p, %c40 : index
      %q = mach.ptr_from_int %s : index -> !llvm.ptr
      %r = mach.load %q : !llvm.ptr -> f64
      memref.dealloc %raw : memref<128xi8>""",
        lambda x: x[1, 0],
    ),
    "transfer inside": (
        """%z = arith.constant 0.0 : f64
      %v = vector.transfer_read %a[%c1, %c1], %z {in_bounds = [true, true]} : memref<?x?xf64>, vector<2x4xf64>
      %r = vector.extract %v[1, 3] : f64 from vector<2x4xf64>""",
        lambda x: x[2, 4],
    ),
    "transfer over the edge": (
        """%z = arith.constant -7.0 : f64
      %v = vector.transfer_read %a[%c2, %c5], %z : memref<?x?xf64>, vector<4x4xf64>
      %acc = arith.constant 0.0 : f64
      %r = vector.multi_reduction <add>, %v, %acc [0, 1] : vector<4x4xf64> to f64""",
        lambda x: x[2:4, 5:8].sum() - 7.0 * 10,
    ),
    "transfer transposed": (
        """%z = arith.constant 0.0 : f64
      %v = vector.transfer_read %a[%c1, %c0], %z
        {permutation_map = affine_map<(i, j) -> (j, i)>, in_bounds = [true, true]} : memref<?x?xf64>, vector<4x2xf64>
      %r = vector.extract %v[3, 1] : f64 from vector<4x2xf64>""",
        lambda x: x[2, 3],
    ),
    "transfer broadcast": (
        """%z = arith.constant 0.0 : f64
      %v = vector.transfer_read %a[%c1, %c1], %z
        {permutation_map = affine_map<(i, j) -> (j, 0)>, in_bounds = [true, true]} : memref<?x?xf64>, vector<2x4xf64>
      %r = vector.extract %v[1, 2] : f64 from vector<2x4xf64>""",
        lambda x: x[1, 2],
    ),
    "transfer with a mask": (
        """%z = arith.constant 0.0 : f64
      %on = arith.constant dense<[[true, true, true, false], [false, false, false, false]]> : vector<2x4xi1>
      %v = vector.transfer_read %a[%c0, %c0], %z, %on {in_bounds = [true, true]} : memref<?x?xf64>, vector<2x4xf64>
      %acc = arith.constant 0.0 : f64
      %r = vector.multi_reduction <add>, %v, %acc [0, 1] : vector<2x4xf64> to f64""",
        lambda x: x[0, :3].sum(),
    ),
    "write over the edge": (
        """%v = arith.constant dense<100.0> : vector<4x4xf64>
      vector.transfer_write %v, %a[%c2, %c6] : vector<4x4xf64>, memref<?x?xf64>
      %z = arith.constant 0.0 : f64
      %w = vector.transfer_read %a[%c0, %c0], %z {in_bounds = [true, true]} : memref<?x?xf64>, vector<4x8xf64>
      %acc = arith.constant 0.0 : f64
      %r = vector.multi_reduction <add>, %w, %acc [0, 1] : vector<4x8xf64> to f64""",
        lambda x: x.sum() - x[2:, 6:].sum() + 400.0,
    ),
    "write transposed": (
        """%v = arith.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : vector<2x2xf64>
      vector.transfer_write %v, %a[%c0, %c0] {permutation_map = affine_map<(i, j) -> (j, i)>, in_bounds = [true, true]}
        : vector<2x2xf64>, memref<?x?xf64>
      %r = memref.load %a[%c0, %c1] : memref<?x?xf64>""",
        lambda x: 3.0,
    ),
    "vector load and store": (
        """%v = vector.load %a[%c1, %c0] : memref<?x?xf64>, vector<2x4xf64>
      vector.store %v, %a[%c0, %c0] : memref<?x?xf64>, vector<2x4xf64>
      %r = memref.load %a[%c1, %c3] : memref<?x?xf64>""",
        lambda x: x[2, 3],
    ),
    "gather along a stride of the run": (
        """%t = memref.reinterpret_cast %a to offset: [%c1], sizes: [4], strides: [%m]
          : memref<?x?xf64> to memref<4xf64, strided<[?], offset: ?>>
      %o = arith.constant dense<[3, 0, 1, 2]> : vector<4xi32>
      %k = arith.constant dense<[true, true, false, true]> : vector<4xi1>
      %p = arith.constant dense<9.0> : vector<4xf64>
      %v = vector.gather %t[%c0] [%o], %k, %p : memref<4xf64, strided<[?], offset: ?>>, vector<4xi32>, vector<4xi1>,
        vector<4xf64> into vector<4xf64>
      %r = vector.reduction <add>, %v : vector<4xf64> into f64""",
        lambda x: x[[3, 0, 2], 1].sum() + 9.0,
    ),
    "scatter under a mask": (
        """%o = arith.constant dense<[3, 0, 5, 2]> : vector<4xi32>
      %k = arith.constant dense<[true, true, true, false]> : vector<4xi1>
      %p = arith.constant dense<100.0> : vector<4xf64>
      vector.scatter %a[%c1, %c1] [%o], %k, %p : memref<?x?xf64>, vector<4xi32>, vector<4xi1>, vector<4xf64>
      %z = arith.constant 0.0 : f64
      %w = vector.transfer_read %a[%c1, %c0], %z {in_bounds = [true]} : memref<?x?xf64>, vector<8xf64>
      %r = vector.reduction <add>, %w : vector<8xf64> into f64""",
        lambda x: x[1, [0, 2, 3, 5, 7]].sum() + 300.0,
    ),
    "atomic": (
        """%five = arith.constant 5.0 : f64
      %old = memref.atomic_rmw addf %five, %a[%c0, %c1] : (f64, memref<?x?xf64>) -> f64
      %new = memref.load %a[%c0, %c1] : memref<?x?xf64>
      %r = arith.mulf %old, %new : f64""",
        lambda x: x[0, 1] * (x[0, 1] + 5.0),
    ),
    "array of unknown rank": (
        """%s = memref.subview %a[1, 1] [2, 3] [1, 2] : memref<?x?xf64> to
          memref<2x3xf64, strided<[?, 2], offset: ?>>
      %u = memref.cast %s : memref<2x3xf64, strided<[?, 2], offset: ?>> to memref<*xf64>
      %t = memref.cast %u : memref<*xf64> to memref<?x3xf64, strided<[?, ?], offset: ?>>
      %d = memref.dim %t, %c0 : memref<?x3xf64, strided<[?, ?], offset: ?>>
      %w = arith.index_cast %d : index to i64
      %rows = arith.sitofp %w : i64 to f64
      %e = memref.load %t[%c1, %c1] : memref<?x3xf64, strided<[?, ?], offset: ?>>
      %r = arith.addf %e, %rows : f64""",
        lambda x: x[2, 3] + 2,
    ),
    "atomic without an instruction": (
        """%five = arith.constant 5.0 : f64
      %column = memref.subview %a[1, 1] [3, 2] [1, 2] : memref<?x?xf64> to
          memref<3x2xf64, strided<[?, 2], offset: ?>>
      %old = memref.atomic_rmw mulf %five, %column[%c1, %c1] : (f64, memref<3x2xf64, strided<[?, 2], offset: ?>>) -> f64
      %new = memref.load %a[%c2, %c3] : memref<?x?xf64>
      %r = arith.addf %old, %new : f64""",
        lambda x: x[2, 3] * 6.0,
    ),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str) -> None:
    body, meaning = VIEWS[name]
    x = np.arange(32.0).reshape(4, 8)
    got = Function(ALLOCATED.format(body=body))(4, 8, result=F64)
    assert got == meaning(x)


@pytest.mark.parametrize("name", VIEWS)
def test_counts(name: str) -> None:
    m = module(ALLOCATED.format(body=VIEWS[name][0]))
    assert printed(emit_module(m, x86("avx512"))) == expected(m, x86("avx512"))


def test_globals() -> None:
    f = Function("""
    memref.global "private" constant @table : memref<2x3xi32> = dense<[[1, 2, 3], [4, 5, 6]]>
    memref.global "private" @counter : memref<1xi64> = dense<40>
    func.func @k(%i : index, %j : index) -> i64 {
      %t = memref.get_global @table : memref<2x3xi32>
      %x = memref.load %t[%i, %j] : memref<2x3xi32>
      %w = arith.extsi %x : i32 to i64
      %c = memref.get_global @counter : memref<1xi64>
      %o = memref.load %c[%c0] : memref<1xi64>
      %n = arith.addi %o, %w : i64
      memref.store %n, %c[%c0] : memref<1xi64>
      func.return %n : i64
    }""")
    assert f(1, 2, result=I64) == 46
    assert f(0, 0, result=I64) == 47


def test_a_global_of_a_million_zeros_is_one_word() -> None:
    """Each of them is a text else; signs of zeros stay."""
    f = Function("""
    memref.global "private" @zeros : memref<1024x1024xf16> = dense<0.0>
    memref.global "private" @signs : memref<4xf32> = dense<[0.0, -0.0, 0.0, -0.0]>
    func.func @k(%i : index) -> i32 {
      %s = memref.get_global @signs : memref<4xf32>
      %b = memref.load %s[%i] : memref<4xf32>
      %o = arith.bitcast %b : f32 to i32
      func.return %o : i32
    }""")
    assert "zeroinitializer" in f.llvm and len(f.llvm) < 10_000
    assert [f(i, result=ctypes.c_int32) for i in range(4)] == [0, -(1 << 31), 0, -(1 << 31)]


def test_c_functions_get_mlir_descriptors() -> None:
    """Unranked: rank and address of {allocated, aligned, offset, sizes, strides}; ranked: these spread out."""
    seen: list[object] = []

    def unranked(rank: int, address: int) -> None:
        fields = (I64 * (3 + 2 * rank)).from_address(address)
        seen.append((rank, list(fields[2:]), fields[0] == fields[1]))

    def ranked(allocated: int, aligned: int, *numbers: int) -> None:
        seen.append((allocated == aligned, list(numbers)))

    types = {
        "seeUnranked": ctypes.CFUNCTYPE(None, I64, I64)(unranked),
        "seeRanked": ctypes.CFUNCTYPE(None, *[I64] * 7)(ranked),
    }
    text = """
    func.func private @seeUnranked(memref<*xf32>)
    func.func private @seeRanked(memref<?x5xf32>)
    func.func @k(%n : index) {
      %a = memref.alloc(%n) : memref<?x5xf32>
      %u = memref.cast %a : memref<?x5xf32> to memref<*xf32>
      func.call @seeUnranked(%u) : (memref<*xf32>) -> ()
      func.call @seeRanked(%a) : (memref<?x5xf32>) -> ()
      memref.dealloc %a : memref<?x5xf32>
      func.return
    }"""
    target = x86("avx2")
    data = compile_object(emit_module(module(text), target), target)
    symbols = {name: ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in types.items()}
    loaded = LoadedObject(data, target, symbols)
    ctypes.CFUNCTYPE(None, I64)(loaded.address("k"))(3)
    assert seen == [(2, [0, 3, 5, 5, 1], True), (True, [0, 3, 5, 5, 1])]


def test_layouts_that_are_no_strides_are_refused() -> None:
    text = """
    func.func @k(%a : memref<8xf32, affine_map<(d0) -> (d0 floordiv 2)>>) {
      func.return
    }"""
    with pytest.raises(UnsupportedError, match="not a strided form"):
        emit_module(module(text), x86("avx2"))
