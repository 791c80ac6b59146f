"""What a grid of a launch may be."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.diagnostics import LaunchError
from tilewright.targets.base import Grid

_GRID_LIMIT = (1 << 31) - 1
_PROGRAM_LIMIT = 1 << 56
"""Programs are counted in 64 bits with a sign, times the subgroups of each."""


def full_grid(grid: Any) -> Grid:
    """``grid`` with three axes; LaunchError for what is no grid."""
    axes = grid if type(grid) is tuple else tuple(grid) if isinstance(grid, list) else (grid,)
    if not 1 <= len(axes) <= 3:
        raise LaunchError(f"a grid has 1 to 3 axes, not {len(axes)}: {axes}")
    full: list[int] = [1, 1, 1]
    for i, extent in enumerate(axes):
        if type(extent) is not int:
            if isinstance(extent, bool) or not isinstance(extent, (int, np.integer)):
                raise LaunchError(f"axis {i} of the grid is {extent!r}, which is no integer")
            extent = int(extent)
        if not 0 <= extent <= _GRID_LIMIT:
            raise LaunchError(
                f"axis {i} of the grid is {extent}", rule=f"each axis is 0 to {_GRID_LIMIT}"
            )
        full[i] = extent
    if full[0] * full[1] * full[2] > _PROGRAM_LIMIT:
        raise LaunchError(
            f"a grid of {' x '.join(map(str, full))} has {full[0] * full[1] * full[2]} programs",
            rule=f"a launch runs at most {_PROGRAM_LIMIT} programs",
            hint="let each program do more: loop over tiles inside of the kernel",
        )
    return full[0], full[1], full[2]
