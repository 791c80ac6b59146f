"""Meaning of the XeTile dialect (DESIGN §3). Maps never change values at workgroup level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.ir import Attribute, SSAValue

from tilewright.dialects import xetile
from tilewright.dialects.xetile.memory import padding_number
from tilewright.reference import access, numerics
from tilewright.reference.meanings import reductions
from tilewright.reference.meanings.arith import as_number
from tilewright.reference.meanings.vector import matmul, result_shape
from tilewright.reference.registry import meaning
from tilewright.reference.site import Site
from tilewright.reference.values import (
    Array,
    Index,
    MemRefValue,
    ScatteredTileValue,
    TileValue,
    scalar,
    spread,
)


def rows_of(site: Site, numbers: Sequence[int | SSAValue]) -> list[Index]:
    """Rows of a list that mixes constants with SSA values."""
    return [scalar(n) if isinstance(n, int) else site.group.get(n) for n in numbers]


def matrix_of(
    source: Any, element: Attribute, sizes: list[Index], strides: list[Index]
) -> tuple[Index, list[Index], list[Index]]:
    """Address, sizes and strides of a matrix: those given, else those of an array."""
    if not isinstance(source, MemRefValue):
        return source.astype(np.int64), sizes, strides
    base = source.base + numerics.numpy_type(element).itemsize * source.offset
    return base, sizes or list(source.sizes), strides or list(source.strides)


def _padding(op: Any, type: Attribute) -> Any:
    return as_number(padding_number(op.padding), type)


@meaning("xetile.init_tile")
def init_tile(site: Site, op: xetile.InitTileOp, source: Any, *_: Any) -> Any:
    given = rows_of(site, op.mixed_sizes), rows_of(site, op.mixed_strides)
    base, sizes, strides = matrix_of(source, op.tile_type.element_type, *given)
    if op.offset_vector is not None:
        indices = site.group.get(op.offset_vector)
        size = -1 if not sizes and not isinstance(source, MemRefValue) else 1
        flat = scalar(size)
        for extent in sizes:
            flat = flat * extent
        return ScatteredTileValue(base, flat, strides[-1] if strides else scalar(1), indices)
    offsets = rows_of(site, op.mixed_offsets)
    if len(sizes) == 1:  # a 1-D array is a row
        sizes, strides, offsets = [scalar(1), *sizes], [scalar(0), *strides], [scalar(0), *offsets]
    return TileValue(base, tuple(sizes), tuple(strides), tuple(offsets))


@meaning("xetile.update_tile_offset")
def update_tile_offset(site: Site, op: xetile.UpdateTileOffsetOp, tile: Any, *_: Any) -> Any:
    if isinstance(tile, ScatteredTileValue):
        assert op.offset_vector is not None
        indices = tile.indices + site.group.get(op.offset_vector)
        return ScatteredTileValue(tile.base, tile.size, tile.stride, indices)
    return moved(tile, rows_of(site, op.mixed_offsets))


def moved(tile: TileValue, deltas: list[Index]) -> TileValue:
    """A block at offsets that count its innermost dimensions, or all of the base's."""
    lead = len(tile.offsets) - len(deltas)
    inner = (o + d for o, d in zip(tile.offsets[lead:], deltas, strict=True))
    return TileValue(tile.base, tile.sizes, tile.strides, (*tile.offsets[:lead], *inner))


def boxes_of(tile: TileValue, shape: tuple[int, ...]) -> access.Boxes:
    """The rectangle of a block tile: extent 1 in the leading dimensions of the matrix."""
    lead = len(tile.sizes) - len(shape)
    return access.Boxes(tile.base, tile.sizes, tile.strides, tile.offsets, (*[1] * lead, *shape))


@meaning("xetile.load_tile")
def load_tile(site: Site, op: xetile.LoadTileOp, tile: TileValue) -> Any:
    type = op.tile_type
    shape, dtype = type.get_shape(), numerics.numpy_type(type)
    padding = _padding(op, type.element_type)
    fastest = len(tile.offsets) - (1 if type.order == (1, 0) else 2)
    loaded: list[Array] = []
    for number in range(len(op.values)):
        step = number * shape[fastest - len(tile.offsets)]
        offsets = [o + step if d == fastest else o for d, o in enumerate(tile.offsets)]
        here = TileValue(tile.base, tile.sizes, tile.strides, tuple(offsets))
        used = site.taken(op.values[number]) if op.permutation is None else None
        if used is not None:
            address, inside = element_addresses(site, here, shape, dtype.itemsize, None)
            none = np.full((), padding, dtype)
            loaded.append(access.gather(site, address, inside, dtype, none, used))
            continue
        rows = access.load_boxes(site, boxes_of(here, shape), dtype, padding)
        rows = rows.reshape(rows.shape[0], *shape)
        if op.permutation is not None:
            rows = rows.transpose(0, *(d + 1 for d in op.permutation))
        loaded.append(rows)
    return loaded[0] if len(loaded) == 1 else tuple(loaded)


