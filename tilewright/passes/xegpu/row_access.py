"""Which accesses move a block that no 2D block message reaches: rows of the subgroup, or vectors of single lanes.

A *row* is a 1-D block message: word i of lane l is word i * lanes + l of consecutive memory, one address for all. A
*vector* is a lane's own: consecutive elements from an address of its own. Which ones fit follows from the ownership of
the value (`Layout`), by the alignment that is known, and by the machine's table; which is taken, by its costs:

    A 16x32 of f16, 8 lanes, a lane owns pairs of columns      16 rows of 32-bit words x2
    B 16x32 of f16, lanes own columns                          16 rows of 16-bit words x4, packed in registers
    B^T 8x16 of f16, a lane owns a row                         one vector of 32-bit words x8
    rows that begin at odd multiples of 2 bytes                single elements
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.xetile.assembly import Index
from tilewright.frozen import frozen
from tilewright.layout.blocks import lane_map
from tilewright.passes.xegpu.block_messages import created, surface
from tilewright.passes.xegpu.facts import row_alignment
from tilewright.uarch.xe import XeMachine

Kind = Literal["row", "lane"]
Ints = NDArray[np.intp]


@frozen
class RowAccess:
    """One access: `registers` in the order in which it fills them, `start` of lane 0 in the block."""

    registers: tuple[int, ...]
    start: tuple[int, ...]
    word: int
    """Elements side by side that one lane gets as a word."""
    bits: int
    """Of a word."""

    @property
    def count(self) -> int:
        """Words per lane."""
        return len(self.registers) // self.word


@frozen
class RowPlan:
    """Accesses of one kind that move all registers of a value."""

    kind: Kind
    runs: tuple[RowAccess, ...]
    cost: int

    def is_narrow(self, bits: int) -> bool:
        """Are single elements of less than a word moved, of `bits` bits?"""
        return self.kind == "lane" and any(len(run.registers) * bits < 32 for run in self.runs)


@frozen
class Question:
    """A value of `bits` bits per element, distributed by `layout` over the block, in memory whose rows are aligned
    so.
    """

    xe: XeMachine
    layout: ly.Layout
    bits: int
    align: int
    """Bytes that divide the address of the block's first element, whatever the row."""
    form: str = "load"
    shared: bool = False
    contiguous: bool = True
    """Do elements of a row lie side by side?"""
    whole: int | None = None
    """Aligned groups of so many columns are inside or outside together; None where all are inside."""

    @property
    def lanes(self) -> int:
        return self.layout.lanes


def asked(
    xe: XeMachine, op: xegpu.BlockAccess, base: xegpu.CreateNdDescOp, layout: ly.Layout
) -> Question:
    """The question of a block load or store of `base`, whose value is distributed by `layout` over rows and columns."""
    _, strides = surface(base)
    return Question(
        xe,
        layout,
        element_bits(op.tdesc.element_type),
        row_alignment(base, offset_parts(op, base)),
        "store" if isinstance(op, xegpu.StoreNdOp) else "load",
        bool(op.tdesc.space.number),
        bool(strides) and strides[-1] == 1,
    )


def offset_parts(op: xegpu.BlockAccess, base: xegpu.CreateNdDescOp) -> list[list[Index]]:
    """Coordinates that add up to the block's position."""
    return [list(g) for g in (base.mixed_offsets, op.mixed_offsets or []) if g]


def whole_units(op: xegpu.LoadNdOp, bits: int) -> bool:
    """Is the block known to begin at a whole unit of `bits` bits of a row, as a message that moves units does?"""
    base = created(op)
    return base is not None and row_alignment(base, offset_parts(op, base)) * 8 % bits == 0


def best(q: Question) -> RowPlan:
    """The cheapest accesses of the whole block, all of which is taken to be inside."""
    found = [plan for plan in (rows(q), vectors(q)) if plan is not None]
    return min(found, key=lambda plan: plan.cost)


# --- Rows of the subgroup ----------------------------------------------------------------------------------


def rows(q: Question) -> RowPlan | None:
    """1-D block messages for all registers; None where lanes do not own rows so, or rows are not aligned."""
    lane, register = q.layout.lane_starts, q.layout.register_steps
    if not q.contiguous or q.bits % 8 or any(x.any() for x in lane[:-1]):
        return None
    word = int(lane[-1][1]) if q.lanes > 1 else 1
    if word < 1 or (lane[-1] != np.arange(q.lanes) * word).any():
        return None
    if word > 1 and _consecutive_words(q, (1,) * (len(lane) - 1), word) != word:
        return None  # the text of a row has the words that lanes are distributed, and no others
    form = q.xe.row_form(q.form, q.bits * word)
    if form is None:
        return None
    need = form.shared_align if q.shared else form.align
    runs: list[RowAccess] = []
    for row, at in _by_row(register).items():
        words = _words(at, word)
        if words is None:
            return None
        for part in _chunks(words, q.lanes * word, form.counts):
            start = (*row, part[0][0])
            if _aligned(start[-1], q.bits, q.align) % need:
                return None
            order = tuple(n for _, numbers in part for n in numbers)
            runs.append(RowAccess(order, start, word, q.bits * word))
    return RowPlan("row", tuple(runs), _cost(q, runs, q.xe.costs.message, q.xe.costs.row_bytes))


