"""A level of a fused group along a row: several vectors a step, without masks, where all matrices reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from tilewright.codegen.builder import Idx
from tilewright.codegen.tiles import Tile, itemsize
from tilewright.dialects import mach
from tilewright.frozen import record
from tilewright.targets.cpu.evaluate import Position
from tilewright.targets.cpu.fused_plan import Root
from tilewright.targets.cpu.memory import Buffer
from tilewright.targets.cpu.reductions import Accumulator

if TYPE_CHECKING:
    from tilewright.targets.cpu.fused import FusedEmitter

LINE = 64
"""Bytes of a cache line."""
READ_AHEAD = 4096
"""Bytes. Stores past the cache hold buffers between core and memory: too few loads are under way by themselves."""
Ahead = list[tuple[Tile, int, bool]]
"""What to prefetch: (tile, rows ahead, will be written)."""


@record
class Sweep:
    """The roots of a level on one row."""

    roots: list[Root]
    row: Idx
    lanes: int
    unroll: int
    accumulators: list[Accumulator]
    """Of its reductions, in the order of the roots."""
    ahead: Ahead
    buffers: dict[SSAValue, Buffer]
    """Values of lower levels that wait in buffers."""
    past: Tile | None = None
    """Where the only root, a store, goes past the caches, in whole lines."""

    reads: Sequence[Tile] = ()
    """What to fetch further along the row."""
    pairs: bool = False
    """May the elements of a vector stand in the order of pairs?"""
    active: SSAValue | None = None
    """Whether it has a row at all; None is always."""

    @property
    def reductions(self) -> list[Root]:
        return [r for r in self.roots if r.kind == "reduce"]

    @property
    def others(self) -> list[Root]:
        return [r for r in self.roots if r.kind != "reduce"]

    @property
    def step(self) -> int:
        return self.lanes * self.unroll


def main_part(s: FusedEmitter, sweeps: Sequence[Sweep], start: Idx, end: Idx) -> None:
    """Columns from `start` to `end`, a multiple of the largest step, of every sweep. Of sweeps on different rows the
    last is the first at a place, for it may read what another writes there."""
    b, e = s.b, s.e
    step = max(sweep.step for sweep in sweeps)
    parts = [[[acc.copy() for _ in range(w.unroll)] for acc in w.accumulators] for w in sweeps]
    every = [acc for each in parts for group in each for acc in group]
    carry = [v for acc in every for v in acc.values]
    outside = e.values.buffers
    with b.loop(start, end, step, carry) as loop, e.scope():
        carried = list(loop.carried)
        for acc in every:
            acc.take(carried)
        for sweep, each in zip(reversed(sweeps), reversed(parts), strict=True):
            e.values.buffers = sweep.buffers
            accumulators = [acc for group in each for acc in group]
            before = [v for acc in accumulators for v in acc.values]

            def vectors(
                sweep: Sweep = sweep,
                each: list[list[Accumulator]] = each,
                accumulators: list[Accumulator] = accumulators,
            ) -> list[SSAValue]:
                with e.scope():
                    for u in range(step // sweep.lanes):
                        col = b.plus(loop.iv, u * sweep.lanes)
                        place = Position(sweep.row, col, 1, sweep.lanes, True, sweep.pairs)
                        _vector(s, sweep, [group[u % sweep.unroll] for group in each], place)
                return [v for acc in accumulators for v in acc.values]

            if sweep.active is None:
                vectors()
                continue
            after = b.choose(sweep.active, vectors, lambda before=before: before)
            for acc in accumulators:
                acc.take(after)
        loop.out = [v for acc in every for v in acc.values]
    e.values.buffers = outside
    e.whole = set()
    results = list(loop.results)
    for acc in every:
        acc.take(results)
    for sweep, each in zip(sweeps, parts, strict=True):
        for i, group in enumerate(each):
            while len(group) > 1:
                for x, y in zip(group[::2], group[1::2], strict=True):
                    x.join(y)
                group = group[::2]
            sweep.accumulators[i] = group[0]


def _vector(s: FusedEmitter, sweep: Sweep, into: list[Accumulator], place: Position) -> None:
    """The roots of a sweep at one place."""
    s.prefetch(sweep.ahead, place)
    for source in sweep.reads:
        later = replace(place, col=s.b.plus(place.col, READ_AHEAD // itemsize(source.element)))
        s.b.prefetch(s.e.address(source, later))
    for root, accumulator in zip(sweep.reductions, into, strict=True):
        accumulator.add(s.e.at(root.value, place))
    s.read(sweep.others, place)
    for root in sweep.others:
        if sweep.past is None:
            s.finish(root, place, None)
            continue
        value, target = s.e.in_order(root.value, place), s.e.address(sweep.past, place)
        s.b.op(mach.StoreOp(value, target, alignment=LINE, nontemporal=True))
