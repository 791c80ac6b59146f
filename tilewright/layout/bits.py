"""Numbers of lanes or threads, a table by their own number, as sums of what the bits of that add.

    table    0 4 8 12 1 5 9 13    ->    4 * (n & 3) + (n >> 2)
    runs                                (0, 2, 4), (2, 1, 1): lowest bit, bits, step

Places of a layout are such numbers: whoever writes an address writes one multiplication for each run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Table = Sequence[int] | NDArray[np.integer]


def bit_runs(table: Table) -> list[tuple[int, int, int]]:
    """(lowest bit, bits, step) of the runs of bits whose contributions double: `step * (n >> low & 2**bits - 1)`."""
    bits = (len(table) - 1).bit_length()
    parts = [int(table[1 << i]) - int(table[0]) for i in range(bits)]
    runs: list[tuple[int, int, int]] = []
    low = 0
    while low < bits:
        end = low + 1
        while end < bits and parts[end] == parts[low] << end - low:
            end += 1
        if parts[low]:
            runs.append((low, end - low, parts[low]))
        low = end
    return runs


def is_sum_of_bits(table: Table) -> bool:
    """Is each number the first of the table, and what the runs add?"""
    n = np.arange(len(table))
    runs = ((n >> low & (1 << bits) - 1) * step for low, bits, step in bit_runs(table))
    return bool((np.asarray(table) - table[0] == sum(runs)).all())
