"""The specialisation key: what code depends on is in it, plain extents and addresses are not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright import LaunchError, dtypes
from tilewright.arguments import ArraySpec
from tilewright.runtime.arrays import describe
from tilewright.runtime.compiled import holds
from tilewright.runtime.key import (
    ScalarType,
    mlir_facts,
    overlapping_arguments,
    scalar_type,
    signature_of,
    stable_text,
)


def key(shape, dtype=dtypes.f32, strides=None):
    return signature_of([describe(ArraySpec(shape, dtype, strides))])


def test_plain_extents_are_not_in_the_key():
    assert key((2048, 4096)) == key((64, 128)) == key((192, 64 * 77))
    assert key((16, 80)) == key((48, 16))
    assert key((7, 9)) == key((1001, 33)) == key((8, 3))


@pytest.mark.parametrize("other", [
    key((2048, 2048), dtypes.bf16),
    key((2048, 2048, 1)),
    key((2048,)),
    key((2048, 2048), strides=(1, 2048)),
    key((2048, 2048), strides=(4096, 2)),
    key((1, 2048)),
    key((2048, 1)),
    key((2044, 2048)),
    key((2048, 2044)),
    key((2048, 2048), strides=(2049, 1)),
])  # fmt: skip
def test_what_changes_the_key(other):
    assert other != key((2048, 2048))


def test_addresses_count_by_alignment_alone():
    raw = np.zeros(4096 + 128, np.uint8)
    start = (-raw.ctypes.data) % 64

    def at(offset):
        array = describe(raw[start + offset :][:1024].view("f4").reshape(16, 16))
        return [signature_of([array], alignment=most)[0].align for most in (16, 64)]

    assert [at(o) for o in (0, 64, 32, 16)] == [[16, 64], [16, 64], [16, 16], [16, 16]]
    assert [at(o) for o in (8, 4, 12, 2, 1)] == [[4, 8], [4, 4], [4, 4], [1, 1], [1, 1]]


@pytest.mark.parametrize("columns, dtype, align, div", [
    (48, dtypes.bf16, 16, 16),
    (56, dtypes.bf16, 16, 8),
    (28, dtypes.bf16, 8, 4),
    (30, dtypes.bf16, 4, 2),
    (31, dtypes.bf16, 2, 1),
    (28, dtypes.f32, 16, 4),
    (30, dtypes.f32, 8, 2),
    (31, dtypes.f32, 4, 1),
    (28, dtypes.i8, 4, 4),
    (30, dtypes.i8, 1, 1),
])  # fmt: skip
def test_rows_of_devices_are_classed_by_the_vectors_of_a_thread(columns, dtype, align, div):
    """Columns where these are contiguous; on the host they are like any others."""
    for shape, strides, place in (((7, columns), None, 1), ((columns, 7), (1, columns), 0)):
        array = describe(ArraySpec(shape, dtype, strides))
        (plain,), (known,) = signature_of([array]), signature_of([array], alignment=64)
        assert (known.align, known.div[place], known.div[1 - place]) == (align, div, 1)
        assert plain.align in (16, dtype.itemsize) and plain.div[place] in (16, 1)
        assert holds(plain, known) and holds(known, plain) == (known == plain)


@pytest.mark.parametrize("shape, dtype, row", [
    ((9, 4008), dtypes.f16, ", row = 64 : i64"),
    ((9, 32), dtypes.f16, ", row = 64 : i64"),
    ((9, 64), dtypes.f16, ""),  # its divisor says so
    ((9, 24), dtypes.f16, ""),
    ((9, 4009), dtypes.f16, ""),  # no whole words
], ids=str)  # fmt: skip
def test_rows_that_block_messages_reach(shape, dtype, row):
    """They are told apart only for a target that asks; columns where these are contiguous."""
    turned = ArraySpec(shape[::-1], dtype, (1, shape[1]))
    for array in map(describe, (ArraySpec(shape, dtype, None), turned)):
        plain, asked = signature_of([array]), signature_of([array], row=64)
        assert str(mlir_facts(asked)) == str(mlir_facts(plain)).replace("noalias", "noalias" + row)
        assert holds(plain[0], asked[0]) and holds(asked[0], plain[0]) == (asked == plain)


def test_words_of_rows_are_a_class_for_a_target_that_asks():
    """1-D block messages read at multiples of 4 bytes; elsewhere such rows are like any others."""
    array = describe(ArraySpec((9, 4010), dtypes.f16, None))
    plain, asked = signature_of([array]), signature_of([array], row=64)
    assert (plain[0].align, asked[0].align) == (2, 4)
    assert holds(plain[0], asked[0]) and not holds(asked[0], plain[0])
    odd = describe(ArraySpec((9, 4009), dtypes.f16, None))
    assert signature_of([odd], row=64)[0].align == 2
    wide = describe(ArraySpec((9, 4009), dtypes.f64, None))
    assert signature_of([wide], row=64)[0].align == 8


def test_overlap_is_in_the_key():
    x, y = np.zeros((16, 16), np.float32), np.zeros((16, 16), np.float32)
    apart = signature_of([describe(x), describe(y)])
    same = signature_of([describe(x), describe(x)])
    assert [a.noalias for a in apart] == [True, True]
    assert [a.noalias for a in same] == [False, False]


@pytest.mark.parametrize("shape, types, facts", [
    ((256, 48), "memref<?x?xf32, strided<[?, 1]>>", "align = 16 : i64, div = [64 : i64, 16 : i64]"),
    ((1, 48), "memref<1x?xf32, strided<[?, 1]>>", "align = 16 : i64, div = [1 : i64, 16 : i64]"),
    ((7, 1), "memref<?x1xf32, strided<[?, 1]>>", "align = 4 : i64, div = [1 : i64, 1 : i64]"),
    ((9,), "memref<?xf32, strided<[1]>>", "align = 16 : i64, div = [1 : i64]"),
    ((0, 6), "memref<?x?xf32, strided<[?, 1]>>", "align = 16 : i64, div = [64 : i64, 1 : i64]"),
])  # fmt: skip
def test_how_an_array_stands_in_the_ir(shape, types, facts):
    signature = key(shape)
    assert [str(arg.mlir()) for arg in signature] == [types]
    assert str(mlir_facts(signature)) == f"[{{{facts}, noalias}}]"


def test_transposed_and_strided_arrays_in_the_ir():
    x = np.zeros((4, 8, 16), np.float32)
    shown = [str(signature_of([describe(v)])[0].mlir()) for v in (x.swapaxes(1, 2), x[:, :, ::2])]
    assert shown == [
        "memref<?x?x?xf32, strided<[?, 1, ?]>>",
        "memref<?x?x?xf32, strided<[?, ?, ?]>>",
    ]


def test_scalars():
    types = {scalar_type(v) for v in (3, np.int64(3), 2.5, True, np.float32(1), np.uint8(1))}
    names = sorted(str(t) for t in types if t is not None)
    assert names == ["f32", "i1", "i64", "index", "u8"]
    assert scalar_type("x") is None and scalar_type([1]) is None
    assert str(ScalarType(dtypes.u8).mlir()) == "i8"
    with pytest.raises(LaunchError, match="complex64"):
        scalar_type(np.complex64(1))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # on a busy machine
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=6))
def test_overlap_is_what_pairwise_comparison_says(pieces):
    """Against the definition: two arrays overlap when some byte belongs to both."""
    raw = np.zeros(80, np.uint8)
    args = [describe(raw[a : a + n]) for a, n in pieces]
    want = {
        i
        for i, (a, n) in enumerate(pieces)
        for j, (b, m) in enumerate(pieces)
        if i != j and set(range(a, a + n)) & set(range(b, b + m))
    }
    assert overlapping_arguments(args) == want


_SLICE = st.builds(
    slice,
    st.none() | st.integers(0, 5),
    st.none() | st.integers(0, 9),
    st.sampled_from([None, 1, 2, 3, -1, -2]),
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_views_of_one_array_overlap_where_elements_do(data):
    """Rows, columns, every third and backwards, transposed or of other widths: against the bytes of every element."""
    raw = np.arange(4 * 6 * 8, dtype=np.int16)

    def view():
        x = raw.reshape(data.draw(st.sampled_from([(4, 6, 8), (8, 24), (192,)])))
        x = x[tuple(data.draw(_SLICE) for _ in x.shape)]
        if data.draw(st.booleans()):
            x = x.T
        return (
            x.view(np.int8) if x.strides and x.strides[-1] == 2 and data.draw(st.booleans()) else x
        )

    def bytes_of(x):
        start = x.__array_interface__["data"][0]
        at = np.full(x.shape, start)
        for axis, (n, stride) in enumerate(zip(x.shape, x.strides, strict=True)):
            at += (np.arange(n) * stride).reshape([-1 if d == axis else 1 for d in range(x.ndim)])
        return {a + b for a in at.ravel().tolist() for b in range(x.itemsize)}

    views = [view() for _ in range(3)]
    sets = [bytes_of(x) for x in views]
    want = {i for i in range(3) for j in range(3) if i != j and sets[i] & sets[j]}
    assert overlapping_arguments([describe(x) for x in views]) == want


def test_strides_of_no_order_are_said_to_overlap():
    """Where the question is hard, arrays count as overlapping; the answer does not take long."""
    raw = np.zeros(1 << 16, np.int8)
    strides = [997, 991, 983, 977, 971, 967]
    a, b = (np.lib.stride_tricks.as_strided(raw[k:], [9] * 6, strides) for k in (0, 1))
    assert overlapping_arguments([describe(a), describe(b)]) == {0, 1}


def test_stable_text_tells_values_apart():
    values = [
        *(1, 1.0, True, "1", 0.0, -0.0, float("nan"), None, np.float32(1), np.float64(1)),
        *(np.int64(1), dtypes.f32, np.dtype("f4"), (1,), [1], (1.0,), ((1,),), frozenset({1})),
    ]
    texts = [stable_text(v) for v in values]
    assert None not in texts
    assert len(set(texts)) == len(values), texts
    assert stable_text(object()) is None and stable_text((1, object())) is None
    assert stable_text(frozenset("abc")) == stable_text(frozenset("cba"))
