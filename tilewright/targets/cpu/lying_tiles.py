"""Small products of tiles that are read where they lie (`lying`), multiplied by AMX.

    A's rows lie whole in their array:  its tiles are loaded from there
    else, and B:                        copied to panels no larger than the product, zeros behind the ends
    for panels of B, of A:              a micro-kernel

These are the tiles that large products have, in the same order: so a launch whose programs are merged gives the same
bits. k that are counted when the product runs are whole tiles, or all is copied.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import IntegerType, VectorType, i1
from xdsl.ir import SSAValue

from tilewright.codegen.builder import Idx, lane_type
from tilewright.codegen.tiles import itemsize
from tilewright.dialects import mach
from tilewright.frozen import frozen
from tilewright.targets.cpu.amx import TILE_ROWS, emit_amx, halved
from tilewright.targets.cpu.evaluate import Position
from tilewright.targets.cpu.family import PanelOperand
from tilewright.targets.cpu.lying import LyingProduct
from tilewright.targets.cpu.machine import DEEPEST
from tilewright.targets.cpu.panels import PanelFormat, pack_block

FEW = 2
"""Groups of k that are copied one after the other, without a loop."""


@frozen
class LyingTiles(LyingProduct):
    """See above; `local(bytes)`: memory of the workgroup."""

    local: Callable[[int], SSAValue]

    @property
    def deepest(self) -> int:
        return DEEPEST

    @property
    def fits(self) -> bool:
        family, formats = self.family, (self.family.a, self.family.b)
        same = all(o.element == f.element for o, f in zip(self.operands, formats, strict=True))
        lie = [o.along for o in self.operands] == [1, 0]
        return family.tiles and same and lie and self.short

    @property
    def depth(self) -> Idx:
        """Its k."""
        return self.length if self.known else self.there()

    def inside(self) -> SSAValue | None:
        b, found = self.b, super().inside()
        if self.known:
            return found
        return b.both(found, b.cmp("eq", b.rem(self.depth, self.family.group), 0))

    def blocks(self, zero: bool, whole: bool) -> None:
        b, family, (rows, cols) = self.b, self.family, self.c.shape
        depth = b.round_up(self.depth, family.group)
        find_a = self.side(0, family.a, depth, whole)
        find_b = self.side(1, family.b, depth, whole)
        first = b.constant(i1, int(zero))
        turn = find_a, 0, -(-rows // family.mr)
        for x in range(0, cols, family.nr):
            right = find_b(x // family.nr)
            for kernel, (find, start, end) in halved(b, family, rows, turn):
                assert find is not None
                with b.loop(start, end) as i:
                    row = b.times(i.iv, family.mr)
                    emit_amx(b, kernel, find(i.iv), right, self.c, row, x, depth, first)

    def side(
        self, axis: int, format: PanelFormat, depth: Idx, whole: bool
    ) -> Callable[[Idx], PanelOperand]:
        """Where the panels of an operand (A: axis 0) are."""
        b, operand, extent = self.b, self.operands[axis], self.c.shape[axis]
        lanes, step = format.lanes, format.group * itemsize(format.element)
        tiles = extent % TILE_ROWS == 0 and format.parts == 1
        tiles = tiles and (not self.known or self.depth == depth)
        if axis == 0 and whole and tiles:
            row = operand.steps[0]

            def lying(i: Idx) -> PanelOperand:
                return PanelOperand(
                    b.ptr(operand.pointer, b.times(b.times(i, lanes), row)), row, step
                )

            return lying
        panel_bytes = (depth if isinstance(depth, int) else DEEPEST) * lanes * format.bytes
        memory = self.local(-(-extent // lanes) * panel_bytes)
        for x in range(0, extent, lanes):
            self.pack(axis, format, depth, x, b.ptr(memory, x // lanes * panel_bytes), whole)

        def copied(i: Idx) -> PanelOperand:
            start = b.ptr(memory, b.times(i, panel_bytes))
            return PanelOperand(start, step, format.parts * format.part_bytes)

        return copied

    def pack(
        self, axis: int, format: PanelFormat, depth: Idx, x: int, target: SSAValue, whole: bool
    ) -> None:
        """The panel from x on."""
        b, operand, extent = self.b, self.operands[axis], self.c.shape[axis]
        group, ends = format.group, [self.c.shape[axis], self.depth]
        counts: list[Idx] = [*ends]
        if not whole:
            there = operand.x_count, b.min(*(each.k_count for each in self.operands))
            counts = [b.max(b.min(end, count), 0) for end, count in zip(ends, there, strict=True)]

        def source(place: Position) -> SSAValue:
            at = (place.row, place.col) if axis == 0 else (place.col, place.row)
            pointer = operand.pointer
            for here, step in zip(at, operand.steps, strict=True):
                pointer = b.ptr(pointer, b.times(here, step))
            along, across = (1, 0) if axis == 0 else (0, 1)
            left = b.minus(counts[along], at[along])
            if not place.inside:
                left = b.select(b.cmp("slt", at[across], counts[across]), left, 0)
            type = lane_type(operand.element, place.lanes)
            mask = b.mask_first(left, place.lanes)
            if mask is None:
                return b.load(pointer, type)
            return b.value(mach.MaskedLoadOp(pointer, mask, b.constant(type, 0)))

        def block(k: Idx, inside: bool) -> None:
            pack_block(
                b, format, source, b.ptr(target, b.times(k, format.lanes * format.bytes)), x, k,
                group, x_axis=axis, along_k=axis == 0, vector_bytes=self.m.vector_bytes,
                inside=inside,
            )  # fmt: skip

        whole = whole and (axis == 1 or x + format.lanes <= extent)  # columns of B have masks
        if isinstance(depth, int) and depth <= FEW * group:
            for k in range(0, depth, group):
                block(k, whole)
            return
        full, some = b.times(b.div(self.depth, group), group), b.round_up(self.depth, group)
        if whole and not self.known:
            full = some = depth  # as `inside` has found
        if not whole:
            full = 0
        for start, end, inside in ((0, full, True), (full, some, False)):
            with b.loop(start, end, group) as k:
                block(k.iv, inside)
        row_bytes = format.lanes * format.bytes
        nothing = b.constant(VectorType(IntegerType(8), [group * row_bytes]), 0)
        with b.loop(some, depth, group) as k:
            b.store(nothing, b.ptr(target, b.times(k.iv, row_bytes)))
