"""Software pipelining: the ops of a loop run in stages, those of a later stage iterations behind.

    for i { A(i); B(i) }    ->    if it runs { A(first)                                     prologue
                                               for i from the second { A(i); B(i - 1) }     kernel
    A in stage 0, B in stage 1                 B(last) }                                    epilogue

A pass decides (a `PipelineSchedule`: op -> stage, and the order of one step of the kernel); this file makes the loops:
in the form above (`expand`), or without the copies of the body, where ops can be kept from harm that have no iteration:

    for i { A(i); B(i) }    ->    for i from the first { A(i); if not the first: B(i - 1) }; if it ran: B(last)
                            ->    A(first) if it runs; for i from the first { if not the last: A(i + 1); B(i) }

Requires: a loop all of whose ops but the yield are in the order. What an op reads was made in its own stage before it,
or in a stage before; what the loop carries, in the iteration before (so at most one stage later, and then before it in
the order), or is the counter. What ops of two stages do to memory does not depend on their order, unless a
multi-buffer orders it.
Guarantees: every op sees the values of its iteration; a loop that runs no iteration gives what it began with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr, i1
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects.upstream.arith import constant
from tilewright.frozen import field, record


@record
class PipelineSchedule:
    """When the ops of a loop's body run: the stage of each (0 where there is no entry), and their order in a step."""

    loop: scf.ForOp
    stages: Mapping[Operation, int]
    order: Sequence[Operation]
    counts: int = 0
    """The stage whose iterations the kernel counts; what the loop carries and no op of its body makes is that one's."""

    def __post_init__(self) -> None:
        block = self.loop.body.block
        assert block.last_op is not None
        self.depth = max(self.stages.values(), default=0)
        """Iterations between the first stage and the last."""
        self.args = block.args[1:]
        self.ends: dict[SSAValue, SSAValue] = dict(
            zip(self.args, block.last_op.operands, strict=True)
        )
        """What the loop yields for each value that it carries."""
        self.counter = block.args[0]
        found: dict[SSAValue, int] = {self.counter: 0}
        for arg, result in zip(self.args, self.loop.results, strict=True):
            # What the loop gives is of its last iteration, which stages ahead of the one that counts have left behind.
            found[arg] = 1 + (
                max(0, self.counts - self.end_stage(arg)) if result.first_use is not None else 0
            )
        read = [(value, self.stage(op)) for op in self.order for value in self.reads(op)]
        read += [(end, self.counts) for end in self.ends.values() if isinstance(end.owner, Block)]
        for value, stage in read:
            if self.is_inside(value):
                found[value] = max(self.age(value, stage), found.get(value, 0))
        self.carried = [(v, n) for n in range(self.depth + 2) for v in found if n < found[v]]
        """What a step leaves to the next: a value, as so many steps before made it."""

    def stage(self, op: Operation) -> int:
        return self.stages.get(op, 0)

    def end_stage(self, value: SSAValue) -> int:
        """The stage that makes a value, or what a carried one will be."""
        owner = self.ends.get(value, value).owner
        if isinstance(owner, Operation) and owner.parent is self.loop.body.block:
            return self.stage(owner)
        return self.counts

    def age(self, value: SSAValue, stage: int) -> int:
        """How many steps ago what an op of a stage reads was made; 0: in this one; less: it is the counter, as it will
        be."""
        return stage + (value in self.ends) - self.end_stage(value)

    def reads(self, op: Operation) -> list[SSAValue]:
        """The values of the iteration that an op takes, or one inside of it."""
        return [v for inner in op.walk() for v in inner.operands if self.is_inside(v)]

    def is_inside(self, value: SSAValue) -> bool:
        owner = value.owner
        return (owner if isinstance(owner, Block) else owner.parent) is self.loop.body.block


Held = dict[SSAValue, list[SSAValue]]
"""What earlier steps made of each carried value, the newest first."""
Predicate = Callable[[Operation, Callable[[], SSAValue]], Operation]
"""The op as it acts only where a condition holds, if that matters: it is computed where it is asked for."""


