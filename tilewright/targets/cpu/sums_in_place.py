"""Sums in place: a contraction whose result is stored as it is writes to the array, not to a buffer that is copied.

    %c = stage.contract ... init(zero)               C[tile] = A B            where the tile lies in the array, and k
    stage.fused { xetile.store_tile %c, %tile }                               is one block or the array small
                                                     buffer = A B; a copy     elsewhere

Sums of several blocks of k are read again: rows of a large array are far apart, those of the buffer are not. An array
that the second cache holds is no farther than the buffer, nor are sums that are fetched before they are needed, but for
the first and last lines of a tile's rows, which other cores write, too: rows are to be longer than that. Tiles of a
matrix unit store 64 bytes of 16 rows at a time: where rows of the array do not all begin where lines do, that is two
lines of each, which come from other cores one by one, and a copy of whole rows is faster.
Requires that nothing reads or writes memory between the two, and that the operands are panels of packed arrays: no op
of the launch writes those (see `passes/packing.py`), so none of them is the result's. Micro-kernels write whole blocks:
where the array ends within one, vectors sum in spare memory, from where what the array has is copied; tiles of a matrix
unit, small tiles (see `lying`), and sums of which tasks share k, lie wholly in the array or wait in the buffer. Which
of the two happens is decided at run time, and one loop nest serves both: the address and the distance of rows are
selected before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from tilewright.codegen.tiles import Tile, element_of, itemsize, rows_cols
from tilewright.dialects import xetile as xt
from tilewright.dialects.fused import ContractOp, FusedOp
from tilewright.dialects.upstream.arith import folded
from tilewright.passes.memory_objects import is_quiet
from tilewright.targets.cpu.evaluate import Evaluator
from tilewright.targets.cpu.machine import LONGEST, STREAM_BYTES, CpuMachine
from tilewright.targets.cpu.memory import Buffer, Edge
from tilewright.targets.cpu.packed_array import panel_of
from tilewright.targets.cpu.product_cost import BLOCK_BYTES
from tilewright.targets.cpu.roles import roles_of
from tilewright.uarch.cpu import Caches

LEAST_ROW = 256
"""Bytes of a tile's row whose sums are read again in an array: by half as many, 16 x 4096 x 4096 f32 takes 1.09 of the
time on 16 threads."""


class PlainStore(NamedTuple):
    """A store that micro-kernels can do, and how deep their blocks of k are."""

    op: xt.StoreTileOp
    depth: int
    fetched: bool
    """Micro-kernels fetch the sums before they add to them, wherever these are."""
    tiles: bool
    """They store tiles of a matrix unit."""
    block: int
    """Bytes of a block that vectors may sum in spare memory; 0: tiles lie wholly in the array."""


def plain_store(m: CpuMachine, op: ContractOp, i: int) -> PlainStore | None:
    """The store of the `i`-th result of a contraction, if that is all that its group and anybody does with it."""
    result, (a, b) = op.values[i], op.pairs[i]
    uses = list(result.uses)
    store = uses[0].operation if len(uses) == 1 else None
    if not isinstance(store, xt.StoreTileOp) or store.mask is not None or store.value is not result:
        return None
    group = store.parent_op()
    if not isinstance(group, FusedOp) or group.parent is not op.parent:
        return None
    if len(group.body.block.ops) != 2 or None in map(panel_of, (a, b)):
        return None
    between = op.next_op
    while between is not group:
        if between is None or between.regions or not is_quiet(between):
            return None
        between = between.next_op
    element = element_of(result.type)
    roles = roles_of(m, a, b, element)
    if roles.swapped or roles.thin is not None:
        return None
    (rows, cols), family = rows_cols(result.type), roles.family
    spare = family.mr * family.nr * family.panels * itemsize(element)
    spare = spare if max(rows, cols) > LONGEST and cols > 1 and not family.tiles else 0
    whole = spare > 0 or (rows % family.mr == 0 and cols % family.nr == 0)
    same = store.tile.type.element_type == family.accumulator == element  # pyright: ignore
    found = PlainStore(store, family.depth, family.in_place, family.tiles, spare)
    return found if whole and same else None


def in_array(
    e: Evaluator,
    op: ContractOp,
    store: PlainStore,
    buffer: Buffer,
    one: SSAValue,
    local: Callable[[int], SSAValue],
) -> tuple[SSAValue, Buffer]:
    """Whether the tile is summed in its array, whose rows lie together and which the caches may hold, the second one
    where k is several blocks; and its part of the array where that is so, else `buffer`. `one`: does one task sum all
    of it? `local`: gives memory of the workgroup."""
    b, size = e.b, itemsize(buffer.element)
    tile = e.values.tile(store.op.tile)
    assert isinstance(tile, Tile)
    lo, hi = (folded(e.scalar(v)) for v in (op.lo, op.hi))
    long = buffer.shape[1] * size >= LEAST_ROW
    again = BLOCK_BYTES if long else 0
    most = b.select(b.cmp("sle", b.minus(hi, lo), store.depth), STREAM_BYTES, again)
    near = b.cmp("slt", b.times(b.times(tile.extents[0], tile.strides[0]), size), most)
    inside = None if store.fetched and long else near
    if store.tiles:
        lines = b.rem(b.times(tile.strides[0], size), Caches.line)
        inside = b.both(inside, b.cmp("eq", lines, 0))
    whole: SSAValue | None = None
    left = [tile.limit(b, axis) for axis in range(2)]
    for n, most in zip(buffer.shape, left, strict=True):
        whole = b.both(whole, b.cmp("sle", n, most))
    assert whole is not None
    if store.block:
        # Parts are added to it by whole vectors.
        vectors = buffer.shape[1] * size % Caches.line == 0
        whole = b.either(whole, one) if vectors else one
    for condition in (
        b.cmp("eq", tile.strides[1], 1),
        *(b.cmp("sge", offset, 0) for offset in tile.offsets),
        whole,
    ):
        inside = b.both(inside, condition)
    assert inside is not None
    edge = None
    if store.block:
        rows, cols = (
            b.select(inside, b.min(most, n), n) for n, most in zip(buffer.shape, left, strict=True)
        )
        edge = Edge(rows, cols, local(store.block))
    start = b.plus(b.times(tile.offsets[0], tile.strides[0]), tile.offsets[1])
    there = b.ptr(tile.pointer, b.times(start, size))
    pointer = b.value(arith.SelectOp(inside, there, buffer.pointer))
    ld = b.select(inside, tile.strides[0], buffer.ld)
    return inside, replace(buffer, pointer=pointer, ld=ld, padded_rows=0, edge=edge)
