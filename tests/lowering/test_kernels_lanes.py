"""Kernels that a user writes, and the RFCs' programs, down to lanes: same results, and what a lane does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects import scf

import tilewright as tw
from tests.arrays import poison
from tests.draws import fresh_rng
from tests.lowering.programs import lowered, run, wrong
from tests.lowering.test_kernels import (
    RUN,
    array,
    bias_and_row_sums,
    columns_too,
    counts,
    gemm,
    gemm_bt,
    gemm_tf32,
    module_of,
    rfc,
    softmax_rows,
)
from tilewright.dialects.upstream.gpu.lanes import ShuffleOp
from tilewright.ops.attention import attention_kernel
from tilewright.passes.xegpu.pipeline import SUBGROUP, WORKGROUP, lower

ALL = (*WORKGROUP, *SUBGROUP)
HALF = np.float16


@tw.kernel
def anywhere(I, X, Y, R, Z):
    """Elements named by data: some lie before or behind their arrays."""
    own = [0, tw.program_id(0) * 64]
    at = tw.load_tile(tw.init_tile(I, own, (1, 64)))
    x = tw.load_gather(tw.init_tile(X, at), padding=-3.0)
    tw.store_scatter(x + 1.0, tw.init_tile(Y, at), x < 0.5)
    old = tw.atomic_rmw("addf", x, tw.init_tile(R, at))
    tw.store_tile(x + old, tw.init_tile(Z, own, (1, 64)))


@tw.kernel
def doubled(X, Y):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (4, 16)))
    tw.store_tile(x * 2.0, tw.init_tile(Y, [0, 0], (4, 16)))


def down(module: Any, grid: tuple[int, int, int], args: list[Any], chip: str = "pvc") -> Any:
    return lowered(module, grid, args, ALL, chip)


def loop(module: Any) -> Counter[str]:
    """The ops of the first loop, but the lane's number read anew: a shuffle of itself by itself."""
    found = next(op for op in module.walk() if isinstance(op, scf.ForOp))
    numbers = [o for o in found.walk() if isinstance(o, ShuffleOp) and o.value is o.offset]
    return Counter(op.name for op in found.walk() if op not in numbers)


@pytest.mark.parametrize("chip", ["pvc", "dg2"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int8], ids=str)
def test_a_product(dtype: Any, chip: str):
    """Extents that no tile divides; rows of 64 and 16 elements, which block messages need."""
    result = np.int32 if dtype is np.int8 else np.float32
    module, args = module_of(
        gemm,
        array(100, 64, dtype=dtype),
        array(64, 128, dtype=dtype),
        poison(100, 128, dtype=result),
        BM=64,
        BN=128,
        BK=32,
    )
    found = loop(down(module, (2, 1, 1), args, chip))
    assert found["xegpu.dpas"] and not found["gpu.shuffle"]
    if chip == "pvc":
        assert found["xegpu.load_nd"] and not found["xegpu.load"] and not found["vector.shuffle"]


def test_a_ragged_product():
    module, args = module_of(
        gemm,
        array(70, 45, dtype=HALF),
        array(45, 67, dtype=HALF),
        poison(70, 67),
        BM=64,
        BN=64,
        BK=32,
    )
    final = down(module, (2, 2, 1), args)
    found = loop(final)
    assert found["xegpu.dpas"] and found["xegpu.load"] and not found["xegpu.load_nd"]
    kernel = next(op for op in final.walk() if op.name == "gpu.func")
    text = str(kernel.attributes["tilewright.remarks"])
    assert "its pitch is only known to be a multiple of 2 bytes, 16 are needed" in text


def test_a_product_in_full_precision():
    """No dpas multiplies f32: lanes do it, and the result is that of f32."""
    module, args = module_of(
        gemm, array(30, 20), array(20, 40), poison(30, 40), BM=32, BN=32, BK=16
    )
    assert not counts(down(module, (1, 2, 1), args))["xegpu.dpas"]


def test_tf32():
    module, args = module_of(gemm_tf32, array(64, 32), array(32, 64), poison(64, 64))
    assert loop(down(module, (1, 1, 1), args))["xegpu.dpas"]


def test_a_transposed_operand():
    module, args = module_of(
        gemm_bt, array(100, 64, dtype=HALF), array(128, 64, dtype=HALF), poison(100, 128)
    )
    found = loop(down(module, (1, 1, 1), args))
    assert found["xegpu.dpas"] and not found["gpu.shuffle"] and not found["vector.shuffle"]


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_rows_that_go_down(rows: int):
    """Of two, the elements from the first row's start to the last one's end are none."""
    module, args = module_of(doubled, array(rows, 5)[::-1], poison(rows, 5)[::-1])
    down(module, (1, 1, 1), args)


@pytest.mark.parametrize("chip", ["pvc", "dg2"])
def test_reductions(chip: str):
    module, args = module_of(
        bias_and_row_sums,
        array(100, 64, dtype=HALF),
        array(64, 200, dtype=HALF),
        array(1, 200),
        np.zeros((100, 1), np.float32),
    )
    down(module, (1, 2, 1), args, chip)
    module, args = module_of(softmax_rows, array(50, 100), poison(50, 100))
    down(module, (4, 1, 1), args, chip)
    module, args = module_of(columns_too, array(100, 50), poison(100, 1), poison(2, 50))
    down(module, (2, 1, 1), args, chip)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool):
    """Scores become an operand of the second product where they are: shuffles reduce rows, and nothing else."""
    module, args = module_of(
        attention_kernel,
        array(2, 100, 64, dtype=HALF),
        array(2, 150, 64, dtype=HALF),
        array(2, 150, 64, dtype=HALF),
        poison(2, 100, 64, dtype=HALF),
        0.18,
        D=64,
        BM=64,
        BN=64,
        CAUSAL=causal,
    )
    found = loop(down(module, (2, 2, 1), args))
    assert found["xegpu.dpas"] and not found["vector.shuffle"]
    # A maximum and a sum over 16 lanes, four steps each, per block of eight rows.
    rows = found["gpu.shuffle"] // 8
    assert found["gpu.shuffle"] == 8 * rows


@pytest.mark.parametrize("name", RUN.PROGRAMS)
def test_rfc(name: str):
    size = 512 if "two_cache" in name else 256
    args, _ = RUN.PROGRAMS[name](size, fresh_rng())
    module = rfc(name, size)
    expected = run(module, (1, 1, 1), args)
    lower(module, ALL)
    assert wrong(expected, run(module, (1, 1, 1), args, check=True, kernel="test_gemm")) is None
    found = counts(module)
    assert found["xegpu.dpas"] in (16, 32, 64) and not loop(module)["xegpu.load"]


@pytest.mark.parametrize("chip", ["pvc", "dg2"])
def test_elements_outside_of_their_array(chip: str):
    """They are padded or dropped."""
    rng = fresh_rng()
    at = rng.permutation(128).astype(np.int32)[None, :] - 20
    at[0, 5], at[0, 70] = 2**31 - 1, -(2**31)
    module, args = module_of(anywhere, at, array(70), poison(70), array(70), poison(1, 128))
    found = counts(down(module, (2, 1, 1), args, chip))
    assert found["xegpu.load"] and found["xegpu.store"] and found["xegpu.atomic_rmw"]
