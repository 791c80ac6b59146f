"""Branches between blocks, and assertions."""

from __future__ import annotations

import numpy as np
from xdsl.dialects import cf

from tilewright.reference.machine import Group
from tilewright.reference.program import Segment, SegmentBuilder
from tilewright.reference.registry import control, meaning
from tilewright.reference.site import Site
from tilewright.reference.values import Array


@control("cf.br")
def br(builder: SegmentBuilder, op: cf.BranchOp) -> None:
    builder.move(op.arguments, op.successor.args)
    builder.jump(builder.block_segment(op.successor))


@control("cf.cond_br")
def cond_br(builder: SegmentBuilder, op: cf.ConditionalBranchOp) -> None:
    yes, no = Segment(), Segment()
    builder.branch(lambda group: group.get(op.cond), yes, no)
    successors = ((yes, op.then_arguments, op.then_block), (no, op.else_arguments, op.else_block))
    for segment, arguments, block in successors:
        builder.start(segment)
        builder.move(arguments, block.args)
        builder.jump(builder.block_segment(block))


@control("cf.switch")
def switch(builder: SegmentBuilder, op: cf.SwitchOp) -> None:
    default = Segment()
    values: list[int] = []
    if op.case_values is not None:
        values = [int(value) for value in op.case_values.get_values()]
    cases = {value: Segment() for value in values}

    def selector(group: Group) -> Array:
        return group.get(op.flag)

    builder.switch(selector, cases, default)
    successors = [(default, op.default_operands, op.default_block)]
    successors += [
        (cases[value], arguments, block)
        for value, arguments, block in zip(values, op.case_operand, op.case_blocks, strict=True)
    ]
    for segment, arguments, block in successors:
        builder.start(segment)
        builder.move(arguments, block.args)
        builder.jump(builder.block_segment(block))


@meaning("cf.assert")
def assert_(site: Site, op: cf.AssertOp, condition: Array) -> None:
    if condition.all():
        return
    where = np.flatnonzero(np.broadcast_to(condition, (site.count,)) == 0)[0]
    who = site.machine.name_of_instance(int(site.instances[where]))
    site.report("error", "assertion", f"assertion failed in {who}: {op.msg.data}")
