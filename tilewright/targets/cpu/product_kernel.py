"""The micro-kernel that multiplies elements of some types, as the model of products (`product_cost`) sees it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilewright import dtypes
from tilewright.targets.cpu.machine import CpuMachine

TILE_DEPTH = 1024
"""Bytes of a block of k where tiles are multiplied."""


@dataclass(frozen=True)
class ProductKernel:
    """The micro-kernel that multiplies elements of some types."""

    tiles: bool
    rows: int
    columns: int
    wide: int
    """Columns that it multiplies at once."""
    rate: float
    """Multiplications per clock."""
    depth: int
    """Bytes of a row or column of a panel in a block of k."""
    bytes: int
    """Of an element in panels, at least."""
    lanes: tuple[int, int]
    """Rows and columns of a panel."""
    verbatim: bool = True
    """Does it read elements of A as they are in the array?"""
    single: bool = False
    """Does it read vectors of B as they are, one k after the other?"""

    @property
    def dots(self) -> bool:
        """Does it add dot products of vectors?"""
        return self.verbatim and not (self.tiles or self.single)


@lru_cache(64)
def kernel_for(m: CpuMachine, types: tuple[str, str, str]) -> ProductKernel:
    """That of the machine's table; floats of 16 bits that it does not multiply are two bf16 each in tiles, else f32."""
    known, times = m.architecture.able(m.target.features, *types), 1
    able = (
        [each for each in known if each.rows > 1]
        or [each for each in m.dots if each.types == types]
        or [each for each in known if each.group == 1]
    )
    verbatim = bool(able)
    if not able and types == ("f16", "f16", "f32") and m.has("amx-bf16"):
        able, times = m.architecture.able(m.target.features, "bf16", "bf16", "f32"), 4
    if not able and types[2] == "i32":
        able = [each for each in m.dots if each.types[2] == "i32"]
    if able:
        found, rate = able[0], able[0].flops_per_cycle / 2 / times
        tiles, wide = found.rows > 1, found.nr * found.panels
        depth = TILE_DEPTH if tiles else m.kc * itemsize_of(found.types[1])
        least = 1 if times == 1 else 4
        lanes = found.lanes_a, found.lanes_b
        single = verbatim and not tiles and found.group == 1
        return ProductKernel(
            tiles, found.mr, found.nr, wide, rate, depth, least, lanes, verbatim, single
        )
    size = max(4, itemsize_of(types[2]))
    nr, rate = m.nr(size), 2.0 * m.vector_bytes / size
    return ProductKernel(False, m.mr, nr, nr * m.panels, rate, m.kc * size, size, (m.mr, nr), False)


def itemsize_of(name: str) -> int:
    return dtypes.from_name(name).itemsize