@record
class _Step:
    """One step: the ops of some stages, each for its iteration."""

    schedule: PipelineSchedule
    into: Block
    held: Held
    active: range
    counters: dict[int, SSAValue] = field(default_factory=dict[int, SSAValue])
    """By stage; those before the one that counts follow from its own. Empty after the last iteration."""
    predicate: Predicate | None = None
    """What is done to ops of stages that may have no iteration in this step: all but the one that counts."""

    def run(self) -> Held:
        """Makes the ops; what is held after them."""
        s = self.schedule
        self.fresh: dict[SSAValue, SSAValue] = {}
        self.known: dict[int, SSAValue] = {}
        if s.counts in self.counters:
            self.fresh[s.counter] = self.counters[s.counts]
        for op in s.order:
            if (stage := s.stage(op)) in self.active:
                made = op.clone({v: self.value(v, stage) for v in s.reads(op)})
                if stage != s.counts and self.predicate is not None:
                    made = self.predicate(made, partial(self.runs, stage))
                self.into.add_op(made)
                self.fresh |= dict(zip(op.results, made.results, strict=True))
        return {value: self._after(value) for value, _ in s.carried}

    def runs(self, stage: int) -> SSAValue:
        """Has a stage an iteration in this step?"""
        if stage not in self.known:
            loop, counts = self.schedule.loop, self.schedule.counts
            if stage < counts or not self.counters:
                counter = self.count(stage) if self.counters else loop.lb
                asked = _less(self.into, counter, loop.ub, "unsignedCmp" not in loop.properties)
            else:
                asked = _made(self.into, arith.CmpiOp(self.count(counts), loop.lb, "ne"))
            self.known[stage] = asked
        return self.known[stage]

    def count(self, stage: int) -> SSAValue:
        """The counter of an iteration that a stage is in."""
        if stage not in self.counters:
            after = self.count(stage + 1)
            self.counters[stage] = _plus(self.into, after, self.schedule.loop.step)
        return self.counters[stage]

    def value(self, value: SSAValue, stage: int) -> SSAValue:
        """A value as it is in the iteration that a stage is in."""
        s = self.schedule
        if not s.is_inside(value):
            return value
        age = s.age(value, stage)
        if value is s.counter and age <= 0:
            return self.count(stage)
        if age:
            return self.held[value][age - 1]
        if value not in s.ends:
            return self.fresh[value]
        # What the loop begins with, before the stage that makes the next has begun.
        made = stage + 1 in self.active
        return self.value(s.ends[value], stage + 1) if made else self.held[value][0]

    def _after(self, value: SSAValue) -> list[SSAValue]:
        s, before = self.schedule, self.held.get(value, [])
        stage = s.end_stage(value)
        if stage not in self.active or not (value in s.ends or value in self.fresh):
            return before
        newest = self.value(s.ends[value], stage) if value in s.ends else self.fresh[value]
        return [newest, *before]


def expand(run: Sequence[PipelineSchedule]) -> None:
    """Replaces loops of one block, each of which begins with what the one before gives, at the place of the last.

    All have two stages. One goes into the next without an epilogue and a prologue between: their second stages must do
    the same to values that correspond, in order.
    """
    assert all(s.depth == 1 for s in run)
    place = Block()
    results = _from(run, place, list(run[0].loop.iter_args))
    _replace([s.loop for s in run], place, results)


def _from(run: Sequence[PipelineSchedule], into: Block, start: list[SSAValue]) -> list[SSAValue]:
    """The loops of a run from its first on, none before which ran: what is carried after all of them."""
    if not run:
        return start
    first, last = run[0], run[-1]
    loop = first.loop
    then, otherwise = Block(), Block()
    held: Held = {arg: [value] for arg, value in zip(first.args, start, strict=True)}
    state = _flat(first, _Step(first, then, held, range(1), {0: loop.lb}).run())
    second = arith.AddiOp(loop.lb, loop.step)
    then.add_op(second)
    for each in run:
        begin = second.result if each is first else each.loop.lb
        state = _kernel(each, then, begin, state)
    then.add_op(scf.YieldOp(*_epilogue(last, then, state)))
    otherwise.add_op(scf.YieldOp(*_from(run[1:], otherwise, start)))
    ran = arith.CmpiOp(loop.lb, loop.ub, "slt")
    choice = scf.IfOp(ran, list(loop.result_types), Region(then), Region(otherwise))
    into.add_ops([ran, choice])
    return list(choice.results)


def expand_predicated(
    schedule: PipelineSchedule, predicate: Predicate, before: Callable[[SSAValue], SSAValue]
) -> list[Operation]:
    """Replaces a loop without a second copy of its body: the kernel begins with the first iteration.

    It has two stages, and carries nothing that the second makes. `predicate` keeps an op of the second from harm where
    that has no iteration; `before` gives what it reads there of the first. Returns the new ops: the kernel, and what
    follows it.
    """
    assert schedule.depth == 1 and not any(schedule.end_stage(arg) for arg in schedule.args)
    loop, place = schedule.loop, Block()
    begun: Held = {arg: [value] for arg, value in zip(schedule.args, loop.iter_args, strict=True)}
    start = [before(v) if n or v not in begun else begun[v][0] for v, n in schedule.carried]
    state = _kernel(schedule, place, loop.lb, start, predicate)
    return _replace([loop], place, _epilogue(schedule, place, state, predicate))


