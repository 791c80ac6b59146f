"""Where a contraction finds its operands, block of k by block of k.

An operand is, in this order of preference,
  a packed array     made before the workgroups start, where a launch reads its elements often; where it reads them few
                     times, a workgroup packs the block that it is about to use into memory of its own, by the same
                     function: the operand then comes from its array once, and from the second cache after that. Rows
                     of A or B that a micro-kernel can read as they stand are read from the array, where few panels of
                     the other side need them: all whole panels. A micro-kernel of tiles reads those of A there anyway
                     the first time, and makes the copy while it multiplies
  a buffer           of the workgroup, read where it was computed, if its rows are what a micro-kernel reads
  packed here        computed, or loaded in a way that no pack can take over: packed block by block, too
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import VectorType
from xdsl.ir import OpResult, SSAValue

from tilewright.codegen.builder import Builder, Idx, index
from tilewright.codegen.tiles import Tile, itemsize, rows_cols
from tilewright.dialects import mach
from tilewright.dialects import xetile as xt
from tilewright.dialects.fused import PanelOp
from tilewright.dialects.upstream.arith import folded
from tilewright.frozen import frozen, record
from tilewright.targets.cpu.evaluate import Evaluator
from tilewright.targets.cpu.family import Family, Later, PanelOperand
from tilewright.targets.cpu.machine import (
    PAGED_BYTES,
    SHARED_BYTES,
    SPREAD,
    STREAMS,
    STRIP_BYTES,
    CpuMachine,
    among_sets,
)
from tilewright.targets.cpu.memory import Buffer
from tilewright.targets.cpu.packed_array import PackedArray, Placed, panel_of
from tilewright.targets.cpu.panels import PanelFormat, block_depth, pack_block
from tilewright.uarch.cpu import Caches

PACK_ARGUMENTS = (mach.ptr, index, index, index, index, index, mach.ptr, index)
"""Of a function that packs panels (`packing.emit_pack_function`)."""


@frozen
class Finder:
    """Panel number -> operand, for one block of k."""

    packed: Callable[[Idx], PanelOperand]
    direct: Callable[[Idx], PanelOperand] | None = None
    """The first `count` panels, where they are in their array."""
    count: Idx = 0
    copied: bool = False
    """Only once: who reads them there leaves them where `packed` finds them (see `PanelOperand.copy`)."""

    def __call__(self, panel: Idx) -> PanelOperand:
        return self.packed(panel)


@record
class Side:
    """One operand of the product being emitted: how far it reaches, and where its panels are for a block of k."""

    format: PanelFormat
    x_count: Idx
    """x that may be other than zero, counted from the tile's start."""
    k_count: Idx
    """The same for k."""
    locate: Callable[[Idx, Idx], Finder]
    """Panels for (first k, end of k) of a block; packs them if need be. What lies beyond the end up to a whole group
    is zero, unless the array goes on there."""
    partial: Callable[[Idx, Idx], Finder]
    """The same for a block of less than a group: beyond its end it is zero."""
    start: Idx | None = None
    """k of the tile's start in the packed array, where that has blocks: as deep as the family's, or several."""


