"""`stage.contract` -> packed operands, cache blocks, micro-kernels.

    for block of k:                      (kc deep, aligned to the packed A)
      pack what is not packed yet        (operands that are computed, or whose packing could not be hoisted)
      for panel of B (nr columns):       stays in the first cache
        for panel of A (mr rows):        streams from the second
          C[mr x nr] += ...              in a buffer of the workgroup

Panels that lie outside the arrays are zero and are skipped, and so is k beyond either array.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import VectorType, i1
from xdsl.ir import OpResult, SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.dialects import xetile as xt
from tilewright.dialects.stage import ContractOp, PanelOp
from tilewright.dialects.upstream.arith import constant, folded
from tilewright.targets.cpu.evaluate import Evaluator
from tilewright.targets.cpu.family import Family, Operand
from tilewright.targets.cpu.machine import Machine
from tilewright.targets.cpu.memory import Buffer, Tile, itemsize, rows_cols
from tilewright.targets.cpu.micro import emit_micro, family_of, panel_start
from tilewright.targets.cpu.panels import PanelFormat, block_depth, pack_block

MAX_PREFETCHES = 16
"""Prefetches of B per micro-kernel: more would cost more than they hide."""


@dataclass(frozen=True)
class PackedArray:
    """A packed array at run time (see `stage.pack`).

    Element (x, k) of batch entry `e` lies in panel x / lanes; with `depth` = d > 0, blocks of d k follow one another,
    each with all panels; with 0 each panel holds all k.
    """

    pointer: SSAValue
    format: PanelFormat
    x_extent: Idx
    k_extent: Idx
    panels: Idx
    depth: int
    k_axis: int
    batch_sizes: tuple[Idx, ...]
    rounded_k: Idx


@dataclass
class Side:
    """One operand of the product being emitted: how far it reaches, and where its panels are for a block of k."""

    format: PanelFormat
    x_count: Idx
    """x that may be other than zero, counted from the tile's start."""
    k_count: Idx
    """The same for k."""
    locate: Callable[[Idx, Idx], Callable[[Idx], Operand]]
    """(first k, end of k) of a block -> (panel number -> operand); packs the block if need be."""
    block: tuple[Idx, int] | None = None
    """(k of the tile's start in the packed array, depth of its blocks)."""


