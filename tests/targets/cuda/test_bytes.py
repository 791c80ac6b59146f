"""Integers of 8 bits, and of bits of them, as floats: every value, exactly, and without the conversion unit."""

# Kernels are not typed Python, and fixtures give what they say.
# pyright: reportMissingParameterType=false

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.targets.cuda.threads import ThreadsTarget

FLOATS = {"f16": np.dtype("f2"), "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype("f4")}
FIELDS = {
    "all": lambda x: x,
    "low, signed": lambda x: x << 4 >> 4,
    "high": lambda x: x >> 4,
    "low": lambda x: x & 15,
    "shifted and masked": lambda x: (x >> 2) & 7,
    "beyond the sign": lambda x: x >> 1 >> 5,
    "masked twice": lambda x: ((x & 0x3C) >> 1) & 0x0E,
    "no field": lambda x: x << 3,
}


@tw.kernel
def converted(X, Y, FIELD: tw.constexpr):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (4, 64)))
    tw.store_tile(FIELD(x).to(Y.dtype), tw.init_tile(Y, [0, 0], (4, 64)))


@tw.kernel
def unpacked(X, Y):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (4, 64)))
    tw.store_tile(tw.interleave(x << 4 >> 4, x >> 4).to(Y.dtype), tw.init_tile(Y, [0, 0], (4, 128)))


def every_byte(dtype: str) -> np.ndarray:
    return np.arange(256, dtype="u1").reshape(4, 64).view(dtype)


@pytest.mark.parametrize("to", FLOATS)
@pytest.mark.parametrize("dtype", ["i1", "u1"])
@pytest.mark.parametrize("field", FIELDS)
def test_every_byte(field, dtype, to, threads: ThreadsTarget):
    x, y = every_byte(dtype), np.full((4, 64), np.nan, FLOATS[to])
    converted.options(target="cuda")[1](x, y, FIELD=FIELDS[field])
    np.testing.assert_array_equal(y.astype("f8"), FIELDS[field](x).astype("f8"))
    assert "nvptx.prmt" in threads.last.ir["mach"]  # pyright: ignore
    assert "arith.sitofp" not in threads.last.ir["mach"]  # pyright: ignore


@pytest.mark.parametrize("to", FLOATS)
@pytest.mark.parametrize("dtype", ["i1", "u1"])
def test_two_numbers_of_a_byte_are_converted_before_they_alternate(
    dtype, to, threads: ThreadsTarget
):
    x, y = every_byte(dtype), np.full((4, 128), np.nan, FLOATS[to])
    unpacked.options(target="cuda")[1](x, y)
    low, high = ((x << 4).astype(dtype) >> 4, x >> 4)
    np.testing.assert_array_equal(y[:, 0::2].astype("f8"), low.astype("f8"))
    np.testing.assert_array_equal(y[:, 1::2].astype("f8"), high.astype("f8"))


SIGNS = {"itself": None, "with signs": (tw.i8, "i1"), "without": (tw.u8, "u1")}
"""What a byte is multiplied as."""


@tw.kernel
def multiplied(A, B, C, AS: tw.constexpr, BS: tw.constexpr, M: tw.constexpr, N: tw.constexpr):
    a = ~tw.load_tile(tw.init_tile(A, [0, 0], (M, 32)))
    b = tw.load_tile(tw.init_tile(B, [0, 0], (32, N))) * 3
    a, b = a if AS is None else a.to(AS), b if BS is None else b.to(BS)
    tw.store_tile(tw.tile_mma(a, b), tw.init_tile(C, [0, 0], (M, N)))


@pytest.mark.parametrize("m, n", [(16, 16), (64, 64), (1, 3)])
@pytest.mark.parametrize("dtype", ["i1", "u1"])
@pytest.mark.parametrize("signs_b", SIGNS)
@pytest.mark.parametrize("signs_a", SIGNS)
def test_bytes_that_are_computed_are_multiplied_with_their_signs(
    signs_a, signs_b, dtype, m, n, threads: ThreadsTarget, rng
):
    a, b = (rng.integers(0, 256, s).astype("u1").view(dtype) for s in ((m, 32), (32, n)))
    x, y = ~a, (b * np.array(3, dtype)).astype(dtype)
    one, other = SIGNS[signs_a], SIGNS[signs_b]
    x, y = x if one is None else x.astype(one[1]), y if other is None else y.astype(other[1])
    c = np.full((m, n), 77, np.int32)
    constexprs = {"AS": one and one[0], "BS": other and other[0], "M": m, "N": n}
    multiplied.options(target="cuda")[1](a, b, c, **constexprs)
    np.testing.assert_array_equal(c, x.astype(int) @ y.astype(int))


@tw.kernel
def arithmetic(X, Y, Z):
    x, y = (
        tw.load_tile(tw.init_tile(X, [0, 0], (4, 64))),
        tw.load_tile(tw.init_tile(Y, [0, 0], (4, 64))),
    )
    tw.store_tile(((x + y) * x - y) / y, tw.init_tile(Z, [0, 0], (4, 64)))


@pytest.mark.parametrize("machine", ["sm_80", "sm_90a"])
def test_bf16_is_computed_in_pairs_and_rounded_by_the_machine(machine: str):
    matrix = tw.spec((4, 64), tw.bf16)
    code = arithmetic.compile(matrix, matrix, matrix, target=machine).asm["ptx"]
    words = (0x3F803F80, 0xBF80BF80 - 2**32, 0x80008000 - 2**32)
    assert code.count("fma.rn.bf16x2") % 3 == 0 and all(str(word) in code for word in words)
    assert "cvt.rn.bf16" in code and "setp.nan" not in code
