"""atomic-aggregation: what the programs of a workgroup add to a small array is added up in shared memory first.

    atomic_rmw addi %v, H[%at]    ->    %s = alloc : memref<4096xi32, 3>                   (zeros)
                                        for (the programs of this workgroup) {
                                            if extent of H <= 4096 { atomic_rmw addi %v, %s[%at] }
                                            else { atomic_rmw addi %v, H[%at] } }
                                        if extent of H <= 4096 { atomic_rmw addi %s, H[0, 1, ..] }

Requires: XeTile at workgroup level, not asynchronous. Guarantees: the same sums, in another order.

Takes part: sums by atomics whose results nobody uses, to arrays of one dimension that the kernel touches in no other
way, where it multiplies no tiles and shares no memory. As many workgroups run as a multiprocessor has threads for, each
with its share of the programs, so that a line of the array is added to once for each of them. Programs that load far
more than they add do not wait for the array, and stay as they are. A tile of neighbours, which have one owner each, is
added without atomics; where it lies is the same for all threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects import arith, gpu, memref, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, VectorType, f32, i32, i64
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.dialects import xetile
from tilewright.dialects.movement import shape_of
from tilewright.dialects.nesting import terminator
from tilewright.passes.carried import operands_of, reached
from tilewright.passes.emit import Before, Inserter
from tilewright.passes.integers import dimension_of
from tilewright.passes.memory_objects import (
    is_array_argument,
    is_memref,
    is_pure,
    may_alias,
    may_read,
    may_write,
    memory_root,
)
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
    found = _sums(function)
    if not found or not make_persistent(function, remarks):
        return 0
    extent = ROOM // 4 // len(found)
    extent = 1 << extent.bit_length() - 1
    for source, ops in found.items():
        _rewrite(function, source, ops, extent)
    Before(_loop(function)).insert(gpu.BarrierOp())  # so that none is needed in the loop
    return len(found)


def _sums(function: gpu.FuncOp) -> dict[SSAValue, list[xetile.AtomicRmwOp]]:
    """The atomics that may go to shared memory first, by the array that they name."""
    ops = list(function.walk())
    if shares_memory(function) or any(isinstance(op, xetile.TileMmaOp) for op in ops):
        return {}
    found: dict[SSAValue, list[xetile.AtomicRmwOp]] = {}
    others: list[SSAValue] = []
    for op in ops:
        if isinstance(op, xetile.AtomicRmwOp) and (source := _source(op)) is not None:
            found.setdefault(source, []).append(op)
        elif may_read(op) or may_write(op):
            for value in op.operands:
                init = value.owner
                if isinstance(init, xetile.InitTileOp):
                    others.append(memory_root(init.source))
                elif is_memref(value) or isinstance(value.type, xetile.TileType):
                    others.append(memory_root(value))
    loads = [op for op in ops if isinstance(op, xetile.LoadTileOp | xetile.LoadGatherOp)]
    loaded = sum(prod(shape_of(value)) for op in loads for value in op.results)
    added = sum(prod(shape_of(op.value)) for each in found.values() for op in each)
    if loaded >= FEW * added:
        return {}
    roots = {source: memory_root(source) for source in found}
    return {
        source: ops
        for source, ops in found.items()
        if not any(
            may_alias(roots[source], other)
            for other in (*others, *(r for s, r in roots.items() if s is not source))
        )
    }


def _source(op: xetile.AtomicRmwOp) -> SSAValue | None:
    """The one-dimensional array that an atomic adds to; None where it does something else."""
    init, kind = op.tile.owner, op.kind
    if kind not in ("addi", "addf") or op.result.first_use is not None:
        return None
    if op.tile_type.element_type not in (f32, i32):
        return None
    if not isinstance(init, xetile.InitTileOp) or op.tile_type.memory_space:
        return None
    source = init.source
    if not isinstance(source.type, MemRefType) or source.type.get_num_dims() != 1:
        return None
    if any(dimension_of(n) != (source, 0) for n in init.mixed_sizes if isinstance(n, SSAValue)):
        return None
    if not is_array_argument(memory_root(source)) or _maker(source) is None:
        return None
    return source


def _maker(source: SSAValue) -> Sequence[Operation] | None:
    """The ops that make a view of an argument from what every program has alike, in order; None where others do."""
    owners = {value.owner for value in reached([source], operands_of)}
    made = [op for op in owners if isinstance(op, Operation)]
    if any(not is_pure(op) or op.regions or isinstance(op, gpu.BlockIdOp) for op in made):
        return None
    (kernel, *others) = {b.parent_op() for b in owners if not isinstance(b, Operation)}
    if not isinstance(kernel, gpu.FuncOp) or others:
        return None  # of a loop's values
    return [op for op in kernel.walk() if op in owners]


def _rewrite(
    function: gpu.FuncOp, source: SSAValue, ops: Sequence[xetile.AtomicRmwOp], extent: int
) -> None:
    top, element = function.body.block, ops[0].tile_type.element_type
    at = Before(_loop(function))
    copies: dict[SSAValue, SSAValue] = {}
    for op in _maker(source) or ():
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

    def there() -> None:
        end = scf.YieldOp()
        body = Block([end], arg_types=[IndexType()])
        at.insert(scf.ForOp(at.index(0), count, at.index(STEP), [], Region(body)))
        each, first = Before(end), body.args[0]
        found = each.add(xetile.LoadTileOp(_init(each, sums, shape, element, first)))
        places = each.coordinates(first, shape, 1)
        kind = xetile.TileType(shape, element, xetile.TileAttr(scattered=True))
        tile = each.add(xetile.InitTileOp(array, kind, offset_vector=places))
        each.insert(xetile.AtomicRmwOp(op.kind, found, tile))

    at.choose(fits, [], there, lambda: None)
