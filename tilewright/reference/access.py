"""Loads, stores and atomics on memory, for all instances at once.

Two shapes of access exist: a *box* (a strided rectangle per instance: tiles, vector.load) and
*scattered* elements (one address each). Bounds are DESIGN §3: what lies outside the matrix gives
the padding value or is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.arguments import array_at
from tilewright.frozen import frozen
from tilewright.reference.values import Array, Index

if TYPE_CHECKING:
    from tilewright.reference.shadow import Kind
    from tilewright.reference.site import Site


@frozen
class Boxes:
    """One rectangle per row: element `e` lies at `base + itemsize * sum(stride * (offset + e))`.

    All sequences have one entry per dimension of the matrix; `shape` counts elements of the box.
    """

    base: Index
    sizes: Sequence[Index]
    strides: Sequence[Index]
    offsets: Sequence[Index]
    shape: tuple[int, ...]
    bounded: bool = True
    """False where reaching outside the matrix is undefined (ops without bounds of their own)."""


@frozen
class _Clipped:
    """Boxes cut to their matrix: the part from `low` to `high` (exclusive) of each box exists."""

    low: Index  # (rows, rank)
    high: Index  # (rows, rank)
    strides: Index  # (rows, rank), in bytes
    address: Index  # (rows,), of the first element that exists


def _columns(parts: Sequence[Index], rows: int) -> Index:
    """One column per dimension, every row written out."""
    table = np.empty((rows, len(parts)), np.int64)
    for column, part in enumerate(parts):
        table[:, column] = part
    return table


def _clip(boxes: Boxes, rows: int, itemsize: int) -> _Clipped:
    offsets, sizes = _columns(boxes.offsets, rows), _columns(boxes.sizes, rows)
    strides = _columns(boxes.strides, rows) * itemsize
    extents = np.array(boxes.shape, np.int64)
    low = np.clip(-offsets, 0, extents)
    high = np.clip(sizes - offsets, low, extents)
    address = boxes.base + (strides * (offsets + low)).sum(axis=1)
    return _Clipped(low, high, strides, address)


def _row_count(boxes: Boxes, *more: int) -> int:
    parts = (boxes.base, *boxes.sizes, *boxes.strides, *boxes.offsets)
    return max(*(part.shape[0] for part in parts), *more, 1)


def _existing(
    site: Site, boxes: Boxes, clipped: _Clipped, itemsize: int, *, writes: bool
) -> tuple[Array, Array]:
    """Which boxes lie whole inside matrix and memory, and which in part; reports the others."""
    extents = np.array(boxes.shape, np.int64)
    present: Array = np.all(clipped.high > clipped.low, axis=1)
    reach = clipped.strides * np.maximum(clipped.high - clipped.low - 1, 0)
    first = clipped.address + np.minimum(reach, 0).sum(axis=1)
    last = clipped.address + np.maximum(reach, 0).sum(axis=1) + itemsize
    present = site.accessible(present, first, last, writes=writes)
    whole = present & ((clipped.high - clipped.low) == extents).all(axis=1)
    if site.checking or not boxes.bounded:
        outside = ~((clipped.high - clipped.low) == extents).all(axis=1)
        if outside.any():
            site.outside(clipped.low.shape[0], outside, undefined=not boxes.bounded)
    return whole, present & ~whole


def _note(site: Site, clipped: _Clipped, itemsize: int, present: Array, kind: Kind) -> None:
    """Tells checking mode which elements the rows that are `present` touch."""
    if not site.checking:
        return
    parties = site.batch.parties[site.instances]
    everybody = np.unique(parties).tolist()
    shared = clipped.address.shape[0] == 1
    for row in np.flatnonzero(present).tolist():
        elements = clipped.address[row : row + 1]
        extents = (clipped.high - clipped.low)[row].tolist()
        for extent, stride in zip(extents, clipped.strides[row].tolist(), strict=True):
            elements = (elements[:, None] + stride * np.arange(extent)).ravel()
        for party in everybody if shared else [int(parties[row])]:
            who = np.full(elements.shape, party)
            site.machine.shadow.note(site, elements, who, itemsize, kind)


def load_boxes(site: Site, boxes: Boxes, dtype: np.dtype[Any], padding: Any) -> Array:
    """The boxes' elements, `(rows, *shape)`; what lies outside the matrix is `padding`."""
    rows = _row_count(boxes)
    clipped = _clip(boxes, rows, dtype.itemsize)
    whole, parts = _existing(site, boxes, clipped, dtype.itemsize, writes=False)
    _note(site, clipped, dtype.itemsize, whole | parts, "read")
    if whole.all() and (result := _load_whole(clipped, boxes.shape, dtype)) is not None:
        return result
    result = np.full((rows, *boxes.shape), padding, dtype)
    for row in np.flatnonzero(whole | parts).tolist():
        view, place = _view(clipped, row, dtype)
        result[row][place] = view
    return result


def store_boxes(site: Site, boxes: Boxes, value: Array) -> None:
    """Writes `(rows, *shape)` values; what lies outside the matrix is dropped."""
    rows = _row_count(boxes, value.shape[0])
    dtype = value.dtype
    clipped = _clip(boxes, rows, dtype.itemsize)
    whole, parts = _existing(site, boxes, clipped, dtype.itemsize, writes=True)
    _note(site, clipped, dtype.itemsize, whole | parts, "write")
    if site.checking and site.batch.lanes > 1:
        address, inside = box_addresses(boxes, dtype.itemsize, rows)
        present = (whole | parts).reshape(-1, *[1] * len(boxes.shape))
        site.check_lanes_agree(address, inside & present, np.broadcast_to(value, address.shape))
    for row in np.flatnonzero(whole | parts).tolist():
        view, place = _view(clipped, row, dtype)
        view[...] = value[row if value.shape[0] > 1 else 0][place]


