"""Atomic read-modify-write of many places, one after the other: a function of the module per kind and type."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import vector
from xdsl.dialects.builtin import i1
from xdsl.ir import Attribute, SSAValue

from tilewright.dialects import mach
from tilewright.targets.emu.builder import Builder, element_of, index, shape_of
from tilewright.targets.emu.lowering import Lowering


def atomic(
    low: Lowering, kind: str, addresses: SSAValue, values: SSAValue, mask: SSAValue
) -> SSAValue:
    """Old values at `addresses` (a vector of byte addresses), 0 where `mask` is off; 1-D vectors all."""
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
            pointer = b.pointer(pick(addresses, index))
            value = pick(values, element)
            old = b.add(mach.AtomicRmwOp(kind, value, pointer, ordering="seq_cst"))
            if count == 1:
                return [b.shape(old, 1)]
            return [b.add(vector.InsertOp(old, carried[0], [at]))]

        return b.when(pick(mask, i1), act, lambda: carried)

    return b.loop(0, count, 1, [b.zeros(values.type)], one)[0]
