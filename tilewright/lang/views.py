"""A part of an array with bounds of its own: tw.view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects import memref
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType, NoneAttr, StridedLayoutAttr
from xdsl.ir import SSAValue

from tilewright import dtypes
from tilewright.dialects.upstream.strided import static_strides
from tilewright.lang.context import ArgumentError, emitter
from tilewright.lang.convert import index_operand
from tilewright.lang.elementwise import maximum, minimum, where
from tilewright.lang.registry import language
from tilewright.lang.tiles import Offset, integers_of
from tilewright.lang.values import Array, Value, describe_type


@language
def view(base: Array, offsets: Sequence[Offset], shape: Sequence[Offset | None]) -> Array:
    """The part of the array ``base`` that begins at ``offsets`` and has ``shape``: an array with these bounds.

    Both have one integer per dimension of the array, known while compiling or at run time (loaded ones
    too, by ``.item()``). None in ``shape`` stands for the rest of the array. Tiles of a view count
    their offsets from its first element, and its end is their end: what they cover outside reads as
    padding and is not written, also where the array goes on there. A view is clipped to its array; one
    that begins before the array is empty. It has ``shape``, ``strides``, ``dtype`` and may be viewed again.

    A sequence in a packed batch, the rows of one expert, a part of a cache: each is a view. Shared local memory has
    none: tiles take offsets into the whole of it.

    >>> @tw.kernel
    ... def last_of_each(X, ENDS, Y):
    ...     i = tw.program_id(0)
    ...     end = tw.load_tile(tw.init_tile(ENDS, [i], (1, 1))).item()
    ...     x = tw.view(X, [0], [end])
    ...     last = tw.load_tile(tw.init_tile(x, [end - 1], (1, 2)), padding=-1)
    ...     tw.store_tile(last, tw.init_tile(Y, [i, 0], (1, 2)))
    >>> x = np.arange(10, 18, dtype=np.int32); y = np.empty((2, 2), np.int32)
    >>> last_of_each[2](x, np.array([3, 8], np.int32), y); y.tolist()
    [[12, -1], [17, -1]]
    """
    if not isinstance(base, Array):
        raise ArgumentError(
            "base",
            f"view takes a part of an array, not of {describe_type(base)}",
            hint="pass an array parameter of the kernel; tiles are moved by tw.update_tile_offset",
        )
    if base.memory_space:
        raise ArgumentError(
            "base",
            "view takes a part of an array in global memory, not of shared local memory",
            hint="tw.init_tile takes offsets into the whole of it",
        )
    starts = _numbers(base, offsets, "offsets", "offset")
    counts = _numbers(base, shape, "shape", "extent")
    extents: Sequence[Any] = base.shape
    parts = [_clipped(*part) for part in zip(starts, counts, extents, strict=True)]
    at = [index_operand(start, "an offset") for start, _ in parts]
    sizes = [index_operand(count, "an extent") for _, count in parts]
    op = memref.SubviewOp.get(base.ssa, at, sizes, [1] * base.ndim, _type(base, at, sizes))
    found = emitter("view").emit_checked(op).result
    return Array(
        found,
        base.dtype,
        f"a view of {base.name}",
        shape=tuple(count for _, count in parts),
        strides=base.strides,
    )


def _numbers(base: Array, given: object, name: str, one: str) -> list[Any]:
    """One integer per dimension (None stays): run-time ones as index scalars."""
    found = integers_of(base, given, name, one)
    return [Value(n, dtypes.index, ()) if isinstance(n, SSAValue) else n for n in found]


def _clipped(start: Any, count: Any, extent: Any) -> tuple[Any, Any]:
    """Where a dimension of a view begins in its array, and its extent: an empty one begins at the end.

    So `start + count`, the end of the view, is 0 only where the array is empty.
    """
    known = isinstance(start, int)
    if known and start == 0 and count is None:
        return 0, extent
    begun: Any = start >= 0
    if count is not None:
        begun = begun & (count > 0)
    if known and start == 0:
        first = where(begun, 0, extent)
    else:
        first = where(begun, minimum(start, extent), extent)
    rest = extent - first
    return first, rest if count is None else maximum(minimum(count, rest), 0)


def _type(base: Array, at: Sequence[object], sizes: Sequence[object]) -> MemRefType:
    """The memref of a part: the array's strides, an offset that is 0 or not known."""
    layout = base.type.layout
    offset: int | None = 0 if isinstance(layout, NoneAttr) else base.type.get_offset()
    if any(start != 0 for start in at):
        offset = None
    return MemRefType(
        base.type.element_type,
        [n if isinstance(n, int) else DYNAMIC_INDEX for n in sizes],
        StridedLayoutAttr(static_strides(base.type), offset),
        base.type.memory_space,
    )
