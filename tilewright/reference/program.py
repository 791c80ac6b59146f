"""A function laid out as segments: straight-line sequences of ops with a decision at the end.

Regions and branches are flattened once, before anything runs. An instance (a workgroup, subgroup
or lane) then only needs to know the number of the segment where it stands, and the executor runs
a segment for all instances that stand there. Segments are numbered in the order of the text, so
that running the lowest first lets instances that went separate ways meet again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import SymbolRefAttr
from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.diagnostics import CompileError, error_at, unsupported
from tilewright.dialects.nesting import blocks_in, ops_around
from tilewright.dialects.unknown import instead_of
from tilewright.frozen import record
from tilewright.reference.registry import CONTROLS, MEANINGS, control, load_meanings
from tilewright.reference.values import Array, Index

if TYPE_CHECKING:
    from tilewright.reference.machine import Group

Step = Callable[["Group"], None]
Successors = Iterable[tuple["Segment", Index]]
End = Callable[["Group"], Successors]
Bound = SSAValue | int


@dataclass(eq=False)
class Segment:
    """Steps that run one after the other, then `end`: which instances go where."""

    number: int = -1
    steps: list[Step] = field(default_factory=list[Step])
    end: End | None = None
    """None: the instances are done."""


@record
class Program:
    """The segments of one function; instances start at segment 0."""

    function: Operation
    arguments: Sequence[SSAValue]
    segments: list[Segment]
    results: Sequence[SSAValue]
    """Stand-ins for what the function returns (the entry's own results)."""


def lay_out(function: Operation) -> Program:
    """Flattens a function (gpu.func, func.func) with everything that it calls."""
    load_meanings()
    builder = SegmentBuilder(function)
    body = function.regions[0]
    if body.first_block is None:
        raise error_at(function, "a function without a body cannot be run")
    frame = builder.function(function)
    return Program(function, tuple(body.first_block.args), builder.segments, frame.results)


@record
class CallFrame:
    """A call being laid out: where its returns go, and where their values are put."""

    function: Operation
    exit: Segment
    results: Sequence[SSAValue]
    blocks: dict[Block, Segment] = field(default_factory=dict[Block, Segment])


class SegmentBuilder:
    """Lays ops out as segments. Control-flow meanings (`@control`) get one."""

    def __init__(self, entry: Operation):
        self.entry = entry
        self.segments: list[Segment] = []
        self.frames: list[CallFrame] = []
        self.here = self.start(Segment())

    # Segments.
    def start(self, segment: Segment) -> Segment:
        """The segment that the next steps go to; its place in the order is fixed now."""
        segment.number = len(self.segments)
        self.segments.append(segment)
        self.here = segment
        return segment

    def step(self, step: Step) -> None:
        """Appends a step to the current segment."""
        self.here.steps.append(step)

    def jump(self, target: Segment) -> None:
        """Ends the current segment: everybody goes to `target`."""
        self.end(lambda group: [(target, group.index)])

    def branch(self, condition: Callable[[Group], Array], yes: Segment, no: Segment) -> None:
        """Ends the current segment: instances whose condition is true go to `yes`."""

        def successors(group: Group) -> Successors:
            return split(group, np.asarray(condition(group)), {True: yes, False: no}, no)

        self.end(successors)

    def switch(
        self, selector: Callable[[Group], Array], cases: dict[int, Segment], default: Segment
    ) -> None:
        """Ends the current segment: instances go by an integer value."""
        self.end(lambda group: split(group, selector(group), cases, default))

    def end(self, end: End) -> None:
        self.here.end = end

    # Values.
    def move(self, sources: Sequence[SSAValue], targets: Sequence[SSAValue]) -> None:
        """Copies values, all at once, as a loop or a branch hands them on."""
        if sources:
            pairs = list(zip(sources, targets, strict=True))

            def copy(group: Group) -> None:
                values = [(group.get(source), group.flight(source)) for source, _ in pairs]
                for (_, target), (value, flight) in zip(pairs, values, strict=True):
                    group.set(target, value, flight)

            self.step(copy)

    def nest(
        self, loops: Sequence[tuple[SSAValue, Bound, Bound, Bound]], inside: Callable[[], None]
    ) -> None:
        """Loops in each other, given as (counter, lower bound, upper bound, step)."""
        if not loops:
            inside()
            return
        counter, low, high, step = loops[0]
        head, body, after = Segment(), Segment(), Segment()

        def advance(group: Group) -> None:
            group.set(counter, group.get(counter) + group.number(step))

        self.step(lambda group: group.set(counter, group.number(low)))
        self.jump(head)
        self.start(head)
        self.branch(lambda group: group.get(counter) < group.number(high), body, after)
        self.start(body)
        self.nest(loops[1:], inside)
        self.step(advance)
        self.jump(head)
        self.start(after)

    # Ops and regions.
    def op(self, op: Operation) -> None:
        """Lays out one op."""
        if (control := CONTROLS.get(op.name)) is not None:
            control(self, op)
            return
        meaning = MEANINGS.get(op.name)
        if meaning is None:
            words = f"the reference executor does not know the op {op.name}"
            raise unsupported(op, words, hint=instead_of(op.name))
        self.step(lambda group: group.execute(op, meaning))

    def block(self, block: Block) -> Operation:
        """Lays out a block of a structured op, but for its terminator, which is given back."""
        last = block.last_op
        if last is None:
            raise CompileError("a block without a terminator cannot be run")
        for op in block.ops:
            if op is not last:
                self.op(op)
        return last

    def single_block(self, region: Region) -> Operation:
        """Lays out a region of one block; gives its terminator back."""
        return self.block(region.block)

    def region(self, region: Region, frame: CallFrame) -> None:
        """Lays out a region whose blocks branch to each other (cf)."""
        self.frames.append(frame)
        frame.blocks = {block: Segment() for block in region.blocks}
        for block in region.blocks:
            segment = frame.blocks[block]
            if block is region.first_block:
                self.jump(segment)
            self.start(segment)
            for op in block.ops:
                self.op(op)
        self.frames.pop()

    @property
    def frame(self) -> CallFrame:
        return self.frames[-1]

    def function(self, function: Operation, results: Sequence[SSAValue] | None = None) -> CallFrame:
        """Lays out the body of a function; its arguments have been set."""
        if any(frame.function is function for frame in self.frames):
            raise unsupported(function, "the reference executor does not run recursion")
        if results is None:
            kind: Any = getattr(function, "function_type", None)
            types = kind.outputs.data if kind is not None else ()
            results = [Block(arg_types=[type]).args[0] for type in types]
        frame = CallFrame(function, Segment(), results)
        self.region(function.regions[0], frame)
        self.start(frame.exit)
        return frame

    def block_segment(self, block: Block) -> Segment:
        """Where a block of a region that is being laid out starts."""
        return next(f.blocks[block] for f in reversed(self.frames) if block in f.blocks)


def find_symbol(op: Operation, symbol: SymbolRefAttr) -> Operation:
    """The op that a symbol names, looked up outwards from an op."""
    wanted = [symbol.root_reference.data, *(part.data for part in symbol.nested_references)]
    for scope in ops_around(op):
        found: Operation | None = scope
        for name in wanted:
            found = _symbol(found, name) if found is not None else None
        if found is not None:
            return found
    raise error_at(op, f"there is no function called @{'::@'.join(wanted)}")


def _symbol(scope: Operation, name: str) -> Operation | None:
    for block in blocks_in(scope):
        for op in block.ops:
            symbol = op.properties.get("sym_name") or op.attributes.get("sym_name")
            if getattr(symbol, "data", None) == name:
                return op
    return None


def is_declaration(function: Operation) -> bool:
    """True for a function that has no body here."""
    return isinstance(function, func.FuncOp) and not function.body.blocks


def split(group: Group, selector: Array, cases: dict[Any, Segment], default: Segment) -> Successors:
    """Sends instances by the value that they have, the common case of one way first."""
    first = selector.flat[0]
    if selector.size == 1 or (selector == first).all():
        return [(cases.get(first.item(), default), group.index)]
    successors: list[tuple[Segment, Index]] = []
    left = np.ones(selector.shape[0], bool)
    for case, segment in cases.items():
        mine = selector == case
        if mine.any():
            successors.append((segment, group.index[mine]))
        left &= ~mine
    if left.any():
        successors.append((default, group.index[left]))
    return successors


Move = TypeVar("Move", bound=Callable[["Group", Any, Segment], Successors])
Act = TypeVar("Act", bound=Callable[["Group", Any], None])


def goes(*names: str) -> Callable[[Move], Move]:
    """Registers where a group goes at ops: `function(group, op, then)`, of which `then` is what follows the op."""

    def register(function: Move) -> Move:
        @control(*names)
        def lay(builder: SegmentBuilder, op: Operation) -> None:
            then = Segment()

            def end(group: Group) -> Successors:
                group.site.op = op
                return function(group, op, then)

            builder.end(end)
            builder.start(then)

        return function

    return register


def acts(*names: str) -> Callable[[Act], Act]:
    """Registers what a group does at ops whose values may be in flight, or of all instances: `function(group, op)`."""

    def register(function: Act) -> Act:
        @control(*names)
        def lay(builder: SegmentBuilder, op: Operation) -> None:
            def step(group: Group) -> None:
                group.site.op = op
                function(group, op)

            builder.step(step)

        return function

    return register
