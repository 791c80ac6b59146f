"""Meanings of the stage dialect's ops for clusters of workgroups."""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.dialects.builtin import VectorType

from tilewright.dialects import stage
from tilewright.reference import numerics
from tilewright.reference.engine import poison
from tilewright.reference.machine import Group
from tilewright.reference.program import Segment, SegmentBuilder, Successors
from tilewright.reference.registry import control, meaning
from tilewright.reference.site import Site
from tilewright.reference.values import Index


@meaning("stage.rank")
def rank(site: Site, op: stage.RankOp) -> Index:
    return site.workgroup % stage.cluster_size(site.machine.program.function)


@control("stage.cluster.sum")
def cluster_sum(builder: SegmentBuilder, op: stage.ClusterSumOp) -> None:
    """Workgroups wait until all of their cluster are here; batches hold whole clusters."""
    then = Segment()
    type = op.result.type
    assert isinstance(type, VectorType)

    def total(parts: list[Any]) -> Any:
        found = parts[0]
        for part in parts[1:]:
            if numerics.is_float(type):
                found = numerics.floats(np.add, type, found, part)
            else:
                found = found + part
        return found

    def successors(group: Group) -> Successors:
        group.site.op = op
        machine = group.machine
        size = stage.cluster_size(machine.program.function)
        rows, done = group.get(op.value), list[int]()
        for position, instance in enumerate(group.index.tolist()):
            number, rank = divmod(int(machine.batch.workgroup[instance]), size)
            row = rows[position if rows.shape[0] > 1 else 0]
            here = machine.engine.meetings.setdefault((op, number), {})
            here[rank] = (instance, row)
            if len(here) < size:
                continue
            del machine.engine.meetings[op, number]
            members = [here[r] for r in range(size)]
            for r, (other, own) in enumerate(members):
                value = total([v for _, v in members]) if r == 0 else poison(own.shape, own.dtype)
                machine.engine.one(np.array([other], np.int64)).set(op.result, value[None])
                done.append(other)
        return [(then, np.array(sorted(done), np.int64))]

    builder.end(successors)
    builder.start(then)
