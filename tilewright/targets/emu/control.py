"""Control flow: what lanes agree on stays a branch, what they do not becomes masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith, cf, func, scf
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.dominance import reachable_blocks
from tilewright.targets.emu import values as v
from tilewright.targets.emu.builder import Idx, index
from tilewright.targets.emu.divergence import (
    divergent_for,
    divergent_if,
    divergent_switch,
    divergent_while,
    let_others_run,
    vec_mask,
)
from tilewright.targets.emu.lowering import ASSERTION, Lowering, lowers
from tilewright.targets.emu.uniformity import UNIFORM, Kind, Ramp

# Values where control flow meets --------------------------------------------------------------------------------------


class Pack:
    """How a value is a list of SSA values where control flow meets: `types`, `open` it, `close` it again."""

    def __init__(self, low: Lowering, like: SSAValue, sample: v.Value, fixed: bool = False):
        self.low = low
        self.kind: Kind = low.kinds[like]
        self.like = like
        self.sample = sample
        self.fixed = fixed
        """A block descriptor whose offsets alone change."""

    def open(self, value: SSAValue) -> list[SSAValue]:
        """The SSA values that `value` consists of here."""
        low, b = self.low, self.low.b
        found = low.env[value]
        match found:
            case v.Uniform() | v.Growing() | v.Varying():
                made = low.as_kind(value, self.kind)
                if isinstance(made, v.Growing):
                    return [b.idx(made.base)]
                assert isinstance(made, v.Uniform | v.Varying)
                return [made.value]
            case v.Block():
                parts: Sequence[Idx] = found.offsets
                if not self.fixed:
                    parts = (found.base, *found.sizes, *found.strides, *found.offsets)
                return [b.idx(part) for part in parts]
            case v.Matrix():
                return [b.idx(found.base)]
            case v.Barrier():
                return [b.idx(found.number), b.idx(found.participants)]
            case v.Scattered():
                size = -1 if found.size is None else found.size
                return [
                    *(b.idx(p) for p in (found.base, size, found.stride)),
                    low.wide_of(found.indices),
                ]
            case v.Memory():
                return self._open_memory(found)

    def _open_memory(self, found: v.Memory) -> list[SSAValue]:
        low, b = self.low, self.low.b
        parts = [b.idx(p) for p in (found.base, *found.sizes, *found.strides)]
        if self.kind is UNIFORM:
            offset = found.offset
            place = offset if isinstance(offset, int) else low.uniform(offset)
            return [b.idx(place), *parts]
        offset = found.offset
        if isinstance(offset, int):
            offset = v.Uniform(b.idx(offset))
        lane = found.lane
        if lane is None:
            lane = b.zeros(low.widened(index))
        return [low.wide_of(offset), *parts, lane]

    def close(self, parts: Sequence[SSAValue]) -> v.Value:
        """The value of SSA values as `open` gives them."""
        sample = self.sample
        match sample:
            case v.Uniform() | v.Growing() | v.Varying():
                if isinstance(self.kind, Ramp):
                    return v.Growing(parts[0], self.kind.steps, self.like.type)
                return v.Uniform(parts[0]) if self.kind is UNIFORM else v.Varying(parts[0])
            case v.Block():
                if self.fixed:
                    return v.Block(sample.base, sample.sizes, sample.strides, tuple(parts))
                n = len(sample.sizes)
                return v.Block(
                    parts[0],
                    tuple(parts[1 : 1 + n]),
                    tuple(parts[1 + n : 1 + 2 * n]),
                    tuple(parts[1 + 2 * n :]),
                )
            case v.Matrix():
                return v.Matrix(parts[0])
            case v.Barrier():
                return v.Barrier(parts[0], parts[1])
            case v.Scattered():
                indices = v.Varying(parts[3]) if self.low.lanes > 1 else v.Uniform(parts[3])
                return v.Scattered(parts[0], parts[1], parts[2], indices)
            case v.Memory():
                n = len(sample.sizes)
                offset = v.Uniform(parts[0]) if self.kind is UNIFORM else v.Varying(parts[0])
                lane = None if self.kind is UNIFORM else parts[2 + 2 * n]
                sizes, strides = tuple(parts[2 : 2 + n]), tuple(parts[2 + n : 2 + 2 * n])
                return v.Memory(parts[1], offset, sizes, strides, sample.element, lane)


def packs(low: Lowering, places: Sequence[SSAValue], first: Sequence[SSAValue]) -> list[Pack]:
    """For each place where values meet (a block argument or result), and one of the values that come there."""
    return [Pack(low, place, low.env[value]) for place, value in zip(places, first, strict=True)]


def opened(group: Sequence[Pack], values: Sequence[SSAValue]) -> list[SSAValue]:
    return [part for pack, value in zip(group, values, strict=True) for part in pack.open(value)]


def enter(
    low: Lowering,
    group: Sequence[Pack],
    places: Sequence[SSAValue],
    parts: Sequence[SSAValue],
    sizes: Sequence[int],
) -> None:
    """Bind places to the SSA values that arrive there."""
    at = 0
    for pack, place, size in zip(group, places, sizes, strict=True):
        low.env[place] = pack.close(parts[at : at + size])
        at += size


# The function ---------------------------------------------------------------------------------------------------------


def bind_arguments(low: Lowering) -> None:
    from tilewright.targets.emu.memory import array_argument, scalar_argument

    arguments = low.kernel.body.blocks[0].args
    given = low.kernel.function_type.inputs
    for place, argument in zip(low.context.places, arguments[: len(given)], strict=False):
        if isinstance(argument.type, MemRefType):
            low.env[argument] = array_argument(low, argument.type, place)
        else:
            low.env[argument] = v.Uniform(scalar_argument(low, argument.type, place))
    for attribution in arguments[len(given) :]:
        from tilewright.targets.emu.memory import allocate

        low.op = low.kernel
        allocate(low, attribution, attribution, ())


def body(low: Lowering, region: Region) -> None:
    blocks = list(low.kernel.body.blocks)
    if len(blocks) == 1:
        low.block(blocks[0])
        return
    graph(low, blocks, region)


def graph(low: Lowering, blocks: Sequence[Block], region: Region) -> None:
    """Blocks and branches between them, whose conditions lanes agree on; uses come after definitions."""
    made: dict[Block, tuple[Block, list[Pack], list[int]]] = {}
    order = reachable_blocks(blocks[0])

    def target(block: Block, values: Sequence[SSAValue]) -> tuple[Block, list[SSAValue]]:
        if block not in made:
            group = packs(low, block.args, values)
            parts = [pack.open(value) for pack, value in zip(group, values, strict=True)]
            flat = [p for each in parts for p in each]
            new = Block(arg_types=[p.type for p in flat])
            region.add_block(new)
            made[block] = (new, group, [len(each) for each in parts])
            return new, flat
        new, group, _ = made[block]
        return new, opened(group, values)

    for block in order:
        if block is not blocks[0]:
            new, group, sizes = made[block]
            enter(low, group, block.args, new.args, sizes)
            low.b.block = new
        low.block(block)
        last = block.last_op
        assert last is not None
        low.op = last
        if isinstance(last, cf.BranchOp):
            new, values = target(last.successor, last.arguments)
            low.b.put(cf.BranchOp(new, *values))
        elif isinstance(last, cf.ConditionalBranchOp):
            condition = low.uniform(last.cond, "the condition of a branch between blocks")
            then, passed = target(last.then_block, last.then_arguments)
            other, rest = target(last.else_block, last.else_arguments)
            low.b.put(cf.ConditionalBranchOp(condition, then, passed, other, rest))
        elif isinstance(last, cf.SwitchOp):
            flag = low.uniform(last.flag, "the flag of a switch between blocks")
            default, passed = target(last.default_block, last.default_operands)
            cases = [target(*way) for way in zip(last.case_blocks, last.case_operand, strict=True)]
            blocks, values = [block for block, _ in cases], [given for _, given in cases]
            low.b.put(cf.SwitchOp(flag, default, passed, last.case_values, blocks, values))
        elif last.name != "gpu.return":
            raise low.refuse("ends a block of a kernel")


@lowers("gpu.return", "func.return")
def return_(low: Lowering, op: Operation) -> None:
    low.b.put(func.ReturnOp())


@lowers("cf.assert")
def assert_(low: Lowering, op: cf.AssertOp) -> None:
    condition = low.plain(op.arg)
    if isinstance(condition, v.Uniform):
        low.demand(condition.value, ASSERTION)
        return
    fine = low.wide_of(condition)
    if low.mask is not None:
        away = low.b.add(arith.XOrIOp(low.mask, vec_mask(low)))
        fine = low.b.add(arith.OrIOp(fine, away))
    low.demand(low.all(fine), ASSERTION)


# Regions that lanes agree to enter ------------------------------------------------------------------------------------


def _region(low: Lowering, block: Block, finish: Callable[[Operation], None]) -> Block:
    """Lower a region's ops into a new block; `finish(terminator)` ends it."""
    with low.b.inside(Block()) as new:
        low.block(block)
        last = block.last_op
        assert last is not None
        outer = low.op
        low.op = last
        finish(last)
        low.op = outer
    return new


