"""Threads by the numbers of their subgroups: one that a program of subgroups asks for is the first of its own, x
fastest; one that a lane asks for is its own.

    gpu.func @k(..) {tilewright.block = array<i64: 4, 2, 1>, tilewright.subgroups = 8 : i64} {
      %y = gpu.thread_id y         ->      %y = gpu.subgroup_id / 4
      %n = gpu.block_dim x         ->      %n = 4

Where nothing tells the threads of a launch, each subgroup is one, and they lie along x.
"""

from __future__ import annotations

from math import prod

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import DenseArrayBase, i64
from xdsl.ir import SSAValue

from tilewright.diagnostics import unsupported
from tilewright.passes.emit import Before
from tilewright.passes.kernel import BLOCK, block_of, subgroups_of


def threads_in_line(kernel: gpu.FuncOp, lanes: int) -> tuple[int, int, int]:
    """Rewrites the ids of a kernel whose subgroups have so many lanes (1: a subgroup's program), by the numbers of
    subgroup and lane; the threads of its launch. UnsupportedError where these are not its lanes."""
    subgroups = subgroups_of(kernel)
    block = block_of(kernel) or (subgroups * lanes, 1, 1)
    threads, rest = divmod(prod(block), subgroups)
    if rest or (lanes > 1 and threads != lanes):
        raise unsupported(
            kernel,
            f"{block[0]}x{block[1]}x{block[2]} threads are not {subgroups} subgroups of {lanes} lanes",
        )
    for op in list(kernel.walk()):
        if isinstance(op, gpu.GlobalIdOp):
            at = Before(op)
            one, size, number = (
                at.add(kind(op.dimension))
                for kind in (gpu.ThreadIdOp, gpu.BlockDimOp, gpu.BlockIdOp)
            )
            at.replace(at.index(at.plus(at.times(number, size), one)))
    kernel.attributes[BLOCK] = DenseArrayBase.from_list(i64, block)
    thread_ids_to_subgroup_ids(kernel, of_lanes=lanes > 1)
    return block


def thread_ids_to_subgroup_ids(kernel: gpu.FuncOp, *, of_lanes: bool = False) -> None:
    """Rewrites gpu.thread_id and gpu.block_dim of a kernel, in place; it no longer says the threads of its launch."""
    subgroups = subgroups_of(kernel)
    block = block_of(kernel)
    for op in list(kernel.walk()):
        if isinstance(op, gpu.BlockDimOp):
            at = Before(op)
            axis = "xyz".index(str(op.dimension.data))
            if block is not None:
                at.replace(at.index(block[axis]))
            else:
                at.replace(at.add(gpu.NumSubgroupsOp()) if axis == 0 else at.index(1))
        elif isinstance(op, gpu.ThreadIdOp):
            at = Before(op)
            axis = "xyz".index(str(op.dimension.data))
            at.replace(_thread(at, axis, block, subgroups, of_lanes))
    kernel.attributes.pop(BLOCK, None)


def _thread(
    at: Before, axis: int, block: tuple[int, int, int] | None, subgroups: int, of_lanes: bool
) -> SSAValue:
    if block is None:
        return at.add(gpu.SubgroupIdOp()) if axis == 0 else at.index(0)
    below, extent, above = prod(block[:axis]), block[axis], prod(block[axis + 1 :])
    if extent == 1:
        return at.index(0)
    number = at.add(gpu.SubgroupIdOp())
    if (threads := max(1, prod(block) // subgroups)) > 1:
        number = at.add(arith.MuliOp(number, at.index(threads)))
    if of_lanes:
        number = at.add(arith.AddiOp(number, at.add(gpu.LaneIdOp())))
    if below > 1:
        number = at.add(arith.DivUIOp(number, at.index(below)))
    if above > 1:
        number = at.add(arith.RemUIOp(number, at.index(extent)))
    return number
