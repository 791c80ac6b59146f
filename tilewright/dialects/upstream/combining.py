"""What combines two values: the kinds of reductions and atomics, the ops that they are, what changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from math import copysign, inf, isinf, nan
from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, IntegerType, VectorType
from xdsl.dialects.vector import CombiningKindAttr, CombiningKindFlag
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.diagnostics import unsupported
from tilewright.dtypes import from_mlir
from tilewright.frozen import frozen

ATOMIC_KINDS: tuple[str, ...] = (
    *("addf", "addi", "andi", "assign", "maximumf", "maxnumf", "maxs", "maxu"),
    *("minimumf", "minnumf", "mins", "minu", "mulf", "muli", "ori", "xori"),
)
"""`arith.AtomicRMWKind`: the position is the number that the generic form holds, as MLIR 22 counts."""

COMBINING: Any = (
    CombiningKindAttr,
    lambda kind: CombiningKindAttr(CombiningKindFlag(kind)),
    lambda held: held.data.value,
)
"""How an op holds MLIR's name of a combination, such as "add" or "maximumf": as `fields.Property` asks for it."""

_CALLED_OTHERWISE: Mapping[str, str] = {
    "addf": "add",
    "addi": "add",
    "mulf": "mul",
    "muli": "mul",
    "maxs": "maxsi",
    "mins": "minsi",
    "maxu": "maxui",
    "minu": "minui",
    "ori": "or",
    "andi": "and",
    "xori": "xor",
}


def reduction_of(atomic: str) -> str:
    """The `vector.kind` of what an atomic does."""
    return _CALLED_OTHERWISE.get(atomic, atomic)


@frozen
class Reduction:
    """What a `vector.kind` is: the op that combines two floats, two integers, and what it leaves alone of both."""

    of_floats: type[Operation] | None
    of_integers: type[Operation] | None
    float_neutral: float = 0.0
    integer_neutral: int | None = None
    """None: the width's own extreme."""


REDUCTIONS: Mapping[str, Reduction] = {
    "add": Reduction(
        arith.AddfOp, arith.AddiOp, -0.0, 0
    ),  # -0.0 + -0.0 is -0.0, while 0.0 + -0.0 is 0.0
    "mul": Reduction(arith.MulfOp, arith.MuliOp, 1.0, 1),
    "minui": Reduction(None, arith.MinUIOp, integer_neutral=-1),
    "minsi": Reduction(None, arith.MinSIOp),
    "minnumf": Reduction(arith.MinnumfOp, None, nan),  # NaN, which an infinity would replace
    "maxui": Reduction(None, arith.MaxUIOp, integer_neutral=0),
    "maxsi": Reduction(None, arith.MaxSIOp),
    "maxnumf": Reduction(arith.MaxnumfOp, None, nan),
    "and": Reduction(None, arith.AndIOp, integer_neutral=-1),
    "or": Reduction(None, arith.OrIOp, integer_neutral=0),
    "xor": Reduction(None, arith.XOrIOp, integer_neutral=0),
    "maximumf": Reduction(arith.MaximumfOp, None, -inf),
    "minimumf": Reduction(arith.MinimumfOp, None, inf),
}
"""By `vector.kind`, in the order of its enumeration."""

KINDS_OF_ATOMICS: Mapping[type[Operation], str] = {
    op: atomic
    for atomic in ATOMIC_KINDS
    if (found := REDUCTIONS.get(reduction_of(atomic))) is not None
    and (op := found.of_floats if atomic.endswith("f") else found.of_integers) is not None
}
"""Of the ops that an atomic does, its name."""


def kind_of(op: Operation) -> str:
    """The `vector.kind` by which an op of vector or gpu combines, as it says or as its region does.

    Raises UnsupportedError for a region that is not one op on its two arguments.
    """
    held = op.properties.get("kind") or op.properties.get("op")
    if held is not None:
        return str(getattr(held, "data", held)).rsplit(".", 1)[-1].lower()
    block = op.regions[0].blocks[0]
    first, last = block.first_op, block.last_op
    assert first is not None and last is not None
    kind = KINDS_OF_ATOMICS.get(type(first))
    alone = first.next_op is last and [*last.operands] == [*first.results]
    if kind is None or not alone or {*first.operands} != {*block.args}:
        raise unsupported(
            op,
            f"{op.name} with a region that is not one op on its two arguments is not run",
            hint="write a kind, gpu.all_reduce add, or the reduction itself, with shared memory and gpu.barrier",
        )
    return reduction_of(kind)


def combiner(kind: str, element: Attribute) -> type[Operation]:
    """The op that combines two values of a type by a `vector.kind`."""
    found = REDUCTIONS[kind]
    op = found.of_floats if isinstance(element, AnyFloat) else found.of_integers
    assert op is not None, f"{kind} of {element}"
    return op


def combining(kind: str, x: SSAValue, y: SSAValue) -> Operation:
    """The op that combines two values, or vectors of one shape, by a `vector.kind`."""
    element = x.type.element_type if isinstance(x.type, VectorType) else x.type
    return combiner(kind, element)(x, y)  # pyright: ignore[reportCallIssue]


def neutral(kind: str, element: Attribute) -> int | float:
    """The number that a reduction of this kind leaves alone."""
    found = REDUCTIONS[kind]
    if isinstance(element, AnyFloat):
        upmost = from_mlir(element).upmost
        return (
            copysign(upmost, found.float_neutral)
            if isinf(found.float_neutral)
            else found.float_neutral
        )
    if found.integer_neutral is not None:
        return found.integer_neutral
    width = element.width.data if isinstance(element, IntegerType) else 64
    extreme = 2 ** (width - 1)
    return extreme - 1 if kind == "minsi" else -extreme
