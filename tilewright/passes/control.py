"""Loops and branches built anew where one value becomes several: every lowering that splits values carries them so.

A lowering (`Carrier`) says what stands for a value where it becomes a block argument or a result of the old op
(`flatten`), and takes there what has come (`bind`):

    %r = scf.for .. iter_args(%a = %x) -> vector<64x64xf32> {     %r:2 = scf.for .. iter_args(%a0 = %x0, %a1 = %x1) {
      ..                                                   ->       ..
      scf.yield %y }                                                scf.yield %y0, %y1 }

Guarantees: everything that a region needs is made in front of it or in it, in the order of the old text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from xdsl.dialects import scf
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.dialects.nesting import terminator

Parts = list[list[SSAValue]]
"""What stands for each of several values."""


class Carrier(Protocol):
    """A program under construction, whose regions are built here."""

    def flatten(self, values: Sequence[SSAValue], places: Sequence[SSAValue]) -> Parts:
        """What stands for each value as it becomes `places[i]`, a block argument or result of the old program."""
        ...

    def bind(self, place: SSAValue, parts: Sequence[SSAValue], sample: SSAValue) -> None:
        """An argument or result is these; `sample` is the value of the old program that comes there first, or one that
        a region gives."""
        ...

    def scalar(self, value: SSAValue) -> SSAValue:
        """A bound or condition in the new program."""
        ...

    def region(self, new: Block) -> AbstractContextManager[None]:
        """Ops are appended to `new`; what is made there is not known behind it."""
        ...

    def inner(self, old: Block) -> None:
        """Converts the ops of a block of the old program but for its terminator."""
        ...

    def build(self, new: Operation, old: Operation) -> None:
        """Appends an op that stands for `old`."""
        ...


def convert_for(to: Carrier, op: scf.ForOp) -> None:
    """The loop, carrying what its values became."""
    old = op.body.block
    counter, *args = old.args
    inits = to.flatten(op.iter_args, args)
    bounds = [to.scalar(v) for v in (op.lb, op.ub, op.step)]
    new = Block(arg_types=[bounds[0].type, *_types(inits)])
    with to.region(new):
        to.bind(counter, new.args[:1], op.lb)
        bind_all(to, args, op.iter_args, inits, new.args[1:])
        _body(to, old, args)
    loop = scf.ForOp(bounds[0], bounds[1], bounds[2], flat(inits), Region(new))
    if (unsigned := op.properties.get("unsignedCmp")) is not None:
        loop.properties["unsignedCmp"] = unsigned
    to.build(loop, op)
    bind_all(to, op.results, op.iter_args, inits, loop.results)


def convert_while(to: Carrier, op: scf.WhileOp) -> None:
    """The loop, carrying and handing on what its values became."""
    before, after = op.before_region.block, op.after_region.block
    inits = to.flatten(op.arguments, before.args)
    first = Block(arg_types=_types(inits))
    with to.region(first):
        bind_all(to, before.args, op.arguments, inits, first.args)
        to.inner(before)
        condition = before.last_op
        assert isinstance(condition, scf.ConditionOp)
        passed = to.flatten(condition.args, after.args)
        new = scf.ConditionOp(to.scalar(condition.condition), *flat(passed))
        to.build(new, condition)
    second = Block(arg_types=_types(passed))
    with to.region(second):
        bind_all(to, after.args, condition.args, passed, second.args)
        _body(to, after, before.args)
    loop = scf.WhileOp(flat(inits), _types(passed), Region(first), Region(second))
    to.build(loop, op)
    bind_all(to, op.results, condition.args, passed, loop.results)


def convert_if(to: Carrier, op: scf.IfOp) -> None:
    """The branch, giving what its values became."""
    condition = to.scalar(op.cond)
    convert_branches(
        to, op, lambda types, regions: scf.IfOp(condition, types, regions[0], regions[1])
    )


def convert_branches(
    to: Carrier, op: Operation, make: Callable[[list[Attribute], list[Region]], Operation]
) -> None:
    """An op of whose regions one is done: `make` gives the new one, of its results' types and regions."""
    regions: list[Region] = []
    given: Parts = []
    samples: Sequence[SSAValue] = ()
    for region in op.regions:
        if not region.blocks:
            regions.append(Region())
            continue
        new = Block()
        with to.region(new):
            given = _body(to, region.block, op.results)
        end = region.block.last_op
        samples = () if end is None else end.operands
        regions.append(Region(new))
    made = make(_types(given), regions)
    to.build(made, op)
    bind_all(to, op.results, samples, given, made.results)


def _body(to: Carrier, old: Block, places: Sequence[SSAValue]) -> Parts:
    """Fills a block whose end gives `places` their values."""
    to.inner(old)
    end = terminator(old)
    given = to.flatten(end.operands, places)
    to.build(scf.YieldOp(*flat(given)), end)
    return given


def bind_all(
    to: Carrier,
    places: Sequence[SSAValue],
    samples: Sequence[SSAValue],
    like: Parts,
    given: Sequence[SSAValue],
) -> None:
    """Binds each place to as many of the given values as its parts are in `like`."""
    at = 0
    for place, sample, parts in zip(places, samples, like, strict=True):
        to.bind(place, given[at : at + len(parts)], sample)
        at += len(parts)


def flat(parts: Parts) -> list[SSAValue]:
    """The parts of all values, one after the other."""
    return [value for each in parts for value in each]


def _types(parts: Parts) -> list[Attribute]:
    return [value.type for each in parts for value in each]
