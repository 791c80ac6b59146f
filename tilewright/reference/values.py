"""Row values: what an SSA value is while a program runs.

A row value has one row per instance of the batch, or a single row shared by all. Plain values are
numpy arrays; a memref or a tile is a `ValueRecord` of arrays, all of which follow the same rule, so
that rows can be taken and merged without knowing what they mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tilewright.frozen import frozen

Array = NDArray[Any]
Index = NDArray[np.int64]
RecordT = TypeVar("RecordT", bound="ValueRecord")


@frozen
class ValueRecord:
    """A value made of several arrays or tuples of arrays; other fields are shared by all rows."""

    def mapped(self: RecordT, *others: RecordT, by: Callable[..., Array]) -> RecordT:
        """The record of `by(mine, theirs, ...)` for each array."""
        changed: dict[str, Any] = {}
        for field in fields(self):
            mine = getattr(self, field.name)
            theirs = [getattr(other, field.name) for other in others]
            if isinstance(mine, np.ndarray):
                changed[field.name] = by(mine, *theirs)
            elif isinstance(mine, tuple):
                changed[field.name] = tuple(by(*parts) for parts in zip(mine, *theirs, strict=True))
            else:
                changed[field.name] = mine
        return type(self)(**changed)


@frozen
class MemRefValue(ValueRecord):
    """A memref: `base` byte address of its aligned pointer, the rest counts elements."""

    base: Index
    offset: Index
    sizes: tuple[Index, ...]
    strides: tuple[Index, ...]


@frozen
class TileValue(ValueRecord):
    """A block tile: `base` byte address of the matrix, then one entry per matrix dimension.

    The tile covers the innermost dimensions of the matrix; it has extent 1 in the others.
    """

    base: Index
    sizes: tuple[Index, ...]
    strides: tuple[Index, ...]
    offsets: tuple[Index, ...]


@frozen
class ScatteredTileValue(ValueRecord):
    """A scattered tile: element `e` lies at `base + itemsize * stride * indices[e]`.

    `size` is the number of elements of the base matrix, -1 when only an address is known.
    """

    base: Index
    size: Index
    stride: Index
    indices: Index


def scalar(number: int) -> Index:
    """The row value of an index that is the same for all instances."""
    return np.array([number], dtype=np.int64)


def row_count(value: Any) -> int:
    """1 when all instances share the value, otherwise the number of rows."""
    if isinstance(value, np.ndarray):
        return value.shape[0]
    if isinstance(value, ValueRecord):
        count = 1
        for field in fields(value):
            part = getattr(value, field.name)
            for array in part if isinstance(part, tuple) else (part,):
                if isinstance(array, np.ndarray):
                    count = max(count, array.shape[0])
        return count
    return 1


def take(value: Any, index: Index) -> Any:
    """The rows of some instances."""
    if isinstance(value, np.ndarray):
        return value if value.shape[0] == 1 else value[index]
    if isinstance(value, ValueRecord):
        return value.mapped(by=lambda array: take(array, index))
    return value


def spread(value: Any, count: int) -> Any:
    """A fresh copy with `count` rows, which may be written to."""
    if isinstance(value, np.ndarray):
        return np.array(np.broadcast_to(value, (count, *value.shape[1:])))
    if isinstance(value, ValueRecord):
        return value.mapped(by=lambda array: spread(array, count))
    return value


def blank(value: Any, count: int) -> Any:
    """`count` rows of the same kind, contents arbitrary (nothing reads them before a write)."""
    if isinstance(value, np.ndarray):
        return np.zeros((count, *value.shape[1:]), value.dtype)
    if isinstance(value, ValueRecord):
        return value.mapped(by=lambda array: blank(array, count))
    return value


def put(target: Any, index: Index, value: Any) -> Any:
    """Writes rows into a value that `spread` or `blank` made; gives the value back."""
    if isinstance(target, np.ndarray):
        target[index] = value
        return target
    if isinstance(target, ValueRecord):

        def write(mine: Array, theirs: Array) -> Array:
            mine[index] = theirs
            return mine

        return target.mapped(value, by=write)
    return value


def one_by_one(index: Index, keys: Index) -> list[tuple[int, Index]]:
    """Instances apart by a number that each has, or one for all."""
    keys = np.broadcast_to(keys, index.shape)
    if index.size and (keys == keys[0]).all():
        return [(int(keys[0]), index)]
    return [(int(key), index[keys == key]) for key in np.unique(keys)]
