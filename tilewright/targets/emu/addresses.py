"""Where lanes read and write: addresses as a common base plus what each lane adds, and the accesses through them.

A sum of indices keeps apart what all lanes share, what grows by a constant per lane, and the rest, so that lanes
that touch neighbours make one load of a vector, lanes that touch the same place one of a scalar, and only others a
gather.  All offsets count bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from xdsl.dialects.builtin import i1
from xdsl.ir import Attribute, SSAValue

from tilewright.dialects.movement import shape_of_type
from tilewright.frozen import frozen
from tilewright.targets.emu import values as v
from tilewright.targets.emu.builder import Idx, element_bytes, element_of, index, vec
from tilewright.targets.emu.lowering import Lowering


@frozen
class Deltas:
    """Bytes from a place to each element of an access of shape `shape`, row-major: those known, and a vector more."""

    shape: tuple[int, ...]
    known: tuple[int, ...]
    vector: Idx = 0

    def dense(self, size: int) -> bool:
        """Do the elements follow one another?"""
        return self.vector == 0 and self.known == tuple(size * i for i in range(prod(self.shape)))


def deltas_of(
    low: Lowering,
    shape: tuple[int, ...],
    axes: Sequence[np.ndarray],
    strides: Sequence[Idx],
    size: int,
) -> Deltas:
    """Elements at coordinates `axes` (one array of prod(shape) per dimension) of memory with these strides."""
    b, kind = low.b, vec(index, prod(shape))
    known, vector = np.zeros(prod(shape), np.int64), 0
    for axis, stride in zip(axes, strides, strict=True):
        if isinstance(stride, int):
            known = known + axis * stride * size
        elif axis.any():
            vector = b.plus(vector, b.times(b.dense(kind, axis.tolist()), b.times(stride, size)))
    return Deltas(shape, tuple(known.tolist()), vector)


ONE = Deltas((), (0,))


def _shape(low: Lowering, place: v.Address, deltas: Deltas) -> tuple[int, ...]:
    """Of what is accessed: with the lanes last, unless they share the place."""
    return (deltas.shape or (1,)) if place.shared else (*deltas.shape, low.lanes)


def _offsets(low: Lowering, place: v.Address, deltas: Deltas) -> SSAValue:
    """Byte offsets from the place's base to each element."""
    b, total = low.b, deltas.vector
    if any(deltas.known):
        total = b.plus(total, b.dense(vec(index, len(deltas.known)), deltas.known))
    if isinstance(total, SSAValue):
        total = b.shape(total, *(deltas.shape or (1,)), *(() if place.shared else (1,)))
    if not place.shared:
        total = b.plus(total, place.offsets())
    return b.broadcast(total, vec(index, *_shape(low, place, deltas)))


def _mask(low: Lowering, place: v.Address, deltas: Deltas, inside: SSAValue | None) -> SSAValue:
    """The elements of an access that happen."""
    mask = low.b.both(inside, None if place.shared else low.mask)
    return low.b.broadcast(1 if mask is None else mask, vec(i1, *_shape(low, place, deltas)))


def _rows(low: Lowering, place: v.Address, deltas: Deltas, size: int) -> list[Idx]:
    """The addresses of rows of neighbours that the lanes touch, one for each element; none where they do not."""
    first, *_ = steps = place.steps or (0,)
    if steps != tuple(first + size * i for i in range(low.lanes)) or place.vector != 0:
        return []
    if deltas.vector != 0 or len(deltas.known) > 64:
        return []
    return [low.b.plus(place.base, first + delta) for delta in deltas.known]


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
    b, size, shape = low.b, element_bytes(element), _shape(low, place, deltas)
    kind = vec(element, *shape)
    if place.shared and deltas.dense(size):
        type = element if inside is None and not deltas.shape else kind
        got = b.read(type, place.base, None, inside, otherwise)
    elif not place.shared and inside is None and (rows := _rows(low, place, deltas, size)):
        lanes = vec(element, low.lanes)
        got = b.shape(b.stack([b.read(lanes, at, mask=low.mask) for at in rows]), *shape)
    else:
        mask = _mask(low, place, deltas, inside)
        otherwise = b.zeros(kind) if otherwise is None else otherwise
        got = b.gather(place.base, _offsets(low, place, deltas), mask, otherwise)
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
    if not isinstance(value, v.Uniform):
        place = place.apart()
    data = low.uniform(value) if place.shared else low.wide_of(value)
    shape, size = _shape(low, place, deltas), element_bytes(element_of(data.type))
    if prod(shape_of_type(data.type)) != prod(shape):
        raise low.refuse("a value that is not of the access's shape")
    if place.shared and deltas.dense(size):
        b.write(data if inside is None else b.shape(data, *shape), place.base, None, inside)
    elif not place.shared and inside is None and (rows := _rows(low, place, deltas, size)):
        flat = b.shape(data, len(rows), low.lanes)
        for i, at in enumerate(rows):
            b.write(b.extract(flat, i), at, mask=low.mask)
    else:
        mask, offsets = _mask(low, place, deltas, inside), _offsets(low, place, deltas)
        b.scatter(b.shape(data, *shape), place.base, offsets, mask)
