"""Meanings of the stage dialect's ops for clusters of workgroups."""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.ir import Attribute

from tilewright.dialects import stage
from tilewright.reference import numerics
from tilewright.reference.engine import poison
from tilewright.reference.machine import Group
from tilewright.reference.program import Segment, Successors, goes
from tilewright.reference.registry import meaning
from tilewright.reference.site import Site
from tilewright.reference.values import Index


@meaning("stage.rank")
def rank(site: Site, op: stage.RankOp) -> Index:
    return site.workgroup % stage.cluster_size(site.machine.program.function)


@goes("stage.cluster.sum")
def cluster_sum(group: Group, op: stage.ClusterSumOp, then: Segment) -> Successors:
    """Workgroups wait until all of their cluster are here; batches hold whole clusters."""
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
            parts = [v for _, v in members]
            width = op.result.type.get_shape()[-1]
            value = poison((*own.shape[:-1], width), own.dtype)
            if (r + 1) * width <= own.shape[-1]:
                value = _total(op.result.type, parts)[..., r * width : (r + 1) * width]
            machine.engine.one(np.array([other], np.int64)).set(op.result, value[None])
            done.append(other)
    return [(then, np.array(sorted(done), np.int64))]


def _total(type: Attribute, parts: list[Any]) -> Any:
    found = parts[0]
    for part in parts[1:]:
        added = numerics.is_float(type)
        found = numerics.floats(np.add, type, found, part) if added else found + part
    return found
