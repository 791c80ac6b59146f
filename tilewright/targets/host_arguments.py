"""Arguments as 8-byte words: an array is its address, extents and strides (in elements), a scalar one word."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IndexType, IntegerType, MemRefType
from xdsl.ir import Attribute

from tilewright.dtypes import from_mlir


def argument_kinds(types: Sequence[Attribute]) -> list[tuple[str, int]]:
    """("array", rank), or the format of a scalar and 0."""
    return [
        ("array", len(t.get_shape())) if isinstance(t, MemRefType) else (scalar_format(t), 0)
        for t in types
    ]


def argument_places(types: Sequence[Attribute], start: int = 0) -> tuple[list[int], int]:
    """The byte offset of each argument's first word, from `start` on, and where they end."""
    places: list[int] = []
    for _, rank in argument_kinds(types):
        places.append(start)
        start += 8 * (1 + 2 * rank)
    return places, start


def scalar_format(type: Attribute) -> str:
    """How a scalar argument lies in its slot of 8 bytes: a struct format, or the name of a dtype that has none."""
    if isinstance(type, IndexType):
        return "q"
    if isinstance(type, IntegerType):
        return "?" if type.width.data == 1 else "q"
    dtype = from_mlir(type)
    return dtype.numpy.char if dtype.numpy.char in "efd" else dtype.name
