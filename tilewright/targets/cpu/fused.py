"""`stage.fused` -> loops over rows and vectors.

The *roots* of a fused group are what must be seen outside: stores, reductions, results. Everything else is
emitted on demand at the place where a root needs it. A fused group runs in levels: a reduction along rows at
level p gives a column (one element per row) that is ready at level p + 1. Rows go in blocks, so that
columns are computed as vectors over the rows of a block:

    for block of rows:
      for level p:
        columns of level p, vectorised down the block
        for row in block:
          for c in main part of the row:  roots of level p on `unroll` vectors, no masks
          for c in the rest:              roots of level p on one vector, masked

A value of a lower level that a root needs again is computed again if that costs no more than reading it, otherwise kept
in a buffer. The main part of a row ends where the first tile of the level leaves its matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import VectorType, i1
from xdsl.ir import Operation, OpResult, SSAValue

from tilewright.codegen.builder import Idx, lane_type
from tilewright.codegen.tiles import ScatteredTile, Tile, element_of, itemsize, rows_cols
from tilewright.dialects import mach
from tilewright.dialects import xetile as xt
from tilewright.dialects.nesting import terminator
from tilewright.dialects.upstream.combining import neutral
from tilewright.targets.cpu.atomics import emit_atomics
from tilewright.targets.cpu.evaluate import Position
from tilewright.targets.cpu.fused_plan import (
    ROW_BLOCK_BYTES,
    FusedPlan,
    FusedPlanner,
    Root,
    is_identity_reduction,
    is_row_reduction,
)
from tilewright.targets.cpu.overlapped import emit_overlapped, overlapping
from tilewright.targets.cpu.positions import run_at
from tilewright.targets.cpu.private_sums import add_vector
from tilewright.targets.cpu.reductions import (
    Accumulator,
    NarrowExtreme,
    emit_reductions,
    power_of_two,
)
from tilewright.targets.cpu.short_rows import emit_short, short_tile
from tilewright.targets.cpu.streaming import emit_streamed, streamed_tile, streams
from tilewright.targets.cpu.sweeps import Ahead, Sweep, main_part
from tilewright.targets.cpu.turned import blocks_of, emit_turned

ROW_BLOCK = 16
"""Rows that run together, so that columns are vectors; fewer where rows are long."""
MOVED_BYTES = 8 << 10
"""What rows that run together read and write of arrays: with more at once, memory waits while they are computed."""
FEW_OPS = 8
"""Values that a vector of a row is made through, up to which two vectors share a step of the loop."""
WRITE_AHEAD = 2048
"""Bytes of rows that are fetched before they are written: the lines that a core can wait for at once, twice."""


class FusedEmitter(FusedPlanner):
    """Emits one fused group."""

    streaming = True
    """May a level of a block of rows stream?"""

    def emit(self) -> None:
        ops = list(self.block.ops)[:-1]
        with self.e.scope():
            self.prepare(ops)
            for op in ops:
                if is_identity_reduction(op):
                    self.e.values.aliases[op.results[0]] = op.operands[0]
            self.emit_ops(ops)
        for value in self.kept:
            if value not in self.results:
                self.e.values.buffers.pop(value, None)

    def prepare(self, ops: list[Operation]) -> None:
        last = terminator(self.block)
        self.results = dict(zip(last.operands, self.destinations, strict=True))
        held = [self.e.values.buffers.get(self.e.values.real(v)) for op in ops for v in op.operands]
        self.in_place = any(d is h for d in self.destinations if d is not None for h in held)

    def emit_ops(self, ops: list[Operation]) -> None:
        special = [op for op in ops if isinstance(op, xt.AtomicRmwOp)]
        if special:
            for op in special:
                old = self.results.get(op.results[0])
                emit_atomics(self, op, old)
                self.publish(op.results[0])
            ops = [op for op in ops if op not in special]
        downs = [
            op
            for op in ops
            if isinstance(op, xt.ReductionOp)
            and not is_row_reduction(op)
            and not is_identity_reduction(op)
        ]
        if downs:
            emit_reductions(self, downs)
            for op in downs:
                self.publish(op.results[0])
            ops = [op for op in ops if op not in downs]
        plan = self.plan(ops)
        if plan.roots:
            self.run(plan)
        for op in ops:
            for result in op.results:
                self.publish(result)
        for value in self.results:
            self.publish(value)

    def publish(self, value: SSAValue) -> None:
        buffer = self.results.get(value)
        if buffer is not None:
            self.e.values.buffers[value] = buffer

    def run(self, plan: FusedPlan) -> None:
        self.current = plan
        has_columns = any(plan.of(level, True) for level in range(plan.levels))
        has_rows = any(plan.of(level, False) for level in range(plan.levels))
        widths = [rows_cols(r.value.type)[1] for r in plan.roots]
        step = 1
        if has_columns or not has_rows:
            limit = ROW_BLOCK if has_rows else max(self.vector_bytes // 4, 1)
            if has_rows:
                limit = min(limit, ROW_BLOCK_BYTES // (4 * max(widths)))
                limit = max(1, min(limit, MOVED_BYTES // max(1, self.moved(plan.roots))))
            step = max(d for d in range(1, min(limit, plan.rows) + 1) if plan.rows % d == 0)
        self.keep_rows(plan, step)
        if (blocks := blocks_of(self, plan)) is not None:
            return emit_turned(self, blocks)
        if (short := short_tile(self, plan)) is not None:
            return emit_short(self, plan, short, step)
        tile = overlapping(self, plan, step) if self.overlap else None
        if tile is None:
            return self.by_blocks(plan, step)
        self.streaming = False
        self.b.choose(
            streams(self, tile, 0),
            lambda: emit_overlapped(self, plan, tile),
            lambda: self.by_blocks(plan, step),
        )

    def keep_rows(self, plan: FusedPlan, step: int) -> None:
        """Buffers for what waits for a later level: not of all rows, but of those that run together."""
        kept = [plan.kept_below(level) for level in range(plan.levels)]
        ordered = sorted(plan.roots, key=lambda r: r.level)
        last = {value: r.level for r in ordered for value in self.reached([r], kept[r.level])}
        for root in plan.roots:
            if root.kind != "keep" or root.buffer is not None:
                continue
            value, (rows, cols) = self.e.values.real(root.value), rows_cols(root.value.type)
            if cols > 1 and rows > 1:
                rows = min(rows, max(1, last[value] - root.level) if step == 1 else step)
            root.buffer = self.scratch(VectorType(element_of(root.value.type), (rows, cols)))  # pyright: ignore
            root.buffer.ring = rows < rows_cols(root.value.type)[0]

    def by_blocks(self, plan: FusedPlan, step: int) -> None:
        """Level after level of a block of rows, then the next block."""
        b, e = self.b, self.e
        before = dict(e.values.buffers)

        def body(first: Idx) -> None:
            e.values.buffers = dict(before)
            for level in range(plan.levels):
                with e.scope():
                    columns = plan.of(level, True)
                    self.read(columns, Position(first, 0, 0, step))
                    for root in columns:
                        self.column(root, first, step)
                wide = plan.of(level, False)
                if wide:
                    self.ahead = self.ahead_of(wide, level, step)
                    if step == 1:
                        self.row(wide, first)
                    else:
                        with b.loop(0, step, nonempty=True) as rows, e.scope():
                            self.row(wide, b.plus(first, rows.iv))
                    for root in wide:
                        if root.buffer is not None and root.kind == "keep":
                            e.values.buffers[e.values.real(root.value)] = root.buffer

        if plan.rows == step:
            with e.scope():
                body(0)
        else:
            end = self.last_row(plan)
            with b.loop(0, end, step, nonempty=end is plan.rows) as blocks, e.scope():
                body(blocks.iv)
        e.values.buffers = before

    def last_row(self, plan: FusedPlan) -> Idx:
        """Rows from there on leave no trace: a fused group that only stores runs to the end of the matrices."""
        if any(buffer is not None for buffer in self.destinations):
            return plan.rows
        return self.last([root for root in plan.roots if root.kind == "store"], 0, plan.rows)

    def last(self, roots: Sequence[Root], axis: int, extent: Idx) -> Idx:
        """Of so many rows or columns, those from there on leave no trace of what the roots store."""
        end: Idx = 0
        for root in roots:
            tile = self.e.values.tile(root.op.operands[1]) if root.kind == "store" else None  # pyright: ignore
            if not isinstance(tile, Tile):
                return extent
            end = self.b.max(end, self.b.min(extent, tile.limit(self.b, axis)))
        return end

    def column(self, root: Root, first: Idx, step: int) -> None:
        """One column value of a block of rows, as one vector."""
        e, b = self.e, self.b
        place = Position(first, 0, 0, step)
        if root.kind == "store":
            self.store(root, place, None)
            return
        assert root.buffer is not None
        register = e.at(root.value, place)
        b.store(register, root.buffer.address(b, first, 0))
        e.values.buffers[e.values.real(root.value)] = root.buffer

    def read(self, roots: Sequence[Root], place: Position) -> None:
        """Evaluate what several roots need at a place before one of them overwrites it."""
        if len(roots) > 1 and (self.in_place or self.loaded & self.written):
            for root in roots:
                for value in self.inputs(root.op) if root.op is not None else (root.value,):
                    self.e.at(value, place)

    def store(self, root: Root, place: Position, mask: SSAValue | None) -> None:
        e, b = self.e, self.b
        op = root.op
        assert op is not None
        if isinstance(op, xt.AtomicRmwOp):
            add_vector(e, op, place, mask)
            return
        register = e.in_order(root.value, place)
        if isinstance(op, xt.StoreTileOp):
            tile = e.values.tile(op.tile)
            assert isinstance(tile, Tile)
            if op.mask is not None:
                mask = b.both(e.at(op.mask, place), mask)
            e.store(register, tile, place, mask)
            return
        assert isinstance(op, xt.StoreScatterOp)
        run = run_at(e, op, place)
        if run is not None:
            e.store(register, *run[:2], b.both(run[2], mask))
            return
        tile = e.values.tile(op.tile)
        assert isinstance(tile, ScatteredTile)
        offsets, on = e.scattered(tile, op.mask, place)
        on = b.both(on, mask)
        assert on is not None
        if place.lanes == 1:
            with b.when(on):
                b.store(register, b.ptr(tile.pointer, offsets))
        else:
            b.op(mach.ScatterOp(register, tile.pointer, offsets, on))

    def row(self, roots: list[Root], row: Idx) -> None:
        """All wide roots of a level on one row."""
        by_width: dict[int, list[Root]] = {}
        for root in roots:
            by_width.setdefault(rows_cols(root.value.type)[1], []).append(root)
        for width, group in by_width.items():
            self.columns(group, row, width, [x for x in self.ahead if x[0].shape[1] == width])

    def hoist(self, roots: list[Root], row: Idx, lanes: int) -> None:
        """Emit what is the same along the whole row, before the loop over columns."""
        for value in self.reached(roots):
            if value not in self.e.values.buffers and self.e.same_along_row(value):
                self.e.at(value, Position(row, 0, 1, lanes))

    def columns(self, roots: list[Root], row: Idx, width: int, ahead: Ahead) -> None:
        lanes = min(self.lanes(roots), power_of_two(width))
        self.hoist(roots, row, lanes)
        self.e.masks_share = len(self.accessed(roots, row, width)) > 2
        streamed = streamed_tile(self, roots, width, lanes) if self.streaming else None
        if streamed is not None:
            emit_streamed(self, roots[0], streamed, row, width, lanes, ahead)
        else:
            self.sweep(roots, row, width, lanes, ahead)
        self.e.ends, self.e.runs, self.e.masks_share = set(), {}, False

    def sweep_of(
        self, roots: list[Root], row: Idx, lanes: int, ahead: Ahead, past: Tile | None = None
    ) -> Sweep:
        """What a level does on a row, before anything is reduced."""
        reductions = [r for r in roots if r.kind == "reduce"]
        registers = max(1, lanes * 4 // self.vector_bytes)
        accumulators = [
            (Accumulator if r.value is r.op.operands[0] else NarrowExtreme)(  # pyright: ignore
                self.b, self.kind(r), self.identity(r, lanes), paired=registers == 2
            )
            for r in reductions
        ]
        buffers, unroll = self.e.values.buffers, self.unroll(roots, lanes)
        pairs = registers == 2 and self.pairs(roots)
        return Sweep(roots, row, lanes, unroll, accumulators, ahead, buffers, past, pairs=pairs)

    def unroll(self, roots: Sequence[Root], lanes: int) -> int:
        """Vectors per step of a loop over columns: four registers where they are summed, which takes its time, and one
        where a vector takes so many ops that a loop costs nothing beside them."""
        registers = max(1, lanes * 4 // self.vector_bytes)
        if any(r.kind == "reduce" for r in roots):
            return max(1, 4 // registers)
        return max(1, (2 if len(self.reached(roots)) <= FEW_OPS else 1) // registers)

    def sweep(
        self,
        roots: list[Root],
        row: Idx,
        width: int,
        lanes: int,
        ahead: Ahead,
        start: Idx = 0,
    ) -> None:
        """One row from column `start` on: its main part without masks, several vectors at a time, then the rest."""
        b, e = self.b, self.e
        sweep = self.sweep_of(roots, row, lanes, ahead)
        cut = width % lanes != 0 or start != 0
        done: tuple[Idx, Idx] = start, 0
        moved = any(self.moved_about(roots, width))
        looped = moved or not isinstance(start, int)  # so that masks would be made for each vector
        looped = looped or any(self.gathered(roots, row, width))
        split = width > 2 * lanes or (width >= sweep.step and looped)
        there = None
        if split:
            (begin, end), step = self.inside_all(roots, row, width), sweep.step
            short = lanes * 4 <= self.vector_bytes  # else the code would be half as long again
            if short and not moved and not sweep.accumulators and self.many_rows(roots, row, width):
                there = self.e.there
            if begin != 0:
                start_of_main = b.times(b.ceildiv(begin, lanes), lanes)
                done = b.max(start_of_main, start), 0
            first = done[0]
            done = first, b.times(b.div(b.max(b.minus(end, first), 0), step), step)
            main_part(self, [sweep], first, b.plus(*done))
        if not split and isinstance(start, int):
            with e.scope():
                for col in range(start, width, lanes):
                    self.masked(sweep, col, self.b.mask_first(width - col, lanes))
        else:
            first, left = (b.plus(*done), None) if done[0] is start else (start, done)

            def rest(there: bool) -> None:
                self.rest(sweep, first, width, cut=cut, done=left, there=there)

            b.choose(there or b.constant(i1, 0), lambda: rest(True), lambda: rest(False))
        self.reduced(sweep)

    def rest(
        self,
        sweep: Sweep,
        start: Idx,
        end: Idx,
        *,
        cut: bool,
        done: tuple[Idx, Idx] | None = None,
        there: bool = False,
    ) -> None:
        """Columns from `start` to `end`, a vector at a time; `cut`: the last vector reaches further; `done`: from which
        column on so many are left out; `there`: no row is outside of what is read."""
        b = self.b
        carry = [v for acc in sweep.accumulators for v in acc.values]
        last = self.last(sweep.roots, 1, end)
        left = last if done is None else b.minus(last, done[1])
        with b.loop(start, left, sweep.lanes, carry) as loop, self.e.scope():
            carried = list(loop.carried)
            for acc in sweep.accumulators:
                acc.take(carried)
            col: Idx = loop.iv
            if done is not None:
                col = b.plus(col, b.select(b.cmp("slt", col, done[0]), 0, done[1]))
            mask = b.mask_first(b.minus(end, col), sweep.lanes) if cut else None
            self.masked(sweep, col, mask, there)
            loop.out = [v for acc in sweep.accumulators for v in acc.values]
        results = list(loop.results)
        for acc in sweep.accumulators:
            acc.take(results)

    def reduced(self, sweep: Sweep) -> None:
        """Reductions of a row that has been swept go to their buffers."""
        b = self.b
        for root, accumulator in zip(sweep.reductions, sweep.accumulators, strict=True):
            assert root.buffer is not None
            b.store(accumulator.folded(), root.buffer.address(b, sweep.row, 0))
            self.e.values.buffers[self.made(root)] = root.buffer

    def made(self, root: Root) -> SSAValue:
        """The value that a root's buffer holds."""
        reduced = root.op is not None and root.kind == "reduce"
        return root.op.results[0] if reduced else self.e.values.real(root.value)  # pyright: ignore

    def ahead_of(self, roots: list[Root], level: int, step: int) -> Ahead:
        """What to prefetch while a level runs: (tile, rows ahead, will be written).

        A level that reads no matrix leaves memory idle: it fetches what the first level of the next rows reads, and
        what the last level of these rows writes. Where there is but one, what it writes on the next rows.
        """
        plan = self.current
        wide = [p for p in range(plan.levels) if plan.of(p, False)]
        found: Ahead = []
        if len(wide) < 2:
            stored = [] if self.tiles_read(roots) else self.accessed(roots, 0, 0)
            for tile, _ in stored:
                row_bytes = tile.shape[1] * itemsize(tile.element)
                if tile.strides[1] == 1:
                    found.append((tile, -(-WRITE_AHEAD // row_bytes), True))
            return found
        if level == wide[1]:
            found += [
                (t, step, False)
                for t in self.tiles_read(plan.of(wide[0], False))
                if t.strides[1] == 1
            ]
        if level == wide[-2] and level != wide[-1]:
            for root in plan.of(wide[-1], False):
                if isinstance(root.op, xt.StoreTileOp):
                    tile = self.e.values.tile(root.op.tile)
                    last = plan.of(wide[-1], False)
                    width = rows_cols(root.value.type)[1]
                    if self.streaming and streamed_tile(self, last, width, self.lanes(last)):
                        continue  # its lines are not wanted in the cache
                    if isinstance(tile, Tile) and tile.strides[1] == 1:
                        found.append((tile, 0, True))
        return found

    def tiles_read(self, roots: Sequence[Root]) -> list[Tile]:
        found: list[Tile] = []
        for value in self.reached(roots):
            if (
                isinstance(value, OpResult)
                and isinstance(value.op, xt.LoadTileOp)
                and value not in self.e.values.buffers
            ):
                tile = self.e.values.tile(value.op.tile)
                if isinstance(tile, Tile) and rows_cols(value.type)[0] > 1:
                    found.append(tile)
        return found

    def moved(self, roots: Sequence[Root]) -> int:
        """Bytes of arrays that a row reads and writes."""
        tiles = self.tiles_read(roots)
        for root in roots:
            if isinstance(root.op, xt.StoreTileOp):
                tile = self.e.values.tile(root.op.tile)
                tiles += [tile] if isinstance(tile, Tile) else []
        return sum(tile.shape[1] * itemsize(tile.element) for tile in tiles)

    def prefetch(self, ahead: Ahead, place: Position) -> None:
        b = self.b
        for tile, rows, write in ahead:
            bytes = place.lanes * itemsize(tile.element)
            moved = Position(b.plus(place.row, rows), place.col, 1, place.lanes, True)
            if bytes >= 64 or (
                isinstance(place.col, int) and place.col * itemsize(tile.element) % 64 == 0
            ):
                pointer = self.e.address(tile, moved)
                b.prefetch(pointer, locality=3 if write else 2, write=write)

    def masked(self, sweep: Sweep, col: Idx, mask: SSAValue | None, there: bool = False) -> None:
        """One vector of the rest of a row; `mask`: its elements that belong to the row, None if all do."""
        b, lanes = self.b, sweep.lanes
        pairs = sweep.pairs and not sweep.accumulators  # which masks stand beside in their order
        place = Position(sweep.row, col, 1, lanes, pairs=pairs, there=there)
        for root, accumulator in zip(sweep.reductions, sweep.accumulators, strict=True):
            value = self.e.at(root.value, place)
            if mask is not None:
                value = b.value(arith.SelectOp(mask, value, self.identity(root, lanes)))
            accumulator.add(value)
        self.read(sweep.others, place)
        for root in sweep.others:
            self.finish(root, place, mask)

    def finish(self, root: Root, place: Position, mask: SSAValue | None) -> None:
        if root.kind == "store":
            self.store(root, place, mask)
            return
        assert root.buffer is not None
        register = self.e.at(root.value, place)
        pointer = root.buffer.address(self.b, place.row, place.col)
        if mask is None or place.lanes == 1:
            self.b.store(register, pointer)
        else:  # where rows overlap, what is behind may come from the next row already
            self.b.op(mach.MaskedStoreOp(register, pointer, mask))

    def kind(self, root: Root) -> str:
        assert isinstance(root.op, xt.ReductionOp)
        return root.op.kind

    def identity(self, root: Root, lanes: int) -> SSAValue:
        element = element_of(root.value.type)
        return self.b.constant(lane_type(element, lanes), neutral(self.kind(root), element))
