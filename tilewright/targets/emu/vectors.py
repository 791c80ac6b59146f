"""vector: what moves components, combines them, or reads and writes memory.

At subgroup level an op stays as it is, or becomes accesses by address. At lane level vectors have the lanes last, so an
op that moves a lane's components is a permutation of whole registers: the op's own meaning applied to an array of
component numbers (as in `codegen.components`).
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import DYNAMIC_INDEX, IntegerType
from xdsl.ir import Operation, SSAValue

from tilewright.dialects.movement import (
    ELEMENTS,
    integers,
    numbered,
    positions,
    positions_at_run_time,
    shape_of_type,
    static_position,
)
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.upstream.combining import kind_of
from tilewright.targets.emu import values as v
from tilewright.targets.emu.blocks import arrange
from tilewright.targets.emu.builder import element_of, signless, vec
from tilewright.targets.emu.exchange import reduced
from tilewright.targets.emu.lowering import Lowering, lowers


@lowers(*ELEMENTS)
def rearrange(low: Lowering, op: Operation) -> None:
    """Registers of a lane in the order that the op gives them; of all that a position may say, that which it says."""
    if low.once(op):
        return
    b, lanes, dynamic = low.b, low.lanes, positions_at_run_time(op)
    arrays = op.operands[: len(op.operands) - len(dynamic)]
    sources = [b.shape(low.wide(x), prod(shape_of_type(x.type)), lanes) for x in arrays]
    position = static_position(op) if dynamic else ()
    found: list[SSAValue] = []
    for at in positions(shape_of_type(arrays[-1].type), position) if dynamic else [()]:
        known = [n for n, p in zip(at, position, strict=True) if p == DYNAMIC_INDEX]
        values = [
            b.shape(b.shuffle(sources[0], sources[-1], n.reshape(-1).tolist()), *n.shape, lanes)
            for n in numbered(op, known)
        ]
        if found:
            pairs = zip(dynamic, known, strict=True)
            here = b.all_of([b.cmp("eq", low.wide(x), n) for x, n in pairs])
            values = [b.blend(here, new, old) for new, old in zip(values, found, strict=True)]
        found = values
    for result, value in zip(op.results, found, strict=True):
        low.env[result] = v.Varying(value)


@lowers("vector.broadcast")
def broadcast(low: Lowering, op: vector.BroadcastOp) -> None:
    (source,) = op.operands
    if low.once(op):
        return
    kind = low.widened(op.results[0].type)
    low.env[op.results[0]] = v.Varying(low.b.broadcast(low.wide(source), kind))


# Bits -----------------------------------------------------------------------------------------------------------------


@lowers("vector.bitcast")
def bitcast(low: Lowering, op: vector.BitcastOp) -> None:
    """The bits of a lane's innermost dimension as elements of another width, low ones first."""
    b = low.b
    source, result = op.operands[0], op.results[0]
    kind = signless(result.type)
    old, new = (element_bits(element_of(x)) for x in (source.type, result.type))
    if (old == new or min(old, new) >= 8) and low.once(op):
        return
    uniform = low.is_uniform(source)
    value = low.uniform(source) if uniform else low.wide(source)
    last = () if uniform else (low.lanes,)
    flat = b.shape(value, prod(shape_of_type(source.type)), prod(last))
    bits = b.bitcast(flat, IntegerType(max(8, old)))
    if old != new:
        bits = _split(low, bits, old, new) if new < old else _joined(low, bits, old, new)
    made = b.shape(b.bitcast(bits, element_of(kind)), *shape_of_type(kind), *last)
    low.env[result] = v.Uniform(made) if uniform else v.Varying(made)


def _split(low: Lowering, bits: SSAValue, old: int, new: int) -> SSAValue:
    """[n, lanes] of wide integers as [n * old/new, lanes] of narrow ones."""
    b = low.b
    count, lanes = shape_of_type(bits.type)
    kind: Any = vec(IntegerType(max(8, new)), count, lanes)
    parts: list[SSAValue] = []
    for i in range(old // new):
        moved = b.value(arith.ShRUIOp(bits, b.constant(bits.type, i * new))) if i else bits
        narrow = moved if moved.type == kind else b.value(arith.TruncIOp(moved, kind))
        if new < 8:
            narrow = b.value(arith.AndIOp(narrow, b.constant(kind, (1 << new) - 1)))
        parts.append(narrow)
    order = np.arange(len(parts) * count * lanes).reshape(-1, count, lanes).swapaxes(0, 1)
    return arrange(b, b.stack(parts), order.reshape(-1, lanes))


def _joined(low: Lowering, bits: SSAValue, old: int, new: int) -> SSAValue:
    """[n, lanes] of narrow integers as [n * old/new, lanes] of wide ones."""
    b = low.b
    count, lanes = shape_of_type(bits.type)
    factor = new // old
    kind: Any = vec(IntegerType(new), count // factor, lanes)
    total: SSAValue | None = None
    for i in range(factor):
        rows = b.shuffle(bits, bits, list(range(i, count, factor)))
        wide = rows if rows.type == kind else b.value(arith.ExtUIOp(rows, kind))
        if i:
            wide = b.value(arith.ShLIOp(wide, b.constant(kind, i * old)))
        total = wide if total is None else b.value(arith.OrIOp(total, wide))
    assert total is not None
    return total


# Reductions and products ----------------------------------------------------------------------------------------------


@lowers("vector.reduction", "vector.multi_reduction")
def reduction(low: Lowering, op: Operation) -> None:
    source, *acc = op.operands
    if low.once(op):
        return
    every = op.name == "vector.reduction"
    dims = range(len(shape_of_type(source.type))) if every else integers(op, "reduction_dims")
    start = low.wide(acc[0]) if acc else None
    low.env[op.results[0]] = v.Varying(reduced(low.b, kind_of(op), low.wide(source), dims, start))


@lowers("vector.contract")
def contract(low: Lowering, op: Operation) -> None:
    if not low.once(op):
        raise low.refuse("of a lane's own vectors")


# Made from nothing ----------------------------------------------------------------------------------------------------


@lowers("vector.step")
def made(low: Lowering, op: Operation) -> None:
    low.once(op)


# Anything -------------------------------------------------------------------------------------------------------------


@lowers("ub.poison")
def poison(low: Lowering, op: Operation) -> None:
    low.set(op.results[0], low.b.ones(signless(op.results[0].type)))


@lowers("builtin.unrealized_conversion_cast")
def same_bits(low: Lowering, op: Operation) -> None:
    """Between integers that differ in signedness, and between equal types."""
    for operand, result in zip(op.operands, op.results, strict=len(op.operands) == 1):
        if signless(operand.type) != signless(result.type):
            raise low.refuse(f"from {operand.type} to {result.type}")
        low.env[result] = low.env[operand]
