"""What the fragments of the early XeTile RFC must give (examples/rfc/xetile_early_fragments.mlir)."""

from __future__ import annotations

from tests.examples.arrays import BF16, Case, garbage, made, numbers, outside, wide

static_shape = made((128, 128), (8, 16), lambda a: a[40:48, 24:40], 40, 24, dtype=BF16)
dynamic_shape = made(
    (70, 90), (8, 16), lambda a: outside(a, 66, 80, (8, 16), 0), 66, 80, dtype=BF16
)
address = dynamic_shape


def load_store() -> Case:
    a, o = numbers(128, 128, dtype=BF16), garbage(128, 128, dtype=BF16)
    expected = o.copy()
    expected[64:, 32:96] = a[32:96, 64:]
    return [a, o], [(o, expected)]


transpose = made((128, 128), (64, 32), lambda a: a[32:64, 64:].T, dtype=BF16)


def padding() -> Case:
    a, o, t = numbers(40, 50, dtype=BF16), garbage(64, 64, dtype=BF16), garbage(32, 64, dtype=BF16)
    return [a, o, t], [
        (o, outside(a, 8, 4, (64, 64), 1)),
        (t, outside(a, 8, 4, (64, 32), 0).T),
    ]


update = made((128, 128), (64, 64), lambda a: a[36:100, 38:102], 20, 30, dtype=BF16)


def mma() -> Case:
    a, b, c = numbers(64, 32, dtype=BF16), numbers(32, 128, dtype=BF16), garbage(64, 128)
    return [a, b, c], [(c, 2 * (wide(a) @ wide(b)))]
