"""What combines two values: the kinds of reductions and atomics, the ops that they are, what changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from math import copysign, inf, isinf
from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, IntegerType, VectorType
from xdsl.dialects.vector import CombiningKindAttr, CombiningKindFlag
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.diagnostics import unsupported
from tilewright.dtypes import from_mlir

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


_COMBINING: Mapping[str, type[Operation]] = {
    "minui": arith.MinUIOp,
    "minsi": arith.MinSIOp,
    "maxui": arith.MaxUIOp,
    "maxsi": arith.MaxSIOp,
    "and": arith.AndIOp,
    "or": arith.OrIOp,
    "xor": arith.XOrIOp,
    "minnumf": arith.MinnumfOp,
    "maxnumf": arith.MaxnumfOp,
    "minimumf": arith.MinimumfOp,
    "maximumf": arith.MaximumfOp,
}


KINDS_OF_ATOMICS: Mapping[type[Operation], str] = {
    arith.AddfOp: "addf",
    arith.AddiOp: "addi",
    arith.MulfOp: "mulf",
    arith.MuliOp: "muli",
    **{
        _COMBINING[reduction_of(kind)]: kind
        for kind in ATOMIC_KINDS
        if reduction_of(kind) in _COMBINING
    },
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
    if kind in ("add", "mul"):
        floats = isinstance(element, AnyFloat)
        ops = (arith.AddfOp, arith.MulfOp) if floats else (arith.AddiOp, arith.MuliOp)
        return ops[kind == "mul"]
    return _COMBINING[kind]


def combining(kind: str, x: SSAValue, y: SSAValue) -> Operation:
    """The op that combines two values, or vectors of one shape, by a `vector.kind`."""
    element = x.type.element_type if isinstance(x.type, VectorType) else x.type
    return combiner(kind, element)(x, y)  # pyright: ignore[reportCallIssue]


_NEUTRAL: Mapping[str, tuple[float, int | None]] = {
    "add": (0.0, 0),
    "mul": (1.0, 1),
    "or": (0.0, 0),
    "xor": (0.0, 0),
    "and": (0.0, -1),
    "minui": (0.0, -1),
    "maxui": (0.0, 0),
    "minsi": (0.0, None),
    "maxsi": (0.0, None),
    "minnumf": (inf, None),
    "minimumf": (inf, None),
    "maxnumf": (-inf, None),
    "maximumf": (-inf, None),
}
"""Neutral elements of reductions: of floats, of integers (None: the width's own extreme)."""


def neutral(kind: str, element: Attribute) -> int | float:
    """The number that a reduction of this kind leaves alone."""
    as_float, as_int = _NEUTRAL[kind]
    if isinstance(element, AnyFloat):
        if isinf(as_float):
            return copysign(from_mlir(element).upmost, as_float)
        # -0.0 + -0.0 is -0.0, while 0.0 + -0.0 is 0.0.
        return -0.0 if kind == "add" else as_float
    if as_int is not None:
        return as_int
    width = element.width.data if isinstance(element, IntegerType) else 64
    extreme = 2 ** (width - 1)
    return extreme - 1 if kind == "minsi" else -extreme
