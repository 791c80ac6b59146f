"""One step of a reduction or of an atomic, by its kind; and atomics that no machine has, as loops."""

from __future__ import annotations

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import (
    AnyFloat,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerType,
    VectorType,
    i1,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.codegen.builder import Builder
from tilewright.codegen.tiles import itemsize
from tilewright.dialects import mach


def identity_element(kind: str, element: Attribute) -> int | float:
    """The neutral element of a reduction kind on an element type."""
    if kind in ("add", "or", "xor", "maxui"):
        return 0
    if kind == "mul":
        return 1
    if kind in ("and", "minui"):
        return -1
    if isinstance(element, AnyFloat):
        return float("-inf") if kind.startswith("max") else float("inf")
    bits = 64 if isinstance(element, IndexType) else element.width.data  # pyright: ignore
    return -(1 << (bits - 1)) if kind == "maxsi" else (1 << (bits - 1)) - 1


_COMBINE: dict[str, type[Operation]] = {
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


def combine(b: Builder, kind: str, x: SSAValue, y: SSAValue) -> SSAValue:
    """One step of a reduction."""
    element = x.type.element_type if isinstance(x.type, VectorType) else x.type
    floats = isinstance(element, AnyFloat)
    if kind == "add":
        return b.value(arith.AddfOp(x, y) if floats else arith.AddiOp(x, y))
    if kind == "mul":
        return b.value(arith.MulfOp(x, y) if floats else arith.MuliOp(x, y))
    return b.value(_COMBINE[kind](x, y))  # pyright: ignore


ATOMIC_COMBINE = {
    "addf": "add",
    "addi": "add",
    "mulf": "mul",
    "muli": "mul",
    "maximumf": "maximumf",
    "minimumf": "minimumf",
    "maxnumf": "maxnumf",
    "minnumf": "minnumf",
    "maxs": "maxsi",
    "mins": "minsi",
    "maxu": "maxui",
    "minu": "minui",
    "ori": "or",
    "andi": "and",
}


def rmw(
    b: Builder, kind: str, value: SSAValue, pointer: SSAValue, scope: str | None = None
) -> SSAValue:
    """An atomic on one element; the value before. Kinds and types without a machine instruction are a
    compare-and-exchange loop on the element's bits."""
    type = value.type
    machine = isinstance(type, Float32Type | Float64Type | IndexType) or (
        isinstance(type, IntegerType) and type.width.data >= 8
    )
    if kind not in ("mulf", "muli") and machine:
        return b.value(mach.AtomicRmwOp(kind, value, pointer, scope=scope))
    bits = IntegerType(8 * itemsize(type))
    first = b.value(mach.AtomicLoadOp(pointer, bits, ordering="monotonic", scope=scope))
    before, after = Block(arg_types=[bits]), Block(arg_types=[bits])
    with b.inside(before):
        current = before.args[0]
        x = _from_bits(b, current, type)
        new = value if kind == "assign" else combine(b, ATOMIC_COMBINE[kind], x, value)
        swap = mach.CmpxchgOp(pointer, current, _to_bits(b, new, bits), scope=scope)
        b.op(swap)
        failed = b.value(arith.XOrIOp(swap.success, b.constant(i1, 1)))
        b.op(scf.ConditionOp(failed, swap.old))
    with b.inside(after):
        b.op(scf.YieldOp(after.args[0]))
    loop = scf.WhileOp([first], [bits], Region(before), Region(after))
    b.op(loop)
    return _from_bits(b, loop.results[0], type)


def _from_bits(b: Builder, x: SSAValue, type: Attribute) -> SSAValue:
    if x.type == type:
        return x
    if isinstance(type, AnyFloat):
        return b.value(arith.BitcastOp(x, type))
    return b.value(arith.TruncIOp(x, type))  # pyright: ignore


def _to_bits(b: Builder, x: SSAValue, bits: IntegerType) -> SSAValue:
    if x.type == bits:
        return x
    if isinstance(x.type, AnyFloat):
        return b.value(arith.BitcastOp(x, bits))
    return b.value(arith.ExtUIOp(x, bits))
