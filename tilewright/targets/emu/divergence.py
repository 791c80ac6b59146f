"""Regions that lanes enter and leave at different times: masks.

    scf.if %differs { A } else { B }   ->   mask = here & differs;  if any(mask) { A under the mask }
                                            mask = here & ~differs; if any(mask) { B under the mask }
                                            results: select by differs
    scf.while, scf.for that lanes leave at different times   ->   while any(active) { body under active }

A lane that has left a loop keeps its values while others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import MemRefType, i1
from xdsl.ir import Attribute, Block, Region, SSAValue

from tilewright.dialects import mach
from tilewright.dialects.xegpu.types import MemDescType, NbarrierType, TensorDescType
from tilewright.targets.emu import values as v
from tilewright.targets.emu.lowering import Lowering

YIELD = "tw_emu_yield"
READS = ("memref.", "xegpu.load", "xegpu.atomic_rmw", "vector.load", "vector.gather")


def let_others_run(low: Lowering, block: Block) -> None:
    """A loop whose condition reads memory may wait for another subgroup to write it."""
    if any(op.name.startswith(READS) for op in block.walk()):
        low.b.put(mach.CallOp(YIELD, [low.b.pointer(low.base)]))


def _under(
    low: Lowering,
    mask: SSAValue,
    work: Callable[[], Sequence[SSAValue]],
    otherwise: Sequence[SSAValue],
) -> list[SSAValue]:
    """What `work` gives with only the lanes of `mask` there; `otherwise` where there are none."""
    outer = low.mask
    op = low.op

    def then() -> Sequence[SSAValue]:
        low.mask = mask
        made = work()
        low.mask = outer
        return made

    results = low.b.when(low.any(mask), then, lambda: otherwise)
    low.op = op
    return results


def _wide_types(low: Lowering, places: Sequence[SSAValue]) -> list[Attribute]:
    for place in places:
        if isinstance(place.type, MemRefType | TensorDescType | MemDescType | NbarrierType):
            raise low.refuse(f"a value of type {place.type} where lanes go different ways")
    return [low.widened(place.type) for place in places]


def divergent_if(low: Lowering, op: scf.IfOp) -> None:
    b = low.b
    condition = low.wide(op.cond)
    types = _wide_types(low, op.results)
    nothing = [b.zeros(t) for t in types]
    negated = b.add(arith.XOrIOp(condition, b.constant(condition.type, 1)))
    sides: list[list[SSAValue]] = []
    for region, test in ((op.true_region, condition), (op.false_region, negated)):
        if not region.blocks:
            continue
        block = region.block

        def work(block: Block = block) -> list[SSAValue]:
            low.block(block)
            last = block.last_op
            assert last is not None
            return [low.wide(x) for x in last.operands]

        sides.append(_under(low, low.mask_and(test), work, nothing))
    for i, result in enumerate(op.results):
        low.env[result] = v.Varying(b.select(condition, sides[0][i], sides[1][i]))


def divergent_switch(low: Lowering, op: scf.IndexSwitchOp) -> None:
    """Each case under the lanes whose number it is, the default under the rest."""
    b = low.b
    argument = low.wide(op.arg)
    types = _wide_types(low, op.results)
    nothing = [b.zeros(t) for t in types]
    tests: list[SSAValue] = []
    for number in op.cases.get_values():
        case = b.constant(argument.type, int(number))
        tests.append(b.add(arith.CmpiOp(argument, case, "eq")))
    rest = vec_mask(low)
    for test in tests:
        rest = b.add(arith.AndIOp(rest, b.add(arith.XOrIOp(test, vec_mask(low)))))
    found: list[SSAValue] | None = None
    regions = [op.default_region, *op.case_regions]
    for region, test in zip(regions, [rest, *tests], strict=True):
        block = region.block

        def work(block: Block = block) -> list[SSAValue]:
            low.block(block)
            last = block.last_op
            assert last is not None
            return [low.wide(x) for x in last.operands]

        side = _under(low, low.mask_and(test), work, nothing)
        if found is None:
            found = side
        else:
            found = [b.select(test, new, old) for new, old in zip(side, found, strict=True)]
    for result, value in zip(op.results, found or (), strict=True):
        low.env[result] = v.Varying(value)


def divergent_for(low: Lowering, op: scf.ForOp) -> None:
    """Lanes count for themselves; all go on until the last is done."""
    lower, upper, step = (low.wide(x) for x in (op.lb, op.ub, op.step))
    counter, *carried = op.body.block.args
    predicate = "ult" if "unsignedCmp" in op.properties else "slt"
    types = _wide_types(low, carried)
    start = [lower, *(low.wide(x) for x in op.iter_args)]

    def test(values: Sequence[SSAValue]) -> tuple[SSAValue, list[SSAValue]]:
        return low.b.add(arith.CmpiOp(values[0], upper, predicate)), list(values)

    def work(values: Sequence[SSAValue]) -> list[SSAValue]:
        for place, value in zip((counter, *carried), values, strict=True):
            low.env[place] = v.Varying(value)
        low.block(op.body.block)
        last = op.body.block.last_op
        assert last is not None
        following = low.b.add(arith.AddiOp(values[0], step))
        return [following, *(low.wide(x) for x in last.operands)]

    results = _until_all_left(low, [lower.type, *types], start, test, work)
    for result, value in zip(op.results, results[1:], strict=True):
        low.env[result] = v.Varying(value)


def divergent_while(low: Lowering, op: scf.WhileOp, condition: scf.ConditionOp) -> None:
    before, after = op.before_region.block, op.after_region.block
    types = _wide_types(low, before.args)
    _wide_types(low, op.results)
    start = [low.wide(x) for x in op.arguments]

    def test(values: Sequence[SSAValue]) -> tuple[SSAValue, list[SSAValue]]:
        for place, value in zip(before.args, values, strict=True):
            low.env[place] = v.Varying(value)
        let_others_run(low, before)
        low.block(before)
        return low.wide(condition.condition), [low.wide(x) for x in condition.args]

    def work(values: Sequence[SSAValue]) -> list[SSAValue]:
        for place, value in zip(after.args, values, strict=True):
            low.env[place] = v.Varying(value)
        low.block(after)
        last = after.last_op
        assert last is not None
        return [low.wide(x) for x in last.operands]

    results = _until_all_left(low, types, start, test, work)
    for result, value in zip(op.results, results, strict=True):
        low.env[result] = v.Varying(value)


def _until_all_left(
    low: Lowering,
    types: Sequence[Attribute],
    start: Sequence[SSAValue],
    test: Callable[[Sequence[SSAValue]], tuple[SSAValue, list[SSAValue]]],
    work: Callable[[Sequence[SSAValue]], list[SSAValue]],
) -> list[SSAValue]:
    """A loop that each lane leaves when `test` fails for it; what `test` handed on when it left.

    `test(values)` gives the condition and what it hands on, under the lanes that are still there; `work(handed on)`
    gives the next values.
    """
    b = low.b
    outer, op = low.mask, low.op
    everyone = vec_mask(low) if outer is None else outer
    active0 = everyone

    # Once to know what is handed on: the results start as anything of those types.
    first = Block(arg_types=[active0.type, *types])
    with b.inside(first):
        low.mask = first.args[0]
        keep, handed = test(list(first.args[1:]))
        active = b.add(arith.AndIOp(first.args[0], keep))
        handed_types = [x.type for x in handed]
        low.mask = outer
    # The loop carries the values, and what each lane handed on when it was last here.
    full = Block(arg_types=[active0.type, *types, *handed_types])
    _move(first, full)
    for old, new in zip(first.args, full.args[: 1 + len(types)], strict=True):
        old.replace_all_uses_with(new)
    moved = dict(zip(first.args, full.args[: 1 + len(types)], strict=True))
    handed = [moved.get(x, x) for x in handed]  # pyright: ignore
    kept = list(full.args[1 + len(types) :])
    with b.inside(full):
        here = full.args[0]
        passed = [b.select(here, new, old) for new, old in zip(handed, kept, strict=True)]
        b.put(scf.ConditionOp(low.any(active), active, *passed))
    after = Block(arg_types=[active0.type, *handed_types])
    with b.inside(after):
        low.mask = after.args[0]
        values = list(after.args[1:])
        following = work(values)
        low.mask = outer
        b.put(scf.YieldOp(after.args[0], *following, *values))
    nothing = [b.zeros(t) for t in handed_types]
    low.op = op
    loop = scf.WhileOp(
        [active0, *start, *nothing], [active0.type, *handed_types], Region(full), Region(after)
    )
    b.put(loop)
    return list(loop.results[1:])


def _move(source: Block, target: Block) -> None:
    for op in list(source.ops):
        op.detach()
        target.add_op(op)


def vec_mask(low: Lowering) -> SSAValue:
    """All lanes."""
    return low.b.constant(low.widened(i1), 1)
