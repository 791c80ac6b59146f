"""Tables of numbers as sums of what the bits of a lane's number add."""

from __future__ import annotations

import numpy as np

from tests.draws import fresh_rng
from tilewright.layout.bits import bit_runs, is_sum_of_bits


def test_runs_make_the_table() -> None:
    rng = fresh_rng()
    for _ in range(50):
        bits = int(rng.integers(1, 7))
        n = np.arange(1 << bits)
        steps = rng.choice([0, 1, 2, 4, 8, 24], bits)
        table = rng.integers(-5, 5) + sum((n >> i & 1) * step for i, step in enumerate(steps))
        runs = bit_runs(table)
        assert is_sum_of_bits(table)
        made = sum((n >> low & (1 << size) - 1) * step for low, size, step in runs)
        np.testing.assert_array_equal(table - table[0], made + 0 * n)
        assert all(step for *_, step in runs)
        table[int(rng.integers(1, len(n)))] += 1
        assert bits == 1 or not is_sum_of_bits(table)


def test_bits_whose_steps_double_are_one_run() -> None:
    assert bit_runs([0, 4, 8, 12, 1, 5, 9, 13]) == [(0, 2, 4), (2, 1, 1)]
