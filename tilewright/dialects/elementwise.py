"""Which ops do the same to every element: one answer for passes and targets. And such an op made anew.

What a pass adds for itself stands there with its reason: casts between tiles of one shape (`xetile.convert_layout`;
`builtin.unrealized_conversion_cast` where it need not be an op on vectors), constants where operands do not matter, ops
on scalars alone (`index.*`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from xdsl.dialects.builtin import VectorType
from xdsl.ir import Attribute, Operation, SSAValue

OpT = TypeVar("OpT", bound=Operation)

SIGNED_DIVISIONS = frozenset(
    (
        *("arith.divsi", "arith.ceildivsi", "arith.floordivsi", "arith.remsi"),
        *("index.divs", "index.ceildivs", "index.floordivs", "index.rems"),
    )
)
UNSIGNED_DIVISIONS = frozenset(
    (
        *("arith.divui", "arith.remui", "arith.ceildivui"),
        *("index.divu", "index.remu", "index.ceildivu"),
    )
)
DIVISIONS = SIGNED_DIVISIONS | UNSIGNED_DIVISIONS
"""Divisions of integers: by 0 they have no result."""


def is_elementwise(op: Operation) -> bool:
    """Does element i of every result depend on the elements i of the operands alone, whatever their shape?

    True of `arith` and `math` on scalars and vectors alike, of `vector.fma` and `mach.each`; a scalar beside vectors
    (the condition of `arith.select`) counts for every element. False of constants, which depend on nothing.
    """
    if op.regions or not op.operands or not op.results:
        return False
    return op.name.startswith(("arith.", "math.")) or op.name in ("vector.fma", "mach.each")


def is_elementwise_on_vectors(op: Operation) -> bool:
    """The same, of ops that give vectors. For the passes that know XeGPU, its conversions are among them, and so is the
    cast between integers of one width, signed and not."""
    if not op.results or not isinstance(op.results[0].type, VectorType):
        return False
    return is_elementwise(op) or op.name in (
        *("xegpu.truncf", "xegpu.extf"),
        "builtin.unrealized_conversion_cast",
    )


def retyped(
    op: OpT,
    operands: Sequence[SSAValue],
    types: Sequence[Attribute],
    attributes: Mapping[str, Attribute] | None = None,
) -> OpT:
    """The op on other operands, with results of other types; `attributes` are its own where none are given. It stands
    where the op stands in the source text."""
    new = op.create(
        operands=operands,
        result_types=types,
        properties=dict(op.properties),
        attributes=dict(op.attributes if attributes is None else attributes),
    )
    new.location = op.location
    return new
