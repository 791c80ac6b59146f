"""What the fragments of the early XeTile RFC must give (examples/rfc/xetile_early_fragments.mlir)."""

from __future__ import annotations

from tests.examples.arrays import BF16, Case, garbage, numbers, outside, wide


def static_shape() -> Case:
    a, o = numbers(128, 128, dtype=BF16), garbage(8, 16, dtype=BF16)
    return [a, o, 40, 24], [(o, a[40:48, 24:40])]


def dynamic_shape() -> Case:
    a, o = numbers(70, 90, dtype=BF16), garbage(8, 16, dtype=BF16)
    return [a, o, 66, 80], [(o, outside(a, 66, 80, (8, 16), 0))]


address = dynamic_shape


def load_store() -> Case:
    a, o = numbers(128, 128, dtype=BF16), garbage(128, 128, dtype=BF16)
    expected = o.copy()
    expected[64:, 32:96] = a[32:96, 64:]
    return [a, o], [(o, expected)]


def transpose() -> Case:
    a, o = numbers(128, 128, dtype=BF16), garbage(64, 32, dtype=BF16)
    return [a, o], [(o, a[32:64, 64:].T)]


def padding() -> Case:
    a, o, t = numbers(40, 50, dtype=BF16), garbage(64, 64, dtype=BF16), garbage(32, 64, dtype=BF16)
    return [a, o, t], [
        (o, outside(a, 8, 4, (64, 64), 1)),
        (t, outside(a, 8, 4, (64, 32), 0).T),
    ]


def update() -> Case:
    a, o = numbers(128, 128, dtype=BF16), garbage(64, 64, dtype=BF16)
    return [a, o, 20, 30], [(o, a[36:100, 38:102])]


def mma() -> Case:
    a, b, c = numbers(64, 32, dtype=BF16), numbers(32, 128, dtype=BF16), garbage(64, 128)
    return [a, b, c], [(c, 2 * (wide(a) @ wide(b)))]