def _view(clipped: _Clipped, row: int, dtype: np.dtype[Any]) -> tuple[Array, tuple[slice, ...]]:
    """The part of one box that exists, and where it stands in the box."""
    low, high = clipped.low[row].tolist(), clipped.high[row].tolist()
    shape = tuple(b - a for a, b in zip(low, high, strict=True))
    strides = tuple(clipped.strides[row].tolist())
    place = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
    return array_at(int(clipped.address[row]), shape, strides, dtype), place


def _load_whole(clipped: _Clipped, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
    """All boxes in one copy, where they have the same strides and lie in step."""
    address, strides = clipped.address, clipped.strides
    first = int(address.min())
    steps, phase = np.divmod(address - first, dtype.itemsize)
    if phase.any() or (strides != strides[0]).any():
        return None
    outer = int(steps.max()) + 1
    view = array_at(first, (outer, *shape), (dtype.itemsize, *strides[0].tolist()), dtype)
    return view[steps]


def box_addresses(boxes: Boxes, itemsize: int, rows: int) -> tuple[Index, Array]:
    """The address of every element, `(rows, *shape)`, and whether it lies in the matrix."""
    rank = len(boxes.shape)
    address = np.broadcast_to(boxes.base, (rows,)).reshape(rows, *[1] * rank)
    inside = np.ones((rows, *[1] * rank), bool)
    for dim in range(rank):
        along = [1] * (rank + 1)
        along[dim + 1] = boxes.shape[dim]
        rows_first = (-1, *[1] * rank)
        place = boxes.offsets[dim].reshape(rows_first) + np.arange(boxes.shape[dim]).reshape(along)
        inside = inside & (place >= 0) & (place < boxes.sizes[dim].reshape(rows_first))
        address = address + itemsize * boxes.strides[dim].reshape(rows_first) * place
    shape = (rows, *boxes.shape)
    return np.broadcast_to(address, shape), np.broadcast_to(inside, shape)


def gather(
    site: Site,
    address: Index,
    wanted: Array,
    dtype: np.dtype[Any],
    otherwise: Array,
    used: Array | None = None,
) -> Array:
    """Elements at addresses where `wanted`, elsewhere those of `otherwise`; shapes agree.

    Those that are not `used` must be in memory too, but count as not read (`Site.taken`).
    """
    address, wanted, otherwise = np.broadcast_arrays(address, wanted, otherwise)
    wanted = site.accessible(wanted, address, address + dtype.itemsize, writes=False)
    if site.checking:
        read = wanted if used is None else wanted & used
        site.note_elements(address, read, dtype.itemsize, "read")
    result = np.array(otherwise, dtype)
    for places, view, index in _in_step(address, wanted, dtype):
        result[places] = view[index]
    return result


def scatter(site: Site, address: Index, wanted: Array, value: Array) -> None:
    """Writes elements to addresses where `wanted`, in order of instances and elements."""
    address, wanted, value = np.broadcast_arrays(address, wanted, value)
    wanted = site.accessible(wanted, address, address + value.itemsize, writes=True)
    if site.checking:
        site.note_writes(address, wanted, value)
    for places, view, index in _in_step(address, wanted, value.dtype):
        view[index] = value[places]


def atomic(
    site: Site,
    address: Index,
    wanted: Array,
    value: Array,
    combine: Callable[[Array, Array], Array],
    otherwise: Array,
) -> Array:
    """Combines every element with memory, one after the other; the values from before.

    Rounds make it fast: the k-th round handles the k-th access to each address.
    """
    address, wanted, value, otherwise = np.broadcast_arrays(address, wanted, value, otherwise)
    wanted = site.accessible(wanted, address, address + value.itemsize, writes=True)
    if site.checking:
        site.note_elements(address, wanted, value.itemsize, "atomic")
    result = np.array(otherwise, value.dtype)
    for places, view, index in _in_step(address, wanted, value.dtype):
        flat = value[places]
        old = np.empty_like(flat)
        occurrence = _occurrence(index)
        for turn in range(int(occurrence.max(initial=-1)) + 1):
            now = occurrence == turn
            old[now] = view[index[now]]
            view[index[now]] = combine(old[now], flat[now])
        result[places] = old
    return result


def _occurrence(index: Index) -> Index:
    """For each element, how often its value stands before it."""
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if index.size else index
    lengths = np.diff(np.r_[starts, index.size])
    ranks = np.arange(index.size) - np.repeat(starts, lengths)
    result = np.empty_like(ranks)
    result[order] = ranks
    return result


def _in_step(address: Index, wanted: Array, dtype: np.dtype[Any]):
    """Splits accesses by alignment: the places, a view of memory, the index of each in the view."""
    if not wanted.any():
        return
    places = np.nonzero(wanted)
    chosen = address[places]
    phases = chosen % dtype.itemsize
    for phase in np.unique(phases).tolist():
        mine = phases == phase
        here = chosen[mine]
        first = int(here.min())
        index = (here - first) // dtype.itemsize
        view = array_at(first, (int(index.max()) + 1,), (dtype.itemsize,), dtype)
        yield tuple(place[mine] for place in places), view, index
