"""Meaning of the XeGPU dialect at workgroup, subgroup and lane level (DESIGN §3).

A value whose shape is the descriptor's is a whole block, of the workgroup or of a subgroup: the same
numbers either way. A shorter one is a lane's fragment; then the lanes of a subgroup load, store or
multiply together (`tilewright.reference.lanes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from xdsl.ir import Attribute, Operation

from tilewright.diagnostics import unsupported
from tilewright.dialects import xegpu
from tilewright.dialects.movement import memref_type, shape_of_type
from tilewright.dialects.xegpu import distribution, elements
from tilewright.dialects.xegpu.types import TensorDescType
from tilewright.dialects.xetile.mma import matrix_dims
from tilewright.frozen import frozen
from tilewright.reference import access, numerics
from tilewright.reference.barriers import NamedBarrierState
from tilewright.reference.lanes import Collective, width_of
from tilewright.reference.machine import Group
from tilewright.reference.meanings import reductions
from tilewright.reference.meanings.vector import matmul
from tilewright.reference.meanings.xetile import boxes_of, matrix_of, moved, rows_of
from tilewright.reference.program import Segment, Successors, goes
from tilewright.reference.registry import meaning
from tilewright.reference.site import Site
from tilewright.reference.values import (
    Array,
    Index,
    MemRefValue,
    ScatteredTileValue,
    TileValue,
    ValueRecord,
    scalar,
    spread,
)

BOUNDLESS = 2**62
"""The extent of a base of which only the address is known."""


@frozen
class MatrixValue(ValueRecord):
    """A shared matrix: the byte address of its first element."""

    base: Index


# --- Descriptors -----------------------------------------------------------------------------


@meaning("xegpu.create_nd_tdesc")
def create_nd_tdesc(site: Site, op: xegpu.CreateNdDescOp, source: Any, *_: Any) -> TileValue:
    given = rows_of(site, op.mixed_shape), rows_of(site, op.mixed_strides)
    base, sizes, strides = matrix_of(source, op.tdesc.element_type, *given)
    sizes, strides = sizes or [scalar(BOUNDLESS)], strides or [scalar(1)]
    offsets = rows_of(site, op.mixed_offsets)
    offsets = [*([scalar(0)] * (len(sizes) - len(offsets))), *offsets]
    return TileValue(base, tuple(sizes), tuple(strides), tuple(offsets))


@meaning("xegpu.update_nd_offset")
def update_nd_offset(site: Site, op: xegpu.UpdateNdOffsetOp, desc: TileValue, *_: Any) -> TileValue:
    return moved(desc, rows_of(site, op.mixed_offsets))


# --- Blocks --------------------------------------------------------------------------------


def _here(site: Site, op: xegpu.BlockAccess, desc: TileValue) -> TileValue:
    offsets = op.mixed_offsets
    return desc if offsets is None else moved(desc, rows_of(site, offsets))


def _uniform(together: Collective, desc: TileValue) -> TileValue:
    """The descriptor per subgroup: all lanes give the same one."""

    def each(parts: Sequence[Index], what: str) -> tuple[Index, ...]:
        return tuple(together.uniform(part, what) for part in parts)

    return TileValue(
        together.uniform(desc.base, "the base"),
        each(desc.sizes, "the shape"),
        each(desc.strides, "a stride"),
        each(desc.offsets, "an offset"),
    )


def _load_wide(site: Site, tdesc: TensorDescType, desc: TileValue) -> Array:
    """(rows, *shape) as it lies in memory, blocks of array_length side by side."""
    wide = elements.wide_shape(tdesc)
    rows = access.load_boxes(site, boxes_of(desc, wide), numerics.numpy_type(tdesc.element_type), 0)
    return rows.reshape(rows.shape[0], *wide)


@meaning("xegpu.load_nd")
def load_nd(site: Site, op: xegpu.LoadNdOp, desc: TileValue, *_: Any) -> Array:
    tdesc, given = op.tdesc, shape_of_type(op.value.type)
    desc = _here(site, op, desc)
    if elements.is_whole(op):
        return elements.arranged(op, _load_wide(site, tdesc, desc)).reshape(-1, *given)
    numbers = elements.loaded(op, width_of(op))
    together = Collective(site, numbers.shape[-1])
    return together.fragments(
        _load_wide(together.leaders, tdesc, _uniform(together, desc)), numbers
    )


@meaning("xegpu.store_nd")
def store_nd(site: Site, op: xegpu.StoreNdOp, value: Array, desc: TileValue, *_: Any) -> None:
    tdesc = op.tdesc
    desc = _here(site, op, desc)
    shape = tdesc.get_shape()
    if not elements.is_whole(op):
        numbers = elements.stored(op, width_of(op))
        together = Collective(site, numbers.shape[-1])
        desc = _uniform(together, desc)
        value = together.blocks(value, elements.inverse(numbers, shape))
        site = together.leaders
    boxes = boxes_of(desc, shape)
    access.store_boxes(site, boxes, value.reshape(value.shape[0], *boxes.shape))


@meaning("xegpu.prefetch_nd", "xegpu.prefetch", "xegpu.compile_hint", "xegpu.fence")
def nothing(site: Site, op: Operation, *_: Any) -> None:
    """Caches and schedules only; memory is always coherent here."""


# --- Shared matrices -------------------------------------------------------------------------


@meaning("xegpu.create_mem_desc")
def create_mem_desc(site: Site, op: xegpu.CreateMemDescOp, source: MemRefValue) -> MatrixValue:
    type = memref_type(op.source)
    itemsize = numerics.numpy_type(type).itemsize
    return MatrixValue(source.base + itemsize * source.offset)


@meaning("xegpu.mem_desc_subview")
def mem_desc_subview(
    site: Site, op: xegpu.MemDescSubviewOp, matrix: MatrixValue, *_: Index
) -> MatrixValue:
    desc, part = op.desc, op.part.type
    offsets = rows_of(site, op.mixed_offsets)
    blocks = desc.block or (1,) * len(offsets)
    inside = np.ones((1,), bool)
    for offset, n, m, block in zip(
        offsets, part.get_shape(), desc.get_shape(), blocks, strict=True
    ):
        inside = inside & (offset >= 0) & (offset + n <= m)
        if (offset % block).any():
            site.report("error", "layout", f"{op.name} begins inside of a block of {block}")
    if not inside.all():
        site.report("error", "out of bounds", f"{op.name} reaches outside its matrix {desc}")
    safe = [np.where(inside, offset, 0) for offset in offsets]
    start = np.asarray(distribution.memory(desc).address(*np.broadcast_arrays(*safe)))
    return MatrixValue(matrix.base + numerics.numpy_type(desc.element_type).itemsize * start)


def _matrix_addresses(
    site: Site, op: xegpu.MatrixAccess, matrix: MatrixValue, given: tuple[int, ...]
) -> tuple[Index, Array]:
    """Addresses of the part of a shared matrix that a whole block or a lane's fragment covers."""
    desc = op.desc
    memory = distribution.memory(desc)
    itemsize = numerics.numpy_type(desc.element_type).itemsize
    shape = desc.get_shape()
    offsets = rows_of(site, op.mixed_offsets)
    lanes = width_of(op)
    places = elements.matrix_places(op, given, lanes)
    if lanes > 1:
        places = [np.moveaxis(place, -1, 0)[site.subgroup % lanes] for place in places]
    else:
        places = [place[None] for place in places]
    inside = np.ones((1,), bool)
    coordinates: list[Array] = []
    for extent, offset, place in zip(shape, offsets, places, strict=True):
        here = offset.reshape(-1, *[1] * (place.ndim - 1)) + place
        inside = inside & (here >= 0) & (here < extent)
        coordinates.append(np.clip(here, 0, extent - 1))
    if not inside.all():
        site.report("error", "out of bounds", f"{op.name} reaches outside its matrix {op.desc}")
    address = np.asarray(memory.address(*np.broadcast_arrays(*coordinates)))
    base = matrix.base.reshape(-1, *[1] * (address.ndim - 1))
    return base + itemsize * address, np.broadcast_to(inside, address.shape)


