"""Comparisons that LLVM would take for overflow checks are said in another way, and mean the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.targets.xe import kernels
from tests.targets.xe.conftest import build
from tests.texts import parse_module
from tilewright import reference
from tilewright.dialects.text import verify_module
from tilewright.targets.xe.fold import fold
from tilewright.targets.xe.offline import compile_offline
from tilewright.targets.xe.overflow_checks import rewrite_overflow_checks

NUMBERS = (0, 1, 2, 4, 5, 6, 15, 16, 2**31, 2**63 - 6, 2**63 - 1, -1, -2, -5, -6, -(2**63))
FORMS = {
    "row of an extent": ("arith.addi %a, %c5", "ult, %x, %c5"),
    "turned round": ("arith.addi %c5, %a", "ugt, %c5, %x"),
    "the extent less something": ("arith.addi %a, %m5", "ult, %x, %a"),
    "the extent and something": ("arith.addi %a, %c5", "ult, %x, %a"),
    "a difference": ("arith.subi %a, %c5", "ult, %x, %m5"),
    "of unknown numbers": ("arith.addi %a, %b", "ult, %x, %b"),
    "nothing is left": ("arith.addi %a, %c1", "eq, %x, %c0"),
    "one less": ("arith.addi %a, %m1", "ne, %a, %c0"),
    "one more": ("arith.addi %a, %c1", "eq, %a, %m1"),
}


def kernel(sum: str, compare: str, lanes: int = 16) -> str:
    """out[i] = sum of a[i], b[i], the comparison of it in bit 62."""
    arrays = "%pa: memref<16xi64>, %pb: memref<16xi64>, %out: memref<16xi64>, %mask: memref<16xi32>"
    return (
        kernels.head(arrays, lanes=lanes)
        + f"""
    %m1 = arith.constant -1 : index
    %m5 = arith.constant -5 : index
    %one = arith.constant 1 : i32
    %two = arith.constant 2 : i32
    %ia = xegpu.load %pa[%lane], %true : memref<16xi64>, index, i1 -> i64
    %ib = xegpu.load %pb[%lane], %true : memref<16xi64>, index, i1 -> i64
    %a = arith.index_cast %ia : i64 to index
    %b = arith.index_cast %ib : i64 to index
    %x = {sum} : index
    %w = arith.cmpi {compare} : index
    %xi = arith.index_cast %x : index to i64
    %s = arith.select %w, %one, %two : i32
    xegpu.store %xi, %out[%lane], %true : i64, memref<16xi64>, index, i1
    xegpu.store %s, %mask[%lane], %true : i32, memref<16xi32>, index, i1"""
        + kernels.FOOT
    )


def results(module: object, a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    out = [np.zeros(16, np.int64), np.zeros(16, np.int32)]
    reference.run(module, (1,), [a, b, *out])  # pyright: ignore
    return out


@pytest.mark.parametrize("form", FORMS)
def test_the_meaning_stays(form: str) -> None:
    module = parse_module(kernel(*FORMS[form]), "wraps.mlir")
    changed = module.clone()
    assert rewrite_overflow_checks(changed)
    verify_module(changed)
    pairs = list(itertools.product(NUMBERS, NUMBERS))
    for first in range(0, len(pairs), 16):
        a, b = np.array(pairs[first : first + 16], np.int64).T.copy()
        for before, after in zip(results(module, a, b), results(changed, a, b), strict=True):
            np.testing.assert_array_equal(before, after)


@pytest.mark.usefixtures("ocloc")
@pytest.mark.parametrize("form", FORMS)
def test_the_offline_compiler_takes_them(form: str) -> None:
    for machine in ("xe-pvc", "xe-dg2") if form == "row of an extent" else ("xe-pvc",):
        found = build(kernel(*FORMS[form], lanes=8 if machine == "xe-dg2" else 16), machine)
        assert compile_offline(found.spirv("igc"), "k", machine).asm


VECTORS = (
    kernels.head("%out: memref<64xi32>")
    + """
    %n = BASE
    %rows = vector.broadcast %n : index to vector<4xindex>
    %by = arith.constant dense<[0, 1, 2, 3]> : vector<4xindex>
    %x = arith.addi %rows, %by : vector<4xindex>
    %end = arith.constant dense<2> : vector<4xindex>
    %w = arith.cmpi ult, %x, %end : vector<4xindex>
    %a = arith.constant dense<7> : vector<4xi32>
    %b = arith.constant dense<9> : vector<4xi32>
    %s = arith.select %w, %a, %b : vector<4xi1>, vector<4xi32>
    %at = arith.muli %lane, %c4 : index
    xegpu.store %s, %out[%at], %true <{chunk_size = 4 : i64}> : vector<4xi32>, memref<64xi32>, index, i1"""
    + kernels.FOOT
)


@pytest.mark.parametrize("base", ["gpu.lane_id", "gpu.block_id x", "arith.constant 1 : index"])
def test_vectors(base: str) -> None:
    """Elements of a vector are rows of a block: some meet the extent. Known ones are folded."""
    text = VECTORS.replace("BASE", base)
    module = parse_module(text, "wraps.mlir")
    folded = module.clone()
    kernel = next(op for op in folded.walk() if op.name == "gpu.func")
    known = fold(kernel)  # pyright: ignore
    assert known == base.startswith("arith")
    assert rewrite_overflow_checks(folded) != known
    verify_module(folded)
    found = []
    for each in (module, folded):
        out = np.zeros(64, np.int32)
        reference.run(each, (1,), [out])
        found.append(out)
    np.testing.assert_array_equal(*found)


def test_what_no_lane_stores_goes() -> None:
    """Rows outside of a part of an array: their masks are known, and what was computed for them is not needed."""
    text = (
        kernels.head("%out: memref<64xi32>")
        + """
    %a = arith.constant dense<7> : vector<2xi32>
    %rows = arith.constant dense<[3, 70]> : vector<2xindex>
    %end = arith.constant dense<64> : vector<2xindex>
    %m = arith.cmpi ult, %rows, %end : vector<2xindex>"""
        + "".join(
            f"""
    %m{i} = vector.extract %m[{i}] : i1 from vector<2xi1>
    %x{i} = vector.extract %a[{i}] : i32 from vector<2xi32>
    %p{i} = vector.extract %rows[{i}] : index from vector<2xindex>
    xegpu.store %x{i}, %out[%p{i}], %m{i} : i32, memref<64xi32>, index, i1"""
            for i in range(2)
        )
        + kernels.FOOT
    )
    module = parse_module(text, "stores.mlir")
    kernel = next(op for op in module.walk() if op.name == "gpu.func")
    assert fold(kernel)  # pyright: ignore
    verify_module(module)
    names = [op.name for op in kernel.walk()]
    assert names.count("xegpu.store") == 1 and "vector.extract" not in names
    out = np.zeros(64, np.int32)
    reference.run(module, (1,), [out])
    np.testing.assert_array_equal(out, 7 * (np.arange(64) == 3))
