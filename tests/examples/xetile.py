"""What the fragments of the later XeTile RFC and of the slides must give (examples/rfc/xetile_fragments.mlir)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.examples.arrays import BF16, F16, Case, garbage, made, numbers, outside, wide

static_shape = made(
    (128, 128), (128, 128), lambda a: a[24:32, 40:56], 24, 40, into=np.s_[24:32, 40:56], dtype=BF16
)
dynamic_shape = made(
    (40, 60), (128, 128), lambda a: a[4:12, 8:24], 40, 60, into=np.s_[:8, :16], dtype=BF16
)
address = made((64, 128), (64, 128), lambda a: a[3:11, 5:21], into=np.s_[:8, :16])
ranks = made((2, 3, 32, 64), (64, 64), lambda a: a[1, 2, 8:24, 16:48], 1, 2, into=np.s_[:16, :32])


def affine_order() -> Case:
    """Columns of the 64 x 32 matrix lie one after the other."""
    a, o = numbers(32, 64, dtype=F16).T, garbage(64, 64, dtype=F16)
    return [a, o], [(o[:16, :32], a[8:24])]


def order_of_ranks() -> Case:
    a = numbers(4, 4, 128, 128, dtype=BF16).transpose(0, 1, 3, 2)
    o = garbage(64, 32, dtype=BF16)
    return [a, o, 2, 3], [(o, a[2, 3, 32:96, 64:96])]


load_store = made(
    (128, 128), (128, 128), lambda a: a[32:96, 64:], into=np.s_[64:, 32:96], dtype=BF16
)


def ordered() -> Case:
    a, o = (numbers(128, 128, dtype=BF16).T for _ in range(2))
    expected = o.copy()
    expected[32:96, 64:96] = a[64:, 32:64]
    return [a, o], [(o, expected)]


padding = made((20, 24), (64, 64), lambda a: outside(a, 12, 16, (16, 16), 3), into=np.s_[:16, :16])
locality = made((64, 64), (64, 64), lambda a: a[:16, :32], into=np.s_[:16, :32])


def mma() -> Case:
    a, b, c = numbers(64, 32, dtype=BF16), numbers(32, 128, dtype=BF16), garbage(64, 128)
    return [a, b, c], [(c, 2 * (wide(a) @ wide(b)))]


update = made((64, 64), (64, 64), lambda a: a[7:23, 9:41], 7, 9, into=np.s_[:16, :32])


def atomic() -> Case:
    a = numbers(64, 64)
    after = a.copy()
    after[60:64, 8:24] += 0.5
    return [a], [(a, after)]


def atomic_bf16() -> Case:
    a, o = numbers(64, 64, dtype=BF16), garbage(8, 16, dtype=BF16)
    after = a.copy()
    after[16:24, 32:48] += BF16(0.5)
    return [a, o], [(a, after), (o, a[16:24, 32:48].copy())]


transpose = made((64, 32), (32, 64), lambda a: a.T)


def reduction() -> Case:
    a, o = numbers(64, 32), garbage(64, 64)
    return [a, o], [
        (o[:, 0], wide(a).sum(axis=1)),
        (o[:8, 32:], wide(a).reshape(8, 8, 32).sum(axis=1)),
    ]


def partial_reduction() -> Case:
    a, rows, columns = numbers(64, 64), garbage(2, 64), garbage(64, 2)
    return [a, rows, columns], [
        (rows, wide(a).reshape(2, 32, 64).sum(axis=1)),
        (columns, wide(a).reshape(64, 2, 32).sum(axis=2)),
    ]


def broadcast() -> Case:
    a, o = numbers(64, 32), garbage(64, 64)
    return [a, o], [
        (o[:, :32], np.broadcast_to(a[0], (64, 32))),
        (o[:, 32:], np.repeat(a[8:10], 32, axis=0)),
    ]


def broadcast_size() -> Case:
    rows, columns, o, p = numbers(2, 64), numbers(64, 2), garbage(64, 64), garbage(64, 64)
    return [rows, columns, o, p], [
        (o, np.repeat(rows, 32, axis=0)),
        (p, np.repeat(columns, 32, axis=1)),
    ]


def gather() -> Case:
    a, o = numbers(1024), garbage(1024)
    expected = np.where(np.arange(64) < 40, a[np.arange(64) * 5], -1)
    return [a, o], [(o[:64], expected)]


gather_2d = made((1024,), (64, 64), lambda a: a[:384:3].reshape(4, 32), into=np.s_[:4, :32])


def scattered() -> Case:
    a, o = numbers(2048, dtype=BF16), garbage(1024, dtype=BF16)
    expected = o.copy()
    expected[:512] = a[:1536:3]
    expected[512:768] = a[:512:2]
    return [a, o], [(o, expected)]


def masked_scatter() -> Case:
    a, o = numbers(1024, dtype=BF16), garbage(1024, dtype=BF16)
    expected, at = o.copy(), np.arange(256)
    loaded = np.where(at < 200, a[at * 4], BF16(1))
    expected[at[100:] * 2] = loaded[100:]
    return [a, o], [(o, expected)]


maps = made((128, 128), (128, 128), lambda a: a.T, dtype=F16)


def map_and_order() -> Case:
    a, o = numbers(1024, 1024, dtype=F16).T, garbage(128, 128, dtype=F16)
    return [a, o, 40], [(o, a[40:168, :128])]


rounds = made(
    (1024, 1024), (1024, 1024), lambda a: a[40:168, :128], 40, into=np.s_[40:168, :128], dtype=F16
)
rounds_and_lanes = rounds


def mma_map() -> Case:
    a, b = numbers(256, 32, dtype=BF16), numbers(32, 256, dtype=BF16)
    c, d = numbers(256, 256), garbage(256, 256)
    return [a, b, c, d], [(d, wide(a) @ wide(b) + c)]


reduction_map = made((256, 128), (256, 1), lambda a: wide(a).sum(axis=1), into=np.s_[:, 0])
reduction_size = made(
    (256, 128), (8, 128), lambda a: np.exp(wide(a)).reshape(8, 32, 128).sum(axis=1)
)
broadcast_map = made((256, 1), (256, 256), lambda a: np.broadcast_to(a, (256, 256)))
transpose_map = made((512, 128), (128, 512), lambda a: a.T)
convert_layout = made((256, 256), (256, 256), lambda a: a)
convert_layout_result = convert_layout


def _product(bt: bool, dtype: Any, out: Any) -> tuple[Any, Any, Any, Any]:
    a, b = numbers(128, 96, dtype=dtype), numbers(*((128, 96) if bt else (96, 128)), dtype=dtype)
    c = garbage(128, 128, dtype=out)
    whole = wide(a) @ wide(b.T if bt else b)
    return a, b, c, whole[64:, :64]


def plain() -> Case:
    a, b, c, tile = _product(False, BF16, BF16)
    return [a, b, c, 64, 0], [(c[64:, :64], tile)]


def transposed() -> Case:
    a, b, c, tile = _product(True, BF16, BF16)
    return [a, b, c, 64, 0], [(c[64:, :64], tile)]


def order() -> Case:
    (a, b, c, i, j), pairs = transposed()
    return [a, b.T, c, i, j], pairs


subview_order = order
subview_transposed = transposed


def orders() -> Case:
    a, o = numbers(1024, 1024, dtype=F16), garbage(64, 96, dtype=F16)
    return [a, a.T, o], [(o, np.concatenate([a[:64, :32], a[:64, :32], a.T[:64, :32]], axis=1))]


blocks = made((128, 128), (128, 128), lambda a: a, dtype=F16)
shared_blocks = made((128, 32), (128, 32), lambda a: a, dtype=F16)


def product() -> Case:
    a, b, c = numbers(512, 128, dtype=F16), numbers(128, 512, dtype=F16), garbage(512, 512)
    expected = wide(c)
    expected[:256, 256:] += wide(a[:256]) @ wide(b[:, 256:])
    return [a, b, c, 0, 256], [(c, expected)]
