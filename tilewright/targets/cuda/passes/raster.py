"""In which order the workgroups take the programs of the grid: what `persistent` puts at the head of its loop.

Grouped: groups of `GROUP` programs along the fast axis; inside a group that axis is fastest, then the slow one. So the
programs that run at the same time form a block of the grid that is nearly square, and tiles that depend on one axis
only are read by many of them.

Falling: for programs whose work grows with their number along one axis, or falls. Sections of `GROUP` programs along
the other axis, or of so many that the workgroups take `ROUNDS` rounds for one; in a section those with the most work
come first, and the workgroups take them in turn, from the first workgroup to the last and back, so that all have nearly
the same work after each section. What depends on the other axis only (the keys of a head) is that of one section at a
time and stays in the L2 cache: sections are wide only where there is little of it for each.
"""

from __future__ import annotations

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr, i1, i32
from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.dialects import stage

GROUP = 16
"""Programs along an axis that run side by side."""
ROUNDS = 4
"""Programs of a section for each workgroup, at least: the last round, which not all have, is then a small part."""

index = IndexType()


class At:
    """Appends arithmetic on 32-bit numbers, in which division is fast, to a block (before an op)."""

    def __init__(self, block: Block, before: Operation | None):
        self.block, self.before = block, before

    def op(self, op: Operation) -> SSAValue:
        if self.before is None:
            self.block.add_op(op)
        else:
            self.block.insert_op_before(op, self.before)
        return op.results[0]

    def word(self, value: SSAValue | int) -> SSAValue:
        if isinstance(value, int):
            return self.op(arith.ConstantOp(IntegerAttr(value, i32)))
        return value if value.type == i32 else self.op(arith.IndexCastOp(value, i32))

    def index(self, value: SSAValue) -> SSAValue:
        return self.op(arith.IndexCastOp(value, index))

    def add(self, a: SSAValue, b: SSAValue | int) -> SSAValue:
        return self.op(arith.AddiOp(a, self.word(b)))

    def sub(self, a: SSAValue, b: SSAValue | int) -> SSAValue:
        return self.op(arith.SubiOp(a, self.word(b)))

    def mul(self, a: SSAValue, b: SSAValue | int) -> SSAValue:
        return self.op(arith.MuliOp(a, self.word(b)))

    def least(self, a: SSAValue, b: SSAValue | int) -> SSAValue:
        return self.op(arith.MinUIOp(a, self.word(b)))

    def most(self, a: SSAValue, b: SSAValue | int) -> SSAValue:
        return self.op(arith.MaxUIOp(a, self.word(b)))

    def rounded_up(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """The quotient, rounded up."""
        return self.divided(self.add(a, self.sub(b, 1)), b)[0]

    def divided(self, a: SSAValue, b: SSAValue | int) -> tuple[SSAValue, SSAValue]:
        """Quotient and remainder by one division."""
        b = self.word(b)
        quotient = self.op(arith.DivUIOp(a, b))
        return quotient, self.sub(a, self.mul(quotient, b))

    def select(self, which: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.op(arith.SelectOp(which, a, b))

    def odd(self, a: SSAValue) -> SSAValue:
        return self.op(arith.TruncIOp(a, i1))


def grouped(
    body: Block, fast: SSAValue, slow: SSAValue, plane: SSAValue, rows: int
) -> list[SSAValue]:
    """The ids of program number `body.args[0]`, computed at the head of `body`."""
    at = At(body, body.first_op)
    number, x_count, y_count, per_plane = map(at.word, (body.args[0], fast, slow, plane))
    group = at.word(rows)
    z, in_plane = at.divided(number, per_plane)
    which, in_group = at.divided(in_plane, at.mul(y_count, group))
    start = at.mul(which, group)
    y, along = at.divided(in_group, at.least(at.sub(x_count, start), group))
    return [at.index(v) for v in (at.add(start, along), y, z)]


def falling(
    body: Block, programs: list[SSAValue], worker: stage.WorkerOp, axis: int, way: int
) -> tuple[Block, list[SSAValue], scf.ForOp]:
    """The body of a loop over sections, the ids of a program, and the loop over those that a workgroup takes of one.

    The ids are computed at the head of `body`, the inner loop's, whose argument is the round. The work of programs
    grows along `axis` (0 or 1) for `way` 1, and falls for -1. `programs`: their numbers along the three axes.
    """
    one = Block(arg_types=[index])
    at = At(one, None)
    long, short = at.word(programs[axis]), at.word(programs[1 - axis])
    workers, mine = at.word(worker.count), at.word(worker.number)
    section = at.word(one.args[0])
    group = _section_width(at, long, workers)
    z, in_plane = at.divided(section, at.rounded_up(short, group))
    start = at.mul(in_plane, group)
    width = at.least(at.sub(short, start), group)
    # Rounds so far, had all sections been whole: by their number this one begins in one direction or the other.
    most = at.mul(long, at.least(short, group))
    rounds = at.rounded_up(most, workers)
    before = at.mul(section, rounds)
    whole, rest = at.divided(at.mul(long, width), workers)
    back = at.sub(at.sub(workers, 1), mine)
    last = at.select(at.odd(at.add(before, whole)), back, mine)
    more = at.op(arith.CmpiOp(last, rest, "ult"))
    count = at.add(whole, at.op(arith.ExtUIOp(more, i32)))
    none, by = (at.op(arith.ConstantOp(IntegerAttr(n, index))) for n in (0, 1))
    inner = scf.ForOp(none, at.index(count), by, [], Region(body))
    one.add_ops([inner, scf.YieldOp()])
    # The place in the section of this round's program.
    at = At(body, body.first_op)
    turn = at.word(body.args[0])
    offset = at.select(at.odd(at.add(before, turn)), back, mine)
    down, along = at.divided(at.add(at.mul(turn, workers), offset), width)
    number = at.sub(at.sub(long, 1), down) if way > 0 else down
    ids = [at.index(v) for v in (number, at.add(start, along), z)]
    return one, ids if axis == 0 else [ids[1], ids[0], ids[2]], inner


def sections(at: At, programs: list[SSAValue], worker: stage.WorkerOp, axis: int) -> SSAValue:
    """How many sections `falling` makes of all programs of a launch."""
    long, short = at.word(programs[axis]), at.word(programs[1 - axis])
    group = _section_width(at, long, at.word(worker.count))
    return at.mul(at.rounded_up(short, group), at.word(programs[2]))


def _section_width(at: At, long: SSAValue, workers: SSAValue) -> SSAValue:
    """Programs of a section along the axis whose programs have equal work."""
    return at.most(at.rounded_up(at.mul(workers, ROUNDS), long), GROUP)
