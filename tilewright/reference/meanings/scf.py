"""Layout of structured control flow: loops and conditions become segments and jumps."""

from __future__ import annotations

import numpy as np
from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from tilewright.diagnostics import unsupported
from tilewright.dialects.upstream.scf import ForallOp
from tilewright.passes.kernel import level_of
from tilewright.passes.level import range_of, region_of_run
from tilewright.reference.machine import Group
from tilewright.reference.program import CallFrame, Segment, SegmentBuilder
from tilewright.reference.registry import control


@control("scf.for")
def for_(builder: SegmentBuilder, op: scf.ForOp) -> None:
    """before -> head (counter < bound?) -> body -> head ... -> after."""
    counter, *carried = op.body.block.args
    head, body, after = Segment(), Segment(), Segment()

    def advance(group: Group) -> None:
        group.set(counter, group.get(counter) + group.get(op.step))

    builder.step(lambda group: _check_step(group, op, op.step))
    builder.move([op.lb, *op.iter_args], [counter, *carried])
    builder.jump(head)
    builder.start(head)
    builder.branch(lambda group: group.get(counter) < group.get(op.ub), body, after)
    builder.start(body)
    last = builder.single_block(op.body)
    builder.move(last.operands, carried)
    builder.step(advance)
    builder.jump(head)
    builder.start(after)
    builder.move(carried, op.results)


def _check_step(group: Group, op: Operation, step: SSAValue) -> None:
    if (group.get(step) <= 0).any():
        group.site.op = op
        group.site.report("error", "loop", f"{op.name} needs a step above zero")
        group.set(step, np.maximum(group.get(step), 1))


@control("scf.if")
def if_(builder: SegmentBuilder, op: scf.IfOp) -> None:
    if range_of(op) is not None and level_of(builder.entry) == "workgroup":
        # One program stands for all subgroups: those that take the branch are among them.
        builder.single_block(region_of_run(op))
        return
    yes, no, after = Segment(), Segment(), Segment()
    builder.branch(lambda group: group.get(op.cond), yes, no)
    for segment, region in ((yes, op.true_region), (no, op.false_region)):
        builder.start(segment)
        if region.blocks:
            last = builder.single_block(region)
            builder.move(last.operands, op.results)
        builder.jump(after)
    builder.start(after)


@control("scf.while")
def while_(builder: SegmentBuilder, op: scf.WhileOp) -> None:
    head, body, after = Segment(), Segment(), Segment()
    builder.move(op.arguments, op.before_region.block.args)
    builder.jump(head)
    builder.start(head)
    condition = builder.single_block(op.before_region)
    keep_on, *handed_on = condition.operands
    builder.branch(lambda group: group.get(keep_on), body, after)
    builder.start(body)
    builder.move(handed_on, op.after_region.block.args)
    last = builder.single_block(op.after_region)
    builder.move(last.operands, op.before_region.block.args)
    builder.jump(head)
    builder.start(after)
    builder.move(handed_on, op.results)


@control("scf.index_switch")
def index_switch(builder: SegmentBuilder, op: scf.IndexSwitchOp) -> None:
    after, default = Segment(), Segment()
    values = [int(value) for value in op.cases.get_values()]
    cases = {value: Segment() for value in values}
    builder.switch(lambda group: group.get(op.arg), cases, default)
    regions = [(default, op.default_region)]
    regions += [(cases[v], region) for v, region in zip(values, op.case_regions, strict=True)]
    for segment, region in regions:
        builder.start(segment)
        last = builder.single_block(region)
        builder.move(last.operands, op.results)
        builder.jump(after)
    builder.start(after)


@control("scf.execute_region")
def execute_region(builder: SegmentBuilder, op: scf.ExecuteRegionOp) -> None:
    frame = CallFrame(op, Segment(), op.results)
    builder.region(op.region, frame)
    builder.start(frame.exit)


@control("scf.yield")
def yield_(builder: SegmentBuilder, op: scf.YieldOp) -> None:
    """Only met in execute_region; other parents take their terminators themselves."""
    builder.move(op.operands, builder.frame.results)
    builder.jump(builder.frame.exit)


@control("scf.parallel")
def parallel(builder: SegmentBuilder, op: scf.ParallelOp) -> None:
    """A nest of loops, in order: no result may depend on the order."""
    builder.move(op.initVals, op.results)

    def body() -> None:
        last = builder.single_block(op.body)
        if isinstance(last, scf.ReduceOp):
            for result, operand, region in zip(op.results, last.args, last.reductions, strict=True):
                builder.move([result, operand], region.block.args)
                inner = builder.single_block(region)
                builder.move(inner.operands, [result])

    for step in op.step:
        builder.step(lambda group, step=step: _check_step(group, op, step))
    counters = op.body.block.args
    builder.nest(list(zip(counters, op.lowerBound, op.upperBound, op.step, strict=True)), body)


@control("scf.forall")
def forall(builder: SegmentBuilder, op: ForallOp) -> None:
    """A nest of loops, in order, over memory; results would be tensors."""
    if op.res:
        raise unsupported(op, "scf.forall with tensor results is not run")
    bounds = (op.mixed("lower"), op.mixed("upper"), op.mixed("step"))
    loops = list(zip(op.body.block.args, *bounds, strict=True))

    def body() -> None:
        builder.single_block(op.body)

    builder.nest(loops, body)
