"""Subgroup to lane: every lane computes the addresses of its own registers.

Part of :mod:`tilewright.passes.xegpu.subgroup_distribute`: what blocks become where the machine has no 2D block message
for them. Neighbours in memory that are known to be aligned go together in one access; a register outside of the
base matrix is not accessed, and reads as 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    BoolAttr,
    IntegerAttr,
    MemRefType,
    NoneAttr,
    UnitAttr,
    VectorType,
    i32,
    i64,
)
from xdsl.ir import Attribute, SSAValue

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.cache_hints import Hints, hints_of
from tilewright.dialects.folding import below, is_below
from tilewright.dialects.movement import memref_type
from tilewright.dialects.numerals import number_attr
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.upstream.strided import Metadata, row_of
from tilewright.dialects.upstream.views import moved
from tilewright.dialects.xetile.assembly import Index
from tilewright.frozen import frozen
from tilewright.passes.xegpu.block_messages import base_of
from tilewright.passes.xegpu.lanes import LaneProgram
from tilewright.passes.xegpu.lazy_registers import Register


@frozen
class RowSurface:
    """A base as a row of elements: address or 1-D memref, and its matrix' sizes and strides."""

    base: SSAValue
    sizes: tuple[Index, ...]
    strides: tuple[Index, ...]


# --- Blocks without block messages ---------------------------------------------------------------


def surface_of(d: LaneProgram, op: xegpu.BlockAccess) -> RowSurface:
    source = base_of(d, op)
    sizes, strides = d.numbers(source.mixed_shape), d.numbers(source.mixed_strides)
    base = d.env[source.source]
    if isinstance(base.type, MemRefType):
        found = _metadata(d, base)
        sizes, strides = sizes or found.sizes, strides or found.strides
        base = flattened(d, base, sizes, strides)
    return RowSurface(base, tuple(sizes), tuple(strides))


def _metadata(d: LaneProgram, base: SSAValue) -> Metadata:
    return Metadata(base, lambda op: d.once(("metadata", base), op).owner)  # pyright: ignore


def flattened(
    d: LaneProgram, base: SSAValue, sizes: Sequence[Index], strides: Sequence[Index]
) -> SSAValue:
    """A memref as a row of elements that begins where it begins."""
    kind = memref_type(base)
    if kind.get_shape() and len(kind.get_shape()) == 1 and isinstance(kind.layout, NoneAttr):
        return base
    key = ("flat", base, *sizes, *strides)
    return d.once(key, lambda: d.add(row_of(d, _metadata(d, base), sizes, strides)))


def block_offsets(d: LaneProgram, op: xegpu.BlockAccess, rank: int) -> list[Index]:
    """Where the block begins, one number per dimension of the base."""
    source = base_of(d, op)
    first = d.shifted([0] * rank, d.numbers(source.mixed_offsets))
    return d.shifted(first, d.numbers(op.mixed_offsets or []))


def element_places(
    d: LaneProgram,
    op: xegpu.BlockAccess,
    layout: ly.Layout,
    surface: RowSurface,
    registers: Sequence[int],
    *,
    bounded: bool,
    clamped: bool = False,
) -> tuple[list[Index], list[SSAValue | None]]:
    """Of each of some registers: its element's distance from the base, and whether it is inside (None: is).

    `layout` is over rows, columns (or elements of a row). Unless `bounded` all of the block is inside. `clamped`:
    what is outside has the distance of an element at the edge, so that reading there is harmless.
    """
    rank, block_rank = len(surface.sizes), len(op.tdesc.get_shape())
    offsets = block_offsets(d, op, rank)
    lane, register = layout.lane_starts, layout.register_steps
    lead = rank - block_rank
    # What is the same for all lanes is added first: it stays in scalar registers, one part is the lane's.
    start: Index = 0
    own: Index = 0
    inside: SSAValue | None = None
    clamped = clamped and bounded
    tables: list[Index] = [0] * rank
    for n in range(rank):
        if not clamped:
            start = d.plus(start, d.times(offsets[n], surface.strides[n]))
        elif n < lead:
            safe = _clamped(d, offsets[n], surface.sizes[n])
            start = d.plus(start, d.times(safe, surface.strides[n]))
        if n >= lead:
            tables[n] = d.index_table([int(x) for x in lane[n - lead]])
            own = d.plus(own, d.times(tables[n], surface.strides[n]))
        elif bounded:
            inside = below(d, inside, offsets[n], surface.sizes[n])
    distances: list[Index] = []
    masks: list[SSAValue | None] = []
    for r in registers:
        distance, mask = start, inside
        for n in range(lead, rank):
            step = int(register[n - lead][r])
            if clamped:
                # Row by row and column by column: sums that differ by constants would be kept for each other.
                place = d.plus(d.plus(offsets[n], step), tables[n])
                safe = _clamped(d, place, surface.sizes[n])
                distance = d.plus(distance, d.times(safe, surface.strides[n]))
            else:
                distance = d.plus(distance, d.times(step, surface.strides[n]))
            if bounded:
                place = d.plus(d.plus(offsets[n], step), tables[n])
                mask = below(d, mask, place, surface.sizes[n])
        distances.append(distance if clamped else d.plus(distance, own))
        masks.append(mask)
    return distances, masks


