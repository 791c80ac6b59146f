"""Sums narrower than f32 are kept in f32."""

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects import gpu

import tilewright as tw
from tilewright import reference
from tilewright.passes.widen_accumulators import widen_accumulators


@tw.kernel
def narrow(A, B, C, ACC: tw.constexpr, NEST: tw.constexpr = False):
    acc = tw.zeros((16, 16), ACC)
    if NEST:
        for i in range(2):
            for k in range(0, A.shape[1], 16):
                a = tw.load_tile(tw.init_tile(A, [0, k + i * 8], (16, 8)))
                b = tw.load_tile(tw.init_tile(B, [k + i * 8, 0], (8, 16)))
                acc = tw.tile_mma(a, b, acc)
    else:
        for k in range(0, A.shape[1], 16):
            a = tw.load_tile(tw.init_tile(A, [0, k], (16, 16)))
            b = tw.load_tile(tw.init_tile(B, [k, 0], (16, 16)))
            acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc, tw.init_tile(C, [0, 0], (16, 16)))


@tw.kernel
def uses_the_sum(A, B, C, ACC: tw.constexpr):
    acc = tw.zeros((16, 16), ACC)
    for k in range(0, A.shape[1], 16):
        a = tw.load_tile(tw.init_tile(A, [0, k], (16, 16)))
        b = tw.load_tile(tw.init_tile(B, [k, 0], (16, 16)))
        acc = tw.tile_mma(a, b, acc * 0.5)
    tw.store_tile(acc, tw.init_tile(C, [0, 0], (16, 16)))


CASES = [(narrow, {}), (narrow, {"NEST": True}), (uses_the_sum, {})]


def inputs(dtype):
    seed = np.random.SeedSequence().entropy
    print("seed", seed)
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(s).astype(dtype) for s in ((16, 64), (64, 16)))


def expected(kernel, a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    if kernel is narrow:
        return a @ b
    acc = 0
    for k in range(0, 64, 16):
        acc = acc * 0.5 + a[:, k : k + 16] @ b[k : k + 16]
    return acc


@pytest.mark.parametrize(("kernel", "constexprs"), CASES)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_the_result_is_at_least_as_exact(kernel, constexprs, dtype):
    a, b = inputs(dtype)
    acc = tw.f16 if dtype is np.float16 else tw.bf16
    compiled = kernel.compile(a, b, a[:, :16], target="reference", ACC=acc, **constexprs)
    module = compiled.executable.module.clone()
    function = next(op for op in module.walk() if isinstance(op, gpu.FuncOp))
    outs = [np.full((16, 16), np.nan, dtype) for _ in range(2)]
    reference.run(module, (1, 1, 1), [a, b, outs[0]])
    widen_accumulators(function)
    module.verify()
    reference.run(module, (1, 1, 1), [a, b, outs[1]])
    exact = expected(kernel, a, b)
    before, after = (np.linalg.norm(o.astype(np.float64) - exact) for o in outs)
    assert after <= before * 1.01
    sums = [op.result.type for op in function.walk() if op.name == "xetile.tile_mma"]
    assert all(str(t).endswith("xf32>") for t in sums)
    if kernel is narrow:
        carried = [r.type for op in function.walk() if op.name == "scf.for" for r in op.results]
        assert all(str(t).endswith("xf32>") for t in carried)
        rounded = [op for op in function.walk() if op.name == "arith.truncf"]
        assert len(rounded) == 1 and rounded[0].parent is function.body.block


@pytest.mark.parametrize(("kernel", "constexprs"), CASES)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_sums_on_the_cpu(kernel, constexprs, dtype):
    a, b = inputs(dtype)
    acc = tw.f16 if dtype is np.float16 else tw.bf16
    c = np.full((16, 16), np.nan, dtype)
    kernel.options(target="cpu")[1](a, b, c, ACC=acc, **constexprs)
    exact = expected(kernel, a, b)
    error = np.linalg.norm(c.astype(np.float64) - exact) / np.linalg.norm(exact)
    assert error < (2e-3 if dtype is np.float16 else 2e-2)
