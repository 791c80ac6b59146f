"""Where lanes read and write: addresses as a common base plus what each lane adds, and the accesses through them.

A sum of indices keeps apart what all lanes share, what grows by a constant per lane, and the rest, so that lanes
that touch neighbours make one load of a vector, lanes that touch the same place one of a scalar, and only others a
gather.  All offsets count bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import i1
from xdsl.ir import Attribute, SSAValue

from tilewright.dialects import mach
from tilewright.targets.emu import values as v
from tilewright.targets.emu.builder import Idx, element_of, index, shape_of, size_of, vec
from tilewright.targets.emu.lowering import Lowering


@dataclass(frozen=True)
class Deltas:
    """Bytes from a place to each element of an access of shape `shape`, row-major: known, or as a vector."""

    shape: tuple[int, ...]
    known: tuple[int, ...] | None
    vector: SSAValue | None = None

    def dense(self, size: int) -> bool:
        """Do the elements follow one another?"""
        return self.known == tuple(size * i for i in range(prod(self.shape)))


def deltas_of(
    low: Lowering,
    shape: tuple[int, ...],
    axes: Sequence[np.ndarray],
    strides: Sequence[Idx],
    size: int,
) -> Deltas:
    """Elements at coordinates `axes` (one array of prod(shape) per dimension) of memory with these strides."""
    b = low.b
    known = np.zeros(prod(shape), np.int64)
    vector: SSAValue | None = None
    kind = vec(index, prod(shape))
    for axis, stride in zip(axes, strides, strict=True):
        if not axis.any():
            continue
        if isinstance(stride, int):
            known = known + axis * stride * size
            continue
        step = b.broadcast(b.times(stride, size) if size != 1 else stride, kind)  # pyright: ignore
        part = b.value(arith.MuliOp(b.dense(kind, axis.tolist()), step))
        vector = part if vector is None else b.value(arith.AddiOp(vector, part))
    if vector is None:
        return Deltas(shape, tuple(known.tolist()))
    if known.any():
        vector = b.value(arith.AddiOp(vector, b.dense(kind, known.tolist())))
    return Deltas(shape, None, vector)


ONE = Deltas((), (0,))


def _offsets(low: Lowering, place: v.Address, deltas: Deltas) -> SSAValue:
    """Byte offsets from the place's base, [*shape, lanes] or, where lanes share the place, [*shape]."""
    b = low.b
    count = prod(deltas.shape)
    if place.shared:
        flat = deltas.vector
        if flat is None:
            assert deltas.known is not None
            flat = b.dense(vec(index, count), deltas.known)
        return b.shape(flat, *(deltas.shape or (1,)))
    lanes = place.offsets()
    if not deltas.shape:
        return lanes
    full = (*deltas.shape, low.lanes)
    wide = b.broadcast(lanes, vec(index, *full))
    if deltas.known is not None:
        if not any(deltas.known):
            return wide
        known = [d for d in deltas.known for _ in range(low.lanes)]
        return b.value(arith.AddiOp(wide, b.dense(vec(index, *full), known)))
    assert deltas.vector is not None
    column = b.broadcast(b.shape(deltas.vector, *deltas.shape, 1), vec(index, *full))
    return b.value(arith.AddiOp(wide, column))


def _mask(
    low: Lowering, place: v.Address, shape: tuple[int, ...], inside: SSAValue | None
) -> SSAValue:
    """The elements of an access that happen."""
    b = low.b
    if not place.shared and low.mask is not None:
        here = b.broadcast(low.mask, vec(i1, *shape))
        return here if inside is None else b.value(arith.AndIOp(inside, here))
    return b.constant(vec(i1, *shape), 1) if inside is None else inside


def _rows(place: v.Address, deltas: Deltas, size: int) -> bool:
    """Do the lanes touch neighbours, element by element?"""
    return (
        place.vector is None
        and place.steps is not None
        and place.steps == tuple(place.steps[0] + size * i for i in range(len(place.steps)))
        and deltas.known is not None
        and len(deltas.known) <= 64
    )


