"""What launches without products take, by the sizes of their programs' tiles.

    a program of 32 x 64 bf16     4 KB in   32 rows of   128 bytes
    a program of 32 x 1024       64 KB in   32 rows of 2,048 bytes

All bytes move, however they are cut into tiles. What is done anew are the start of each program (no rows before its
first have fetched them ahead, and no level of another row runs beside its own) and that of each row of its tiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, prod
from typing import TYPE_CHECKING

from tilewright.arguments import Grid
from tilewright.codegen.tiles import itemsize
from tilewright.frozen import frozen
from tilewright.passes.access import AccessAnalysis
from tilewright.passes.split_workgroups import inside

if TYPE_CHECKING:
    from xdsl.dialects import gpu

    from tilewright.passes.merge_programs import Merge

PROGRAM_SECONDS = 4e-7
ROW_SECONDS = 5e-9
BYTES_PER_SECOND = 1e10
"""Of one core: elementwise chains, exponentials and norms of 2,048 rows, tiles of 16 x 16 to 32 x 4096, 2026-11-26."""


@frozen
class _Moved:
    """A tile that a program loads or stores."""

    shape: tuple[int, ...]
    size: int
    """Bytes of an element."""
    along: int | None
    """The dimension whose elements lie side by side in memory."""
    axes: Mapping[int, int]
    """By dimension: the axis of the grid along which merged programs make it longer."""

    def longer(self, factors: Grid) -> list[int]:
        return [
            n * (factors[self.axes[d]] if d in self.axes else 1) for d, n in enumerate(self.shape)
        ]


class RowCosts:
    """A kernel's loads and stores, and how merging its programs changes them."""

    def __init__(self, kernel: gpu.FuncOp, known: Mapping[int, Merge]):
        self._moved: list[_Moved] = []
        for access in AccessAnalysis(kernel).accesses:
            strides = [stride.constant for stride in access.strides[-2:]]
            axes = {
                dim: axis
                for axis, merge in known.items()
                for dim in inside(merge.choice).get(access.tile, ())
            }
            size = itemsize(access.tile_type.element_type)
            along = strides.index(1) if 1 in strides else None
            self._moved.append(_Moved(access.shape, size, along, axes))

    def seconds(self, grid: Grid, factors: Grid, threads: int, most: int) -> float:
        """Of a launch; `most`: elements of a tile that becomes no larger. Programs end one after another: that is half
        of one."""
        rows, bytes = 0, 0
        for moved in self._moved:
            shape = moved.longer(factors)
            if prod(shape) > max(most, prod(moved.shape)):
                return inf
            bytes += prod(shape) * moved.size
            rows += prod(n for d, n in enumerate(shape) if d != moved.along)
        each = PROGRAM_SECONDS + rows * ROW_SECONDS + bytes / BYTES_PER_SECOND
        programs = prod(-(-n // f) for n, f in zip(grid, factors, strict=True))
        return each * (
            max(-(-programs // threads), programs / threads + 0.5) if threads > 1 else programs
        )
