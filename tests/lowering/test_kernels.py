"""Kernels that a user writes, from the workgroup to its subgroups: same results, and as few exchanges as needed."""

# Kernels are not typed Python: their parameters are arrays, tiles and constants of the tile language.
# pyright: reportMissingParameterType=false

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import IntegerAttr, ModuleOp

import tilewright as tw
from tests.arrays import poison
from tests.draws import fresh_rng
from tests.lowering.programs import lowered, run, wrong
from tilewright.dialects.text import print_module
from tilewright.ops.attention import attention_kernel
from tilewright.passes.xegpu.pipeline import WORKGROUP, lower
from tilewright.passes.xegpu.to_xetile import xegpu_to_xetile
from tilewright.runtime.key import signature_of
from tilewright.targets.base import CompileOptions

RFC = Path(__file__).parents[2] / "examples" / "rfc"
SPEC = importlib.util.spec_from_file_location("rfc_run", RFC / "run.py")
assert SPEC is not None and SPEC.loader is not None
RUN: Any = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(RUN)


@tw.kernel
def gemm(A, B, C, BM: tw.constexpr = 256, BN: tw.constexpr = 256, BK: tw.constexpr = 32):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    a = tw.init_tile(A, [m, 0], (BM, BK))
    b = tw.init_tile(B, [0, n], (BK, BN))
    acc = tw.zeros((BM, BN), tw.i32 if A.dtype == tw.i8 else tw.f32)
    for _k in range(0, A.shape[1], BK):
        tw.prefetch_tile(a)
        tw.prefetch_tile(b)
        acc = tw.tile_mma(tw.load_tile(a), tw.load_tile(b), acc)
        a = tw.update_tile_offset(a, [0, BK])
        b = tw.update_tile_offset(b, [BK, 0])
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def gemm_tf32(A, B, C):
    m, n = tw.program_id(0) * 64, tw.program_id(1) * 64
    acc = tw.zeros((64, 64), tw.f32)
    for k in range(0, A.shape[1], 16):
        a = tw.load_tile(tw.init_tile(A, [m, k], (64, 16))).to(tw.tf32)
        b = tw.load_tile(tw.init_tile(B, [k, n], (16, 64))).to(tw.tf32)
        acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc, tw.init_tile(C, [m, n], (64, 64)))


@tw.kernel
def gemm_bt(A, BT, C):
    m, n = tw.program_id(0) * 128, tw.program_id(1) * 128
    acc = tw.zeros((128, 128), tw.f32)
    for k in range(0, A.shape[1], 32):
        b = tw.transpose(tw.load_tile(tw.init_tile(BT, [n, k], (128, 32))))
        acc = tw.tile_mma(tw.load_tile(tw.init_tile(A, [m, k], (128, 32))), b, acc)
    tw.store_tile(acc, tw.init_tile(C, [m, n], (128, 128)))


@tw.kernel
def bias_and_row_sums(A, B, bias, R):
    m, n = tw.program_id(0) * 128, tw.program_id(1) * 128
    acc = tw.zeros((128, 128), tw.f32)
    for k in range(0, A.shape[1], 32):
        a = tw.load_tile(tw.init_tile(A, [m, k], (128, 32)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (32, 128))), acc)
    row = tw.load_tile(tw.init_tile(bias, [0, n], (1, 128)))
    tw.atomic_rmw("addf", tw.sum(acc + row, 1), tw.init_tile(R, [m, 0], (128, 1)))


@tw.kernel
def softmax_rows(X, Y):
    m = tw.program_id(0) * 16
    x = tw.load_tile(tw.init_tile(X, [m, 0], (16, 128)))
    e = tw.exp(x - tw.max(x, 1))
    tw.store_tile(e / tw.sum(e, 1), tw.init_tile(Y, [m, 0], (16, 128)))


@tw.kernel
def columns_too(X, Y, Z):
    """A value of which rows and columns are reduced: one of the two crosses subgroups."""
    x = tw.load_tile(tw.init_tile(X, [tw.program_id(0) * 64, 0], (64, 64)))
    tw.store_tile(tw.sum(x, 1), tw.init_tile(Y, [tw.program_id(0) * 64, 0], (64, 1)))
    tw.store_tile(tw.max(x, 0), tw.init_tile(Z, [tw.program_id(0), 0], (1, 64)))


def module_of(kernel: Any, *args: Any, **constants: Any) -> tuple[ModuleOp, list[Any]]:
    """A kernel's module for these arguments, and the arguments of a launch."""
    chosen, values = kernel.resolve(kernel.launcher.bind(args, constants))
    types, constexprs, _ = chosen.launcher.describe(values)
    built = chosen.build(signature_of(types), constexprs, CompileOptions()).module
    given = [v for p, v in zip(chosen.parameters, values, strict=True) if not p.constexpr]
    return built if isinstance(built, ModuleOp) else built.module, given