class Operands:
    """Operands of contractions of one function. `local(bytes)` gives scratch memory of the workgroup."""

    def __init__(
        self,
        e: Evaluator,
        m: CpuMachine,
        packed: dict[SSAValue, PackedArray],
        local: Callable[[int], SSAValue],
    ):
        self.e = e
        self.b: Builder = e.b
        self.m = m
        self.packed = packed
        self.local = local

    def side(
        self,
        value: SSAValue,
        family: Family,
        x_axis: int,
        count: int,
        length: Idx,
        few: bool = False,
        swapped: bool = False,
    ) -> Side:
        """Operand `value`: A (x_axis 0) or B (1), `count` x by `length` k. `few`: each panel is used that often;
        `swapped`: each takes the other's place (see `roles`)."""
        format = family.a if (x_axis == 0) ^ swapped else family.b
        value = self.e.values.real(value)
        if (panel := panel_of(value)) is not None:
            return self.panel_side(panel, family, count, few, format is family.b)
        buffer = None if swapped else self.e.values.buffers.get(value)
        if buffer is not None and buffer.element == format.element and format.parts == 1:
            # A tile of A is rows of a row-major buffer, as long as no row ends within it.
            rows = x_axis == 0 and family.b.group < format.group
            if format.group == 1 or (rows and buffer.shape[1] % format.group == 0):
                return self.buffer_side(buffer, format, x_axis, count, length)
        return self.packed_side(value, family, format, x_axis, count, length)

    def placed(self, op: PanelOp) -> Placed:
        """Where in its array an operand that may be packed ahead starts."""
        b = self.b
        array = self.packed[self.e.values.real(op.panels)]
        offsets = [folded(self.e.scalar(v)) for v in op.offsets]
        if len(offsets) == 1:
            offsets = [0, *offsets]
        k0, x0 = offsets[-2:] if array.k_axis == 0 else reversed(offsets[-2:])
        batch: Idx = 0
        origin: Idx = 0
        outside: SSAValue | None = None
        for offset, extent, stride in zip(
            offsets[:-2], array.batch_sizes, array.batch_strides, strict=True
        ):
            batch = b.plus(b.times(batch, extent), offset)
            origin = b.plus(origin, b.times(offset, stride))
            outside = b.both(outside, b.cmp("slt", offset, extent))
        x_count = b.minus(array.x_extent, x0)
        if outside is not None:
            x_count = b.select(outside, x_count, 0)
        return Placed(array, x0, k0, x_count, b.minus(array.k_extent, k0), batch, origin)

    def panel_side(self, op: PanelOp, family: Family, count: int, few: bool, role_b: bool) -> Side:
        b, unit, placed = self.b, family.group, self.placed(op)
        array, k0, x0, x_count = placed.array, placed.k, placed.x, placed.x_count
        batch, origin, format = placed.batch, placed.origin, placed.array.format
        first = format.panels_before(b, x0)
        panels = b.ceildiv(b.max(b.min(count, x_count), 0), format.lanes)

        def locate(begin: Idx, end: Idx, where: bool = True) -> Finder:
            k = b.plus(k0, begin)
            pointer, panel_bytes = array.place(b, batch, first, k)
            below = b.times(
                array.panels if array.depth else 1, family.depth * format.lanes * format.bytes
            )
            own, own_bytes = self.block_memory(family, format, count, array.along_k)
            here = b.negated(array.ahead)
            stop = b.plus(k, b.round_up(b.minus(end, begin), unit))
            as_it_is: Idx = 0
            size, k_bytes = itemsize(format.element), format.parts * format.part_bytes
            lies: SSAValue | None = None
            later: Later | None = None
            copied = family.tiles and not few
            in_rows = not role_b and (few or copied or family.in_place)
            # Vectors take elements of A one by one: rows of single k, read by few panels of B, need no panels either.
            across = few and family.single and not array.along_k and array.x_stride == 1
            if few and where and array.verbatim and role_b:
                # Rows along x of single k: a vector of them is what a panel would hold.
                if format.group == 1 and array.x_stride == 1:
                    row = b.times(array.k_stride, size)
                    reach, most = array.k_extent, SHARED_BYTES
                    if family.in_place:  # each panel of A reads all of a block
                        reach, most = b.min(reach, family.depth), PAGED_BYTES
                    near = b.both(spread(b, row), b.cmp("sle", b.times(reach, row), most))
                    lies = b.both(here, near)
                    assert lies is not None
                    here = b.value(arith.AndIOp(here, b.negated(lies)))
            elif in_rows and where and array.verbatim and (array.along_k or across):
                inside = b.both(here, b.cmp("sle", stop, array.k_extent))
                if across:
                    inside = b.both(inside, spread(b, b.times(array.k_stride, size)))
                assert inside is not None
                whole = b.min(b.div(b.max(x_count, 0), format.lanes), panels)
                as_it_is = b.select(inside, whole, 0)
            with b.when(here):
                packed = b.ptr(own, b.times(as_it_is, own_bytes))
                start, last = b.plus(first, as_it_is), b.plus(first, panels)
                array.fill(b, origin, start, last, k, stop, packed, own_bytes)
            pointer = b.value(arith.SelectOp(array.ahead, pointer, own))
            panel_bytes = b.select(array.ahead, panel_bytes, own_bytes)
            passed = b.times(b.minus(b.div(k, family.depth), b.div(k0, family.depth)), below)
            after = b.minus(b.times(panels, panel_bytes), passed) if array.depth else 0
            below, after = (b.select(array.ahead, v, 0) for v in (below, after))
            if lies is not None:
                pitch = b.times(array.k_stride, size)
                corner = b.ptr(array.matrix, b.times(b.plus(origin, x0), size))
                corner = b.ptr(corner, b.times(k, pitch))
                pointer = b.value(arith.SelectOp(lies, corner, pointer))
                panel_bytes = b.select(lies, format.lanes * size, panel_bytes)
                k_bytes = b.select(lies, pitch, k_bytes)
                below = b.select(lies, b.times(pitch, family.depth), below)
                if 2 * count * family.depth * format.bytes <= STRIP_BYTES:
                    copies = b.negated(b.either(array.ahead, lies))
                    copies = b.both(copies, b.cmp("slt", stop, array.k_extent))
                    assert copies is not None
                    later = Later(copies, b.ptr(corner, b.times(pitch, family.depth)), pitch)
            find = self.finder(format, pointer, panel_bytes, below, after, k_bytes)
            if lies is not None:
                # Behind a row that ends within a panel stands the next one, if there is one.
                beyond = b.select(lies, b.minus(b.times(panels, format.lanes), x_count), 0)
                enough = b.cmp("sle", beyond, array.k_stride)
                followed = b.select(enough, b.minus(array.k_extent, 1), 0)
                whole = b.select(b.cmp("sgt", beyond, 0), followed, array.k_extent)
                whole = b.minus(whole, k)

                def packed_or_lying(i: Idx) -> PanelOperand:
                    found, x = find(i), b.times(i, format.lanes)
                    lanes = b.select(lies, b.minus(x_count, x), format.lanes)
                    found = replace(found, lanes=lanes, whole=whole)
                    if later is None:
                        return found
                    next = b.ptr(later.pointer, b.times(x, size))
                    return replace(found, later=replace(later, pointer=next))

                return replace(find, packed=packed_or_lying)
            if as_it_is == 0:
                return find
            pitch = b.times(array.k_stride if across else array.x_stride, size)
            along, aside = (x0, k) if across else (k, x0)
            corner = b.ptr(array.matrix, b.times(b.plus(origin, along), size))
            corner = b.ptr(corner, b.times(aside, pitch))

            # Beside vectors few rows are read so slowly that what a core fetches by itself comes late, too.
            late = few and not family.in_place and (family.single or count > STREAMS)
            ahead = family.depth * size if late else 0

            def rows(i: Idx) -> PanelOperand:
                if across:
                    start = b.ptr(corner, b.times(i, format.lanes * size))
                    return PanelOperand(start, size, pitch, Caches.line)
                start = b.ptr(corner, b.times(b.times(i, format.lanes), pitch))
                copy = find(i).pointer if copied else None
                return PanelOperand(start, pitch, format.group * size, None, ahead, copy=copy)

            return replace(find, direct=rows, count=as_it_is, copied=copied)

        def partial(begin: Idx, end: Idx) -> Finder:
            return self.cut(
                format, locate(begin, end, where=False), panels, count, b.minus(end, begin), unit
            )

        start = k0 if array.depth else None
        return Side(format, x_count, placed.k_count, locate, partial, start)

    def finder(
        self,
        format: PanelFormat,
        start: SSAValue,
        panel_bytes: Idx,
        below_bytes: Idx = 0,
        after_bytes: Idx = 0,
        k_bytes: Idx | None = None,
    ) -> Finder:
        """Panels `panel_bytes` apart; those of the next block of k `below_bytes` behind them, those of the next program
        `after_bytes`. `k_bytes`: between groups of k, where these do not follow one another."""
        b, size = self.b, itemsize(format.element)

        def panel(i: Idx) -> PanelOperand:
            pointer = b.ptr(start, b.times(i, panel_bytes))
            group = format.group
            step = format.parts * format.part_bytes if k_bytes is None else k_bytes
            return PanelOperand(pointer, group * size, step, panel_bytes, below_bytes, after_bytes)

        return Finder(panel)

    def cut(
        self, format: PanelFormat, find: Finder, panels: Idx, count: int, kept: Idx, unit: int
    ) -> Finder:
        """Copies of panels, one unit of k deep, with zeros from k = `kept` on."""
        b = self.b
        size, lanes, group = itemsize(format.element), format.lanes, format.group
        vector = min(self.m.vector_bytes // size, lanes * group)
        type: Any = VectorType(format.element, [vector])
        within = b.dense(VectorType(index, [vector]), [i % group for i in range(vector)])
        panel_bytes = unit * lanes * format.bytes
        memory = self.local(-(-count // lanes) * panel_bytes)
        with (
            b.loop(0, panels) as p,
            b.loop(0, unit, group) as k,
            b.loop(0, format.parts * lanes * group, vector) as at,
        ):
            offset = b.plus(b.times(k.iv, lanes * format.bytes), b.times(at.iv, size))
            source = b.load(b.ptr(find(p.iv).pointer, offset), type)
            left = b.splat(b.idx(b.minus(kept, k.iv)), vector)
            keep = b.value(arith.CmpiOp(within, left, "slt"))
            source = b.value(arith.SelectOp(keep, source, b.constant(type, 0)))
            b.store(source, b.ptr(b.ptr(memory, b.times(p.iv, panel_bytes)), offset))
        return self.finder(format, memory, panel_bytes)

    def buffer_side(
        self, buffer: Buffer, format: PanelFormat, x_axis: int, count: int, length: Idx
    ) -> Side:
        """An operand read from where it was computed; rows and columns are padded, what is there does not matter."""
        b, size = self.b, itemsize(buffer.element)
        pitch = b.times(buffer.ld, size)

        def locate(begin: Idx, end: Idx) -> Finder:
            def panel(i: Idx) -> PanelOperand:
                if x_axis == 0:
                    start = buffer.address(b, b.times(i, format.lanes), begin)
                    return PanelOperand(start, pitch, format.group * size)
                start = buffer.address(b, begin, b.times(i, format.lanes))
                return PanelOperand(start, size, pitch)

            return Finder(panel)

        return Side(format, count, length, locate, locate)

    def packed_side(
        self,
        value: SSAValue,
        family: Family,
        format: PanelFormat,
        x_axis: int,
        count: int,
        length: Idx,
    ) -> Side:
        """An operand packed block by block into the workgroup's memory, with zeros up to a whole group of k."""
        b, e, m = self.b, self.e, self.m
        unit, size = family.group, itemsize(format.element)
        along_k = contiguous_axis(e, value) == 1 - x_axis
        depth = block_depth(format, along_k, m.vector_bytes)
        memory, panel_bytes = self.block_memory(family, format, count, along_k, length)

        def locate(begin: Idx, end: Idx) -> Finder:
            with b.loop(0, -(-count // format.lanes), nonempty=True) as p:
                x = b.times(p.iv, format.lanes)
                target = b.ptr(memory, b.times(p.iv, panel_bytes))
                filled = b.plus(begin, b.round_up(b.minus(end, begin), unit))
                with b.loop(begin, filled, depth) as k, e.scope():
                    relative = b.minus(k.iv, begin)
                    pack_block(
                        b, format, lambda place: e.at(value, place),
                        b.ptr(target, b.times(relative, format.lanes * format.bytes)), x, k.iv, depth,
                        x_axis=x_axis, along_k=along_k, vector_bytes=m.vector_bytes, inside=False,
                        limit=end if max(depth, unit) > 1 else None,
                    )  # fmt: skip

            def panel(i: Idx) -> PanelOperand:
                pointer = b.ptr(memory, b.times(i, panel_bytes))
                return PanelOperand(pointer, format.group * size, format.parts * format.part_bytes)

            return Finder(panel)

        return Side(format, count, length, locate, locate)

    def block_memory(
        self,
        family: Family,
        format: PanelFormat,
        count: int,
        along_k: bool,
        length: Idx | None = None,
    ) -> tuple[SSAValue, int]:
        """Memory of the workgroup for panels of `count` x, as deep as a block of k: its address, bytes per panel."""
        step = max(block_depth(format, along_k, self.m.vector_bytes), family.group)
        capacity = -(-family.depth // step) * step
        if isinstance(length, int):
            capacity = min(capacity, -(-length // step) * step)
        # A line more: a row of B is written to all panels, which a power of two apart would share sets of caches.
        panel_bytes = capacity * format.lanes * format.bytes + Caches.line
        return self.local(-(-count // format.lanes) * panel_bytes), panel_bytes


def spread(b: Builder, pitch: Idx) -> SSAValue:
    """Do rows so many bytes apart use most sets of the second cache?"""
    return b.cmp("sge", among_sets(pitch, b.plus, b.rem), SPREAD)


def contiguous_axis(e: Evaluator, value: SSAValue) -> int:
    """The axis of `value` along which the memory that it comes from is contiguous; 1 when there is none."""
    flipped = False
    for _ in range(64):
        value = e.values.real(value)
        buffer = e.values.buffers.get(value)
        if buffer is not None or not isinstance(value, OpResult):
            return 0 if flipped else 1
        op = value.op
        if isinstance(op, xt.LoadTileOp):
            tile = e.values.tiles.get(e.values.real(op.tile))
            if isinstance(tile, Tile):
                axis = 0 if tile.strides[0] == 1 and tile.strides[1] != 1 else 1
                return 1 - axis if flipped else axis
            return 1
        if isinstance(op, xt.TransposeOp) and op.permutation == (1, 0):
            flipped = not flipped
        wide = [v for v in op.operands if isinstance(v.type, VectorType)]
        wide = [v for v in wide if rows_cols(v.type) not in ((1, 1),)]
        wide.sort(key=lambda v: 1 in rows_cols(v.type))
        if not wide:
            return 1
        value = wide[0]
    return 1
