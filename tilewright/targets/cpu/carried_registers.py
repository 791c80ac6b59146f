"""Small values that loops carry, in registers.

    h = 0                                                       h0, .., h3 = 0, .., 0
    for i: h = 0.9 * h + load X[i]; store h, Y[i]       ->      for i, carrying h0, .., h3:
                                                                  each vector of the row, one after the other

A value that a loop carries is a buffer otherwise, which each trip reads and writes: one trip waits for what the one
before it stored. Fused groups that read such values, or give them, have no loops then: all their vectors stand behind
one another, without masks where their tiles lie inside of their arrays.

Requires of a loop's fused groups that carry on a value: everything that they store or give has its shape, nothing is
reduced in them, and what they give goes to the next trip or to other such groups. Guarantees: behind the loop its
results are in their buffers.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING

from xdsl.dialects import scf
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from tilewright.codegen.tiles import element_of, itemsize, rows_cols
from tilewright.dialects import xetile as xt
from tilewright.dialects.fused import ContractOp, FusedOp
from tilewright.dialects.nesting import terminator
from tilewright.frozen import frozen
from tilewright.targets.cpu.evaluate import Position
from tilewright.targets.cpu.fused_plan import STORES, Root
from tilewright.targets.cpu.memory import Registers, register_starts
from tilewright.targets.cpu.storage import is_tile

if TYPE_CHECKING:
    from tilewright.targets.cpu.fused import FusedEmitter

MOST_PLACES = 16
"""Vectors of a group, which are written out twice: with and without masks."""


@frozen
class Carried:
    """What a loop carries in registers."""

    args: tuple[BlockArgument, ...]
    groups: tuple[FusedOp, ...]
    """The fused groups that have no loops of their own."""

    @property
    def shape(self) -> tuple[int, int]:
        return rows_cols(self.args[0].type)


def roots_of(op: FusedOp) -> list[Root]:
    """What a group stores, and then what it gives."""
    stores = [
        Root(each, each.operands[0], 0, kind="store")
        for each in op.body.block.ops
        if isinstance(each, STORES)
    ]
    return [*stores, *(Root(None, v, 0, kind="keep") for v in terminator(op.body.block).operands)]


def _fits(op: FusedOp, shape: tuple[int, int]) -> bool:
    """Can a group run vector by vector, in whatever order?"""
    inner = list(op.walk())
    reduces = any(isinstance(x, xt.ReductionOp | xt.AtomicRmwOp) for x in inner)
    multiplied = any(isinstance(v.owner, ContractOp) for x in inner for v in x.operands)
    same = all(rows_cols(root.value.type) == shape for root in roots_of(op))
    return same and not reduces and not multiplied


def carried_in_registers(op: scf.ForOp, bytes: int) -> Carried | None:
    """What a loop can carry in so many bytes of registers; None if it is nothing."""
    body, last = op.body.block, terminator(op.body.block)
    tiles = [a for a in body.args[1:] if is_tile(a) and itemsize(element_of(a.type)) > 2]
    if not tiles:
        return None
    shape = rows_cols(tiles[0].type)
    args = {a for a in tiles if rows_cols(a.type) == shape}
    groups = {g for g in body.ops if isinstance(g, FusedOp) and _fits(g, shape)}

    def users(value: SSAValue) -> set[Operation]:
        """The ops in which a value is used: of groups in the loop, the group."""
        parents = ((use.operation, use.operation.parent_op()) for use in value.uses)
        return {up if isinstance(up, FusedOp) and up.parent is body else at for at, up in parents}

    def goes_on(value: SSAValue) -> bool:
        """Is it read by such groups, and given to the next trip as values that registers hold?"""
        carried = all(body.args[1 + i] in args for i, v in enumerate(last.operands) if v is value)
        return carried and users(value) <= {*groups, last}

    def comes(arg: BlockArgument) -> bool:
        """Is what the next trip has in its place made by such a group, in a register already, or from outside?"""
        value = last.operands[arg.index - 1]
        if isinstance(value, BlockArgument):
            return value in args or value.block is not body
        assert isinstance(value, OpResult)
        return value.op in groups or not op.is_ancestor(value.op)

    while True:
        fit = {g for g in groups if all(goes_on(r) for r in g.results)}
        stay = {a for a in args if goes_on(a) and comes(a)}
        if fit == groups and stay == args:
            break
        groups, args = fit, stay
    if not args or sum(prod(shape) * itemsize(element_of(a.type)) for a in args) > bytes:
        return None
    held = {*args, *(last.operands[a.index - 1] for a in args)}
    needed: list[FusedOp] = []
    for group in (g for g in body.ops if isinstance(g, FusedOp) and g in groups):
        if not held.isdisjoint([*group.results, *(v for x in group.walk() for v in x.operands)]):
            needed.append(group)
            held.update(group.results)
    return Carried(tuple(a for a in tiles if a in args), tuple(needed)) if needed else None


def lanes_of(emitters: Iterable[FusedEmitter], shape: tuple[int, int]) -> int | None:
    """Elements of a register of values of this shape, for all groups; None where rows are no whole registers."""
    lanes = max(s.lanes(roots_of(s.fused)) for s in emitters)
    while shape[1] % lanes:
        lanes //= 2
    return lanes if prod(shape) <= MOST_PLACES * lanes and lanes >= 4 else None


def emit_in_registers(s: FusedEmitter, lanes: int) -> list[Registers]:
    """A group whose vectors stand behind one another: what it gives."""
    b, e, roots = s.b, s.e, roots_of(s.fused)
    rows, cols = rows_cols(roots[0].value.type)
    starts = register_starts((rows, cols), lanes)
    inside = None
    ends, runs, whole = set[SSAValue | int](), dict[Operation, bool](), set[SSAValue]()
    for row in range(rows):
        begin, end = s.inside_all(roots, row, cols)
        ends, runs, whole = ends | e.ends, runs | e.runs, whole | e.whole
        for x, y in ((0, begin), (end, cols)):
            inside = b.both(inside, b.cmp("sge", x, y))
    e.ends, e.runs = ends, runs
    assert inside is not None

    def vectors(inside: bool) -> list[SSAValue]:
        made: list[list[SSAValue]] = []
        e.whole = whole if inside else set()
        with e.scope():
            for row, col in starts:
                place = Position(row, col, 1, lanes, inside)
                made.append([e.at(root.value, place) for root in roots])
                for root in roots:
                    if root.kind == "store":
                        s.store(root, place, None)
        return [x[i] for i, root in enumerate(roots) if root.op is None for x in made]

    found = b.choose(inside, lambda: vectors(True), lambda: vectors(False))
    e.ends, e.runs, e.whole = set(), {}, set()
    count = len(starts)
    return [Registers(cols, lanes, found[i : i + count]) for i in range(0, len(found), count)]
