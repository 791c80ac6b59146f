"""Lane level: instances are lanes, and what a subgroup does together is done on its lanes' rows.

At lane level a launch thread is a lane; `width` consecutive threads of a workgroup are a subgroup. A
collective (block load, dpas, shuffle) needs all lanes of a subgroup at the same place. Which element of
a block belongs to which lane and register is asked of `tilewright.layout`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from xdsl.dialects import gpu
from xdsl.dialects.builtin import IntegerAttr, StringAttr, VectorType
from xdsl.ir import Operation

from tilewright.diagnostics import CheckError, error_at
from tilewright.dialects.nesting import ops_around
from tilewright.dialects.upstream.combining import kind_of
from tilewright.dialects.upstream.gpu import RotateOp, ShuffleOp
from tilewright.dialects.upstream.gpu.lanes import DEFAULT_LANES, LANES
from tilewright.passes.kernel import LEVEL, integer
from tilewright.reference.barriers import rendezvous
from tilewright.reference.machine import Group
from tilewright.reference.meanings import reductions
from tilewright.reference.program import SegmentBuilder
from tilewright.reference.registry import control, meaning
from tilewright.reference.site import Site
from tilewright.reference.values import Array, Index, scalar


def width_of(op: Operation) -> int:
    """Lanes per subgroup of the kernel that holds the op: `tilewright.lanes`, 16 unless it says.

    1 above lane level, where an instance is a whole subgroup or workgroup.
    """
    for scope in (op, *ops_around(op)):
        level = scope.attributes.get(LEVEL)
        if isinstance(level, StringAttr):
            return integer(scope, LANES, DEFAULT_LANES) if level.data == "lane" else 1
    return 1


class Collective:
    """The subgroups that run an op together: rows of lanes, seen as (subgroups, lanes)."""

    def __init__(self, site: Site, lanes: int):
        self.site, self.lanes = site, lanes
        threads = site.subgroup
        complete = threads.shape[0] % lanes == 0
        if complete:
            table = threads.reshape(-1, lanes)
            first = table[:, :1]
            complete = bool(
                (first % lanes == 0).all() and (table == first + np.arange(lanes)).all()
            )
        if not complete:
            raise error_at(
                site.op,
                f"{site.op.name} is done by all {lanes} lanes of a subgroup, but not all of them "
                "are here",
                kind=CheckError,
                hint="move it out of the branch, or make the condition the same for the subgroup",
            )
        self.count = threads.shape[0] // lanes

    @cached_property
    def leaders(self) -> Site:
        """The place as the first lane of each subgroup sees it: who makes the one access of a block."""
        site = Group(self.site.machine, self.site.instances[:: self.lanes]).site
        site.op = self.site.op
        return site

    def split(self, rows: Array) -> Array:
        """(subgroups, lanes, ..) of a row value."""
        full = np.broadcast_to(rows, (self.site.count, *rows.shape[1:]))
        return full.reshape(self.count, self.lanes, *rows.shape[1:])

    def join(self, table: Array) -> Array:
        """Rows of lanes again."""
        return table.reshape(self.count * self.lanes, *table.shape[2:])

    def uniform(self, rows: Index, what: str) -> Index:
        """The one value per subgroup of what all its lanes agree on."""
        if rows.shape[0] == 1:
            return rows
        table = self.split(rows)
        if (table != table[:, :1]).any():
            self.site.report(
                "error", "not uniform", f"{what} of {self.site.op.name} differs between lanes"
            )
        return table[:, 0]

    def fragments(self, blocks: Array, numbers: Index) -> Array:
        """(rows of lanes, *given) of blocks, one per subgroup (or one for all), by element numbers [*given, lanes]."""
        flat = np.broadcast_to(blocks.reshape(blocks.shape[0], -1), (self.count, blocks[0].size))
        return self.join(np.moveaxis(flat[:, numbers], -1, 1))

    def blocks(self, fragments: Array, places: Index) -> Array:
        """One block per subgroup, from its lanes' fragments: `places` says which component (lanes last) each element
        of the block is."""
        table = self.split(fragments.reshape(fragments.shape[0], -1))
        return table.swapaxes(1, 2).reshape(self.count, -1)[:, places]


# --- gpu's lane-level ops ----------------------------------------------------------------------


@meaning("gpu.lane_id")
def lane_id(site: Site, op: Operation, *_: Any) -> Index:
    return site.subgroup % width_of(op)


@meaning("gpu.subgroup_size")
def subgroup_size(site: Site, op: Operation) -> Index:
    return scalar(width_of(op))


@meaning("gpu.shuffle")
def shuffle(site: Site, op: ShuffleOp, value: Array, offset: Index, width: Index) -> Any:
    """The value of another lane of the segment of `width` lanes, and whether that lane exists."""
    together = Collective(site, width_of(op))
    values = together.split(value)
    lane = np.arange(together.lanes)[None, :]
    by = together.split(offset).astype(np.int64)
    segment = together.split(width).astype(np.int64)
    source, valid = op.sources(lane, by, segment)
    rows = np.arange(together.count)[:, None]
    return together.join(values[rows, source]), together.join(valid)


@meaning("gpu.subgroup_broadcast")
def subgroup_broadcast(site: Site, op: Operation, value: Array, *lane: Index) -> Array:
    together = Collective(site, width_of(op))
    values = together.split(value)
    chosen = together.uniform(lane[0], "the lane") if lane else scalar(0)
    chosen = np.broadcast_to(chosen, (together.count,))
    picked = values[np.arange(together.count), chosen % together.lanes]
    return together.join(np.repeat(picked[:, None], together.lanes, axis=1))


@meaning("gpu.rotate")
def rotate(site: Site, op: RotateOp, value: Array) -> tuple[Array, Array]:
    together = Collective(site, width_of(op))
    offset, width = op.offset, op.width
    lane = np.arange(together.lanes)
    source = (lane & -width) + ((lane + offset) & (width - 1))
    valid = np.broadcast_to(lane < width, (together.count, together.lanes))
    values = together.split(value)[:, np.minimum(source, together.lanes - 1)]
    return together.join(values), together.join(valid)


@meaning("gpu.subgroup_reduce")
def subgroup_reduce(site: Site, op: Operation, value: Array) -> Array:
    """All lanes get the combination of their values, or of those of their cluster, element by element of vectors."""
    together = Collective(site, width_of(op))
    result = op.results[0].type
    element = result.element_type if isinstance(result, VectorType) else result
    size, stride = (op.properties.get(name) for name in ("cluster_size", "cluster_stride"))
    apart = stride.value.data if isinstance(stride, IntegerAttr) else 1
    count = size.value.data if isinstance(size, IntegerAttr) else together.lanes // apart
    rows = together.split(value)
    clusters = rows.reshape(rows.shape[0], -1, count, apart, *rows.shape[2:])
    total = reductions.reduce(kind_of(op), element, clusters, (2,))
    spread = np.repeat(np.expand_dims(total, 2), count, axis=2)
    return together.join(spread.reshape(rows.shape))


@control("gpu.all_reduce")
def all_reduce(builder: SegmentBuilder, op: gpu.AllReduceOp) -> None:
    """All lanes of the workgroup meet, and get the combination of their values."""
    kind = kind_of(op)

    def combine(group: Group) -> None:
        group.site.op = op
        value = group.get(op.operand)
        everybody = group.machine.batch.subgroups
        if group.index.shape[0] % everybody:
            raise error_at(op, "not all of a workgroup are here", kind=CheckError)
        full = np.broadcast_to(value, (group.index.shape[0], *value.shape[1:]))
        table = full.reshape(-1, everybody, *value.shape[1:])
        result = op.result.type
        element = result.element_type if isinstance(result, VectorType) else result
        total = reductions.reduce(kind, element, table, (1,))
        group.set(op.result, np.repeat(total, everybody, axis=0))

    rendezvous(builder, op)
    builder.step(combine)
