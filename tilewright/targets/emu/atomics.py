"""Atomic read-modify-write of many places, one after the other: a function of the module per kind and type."""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from tilewright.codegen.atomic_loops import exchange
from tilewright.codegen.builder import Builder as Scalars
from tilewright.dialects import mach
from tilewright.dialects.upstream.generic_atomic import GenericAtomicRMWOp
from tilewright.targets.emu.builder import EmuBuilder, vec
from tilewright.targets.emu.lowering import Lowering


def atomic(
    low: Lowering, kind: str, addresses: SSAValue, values: SSAValue, mask: SSAValue
) -> SSAValue:
    """Old values at `addresses` (a vector of byte addresses), 0 where `mask` is off; vectors of one shape all."""

    def make(b: EmuBuilder, arguments: list[Any]) -> list[SSAValue]:
        places, data, flags = arguments

        def old(address: SSAValue, value: SSAValue) -> SSAValue:
            return b.value(mach.AtomicRmwOp(kind, value, b.pointer(address), ordering="seq_cst"))

        return [b.in_turn(0, places, flags, b.zeros(data.type), [data], old)]

    return low.b.shared(("atomic", kind), [addresses, values, mask], make)[0]


def by_body(low: Lowering, op: GenericAtomicRMWOp, addresses: SSAValue, mask: SSAValue) -> SSAValue:
    """Old values at `addresses`, of an atomic that says itself what becomes of them."""
    b, body = low.b, op.atomic_body
    used = (v for inner in body.walk() for v in inner.operands if not body.is_ancestor(v.owner))
    taken = list(dict.fromkeys(used))
    wide = [low.wide(v) if low.lanes > 1 else b.shape(low.uniform(v), 1) for v in taken]

    def old(address: SSAValue, *outside: SSAValue) -> SSAValue:
        return exchange(
            Scalars(b.block), op, b.pointer(address), dict(zip(taken, outside, strict=True))
        )

    return b.in_turn(0, addresses, mask, b.zeros(vec(op.result.type, low.lanes)), wide, old)
