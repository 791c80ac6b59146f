"""What the fragments of the XeGPU RFC must give (examples/rfc/xegpu_fragments.mlir)."""

from __future__ import annotations

import numpy as np

from tests.examples.arrays import BF16, F16, Case, garbage, made, numbers, packed, wide


def address() -> Case:
    a, o = numbers(64, 128, dtype=BF16), garbage(64, 128, dtype=BF16)
    return [a, o, 10, 30], [(o[:8, :16], a[10:18, 30:46]), (o[8:16, :16], a[10:18, 46:62])]


def ranks() -> Case:
    deep, row, o = numbers(2, 3, 16, 32), numbers(1024), garbage(64, 64)
    return [deep, row, o], [
        (o[:8, :16], deep[1, 2, 4:12, 8:24]),
        (row[:16], row[100:116].copy()),
    ]


def forms() -> Case:
    a, b = numbers(16, 8), numbers(32, 16, dtype=F16)
    at, pack, turned = garbage(8, 16), garbage(16, 32, dtype=F16), garbage(8, 64, dtype=F16)
    return [a, b, at, pack, turned], [
        (at, a.T),
        (pack, packed(b).reshape(16, 32)),
        (turned, packed(b.T).reshape(8, 64)),
    ]


def dpas() -> Case:
    a, b, c = numbers(8, 16, dtype=BF16), numbers(16, 16, dtype=BF16), garbage(8, 16)
    return [a, b, c], [(c, 3 * (wide(a) @ wide(b)))]


def scattered() -> Case:
    base, sums, out = numbers(512, dtype=np.int16), numbers(16), garbage(512, dtype=np.int16)
    expected, lanes = out.copy(), np.arange(8)
    expected[lanes * 8] = base[lanes * 8 + 8 + 3]
    counts = np.bincount(np.arange(16) % 3, minlength=16)
    return [base, sums, out], [(out, expected), (sums, wide(sums) + 0.25 * counts)]


def layouts() -> Case:
    a, sums, deep, turned = numbers(256, 128), garbage(256, 1), garbage(8, 128), garbage(128, 256)
    return [a, sums, deep, turned], [
        (sums[:, 0], wide(a).sum(axis=1)),
        (deep, wide(a).reshape(8, 32, 128).sum(axis=1)),
        (turned, wide(a).T + wide(a).sum(axis=1)),
    ]


def shared_lines() -> Case:
    a, o = numbers(1024, dtype=BF16), garbage(1024, dtype=BF16)
    expected = o.copy()
    expected[:32] = a[128:160]
    return [a, o], [(o, expected)]


pairs = made((64, 64), (8, 32), lambda a: packed(a[8:24, 16:32].T).reshape(8, 32), dtype=F16)


def moved() -> Case:
    a, b, c = numbers(64, 64, dtype=BF16), numbers(64, 64, dtype=BF16), garbage(8, 64)
    expected = wide(c)
    expected[:, 16:32] = 1 + wide(a[24:32, 32:48]) @ wide(b[16:32, 32:48])
    return [a, b, c, 16, 32], [(c, expected)]


def bytes() -> Case:
    a, o = numbers(256, dtype=np.int8), garbage(256, dtype=np.int16)
    expected, at = o.copy(), 3 * np.arange(16)
    expected[at] = a[at].astype(np.uint8)
    return [a, o], [(o, expected)]


shared_chunks = made((256,), (8, 16), lambda a: a.reshape(16, 16)[:, :8].T, dtype=BF16)


def update_offsets() -> Case:
    a, o = numbers(256, dtype=np.int16), garbage(256, dtype=np.int16)
    expected = o.copy()
    expected[:16] = a[:32:2]
    return [a, o], [(o, expected)]


def atomic_bf16() -> Case:
    sums = numbers(16, dtype=BF16)
    sums[:3] = 0
    expected = wide(sums)
    expected[:3] = 6, 5, 5
    return [sums], [(sums, expected)]


named_barriers = made(
    (32, 64),
    (32, 64),
    lambda a: a[:, :16].reshape(4, 8, 16)[::-1].reshape(32, 16),
    into=np.s_[:, :16],
)
order = made((32, 64), (32, 64), lambda a: a)
distributed = made((1024, 1024), (64, 16), lambda a: a[40:104, :16], 40, dtype=BF16)
rounds = made((1024, 1024), (128, 128), lambda a: a[40:168, :128], 40, dtype=F16)


def dpas_layout() -> Case:
    a, b = numbers(256, 32, dtype=BF16), numbers(32, 256, dtype=BF16)
    c, d = numbers(256, 256), garbage(256, 256)
    return [a, b, c, d], [(d, wide(a) @ wide(b) + c)]


def reductions() -> Case:
    a, sums, flat = numbers(256, 128), garbage(256, 1), garbage(8, 128)
    return [a, sums, flat], [
        (sums[:, 0], wide(a).sum(axis=1)),
        (flat, wide(a).reshape(8, 32, 128).sum(axis=1)),
    ]


def shape_casts() -> Case:
    a, flat, o = numbers(256, 128), garbage(8, 128), garbage(256, 128)
    return [a, flat, o], [(flat, a.reshape(8, 32, 128).max(axis=1)), (o, 2 * a)]


broadcast = made((256, 1), (256, 256), lambda a: np.broadcast_to(a, (256, 256)))
transpose = made((512, 128), (128, 512), lambda a: a.T)
convert_layout = made((256, 256), (256, 256), lambda a: a)


def transpose_and_bitcast() -> Case:
    a, b = numbers(64, 64, dtype=BF16), numbers(64, 64, dtype=np.int16)
    turned, words = garbage(16, 16, dtype=BF16), garbage(8, 32, dtype=np.int8)
    cast = np.ascontiguousarray(b[8:16, 16:32]).view(np.int8)
    return [a, b, turned, words], [(turned, a[8:24, 16:32].T), (words, cast)]


reduce_and_broadcast = made(
    (64, 64), (16, 16), lambda a: np.broadcast_to(a[8:24, 16:32].max(axis=1), (16, 16)), dtype=BF16
)


def extract_and_add() -> Case:
    a, half, both = (
        numbers(64, 64, dtype=BF16),
        garbage(32, 16, dtype=BF16),
        garbage(24, 32, dtype=BF16),
    )
    return [a, half, both], [
        (half, wide(a[32:, 16:32]) + wide(a[:32, 16:32])),
        (both, 2 * a[8:32, :32]),
    ]
