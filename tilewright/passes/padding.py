"""What passes that pad extents have in common (`xegpu-pad`, `pad-tiles`): longer values, and what was there before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.dialects.movement import vector_type
from tilewright.dialects.upstream.arith import resized
from tilewright.dialects.xetile.assembly import Index
from tilewright.passes.emit import Before
from tilewright.passes.integers import bounds

Extents = Mapping[int, int]
"""By dimension."""


def longer(value: SSAValue, extents: Extents) -> SSAValue:
    """A vector with some longer dimensions; a constant has the same number in all elements."""
    kind, op = vector_type(value), value.owner
    shape = [extents.get(dim, n) for dim, n in enumerate(kind.get_shape())]
    new = VectorType(kind.element_type, shape)
    if isinstance(op, arith.ConstantOp):
        op.properties["value"] = resized(op, new)
    return Rewriter.replace_value_with_new_type(value, new)


def kept(at: Before, shape: Sequence[int], extents: Extents) -> SSAValue:
    """i1 of each element of a padded shape: is it one of those that `extents` held before?"""
    mask: SSAValue | None = None
    for dim, extent in extents.items():
        numbers = at.coordinates(0, shape, dim)
        below = at.compare("slt", numbers, at.constant(numbers.type, extent))
        mask = at.also(mask, below)
    assert mask is not None
    return mask


def mask_operand(op: Operation, number: int, extents: Extents, by: float) -> None:
    """Makes a number of an operand's elements beyond what `extents` held before."""
    at, value = Before(op), op.operands[number]
    kind = vector_type(value)
    inside = kept(at, kind.get_shape(), extents)
    op.operands[number] = at.add(arith.SelectOp(inside, value, at.constant(kind, by)))


def ended(at: Before, size: Index, end: Index) -> Index:
    """An array's extent, for a tile that ends before that: the smaller of both, 0 or more."""
    if isinstance(end, int):
        end = max(0, end)
        if isinstance(size, int):
            return min(size, end)
    low, _ = bounds(end)
    if low is None or low < 0:
        end = at.add(arith.MaxSIOp(at.index(end), at.index(0)))
    return at.add(arith.MinSIOp(at.index(size), at.index(end)))