def _clamped(d: LaneProgram, place: Index, extent: Index) -> Index:
    """The nearest index of an extent; 0 for none."""
    if is_below(place, extent):
        return place
    if isinstance(extent, int):
        last: Index = max(extent, 1) - 1
    else:
        last = d.plus(d.binary(arith.MaxSIOp, extent, d.index(1)), -1)
    return d.binary(arith.MinUIOp, d.index(place), d.index(last))


def lane_load(
    d: LaneProgram,
    base: SSAValue,
    offset: Index,
    mask: SSAValue | None,
    element: Attribute,
    size: int,
    hints: Hints,
    *,
    zero: bool,
    align: int = 0,
    clamped: bool = False,
) -> list[Register]:
    """One lane's access of `size` elements in a row; masked-off elements are 0 where `zero` asks for it."""
    kind = VectorType(element, [size]) if size > 1 else element  # pyright: ignore
    load = xegpu.LoadGatherOp(
        base,
        _everywhere(d, mask),
        kind,
        size if size > 1 else None,
        offsets=d.index(offset),
        hints=hints,
    )
    load.attributes |= aligned(align) | ({CLAMPED: UnitAttr()} if clamped else {})
    made = d.add(load)
    if zero and mask is not None:
        # Aligned elements are chosen as the words that they come in: fewer selects, no copies of halves.
        seen = d.seen_as(made, i32) if size > 1 and align % 4 == 0 and align else made
        nothing = d.constant(number_attr(seen.type, 0))
        made = d.seen_as(d.add(arith.SelectOp(mask, seen, nothing)), element)
    return [(made, n) for n in range(size)]


def lane_store(
    d: LaneProgram,
    base: SSAValue,
    offset: Index,
    mask: SSAValue | None,
    registers: Sequence[Register],
    hints: Hints,
    align: int = 0,
) -> None:
    size, value, on = len(registers), d.together(registers), _everywhere(d, mask)
    chunk, to = size if size > 1 else None, d.index(offset)
    store = xegpu.StoreScatterOp(value, base, on, chunk, offsets=to, hints=hints)
    store.attributes |= aligned(align)
    d.put(store)


def _everywhere(d: LaneProgram, mask: SSAValue | None) -> SSAValue:
    return d.constant(BoolAttr.from_bool(True)) if mask is None else mask


def once_per_element(d: LaneProgram, layout: ly.Layout, mask: SSAValue | None) -> SSAValue | None:
    """The mask of lanes that write: of lanes that hold the same element the first."""
    lanes = np.arange(d.lanes)
    copies = layout.replica_part(ly.Axis.LANE, lanes)
    if not copies.any():
        return mask
    first = d.chosen(copies == 0)
    return d.also(mask, first)


def scattered_prefetch(d: LaneProgram, op: xegpu.PrefetchNdOp) -> None:
    """Each lane fetches the lines of some rows; a row outside becomes the first element."""
    surface = surface_of(d, op)
    tdesc = op.tdesc
    *lead, width = tdesc.get_shape()
    itemsize = max(1, element_bits(tdesc.element_type) // 8)
    per_line = max(1, 64 // itemsize)
    rows = prod(lead)
    align = None if isinstance(surface.base.type, MemRefType) else itemsize
    for column in range(0, width * tdesc.array_length, per_line):
        for row in range(0, rows, d.lanes):
            places = [[min(row + lane, rows - 1) for lane in range(d.lanes)], [column] * d.lanes][
                2 - len(tdesc.get_shape()) :
            ]
            offset, mask = place_of(d, op, surface, places)
            if mask is not None:
                offset = d.add(arith.SelectOp(mask, d.index(offset), d.index(0)))
            to, hints = d.index(offset), hints_of(op)
            d.put(xegpu.PrefetchOp(surface.base, align, offsets=to, hints=hints))


def place_of(
    d: LaneProgram, op: xegpu.BlockAccess, surface: RowSurface, places: Sequence[Sequence[int]]
) -> tuple[Index, SSAValue | None]:
    """Distance and mask of one element per lane of a block."""
    offsets = block_offsets(d, op, len(surface.sizes))
    found = d.shifted(offsets, [d.index_table(own) for own in places])
    mask: SSAValue | None = None
    for place, size in zip(found, surface.sizes, strict=True):
        mask = below(d, mask, place, size)
    return moved(0, found, surface.strides, d), mask


CLAMPED = "tilewright.clamped"
"""On a lane's load: its address may be read whatever its mask says."""
ALIGN = "tilewright.align"
"""On a lane's access: bytes that divide its address, where more is known than the size of an element."""


def aligned(bytes: int) -> dict[str, Attribute]:
    return {ALIGN: IntegerAttr(bytes, i64)} if bytes > 1 else {}
