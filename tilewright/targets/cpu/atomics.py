"""`xetile.atomic_rmw` -> one machine atomic per element, in row-major order, outside or masked off skipped.

Kinds and types without a machine instruction are a compare-and-exchange loop on the element's bits.
"""

from __future__ import annotations

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import (
    AnyFloat,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerType,
    i1,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.dialects import mach
from tilewright.dialects import xetile as xt
from tilewright.targets.cpu.builder import Builder
from tilewright.targets.cpu.evaluate import Evaluator, Place
from tilewright.targets.cpu.memory import Buffer, ScatteredTile, itemsize, rows_cols
from tilewright.targets.cpu.rules import combine

_COMBINE = {
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


def emit_atomics(e: Evaluator, op: Operation, old: Buffer | None) -> None:
    """All elements of one atomic_rmw; `old` receives the values before, or the padding 0 where nothing was done."""
    assert isinstance(op, xt.AtomicRmwOp)
    b = e.b
    rows, cols = rows_cols(op.value.type)
    tile = e.values.tiles[e.values.real(op.tile)]
    with b.loop(0, rows, nonempty=True) as i, b.loop(0, cols, nonempty=True) as j, e.scope():
        place = Place(i.iv, j.iv)
        if isinstance(tile, ScatteredTile):
            offset, on = e.scattered(tile, op.mask, place)
            pointer = b.ptr(tile.pointer, offset)
        else:
            on = e.lanes_inside(tile, place)
            if op.mask is not None:
                on = b.both(on, e.at(op.mask, place))
            on = on if on is not None else b.constant(i1, 1)
            pointer = e.address(tile, place)
        value = e.at(op.value, place)
        then, other = Block(), Block()
        with b.inside(then):
            before = rmw(b, op.kind, value, pointer)
            b.op(scf.YieldOp(before))
        with b.inside(other):
            b.op(scf.YieldOp(b.constant(value.type, 0)))
        (before,) = b.if_else(on, then, other, [value.type])
        if old is not None:
            b.store(before, old.address(b, i.iv, j.iv))


def rmw(b: Builder, kind: str, value: SSAValue, pointer: SSAValue) -> SSAValue:
    """One element; the value before."""
    type = value.type
    machine = isinstance(type, Float32Type | Float64Type | IndexType) or (
        isinstance(type, IntegerType) and type.width.data >= 8
    )
    if kind not in ("mulf", "muli") and machine:
        return b.value(mach.AtomicRmwOp(kind, value, pointer))
    bits = IntegerType(8 * itemsize(type))
    first = b.value(mach.AtomicLoadOp(pointer, bits, ordering="monotonic"))
    before, after = Block(arg_types=[bits]), Block(arg_types=[bits])
    with b.inside(before):
        current = before.args[0]
        x = _from_bits(b, current, type)
        new = value if kind == "assign" else combine(b, _COMBINE[kind], x, value)
        swap = mach.CmpxchgOp(pointer, current, _to_bits(b, new, bits))
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
