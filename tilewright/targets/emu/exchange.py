"""Who runs, and what lanes tell each other: ids, shuffles, reductions over the subgroup."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import i1, i32
from xdsl.ir import Operation, SSAValue

from tilewright.dialects.movement import shape_of_type
from tilewright.dialects.upstream import vector as more
from tilewright.dialects.upstream.arith import constant
from tilewright.dialects.upstream.combining import kind_of, neutral
from tilewright.targets.emu import context
from tilewright.targets.emu import values as v
from tilewright.targets.emu.blocks import arrange
from tilewright.targets.emu.builder import EmuBuilder, Idx, element_bytes, element_of, index, vec
from tilewright.targets.emu.lowering import Lowering, lowers

# Ids ------------------------------------------------------------------------------------------------------------------


@lowers("gpu.block_id", "gpu.grid_dim")
def along_an_axis(low: Lowering, op: Any) -> None:
    place = context.WORKGROUP if op.name == "gpu.block_id" else context.GRID
    low.set(op.results[0], low.field(place + 8 * "xyz".index(str(op.dimension.data))))


@lowers("gpu.subgroup_id", "gpu.num_subgroups", "gpu.subgroup_size")
def of_subgroups(low: Lowering, op: Operation) -> None:
    number: dict[str, Idx] = {
        "gpu.subgroup_id": low.subgroup,
        "gpu.num_subgroups": low.subgroups,
        "gpu.subgroup_size": low.lanes,
    }
    low.set(op.results[0], low.b.idx(number[op.name]))


@lowers("gpu.lane_id")
def lane_id(low: Lowering, op: gpu.LaneIdOp) -> None:
    steps = tuple(range(low.lanes))
    low.env[op.result] = v.Address(low, 0, steps if low.lanes > 1 else None).plain()


# Shuffles -------------------------------------------------------------------------------------------------------------


@lowers("gpu.shuffle")
def shuffle(low: Lowering, op: Any) -> None:
    """The value of another lane of the segment of `width` lanes, and whether that lane is one of it."""
    low.together()
    if low.lanes == 1:
        raise low.refuse("between lanes in a program of subgroups")
    b, value = low.b, low.wide(op.value)
    offset, width = constant(op.offset), constant(op.width)
    if width is not None and offset is not None:
        sources, flags = op.sources(np.arange(low.lanes), offset, width)
        whole = np.arange(prod(shape_of_type(value.type))).reshape(shape_of_type(value.type))
        moved = arrange(b, value, whole[..., sources])
        valid = b.dense(vec(i1, low.lanes), flags.tolist())
    else:
        source, valid = _sources(low, str(op.mode), low.wide(op.offset), low.wide(op.width))
        moved = _by_memory(low, value, source)
    low.env.update(zip(op.results, map(v.Varying, (moved, valid)), strict=True))


def _sources(
    low: Lowering, mode: str, offset: SSAValue, width: SSAValue
) -> tuple[SSAValue, SSAValue]:
    """The lane that each lane reads, and whether it is one of its segment."""
    b = low.b
    lane = b.iota(low.lanes, i32)
    within = b.value(arith.RemSIOp(lane, width))
    start = b.minus(lane, within)
    match mode:
        case "xor":
            source = b.plus(start, b.value(arith.XOrIOp(within, offset)))
        case "up":
            source = b.minus(lane, offset)
        case "down":
            source = b.plus(lane, offset)
        case "rotate":
            turned = b.idx(b.plus(within, offset))
            source = b.plus(start, b.value(arith.RemSIOp(turned, width)))
        case _:
            source = b.plus(start, offset)
    valid = b.within(b.minus(source, start), b.idx(width))
    return b.value(arith.SelectOp(valid, source, lane)), valid  # pyright: ignore


def _by_memory(low: Lowering, value: SSAValue, source: SSAValue) -> SSAValue:
    """Lanes read each other's values where they are known only at run time: through memory of the subgroup."""
    b, kind = low.b, value.type
    count, size = prod(shape_of_type(kind)) // low.lanes, element_bytes(element_of(kind))
    room, rows = b.scratch(count * low.lanes * size), b.times(b.iota(count), low.lanes)
    b.write(value, room)
    places = b.plus(b.shape(b.idx(rows), count, 1), b.cast(source, index))
    offsets = b.shape(b.idx(b.times(places, size)), *shape_of_type(kind))
    return b.gather(room, offsets, b.constant(vec(i1, *shape_of_type(kind)), 1), b.zeros(kind))


# Reductions -----------------------------------------------------------------------------------------------------------


def reduced(
    b: EmuBuilder, kind: str, value: SSAValue, dims: Sequence[int], start: SSAValue | None = None
) -> SSAValue:
    """What a vector's elements along dimensions combine to, by a vector.kind, and `start`."""
    rest = [n for d, n in enumerate(shape_of_type(value.type)) if d not in dims]
    element = element_of(value.type)
    if start is None:
        type = vec(element, *rest) if rest else element
        start = b.constant(type, neutral(kind, element))
    return b.value(more.MultiReductionOp(kind, value, start, dims))


@lowers("gpu.subgroup_reduce")
def subgroup_reduce(low: Lowering, op: Any) -> None:
    """All lanes get the combination of their values, or of those of their cluster."""
    low.together()
    value, b = low.wide(op.operand), low.b
    if low.lanes == 1:
        raise low.refuse("over lanes in a program of subgroups")
    *shape, lanes = shape_of_type(value.type)
    outer = len(shape)
    cluster, stride = (op.properties.get(name) for name in ("cluster_size", "cluster_stride"))
    if cluster is None:
        low.env[op.result] = v.Uniform(reduced(b, kind_of(op), value, [outer]))
        return
    count, apart = cluster.value.data, 1 if stride is None else stride.value.data
    clusters = (*shape, lanes // (count * apart), count, apart)
    total = reduced(b, kind_of(op), b.shape(value, *clusters), [outer + 1])
    total = b.shape(total, *clusters[:-2], 1, apart)
    total = b.broadcast(total, vec(element_of(value.type), *clusters))
    low.env[op.result] = v.Varying(b.shape(total, *shape, lanes))