@lowers("scf.if")
def if_(low: Lowering, op: scf.IfOp) -> None:
    if low.kinds[op.cond] is not UNIFORM:
        divergent_if(low, op)
        return
    condition = low.uniform(op.cond)
    regions = [
        region.block if region.blocks else None for region in (op.true_region, op.false_region)
    ]
    merge(low, op, regions, lambda types, blocks: scf.IfOp(
        condition, types, Region(blocks[0]), Region(blocks[1:])
    ))  # fmt: skip


def merge(
    low: Lowering,
    op: Operation,
    regions: Sequence[Block | None],
    make: Callable[[list[Attribute], list[Block]], Operation],
) -> None:
    """An op one of whose regions is run: results come from their yields."""
    group: list[Pack] | None = None
    types: list[Attribute] = []
    sizes: list[int] = []
    blocks: list[Block] = []

    def finish(last: Operation) -> None:
        nonlocal group, types, sizes
        values = list(last.operands)
        if group is None:
            group = packs(low, op.results, values)
        parts = [pack.open(value) for pack, value in zip(group, values, strict=True)]
        flat = [p for each in parts for p in each]
        types, sizes = [p.type for p in flat], [len(each) for each in parts]
        low.b.put(scf.YieldOp(*flat))

    for region in regions:
        if region is not None:
            blocks.append(_region(low, region, finish))
    new = make(types, blocks)
    low.b.put(new)
    if group is not None:
        enter(low, group, op.results, new.results, sizes)


