"""Values that cross a border of control flow: what a loop carries, what two branches meet in.

A name may stand for a value, a tile, an array, a number, or a (named) tuple of such. Its run-time parts, the
*leaves*, become arguments and results of scf ops; everything else must be the same object on both
sides of the border, because it is known at compile time only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from xdsl.ir import Attribute, SSAValue

from tilewright import dtypes
from tilewright.dtypes import DType
from tilewright.frozen import frozen
from tilewright.lang.convert import computed, constant, shaped, to
from tilewright.lang.values import Array, Tile, Value, describe_type


class Mismatch(Exception):
    """Two sides of a border hold what cannot be one value. ``str()`` names both."""


@frozen
class Leaf:
    """The type of one run-time part: of a value, or of a tile or an array (``shape`` unused)."""

    type: Attribute
    dtype: DType
    shape: tuple[int, ...] = ()
    weak: bool = False
    is_tile: bool = False
    space: int | None = None
    """Of an array, the memory space."""

    def wrap(self, ssa: SSAValue) -> Value | Tile | Array:
        if self.is_tile:
            return Tile(ssa, self.dtype)
        if self.space is not None:
            return Array(ssa, self.dtype, "that control flow chose", self.space, chosen=True)
        return Value(ssa, self.dtype, self.shape, weak=self.weak)


def leaf_of(value: Value | Tile | Array | int | float) -> Leaf:
    """The leaf type under which a run-time part, or a number as one, is carried."""
    if isinstance(value, Array):
        return Leaf(value.ssa.type, value.dtype, space=value.memory_space)
    if isinstance(value, Tile):
        return Leaf(value.ssa.type, value.dtype, is_tile=True)
    if isinstance(value, Value):
        return Leaf(shaped(value.dtype.arith, value.shape), value.dtype, value.shape, value.weak)
    if isinstance(value, bool):
        return Leaf(dtypes.i1.arith, dtypes.i1)
    if isinstance(value, int):
        return Leaf(dtypes.index.arith, dtypes.index)
    return Leaf(dtypes.f32.arith, dtypes.f32, weak=True)


def ssa_as(value: object, leaf: Leaf) -> SSAValue:
    """The SSA value of a run-time part whose type is (or meets in) ``leaf``."""
    if isinstance(value, (Tile, Array)):
        return value.ssa
    if isinstance(value, Value):
        return computed(to(value, leaf.dtype))
    assert isinstance(value, (int, float))
    return computed(constant(value, leaf.dtype))


def is_part(value: object) -> bool:
    """Whether an object is a run-time part, or a number that can become one."""
    return isinstance(value, (Value, Tile, int, float))


def is_sequence(value: object) -> bool:
    return isinstance(value, (tuple, list))


def parts(value: object) -> Iterator[object]:
    """The parts of a structure from left to right: leaves, numbers and other objects."""
    if is_sequence(value):
        for element in cast(tuple[Any, ...], value):
            yield from parts(element)
    else:
        yield value


def rebuild(value: object, replacements: Iterator[object]) -> Any:
    """The same structure with its parts replaced, in the order of :func:`parts`."""
    if not is_sequence(value):
        return next(replacements)
    elements = [rebuild(element, replacements) for element in cast(tuple[Any, ...], value)]
    if isinstance(value, list):
        return elements
    if hasattr(value, "_fields"):
        return type(value)(*elements)
    return tuple(elements)


def same_object(a: object, b: object) -> bool:
    """Whether two parts are one and the same: identical, or equal numbers and constants."""
    if a is b:
        return True
    if isinstance(a, Value) and isinstance(b, Value):
        return a.ssa is b.ssa and a.dtype is b.dtype
    if isinstance(a, Tile) and isinstance(b, Tile):
        return a.ssa is b.ssa
    if isinstance(a, (Value, Tile)) or isinstance(b, (Value, Tile)):
        return False
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return a == b or (a != a and b != b)
    try:
        return bool(a == b)
    except Exception:
        return False


def shapes_agree(a: object, b: object) -> bool:
    """Whether two structures nest alike."""
    if is_sequence(a) != is_sequence(b):
        return False
    if not is_sequence(a):
        return True
    x, y = cast(tuple[Any, ...], a), cast(tuple[Any, ...], b)
    return type(x) is type(y) and len(x) == len(y) and all(map(shapes_agree, x, y))


def met(a: object, b: object) -> list[Leaf | None]:
    """The leaf types in which parts of two structures meet, None for what is the same object in both.

    Raises :class:`Mismatch`.
    """
    if not shapes_agree(a, b):
        raise Mismatch(f"{describe_type(a)} and {describe_type(b)}")
    pairs = zip(parts(a), parts(b), strict=True)
    return [None if same_object(x, y) else meet_leaf(x, y) for x, y in pairs]


def handed(value: object, leaves: Sequence[Leaf | None]) -> list[SSAValue]:
    """What crosses a border of a structure whose parts have these leaf types, None for those that do not."""
    pairs = zip(parts(value), leaves, strict=True)
    return [ssa_as(part, leaf) for part, leaf in pairs if leaf is not None]


def taken(value: object, leaves: Sequence[Leaf | None], values: Iterator[SSAValue]) -> Any:
    """The structure behind the border, with what has crossed it in the place of these parts."""
    pairs = zip(parts(value), leaves, strict=True)
    new = [part if leaf is None else leaf.wrap(next(values)) for part, leaf in pairs]
    return rebuild(value, iter(new))


def meet_leaf(a: object, b: object) -> Leaf:
    """The leaf type in which two parts meet.

    Numbers and weak scalars take the dtype of what they meet, an index becomes i64; other typed parts
    must agree. Raises :class:`Mismatch` otherwise.
    """
    if isinstance(a, Array) and isinstance(b, Array):
        return _array_of_either(a, b)
    if not is_part(a) or not is_part(b):
        raise Mismatch(f"{describe_type(a)} and {describe_type(b)}")
    x, y = leaf_of(cast(Any, a)), leaf_of(cast(Any, b))
    if x == y:
        return x
    if not (x.is_tile or y.is_tile) and x.shape == y.shape:
        if x.dtype is y.dtype:
            return y if x.weak else x
        for one, value, other in ((x, a, y), (y, b, x)):
            counts = one.dtype.is_index and other.dtype is dtypes.i64
            if counts or (not one.shape and _follows(one, value, other)):
                return other
    raise Mismatch(f"{describe_type(a)} and {describe_type(b)}")


def _array_of_either(a: Array, b: Array) -> Leaf:
    """Which of two arrays it is, is all that is not known of it."""
    if a.is_view or b.is_view:
        raise Mismatch("one is a part of an array (tw.view), whose extents are not carried")
    if a.type != b.type:
        raise Mismatch(f"{a.type} and {b.type}, which differ")
    return leaf_of(a)


def _follows(one: Leaf, value: object, other: Leaf) -> bool:
    """Whether a scalar part may take the dtype of ``other``: nothing of it would be lost."""
    is_number = not isinstance(value, Value)
    if one.dtype.is_bool:
        return False
    if one.dtype.is_float:
        return other.dtype.is_float and (is_number or one.weak)
    if other.dtype.is_float:
        return is_number or (one.dtype.is_index and other.weak)
    return is_number and not other.dtype.is_bool
