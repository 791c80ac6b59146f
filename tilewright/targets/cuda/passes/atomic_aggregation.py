"""atomic-aggregation: what the programs of a workgroup add to a small array is added up in shared memory first.

    atomic_rmw addi %v, H[%at]    ->    %s = alloc : memref<4096xi32, 3>                   (zeros)
                                        for (the programs of this workgroup) {
                                            if extent of H <= 4096 { atomic_rmw addi %v, %s[%at] }
                                            else { atomic_rmw addi %v, H[%at] } }
                                        if extent of H <= 4096 { atomic_rmw addi %s, H[0, 1, ..] }

Requires: XeTile at workgroup level, not asynchronous. Guarantees: the same sums, in another order.

Takes part: what `passes.sums_by_atomics` finds, where the kernel shares no memory. As many workgroups run as a
multiprocessor has threads for, each with its share of the programs, so that a line of the array is added to once for
each of them. Programs that load far more than they add do not wait for the array, and stay as they are. A tile of
neighbours, which have one owner each, is added without atomics; where it lies is the same for all threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, gpu, memref
from xdsl.dialects.builtin import IntegerAttr, MemRefType, VectorType, f32, i32, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.dialects import xetile
from tilewright.dialects.movement import shape_of
from tilewright.dialects.nesting import terminator
from tilewright.passes.emit import Before, Inserter
from tilewright.passes.sums_by_atomics import maker, sums_by_atomics
from tilewright.targets.cuda.passes.multi_buffering import PROGRAMS
from tilewright.targets.cuda.passes.persistent import make_persistent
from tilewright.targets.cuda.passes.wgmma_legality import shares_memory

ROOM = 32 << 10
"""Bytes of shared memory for the sums of a workgroup: as many of these as a multiprocessor has threads for, fit."""
FEW = 8
"""Elements that a program loads for each that it adds, from which on the array is not what it waits for."""
STEP = 1024
"""Sums that are handed on at a time."""
SHARED = 3


def aggregate_atomics(function: gpu.FuncOp, remarks: list[str]) -> int:
    """Adds up in shared memory what the programs of a workgroup add to a small array. Returns how many arrays."""
    if shares_memory(function):
        return 0
    found = sums_by_atomics(function, ("addf", "addi"), (f32, i32), FEW)
    if not found or not make_persistent(function, remarks):
        return 0
    extent = ROOM // 4 // len(found)
    extent = 1 << extent.bit_length() - 1
    for source, ops in found.items():
        _rewrite(function, source, ops, extent)
    Before(_loop(function)).insert(gpu.BarrierOp())  # so that none is needed in the loop
    return len(found)


def _rewrite(
    function: gpu.FuncOp, source: SSAValue, ops: Sequence[xetile.AtomicRmwOp], extent: int
) -> None:
    top, element = function.body.block, ops[0].tile_type.element_type
    at = Before(_loop(function))
    copies: dict[SSAValue, SSAValue] = {}
    for op in maker(source) or ():
        at.insert(op.clone(copies))
    array = copies.get(source, source)
    space = IntegerAttr(SHARED, i64)
    sums = at.add(memref.AllocOp([], [], MemRefType(element, [extent], memory_space=space)))
    sums.name_hint = "sums"
    flat = array.owner
    if isinstance(flat, memref.ReinterpretCastOp) and flat.sizes:
        count = flat.sizes[0]
    else:
        count = at.add(memref.DimOp(array, at.index(0)))
    fits = at.add(arith.CmpiOp(count, at.index(extent), "sle"))
    zeros = at.constant(VectorType(element, [1, extent]), 0)
    at.insert(xetile.StoreTileOp(zeros, _init(at, sums, (1, extent), element, 0)))
    for op in ops:
        _divert(op, sums, fits)
    _hand_on(Before(terminator(top)), array, sums, count, fits, ops[0])


def _loop(function: gpu.FuncOp) -> Operation:
    """Over the programs of a workgroup."""
    return next(op for op in function.body.block.ops if PROGRAMS in op.attributes)


def _tile(shape: Sequence[int], element: Attribute, scattered: bool = False) -> xetile.TileType:
    attributes = xetile.TileAttr(memory_space=SHARED, scattered=scattered or None)
    return xetile.TileType(shape, element, attributes)


def _init(
    at: Inserter, sums: SSAValue, shape: Sequence[int], element: Attribute, start: SSAValue | int
) -> SSAValue:
    return at.add(xetile.InitTileOp(sums, _tile(shape, element), [start]))


def _divert(op: xetile.AtomicRmwOp, sums: SSAValue, fits: SSAValue) -> None:
    """One atomic goes to shared memory where the sums fit there."""
    at, init = Before(op), op.tile.owner
    assert isinstance(init, xetile.InitTileOp)
    element, shape = op.tile_type.element_type, shape_of(op.value)

    def there() -> None:
        if init.offset_vector is not None:
            kind = _tile(shape, element, scattered=True)
            tile = at.add(xetile.InitTileOp(sums, kind, offset_vector=init.offset_vector))
            at.insert(xetile.AtomicRmwOp(op.kind, op.value, tile, op.mask))
            return
        tile = _init(at, sums, shape, element, init.mixed_offsets[0])
        before = at.add(xetile.LoadTileOp(tile))
        add = arith.AddfOp if op.kind == "addf" else arith.AddiOp
        at.insert(xetile.StoreTileOp(at.add(add(before, op.value)), tile, op.mask))

    def here() -> None:
        at.insert(op.clone())

    at.choose(fits, [], there, here)
    Rewriter.erase_op(op)


def _hand_on(
    at: Before,
    array: SSAValue,
    sums: SSAValue,
    count: SSAValue,
    fits: SSAValue,
    op: xetile.AtomicRmwOp,
) -> None:
    """Adds the sums of this workgroup to the array."""
    element, shape = op.tile_type.element_type, (1, STEP)

    def step(counters: Sequence[SSAValue], _: Sequence[SSAValue]) -> None:
        (first,) = counters
        found = at.add(xetile.LoadTileOp(_init(at, sums, shape, element, first)))
        tile = at.add(xetile.InitTileOp(array, xetile.TileType(shape, element), [first]))
        at.insert(xetile.AtomicRmwOp(op.kind, found, tile))

    def there() -> None:
        at.nest([(0, count, STEP)], step)

    at.choose(fits, [], there, lambda: None)