def array(*shape: int, dtype: Any = np.float32) -> Any:
    rng = fresh_rng()
    if np.dtype(dtype).kind == "i":
        return rng.integers(-50, 50, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def counts(module: ModuleOp) -> Counter[str]:
    return Counter(op.name for op in module.walk())


def subgroups(module: ModuleOp) -> int:
    kernel = next(op for op in module.walk() if op.name == "gpu.func")
    number = kernel.attributes["tilewright.subgroups"]
    assert isinstance(number, IntegerAttr)
    return number.value.data


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int8, np.float32], ids=str)
def test_a_product_needs_no_exchange(dtype: Any):
    result = np.int32 if dtype is np.int8 else np.float32
    module, args = module_of(
        gemm,
        array(300, 90, dtype=dtype),
        array(90, 260, dtype=dtype),
        poison(300, 260, dtype=result),
    )
    found = counts(lowered(module, (2, 2, 1), args))
    assert subgroups(lowered(module, (2, 2, 1), args)) == 32
    assert found["xegpu.load_nd"] == 2 and found["xegpu.dpas"] == 1
    assert found["xegpu.prefetch_nd"] == 2
    assert not found["gpu.barrier"] and not found["xegpu.store_matrix"]


def test_prefetches_are_distributed_to_all():
    module, _ = module_of(
        gemm, array(256, 64, dtype=np.float16), array(64, 256, dtype=np.float16), array(256, 256)
    )
    lower(module, WORKGROUP)
    text = print_module(module)
    assert text.count("prefetch_nd") == 2
    assert "!xegpu.tensor_desc<8x32xf16>" in text


def test_tf32():
    module, args = module_of(gemm_tf32, array(100, 40), array(40, 70), poison(100, 70))
    assert counts(lowered(module, (2, 2, 1), args))["xegpu.dpas"] >= 1


def test_a_transposed_operand_is_transposed_within_its_subgroup():
    half = np.float16
    module, args = module_of(
        gemm_bt, array(300, 90, dtype=half), array(260, 90, dtype=half), poison(300, 260)
    )
    found = counts(lowered(module, (3, 3, 1), args))
    assert found["vector.transpose"] == 1 and not found["gpu.barrier"]


def test_a_row_reduction_exchanges_partial_sums_once():
    half = np.float16
    module, args = module_of(
        bias_and_row_sums,
        array(200, 90, dtype=half),
        array(90, 260, dtype=half),
        array(1, 260),
        np.zeros((200, 1), np.float32),
    )
    found = counts(lowered(module, (2, 3, 1), args))
    assert found["gpu.barrier"] == found["xegpu.store_matrix"] == found["xegpu.load_matrix"] == 1


def test_rows_stay_within_their_subgroup():
    module, args = module_of(softmax_rows, array(50, 100), poison(50, 100))
    assert not counts(lowered(module, (4, 1, 1), args))["gpu.barrier"]


def test_two_reductions_of_one_value():
    module, args = module_of(columns_too, array(100, 50), poison(100, 1), poison(2, 50))
    assert counts(lowered(module, (2, 1, 1), args))["gpu.barrier"] == 1


@pytest.mark.parametrize("causal", [False, True])
def test_attention_needs_no_exchange(causal: bool):
    half = np.float16
    module, args = module_of(
        attention_kernel,
        array(2, 100, 64, dtype=half),
        array(2, 150, 64, dtype=half),
        array(2, 150, 64, dtype=half),
        poison(2, 100, 64, dtype=half),
        0.18,
        D=64,
        BM=64,
        BN=64,
        CAUSAL=causal,
    )
    found = counts(lowered(module, (2, 2, 1), args))
    assert not found["gpu.barrier"] and not found["xegpu.store_matrix"]


# --- The programs of the RFCs -------------------------------------------------------------------


def rfc(name: str, size: int = 512) -> ModuleOp:
    module: ModuleOp = RUN.load(name, size)
    if name.startswith("xegpu"):
        xegpu_to_xetile(module)
    return module


@pytest.mark.parametrize("name", RUN.PROGRAMS)
def test_rfc(name: str):
    args, _ = RUN.PROGRAMS[name](512, fresh_rng())
    module = rfc(name)
    expected = run(module, (1, 1, 1), args)
    lower(module, WORKGROUP)
    found = counts(module)
    assert wrong(expected, run(module, (1, 1, 1), args, kernel="test_gemm")) is None
    assert found["xegpu.convert_layout"] == 0
    if "slm" not in name and "reduction" not in name:
        assert found["gpu.barrier"] == 0


def test_barriers_of_the_text_make_no_difference():
    """XeTile, appendix 2.4, with and without its barriers."""
    name = "xetile_2_4_cooperative_slm"
    texts: list[str] = []
    for keep in (True, False):
        module = rfc(name)
        if not keep:
            for op in list(module.walk()):
                if op.name == "gpu.barrier":
                    op.detach()
                    op.erase()
        lower(module, WORKGROUP)
        texts.append(print_module(module))
    assert texts[0] == texts[1]
    loop = texts[0][texts[0].index("scf.for") :]
    assert loop.count("gpu.barrier") == 1, "one per k-step"
    assert texts[0].count("gpu.barrier") == 2
    behind = loop[loop.index("gpu.barrier") :]
    assert behind.index("store_matrix") < behind.find("load_matrix") % (1 << 40), "as in the text"
