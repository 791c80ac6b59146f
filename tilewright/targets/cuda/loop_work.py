"""What of a kernel says how many workgroups should compute one of its programs: its loop, measured
(`work_split.LoopWork`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod

from xdsl.dialects import gpu, memref
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import BlockArgument, SSAValue

from tilewright import dtypes
from tilewright.dialects import xetile
from tilewright.dialects.movement import shape_of, vector_type
from tilewright.dialects.upstream.arith import constant
from tilewright.passes.access import AccessAnalysis
from tilewright.targets.cuda.passes.k_coarsening import can_merge
from tilewright.targets.cuda.passes.local_stores import must_store
from tilewright.targets.cuda.passes.multi_buffering import loads_of
from tilewright.targets.cuda.passes.split_k import shared_loop
from tilewright.targets.cuda.passes.stored_bounds import bounds_of
from tilewright.targets.cuda.passes.tf32_rounding import loaded, source_load
from tilewright.targets.cuda.passes.wgmma_legality import (
    instruction_for,
    through_transposes,
    untransposed,
)
from tilewright.targets.cuda.products import feeds_product
from tilewright.targets.cuda.work_split import LoopWork
from tilewright.uarch import sm90
from tilewright.uarch.base import Machine


def work_of(
    kernel: gpu.FuncOp, machine: Machine, analysis: AccessAnalysis | None = None
) -> LoopWork | None:
    """The loop of a kernel whose tiles are placed where they are loaded; None where it has another form.

    `analysis`: the kernel's, where it is made.
    """
    loop = shared_loop(kernel)
    if loop is None:
        return None
    start, step = constant(loop.lb), constant(loop.step)
    end = _end(kernel, loop.ub)
    if start is None or not step or end is None:
        return None
    products = [op for op in loop.body.block.ops if isinstance(op, xetile.TileMmaOp)]
    shapes = {tuple(vector_type(op.result).get_shape()) for op in products}
    if len(shapes) != 1 or any(map(feeds_product, products)):
        return None
    rows, columns = shapes.pop()
    clocks, itemsize, computed, widths = 0.0, 0, 0, tuple[int, ...]()
    along_rows: set[xetile.LoadTileOp] = set()
    along_columns: set[xetile.LoadTileOp] = set()
    for op in products:
        a, b = vector_type(op.a), vector_type(op.b)
        instruction = instruction_for(machine, a, b, vector_type(op.result))
        if instruction is None or instruction.flops_per_cycle is None:
            return None
        widths = instruction.n
        itemsize = max(itemsize, *(dtypes.from_mlir(v.element_type).itemsize for v in (a, b)))
        clocks += 2 * rows * columns * a.get_shape()[1] / instruction.flops_per_cycle
        computed += 0 if loaded(through_transposes(op.a)) is not None else prod(a.get_shape())
        along_rows.update(loads_of(op.a, computed=True))
        along_columns.update(loads_of(op.b, computed=must_store(op)))
    analysis = analysis or AccessAnalysis(kernel)
    (row_extent, rows_across), (column_extent, columns_across) = (
        _extent(products, kernel, side) for side in (0, 1)
    )
    row_extent, column_extent = _stored_extents(kernel, rows, columns) or (
        row_extent,
        column_extent,
    )
    return LoopWork(
        *end,
        start,
        step,
        rows,
        columns,
        len(products),
        sum(map(_bytes, along_rows)),
        sum(map(_bytes, along_columns)),
        itemsize,
        clocks,
        True,
        can_merge(analysis),
        *_stored(kernel, rows, columns),
        widths,
        rows_across,
        columns_across,
        any(map(must_store, products)),
        computed,
        row_extent,
        column_extent,
        *_axes(analysis, along_rows, along_columns),
        all(map(bounds_of, along_rows)),
        all(map(bounds_of, along_columns)),
        dict(sm90.PRODUCT_RATES),
    )


def _end(kernel: gpu.FuncOp, bound: SSAValue) -> tuple[int, int] | None:
    """The array argument and its extent that a loop's end is, or the scalar argument with -1."""
    if (number := constant(bound)) is not None:
        static = ((a.index, a.type) for a in kernel.body.block.args)
        ends = ((i, t.get_shape()) for i, t in static if isinstance(t, MemRefType))
        return next(((i, s.index(number)) for i, s in ends if number in s), None)
    source, dimension = bound, -1
    if isinstance(bound.owner, memref.DimOp):
        source, found = bound.owner.source, constant(bound.owner.index)
        dimension = -2 if found is None else found
    if not isinstance(source, BlockArgument) or source.block is not kernel.body.block:
        return None
    if dimension == -2 or isinstance(source.type, MemRefType) != (dimension >= 0):
        return None
    return source.index, dimension


