"""Tiles of any size: panels begin where tiles do, and what is left over beside whole ones is not multiplied as one."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.acceptance.kernels import gemm_init_in_loop as product
from tests.arrays import error
from tests.targets.cpu.test_thin import RUNNABLE

TYPES = {
    "f32": (np.float32, tw.f32, 1e-5),
    "bf16": (ml_dtypes.bfloat16, tw.f32, 1e-5),
    "f16": (np.float16, tw.f32, 1e-5),
    "i8": (np.int8, tw.i32, 0.0),
}


def drawn(rng: np.random.Generator, shape: tuple[int, int], dtype: Any) -> Any:
    if dtype == np.int8:
        return rng.integers(-128, 128, shape, np.int8)
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("form", ["nn", "nt", "tn", "tt"])
def test_results_of_tiles_of_any_size(rng, level, name, form):
    """What is read often is packed in front, what is read few times by its readers; panels that are kept, too."""
    dtype, acc, limit = TYPES[name]
    for sides, kept in (((9, 150), False), ((33, 65), False), ((9, 150), True)):
        bm, bn = (int(x) for x in rng.integers(*sides, 2))
        rounds = rng.integers(1, 7, 2)  # of tiles, and so of reads
        most = [int(r) * size for r, size in zip(rounds, (bm, bn), strict=True)]
        m, n = (x - int(rng.integers(size)) for x, size in zip(most, (bm, bn), strict=True))
        k = int(rng.integers(1, 700))
        a, b = drawn(rng, (m, k), dtype), drawn(rng, (k, n), dtype)
        a, b = (np.asfortranarray(x) if t == "t" else x for x, t in zip((a, b), form, strict=True))
        c = drawn(rng, (m, n), acc.numpy)
        held = [tw.prepack(x) for x in (a, b)] if kept else []
        run = product.options(target="cpu", machine=level, num_threads=2, disable="merge-programs")
        for _ in range(2):
            run[tw.cdiv(m, bm), tw.cdiv(n, bn)](a, b, c, BM=bm, BN=bn, BK=64, ACC=acc)
        want = a.astype(np.float64) @ b.astype(np.float64)
        assert error(c, want) <= limit, (m, n, k, bm, bn, kept)
        del held


@pytest.mark.parametrize("bm, bn", [(48, 80), (40, 64), (336, 96), (64, 24)])
def test_both_operands_are_packed_at_most_once(bm, bn):
    a, c = np.zeros((1344, 512), ml_dtypes.bfloat16), np.zeros((1344, 1344), np.float32)
    made = product.compile(a, a.T, c, BM=bm, BN=bn, BK=32, target="cpu", machine="amx")
    assert not any("packed by every workgroup" in r for r in made.remarks)
    assert "tw_pack0" in made.asm["asm"] and "tw_pack1" in made.asm["asm"]


@pytest.mark.parametrize("bm, half", [(48, True), (104, True), (64, False), (88, False)])
def test_a_last_panel_of_few_rows_is_one_row_of_tiles(bm, half):
    """Of two loops one has half the products of the other. (Beside fewer columns rows are read in their array.)"""
    a, c = np.zeros((512, 512), ml_dtypes.bfloat16), np.zeros((512, 512), np.float32)
    text = product.compile(a, a, c, BM=bm, BN=160, BK=32, target="cpu", machine="amx").asm["asm"]
    loops = [each.count("\ttdpbf16ps") for each in re.split(r"\n\.LBB\w+:", text)]
    assert {n for n in loops if n} == ({2, 4} if half else {4})
    assert not re.search(r"\ttile(stored|loadd)\t.*%rsp", text), "tiles are spilled"


def test_panels_begin_anew_in_the_stage_ir():
    a, c = np.zeros((512, 512), np.float32), np.zeros((512, 512), np.float32)
    for bm, bn, pitches in ((64, 64, [0, 0]), (20, 64, [20, 0]), (64, 72, [0, 72])):
        made = product.compile(a, a, c, BM=bm, BN=bn, BK=32, target="cpu", machine="avx512")
        found = re.findall(r"stage.pack.*pitch = (\d+)", made.ir["stage"])
        assert [int(x) for x in found] == pitches, (bm, bn)
