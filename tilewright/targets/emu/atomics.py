"""Atomic read-modify-write of many places, one after the other: a function of the module per kind and type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects import vector
from xdsl.ir import Attribute, SSAValue

from tilewright.codegen.atomic_loops import exchange
from tilewright.codegen.builder import Builder as Scalars
from tilewright.dialects import mach
from tilewright.dialects.upstream.generic_atomic import GenericAtomicRMWOp
from tilewright.targets.emu.builder import EmuBuilder, element_of, shape_of, vec
from tilewright.targets.emu.lowering import Lowering


def atomic(
    low: Lowering, kind: str, addresses: SSAValue, values: SSAValue, mask: SSAValue
) -> SSAValue:
    """Old values at `addresses` (a vector of byte addresses), 0 where `mask` is off; 1-D vectors all."""

    def make(b: EmuBuilder, arguments: list[Any]) -> Sequence[SSAValue]:
        places, data, flags = arguments

        def old(pointer: SSAValue, pick: Pick) -> SSAValue:
            return b.value(mach.AtomicRmwOp(kind, pick(data), pointer, ordering="seq_cst"))

        return [_in_turn(b, data.type, places, flags, old)]

    return low.b.shared(("atomic", kind), [addresses, values, mask], make)[0]


Pick = Callable[[SSAValue], SSAValue]
"""The component of a vector that it is the turn of."""


def _in_turn(
    b: EmuBuilder,
    kind: Attribute,
    addresses: SSAValue,
    mask: SSAValue,
    old: Callable[[SSAValue, Pick], SSAValue],
) -> SSAValue:
    """A vector of what `old` gives at one address after the other, 0 where `mask` is off."""
    (count,) = shape_of(kind)

    with b.loop(0, count, carry=[b.zeros(kind)]) as loop:

        def pick(vector_: SSAValue) -> SSAValue:
            if count == 1:
                return b.extract(vector_, 0)
            return b.value(vector.ExtractOp(vector_, [loop.iv], element_of(vector_.type)))

        def act() -> list[SSAValue]:
            found = old(b.pointer(pick(addresses)), pick)
            if count == 1:
                return [b.shape(found, 1)]
            return [b.value(vector.InsertOp(found, loop.carried[0], [loop.iv]))]

        loop.out = b.choose(pick(mask), act, lambda: loop.carried)
    return loop.results[0]


def by_body(low: Lowering, op: GenericAtomicRMWOp, addresses: SSAValue, mask: SSAValue) -> SSAValue:
    """Old values at `addresses`, of an atomic that says itself what becomes of them."""
    b, body = low.b, op.atomic_body
    taken = {v for inner in body.walk() for v in inner.operands if not body.is_ancestor(v.owner)}
    wide = {v: low.wide(v) if low.lanes > 1 else b.shape(low.uniform(v), 1) for v in taken}

    def old(pointer: SSAValue, pick: Pick) -> SSAValue:
        outside = {v: pick(rows) for v, rows in wide.items()}
        return exchange(Scalars(b.block), op, pointer, outside)

    return _in_turn(b, vec(op.result.type, max(low.lanes, 1)), addresses, mask, old)
