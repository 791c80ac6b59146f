"""Meaning of the vector dialect: shapes, slices, reductions and contractions of row values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from xdsl.dialects import vector
from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, BoolAttr
from xdsl.ir import Attribute, Operation
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineMap

from tilewright.diagnostics import unsupported
from tilewright.dialects.movement import ELEMENTS, integers, moved
from tilewright.dialects.upstream.arith import element
from tilewright.dialects.upstream.combining import kind_of, neutral
from tilewright.dialects.upstream.vector import GatherOp, MaskOp, ScanOp
from tilewright.reference import access, numerics
from tilewright.reference.meanings import reductions
from tilewright.reference.meanings.memref import element_address, undefined_outside
from tilewright.reference.registry import meaning
from tilewright.reference.site import Site
from tilewright.reference.values import Array, Index, MemRefValue


def result_shape(op: Operation) -> tuple[int, ...]:
    return numerics.shape_of(op.results[0].type)


# Rearrangements.


@meaning(*ELEMENTS)
def rearrange(site: Site, op: Operation, *operands: Array) -> Array | tuple[Array, ...]:
    """What `dialects.movement` says of the op, in every row."""
    rows = max(x.shape[0] for x in operands)
    made = moved(op, *(np.broadcast_to(x, (rows, *x.shape[1:])) for x in operands))
    return made if len(op.results) > 1 else next(iter(made))


@meaning("vector.step")
def step(site: Site, op: Operation) -> Array:
    return np.arange(result_shape(op)[0], dtype=np.int64)[None]


@meaning("vector.bitcast")
def bitcast(site: Site, op: Operation, source: Array) -> Array:
    dtype = numerics.numpy_type(op.results[0].type)
    halves = numerics.SMALL["f4E2M1FN"]
    if source.dtype == halves and dtype != halves:  # two to a byte, the low half first
        bits = np.ascontiguousarray(source).view(np.uint8)
        packed = (bits[..., 0::2] & 15) | (bits[..., 1::2] << 4)
        return np.ascontiguousarray(packed).view(dtype)
    if dtype == halves and source.dtype != halves:
        bits = np.ascontiguousarray(source).view(np.uint8)
        return np.stack([bits & 15, bits >> 4], axis=-1).reshape(*bits.shape[:-1], -1).view(dtype)
    return np.ascontiguousarray(source).view(dtype)


# Masks.


@meaning("vector.create_mask")
def create_mask(site: Site, op: Operation, *bounds: Index) -> Array:
    return _mask(result_shape(op), bounds)


@meaning("vector.constant_mask")
def constant_mask(site: Site, op: Operation) -> Array:
    bounds = integers(op, "mask_dim_sizes")
    return _mask(result_shape(op), [np.array([bound]) for bound in bounds])


def _mask(shape: tuple[int, ...], bounds: Sequence[Index]) -> Array:
    rank = len(shape)
    mask = np.ones((1, *[1] * rank), bool)
    for dim, (extent, bound) in enumerate(zip(shape, bounds, strict=True)):
        along = [1] * (rank + 1)
        along[dim + 1] = extent
        mask = mask & (np.arange(extent).reshape(along) < bound.reshape(-1, *[1] * rank))
    return np.broadcast_to(mask, (mask.shape[0], *shape))


# Reductions and products.


@meaning("vector.reduction")
def reduction(site: Site, op: vector.ReductionOp, source: Array, acc: Array | None = None) -> Array:
    type = op.dest.type
    result = reductions.reduce(kind_of(op), type, source, (1,))
    return result if acc is None else reductions.combine(kind_of(op), type, result, acc)


@meaning("vector.multi_reduction")
def multi_reduction(site: Site, op: Operation, source: Array, acc: Array) -> Array:
    type = op.results[0].type
    axes = tuple(dim + 1 for dim in integers(op, "reduction_dims"))
    result = reductions.reduce(kind_of(op), type, source, axes)
    return reductions.combine(kind_of(op), type, result, acc)


@meaning("vector.outerproduct")
def outerproduct(site: Site, op: Operation, a: Array, b: Array, *acc: Array) -> Array:
    type = op.results[0].type
    if b.ndim > 1:
        a, b = a[:, :, None], b[:, None, :]
    else:
        b = b[:, None]
    product = reductions.combine("mul", type, a, b)
    return reductions.combine(kind_of(op), type, product, *acc) if acc else product


@meaning("vector.scan")
def scan(site: Site, op: ScanOp, source: Array, start: Array) -> tuple[Array, Array]:
    type = op.results[0].type
    rows = np.moveaxis(source, op.dim + 1, 0)
    total = rows[0] if op.is_inclusive else np.broadcast_to(start, rows[0].shape)
    made = [total]
    for row in rows[1:] if op.is_inclusive else rows[:-1]:
        total = reductions.combine(op.kind, type, total, row).astype(source.dtype)
        made.append(total)
    return np.stack(made, op.dim + 1), total


@meaning("vector.fma")
def fma(site: Site, op: Operation, a: Array, b: Array, c: Array) -> Array:
    return numerics.floats(numerics.fma, op.results[0].type, a, b, c)


def matmul(a: Array, b: Array, c: Array | None, type: Attribute) -> Array:
    """`(rows, ..., m, k) x (rows, ..., k, n) + c` in the arithmetic of the result's type.

    Operands are converted exactly; f32 accumulates in float32, integers exactly and then wrap.
    """
    if numerics.is_float(type):
        wide = numerics.compute_type(numerics.numpy_type(type))
        product = np.matmul(a.astype(wide, copy=False), b.astype(wide, copy=False))
        total = product if c is None else np.add(product, c.astype(wide, copy=False))
        return numerics.round_to(total, type)
    dtype = numerics.numpy_type(type)
    if max(a.itemsize, b.itemsize) <= 2 and a.shape[-1] <= 1 << 20:
        # Exact: products below 2^32, sums below 2^52.
        product = np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64)
    else:
        product = np.matmul(a.astype(np.int64), b.astype(np.int64))
    total = product if c is None else product + c.astype(np.int64)
    return total.astype(dtype)


@meaning("vector.contract")
def contract(
    site: Site, op: Operation, a: Array, b: Array, acc: Array, mask: Array | None = None
) -> Array:
    maps = cast(ArrayAttr[AffineMapAttr], op.properties["indexing_maps"])
    left, right, out = (_dimensions(op, map.data) for map in maps)
    if mask is not None or kind_of(op) != "add":
        return _combined(op, (a, left), (b, right), acc, out, mask)
    both = [d for d in left if d in right and d in out]
    summed = [d for d in left if d in right and d not in out]
    only_left, only_right = (
        [d for d in side if d in out and d not in both] for side in (left, right)
    )
    a = _summed_alone(a, left, out, right)
    b = _summed_alone(b, right, out, left)
    left = [d for d in left if d in out or d in right]
    right = [d for d in right if d in out or d in left]
    extents = dict(zip(left, a.shape[1:], strict=True)) | dict(zip(right, b.shape[1:], strict=True))

    def sized(dims: list[int]) -> list[int]:
        return [extents[d] for d in dims]

    lhs = _arranged(a, left, [both, only_left, summed])
    rhs = _arranged(b, right, [both, summed, only_right])
    type = op.results[0].type
    product = matmul(lhs, rhs, None, type)
    grouped = [*both, *only_left, *only_right]
    product = product.reshape(product.shape[0], *sized(grouped))
    product = product.transpose(0, *(grouped.index(d) + 1 for d in out))
    return reductions.combine("add", type, product, acc)


def _combined(
    op: Operation,
    a: tuple[Array, list[int]],
    b: tuple[Array, list[int]],
    acc: Array,
    out: list[int],
    mask: Array | None,
) -> Array:
    """Every product where the mask is true, combined along what the result does not have."""
    type, kind = op.results[0].type, kind_of(op)
    order = [*out, *sorted({*a[1], *b[1]} - {*out})]

    def spread(value: Array, dims: list[int]) -> Array:
        value = value.astype(numerics.numpy_type(type))
        value = value.transpose(0, *(dims.index(d) + 1 for d in order if d in dims))
        extents = iter(value.shape[1:])
        return value.reshape(len(value), *(next(extents) if d in dims else 1 for d in order))

    product = reductions.combine("mul", type, spread(*a), spread(*b))
    if mask is not None:
        mask = mask.transpose(0, *(d + 1 for d in order))
        product = np.where(mask, product, _neutral(kind, type, product.dtype))
    over = tuple(range(len(out) + 1, len(order) + 1))
    return reductions.combine(kind, type, reductions.reduce(kind, type, product, over), acc)


def _dimensions(op: Operation, map: AffineMap) -> list[int]:
    dims: list[int] = []
    for result in map.results:
        if not isinstance(result, AffineDimExpr):
            raise unsupported(op, f"{op.name}: map {map} is no projection")
        dims.append(result.position)
    return dims


def _summed_alone(value: Array, mine: list[int], out: list[int], other: list[int]) -> Array:
    axes = tuple(i + 1 for i, d in enumerate(mine) if d not in out and d not in other)
    return numerics.widen(value).sum(axis=axes) if axes else value


def _arranged(value: Array, dims: list[int], groups: list[list[int]]) -> Array:
    order = [dims.index(d) + 1 for group in groups for d in group]
    value = value.transpose(0, *order)
    extents: list[int] = []
    start = 1
    for group in groups:
        extents.append(int(np.prod(value.shape[start : start + len(group)], dtype=np.int64)))
        start += len(group)
    return value.reshape(value.shape[0], *extents)


# Memory.


def _boxes(source: MemRefValue, indices: Sequence[Index], shape: tuple[int, ...], itemsize: int):
    lead = len(source.sizes) - len(shape)
    base = source.base + itemsize * source.offset
    return access.Boxes(
        base, source.sizes, source.strides, indices, (*[1] * lead, *shape), bounded=False
    )


@meaning("vector.load")
def load(site: Site, op: Operation, source: MemRefValue, *indices: Index) -> Array:
    """Outside the memref: undefined, an error."""
    shape, dtype = result_shape(op), numerics.numpy_type(op.results[0].type)
    result = access.load_boxes(site, _boxes(source, indices, shape, dtype.itemsize), dtype, 0)
    return result.reshape(result.shape[0], *shape)


@meaning("vector.store")
def store(site: Site, op: Operation, value: Array, target: MemRefValue, *indices: Index) -> None:
    boxes = _boxes(target, indices, value.shape[1:], value.itemsize)
    access.store_boxes(site, boxes, value.reshape(value.shape[0], *boxes.shape))


def _along(op: Operation, start: Sequence[Index], map: AffineMap, shape: tuple[int, ...]):
    """Index rows for each memref dimension of a transfer, broadcastable to the vector."""
    rank = len(shape)
    places: list[Array] = [index.reshape(-1, *[1] * rank) for index in start]
    for axis, result in enumerate(map.results):
        if isinstance(result, AffineDimExpr):
            along = [1] * (rank + 1)
            along[axis + 1] = shape[axis]
            dim = result.position
            places[dim] = places[dim] + np.arange(shape[axis]).reshape(along)
        elif not isinstance(result, AffineConstantExpr):
            raise unsupported(op, f"{op.name}: map {map} is no projection")
    return places


def _promised(op: Operation, inside: Array, mask: Array | None, site: Site) -> None:
    """`in_bounds` promises that no access is outside; elements under a mask are none."""
    flags = op.properties.get("in_bounds")
    if isinstance(flags, ArrayAttr) and all(
        bool(cast(BoolAttr, flag).value.data) for flag in flags
    ):
        undefined_outside(site, inside, mask)


def _spread(mask: Array | None, map: AffineMap, shape: tuple[int, ...]) -> Array | None:
    """A transfer's mask, in the order of its memref's dimensions, in that of its vector."""
    if mask is None:
        return None
    places = [r.position if isinstance(r, AffineDimExpr) else -1 for r in map.results]
    walked = sorted(p for p in places if p >= 0)
    turned = mask.transpose(0, *[1 + walked.index(p) for p in places if p >= 0])
    repeated = [1 + axis for axis, p in enumerate(places) if p < 0]
    return np.broadcast_to(np.expand_dims(turned, repeated), (mask.shape[0], *shape))


@meaning("vector.transfer_read")
def transfer_read(
    site: Site, op: vector.TransferReadOp, source: MemRefValue, *rest: Array
) -> Array:
    rank = len(source.sizes)
    indices, padding, mask = rest[:rank], rest[rank], [*rest[rank + 1 :], None][0]
    shape, dtype = result_shape(op), padding.dtype
    map = op.permutation_map.data
    places = _along(op, indices, map, shape)
    address, inside = element_address(site, source, places, dtype.itemsize)
    mask = _spread(mask, map, shape)
    _promised(op, inside, mask, site)
    wanted = inside if mask is None else inside & mask
    full = (max(address.shape[0], wanted.shape[0], padding.shape[0]), *shape)
    otherwise = np.broadcast_to(padding.reshape(-1, *[1] * len(shape)), full)
    return access.gather(site, address, wanted, dtype, otherwise)


@meaning("vector.transfer_write")
def transfer_write(
    site: Site, op: vector.TransferWriteOp, value: Array, target: MemRefValue, *rest: Array
) -> None:
    rank = len(target.sizes)
    indices, mask = rest[:rank], [*rest[rank:], None][0]
    map = op.permutation_map.data
    places = _along(op, indices, map, value.shape[1:])
    address, inside = element_address(site, target, places, value.itemsize)
    mask = _spread(mask, map, value.shape[1:])
    _promised(op, inside, mask, site)
    access.scatter(site, address, inside if mask is None else inside & mask, value)


def _lanes(
    site: Site, op: Operation, array: MemRefValue, start: list[Array], mask: Array, itemsize: int
) -> tuple[Index, Array]:
    """Where each lane accesses an array, and whether it does: at indices of its own, one behind the other, or behind
    those before it that do."""
    match op.name:
        case "vector.gather" | "vector.scatter":
            indices = start.pop()
        case "vector.expandload" | "vector.compressstore":
            indices = np.cumsum(mask, axis=1) - mask
        case _:
            indices = np.arange(mask.shape[1])[None]
    places = [index.reshape(-1, *[1] * (indices.ndim - 1)) for index in start]
    places[-1] = places[-1] + indices
    address, inside = element_address(site, array, places, itemsize)
    undefined_outside(site, inside, mask)
    return address, inside & mask


@meaning("vector.gather", "vector.maskedload", "vector.expandload")
def gather(site: Site, op: Operation, source: MemRefValue, *rest: Array) -> Array:
    *start, mask, otherwise = rest
    address, wanted = _lanes(site, op, source, start, mask, otherwise.itemsize)
    return access.gather(site, address, wanted, otherwise.dtype, otherwise)


@meaning("vector.scatter", "vector.maskedstore", "vector.compressstore")
def scatter(site: Site, op: Operation, target: MemRefValue, *rest: Array) -> None:
    *start, mask, value = rest
    address, wanted = _lanes(site, op, target, start, mask, value.itemsize)
    access.scatter(site, address, wanted, value)


# Masks.


@meaning("vector.mask")
def mask(site: Site, op: MaskOp, mask: Array, *passthru: Array) -> Any:
    """The op inside, on the elements where the mask is true."""
    inner = op.masked
    if inner is None:
        yielded = [site.group.get(v) for v in op.yielded.arguments]
        made = [np.where(mask, v, other) for v, other in zip(yielded, passthru, strict=False)]
        return (made or yielded)[0] if op.res else None
    operands = [site.group.get(v) for v in inner.operands]
    outer, site.op = site.op, inner
    made = _masked(site, inner, mask, operands)
    site.op = outer
    if passthru and isinstance(inner, vector.TransferReadOp):
        mask = cast(Array, _spread(mask, inner.permutation_map.data, made.shape[1:]))
    return np.where(mask, made, passthru[0]) if passthru else made


def _masked(site: Site, op: Operation, mask: Array, operands: list[Any]) -> Any:
    if isinstance(op, (vector.TransferReadOp, vector.TransferWriteOp)):
        both = mask if op.mask is None else mask & operands.pop()
        move = transfer_read if isinstance(op, vector.TransferReadOp) else transfer_write
        return move(site, op, *operands, both)  # pyright: ignore[reportArgumentType]
    if isinstance(op, GatherOp):
        *rest, old, otherwise = operands
        return gather(site, op, *rest, old & mask, otherwise)
    if op.name == "vector.outerproduct":
        made = outerproduct(site, op, *operands)
        return np.where(mask, made, operands[2] if len(operands) > 2 else np.zeros((), made.dtype))
    if op.name == "vector.contract":
        a, b, acc = operands
        return contract(site, op, a, b, acc, mask)
    source, *rest = operands
    kept = np.where(mask, source, _neutral(kind_of(op), op.operands[0].type, source.dtype))
    whole = reduction if op.name == "vector.reduction" else multi_reduction
    return whole(site, op, kept, *rest)  # pyright: ignore[reportArgumentType]


def _neutral(kind: str, type: Attribute, dtype: np.dtype[Any]) -> Array:
    """What a reduction's other elements do not change for, in the type of memory."""
    number = neutral(kind, element(type))
    return np.array(number).astype(dtype)
