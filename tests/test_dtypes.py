"""The element types agree with numpy and MLIR."""

import pickle

import numpy as np
import pytest

import tilewright as tw
from tilewright import dtypes


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_forms_agree(dtype):
    assert dtypes.from_name(dtype.name) is dtype
    assert dtypes.from_mlir(dtype.mlir) is dtype
    assert dtype.numpy.itemsize == dtype.itemsize
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    if dtype not in (tw.tf32, tw.index):
        assert dtypes.from_numpy(dtype.numpy) is dtype
    assert dtype.is_float + dtype.is_integer + dtype.is_bool == 1


def test_spelling_of_mlir_types():
    spelling = {str(d): str(d.mlir) for d in dtypes.ALL}
    assert spelling["bf16"] == "bf16" and spelling["u8"] == "ui8" and spelling["index"] == "index"
    assert spelling["f8e4m3"] == "f8E4M3FN" and spelling["f8e5m2"] == "f8E5M2"
    assert str(tw.u16.arith) == "i16"


@pytest.mark.parametrize("alien", ["complex64", "datetime64[s]", "U3", ">f4", "float128"])
def test_what_no_kernel_holds(alien):
    with pytest.raises(TypeError, match="numpy dtype"):
        dtypes.from_numpy(np.dtype(alien))


def test_unknown_names():
    with pytest.raises(KeyError, match="no dtype is called 'f31'"):
        dtypes.from_name("f31")
    from xdsl.dialects.builtin import IntegerType

    with pytest.raises(TypeError, match="no element type"):
        dtypes.from_mlir(IntegerType(3))
