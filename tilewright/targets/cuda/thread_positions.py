"""Places of a layout as functions of a thread's number, which are linear in its bits."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tilewright.layout import Axis, Layout
from tilewright.uarch.nvidia import LANES


def bit_runs(table: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """(lowest bit, bits, step) of the runs of bits whose contributions double."""
    bits = (len(table) - 1).bit_length()
    parts = [table[1 << i] for i in range(bits)]
    runs: list[tuple[int, int, int]] = []
    i = 0
    while i < bits:
        if parts[i] == 0:
            i += 1
            continue
        end = i + 1
        while end < bits and parts[end] == 2 * parts[end - 1]:
            end += 1
        runs.append((i, end - i, parts[i]))
        i = end
    return runs


@lru_cache(maxsize=4096)
def thread_coordinates(layout: Layout, warps: int) -> list[tuple[int, ...]]:
    """Per dimension the coordinate of register 0 of every thread of the team."""
    threads = np.arange(LANES * warps)
    coords = layout.at(threads // LANES, threads % LANES, 0)
    return [tuple(int(x) for x in c) for c in coords]


def replica_bits(layout: Layout) -> list[int]:
    """Bits of a thread's number that change nothing of what it holds."""
    bits: list[int] = []
    for axis, first in ((Axis.LANE, 1), (Axis.SUBGROUP, LANES)):
        for digit in layout.on(axis):
            if digit.dim is None:
                step = digit.weight * first
                while step < digit.weight * digit.size * first:
                    bits.append(step)
                    step *= 2
    return bits
