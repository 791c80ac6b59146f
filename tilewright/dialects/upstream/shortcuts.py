"""What a compilation asks xDSL some 100,000 times, answered faster; it was a quarter of its time.

Values, ops and blocks are compared as Python compares objects, in C, and so is their class asked; an attribute that
equals a verified one is right too; the traits of a class are found once; a walk makes no iterator for an op without
regions, nor does a block that such an op is put into look for it above; a value is got as itself without its type's
name being made, and one of several values without a second call; the extents of vectors are made once; types know
their hash.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    DenseArrayBase,
    IndexType,
    IntAttr,
    IntegerAttr,
    IntegerType,
    NoneAttr,
    UnitAttr,
    VectorType,
    i1,
)
from xdsl.ir import (
    Attribute,
    Block,
    Operation,
    ParametrizedAttribute,
    Region,
    SSAValue,
    SSAValues,
    Use,
)
from xdsl.irdl import IRDLOperation

MOST = 1 << 16
"""Attributes that are remembered as right, of each class."""
_BY_IDENTITY: tuple[Any, ...] = (SSAValue, Use, Operation, IRDLOperation, Block, Region)
_SMALL: tuple[Any, ...] = (
    VectorType,
    IntegerAttr,
    IntegerType,
    IndexType,
    DenseArrayBase,
    UnitAttr,
    NoneAttr,
)
"""Classes of small attributes, which are made again and again."""
_stock_walk = Operation.walk
_stock_get: Any = SSAValue.get
_stock_attach: Any = Block._attach_op  # pyright: ignore[reportPrivateUsage]
_item: Any = tuple.__getitem__


class _Plain(ABCMeta):
    """Of abstract classes that no class is registered with: `isinstance` asks for base classes only."""

    __instancecheck__ = type.__instancecheck__


def _classes(base: type[Any]) -> Iterator[type[Any]]:
    yield base
    for each in base.__subclasses__():
        yield from _classes(each)


def _remembering(stock: Any) -> Any:
    """The check of an attribute, once for all that are equal."""
    right: set[Attribute] = set()

    def check(self: ParametrizedAttribute) -> None:
        if self in right:
            return
        stock(self)
        if len(right) >= MOST:
            right.clear()
        right.add(self)

    return check


def _hashing(stock: Any) -> Any:
    """The hash of an attribute, made once: stock ones hash all that they hold, down to the last integer."""

    def hash(self: Any) -> int:
        try:
            return self._hash
        except AttributeError:
            found = stock(self)
            object.__setattr__(self, "_hash", found)
            return found

    return hash


@cache
def _traits_of_type(kind: type[Operation], trait: type[Any]) -> list[Any]:
    return [each for each in kind.traits if isinstance(each, trait)]


def _walk(
    self: Operation, *, reverse: bool = False, region_first: bool = False
) -> Iterator[Operation]:
    if reverse or region_first:
        yield from _stock_walk(self, reverse=reverse, region_first=region_first)
        return
    yield self
    for region in self.regions:
        for block in region.blocks:
            following = block.first_op
            while (op := following) is not None:
                following = op.next_op  # before the op is given: it may be moved or erased
                if op.regions:
                    yield from op.walk()
                else:
                    yield op


def _get(arg: SSAValue | Operation, *, type: Any = Attribute) -> SSAValue:
    if isinstance(arg, SSAValue) and type is Attribute:
        return arg
    return _stock_get(arg, type=type)


def _get_item(self: Any, index: Any) -> Any:
    found = _item(self, index)
    return SSAValues(found) if type(index) is slice else found


@lru_cache(MOST)
def _extents(shape: tuple[int | IntAttr, ...]) -> tuple[ArrayAttr[Any], ArrayAttr[Any]]:
    """The extents of a vector, and that none is scalable."""
    made = (IntAttr(n) if isinstance(n, int) else n for n in shape)
    return ArrayAttr(made), ArrayAttr([BoolAttr(False, i1)] * len(shape))


def _vector(self: Any, element_type: Any, shape: Any, scalable_dims: Any = None) -> None:
    extents, fixed = _extents(tuple(shape))
    scalable = fixed if scalable_dims is None else scalable_dims
    ParametrizedAttribute.__init__(self, element_type, extents, scalable)


def _attach_op(self: Block, operation: Operation) -> None:
    if operation.regions or operation.parent:
        _stock_attach(self, operation)
    operation.parent = self


def complete() -> None:
    for base in (Attribute, SSAValue, *Operation.__bases__):
        for kind in _classes(base):
            if type(kind) is ABCMeta:
                kind.__class__ = _Plain  # pyright: ignore[reportAttributeAccessIssue]
    for kind in _BY_IDENTITY:
        kind.__hash__, kind.__eq__ = object.__hash__, object.__eq__
    for kind in _SMALL:
        kind.__post_init__ = _remembering(kind.__post_init__)
        kind.__hash__ = _hashing(kind.__hash__)
    vector: Any = VectorType
    vector.__init__ = _vector
    operation: Any = Operation
    operation.get_traits_of_type = classmethod(_traits_of_type)
    operation.walk = _walk
    value: Any = SSAValue
    value.get = staticmethod(_get)
    block: Any = Block
    block._attach_op = _attach_op
    several: Any = SSAValues
    several.__getitem__ = _get_item
