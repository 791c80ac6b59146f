"""Control flow: what lanes agree on stays a branch, what they do not becomes masks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import field, fields, replace
from typing import Any

from xdsl.dialects import cf, func, scf
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.dialects.dominance import following, reachable
from tilewright.dialects.nesting import terminator
from tilewright.frozen import record
from tilewright.passes.control import Parts, bind_all, convert_for, convert_if, convert_while, flat
from tilewright.passes.uniformity import UNIFORM, Kind, Ramp, successors, tests
from tilewright.targets.emu import values as v
from tilewright.targets.emu.builder import Idx
from tilewright.targets.emu.context import ASSERTION
from tilewright.targets.emu.divergence import (
    divergent_for,
    divergent_if,
    divergent_while,
    let_others_run,
)
from tilewright.targets.emu.lowering import Lowering, lowers
from tilewright.targets.emu.memory import array_argument, scalar_argument

# Values where control flow meets --------------------------------------------------------------------------------------


class Pack:
    """How a value is a list of SSA values where control flow meets: `types`, `open` it, `close` it again."""

    def __init__(self, low: Lowering, like: SSAValue, sample: v.Value):
        self.low = low
        self.kind: Kind = low.kinds[like]
        self.like = like
        self.sample = sample

    def open(self, value: SSAValue) -> list[SSAValue]:
        """The SSA values that `value` consists of here."""
        low, b = self.low, self.low.b
        found = low.env[value]
        if isinstance(found, v.Uniform | v.Growing | v.Varying):
            made = low.as_kind(value, self.kind)
            if isinstance(made, v.Growing):
                return [b.idx(made.base)]
            assert isinstance(made, v.Uniform | v.Varying)
            return [made.value]
        parts: list[SSAValue] = []
        self._each(found, lambda number: parts.append(self._flat(number)))
        return parts

    def close(self, parts: Sequence[SSAValue]) -> v.Value:
        """The value of SSA values as `open` gives them."""
        rest = iter(parts)
        if not isinstance(self.sample, v.Uniform | v.Growing | v.Varying):
            return self._each(self.sample, lambda number: self._made(number, next(rest)))
        if isinstance(self.kind, Ramp):
            return v.Growing(next(rest), self.kind.steps, self.like.type)
        return (v.Uniform if self.kind is UNIFORM else v.Varying)(next(rest))

    def _each(self, value: v.Value, change: Callable[[Any], Any]) -> v.Value:
        """The value with another for each number of it."""

        def part(old: Any) -> Any:
            if isinstance(old, tuple):
                return tuple(change(number) for number in old)  # pyright: ignore
            return old if isinstance(old, Attribute) else change(old)

        return replace(value, **{f.name: part(getattr(value, f.name)) for f in fields(value)})

    def _flat(self, number: v.Address | Idx) -> SSAValue:
        if not isinstance(number, v.Address):
            return self.low.b.idx(number)
        plain = number.plain()
        return self.low.uniform(plain) if self.kind is UNIFORM else self.low.wide_of(plain)

    def _made(self, old: v.Address | Idx, new: SSAValue) -> v.Address | Idx:
        if not isinstance(old, v.Address):
            return new
        alike = self.kind is UNIFORM
        return v.Address(self.low, new) if alike else v.Address(self.low, vector=new)


@record
class UniformCarrier:
    """Loops and branches of a kernel that lanes take alike (`passes.control`)."""

    low: Lowering
    packs: dict[SSAValue, Pack] = field(default_factory=dict[SSAValue, Pack])

    def _pack(self, place: SSAValue, sample: SSAValue) -> Pack:
        if place not in self.packs:
            self.packs[place] = Pack(self.low, place, self.low.env[sample])
        return self.packs[place]

    def flatten(self, values: Sequence[SSAValue], places: Sequence[SSAValue]) -> Parts:
        return [self._pack(p, value).open(value) for value, p in zip(values, places, strict=True)]

    def bind(self, place: SSAValue, parts: Sequence[SSAValue], sample: SSAValue) -> None:
        self.low.env[place] = self._pack(place, sample).close(parts)

    def scalar(self, value: SSAValue) -> SSAValue:
        return self.low.uniform(value)

    @contextmanager
    def region(self, new: Block) -> Generator[None]:
        with self.low.b.inside(new):
            yield

    def inner(self, old: Block) -> None:
        loop = old.parent_op()
        if isinstance(loop, scf.WhileOp) and old is loop.before_region.block:
            let_others_run(self.low, old)
        self.low.block(old)

    def build(self, new: Operation, old: Operation) -> None:
        self.low.op = old
        self.low.b.op(new)


# The function ---------------------------------------------------------------------------------------------------------


def bind_arguments(low: Lowering) -> None:
    for place, argument in zip(low.places, low.kernel.body.blocks[0].args, strict=False):
        if isinstance(argument.type, MemRefType):
            low.env[argument] = array_argument(low, argument.type, place)
        else:
            low.env[argument] = v.Uniform(scalar_argument(low, argument.type, place))


def body(low: Lowering, region: Region) -> None:
    blocks = list(low.kernel.body.blocks)
    if len(blocks) == 1:
        low.block(blocks[0])
        return
    graph(low, blocks, region)


def graph(low: Lowering, blocks: Sequence[Block], region: Region) -> None:
    """Blocks and branches between them, whose conditions lanes agree on; uses come after definitions."""
    carrier = UniformCarrier(low)
    made: dict[Block, Block] = {}
    first: dict[Block, tuple[Sequence[SSAValue], Parts]] = {}
    order = reachable(blocks[0], following)

    def target(block: Block, values: Sequence[SSAValue]) -> tuple[Block, list[SSAValue]]:
        parts = carrier.flatten(values, block.args)
        if block not in made:
            made[block], first[block] = (
                Block(arg_types=[p.type for p in flat(parts)]),
                (values, parts),
            )
            region.add_block(made[block])
        return made[block], flat(parts)

    for block in order:
        if block is not blocks[0]:
            low.b.block = made[block]
            bind_all(carrier, block.args, *first[block], made[block].args)
        low.block(block)
        last = terminator(block)
        low.op = last
        ways = [target(*way) for way in successors(last)]
        if isinstance(last, cf.BranchOp):
            ((new, values),) = ways
            low.b.op(cf.BranchOp(new, *values))
        elif isinstance(last, cf.ConditionalBranchOp):
            condition = low.uniform(last.cond, "the condition of a branch between blocks")
            (then, passed), (other, rest) = ways
            low.b.op(cf.ConditionalBranchOp(condition, then, passed, other, rest))
        elif isinstance(last, cf.SwitchOp):
            flag = low.uniform(last.flag, "the flag of a switch between blocks")
            (default, passed), *cases = ways
            blocks, values = [block for block, _ in cases], [given for _, given in cases]
            low.b.op(cf.SwitchOp(flag, default, passed, last.case_values, blocks, values))
        elif last.name != "gpu.return":
            raise low.refuse("ends a block of a kernel")


@lowers("gpu.return", "func.return")
def return_(low: Lowering, op: Operation) -> None:
    low.b.op(func.ReturnOp())


@lowers("cf.assert")
def assert_(low: Lowering, op: cf.AssertOp) -> None:
    condition = low.plain(op.arg)
    if isinstance(condition, v.Uniform):
        low.demand(condition.value, ASSERTION)
        return
    low.demand_of_all(low.wide_of(condition), ASSERTION)


# Regions that lanes agree to enter ------------------------------------------------------------------------------------


_REGIONS: dict[type[Operation], tuple[Callable[..., None], Callable[..., None]]] = {
    scf.IfOp: (convert_if, divergent_if),
    scf.ForOp: (convert_for, divergent_for),
    scf.WhileOp: (convert_while, divergent_while),
}
"""What lanes do alike, and what each does by itself."""


@lowers("scf.if", "scf.for", "scf.while")
def regions(low: Lowering, op: Operation) -> None:
    together, apart = _REGIONS[type(op)]
    if all(low.kinds[test] is UNIFORM for test in tests(op)):
        together(UniformCarrier(low), op)
    else:
        apart(low, op)