def read(
    low: Lowering,
    place: v.Address,
    element: Attribute,
    deltas: Deltas = ONE,
    inside: SSAValue | None = None,
    otherwise: SSAValue | None = None,
) -> SSAValue:
    """Load elements: [*shape] where lanes share the place, else [*shape, lanes].

    `inside` (a mask of the result's shape) says which; others are those of `otherwise`, zero by default.
    """
    b, size = low.b, size_of(element)
    if place.shared and inside is None and (not deltas.shape or deltas.dense(size)):
        type = vec(element, *deltas.shape) if deltas.shape else element
        return b.read(type, place.base)
    shape = (deltas.shape or (1,)) if place.shared else (*deltas.shape, low.lanes)
    kind = vec(element, *shape)
    masked = inside is not None or (low.mask is not None and not place.shared)
    if not place.shared and inside is None and _rows(place, deltas, size):
        assert place.steps is not None and deltas.known is not None
        lanes = vec(element, low.lanes)
        rows: list[SSAValue] = []
        for delta in deltas.known:
            address = b.plus(place.base, place.steps[0] + delta)
            if low.mask is None:
                rows.append(b.read(lanes, address))
            else:
                old = b.zeros(lanes)
                rows.append(b.value(mach.MaskedLoadOp(b.pointer(address), low.mask, old)))
        return rows[0] if not deltas.shape else b.shape(b.stack(rows), *shape)
    if otherwise is None:
        otherwise = b.zeros(kind)
    mask = _mask(low, place, shape, inside if masked else None)
    if place.shared and deltas.dense(size):
        got = b.value(mach.MaskedLoadOp(b.pointer(place.base), mask, otherwise))
    else:
        offsets = _offsets(low, place, deltas)
        got = b.gather(place.base, offsets, mask, otherwise)
    return got if deltas.shape or not place.shared else b.extract(got, 0)


def write(
    low: Lowering,
    place: v.Address,
    value: v.Plain,
    deltas: Deltas = ONE,
    inside: SSAValue | None = None,
) -> None:
    """Store what `read` would load; lanes that hit one address store in their order."""
    b = low.b
    if place.shared and isinstance(value, v.Uniform):
        data = value.value
        size = size_of(element_of(data.type))
        if inside is None and (not deltas.shape or deltas.dense(size)):
            b.write(data, place.base)
            return
        data = b.shape(data, *(deltas.shape or (1,)))
        shape = shape_of(data.type)
        mask = _mask(low, place, shape, inside)
        if deltas.dense(size):
            b.op(mach.MaskedStoreOp(data, b.pointer(place.base), mask))
        else:
            offsets = _offsets(low, place, deltas)
            b.scatter(data, place.base, offsets, mask)
        return
    place = place.apart()
    data = low.wide_of(value)
    shape, size = shape_of(data.type), size_of(element_of(data.type))
    if inside is None and _rows(place, deltas, size):
        assert place.steps is not None and deltas.known is not None
        flat = b.shape(data, len(deltas.known), low.lanes)
        for i, delta in enumerate(deltas.known):
            address = b.plus(place.base, place.steps[0] + delta)
            row = b.extract(flat, i)
            if low.mask is None:
                b.write(row, address)
            else:
                b.op(mach.MaskedStoreOp(row, b.pointer(address), low.mask))
        return
    if len(deltas.shape) > 0 and prod(shape) != prod(deltas.shape) * low.lanes:
        raise low.refuse("a value that is not of the access's shape")
    mask = _mask(low, place, shape, inside)
    offsets = _offsets(low, place, deltas)
    if shape_of(offsets.type) != shape:
        offsets = b.shape(offsets, *shape)
    b.scatter(data, place.base, offsets, mask)
