"""The runner's library: what it prints, and that compiled code reaches it through descriptors."""

from __future__ import annotations

import ctypes as C

import numpy as np
import pytest

from tests.draws import fresh_rng
from tilewright.arguments import array_of_memref
from tilewright.reference.mlir_runner import Runner, exported


@pytest.fixture
def runner():
    library = Runner(seed=7)
    library.text = ""

    def write(text: str) -> None:
        library.text += text

    library.write = write
    return library


def test_print_memref_nests_and_indents_as_mlir_does(runner):
    runner.print_memref(np.array([[1.0, 2.5, 1e-7], [4.0, 1234567.0, -0.0]], np.float32))
    head, *rows = runner.text.split("\n")
    assert head.startswith("Unranked Memref base@ = 0x")
    assert head.endswith(" rank = 2 offset = 0 sizes = [2, 3] strides = [3, 1] data = ")
    assert rows == ["[[1,   2.5,   1e-07], ", " [4,   1.23457e+06,   -0]]", ""]


def test_print_memref_of_integers_and_rank_zero(runner):
    runner.print_memref(np.array([[[1], [-2]]], np.int8))
    runner.print_memref(np.array(3, np.int32))
    assert "[[[1], \n  [-2]]]\n" in runner.text
    assert runner.text.endswith("strides = [] data = \n[3]\n")


def test_a_million_values_print(runner):
    runner.print_memref(np.full((1024, 1024), 3, np.int32))
    assert runner.text.split("data =")[1].count("3") == 1 << 20


@pytest.mark.parametrize("delta, verdict", [(9e-4, "TRUE"), (2e-3, "FALSE")])
def test_all_close_tolerance(runner, delta, verdict):
    x = np.linspace(1, 2, 10).astype(np.float32)
    runner.print_all_close(x * np.float32(1 + delta), x)
    assert runner.text == f"[ALLCLOSE: {verdict}]\n"
    assert bool(runner.failures) == (verdict == "FALSE")


def test_weak_comparison_passes_nan_and_short_operands_but_strict_does_not(runner):
    nan = np.array([1.0, np.nan], np.float32)
    for strict, verdict in ((False, "TRUE"), (True, "FALSE")):
        runner.strict, runner.text = strict, ""
        runner.print_all_close(nan, np.ones(2, np.float32))
        runner.print_all_close(np.ones((1, 3), np.float32), np.ones(2, np.float32))
        runner.print_all_close(np.ones(0, np.float32), np.ones(0, np.float32))
        assert runner.text == f"[ALLCLOSE: {verdict}]\n" * 3


def test_max_error_names_the_place(runner):
    runner.print_max_error(np.array([1, 2, 3], np.float32), np.array([1, 2.5, 3], np.float32))
    assert runner.text == (
        "Max absolute error 0.5 at idx=1 (i=2, j=2.5)\n"
        "Max relative error 0.2 at idx=1 (i=2, j=2.5)\n"
    )


def test_max_error_of_narrow_arrays_that_agree_names_no_values(runner):
    """Both arrays are of the narrow type; nothing differs, so that no place was found: what IMEX prints then."""
    x = np.array([1, np.nan, 3], np.float16)
    runner.print_max_error(x, x.copy())
    assert runner.text == (
        "Max absolute error 0 at idx=0 (i=inf, j=inf)\nMax relative error 0 at idx=0 (i=inf, j=inf)\n"
    )


def test_gemm_of_matrices_that_do_not_fit_says_so_and_does_nothing(runner):
    a, b, c = np.ones((4, 8), np.float16), np.ones((4, 8), np.float16), np.ones((4, 8), np.float32)
    runner.gemm(a, b, c)
    runner.gemm(a, b.T, c[:, :4])
    runner.gemm(a, b[0], c)
    assert runner.text == (
        "Incompatible matrix dimensions: A: [4, 8], B: [4, 8], C: [4, 8]\n"
        "Expecting A strides to be [M, 1], B strides to be [K, 1], C strides to be [M, 1]\n"
        "Expecting 2D memrefs, got A rank: 2, B rank: 1, C rank: 2\n"
    )
    assert (c == 1).all()
    runner.gemm(a, np.ascontiguousarray(b.T), d := np.ones((4, 4), np.float32))
    assert (d == 9).all()


def test_random_fill_is_seeded_and_truncates(runner):
    a, b = np.zeros(1000, np.float16), np.zeros(1000, np.float16)
    runner.fill_random(a, -5.0, 5.0, True)
    Runner(seed=7).fill_random(b, -5.0, 5.0, True)
    np.testing.assert_array_equal(a, b)
    assert (a == np.trunc(a)).all()
    assert len(set(a.tolist())) > 5
    assert np.abs(a).max() <= 5


def test_gemm_accumulates(runner):
    rng = fresh_rng()
    a = rng.standard_normal((5, 7)).astype(np.float16)
    b = rng.standard_normal((7, 3)).astype(np.float16)
    c = np.ones((5, 3), np.float32)
    runner.gemm(a, b, c)
    np.testing.assert_allclose(c, 1 + a.astype("f8") @ b.astype("f8"), rtol=1e-5, atol=1e-5)


def descriptor(a: np.ndarray) -> C.Array[C.c_int64]:
    strides = [s // a.itemsize for s in a.strides]
    data = a.ctypes.data
    return (C.c_int64 * (3 + 2 * a.ndim))(data, data, 0, *a.shape, *strides)


def test_compiled_code_reaches_a_function_through_descriptors(runner):
    a = np.arange(24, dtype=np.float32).reshape(4, 6)[::2, 1::2]
    words = descriptor(a)
    np.testing.assert_array_equal(array_of_memref(2, C.addressof(words), a.dtype), a)
    table = runner.functions()
    exported(table["printMemrefF32"])(2, C.addressof(words))
    assert "sizes = [2, 3] strides = [12, 2]" in runner.text
    exported(table["fillResource1DF32"])(2, C.addressof(words), 4.0)
    assert (a == 4).all()
    assert exported(table["rtclock"])() > 0


def test_an_argument_is_printed_if_any_bit_of_it_has_changed(runner):
    a = np.empty((4, 6), np.float16)[:, ::2]
    runner.fill_argument(0, a)
    runner.print_argument(0, a)
    assert runner.text == ""
    a.view(np.uint16)[3, 2] ^= 1
    runner.print_argument(0, a)
    assert runner.text.startswith("argument 0: float16[4x3]")
