"""Where the tiles of a structured op lie in memory: blocks of a strided view, or elements at addresses of their own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, VectorType
from xdsl.ir import SSAValue

from tilewright.dialects import xetile
from tilewright.dialects.movement import memref_type, shape_of
from tilewright.passes.linalg.accesses import (
    Linear,
    ProgramLoop,
    Size,
    StridedView,
    extents,
    plus,
    reached,
    strides,
    times,
)

if TYPE_CHECKING:
    from tilewright.passes.linalg.tiles import TileWriter


def load(tiles: TileWriter, memory: SSAValue, indices: Sequence[Linear]) -> SSAValue:
    tile, mask = _tile(tiles, memory, indices, tiles.shape(*indices))
    if mask is None:
        return tiles.once(("load", tile), lambda: tiles.at.add(xetile.LoadTileOp(tile)))
    return tiles.at.add(xetile.LoadGatherOp(tile, mask))


def store(tiles: TileWriter, memory: SSAValue, indices: Sequence[Linear], value: SSAValue) -> None:
    value = tiles.splat(value, tiles.shape(*indices))
    tile, mask = _tile(tiles, memory, indices, shape_of(value))
    if mask is None:
        tiles.at.insert(xetile.StoreTileOp(value, tile))
    else:
        tiles.at.insert(xetile.StoreScatterOp(value, tile, mask))


def _tile(
    tiles: TileWriter, memory: SSAValue, indices: Sequence[Linear], shape: Sequence[int]
) -> tuple[SSAValue, SSAValue | None]:
    """A tile of memory; with the elements that exist, where each has an address of its own."""
    steps, offset = reached(memory, indices)
    outer = [loop for loop in steps if loop not in tiles.axes]
    order = None
    dims: list[tuple[ProgramLoop | None, Size, Size]] = [
        (loop, loop.extent, steps[loop]) for loop in outer
    ]
    row, column = (
        (axis, axis.extent, steps[axis]) if axis is not None and axis in steps else (None, 1, None)
        for axis in tiles.axes
    )
    sides = [
        (loop, extent, 1 if stride is None else stride) for loop, extent, stride in (row, column)
    ]
    # A side of one element has the stride that suits the other.
    if row[2] is None:
        sides[0] = (None, 1, plus(0, sides[1][1]) if sides[1][2] == 1 else 1)
    dims += sides
    if not _is_block(sides[0], sides[1]):
        order = [0, 1] if _is_block(sides[1], sides[0]) else order
        if order is None:
            return _scattered(tiles, memory, offset, dims, shape)
    view = StridedView(memory, offset, tuple(d[1] for d in dims), tuple(d[2] for d in dims))
    offsets = [0 if loop is None else tiles.offsets[loop] for loop, _, _ in dims]
    kind = xetile.TileType(
        shape, memref_type(memory).element_type, xetile.TileAttr(order=order) if order else None
    )
    source = tiles.argument(view, view.type)
    key = source, kind, tuple(offsets)
    sizes, steps = ((), ()) if view.is_static else (extents(source), strides(source)[0])
    made = partial(
        xetile.InitTileOp, source, kind, offsets,
        sizes=[tiles.own(n) for n in sizes], strides=[tiles.own(n) for n in steps],
    )  # fmt: skip
    return tiles.once(key, lambda: tiles.at.add(made())), None


def _scattered(
    tiles: TileWriter,
    memory: SSAValue,
    offset: Size,
    dims: Sequence[tuple[ProgramLoop | None, Size, Size]],
    shape: Sequence[int],
) -> tuple[SSAValue, SSAValue]:
    offsets = [0 if loop is None else tiles.offsets[loop] for loop, _, _ in dims]
    places = tiles.at.linear(offsets, [tiles.size(d[2]) for d in dims], shape)
    mask = tiles.at.inside(offsets, [tiles.size(d[1]) for d in dims], shape)
    return _at(tiles, memory, offset, [(n, by) for _, n, by in dims], places), mask


def _at(
    tiles: TileWriter,
    memory: SSAValue,
    offset: Size,
    dims: Sequence[tuple[Size, Size]],
    places: SSAValue,
) -> SSAValue:
    """A tile of elements so far behind the first of a memref."""
    reach: Size = 1
    for extent, stride in dims:
        reach = plus(plus(reach, times(extent, stride)), stride, -1)
    view = StridedView(memory, offset, (reach,), (1,))
    kind = xetile.TileType(
        shape_of(places), memref_type(memory).element_type, xetile.TileAttr(scattered=True)
    )
    source = tiles.argument(view, view.type)
    return tiles.at.add(xetile.InitTileOp(source, kind, offset_vector=places))


def is_strided(memory: SSAValue, indices: Sequence[Linear | None]) -> bool:
    """Whether an access is linear in the loops, and goes forwards."""
    known = [index for index in indices if index is not None]
    if len(known) < len(indices):
        return False
    steps, _ = reached(memory, known)
    return not any(isinstance(step, int) and step < 0 for step in steps.values())


def gather(tiles: TileWriter, memory: SSAValue, indices: Sequence[SSAValue]) -> SSAValue:
    """The elements of a memref at indices that are computed; outside of it, where no element of a result lies, 0."""
    shapes = [shape_of(v) for v in indices if isinstance(v.type, VectorType)] or [(1, 1)]
    shape = [max(ns) for ns in zip(*shapes, strict=True)]
    (steps, offset), sizes, at = strides(memory), extents(memory), tiles.at
    places, mask = at.constant(VectorType(IndexType(), shape), 0), at.all_true(shape)
    for index, extent, step in zip(indices, sizes, steps, strict=True):
        place, end = (tiles.splat(at.index(v), shape) for v in (index, tiles.size(extent)))
        mask = at.also(mask, at.compare("ult", place, end))
        by = tiles.splat(at.index(tiles.size(step)), shape)
        places = at.add_index(places, at.add(arith.MuliOp(place, by)))
    tile = _at(tiles, memory, offset, list(zip(sizes, steps, strict=True)), places)
    return at.add(xetile.LoadGatherOp(tile, mask))


def _is_block(slow: tuple[Any, Size, Size], fast: tuple[Any, Size, Size]) -> bool:
    """Whether a matrix of these extents and strides has whole rows in memory, one behind the other."""
    if fast[2] != 1 and fast[1] != 1:
        return False
    if not isinstance(slow[2], int) or not isinstance(fast[1], int):
        return True
    return slow[1] == 1 or slow[2] >= fast[1]
