"""What ops that view an array otherwise do to its offset, sizes and strides: one entry each, which all readers apply.

    memref.subview %m[%i, 2] [4, 8] [1, 2]      offset + %i * s0 + 2 * s1, sizes 4 and 8, strides s0 and s1 * 2

Numbers are whatever the reader computes with: Python integers and values of a builder, the names of registers, rows of
the reference executor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import accumulate
from typing import Any, Generic, Protocol, TypeVar

from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType
from xdsl.ir import Operation

from tilewright.dialects.upstream.subview import kept_dimensions
from tilewright.frozen import frozen
from tilewright.rules import Rules

N = TypeVar("N")


class Arithmetic(Protocol[N]):
    """How a reader computes."""

    def literal(self, n: int, /) -> N: ...

    def plus(self, x: N, y: N, /) -> N: ...

    def times(self, x: N, y: N, /) -> N: ...


@frozen
class View(Generic[N]):
    """Where the elements of an array lie: all counts are of elements, from its base."""

    offset: N
    sizes: Sequence[N]
    strides: Sequence[N]
    bytes: N | None = None
    """How far behind the base of the array that it views its own base lies; None for the same base."""


_views: Rules[Callable[[Any, View[Any], Iterator[Any], Arithmetic[Any]], View[Any]]] = Rules()
VIEWS = _views.by_name


def viewed(op: Operation, source: View[N], operands: Sequence[N], do: Arithmetic[N]) -> View[N]:
    """What an op of `VIEWS` makes of an array; `operands` are those behind the array."""
    return VIEWS[op.name](op, source, iter(operands), do)


def moved(start: N, places: Iterable[N], strides: Iterable[N], do: Arithmetic[N]) -> N:
    """The number of the element at some places of an array, from that of its first one."""
    return reduce(do.plus, map(do.times, places, strides), start)


def _mixed(static: Any, given: Iterator[N], do: Arithmetic[N]) -> list[N]:
    """Numbers of an op, those that it takes as operands among them."""
    return [next(given) if n == DYNAMIC_INDEX else do.literal(int(n)) for n in static]


def _parts(op: Any, given: Iterator[N], do: Arithmetic[N]) -> list[list[N]]:
    static = (op.static_offsets, op.static_sizes, op.static_strides)
    return [_mixed(part.get_values(), given, do) for part in static]


def row_major(sizes: Sequence[N], do: Arithmetic[N]) -> list[N]:
    """The strides of an array without gaps."""
    steps = [do.literal(1), *reversed(sizes[1:])]
    return list(accumulate(steps, do.times))[::-1] if sizes else []


@_views("memref.cast", "memref.memory_space_cast")
def _same(op: Operation, source: View[N], given: Iterator[N], do: Arithmetic[N]) -> View[N]:
    return source


@_views("memref.reinterpret_cast")
def _reinterpreted(op: Any, source: View[N], given: Iterator[N], do: Arithmetic[N]) -> View[N]:
    (offset,), sizes, strides = _parts(op, given, do)
    return View(offset, sizes, strides)


@_views("memref.subview")
def _part(op: Any, source: View[N], given: Iterator[N], do: Arithmetic[N]) -> View[N]:
    """A part: fewer elements, longer steps, perhaps fewer dimensions."""
    offsets, sizes, steps = _parts(op, given, do)
    moves = [do.times(at, stride) for at, stride in zip(offsets, source.strides, strict=True)]
    strides = [do.times(stride, step) for stride, step in zip(source.strides, steps, strict=True)]
    kept = kept_dimensions(op)
    offset = reduce(do.plus, moves, source.offset)
    return View(offset, [sizes[d] for d in kept], [strides[d] for d in kept])


@_views("memref.view")
def _typed(op: Any, source: View[N], given: Iterator[N], do: Arithmetic[N]) -> View[N]:
    """Bytes as an array of another element type, row-major."""
    assert isinstance(op.result.type, MemRefType)
    start = do.plus(source.offset, next(given))
    sizes = _mixed(op.result.type.get_shape(), given, do)
    return View(do.literal(0), sizes, row_major(sizes, do), start)


@_views("memref.transpose")
def _transposed(op: Any, source: View[N], given: Iterator[N], do: Arithmetic[N]) -> View[N]:
    order = op.permutation_attr.data.eval(list(range(len(source.sizes))), [])
    sizes, strides = ([part[d] for d in order] for part in (source.sizes, source.strides))
    return View(source.offset, sizes, strides)


def _groups(op: Any) -> list[list[int]]:
    return [[d.value.data for d in group] for group in op.reassociation]


@_views("memref.collapse_shape")
def _collapsed(op: Any, source: View[N], given: Iterator[N], do: Arithmetic[N]) -> View[N]:
    """Each group of dimensions is contiguous within itself; its innermost stride stays."""
    groups = _groups(op)
    sizes = [reduce(do.times, [source.sizes[d] for d in group], do.literal(1)) for group in groups]
    return View(source.offset, sizes, [source.strides[group[-1]] for group in groups])


@_views("memref.expand_shape")
def _expanded(op: Any, source: View[N], given: Iterator[N], do: Arithmetic[N]) -> View[N]:
    sizes = _mixed(op.static_output_shape.get_values(), given, do)
    groups, strides = _groups(op), list[N]()
    if not groups:  # one element
        strides = row_major(sizes, do)
    for group, stride in zip(groups, source.strides, strict=True):
        inner = row_major([sizes[d] for d in group], do)
        strides += [do.times(step, stride) for step in inner]
    return View(source.offset, sizes, strides)
