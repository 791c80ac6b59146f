"""Regions that lanes enter and leave at different times: masks.

    scf.if %differs { A } else { B }   ->   mask = here & differs;  if any(mask) { A under the mask }
                                            mask = here & ~differs; if any(mask) { B under the mask }
                                            results: select by differs
    scf.while, scf.for that lanes leave at different times   ->   while any(active) { body under active }

A lane that has left a loop keeps its values while others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import MemRefType, i1
from xdsl.ir import Attribute, Block, Region, SSAValue

from tilewright.dialects import mach
from tilewright.dialects.nesting import terminator
from tilewright.dialects.xegpu.types import MemDescType, NbarrierType, TensorDescType
from tilewright.targets.emu import values as v
from tilewright.targets.emu.lowering import Lowering

YIELD = "tw_emu_yield"
READS = ("memref.", "xegpu.load", "xegpu.atomic_rmw", "vector.load", "vector.gather")


def let_others_run(low: Lowering, block: Block) -> None:
    """A loop whose condition reads memory may wait for another subgroup to write it."""
    if any(op.name.startswith(READS) for op in block.walk()):
        low.b.op(mach.CallOp(YIELD, [low.b.pointer(low.base)]))


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

    results = low.b.choose(low.any(mask), then, lambda: otherwise)
    low.op = op
    return results


def _wide_types(low: Lowering, places: Sequence[SSAValue]) -> list[Attribute]:
    for place in places:
        if isinstance(place.type, MemRefType | TensorDescType | MemDescType | NbarrierType):
            raise low.refuse(f"a value of type {place.type} where lanes diverge")
    return [low.widened(place.type) for place in places]


def _run(low: Lowering, block: Block) -> list[SSAValue]:
    """What a block ends with, once its ops are done."""
    low.block(block)
    return [low.wide(x) for x in terminator(block).operands]


def _enter(
    low: Lowering, block: Block, places: Sequence[SSAValue], values: Sequence[SSAValue]
) -> list[SSAValue]:
    """The same with values for what the block takes."""
    low.env.update((p, v.Varying(value)) for p, value in zip(places, values, strict=True))
    return _run(low, block)


def divergent_if(low: Lowering, op: scf.IfOp) -> None:
    b = low.b
    condition = low.wide(op.cond)
    nothing = [b.zeros(t) for t in _wide_types(low, op.results)]
    sides = [
        _under(low, low.mask_and(test), partial(_run, low, region.block), nothing)
        for region, test in ((op.true_region, condition), (op.false_region, b.negated(condition)))
        if region.blocks
    ]
    for result, *given in zip(op.results, *sides, strict=False):
        low.env[result] = v.Varying(b.blend(condition, *given))


def divergent_for(low: Lowering, op: scf.ForOp) -> None:
    """Lanes count for themselves; all go on until the last is done."""
    lower, upper, step = (low.wide(x) for x in (op.lb, op.ub, op.step))
    block = op.body.block
    predicate = "ult" if "unsignedCmp" in op.properties else "slt"
    types = [lower.type, *_wide_types(low, op.results)]

    def test(values: Sequence[SSAValue]) -> list[SSAValue]:
        return [low.b.cmp(predicate, values[0], upper), *values]

    def work(values: Sequence[SSAValue]) -> list[SSAValue]:
        made = _enter(low, block, block.args, values)
        return [low.b.value(arith.AddiOp(values[0], step)), *made]

    start = [lower, *(low.wide(x) for x in op.iter_args)]
    results = _until_all_left(low, start, types, test, work)
    low.env.update((r, v.Varying(x)) for r, x in zip(op.results, results[1:], strict=True))


def divergent_while(low: Lowering, op: scf.WhileOp) -> None:
    before, after = op.before_region.block, op.after_region.block
    _wide_types(low, before.args)

    def test(values: Sequence[SSAValue]) -> list[SSAValue]:
        let_others_run(low, before)
        return _enter(low, before, before.args, values)

    start = [low.wide(x) for x in op.arguments]
    results = _until_all_left(
        low, start, _wide_types(low, op.results), test, partial(_enter, low, after, after.args)
    )
    low.env.update((r, v.Varying(x)) for r, x in zip(op.results, results, strict=True))


def _until_all_left(
    low: Lowering,
    start: Sequence[SSAValue],
    types: Sequence[Attribute],
    test: Callable[[Sequence[SSAValue]], list[SSAValue]],
    work: Callable[[Sequence[SSAValue]], list[SSAValue]],
) -> list[SSAValue]:
    """A loop that each lane leaves when `test` fails for it; what `test` handed on when it left.

    `test(values)` gives the condition and what it hands on, of `types`, under the lanes that are still there;
    `work(handed on)` gives the next values. The loop carries both: the values, and what each lane handed on last.
    """
    b = low.b
    outer, op = low.mask, low.op
    everyone = vec_mask(low) if outer is None else outer
    before = Block(arg_types=[everyone.type, *(x.type for x in start), *types])
    with b.inside(before):
        low.mask = here = before.args[0]
        keep, *handed = test(before.args[1 : 1 + len(start)])
        active = low.mask_and(keep)
        low.mask = outer
        kept = before.args[1 + len(start) :]
        passed = [b.blend(here, new, old) for new, old in zip(handed, kept, strict=True)]
        b.op(scf.ConditionOp(low.any(active), active, *passed))
    after = Block(arg_types=[everyone.type, *types])
    with b.inside(after):
        low.mask, *values = after.args
        following = work(values)
        low.mask = outer
        b.op(scf.YieldOp(after.args[0], *following, *values))
    low.op = op
    given = [everyone, *start, *(b.zeros(t) for t in types)]
    loop = scf.WhileOp(given, [everyone.type, *types], Region(before), Region(after))
    b.op(loop)
    return list(loop.results[1:])


def vec_mask(low: Lowering) -> SSAValue:
    """All lanes."""
    return low.b.constant(low.widened(i1), 1)
