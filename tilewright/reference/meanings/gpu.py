"""Meaning of the gpu dialect: who runs, barriers, and launches from host code."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from xdsl.dialects import gpu
from xdsl.dialects.builtin import DenseArrayBase, SymbolRefAttr
from xdsl.ir import Operation

from tilewright.arguments import full_grid
from tilewright.dialects.nesting import ops_around
from tilewright.passes.kernel import BLOCK
from tilewright.reference.barriers import rendezvous
from tilewright.reference.lanes import width_of
from tilewright.reference.program import SegmentBuilder, find_symbol
from tilewright.reference.registry import control, meaning
from tilewright.reference.site import Site
from tilewright.reference.values import Index, scalar

_AXES = {"x": 0, "y": 1, "z": 2}


def _axis(op: Operation) -> int:
    return _AXES[str(cast(gpu.DimensionAttr, op.properties["dimension"]).data)]


@meaning("gpu.block_id")
def block_id(site: Site, op: Operation) -> Index:
    return site.block_id(_axis(op))


@meaning("gpu.grid_dim")
def grid_dim(site: Site, op: Operation) -> Index:
    return scalar(site.batch.grid[_axis(op)])


def _threads(site: Site, op: Operation) -> tuple[int, int, int]:
    """The launch's threads: what the kernel says, else its instances."""
    for scope in (op, *ops_around(op)):
        stated = scope.attributes.get(BLOCK)
        if isinstance(stated, DenseArrayBase):
            x, y, z = (int(n) for n in stated.get_values())
            return x, y, z
    return site.batch.block


@meaning("gpu.block_dim")
def block_dim(site: Site, op: Operation) -> Index:
    return scalar(_threads(site, op)[_axis(op)])


@meaning("gpu.thread_id")
def thread_id(site: Site, op: Operation) -> Index:
    """Of an instance's first thread: a subgroup's program may be launched with a thread per lane."""
    x, y, z = _threads(site, op)
    number = site.subgroup * max(1, x * y * z // site.batch.subgroups)
    return (number % x, number // x % y, number // (x * y))[_axis(op)]


@meaning("gpu.global_id")
def global_id(site: Site, op: Operation) -> Index:
    return site.block_id(_axis(op)) * block_dim(site, op) + thread_id(site, op)


@meaning("gpu.subgroup_id")
def subgroup_id(site: Site, op: Operation) -> Index:
    """An instance is a lane at lane level, a subgroup above it."""
    return site.subgroup // width_of(op)


@meaning("gpu.num_subgroups")
def num_subgroups(site: Site, op: Operation) -> Index:
    return scalar(site.batch.subgroups // width_of(op))


@control("gpu.barrier")
def barrier(builder: SegmentBuilder, op: gpu.BarrierOp) -> None:
    rendezvous(builder, op)


@meaning("gpu.wait", "gpu.host_register", "gpu.host_unregister", "gpu.set_default_device")
def wait(site: Site, op: Operation, *operands: Any) -> Any:
    """Everything is complete when its op is: tokens say nothing. There is one device, and it sees all memory."""
    return None


@meaning("gpu.launch_func")
def launch_func(site: Site, op: gpu.LaunchFuncOp, *_: Any) -> Any:
    from tilewright.reference.launch import launch

    def number(value: Any) -> int:
        rows = site.group.get(value)
        return int(np.asarray(rows).flat[0])

    grid = (number(op.gridSizeX), number(op.gridSizeY), number(op.gridSizeZ))
    block = (number(op.blockSizeX), number(op.blockSizeY), number(op.blockSizeZ))
    symbol: SymbolRefAttr = op.kernel
    kernel = find_symbol(op, symbol)
    launch(site, kernel, full_grid(grid), block, [site.group.get(v) for v in op.kernelOperands])
    return None