@meaning("xegpu.load_matrix")
def load_matrix(site: Site, op: xegpu.LoadMatrixOp, matrix: MatrixValue, *_: Any) -> Array:
    type = op.value.type
    given, dtype = shape_of_type(type), numerics.numpy_type(type)
    address, inside = _matrix_addresses(site, op, matrix, given)
    zero = np.zeros([1] * address.ndim, dtype)
    return access.gather(site, address, inside, dtype, zero).reshape(-1, *given)


@meaning("xegpu.store_matrix")
def store_matrix(
    site: Site, op: xegpu.StoreMatrixOp, value: Array, matrix: MatrixValue, *_: Any
) -> None:
    given = value.shape[1:]
    address, inside = _matrix_addresses(site, op, matrix, given)
    access.scatter(site, spread(address, site.count), inside, value.reshape(-1, *address.shape[1:]))


# --- Products --------------------------------------------------------------------------------


def _plain_a(a: Array) -> Array:
    return a.reshape(*a.shape[:2], -1) if a.ndim == 4 else a


def _plain_b(b: Array) -> Array:
    """[K/p, N, p] -> [K, N]."""
    if b.ndim != 4:
        return b
    rows, k, n, p = b.shape
    return b.transpose(0, 1, 3, 2).reshape(rows, k * p, n)


