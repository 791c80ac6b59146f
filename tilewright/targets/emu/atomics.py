"""Atomic read-modify-write of many places, one after the other: a function of the module per kind and type."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, scf, vector
from xdsl.dialects.builtin import AnyFloat, Float32Type, Float64Type, IntegerType, f32, i1
from xdsl.ir import Attribute, Block, Region, SSAValue

from tilewright.dialects import mach
from tilewright.targets.emu.builder import Builder, element_of, index, shape_of, storage_bits
from tilewright.targets.emu.lowering import Lowering

_KINDS = {
    "addf": arith.AddfOp,
    "addi": arith.AddiOp,
    "mulf": arith.MulfOp,
    "muli": arith.MuliOp,
    "maximumf": arith.MaximumfOp,
    "minimumf": arith.MinimumfOp,
    "maxnumf": arith.MaxnumfOp,
    "minnumf": arith.MinnumfOp,
    "maxs": arith.MaxSIOp,
    "maxu": arith.MaxUIOp,
    "mins": arith.MinSIOp,
    "minu": arith.MinUIOp,
    "ori": arith.OrIOp,
    "andi": arith.AndIOp,
    "xori": arith.XOrIOp,
}
_DIRECT = ("addi", "maxs", "maxu", "mins", "minu", "ori", "andi", "xori", "assign")
"""Kinds with an instruction for integers; the rest is a loop of compare and exchange."""


def atomic(
    low: Lowering, kind: str, addresses: SSAValue, values: SSAValue, mask: SSAValue
) -> SSAValue:
    """Old values at `addresses` (a vector of byte addresses), 0 where `mask` is off; 1-D vectors all."""
    if kind not in _KINDS and kind != "assign":
        raise low.refuse(f"an atomic of kind {kind}")
    key = ("atomic", kind, values.type)

    def make(b: Builder, arguments: list[SSAValue]) -> Sequence[SSAValue]:
        return [_each(b, kind, *arguments)]

    return low.b.shared(key, [addresses, values, mask], make)[0]


def _each(b: Builder, kind: str, addresses: SSAValue, values: SSAValue, mask: SSAValue) -> SSAValue:
    element = element_of(values.type)
    (count,) = shape_of(values.type)

    def one(at: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        def pick(vector_: SSAValue, type: Attribute) -> SSAValue:
            if count == 1:
                return b.extract(vector_, 0)
            return b.add(vector.ExtractOp(vector_, [at], type))

        def act() -> list[SSAValue]:
            old = _one(b, kind, element, pick(addresses, index), pick(values, element))
            if count == 1:
                return [b.shape(old, 1)]
            return [b.add(vector.InsertOp(old, carried[0], [at]))]

        return b.when(pick(mask, i1), act, lambda: carried)

    return b.loop(0, count, 1, [b.zeros(values.type)], one)[0]


def _one(b: Builder, kind: str, element: Attribute, address: SSAValue, value: SSAValue) -> SSAValue:
    pointer = b.pointer(address)
    if kind in _DIRECT:
        bits = IntegerType(storage_bits(element)) if isinstance(element, AnyFloat) else element
        old = b.add(mach.AtomicRmwOp(kind, b.bitcast(value, bits), pointer, ordering="seq_cst"))
        return b.bitcast(old, element)
    return _exchange(b, kind, element, pointer, value)


def _exchange(
    b: Builder, kind: str, element: Attribute, pointer: SSAValue, value: SSAValue
) -> SSAValue:
    """Read, combine, and write unless another wrote in between: then again with what it wrote."""
    bits = IntegerType(storage_bits(element))
    first = b.add(mach.AtomicLoadOp(pointer, bits, ordering="seq_cst"))
    before = Block(arg_types=[bits])
    with b.inside(before):
        known = before.args[0]
        new = _combine(b, kind, element, b.bitcast(known, element), value)
        op = mach.CmpxchgOp(pointer, known, b.bitcast(new, bits), ordering="seq_cst")
        b.put(op)
        failed = b.add(arith.XOrIOp(op.results[1], b.constant(i1, 1)))
        b.put(scf.ConditionOp(failed, op.results[0]))
    after = Block(arg_types=[bits])
    with b.inside(after):
        b.put(scf.YieldOp(after.args[0]))
    loop = scf.WhileOp([first], [bits], Region(before), Region(after))
    b.put(loop)
    return b.bitcast(loop.results[0], element)


def _combine(b: Builder, kind: str, element: Attribute, a: SSAValue, x: SSAValue) -> SSAValue:
    op = _KINDS[kind]
    if isinstance(element, AnyFloat) and not isinstance(element, Float32Type | Float64Type):
        old, new = (b.add(arith.ExtFOp(y, f32)) for y in (a, x))
        return b.add(arith.TruncFOp(b.add(op(old, new)), element))
    return b.add(op(a, x))
