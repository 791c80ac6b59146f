"""Meaning of XeGPU's scattered ops: gathers, scatters and atomics, at every level."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from tilewright.dialects import xegpu
from tilewright.dialects.movement import shape_of_type
from tilewright.reference import access, numerics
from tilewright.reference.meanings import reductions
from tilewright.reference.registry import meaning
from tilewright.reference.site import Site
from tilewright.reference.values import (
    Array,
    Index,
    MemRefValue,
    ScatteredTileValue,
    scalar,
    spread,
)


@meaning("xegpu.create_tdesc")
def create_tdesc(
    site: Site, op: xegpu.CreateDescOp, source: Any, offsets: Index
) -> ScatteredTileValue:
    return _scattered(source, offsets, op.tdesc.element_type)


def _scattered(source: Any, offsets: Index, element: Attribute) -> ScatteredTileValue:
    itemsize = numerics.numpy_type(element).itemsize
    offsets = offsets.astype(np.int64)
    if isinstance(source, MemRefValue):
        stride = source.strides[0] if source.strides else scalar(1)
        size = source.sizes[0] if source.sizes else scalar(1)
        return ScatteredTileValue(source.base + itemsize * source.offset, size, stride, offsets)
    return ScatteredTileValue(source.astype(np.int64), scalar(-1), scalar(1), offsets)


@meaning("xegpu.update_offset")
def update_offset(
    site: Site, op: xegpu.UpdateOffsetOp, desc: ScatteredTileValue, delta: Index
) -> ScatteredTileValue:
    return ScatteredTileValue(desc.base, desc.size, desc.stride, desc.indices + delta)


def _elements(
    op: xegpu.ScatterAccess, source: Any, offsets: Index | None, element: Attribute
) -> tuple[Index, Array]:
    """Addresses of a scattered op's elements, `(rows, *lanes[, chunk])`, and which are in bounds. Pointers have no end,
    and neither have flat views of arrays whose rows go down: their sizes, sums of strides, are 0 or less."""
    where: ScatteredTileValue = source if offsets is None else _scattered(source, offsets, element)
    itemsize = numerics.numpy_type(element).itemsize
    indices = where.indices
    if op.chunk > 1:
        indices = indices[..., None] + np.arange(op.chunk)
    around = (-1, *[1] * (indices.ndim - 1))
    base, size, stride = (p.reshape(around) for p in (where.base, where.size, where.stride))
    address = base + itemsize * stride * indices
    return address, (size <= 0) | ((indices >= 0) & (indices < size))


def _wanted(op: xegpu.ScatterAccess, mask: Array, like: Array) -> Array:
    """The mask per element: it counts lanes, not the elements of a chunk."""
    if op.chunk > 1 and mask.ndim < like.ndim:
        mask = mask[..., None]
    return np.broadcast_to(mask, np.broadcast_shapes(mask.shape, like.shape))


def _own_lane(site: Site, op: xegpu.ScatterAccess, rows: Array) -> Array:
    """Where a descriptor of all lanes gives a fragment, the row of the lane itself."""
    lanes = prod(op.lanes)
    full = np.broadcast_to(rows, (site.count, *rows.shape[1:]))
    flat = full.reshape(site.count, lanes, *rows.shape[1 + len(op.lanes) :])
    return flat[np.arange(site.count), site.subgroup % lanes]


def _oriented(op: Any, rows: Array, given: tuple[int, ...]) -> Array:
    """The RFC's `transpose`: [chunk, lanes] in the register, [lanes, chunk] in memory."""
    if op.transpose and op.chunk > 1 and len(given) == 2:
        return rows.swapaxes(-1, -2)
    return rows


def _is_whole(op: xegpu.ScatterAccess, given: tuple[int, ...]) -> bool:
    return op.tdesc is None or prod(given) == prod(op.tdesc.get_shape())


def _accessed(
    site: Site,
    op: xegpu.LoadGatherOp | xegpu.StoreScatterOp | xegpu.AtomicRMWOp,
    source: Any,
    *rest: Any,
) -> tuple[Index, Array, tuple[int, ...]]:
    """Of an access by (source[, offsets], mask): the addresses, which of them are wanted, the value's shape."""
    offsets, mask = rest if op.offsets is not None else (None, *rest)
    type = op.value.type
    given = shape_of_type(type)
    address, inside = _elements(op, source, offsets, numerics.element_type(type))
    if not _is_whole(op, given):
        address, inside = (_own_lane(site, op, a) for a in (address, inside))
        mask = _own_mask(site, op, mask)
    wanted = _wanted(op, mask, address)
    missing = wanted & ~inside
    if site.checking and missing.any():
        rows: Array = np.any(missing.reshape(missing.shape[0], -1), axis=1)
        site.outside(rows.shape[0], rows, undefined=True)
    return address, wanted & inside, given


@meaning("xegpu.load")
def load(site: Site, op: xegpu.LoadGatherOp, *where: Any) -> Array:
    address, wanted, given = _accessed(site, op, *where)
    dtype = numerics.numpy_type(op.value.type)
    # What masked-off lanes hold is unspecified: all bits set, NaN in every float type.
    poison = np.full(dtype.itemsize, 0xFF, np.uint8).view(dtype)
    loaded = access.gather(site, address, wanted, dtype, poison.reshape([1] * wanted.ndim))
    loaded = _oriented(op, loaded, given) if _is_whole(op, given) else loaded
    return loaded.reshape(loaded.shape[0], *given)


def _own_mask(site: Site, op: xegpu.ScatterAccess, mask: Array) -> Array:
    """One lane's bit of a mask for all lanes; a mask of one element is the lane's already."""
    rows = np.broadcast_to(mask, (site.count, *mask.shape[1:])).reshape(site.count, -1)
    if rows.shape[1] == 1:
        return rows[:, 0]
    return rows[np.arange(site.count), site.subgroup % rows.shape[1]]


@meaning("xegpu.store")
def store(site: Site, op: xegpu.StoreScatterOp, value: Array, *where: Any) -> None:
    address, wanted, given = _accessed(site, op, *where)
    value = _oriented(op, value, given) if _is_whole(op, given) else value
    value = value.reshape(value.shape[0], *address.shape[1:])
    access.scatter(site, spread(address, site.count), wanted, value)


@meaning("xegpu.atomic_rmw")
def atomic_rmw(site: Site, op: xegpu.AtomicRMWOp, *rest: Any) -> Array:
    *where, value = rest
    address, wanted, given = _accessed(site, op, *where)
    combine = reductions.atomic(op.kind, op.value.type)
    rows: Array = value.reshape(value.shape[0], *address.shape[1:])
    old = access.atomic(
        site, spread(address, site.count), wanted, rows, combine, np.zeros((), rows.dtype)
    )
    return old.reshape(old.shape[0], *given)