class ContractEmitter:
    """Emits contracts of one function. `local(bytes)` gives scratch memory of the workgroup."""

    def __init__(
        self,
        e: Evaluator,
        m: Machine,
        packed: dict[SSAValue, PackedArray],
        local: Callable[[int], SSAValue],
        lower: Callable[[ContractOp], None],
    ):
        self.e = e
        self.b: Builder = e.b
        self.m = m
        self.packed = packed
        self.local = local
        self.lower_scalars = lower

    def emit(self, op: ContractOp, accumulators: list[Buffer], zero: list[bool]) -> None:
        """`accumulators` hold the initial values, unless these are `zero`, and receive the sums."""
        b, e = self.b, self.e
        lo, hi, step = (e.scalar(v) for v in (op.lo, op.hi, op.step))
        known_step = constant(step)
        trips: Idx
        length = b.sub(folded(hi), folded(lo))
        if known_step is not None:
            trips = b.ceildiv(b.max(length, 0), known_step)
        else:
            total = b.add(b.max(length, 0), b.sub(step, 1))
            trips = b.value(arith.DivSIOp(b.idx(total), step))
        e.values.scalars[op.body.block.args[0]] = lo
        self.lower_scalars(op)
        for (a, bb), c, empty in zip(op.pairs, accumulators, zero, strict=True):
            if c.ld == 1:
                self.column_product(a, bb, c, trips, empty)
            else:
                self.product(a, bb, c, trips, empty)

    def column_product(self, a: SSAValue, bb: SSAValue, c: Buffer, trips: Idx, zero: bool) -> None:
        """Micro-kernels write whole rows of registers, so that sums of one column need rows of their own."""
        b, size = self.b, itemsize(c.element)
        assert isinstance(a.type, VectorType) and isinstance(bb.type, VectorType)
        family = family_of(self.m, a.type, bb.type, c.element)
        padded = -(-c.shape[0] // self.m.row_unit) * self.m.row_unit
        pointer = self.local(padded * family.nr * size + 64)
        wide = Buffer(pointer, c.element, c.shape, family.nr, padded)

        def copy(source: Buffer, target: Buffer) -> None:
            with b.loop(0, c.shape[0]) as r:
                value = b.load(source.address(b, r.iv, 0), c.element)
                b.store(value, target.address(b, r.iv, 0))

        if not zero:
            copy(c, wide)
        self.product(a, bb, wide, trips, zero)
        copy(wide, c)

    def product(self, a: SSAValue, bb: SSAValue, c: Buffer, trips: Idx, zero: bool) -> None:
        b, m = self.b, self.m
        assert isinstance(a.type, VectorType) and isinstance(bb.type, VectorType)
        family = family_of(m, a.type, bb.type, c.element)
        rows, width = rows_cols(a.type)
        cols = rows_cols(bb.type)[1]
        length = b.mul(trips, width)
        side_a = self.side(a, family, 0, rows, length)
        side_b = self.side(bb, family, 1, cols, length)
        # Beyond the end of either array its operand is zero, and its panels hold nothing.
        length = b.min(length, b.min(side_a.k_count, side_b.k_count))
        length = b.max(length, 0)
        row_panels = b.ceildiv(b.max(b.min(rows, side_a.x_count), 0), family.mr)
        col_panels = b.ceildiv(b.max(b.min(cols, side_b.x_count), 0), family.nr)
        kc = m.depth(family.group)
        if zero:
            self.clear_skipped(
                c, length, b.mul(row_panels, family.mr), b.mul(col_panels, family.nr)
            )

        def block(k0: Idx, k1: Idx, first: SSAValue | None) -> None:
            """One block of k; `first`: nothing has been stored yet (None: known to be false)."""
            find_a = side_a.locate(k0, k1)
            find_b = side_b.locate(k0, k1)
            depth = b.round_up(b.sub(k1, k0), family.group)

            def columns(j: Idx, count: int) -> None:
                """All rows by `count` panels of B from panel j on."""
                operands = [find_b(b.add(j, p)) for p in range(count)]
                start = panel_start(b, m, family, operands, depth)
                with b.loop(0, row_panels) as i:
                    operand_a = find_a(i.iv)
                    for operand in operands:
                        self.prefetch_next(operand, family, rows, i.iv)
                    emit_micro(
                        b, m, family, operand_a, operands, c,
                        b.mul(i.iv, family.mr), b.mul(j, family.nr), depth, first, start,
                    )  # fmt: skip

            whole = b.mul(b.div(col_panels, family.panels), family.panels)
            with b.loop(0, whole, family.panels) as j:
                columns(j.iv, family.panels)
            for count in range(1, family.panels):
                with b.when(b.cmp("eq", b.sub(col_panels, whole), count)):
                    columns(whole, count)

        # Blocks are those of the packed A: the first and the last may be shorter.
        base, depth = side_a.block or (0, kc)
        skipped = b.rem(base, depth)
        if isinstance(length, int) and skipped == 0 and length <= depth:
            if length:
                block(0, length, b.constant(i1, 1) if zero else None)
            return
        start = b.sub(0, skipped)
        with b.loop(start, length, depth) as k:
            first = b.cmp("sle", k.iv, 0) if zero else None
            block(b.max(k.iv, 0), b.min(b.add(k.iv, depth), length), first)

    def prefetch_next(self, operand: Operand, family: Family, rows: int, i: Idx) -> None:
        """While panels of B are used, fetch those that come next, a part with every panel of A."""
        b = self.b
        lines = (
            self.m.depth(family.group)
            // family.b.group
            * operand.k_bytes
            // 64
            // max(1, rows // family.mr)
        )
        if operand.next_bytes is None or not 0 < lines <= MAX_PREFETCHES:
            return
        ahead = b.mul(operand.next_bytes, family.panels)
        base = b.ptr(b.ptr(operand.pointer, ahead), b.mul(i, lines * 64))
        for line in range(lines):
            b.prefetch(b.ptr(base, 64 * line), locality=2)

    def clear_skipped(self, c: Buffer, length: Idx, rows: Idx, cols: Idx) -> None:
        """Write zeros where no block will store: all of C if k is empty, else beyond the last panels."""
        b = self.b
        known_rows, known_cols = isinstance(rows, int), isinstance(cols, int)
        if isinstance(length, int) and length > 0 and known_rows and known_cols:
            return
        full = b.both(b.cmp("sgt", length, 0), b.cmp("sge", rows, c.shape[0]))
        full = b.both(full, b.cmp("sge", cols, c.shape[1]))
        assert full is not None
        missing = b.value(arith.XOrIOp(full, b.constant(i1, 1)))
        with b.when(missing):
            self.clear(c)

    def clear(self, c: Buffer) -> None:
        b = self.b
        lanes = self.m.vector_bytes // itemsize(c.element)
        rows = max(c.shape[0], c.padded_rows)
        if c.ld < lanes:  # a column lies without gaps
            with b.loop(0, rows * c.ld) as x:
                b.store(
                    b.constant(c.element, 0), b.ptr(c.pointer, b.mul(x.iv, itemsize(c.element)))
                )
            return
        zero = b.constant(VectorType(c.element, [lanes]), 0)  # pyright: ignore
        with (
            b.loop(0, rows) as r,
            b.loop(0, c.ld // lanes * lanes, lanes) as x,
        ):
            b.store(zero, c.address(b, r.iv, x.iv))

    # Operands -------------------------------------------------------------------------------------------------

    def side(self, value: SSAValue, family: Family, x_axis: int, count: int, length: Idx) -> Side:
        format = family.a if x_axis == 0 else family.b
        value = self.e.values.real(value)
        if isinstance(value, OpResult) and isinstance(value.op, PanelOp):
            return self.panel_side(value.op, x_axis)
        buffer = self.e.values.buffers.get(value)
        if buffer is not None and buffer.element == format.element:
            if format.group == 1:
                return self.buffer_side(buffer, format, x_axis, count, length)
            # A tile of A is rows of a row-major buffer, as long as no row ends within it.
            if (
                x_axis == 0
                and family.b.group < format.group
                and buffer.shape[1] % format.group == 0
            ):
                return self.buffer_side(buffer, format, x_axis, count, length)
        return self.packed_side(value, format, x_axis, count, length, family.group)

    def panel_side(self, op: PanelOp, x_axis: int) -> Side:
        b = self.b
        array = self.packed[self.e.values.real(op.panels)]
        offsets = [folded(self.e.scalar(v)) for v in op.offsets]
        if len(offsets) == 1:
            offsets = [0, *offsets]
        k0, x0 = offsets[-2:] if array.k_axis == 0 else reversed(offsets[-2:])
        size = itemsize(array.format.element)
        lanes = array.format.lanes
        plane = b.mul(b.mul(array.panels, array.rounded_k), lanes * size)
        number: Idx = 0
        outside: SSAValue | None = None
        for offset, extent in zip(offsets[:-2], array.batch_sizes, strict=True):
            number = b.add(b.mul(number, extent), offset)
            outside = b.both(outside, b.cmp("slt", offset, extent))
        base = b.ptr(array.pointer, b.mul(number, plane))
        x_count = b.sub(array.x_extent, x0)
        if outside is not None:
            x_count = b.select(outside, x_count, 0)
        first = b.div(x0, lanes)

        def locate(begin: Idx, end: Idx) -> Callable[[Idx], Operand]:
            at = b.add(k0, begin)
            if array.depth:
                block = b.div(at, array.depth)
                inner = b.rem(at, array.depth)
                start = b.ptr(base, b.mul(b.mul(block, array.panels), array.depth * lanes * size))
                start = b.ptr(start, b.mul(inner, lanes * size))
                panel_bytes: Idx = array.depth * lanes * size
            else:
                start = b.ptr(base, b.mul(at, lanes * size))
                panel_bytes = b.mul(array.rounded_k, lanes * size)

            def panel(i: Idx) -> Operand:
                pointer = b.ptr(start, b.mul(b.add(first, i), panel_bytes))
                group = array.format.group
                return Operand(pointer, group * size, group * lanes * size, panel_bytes)

            return panel

        return Side(
            array.format,
            x_count,
            b.sub(array.k_extent, k0),
            locate,
            (k0, array.depth) if array.depth else None,
        )

    def buffer_side(
        self, buffer: Buffer, format: PanelFormat, x_axis: int, count: int, length: Idx
    ) -> Side:
        """An operand read from where it was computed; rows and columns are padded, what is there does not matter."""
        b = self.b
        size = itemsize(buffer.element)

        def locate(begin: Idx, end: Idx) -> Callable[[Idx], Operand]:
            def panel(i: Idx) -> Operand:
                if x_axis == 0:
                    start = buffer.address(b, b.mul(i, format.lanes), begin)
                    return Operand(start, buffer.ld * size, format.group * size)
                return Operand(
                    buffer.address(b, begin, b.mul(i, format.lanes)), size, buffer.ld * size
                )

            return panel

        return Side(format, count, length, locate)

    def packed_side(
        self, value: SSAValue, format: PanelFormat, x_axis: int, count: int, length: Idx, unit: int
    ) -> Side:
        """An operand packed block by block into scratch memory of the workgroup, with zeros up to a multiple of
        `unit` k."""
        b, e, m = self.b, self.e, self.m
        size = itemsize(format.element)
        panels = -(-count // format.lanes)
        along_k = contiguous_axis(e, value) == 1 - x_axis
        depth = block_depth(format, along_k, m.vector_bytes)
        depth_unit = max(depth, unit)
        capacity = -(-m.depth(unit) // depth_unit) * depth_unit
        if isinstance(length, int):
            capacity = min(capacity, -(-length // depth_unit) * depth_unit)
        panel_bytes = capacity * format.lanes * size
        memory = self.local(panels * panel_bytes)

        def locate(begin: Idx, end: Idx) -> Callable[[Idx], Operand]:
            with b.loop(0, panels, nonempty=True) as p:
                x = b.mul(p.iv, format.lanes)
                target = b.ptr(memory, b.mul(p.iv, panel_bytes))
                filled = b.add(begin, b.round_up(b.sub(end, begin), unit))
                with b.loop(begin, filled, depth) as k, e.scope():
                    relative = b.sub(k.iv, begin)
                    pack_block(
                        b, format, lambda place: e.at(value, place),
                        b.ptr(target, b.mul(relative, format.lanes * size)), x, k.iv, depth,
                        x_axis=x_axis, along_k=along_k, vector_bytes=m.vector_bytes, inside=False,
                        limit=end if max(depth, unit) > 1 else None,
                    )  # fmt: skip

            def panel(i: Idx) -> Operand:
                pointer = b.ptr(memory, b.mul(i, panel_bytes))
                return Operand(pointer, format.group * size, format.group * format.lanes * size)

            return panel

        return Side(format, count, length, locate)


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
                if op.permutation == (1, 0):
                    axis = 1 - axis
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
