"""Rows that overlap: the levels of successive rows of a fused group run in one loop.

A level that waits for memory, one that computes and one that stores past the caches keep each other waiting where they
come one after the other. Where the last level streams (`streaming.py`),
level p of row r runs beside level p + 1 of row r - 1:

    for t in [0, rows + levels - 1):
      columns of level p of row t - p, for every p that has such a row
      for c in [head, main):  for every such p, the last first: roots of level p of row t - p, no masks
      for every such p, the last first: the rest of the row, masked

[head, main) are the whole lines of the last level's row as far as no other row leaves its matrix. A value that waits
for level p + d needs d rows of its buffer: the later level reads a place before the earlier one writes it again (which
then may write it twice, a masked vector reaches into what is done).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.codegen.builder import Idx
from tilewright.codegen.tiles import Tile, itemsize, rows_cols
from tilewright.targets.cpu.evaluate import Position
from tilewright.targets.cpu.fused_plan import FusedPlan
from tilewright.targets.cpu.streaming import phase_of, streamed_tile
from tilewright.targets.cpu.sweeps import LINE, Sweep, main_part

if TYPE_CHECKING:
    from tilewright.targets.cpu.fused import FusedEmitter


def overlapping(s: FusedEmitter, plan: FusedPlan, step: int) -> Tile | None:
    """The tile that the last level streams to where rows may overlap, as far as is known now; else None."""
    wide = [plan.of(level, False) for level in range(plan.levels)]
    if step != 1 or not 2 <= plan.levels <= plan.rows or not all(wide) or s.loaded & s.written:
        return None
    widths = {rows_cols(root.value.type)[1] for level in wide for root in level}
    if len(widths) != 1 or any(root.kind == "store" for level in wide[:-1] for root in level):
        return None
    return streamed_tile(s, wide[-1], min(widths), s.lanes(wide[-1]))


def emit_overlapped(s: FusedEmitter, plan: FusedPlan, tile: Tile) -> None:
    """All rows, a new one at each turn, where the tile is one to stream to."""
    b, before = s.b, s.e.values.buffers
    last, width = plan.levels - 1, rows_cols(plan.roots[-1].value.type)[1]
    states = [before]
    """By level: the buffers of what lower levels made."""
    for level in range(last):
        made = {s.made(r): r.buffer for r in plan.roots if r.level == level and r.buffer}
        states.append({**states[-1], **made})

    rows = s.last_row(plan)
    with b.loop(0, b.plus(rows, last)) as turns, s.e.scope():
        sweeps: list[Sweep] = []
        ends: set[Idx] = set()
        end: Idx = width
        for level in range(plan.levels):
            row = b.minus(turns.iv, level)
            active = b.both(b.cmp("sge", row, 0), b.cmp("slt", row, rows))
            assert active is not None
            row = b.max(b.min(row, b.minus(rows, 1)), 0)
            s.e.values.buffers = dict(states[level])
            columns, roots = plan.of(level, True), plan.of(level, False)
            with b.when(active), s.e.scope():
                s.read(columns, Position(row, 0, 0, 1))
                for root in columns:
                    s.column(root, row, 1)
            s.hoist(roots, row, s.lanes(roots))
            end = b.min(end, s.main_end(roots, row, width))
            ends |= s.e.ends
            past = tile if level == last else None
            sweep = s.sweep_of(roots, row, s.lanes(roots), [], past)
            sweep.active = active
            if level == 0:
                sweep.ahead = [(t, 1, False) for t in s.tiles_read(roots) if t.strides[1] == 1]
            sweeps.append(sweep)
        s.e.ends = ends
        step = max(sweep.step for sweep in sweeps)
        phase = b.div(phase_of(s, tile, sweeps[-1].row), itemsize(tile.element))
        head = b.rem(b.minus(LINE // itemsize(tile.element), phase), sweeps[-1].lanes)
        main = b.plus(head, b.times(b.div(b.max(b.minus(end, head), 0), step), step))
        main_part(s, sweeps, head, main)
        s.e.ends = set()
        for sweep in reversed(sweeps):
            s.e.values.buffers = sweep.buffers
            assert sweep.active is not None
            s.rest(sweep, 0, b.select(sweep.active, head, 0), cut=True)
            s.rest(sweep, main, b.select(sweep.active, width, main), cut=True)
            with b.when(sweep.active), s.e.scope():
                s.reduced(sweep)
    s.e.values.buffers = before