@meaning("xetile.store_tile")
def store_tile(
    site: Site, op: xetile.StoreTileOp, value: Array, tile: TileValue, mask: Array | None = None
) -> None:
    if mask is not None:
        address, wanted = element_addresses(site, tile, value.shape[1:], value.itemsize, mask)
        access.scatter(site, address, wanted, value)
        return
    boxes = boxes_of(tile, value.shape[1:])
    access.store_boxes(site, boxes, value.reshape(value.shape[0], *boxes.shape))


def element_addresses(
    site: Site, tile: Any, shape: tuple[int, ...], itemsize: int, mask: Array | None
) -> tuple[Index, Array]:
    """Addresses of a tile's elements, and which of them exist and are not masked off."""
    if isinstance(tile, TileValue):
        boxes = boxes_of(tile, shape)
        address, inside = access.box_addresses(boxes, itemsize, site.count)
        address, inside = (a.reshape(site.count, *shape) for a in (address, inside))
    else:
        scattered: ScatteredTileValue = tile
        rank = len(shape)
        base, size, stride = (
            part.reshape(-1, *[1] * rank)
            for part in (scattered.base, scattered.size, scattered.stride)
        )
        address = base + itemsize * stride * scattered.indices
        inside = (size < 0) | ((scattered.indices >= 0) & (scattered.indices < size))
    if site.checking:
        outside = ~inside if mask is None else ~inside & mask
        if outside.any():
            rows: Array = np.any(outside, axis=tuple(range(1, outside.ndim)))
            site.outside(rows.shape[0], rows)
    return address, inside if mask is None else inside & mask


@meaning("xetile.load")
def load_gather(site: Site, op: xetile.LoadGatherOp, tile: Any, mask: Array | None = None) -> Array:
    dtype = numerics.numpy_type(op.result.type)
    shape = result_shape(op)
    address, wanted = element_addresses(site, tile, shape, dtype.itemsize, mask)
    padding = np.full((1,) * (len(shape) + 1), _padding(op, op.tile_type.element_type), dtype)
    return access.gather(site, address, wanted, dtype, padding)


@meaning("xetile.store")
def store_scatter(
    site: Site, op: xetile.StoreScatterOp, value: Array, tile: Any, mask: Array | None = None
) -> None:
    address, wanted = element_addresses(site, tile, value.shape[1:], value.itemsize, mask)
    access.scatter(site, address, wanted, value)


@meaning("xetile.atomic_rmw")
def atomic_rmw(
    site: Site, op: xetile.AtomicRmwOp, value: Array, tile: Any, mask: Array | None = None
) -> Array:
    address, wanted = element_addresses(site, tile, value.shape[1:], value.itemsize, mask)
    combine = reductions.atomic(op.kind, op.result.type)
    padding = np.zeros((), value.dtype)
    return access.atomic(site, spread(address, site.count), wanted, value, combine, padding)


@meaning("xetile.tile_mma")
def tile_mma(site: Site, op: xetile.TileMmaOp, a: Array, b: Array, c: Array | None = None) -> Array:
    return matmul(a, b, c, op.result.type)


@meaning("xetile.reduction")
def reduction(site: Site, op: xetile.ReductionOp, value: Array) -> Array:
    shape = result_shape(op)
    size = op.reduction_size
    if size is None:
        axes = tuple(dim + 1 for dim in op.dims)
        result = reductions.reduce(op.kind, op.result.type, value, axes)
    else:
        (dim,) = op.dims
        split = (*value.shape[: dim + 1], shape[dim], size, *value.shape[dim + 2 :])
        result = reductions.reduce(op.kind, op.result.type, value.reshape(split), (dim + 2,))
    return result.reshape(value.shape[0], *shape)