@meaning("xegpu.dpas")
def dpas(site: Site, op: xegpu.DpasOp, a: Array, b: Array, c: Array | None = None) -> Array:
    result = op.result.type
    if matrix_dims(op.lhs.type, op.rhs.type) is not None and len(shape_of_type(result)) == 2:
        return matmul(_plain_a(a), _plain_b(b), c, result)
    return _lane_dpas(site, op, a, b, c)


def _lane_dpas(
    site: Site, op: xegpu.DpasOp | xegpu.DpasMxOp, a: Array, b: Array, c: Array | None
) -> Array:
    """Lanes' fragments of M x K, K x N and M x N, where N is the number of lanes."""
    given = shape_of_type(op.result.type)
    of_a, of_b, of_c = elements.multiplied(op, width_of(op))
    together = Collective(site, of_c.shape[1])
    acc = None if c is None else together.blocks(c, of_c)
    product = matmul(together.blocks(a, of_a), together.blocks(b, of_b), acc, op.result.type)
    back = elements.inverse(of_c, (*given, together.lanes))
    return together.fragments(product, back)


@meaning("xegpu.dpas_mx")
def dpas_mx(site: Site, op: xegpu.DpasMxOp, a: Array, b: Array, *rest: Array) -> Array:
    """Operands times their scales, which are powers of two, and then the product in float32."""
    operands = list(rest)
    c = operands.pop(0) if op.acc is not None else None
    scale_a = operands.pop(0) if op.scale_a is not None else None
    scale_b = operands.pop(0) if op.scale_b is not None else None
    if op.dims() is None or len(shape_of_type(op.result.type)) != 2:
        if scale_a is not None or scale_b is not None:
            raise unsupported(op, "scales of lane fragments: their owners are not specified")
        return _lane_dpas(site, op, a, b, c)
    left = _scaled(_plain_a(a), scale_a, 2)
    right = _scaled(_plain_b(b), scale_b, 1)
    return matmul(left, right, c, op.result.type)


def _scaled(value: Array, scale: Array | None, axis: int) -> Array:
    wide = value.astype(np.float32)
    if scale is None:
        return wide
    factor = scale.astype(np.float32)
    if factor.ndim == 1:
        return wide * factor.reshape(-1, 1, 1)
    return wide * np.repeat(factor, wide.shape[axis] // factor.shape[axis], axis=axis)


@meaning("xegpu.convert_layout")
def convert_layout(site: Site, op: xegpu.ConvertLayoutOp, value: Array) -> Array:
    return value


@meaning("xegpu.truncf", "xegpu.extf")
def float_conversion(site: Site, op: Operation, value: Array) -> Array:
    return numerics.round_to(value, op.results[0].type)


@meaning("xegpu.lane_shuffle")
def lane_shuffle(site: Site, op: xegpu.LaneShuffleOp, value: Array) -> Array:
    together = Collective(site, width_of(op))
    rows = together.split(value)
    if op.pack:
        moved = rows.swapaxes(1, 2).reshape(rows.shape)
    else:
        moved = rows.reshape(rows.shape[0], rows.shape[2], rows.shape[1]).swapaxes(1, 2)
    return together.join(moved)


# --- Named barriers ----------------------------------------------------------------------------


@meaning("xegpu.alloc_nbarrier")
def alloc_nbarrier(site: Site, op: xegpu.AllocNbarrierOp, *_: Any) -> None:
    """Named barriers exist once somebody binds to them."""


@meaning("xegpu.init_nbarrier")
def init_nbarrier(
    site: Site, op: xegpu.InitNbarrierOp, number: Index, participants: Index
) -> NamedBarrierState:
    return NamedBarrierState(number.astype(np.int64) & 0xFF, participants.astype(np.int64) & 0xFF)


@goes("xegpu.nbarrier_arrive")
def nbarrier_arrive(group: Group, op: xegpu.NbarrierArriveOp, then: Segment) -> Successors:
    released = group.machine.barriers.arrive(group, op, group.get(op.nbarrier))
    return [(then, group.index), *released]


@goes("xegpu.nbarrier_wait")
def nbarrier_wait(group: Group, op: xegpu.NbarrierWaitOp, then: Segment) -> Successors:
    return group.machine.barriers.wait(group, op, group.get(op.nbarrier), then)


# --- Gathers, scatters and atomics ----------------------------------------------------------------


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
