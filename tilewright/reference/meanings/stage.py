"""Meaning of the stage dialect: what its ops compute, whatever storage and order they prescribe.

A fused group executes its region; a contraction is the loop over k that it shows; a packed array is the
array with the region applied to every element, and a panel is a tile of it, zero outside.
"""

from __future__ import annotations

import numpy as np

from tilewright.dialects import stage
from tilewright.frozen import frozen
from tilewright.reference import access, numerics
from tilewright.reference.machine import Group
from tilewright.reference.meanings.arith import as_number
from tilewright.reference.meanings.vector import matmul, result_shape
from tilewright.reference.program import SegmentBuilder
from tilewright.reference.registry import control, meaning
from tilewright.reference.site import Site
from tilewright.reference.values import Array, Index, MemRefValue, ValueRecord, scalar


@frozen
class PackedValue(ValueRecord):
    """A packed array: its elements, `(rows, *sizes)`, at least two dimensions."""

    elements: Array


@control("stage.fused")
def fused(builder: SegmentBuilder, op: stage.FusedOp) -> None:
    last = builder.single_block(op.body)
    builder.move(last.operands, op.results)


@control("stage.contract")
def contract(builder: SegmentBuilder, op: stage.ContractOp) -> None:
    """for k in range(lo, hi, step): each result += A(k) B(k)."""
    (k,) = op.body.block.args

    def body() -> None:
        builder.single_block(op.body)

        def accumulate(group: Group) -> None:
            for result, (a, b) in zip(op.values, op.pairs, strict=True):
                sum_ = matmul(group.get(a), group.get(b), group.get(result), result.type)
                group.set(result, sum_)

        builder.step(accumulate)

    builder.move(op.inits, op.values)
    builder.nest([(k, op.lo, op.hi, op.step)], body)


@control("stage.pack")
def pack(builder: SegmentBuilder, op: stage.PackOp) -> None:
    """The region runs once, on all elements at once."""
    (element,) = op.body.block.args

    def load(group: Group) -> None:
        group.site.op = op
        source: MemRefValue = group.get(op.source)
        if any(size.shape[0] > 1 for size in source.sizes):
            raise ValueError("an array that differs between workgroups cannot be packed")
        shape = tuple(int(size[0]) for size in source.sizes)
        type = op.source.type
        dtype = numerics.numpy_type(type)
        base = source.base + dtype.itemsize * source.offset
        zeros = tuple(scalar(0) for _ in shape)
        boxes = access.Boxes(base, source.sizes, source.strides, zeros, shape)
        padding = as_number(0, type.element_type)
        values = access.load_boxes(group.site, boxes, dtype, padding)
        group.set(element, values.reshape(1, *([1] * (2 - len(shape))), *shape))

    builder.step(load)
    last = builder.single_block(op.body)

    def keep(group: Group) -> None:
        values: Array = group.get(last.operands[0])
        elements = numerics.convert(values, op.result.type.element_type)
        axis = elements.ndim - (1 if op.result.type.k.data == 0 else 2)
        used = int(np.max(group.get(op.used)))
        group.set(op.result, PackedValue(_cut(elements, axis, used)))

    builder.step(keep)


def _cut(elements: Array, axis: int, used: int) -> Array:
    """Beyond the part that is used a packed array holds nothing: zeros stand there."""
    kept = np.arange(elements.shape[axis]) < max(used, 0)
    along = [1] * elements.ndim
    along[axis] = -1
    return np.where(kept.reshape(along), elements, np.zeros((), elements.dtype))


@meaning("stage.panel")
def panel(site: Site, op: stage.PanelOp, packed: PackedValue, *offsets: Index) -> Array:
    elements, shape = packed.elements, result_shape(op)
    if op.transposed:
        shape = shape[::-1]
    if len(offsets) == 1:
        offsets = (scalar(0), *offsets)
    lead = elements.ndim - 1 - len(shape)
    extents = (*[1] * lead, *shape)
    rows = max([elements.shape[0], *(offset.shape[0] for offset in offsets)])
    inside = np.ones((rows, *[1] * len(extents)), bool)
    places: list[Array] = [np.zeros((1,) * (1 + len(extents)), np.int64)]
    for dim, (offset, extent) in enumerate(zip(offsets, extents, strict=True)):
        along = [1] * (len(extents) + 1)
        along[dim + 1] = extent
        place = offset.reshape(-1, *[1] * len(extents)) + np.arange(extent).reshape(along)
        size = elements.shape[dim + 1]
        inside = inside & (place >= 0) & (place < size)
        places.append(np.clip(place, 0, max(size - 1, 0)))
    if not elements.size:
        return np.zeros((rows, *result_shape(op)), elements.dtype)
    values = np.where(inside, elements[tuple(places)], np.zeros((), elements.dtype))
    values = values.reshape(rows, *shape)
    return values.swapaxes(1, 2) if op.transposed else values
