"""Elements of arrays by index: ``A[i, j]`` is a scalar, ``A[rows, columns]`` with values of indices a value."""

from __future__ import annotations

from typing import Any, cast

from tilewright import dtypes
from tilewright.diagnostics import CompileError
from tilewright.lang.convert import as_value, item, to
from tilewright.lang.memory import load_gather, load_tile, store_scatter, store_tile
from tilewright.lang.tiles import init_tile, integers_of
from tilewright.lang.values import Array, Operand, Tile, Value, describe_type


def element(array: Array, index: object) -> Value:
    """``A[i, j]``: one element as a scalar. ``A[rows, columns]``, where an index is a value of integers of one
    dimension or two: the elements there, in the shape to which the indices broadcast, as in numpy.

    Outside of the array they are 0, as elements of tiles are.
    """
    numbers = _numbers(index, "load a part: tw.load_tile(tw.init_tile(array, offsets, shape))")
    if _is_vector(numbers):
        return load_gather(*_scattered(array, numbers))
    return item(load_tile(init_tile(array, numbers, (1, 1))))


def set_element(array: Array, index: object, value: Operand) -> None:
    """``A[i, j] = x`` and ``A[rows, columns] = x``: outside of the array it is dropped.

    A scalar is converted to the array's dtype, as numpy's "same_kind" allows. Of several that are written to one
    element of ``A[rows, columns]`` one stays.
    """
    write = "write it as a tile: tw.store_tile(value, tw.init_tile(array, offsets, shape))"
    numbers = _numbers(index, write)
    if _is_vector(numbers):
        tile, inside = _scattered(array, numbers)
        store_scatter(_same_kind(value, tile), tile, inside)
        return
    tile = init_tile(array, numbers, (1, 1))
    if isinstance(value, Value) and set(value.shape) - {1}:
        raise CompileError(
            f"{describe_type(value)} is written to one element of {array!r}",
            hint=write,
        )
    store_tile(_same_kind(value, tile), tile)


def _same_kind(value: Operand, tile: Tile) -> Operand:
    if isinstance(value, Value) and not value.shape and _kind(value) <= _kind(tile):
        return to(value, tile.dtype)
    return value


def _kind(x: Value | Tile) -> int:
    """A truth value becomes an integer and this a float, not the other way round."""
    return 2 if x.dtype.is_float else int(x.dtype.is_integer)


def _is_vector(numbers: list[int | Value]) -> bool:
    return any(isinstance(n, Value) and not n.is_scalar for n in numbers)


def _scattered(array: Array, numbers: list[int | Value]) -> tuple[Tile, Value | None]:
    """The tile of the elements at some indices, and which of them are inside.

    A scattered tile counts in the flattened array and ends with it, so only an index that is not the first can
    leave its dimension and still name an element.
    """
    for n in numbers:
        if isinstance(n, Value) and not (n.dtype.is_integer or n.dtype.is_index):
            raise CompileError(
                f"an index is integers, not {describe_type(n)}",
                hint="a mask chooses by tw.where, or as the mask of tw.load_gather"
                if n.dtype.is_bool
                else "x.to(tw.i32)",
            )
    integers_of(array, [0] * len(numbers), one="index")
    extents = cast(tuple[Any, ...], array.shape)
    at: Any = None
    inside: Value | None = None
    for n, extent in zip(numbers, extents, strict=True):
        place: Any = to(as_value(n), dtypes.index)
        if at is None:
            at = place
            continue
        at = at * extent + place
        if not isinstance(n, int) or not isinstance(extent, int) or n >= extent:
            fits: Any = (place >= 0) & (place < extent)
            inside = fits if inside is None else inside & fits
    return init_tile(array, at), inside


def _numbers(index: object, instead: str) -> list[int | Value]:
    numbers = list(cast(tuple[object, ...], index)) if isinstance(index, tuple) else [index]
    if any(isinstance(n, slice) for n in numbers):
        raise CompileError(
            "a slice of an array is no element of it",
            hint=instead,
        )
    if any(isinstance(n, int) and n < 0 for n in numbers):
        raise CompileError(
            "elements are not counted from the end of an array", hint="A[A.shape[0] - 1]"
        )
    return cast(list[int | Value], numbers)
