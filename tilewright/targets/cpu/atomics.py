"""`xetile.atomic_rmw` -> exchanges of machine words where the elements of a row are a run of memory, one machine atomic
per element elsewhere; rows in order, outside or masked off skipped; sums that a thread has of its own (`private_sums`)
without.

    for each row { value, which elements are on -> memory of the workgroup
      for each word of the row, if any of its elements is on { exchange it until nobody was in between } }

A word lies at a multiple of its size and may begin before the row or end behind it: what is off is written back as it
was, by the same exchange. Where a row's elements lie at no multiple of their size, a machine atomic each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import VectorType, i1
from xdsl.ir import SSAValue

from tilewright.codegen.atomic_loops import exchange_vector
from tilewright.codegen.builder import Idx, lane_type
from tilewright.codegen.tiles import ScatteredTile, Tile, itemsize, rows_cols
from tilewright.dialects import mach
from tilewright.dialects import xetile as xt
from tilewright.targets.cpu.evaluate import Position
from tilewright.targets.cpu.memory import Buffer
from tilewright.targets.cpu.positions import row_of
from tilewright.targets.cpu.private_sums import add_to_own
from tilewright.targets.cpu.reductions import power_of_two

if TYPE_CHECKING:
    from tilewright.targets.cpu.fused import FusedEmitter


def emit_atomics(s: FusedEmitter, op: xt.AtomicRmwOp, old: Buffer | None) -> None:
    """All elements of one atomic_rmw; `old` receives the values before, or the padding 0 where nothing was done."""
    tile, words = s.e.values.tile(op.tile), Words(s, op, old)
    own = None if tile.base is None else s.e.values.sums.get(tile.base)
    if own is None:
        words.emit(tile)
        return
    s.b.choose(
        own.there,
        lambda: add_to_own(s, op, tile, own, s.vector_bytes),
        lambda: words.emit(tile),
    )


class Words:
    """The words of an atomic_rmw's rows."""

    def __init__(self, s: FusedEmitter, op: xt.AtomicRmwOp, old: Buffer | None):
        self.e, self.b, self.op, self.old = s.e, s.b, op, old
        self.shape = rows_cols(op.value.type)
        element = s.e.values.tile(op.tile).element
        size, cols, word_bytes = itemsize(element), self.shape[1], s.word_bytes
        while word_bytes > 8 and word_bytes > size * cols:
            word_bytes //= 2
        self.word = word_bytes // size
        """Elements of a word."""
        self.vector = min(s.vector_bytes // size, power_of_two(cols))
        """Elements that are computed at once."""
        self.few = self.word == 1 or cols < self.word
        if not self.few:
            room = 2 * self.word + -(-cols // self.vector) * self.vector
            self.value = s.scratch(VectorType(element, [room]))  # pyright: ignore
            self.on = s.scratch(VectorType(i1, [room]))

    def emit(self, tile: Tile | ScatteredTile) -> None:
        b, e = self.b, self.e
        with b.loop(0, self.shape[0], nonempty=True) as i, e.scope():
            run = None if self.few else row_of(e, tile, i.iv, self.shape)
            if run is None or run.strides[1] != 1:
                self.one_by_one(tile, i.iv)
                return
            size = itemsize(run.element)
            start = e.address(run, Position(0, 0))
            number = b.value(mach.IntFromPtrOp(start))
            b.choose(
                b.cmp("eq", b.rem(number, size), 0),
                lambda: self.by_words(
                    run, i.iv, start, b.div(b.rem(number, size * self.word), size)
                ),
                lambda: self.one_by_one(tile, i.iv),
            )

    def by_words(self, run: Tile, row: Idx, start: SSAValue, shift: Idx) -> None:
        """A row from address `start` on, `shift` elements behind the beginning of a word."""
        b, e, op, word, cols = self.b, self.e, self.op, self.word, self.shape[1]
        lanes, element = self.vector, run.element
        none = b.constant(lane_type(i1, word), 0)
        end = word + -(-cols // lanes) * lanes
        for outside in (0, end):
            b.store(none, self.on.address(b, 0, outside))
        with b.loop(0, cols, lanes, nonempty=True) as j, e.scope():
            place = Position(row, j.iv, 1, lanes)
            on = e.lanes_inside(run, replace(place, row=0))
            on = b.both(on, None if op.mask is None else e.at(op.mask, place))
            if cols % lanes:
                on = b.both(on, b.mask_first(b.minus(cols, j.iv), lanes))
            on = b.constant(lane_type(i1, lanes), 1) if on is None else on
            at = b.plus(j.iv, word)
            b.store(on, self.on.address(b, 0, at))
            b.store(e.at(op.value, place), self.value.address(b, 0, at))
        first = b.ptr(start, b.times(shift, -itemsize(element)))
        with b.loop(0, b.plus(shift, cols), word, nonempty=True) as k:
            at = b.plus(b.minus(word, shift), k.iv)
            here = self.value.address(b, 0, at)
            on = b.load(self.on.address(b, 0, at), lane_type(i1, word))
            value = b.load(here, lane_type(element, word))
            pointer = b.ptr(first, b.times(k.iv, itemsize(element)))
            before = exchange_vector(b, op.kind, value, pointer, on)
            if self.old is not None:
                b.store(before, here)
        if self.old is not None:
            with b.loop(0, cols, lanes, nonempty=True) as j:
                before = b.load(
                    self.value.address(b, 0, b.plus(j.iv, word)), lane_type(element, lanes)
                )
                b.store(before, self.old.address(b, row, j.iv))

    def one_by_one(self, tile: Tile | ScatteredTile, row: Idx) -> None:
        b, e, op = self.b, self.e, self.op
        with b.loop(0, self.shape[1], nonempty=True) as j, e.scope():
            place = Position(row, j.iv)
            if isinstance(tile, ScatteredTile):
                offset, on = e.scattered(tile, op.mask, place)
                pointer = b.ptr(tile.pointer, offset)
            else:
                on = e.lanes_inside(tile, place)
                if op.mask is not None:
                    on = b.both(on, e.at(op.mask, place))
                on = on if on is not None else b.constant(i1, 1)
                pointer = e.address(tile, place)
            value = e.at(op.value, place)
            (before,) = b.choose(
                on,
                lambda v=value, p=pointer: [b.value(mach.AtomicRmwOp(op.kind, v, p))],
                lambda v=value: [b.constant(v.type, 0)],
            )
            if self.old is not None:
                b.store(before, self.old.address(b, row, j.iv))