def _consecutive_words(q: Question, lead: tuple[int, ...], word: int) -> int:
    """Elements side by side that are a lane's word in a row [lead.., n]; 1 in a row of a 1-D base."""
    try:
        return lane_map((*lead, q.lanes * word), q.bits, q.lanes)[1][-1]
    except (ly.LayoutError, IndexError):
        return 1


def _by_row(register: Sequence[Ints]) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    """(column, register) of every register, by the row that it is in, columns ascending."""
    found: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for n, column in enumerate(register[-1]):
        row = tuple(int(x[n]) for x in register[:-1])
        found.setdefault(row, []).append((int(column), n))
    for at in found.values():
        at.sort()
    return found


def _words(at: Sequence[tuple[int, int]], word: int) -> list[tuple[int, tuple[int, ...]]] | None:
    """(column, registers) of the words of a row; None where a lane's neighbours are not side by side."""
    words: list[tuple[int, tuple[int, ...]]] = []
    for first in range(0, len(at), word):
        part = at[first : first + word]
        column = part[0][0]
        if [c for c, _ in part] != list(range(column, column + word)):
            return None
        words.append((column, tuple(n for _, n in part)))
    return words


def _chunks(
    words: Sequence[tuple[int, tuple[int, ...]]], step: int, counts: Sequence[int]
) -> list[list[tuple[int, tuple[int, ...]]]]:
    """Words that follow each other at a distance of `step`, cut into the legal counts, largest first."""
    chunks: list[list[tuple[int, tuple[int, ...]]]] = []
    at = 0
    while at < len(words):
        together = 1
        while (
            at + together < len(words) and words[at + together][0] == words[at][0] + together * step
        ):
            together += 1
        size = max(c for c in counts if c <= together)
        chunks.append(list(words[at : at + size]))
        at += size
    return chunks


def _aligned(column: int, bits: int, align: int) -> int:
    """Bytes that divide the address of a column."""
    offset = column * bits // 8
    return align if offset == 0 else min(align, offset & -offset)


def _cost(q: Question, runs: Sequence[RowAccess], message: int, most: int) -> int:
    """Of the messages of runs, each of which moves `most` bytes at a time."""
    sizes = (len(run.registers) * q.bits * q.lanes // 8 for run in runs)
    return sum(message + -(-size // most) for size in sizes)


# --- Vectors of single lanes ----------------------------------------------------------------------------------


def vectors(q: Question) -> RowPlan:
    """Accesses of single lanes, as wide as alignment and table allow; single elements always do."""
    lane, register = q.layout.lane_starts, q.layout.register_steps
    runs: list[RowAccess] = []
    for row, at in _by_row(register).items():
        n = 0
        while n < len(at):
            size, bits = _widest(q, lane[-1], at, n)
            part = at[n : n + size]
            word = max(1, bits // q.bits)
            runs.append(RowAccess(tuple(r for _, r in part), (*row, part[0][0]), word, bits))
            n += size
    costs = q.xe.costs
    total = _cost(q, runs, costs.message + costs.addresses, costs.lane_bytes)
    return RowPlan("lane", tuple(runs), total)


def _widest(q: Question, lanes: Ints, at: Sequence[tuple[int, int]], first: int) -> tuple[int, int]:
    """(elements, bits of a word) of the widest access of a lane that begins at a register's element."""
    column = at[first][0]
    together = 1
    while first + together < len(at) and at[first + together][0] == column + together:
        together += 1
    if not q.contiguous:
        together = 1
    words = dict(q.xe.lane_words)
    bits = max(32, q.bits)
    pack = bits // q.bits
    if bits % q.bits or q.align % 4 or column % pack or (lanes % pack).any():
        return 1, q.bits
    for count in sorted(words.get(bits, (1,)), reverse=True):
        size = count * pack
        # Three words leave the next access without a partner.
        if count == 3 or size > together or (size == 1 and bits != q.bits):
            continue
        if q.whole is None or not (q.whole % size or column % size or (lanes % size).any()):
            return size, bits
    return 1, q.bits