def _extent(
    products: Sequence[xetile.TileMmaOp], kernel: gpu.FuncOp, side: int
) -> tuple[tuple[int, int], bool]:
    """The array argument and its dimension along which all left (0) or right (1) operands of products take rows or
    columns of the result, (-1, -1) if there is no such one; and whether its lines run along these."""
    found: set[tuple[int, int]] = set()
    across = False
    for op in products:
        value, dimension = (op.a, 0) if side == 0 else (op.b, 1)
        source = source_load(value, dimension)
        if source is None:
            return (-1, -1), across
        load, dimension = source
        across = load.tile_type.order[0] == dimension
        if (array := _argument(load.tile, kernel)) is None:
            return (-1, -1), across
        found.add((array[0], array[1] - 2 + dimension))
    return found.pop() if len(found) == 1 else (-1, -1), across


def _axes(
    analysis: AccessAnalysis,
    rows: Iterable[xetile.LoadTileOp],
    columns: Iterable[xetile.LoadTileOp],
) -> tuple[int, int]:
    """The first axes of the grid along which what rows need changes, and what columns need does not; and the other
    way round."""
    accesses = [[analysis.find(load) for load in loads] for loads in (rows, columns)]
    known = [[each.axes for each in side if each is not None] for side in accesses]
    if [len(side) for side in known] != [len(side) for side in accesses]:
        return -1, -1
    a, b = (frozenset[int]().union(*side) for side in known)
    return min(a - b, default=-1), min(b - a, default=-1)


def _stored(kernel: gpu.FuncOp, rows: int, columns: int) -> tuple[int, bool]:
    """Bytes of an element of a result of this shape that the copy engine can store, 0 if there is none; and whether it
    is stored transposed."""
    for op, transpose in _stores(kernel, rows, columns):
        itemsize = dtypes.from_mlir(op.tile_type.element_type).itemsize
        if op.tile_type.order == (1, 0) and itemsize in (2, 4):
            return itemsize, transpose
    return 0, False


def _stored_extents(
    kernel: gpu.FuncOp, rows: int, columns: int
) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """The array argument and its dimension that is all rows of a result of this shape, and the same of columns; None
    where none is stored to an argument."""
    for op, transpose in _stores(kernel, rows, columns):
        if (array := _argument(op.tile, kernel)) is not None:
            index, rank = array
            down, along = (index, rank - 2), (index, rank - 1)
            return (along, down) if transpose else (down, along)
    return None


def _stores(
    kernel: gpu.FuncOp, rows: int, columns: int
) -> Iterator[tuple[xetile.StoreTileOp, bool]]:
    """Stores of results of this shape, and which of them are transposed."""
    for op in kernel.walk():
        if isinstance(op, xetile.StoreTileOp):
            value, transpose = untransposed(op.value)
            if shape_of(value) == (rows, columns):
                yield op, transpose


def _argument(tile: SSAValue, kernel: gpu.FuncOp) -> tuple[int, int] | None:
    """The array argument that a tile lies in, and its dimensions, two at least; None where it is no argument."""
    origin = tile.owner
    array = origin.source if isinstance(origin, xetile.InitTileOp) else None
    if not isinstance(array, BlockArgument) or array.block is not kernel.body.block:
        return None
    if not isinstance(array.type, MemRefType) or array.type.get_num_dims() < 2:
        return None
    return array.index, array.type.get_num_dims()


def _bytes(load: xetile.LoadTileOp) -> int:
    rows, columns = load.tile_type.get_shape()
    return rows * columns * dtypes.from_mlir(load.tile_type.element_type).itemsize