def expand_ahead(schedule: PipelineSchedule, predicate: Predicate) -> list[Operation]:
    """Replaces a loop by a prologue of the stages ahead of its last, and a kernel that counts iterations of the last.

    There is no epilogue: `predicate` keeps ops ahead from harm beyond the loop's end. Returns the new ops.
    """
    assert schedule.counts == schedule.depth
    loop, place = schedule.loop, Block()
    held: Held = {arg: [value] for arg, value in zip(schedule.args, loop.iter_args, strict=True)}
    counters: list[SSAValue] = []
    for last in range(schedule.depth):
        counters.append(_plus(place, counters[-1], loop.step) if counters else loop.lb)
        known = dict(enumerate(reversed(counters)))
        held = _Step(schedule, place, held, range(last + 1), known, predicate).run()
    held = _held(schedule, _kernel(schedule, place, loop.lb, _flat(schedule, held), predicate))
    # Of what is asked for, the oldest that a step leaves is of the last iteration.
    return _replace([loop], place, [held[arg][-1] for arg in schedule.args])


def _plus(into: Block, x: SSAValue, y: SSAValue) -> SSAValue:
    """The sum of two counters, a constant where both are indices that are."""
    known = constant(x), constant(y)
    if known[0] is None or known[1] is None or not isinstance(x.type, IndexType):
        return _made(into, arith.AddiOp(x, y))
    return _made(into, arith.ConstantOp(IntegerAttr(known[0] + known[1], x.type)))


def _less(into: Block, x: SSAValue, y: SSAValue, signed: bool) -> SSAValue:
    """Whether one counter is less than another, a constant where both are and not negative."""
    known = constant(x), constant(y)
    if known[0] is None or known[1] is None or min(known[0], known[1]) < 0:
        return _made(into, arith.CmpiOp(x, y, "slt" if signed else "ult"))
    return _made(into, arith.ConstantOp(IntegerAttr(int(known[0] < known[1]), i1)))


def _made(into: Block, op: Operation) -> SSAValue:
    into.add_op(op)
    return op.results[0]


def _kernel(
    schedule: PipelineSchedule,
    into: Block,
    begin: SSAValue,
    state: Sequence[SSAValue],
    predicate: Predicate | None = None,
) -> Sequence[SSAValue]:
    """The loop of whole steps, the first of which is iteration `begin` of the first stage."""
    loop = schedule.loop
    body = Block(arg_types=[begin.type, *(v.type for v in state)])
    counter, *carried = body.args
    kernel = _Step(
        schedule,
        body,
        _held(schedule, carried),
        range(schedule.depth + 1),
        {schedule.counts: counter},
        predicate,
    )
    body.add_op(scf.YieldOp(*_flat(schedule, kernel.run())))
    new = scf.ForOp(begin, loop.ub, loop.step, list(state), Region(body))
    new.attributes.update(loop.attributes)
    new.properties.update(loop.properties)
    into.add_op(new)
    return new.results


def _epilogue(
    schedule: PipelineSchedule,
    into: Block,
    state: Sequence[SSAValue],
    predicate: Predicate | None = None,
) -> list[SSAValue]:
    """The later stage of the last iteration; what the loop gives."""
    held = _Step(schedule, into, _held(schedule, state), range(1, 2), {}, predicate).run()
    return [held[arg][0] for arg in schedule.args]


def _flat(schedule: PipelineSchedule, held: Held) -> list[SSAValue]:
    return [held[value][n] for value, n in schedule.carried]


def _held(schedule: PipelineSchedule, flat: Sequence[SSAValue]) -> Held:
    found: Held = {}
    for (value, _), each in zip(schedule.carried, flat, strict=True):
        found.setdefault(value, []).append(each)
    return found


def _replace(
    loops: Sequence[scf.ForOp], place: Block, results: Sequence[SSAValue]
) -> list[Operation]:
    """The ops of a block in place of loops; they are where the last one was."""
    end = loops[-1]
    made = list(place.ops)
    Rewriter.inline_block(place, InsertPoint.before(end))
    for old, new in zip(end.results, results, strict=True):
        new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    for loop in reversed(loops):
        Rewriter.erase_op(loop)
    return made
