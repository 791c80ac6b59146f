"""Which parts of k the products of a launch are summed over, and how many tasks compute a program's.

The parts follow from the arrays alone: sums are added up in the same order on any number of threads. Products that few
tiles cover have several, each long enough that its sums cost little beside it (`parts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import log2, prod

from tilewright.arguments import Argument, ArrayArg
from tilewright.frozen import frozen

COST = 1 / 64
"""What adding up the sums of a part may take, of the time to multiply it."""
TILE = 64
"""Rows and columns of C that are multiplied together whatever k is."""
MANY_TILES = 64
"""Of these, parts counted: more than that leave no core of a large machine idle."""
ADDED_BYTES = 12
"""Of an element of a part's sums, which is read, and that of the result, which is read and written."""


def least_part(multiplied: float, added: float, row: float) -> int:
    """k of a part, at least, where so many elements are multiplied, and so many bytes of sums added up, in a second,
    and `row` seconds pass until a row of a tile begins anew."""
    return max(1, round((ADDED_BYTES / added + row / TILE) * multiplied / COST))


def parts_of(batches: int, m: int, n: int, k: int, least: int, block: int) -> tuple[int, int]:
    """Parts of k for products [m, k] x [k, n], and the blocks of k that these share as evenly as can be, longer ones
    first: whoever has a longer one then takes a shorter one. `least`: see `least_part`."""
    tiles = batches * -(-m // TILE) * -(-n // TILE)
    parts = min((k + least // 2) // least, MANY_TILES // max(1, tiles))
    blocks = -(-k // block)
    return max(1, min(parts, blocks)), blocks


@lru_cache(256)
def tasks_of(parts: int, programs: int, threads: int, uneven: float) -> int:
    """Tasks that share the parts of each of so many programs. `uneven`: see `uarch.cpu.PanelRates`."""

    def time(tasks: int) -> float:
        count = programs * tasks
        share = max(1.0, count / threads) + uneven * log2(threads)
        return max(share, -(-count // threads)) * -(-parts // tasks) + (
            4 * COST * parts if tasks > 1 else 0
        )

    best = min(range(1, parts + 1), key=time) if threads > 1 else 1
    return -(-parts // -(-parts // best))


@frozen
class Division:
    """Where the extents of a kernel's product stand: numbers of arguments and of dimensions."""

    a: int
    x: int
    k: int
    least: int
    """See `least_part`."""
    block: int
    """k that a micro-kernel multiplies while sums stay in registers, which parts are a multiple of."""
    b: int
    y: int
    sums: int
    """Bytes of the sums of a part of a program."""

    def parts(self, args: Sequence[Argument]) -> tuple[int, int]:
        """See `parts_of`."""
        a, b = args[self.a], args[self.b]
        assert isinstance(a, ArrayArg) and isinstance(b, ArrayArg)
        batches = max(prod(each.shape[:-2]) for each in (a, b))
        m, n, k = a.shape[self.x], b.shape[self.y], a.shape[self.k]
        return parts_of(batches, m, n, k, self.least, self.block)
