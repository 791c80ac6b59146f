"""raster: the order in which programs of a kernel without products run: first along the rows of its arrays.

    kernel                                           kernel {tilewright.raster = array<i64: 1, 0, 2>}
    %t = xetile.init_tile %X[32 * %x, 64 * %y]  ->   (programs that differ in y alone follow one another)

A row of a tile is a few lines of memory, the tile next to it has the lines behind them. Where the next program is the
tile below, each comes to new pages for a few lines of each, long before what the last one fetched along is used.

Requires: workgroup level, products as `stage.contract`. Guarantees: nothing of the kernel changes. Products keep x
first: what their programs share
is in the caches.
"""

from __future__ import annotations

from math import prod

from xdsl.dialects import gpu
from xdsl.dialects.builtin import DenseArrayBase, i64

from tilewright.arguments import Grid
from tilewright.dialects.fused import ContractOp
from tilewright.passes.access import AccessAnalysis
from tilewright.passes.kernel import programs_of, three

RASTER = "tilewright.raster"
"""Attribute of a kernel: the axes of its grid, those along which programs follow one another first."""


def raster(kernel: gpu.FuncOp) -> None:
    """Says in which order programs run, where x is not the first axis."""
    if programs_of(kernel) > 1 or any(isinstance(op, ContractOp) for op in kernel.walk()):
        return
    analysis, along = AccessAnalysis(kernel), [0, 0, 0]
    for access in analysis.accesses:
        for offset, stride in zip(access.offsets, access.strides, strict=True):
            if stride.constant == 1:
                for axis in range(3):
                    if offset.depends_on(analysis.program_id(axis)):
                        along[axis] += prod(access.shape)
    order = sorted(range(3), key=lambda axis: -along[axis])
    if order != [0, 1, 2]:
        kernel.attributes[RASTER] = DenseArrayBase.from_list(i64, order)


def raster_of(kernel: gpu.FuncOp) -> Grid:
    """The axes of a kernel's grid, those along which programs follow one another first."""
    return three(kernel, RASTER) or (0, 1, 2)
