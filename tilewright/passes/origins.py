"""Origins: of which element of which value each element of a rearranged value is a copy.

Slices, transposes, casts of shape, extractions, insertions, broadcasts and bitcasts to narrower elements compute
nothing: every element of their result is an element (or a part of one) of some value that was computed or loaded, the
*root*. `Origins.of(value)` says which, as an array of the value's shape:

    %v = xetile.load_tile %t : vector<32x32xf16>                                  root 0, bytes 0, 2, 4, ..
    %w = vector.extract_strided_slice %v {offsets = [8, 16], sizes = [8, 16]}     of(%w)[0, 0] = root 0, byte 544
    %x = vector.transpose %w, [1, 0]                                              of(%x)[1, 0] = root 0, byte 608

Requires: values of static shape. Guarantees: changes nothing; what it does not know is a root of its own.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import vector
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation, OpResult, SSAValue

from tilewright.dialects.movement import ELEMENTS, moved, shape_of
from tilewright.dtypes import from_mlir

Places = NDArray[np.int64]
"""Root number times `ROOT` plus the byte at which the element starts in the root, rows first."""
ROOT = 1 << 40


def itemsize(value: SSAValue) -> int:
    """Bytes of one element of a vector."""
    assert isinstance(value.type, VectorType)
    return from_mlir(value.type.element_type).itemsize


class Origins:
    """Origins of the values of one kernel; numbers of roots stay the same while it lives."""

    def __init__(self) -> None:
        self.roots: list[SSAValue] = []
        self._numbers: dict[SSAValue, int] = {}
        self._known: dict[SSAValue, Places] = {}

    def of(self, value: SSAValue) -> Places:
        """Where each element of a vector comes from."""
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = self._trace(value)
        return found

    def root(self, places: Places) -> SSAValue | None:
        """The one root of all elements; None where there are several."""
        numbers = places // ROOT
        first = int(numbers.flat[0])
        return self.roots[first] if (numbers == first).all() else None

    def is_rearranged(self, value: SSAValue) -> bool:
        """Whether a value is a copy of parts of others."""
        return self.root(self.of(value)) is not value

    def _trace(self, value: SSAValue) -> Places:
        moved = self._moved(value.op, value.index) if isinstance(value, OpResult) else None
        if moved is not None:
            return moved
        assert isinstance(value.type, VectorType)
        shape = value.type.get_shape()
        number = self._numbers.setdefault(value, len(self.roots))
        if number == len(self.roots):
            self.roots.append(value)
        elements = np.arange(prod(shape), dtype=np.int64) * itemsize(value)
        return elements.reshape(shape) + number * ROOT

    def _moved(self, op: Operation, result: int) -> Places | None:
        """The origins of an op that only rearranges; None for any other."""
        if not all(isinstance(v.type, VectorType) for v in (*op.operands, *op.results)):
            return None  # scalars come and go, or where elements go is known at run time only
        if isinstance(op, vector.BitcastOp):
            return self._narrowed(op)
        if op.name not in ELEMENTS:
            return None
        return moved(op, *map(self.of, op.operands))[result]

    def _narrowed(self, op: vector.BitcastOp) -> Places | None:
        """A bitcast to narrower elements: each is followed by its parts, lowest bytes first."""
        wide, narrow = itemsize(op.operands[0]), itemsize(op.results[0])
        if wide < narrow:
            return None
        parts = np.arange(0, wide, narrow, dtype=np.int64)
        places = self.of(op.operands[0])[..., None] + parts
        return places.reshape(shape_of(op.results[0]))
