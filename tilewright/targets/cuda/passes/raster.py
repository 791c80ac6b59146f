"""In which order the workgroups take the programs of the grid: what `persistent` puts at the head of its loop.

Grouped: groups of `GROUP` programs along the fast axis; inside a group that axis is fastest, then the slow one. So the
programs that run at the same time form a block of the grid that is nearly square, and tiles that depend on one axis
only are read by many of them.

Falling: for programs whose work grows with their number along one axis, or falls. Sections of `GROUP` programs along
the other axis, or of so many that the workgroups take `ROUNDS` rounds for one, and of as many more as leave no narrower
one at the end, for whose few long programs most workgroups would wait; in a section those with the most work come
first, and the workgroups take them in turn, from the first workgroup to the last and back, so that all have nearly the
same work after each section. What depends on the other axis only (the keys of a head) is that of one section at a time
and stays in the L2 cache: sections are wide only where there is little of it for each.
"""

from __future__ import annotations

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr, i1, i32
from xdsl.ir import Block, Region, SSAValue

from tilewright.dialects import stage
from tilewright.dialects.folding import Idx, Kind
from tilewright.dialects.upstream.arith import IndexCastUIOp
from tilewright.passes.emit import Before

GROUP = 16
"""Programs along an axis that run side by side."""
ROUNDS = 4
"""Programs of a section for each workgroup, at least: the last round, which not all have, is then a small part."""

index = IndexType()


class At(Before):
    """Inserts arithmetic on 32-bit numbers, in which division is fast."""

    def word(self, value: Idx) -> SSAValue:
        if isinstance(value, int):
            return self.add(arith.ConstantOp(IntegerAttr(value, i32)))
        return value if value.type == i32 else self.add(arith.IndexCastOp(value, i32))

    def number(self, value: Idx) -> SSAValue:
        """A word, which is not negative, as an index."""
        return self.add(IndexCastUIOp(self.word(value), index))

    def combined(self, kind: Kind, x: Idx, y: Idx) -> Idx:
        return self.add(kind(self.word(x), self.word(y)))

    def least(self, a: Idx, b: Idx) -> SSAValue:
        return self.add(arith.MinUIOp(self.word(a), self.word(b)))

    def most(self, a: Idx, b: Idx) -> SSAValue:
        return self.add(arith.MaxUIOp(self.word(a), self.word(b)))

    def rounded_up(self, a: Idx, b: Idx) -> SSAValue:
        """The quotient, rounded up."""
        return self.quotient_and_rest(self.plus(a, self.minus(b, 1)), b)[0]

    def quotient_and_rest(self, a: Idx, b: Idx) -> tuple[SSAValue, Idx]:
        """Quotient and remainder by one division."""
        quotient = self.add(arith.DivUIOp(self.word(a), b := self.word(b)))
        return quotient, self.minus(a, self.times(quotient, b))

    def select(self, which: SSAValue, a: Idx, b: Idx) -> SSAValue:
        return self.add(arith.SelectOp(which, self.word(a), self.word(b)))

    def odd(self, a: Idx) -> SSAValue:
        return self.add(arith.TruncIOp(self.word(a), i1))


def grouped(
    body: Block, fast: SSAValue, slow: SSAValue, plane: SSAValue, rows: int
) -> list[SSAValue]:
    """The ids of program number `body.args[0]`, computed at the head of `body`."""
    assert body.first_op is not None
    at = At(body.first_op)
    number, x_count, y_count, per_plane = map(at.word, (body.args[0], fast, slow, plane))
    group = at.word(rows)
    z, in_plane = at.quotient_and_rest(number, per_plane)
    which, in_group = at.quotient_and_rest(in_plane, at.times(y_count, group))
    start = at.times(which, group)
    y, along = at.quotient_and_rest(in_group, at.least(at.minus(x_count, start), group))
    return [at.number(v) for v in (at.plus(start, along), y, z)]


def falling(
    body: Block, programs: list[SSAValue], worker: stage.WorkerOp, axis: int, way: int
) -> tuple[Block, list[SSAValue], scf.ForOp]:
    """The body of a loop over sections, the ids of a program, and the loop over those that a workgroup takes of one.

    The ids are computed at the head of `body`, the inner loop's, whose argument is the round. The work of programs
    grows along `axis` (0 or 1) for `way` 1, and falls for -1. `programs`: their numbers along the three axes.
    """
    one = Block([last := scf.YieldOp()], arg_types=[index])
    at = At(last)
    long, short = at.word(programs[axis]), at.word(programs[1 - axis])
    workers, mine = at.word(worker.count), at.word(worker.number)
    section = at.word(one.args[0])
    group = _section_width(at, long, short, workers)
    z, in_plane = at.quotient_and_rest(section, at.rounded_up(short, group))
    start = at.times(in_plane, group)
    width = at.least(at.minus(short, start), group)
    # Every other section is taken the other way round: who had more work in one has less in the next.
    whole, rest = at.quotient_and_rest(at.times(long, width), workers)
    back = at.minus(at.minus(workers, 1), mine)
    end = at.select(at.odd(at.plus(section, whole)), back, mine)
    more = at.add(arith.CmpiOp(end, at.word(rest), "ult"))
    count = at.plus(whole, at.add(arith.ExtUIOp(more, i32)))
    none, by = at.index(0), at.index(1)
    inner = scf.ForOp(none, at.number(count), by, [], Region(body))
    at.insert(inner)
    # The place in the section of this round's program.
    assert body.first_op is not None
    at = At(body.first_op)
    turn = at.word(body.args[0])
    offset = at.select(at.odd(at.plus(section, turn)), back, mine)
    down, along = at.quotient_and_rest(at.plus(at.times(turn, workers), offset), width)
    number = at.minus(at.minus(long, 1), down) if way > 0 else down
    ids = [at.number(v) for v in (number, at.plus(start, along), z)]
    return one, ids if axis == 0 else [ids[1], ids[0], ids[2]], inner


def sections(at: At, programs: list[SSAValue], worker: stage.WorkerOp, axis: int) -> Idx:
    """How many sections `falling` makes of all programs of a launch."""
    long, short = at.word(programs[axis]), at.word(programs[1 - axis])
    group = _section_width(at, long, short, at.word(worker.count))
    return at.times(at.rounded_up(short, group), at.word(programs[2]))


def _section_width(at: At, long: SSAValue, short: SSAValue, workers: SSAValue) -> SSAValue:
    """Programs of a section along the axis whose `short` programs have equal work."""
    least = at.most(at.rounded_up(at.times(workers, ROUNDS), long), GROUP)
    sections, _ = at.quotient_and_rest(at.most(short, 1), least)
    return at.rounded_up(at.most(short, 1), at.most(sections, 1))