@lowers("scf.index_switch")
def switch(low: Lowering, op: scf.IndexSwitchOp) -> None:
    if low.kinds[op.arg] is not UNIFORM:
        divergent_switch(low, op)
        return
    argument = low.uniform(op.arg)
    regions = [op.default_region.block, *(region.block for region in op.case_regions)]
    merge(low, op, regions, lambda types, blocks: scf.IndexSwitchOp(
        argument, op.cases, Region(blocks[0]), [Region(block) for block in blocks[1:]], types
    ))  # fmt: skip


@lowers("scf.execute_region")
def execute_region(low: Lowering, op: scf.ExecuteRegionOp) -> None:
    if len(op.region.blocks) != 1:
        raise low.refuse("with several blocks")
    low.block(op.region.block)
    last = op.region.block.last_op
    assert last is not None
    for result, value in zip(op.results, last.operands, strict=True):
        low.env[result] = low.env[value]


@lowers("scf.for")
def for_(low: Lowering, op: scf.ForOp) -> None:
    bounds = (op.lb, op.ub, op.step)
    if any(low.kinds[x] is not UNIFORM for x in bounds):
        divergent_for(low, op)
        return
    lower, upper, step = (low.uniform(x) for x in bounds)
    counter, *carried = op.body.block.args
    last = op.body.block.last_op
    assert last is not None
    group = packs(low, carried, list(op.iter_args))
    for pack, argument, value in zip(group, carried, last.operands, strict=True):
        pack.fixed = isinstance(pack.sample, v.Block) and _only_moves(value, argument)
    parts = [pack.open(value) for pack, value in zip(group, op.iter_args, strict=True)]
    flat, sizes = [p for each in parts for p in each], [len(each) for each in parts]
    new = Block(arg_types=[lower.type, *(p.type for p in flat)])
    with low.b.inside(new):
        low.env[counter] = v.Uniform(new.args[0])
        enter(low, group, carried, new.args[1:], sizes)
        low.block(op.body.block)
        low.op = last
        low.b.put(scf.YieldOp(*opened(group, list(last.operands))))
    low.op = op
    loop = scf.ForOp(lower, upper, step, flat, new)
    for name in ("unsignedCmp",):
        if name in op.properties:
            loop.properties[name] = op.properties[name]
    low.b.put(loop)
    enter(low, group, op.results, loop.results, sizes)


def _only_moves(value: SSAValue, argument: SSAValue) -> bool:
    """Is a descriptor the loop's own, moved?"""
    while value is not argument:
        owner = value.owner
        if not isinstance(owner, xegpu.UpdateNdOffsetOp):
            return False
        value = owner.tensor_desc
    return True


@lowers("scf.while")
def while_(low: Lowering, op: scf.WhileOp) -> None:
    before, after = op.before_region.block, op.after_region.block
    condition = before.last_op
    assert isinstance(condition, scf.ConditionOp)
    if low.kinds[condition.condition] is not UNIFORM:
        divergent_while(low, op, condition)
        return
    group = packs(low, before.args, list(op.arguments))
    parts = [pack.open(value) for pack, value in zip(group, op.arguments, strict=True)]
    flat, sizes = [p for each in parts for p in each], [len(each) for each in parts]
    first = Block(arg_types=[p.type for p in flat])
    passed: list[Pack] = []
    types: list[Attribute] = []
    lengths: list[int] = []
    with low.b.inside(first):
        enter(low, group, before.args, first.args, sizes)
        let_others_run(low, before)
        low.block(before)
        low.op = condition
        passed = packs(low, op.results, list(condition.args))
        handed = [p.open(x) for p, x in zip(passed, condition.args, strict=True)]
        together = [p for each in handed for p in each]
        types, lengths = [p.type for p in together], [len(each) for each in handed]
        low.b.put(scf.ConditionOp(low.uniform(condition.condition), *together))
    second = Block(arg_types=types)
    with low.b.inside(second):
        enter(low, passed, after.args, second.args, lengths)
        low.block(after)
        last = after.last_op
        assert last is not None
        low.op = last
        low.b.put(scf.YieldOp(*opened(group, list(last.operands))))
    low.op = op
    loop = scf.WhileOp(flat, types, Region(first), Region(second))
    low.b.put(loop)
    enter(low, passed, op.results, loop.results, lengths)
