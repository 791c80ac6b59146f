"""That kernels of ops/ are compiled, not recognised (DESIGN section 6).

Rewritten without a change of meaning they keep their products, copies and loops; without any one
optimisation their results stay; and a copy of one in a user's file gives the same code.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.arrays import error, poison
from tilewright import ops
from tilewright.ops.attention import attention_kernel
from tilewright.ops.matmul import matmul_kernel
from tilewright.ops.norm import norm_rows
from tilewright.ops.softmax import softmax_rows
from tilewright.targets.cpu.pipeline import PIPELINE

from . import rewrites
from .conftest import normal

MATRIX = tw.spec((512, 256), tw.f32)
ROW = tw.spec((256,), tw.f32)
HEADS = tw.spec((4, 512, 64), tw.f32)
TILES = {"BM": 4, "BN": 256}

ATTENTION = (HEADS, HEADS, HEADS, HEADS, 0.1)
PAIRS = [
    (attention_kernel, rewrites.attention_swapped, ATTENTION, {}),
    (attention_kernel, rewrites.attention_swapped, ATTENTION, {"CAUSAL": True}),
    (attention_kernel, rewrites.attention_neutral, ATTENTION, {}),
    (softmax_rows, rewrites.softmax_neutral, (MATRIX, MATRIX), TILES),
    (softmax_rows, rewrites.softmax_swapped, (MATRIX, MATRIX), TILES),
    (norm_rows, rewrites.norm_neutral, (MATRIX, ROW, ROW, MATRIX, 1e-5), {**TILES, "CENTER": True}),
    (
        norm_rows,
        rewrites.norm_neutral,
        (MATRIX, ROW, None, MATRIX, 1e-5),
        {**TILES, "CENTER": False},
    ),
]

STAGE_OPS = ("stage.contract", "stage.pack ", "stage.panel ", "stage.fused", "scf.for")
MACHINE_OPS = ("math.fma", "mach.instr", "mach.load", "mach.store", "mach.masked", "scf.for")


@pytest.mark.parametrize(
    "plain, rewritten, args, constexprs", PAIRS,
    ids=[f"{p[1].name}{'-causal' if p[3].get('CAUSAL') else ''}-{i}" for i, p in enumerate(PAIRS)],
)  # fmt: skip
def test_rewrites_keep_their_products_and_copies(plain, rewritten, args, constexprs):
    first, second = (k.compile(*args, **constexprs, target="cpu") for k in (plain, rewritten))
    for stage, names in (("stage", STAGE_OPS), ("mach", MACHINE_OPS)):
        counts = [{n: k.ir[stage].count(n) for n in names} for k in (first, second)]
        assert counts[0] == counts[1], stage
    assert sum(first.ir["mach"].count(n) for n in MACHINE_OPS) > 3


@pytest.mark.parametrize(
    "kernel", [rewrites.attention_swapped, rewrites.attention_neutral], ids=str
)
@pytest.mark.parametrize("causal", [False, True])
def test_rewritten_attention_is_right(kernel, causal, target, rng):
    q, k, v = (normal(rng, (2, 150, 64), "f4") for _ in range(3))
    got, want = poison(*q.shape), ops.attention(q, k, v, causal=causal, target="reference")
    grid = (2, 3) if kernel is rewrites.attention_swapped else (3, 2)
    scale = 64**-0.5 * np.log2(np.e)
    kernel.options(target=target)[grid](q, k, v, got, float(scale), CAUSAL=causal)
    assert error(got, want.astype(np.float64)) < 4e-6


@pytest.mark.parametrize(
    "off",
    [*PIPELINE.switches, tuple(PIPELINE.switches)],
    ids=lambda o: o if isinstance(o, str) else "all",
)
def test_without_an_optimisation_results_stay(off, rng):
    options = {"disable": off, "target": "cpu"}
    a, b = normal(rng, (2, 70, 90), "f4"), normal(rng, (90, 50), "f4")
    bias, residual = normal(rng, (50,), "f4"), normal(rng, (2, 70, 50), "f4")
    x, w = normal(rng, (33, 130), "f4"), normal(rng, (130,), "f4")
    q, k, v = (normal(rng, (2, 150, 64), "f4") for _ in range(3))
    calls = [
        lambda o: ops.matmul(a, b, bias=bias, activation="silu", residual=residual, **o),
        lambda o: ops.softmax(x, **o),
        lambda o: ops.rms_norm(x, w, **o),
        lambda o: ops.layer_norm(x, w, w, **o),
        lambda o: ops.attention(q, k, v, causal=True, **o),
    ]
    for i, call in enumerate(calls):
        want = call({"target": "reference"}).astype(np.float64)
        assert error(call(options), want) < 1e-5, i


COPIES = [
    ("matmul", "matmul_kernel", (HEADS, tw.spec((4, 64, 512), tw.f32), tw.spec((4, 512, 512), tw.f32), None, None), {}),
    ("attention", "attention_kernel", ATTENTION, {}),
    ("softmax", "softmax_rows", (MATRIX, MATRIX), TILES),
    ("norm", "norm_rows", (MATRIX, ROW, None, MATRIX, 1e-5), {**TILES, "CENTER": False}),
]  # fmt: skip
ORIGINALS = {k.name: k for k in (matmul_kernel, attention_kernel, softmax_rows, norm_rows)}


@pytest.mark.parametrize("module, name, args, constexprs", COPIES, ids=[c[1] for c in COPIES])
def test_a_copy_in_a_users_file_gives_the_same_code(module, name, args, constexprs, tmp_path):
    source = Path(inspect.getfile(sys.modules[f"tilewright.ops.{module}"])).read_text()
    path = tmp_path / "users_file.py"
    path.write_text(source.replace(name, "mine"))
    spec = importlib.util.spec_from_file_location("users_file", path)
    assert spec is not None and spec.loader is not None
    users = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(users)
    first, second = (
        k.compile(*args, **constexprs, target="cpu").asm["llvm"]
        for k in (ORIGINALS[name], users.mine)
    )
    assert first.replace(name, "mine") == second


@pytest.mark.parametrize("folder", ["passes", "codegen", "targets"])
def test_nobody_below_knows_what_it_compiles(folder):
    root = Path(tw.__file__).parent / folder
    files = list(root.rglob("*.py"))
    assert files
    for path in files:
        text = path.read_text().lower().replace("linalg.softmax", "an op of MLIR")
        assert not any(w in text for w in ("gemm", "attention", "softmax", "rms_norm")), path
