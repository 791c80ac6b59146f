"""Names of files and kernels on the command line, and arguments as text."""

from __future__ import annotations

import numpy as np
import pytest

from tests.draws import fresh_rng
from tilewright import CompileError, dtypes
from tilewright.arguments import ArraySpec
from tilewright.runtime.arrays import ALIGNMENT
from tilewright.tools.exits import UsageError
from tilewright.tools.sources import (
    CommandSource,
    find_kernel,
    load_python,
    parse_argument,
    parse_constexprs,
    parse_grid,
    parse_source,
    parse_value,
    random_array,
    split_input,
)


@pytest.mark.parametrize("text, source", [
    ("a.mlir", CommandSource("a.mlir")), ("-", CommandSource("-")), ("x/y.py", CommandSource("x/y.py")),
    ("x/y.py:gemm", CommandSource("x/y.py", "gemm")), ("c:/x.mlir", CommandSource("c:/x.mlir")),
])  # fmt: skip
def test_sources(text, source):
    assert parse_source(text) == source


@pytest.mark.parametrize("text, value", [
    ("f32[64,128]", ArraySpec((64, 128), dtypes.f32)),
    ("bf16[64, 128;1, 64]", ArraySpec((64, 128), dtypes.bf16, (1, 64))),
    ("i8[5]", ArraySpec((5,), dtypes.i8)),
    ("3", 3), ("-0.5", -0.5), ("true", True), ("inf", float("inf")), ("index", 1),
    ("f32", np.float32(1)), ("u8", np.uint8(1)),
])  # fmt: skip
def test_arguments(text, value):
    parsed = parse_argument(text)
    assert parsed == value and type(parsed) is type(value)


@pytest.mark.parametrize("text", ["f32[]", "f99[3]", "f32[2,3;1]", "f32[a]", "word", "f32[3"])
def test_arguments_that_are_none(text):
    with pytest.raises(UsageError):
        parse_argument(text)


def test_values_and_constexprs():
    assert parse_value("tw.bf16") is dtypes.bf16 and parse_value("f32") is dtypes.f32
    assert parse_value("(1, 2)") == (1, 2) and parse_value("'x'") == "x"
    assert parse_constexprs(["BM=128", "T=bf16", "E=1e-5"]) == {
        "BM": 128, "T": dtypes.bf16, "E": 1e-5,
    }  # fmt: skip
    for wrong in ("BM", "B M=3", "=3", "BM=__import__('os')"):
        with pytest.raises(UsageError):
            parse_constexprs([wrong])


def test_grids():
    assert parse_grid("4") == (4, 1, 1) and parse_grid("4, 2") == (4, 2, 1)
    assert parse_grid("cdiv(100, BM), 3 * (N - 1)", {"BM": 32, "N": 5}) == (4, 12, 1)
    for wrong in (
        "",
        "x",
        "cdiv(1, 0)",
        "abs(3)",
        "4.5",
        "cdiv(8, BM)",
        "0",
        "2, -1",
        "1, 1, 1, 1",
    ):
        with pytest.raises(UsageError):
            parse_grid(wrong)


def test_split_input_keeps_lines():
    parts = list(split_input("a\nb\n// -----\nc\n// ----- more\nd\n"))
    assert parts == [(0, "a\nb\n"), (3, "c\n"), (5, "d\n")]


@pytest.mark.parametrize(
    "dtype", [d for d in dtypes.ALL if d.name not in ("tf32", "index")], ids=str
)
def test_random_arrays(dtype):
    rng = fresh_rng()
    array = random_array(ArraySpec((16, 24), dtype), rng)
    assert array.shape == (16, 24) and array.dtype == dtype.numpy
    assert len(np.unique(array.astype(np.float64))) > 1
    strided = random_array(ArraySpec((16, 24), dtype, (1, 20)), rng)
    assert strided.strides == (dtype.itemsize, 20 * dtype.itemsize)
    assert array.ctypes.data % ALIGNMENT == strided.ctypes.data % ALIGNMENT == 0


def test_kernels_of_a_file(kernels):
    assert find_kernel(parse_source(f"{kernels}:scaled")).name == "scaled"
    with pytest.raises(UsageError, match="scaled, broken"):
        find_kernel(parse_source(str(kernels)))
    with pytest.raises(UsageError, match="no kernel 'other'"):
        find_kernel(parse_source(f"{kernels}:other"))


@pytest.mark.parametrize("text, words", [
    ("x = (", "no Python"), ("\n\nraise ValueError('three')", "ValueError: three"),
    ("\nimport no_such_module_at_all", "no_such_module_at_all"),
])  # fmt: skip
def test_python_that_fails(text, words, tmp_path):
    path = tmp_path / "failing.py"
    path.write_text(text)
    with pytest.raises(CompileError, match=words) as caught:
        load_python(str(path))
    assert caught.value.location is not None
    assert caught.value.location.line == text.count("\n") + 1
