"""`stage.contract` -> packed operands, cache blocks, micro-kernels.

    for block of k:                      (kc deep, aligned to the packed operands)
      pack what is not packed yet        (see `operands`)
      for panel of B (nr columns):       stays in the first cache
        for panel of A (mr rows):        streams from the second
          C[mr x nr] += ...              in a buffer of the workgroup

Panels that lie outside the arrays are zero and are skipped, and so is k beyond either array. Instructions take groups
of k at once; a range that ends within a group, while the arrays go on, ends with a block of one group, the rest of
which is zero in copies of the panels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, VectorType, i1
from xdsl.ir import SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.codegen.tiles import itemsize, rows_cols
from tilewright.dialects.fused import ContractOp
from tilewright.dialects.upstream.arith import constant, folded
from tilewright.targets.cpu.amx import Turn, halved
from tilewright.targets.cpu.evaluate import Evaluator
from tilewright.targets.cpu.family import Family, Fetch, FetchWhere, PanelOperand
from tilewright.targets.cpu.lying import LyingProduct, LyingVectors, lying
from tilewright.targets.cpu.lying_tiles import LyingTiles
from tilewright.targets.cpu.machine import FEW_TURNS, FEW_USES, MANY_TURNS, MOST_LINES, CpuMachine
from tilewright.targets.cpu.memory import Buffer, clear
from tilewright.targets.cpu.micro import emit_micro, family_of, known_bytes, panel_start
from tilewright.targets.cpu.operands import Operands
from tilewright.targets.cpu.packed_array import PackedArray
from tilewright.targets.cpu.panels import PanelFormat, transpose
from tilewright.targets.cpu.roles import roles_of
from tilewright.targets.cpu.thin import ThinProduct
from tilewright.targets.cpu.turns import first_turn

MAX_PREFETCHES = 16
"""Prefetches of B per micro-kernel: more would cost more than they hide."""


class ContractEmitter:
    """Emits contracts of one function. `local(bytes)` gives scratch memory of the workgroup."""

    def __init__(
        self,
        e: Evaluator,
        m: CpuMachine,
        packed: dict[SSAValue, PackedArray],
        local: Callable[[int], SSAValue],
        lower: Callable[[ContractOp], None],
    ):
        self.e = e
        self.b: Builder = e.b
        self.m = m
        self.local = local
        self.operands = Operands(e, m, packed, local)
        self.lower_scalars = lower
        self.goes_on = self.b.constant(i1, 0)
        """Does a part behind the one that is emitted read the operands' next block of k?"""

    def emit(
        self,
        op: ContractOp,
        accumulators: Sequence[Buffer],
        zero: Sequence[bool],
        part: tuple[Idx, Idx] | None = None,
    ) -> None:
        """`accumulators` hold the initial values, unless these are `zero`, and receive the sums. `part`: only so much
        of the range (its start, and how much: whole groups of the instruction)."""
        b, e = self.b, self.e
        lo, hi, step = (e.scalar(v) for v in (op.lo, op.hi, op.step))
        known_step = constant(step)
        trips: Idx
        length = b.max(b.minus(folded(hi), folded(lo)), 0)
        if known_step is not None:
            trips = b.ceildiv(length, known_step)
        else:
            total = b.plus(length, b.minus(step, 1))
            trips = b.value(arith.DivSIOp(b.idx(total), step))
        length = b.times(trips, rows_cols(op.pairs[0][0].type)[1])
        self.goes_on = b.constant(i1, 0)
        if part is not None:
            lo, rest = b.idx(b.plus(folded(lo), part[0])), b.minus(length, part[0])
            length = b.max(b.min(rest, part[1]), 0)
            self.goes_on = b.cmp("slt", length, rest)
        e.values.scalars[op.body.block.args[0]] = lo
        self.lower_scalars(op)
        for (a, bb), c, empty in zip(op.pairs, accumulators, zero, strict=True):
            if c.ld == 1:
                self.column_product(op, a, bb, c, length, empty)
            else:
                self.product(op, a, bb, c, length, empty)

    def column_product(
        self, op: ContractOp, a: SSAValue, bb: SSAValue, c: Buffer, length: Idx, zero: bool
    ) -> None:
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
        self.product(op, a, bb, wide, length, zero)
        copy(wide, c)

    def product(
        self, op: ContractOp, a: SSAValue, bb: SSAValue, c: Buffer, length: Idx, zero: bool
    ) -> None:
        """C (+)= A B over `length` k, operands of `op`; `zero`: C holds nothing yet."""
        b, m = self.b, self.m
        roles = roles_of(m, a, bb, c.element)
        family, thin = roles.family, roles.thin
        width = rows_cols(a.type)[1]
        if thin is not None:
            value, other = (a, bb) if thin.side == 0 else (bb, a)
            count = c.shape[1 - thin.side]

            def multiply() -> None:
                side = self.operands.side(other, thin.family, 1 - thin.side, count, length)
                empty = partial(clear, b, m.vector_bytes, c, end=c.shape[0]) if zero else None
                first = first_turn(self.e, op, other)
                ThinProduct(self.e, m, thin, value, c).emit(side, length, empty, first)

        else:

            def multiply() -> None:
                self.multiply(family, (a, bb), False, c, length, width, zero)

        if thin is not None or not roles.swapped:
            # Few rows are added to C one k after the other, as they are here where C holds nothing yet.
            few_rows = thin if thin is not None and thin.side == 1 else None
            vectors = family if few_rows is None else few_rows.family
            lying = None if few_rows and not zero else self.lying(vectors, a, bb, c, length)
            if lying is None:
                multiply()
            else:
                near = lying.near(packed=thin is not None)
                b.choose(near, lambda: lying.emit(zero), multiply)
            return
        rows, cols = c.shape
        unit = max(family.nr, m.vector_bytes // itemsize(c.element))
        ld, padded = -(-rows // unit) * unit, -(-cols // unit) * unit
        pointer = self.local(padded * ld * itemsize(c.element) + 64)
        turned = Buffer(pointer, c.element, (cols, rows), ld, padded)
        self.multiply(family, (bb, a), True, turned, length, width, True)
        self.turn(turned, c, zero)

    def lying(
        self, family: Family, a: SSAValue, bb: SSAValue, c: Buffer, length: Idx
    ) -> LyingProduct | None:
        """The product as one of small tiles that are read where they lie, where it may be one."""
        left, right = (lying(self.e, self.operands, v, x) for x, v in enumerate((a, bb)))
        if left is None or right is None:
            return None
        pair = left, right
        found = (
            LyingTiles(self.b, self.m, family, pair, c, length, self.local)
            if family.tiles
            else LyingVectors(self.b, self.m, family, pair, c, length)
        )
        return found if found.fits else None

    def turn(self, source: Buffer, c: Buffer, zero: bool) -> None:
        """C (+)= the transpose of `source`, whose rows and columns are padded to whole vectors."""
        b, size = self.b, itemsize(c.element)
        lanes = self.m.vector_bytes // size
        type = VectorType(c.element, [lanes])  # pyright: ignore
        add = arith.AddfOp if isinstance(c.element, AnyFloat) else arith.AddiOp
        with b.loop(0, c.shape[1], lanes) as x, b.loop(0, c.shape[0], lanes) as y:
            start, pitch = source.address(b, x.iv, y.iv), b.times(source.ld, size)
            block = [b.load(b.ptr(start, b.times(pitch, i)), type) for i in range(lanes)]
            for i, row in enumerate(transpose(b, block)):
                target = c.address(b, b.plus(y.iv, i), x.iv)

                def put(row: SSAValue = row, target: SSAValue = target) -> None:
                    b.store(row if zero else b.value(add(row, b.load(target, type))), target)

                if c.padded_rows >= -(-c.shape[0] // lanes) * lanes:
                    put()
                else:
                    with b.when(b.cmp("slt", b.plus(y.iv, i), c.shape[0])):
                        put()

    def multiply(
        self,
        family: Family,
        operands: tuple[SSAValue, SSAValue],
        swapped: bool,
        c: Buffer,
        length: Idx,
        width: int,
        zero: bool,
    ) -> None:
        """C (+)= A B from panels, `operands` in these roles; `swapped`: each in the other's place."""
        b, m = self.b, self.m
        rows, cols = c.shape
        axis = int(swapped)
        short = rows <= (MANY_TURNS if family.in_place else FEW_TURNS) * family.mr
        side_b = self.operands.side(operands[1], family, 1 - axis, cols, length, short, swapped)
        col_panels = b.ceildiv(b.max(b.min(cols, side_b.x_count), 0), family.nr)
        few = cols <= FEW_USES * family.nr * family.panels
        side_a = self.operands.side(operands[0], family, axis, rows, length, few, swapped)
        # Beyond the end of either array its operand is zero, and its panels hold nothing.
        length = b.min(length, b.min(side_a.k_count, side_b.k_count))
        length = b.max(length, 0)
        used = b.max(b.min(rows, side_a.x_count), 0)
        row_panels = b.ceildiv(used, family.mr)
        # Beside few rows, those that the last panel lacks would cost most.
        halves = rows <= FEW_USES * family.mr and not family.tiles and family.mr % 2 == 0

        def kernels(turn: Turn, last: bool) -> list[tuple[Family, Turn]]:
            if family.tiles or (halves and last):
                return halved(b, family, rows if family.tiles else used, turn)
            return [(family, turn)]

        kc, unit = family.depth, family.group
        main, ragged = length, None
        whole = b.times(b.div(length, unit), unit)
        if width % unit and not (isinstance(length, int) and length % unit == 0):
            goes_on = b.either(
                b.cmp("slt", length, side_a.k_count), b.cmp("slt", length, side_b.k_count)
            )
            ragged = b.both(b.cmp("ne", b.rem(length, unit), 0), goes_on)
            assert ragged is not None
            main = b.select(ragged, whole, length)
        if few:  # what would leave its array is a block of its own: the others stay where they are
            main = whole
        if zero:
            there = b.round_up(used, family.mr // 2 if halves else family.mr)
            self.clear_skipped(c, length, there, b.times(col_panels, family.nr))

        def block(
            k0: Idx, k1: Idx, first: SSAValue | None, partial: bool = False, less: bool = False
        ) -> None:
            """One block of k; `first`: nothing has been stored yet (None: known to be false). `less`: than a group, of
            which the rest is zero; `partial`: more k of the arrays follow."""
            find_a, find_b = (
                side.partial(k0, k1) if partial else side.locate(k0, k1)
                for side in (side_a, side_b)
            )
            depth = unit if partial or less else b.round_up(b.minus(k1, k0), unit)
            steps = b.div(depth, unit)

            def below(operand: PanelOperand, skipped: Idx) -> Idx:
                """Bytes to the panel, `skipped` bytes before this one, of the next block, and behind the last one to
                what the next program reads; 0 where that is not in memory."""
                if partial:
                    return 0
                next = b.minus(operand.below_bytes, skipped)
                more = b.either(b.cmp("slt", k1, main), self.goes_on)
                return b.select(more, next, operand.after_bytes)

            direct = (find_a.direct, 0, find_a.count)
            turns = [direct, (find_a, find_a.count, row_panels)]

            def columns(j: Idx, count: int, turns: Sequence[Turn]) -> None:
                """Rows by `count` panels of B from panel j on, `turns` one after the other."""
                operands = [find_b(b.plus(j, p)) for p in range(count)]
                next_b: Idx = 0
                in_rows = not isinstance(operands[0].k_bytes, int)
                if family.tiles or in_rows:
                    step = operands[0].next_bytes or 0
                    aside, end = b.times(step, count), b.plus(j, count)
                    start_over = below(operands[0], b.times(j, step))
                    next_b = b.select(b.cmp("slt", end, col_panels), aside, start_over)
                start = panel_start(b, m, family, operands, depth)
                parts = [part for turn in turns for part in kernels(turn, turn[0] is find_a)]
                for kernel, (find, begin, end) in parts:
                    if find is None or (begin == 0 and end == 0):
                        continue
                    with b.loop(begin, end) as i:
                        operand_a = find(i.iv)
                        fetches: Sequence[Fetch | FetchWhere] = []
                        if family.tiles:
                            near = operands[0].pointer
                            fetches = [
                                self.fetch(operands[0], family.b, next_b, rows, family.mr, i.iv, steps, near),
                                *self.fetch_sums(family, c, (i.iv, j), (end, col_panels)),
                            ]  # fmt: skip
                            if operand_a.next_bytes is not None:  # caches follow rows by themselves
                                next_a = below(operand_a, 0)
                                fetches.append(
                                    self.fetch(
                                        operand_a, family.a, next_a, cols, family.nr, j, steps, near
                                    )
                                )
                        elif family.in_place:
                            if operand_a.next_bytes is None:
                                beside = operands, below(operands[0], 0)
                                fetches = self.fetch_below(family, operand_a, *beside, c, (i.iv, j))
                        elif in_rows:
                            fetches = [self.fetch_rows(operands, family, next_b, rows, i.iv)]
                        else:
                            for operand in operands:
                                self.prefetch_next(operand, family, rows, i.iv)
                        emit_micro(
                            b, m, kernel, operand_a, operands, c, b.times(i.iv, family.mr),
                            b.times(j, family.nr), depth, first, start, fetches,
                        )  # fmt: skip

            if find_a.copied:  # by the first panel of B, where there is one
                columns(0, 1, [(direct[0], 0, b.select(b.cmp("sgt", col_panels, 0), direct[2], 0))])

            def across(turns: Sequence[Turn]) -> None:
                """Rows by all panels of B."""
                at: Idx = 0
                for count, times in _groups(b, col_panels, family.panels):
                    if times == 0:
                        continue
                    end = b.plus(at, b.times(times, count))
                    with b.loop(at, end, count) as j:
                        mine = turns
                        if find_a.copied:
                            rest = b.select(b.cmp("eq", j.iv, 0), find_a.count, 0)
                            mine = [(find_a, rest, row_panels)]
                        columns(j.iv, count, mine)
                    at = end

            if not family.by_rows:
                across(turns)
                return
            for find, begin, end in turns:
                if find is not None:
                    with b.loop(begin, end) as i:
                        across([(find, i.iv, b.plus(i.iv, 1))])

        rest = None
        if few and unit > 1 and main != length:
            rest = b.cmp("slt", main, length)
            if ragged is not None:
                rest = b.both(rest, b.negated(ragged))
        # Blocks are those of the packed operands: the first and the last may be shorter.
        skipped = b.rem(next((s.start for s in (side_a, side_b) if s.start is not None), 0), kc)
        if isinstance(main, int) and skipped == 0 and main <= kc:
            if main:
                block(0, main, b.constant(i1, 1) if zero else None)
        else:
            # What is left is a turn of the same loop: the code for it is there already.
            end = main if rest is None else b.select(rest, b.plus(main, kc), main)
            with b.loop(b.minus(0, skipped), end, kc) as k:
                start, stop = b.max(k.iv, 0), b.min(b.plus(k.iv, kc), main)
                if rest is not None:
                    start = b.min(start, main)
                    stop = b.select(b.cmp("slt", k.iv, main), stop, length)
                block(start, stop, b.cmp("sle", start, 0) if zero else None)
            rest = None
        first = b.cmp("eq", main, 0) if zero else None
        if rest is not None and b.known_bool(rest) is not False:
            with b.when(rest):
                block(main, length, first, less=True)
        if ragged is not None and b.known_bool(ragged) is not False:
            with b.when(ragged):
                block(main, length, first, partial=True)

    def fetch(
        self,
        at: PanelOperand,
        format: PanelFormat,
        ahead: Idx,
        count: int,
        unit: int,
        turn: Idx,
        steps: Idx,
        near: SSAValue,
    ) -> Fetch:
        """A panel `ahead` bytes from an operand: the `turn`-th part, of as many as the panel is used times, by a
        micro-kernel of so many `steps` of tiles. All of it: the last part may reach beyond. Where `ahead` is 0, lines
        from `near` on, which cost little because they are in the first cache."""
        b = self.b
        uses = -(-count // unit)
        lines = min(-(-format.lanes * format.parts // uses), MOST_LINES)
        there = b.cmp("ne", ahead, 0)
        base = b.value(arith.SelectOp(there, b.ptr(at.pointer, ahead), near))
        return Fetch(b.ptr(base, b.times(b.times(turn, steps), 64 * lines)), lines, 64 * lines)

    def fetch_sums(
        self, family: Family, c: Buffer, at: tuple[Idx, Idx], ends: tuple[Idx, Idx]
    ) -> list[Fetch]:
        """The block of C behind the one of panels `at` of A and B, into the first cache: as many rows of it with each
        step of tiles as fetch all of them."""
        b, size = self.b, itemsize(c.element)
        down, right = (b.cmp("slt", b.plus(x, 1), end) for x, end in zip(at, ends, strict=True))
        row = b.times(b.select(down, b.plus(at[0], 1), 0), family.mr)
        col = b.times(b.select(down, at[1], b.select(right, b.plus(at[1], 1), 0)), family.nr)
        each = -(-family.mr // (family.depth // family.group))
        lines, pitch = family.nr * size // 64, b.times(c.ld, size)
        rows = (c.address(b, b.plus(row, r), col) for r in range(each))
        return [Fetch(start, lines, b.times(pitch, each), near=True) for start in rows]

    def fetch_rows(
        self, at: Sequence[PanelOperand], family: Family, ahead: Idx, rows: int, turn: Idx
    ) -> Fetch:
        """Of panels of B that lie in the rows of its array those that come next, `ahead` bytes from theirs; of those
        that are copied from there what the next block's copy will read. The `turn`-th of as many runs of rows as the
        panels are used times: memory is fastest where lines of a row are asked for together. Lines by their last byte:
        where columns do not start with one, the first line is also the last of those before."""
        b, first = self.b, at[0]
        uses = -(-rows // family.mr)
        lines = -(-len(at) * family.b.lanes * family.b.bytes // (64 * uses))
        start, step = b.ptr(first.pointer, ahead), first.k_bytes
        if (later := first.later) is not None:
            start = b.value(arith.SelectOp(later.here, later.pointer, start))
            step = b.select(later.here, later.pitch, step)
        row = b.times(turn, -(-family.depth // uses))
        return Fetch(b.ptr(start, b.plus(b.times(row, step), 63)), lines, step, parts=uses)

    def fetch_below(
        self,
        family: Family,
        a: PanelOperand,
        bb: Sequence[PanelOperand],
        below: Idx,
        c: Buffer,
        at: tuple[Idx, Idx],
    ) -> Sequence[Fetch | FetchWhere]:
        """Of the rows below those of A, and of the panels of B `below` bytes from these, a part for the micro-kernel of
        panels `at` of A and B, with each of `mr` parts of k a row and a piece: as much as fetches all of them."""
        b, uses = self.b, -(-c.shape[1] // (family.nr * family.panels))
        lines = -(-family.depth * family.a.bytes // (64 * uses))
        start = b.ptr(a.pointer, b.times(a.x_bytes, family.mr))
        start = b.ptr(start, b.times(b.div(at[1], family.panels), 64 * lines))
        found = [Fetch(start, lines, a.x_bytes)]
        pieces = -(-c.shape[0] // family.mr) * family.mr
        lines = -(-family.depth * family.b.lanes * family.b.bytes // (64 * pieces))
        there = b.cmp("ne", below, 0)
        below = b.plus(below, b.times(at[0], 64 * lines * family.mr))
        panels = [Fetch(b.ptr(one.pointer, below), lines, 64 * lines) for one in bb]
        return [*found, FetchWhere(there, panels)]

    def prefetch_next(self, operand: PanelOperand, family: Family, rows: int, i: Idx) -> None:
        """While panels of B are used, fetch those that come next, a part with every panel of A."""
        b = self.b
        if operand.next_bytes is None:
            return
        lines = (
            family.depth
            // family.b.group
            * known_bytes(operand.k_bytes)
            // 64
            // max(1, rows // family.mr)
        )
        if not 0 < lines <= MAX_PREFETCHES:
            return
        ahead = b.times(operand.next_bytes, family.panels)
        Fetch(b.ptr(b.ptr(operand.pointer, ahead), b.times(i, lines * 64)), lines).issue(b)

    def clear_skipped(self, c: Buffer, length: Idx, rows: Idx, cols: Idx) -> None:
        """Write zeros where no block will store: all of C if k is empty, else beyond the last panels."""
        b = self.b
        known_rows, known_cols = isinstance(rows, int), isinstance(cols, int)
        if isinstance(length, int) and length > 0 and known_rows and known_cols:
            return
        high, wide = c.shape if c.edge is None else (c.edge.rows, c.edge.cols)
        full = b.both(b.cmp("sgt", length, 0), b.cmp("sge", rows, high))
        full = b.both(full, b.cmp("sge", cols, wide))
        assert full is not None
        with b.when(b.negated(full)):
            clear(b, self.m.vector_bytes, c, b.select(b.cmp("sgt", length, 0), rows, 0), cols)


def _groups(b: Builder, panels: Idx, most: int) -> list[tuple[int, Idx]]:
    """Panels in groups that are multiplied at once: (panels of a group, groups). A rest that leaves more accumulators
    idle than its half would, were it shared with a whole group, is shared."""
    full, rest = b.div(panels, most), b.rem(panels, most)
    groups: dict[int, Idx] = {most: full}
    for left in reversed(range(1, most)):
        here = b.select(b.cmp("eq", rest, left), 1, 0)
        half, odd = divmod(most + left, 2)
        if half > left and not odd:
            shared = b.select(b.cmp("sgt", full, 0), here, 0)
            groups[most] = b.minus(groups[most], shared)
            groups[half] = b.plus(groups[half], b.times(shared, 2))
            here = b.minus(here, shared)
        groups[left] = here
    return list(groups.items())
