"""Constants of a function that is being built (`builder`): each stands once, in front of all else."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    AnyFloat,
    DenseIntOrFPElementsAttr,
    IndexType,
    IntegerType,
    VectorType,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue

from tilewright.dialects.folding import Folding, Idx
from tilewright.dialects.numerals import number_attr

index = IndexType()


class Constants(Folding):
    """Constants that stand once, in front of all ops of a function's first block, `entry`."""

    def __init__(self, entry: Block):
        self.entry = entry
        self._constants: dict[tuple[Attribute, str], SSAValue] = {}

    def _at_entry(self, op: Operation) -> SSAValue:
        first = self.entry.first_op
        if first is None:
            self.entry.add_op(op)
        else:
            self.entry.insert_op_before(op, first)
        return op.results[0]

    def constant(self, type: Attribute, value: int | float) -> SSAValue:
        """A scalar, or every component of a vector type."""
        key = (type, repr(value))
        found = self._constants.get(key)
        if found is None:
            found = self._at_entry(arith.ConstantOp(_held(type, repr(value), value), type))
            self._constants[key] = found
        return found

    def dense(self, type: VectorType[Any], values: Sequence[float]) -> SSAValue:
        """A constant vector, component by component."""
        values = list(values)
        key = (type, repr(values))
        found = self._constants.get(key)
        if found is None:
            attr = DenseIntOrFPElementsAttr.from_list(type, values)  # pyright: ignore
            found = self._constants[key] = self._at_entry(arith.ConstantOp(attr, type))
        return found

    def idx(self, value: Idx) -> SSAValue:
        """An index as an SSA value."""
        return self.constant(index, value) if isinstance(value, int) else value


@lru_cache(1024)
def _held(type: Attribute, text: str, value: int | float) -> Any:
    """What a constant holds, made once for all functions: xDSL verifies each. `text` tells 0.0 from -0.0."""
    element = type.element_type if isinstance(type, VectorType) else type
    return number_attr(
        type, value if isinstance(element, AnyFloat) else _wrapped(int(value), element)
    )


def _wrapped(value: int, element: Attribute) -> int:
    """`value` in the range that an attribute of this integer type holds."""
    if isinstance(element, IntegerType):
        width = element.width.data
        value &= (1 << width) - 1
        if width > 1 and value >> (width - 1):
            value -= 1 << width
    return value
