"""Who runs, and what lanes tell each other: ids, shuffles, reductions over the subgroup."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import AnyFloat, Float32Type, Float64Type, i1, i32
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.dialects import mach
from tilewright.dialects.upstream.arith import constant
from tilewright.targets.emu import context
from tilewright.targets.emu import values as v
from tilewright.targets.emu.builder import (
    Builder,
    Idx,
    element_of,
    index,
    shape_of,
    size_of,
    vec,
)
from tilewright.targets.emu.lowering import Lowering, lowers
from tilewright.targets.emu.uniformity import Ramp

_AXES = {"x": 0, "y": 1, "z": 2}


def _axis(op: Operation) -> int:
    return _AXES[str(op.properties["dimension"].data)]  # pyright: ignore


# Ids ------------------------------------------------------------------------------------------------------------------


@lowers("gpu.block_id")
def block_id(low: Lowering, op: Operation) -> None:
    low.set(op.results[0], low.field(context.WORKGROUP + 8 * _axis(op)))


@lowers("gpu.grid_dim")
def grid_dim(low: Lowering, op: Operation) -> None:
    low.set(op.results[0], low.field(context.GRID + 8 * _axis(op)))


@lowers("gpu.block_dim")
def block_dim(low: Lowering, op: Operation) -> None:
    low.set(op.results[0], low.b.idx(low.launch_block[_axis(op)]))


@lowers("gpu.subgroup_id")
def subgroup_id(low: Lowering, op: Operation) -> None:
    low.set(op.results[0], low.subgroup)


@lowers("gpu.num_subgroups")
def num_subgroups(low: Lowering, op: Operation) -> None:
    low.set(op.results[0], low.field(context.SUBGROUPS))


@lowers("gpu.subgroup_size")
def subgroup_size(low: Lowering, op: Operation) -> None:
    low.set(op.results[0], low.b.idx(low.lanes))


@lowers("gpu.lane_id")
def lane_id(low: Lowering, op: gpu.LaneIdOp) -> None:
    if low.lanes == 1:
        low.set(op.result, low.b.idx(0))
    else:
        low.env[op.result] = v.Growing(0, tuple(range(low.lanes)), index)


@lowers("gpu.thread_id", "gpu.global_id")
def thread_id(low: Lowering, op: Operation) -> None:
    """Of a subgroup's first thread, where the program is the subgroup's; of each lane where it is the lane's."""
    b, axis = low.b, _axis(op)
    x, y, z = low.launch_block
    result = op.results[0]
    origin: Idx = 0
    if op.name == "gpu.global_id":
        origin = b.times(low.field(context.WORKGROUP + 8 * axis), low.launch_block[axis])
    first = b.times(low.subgroup, low.threads)
    if low.lanes == 1 or x % low.lanes == 0 or y * z == 1:
        value = _coordinate(b, first, axis, (x, y, z))
        value = b.plus(value, origin)
        if low.lanes > 1 and axis == 0:
            kind = low.kinds[result]
            assert isinstance(kind, Ramp)
            low.env[result] = v.Growing(value, kind.steps, index)
        else:
            low.set(result, b.idx(value))
        return
    wide = low.wide_of(v.Growing(first, tuple(range(low.lanes)), index))
    below = x if axis else 1
    below *= y if axis == 2 else 1
    kind = wide.type
    if below > 1:
        wide = b.add(arith.DivUIOp(wide, b.constant(kind, below)))
    if axis < 2:
        wide = b.add(arith.RemUIOp(wide, b.constant(kind, (x, y)[axis])))
    if origin != 0:
        wide = b.add(arith.AddiOp(wide, b.broadcast(b.idx(origin), kind)))  # pyright: ignore
    low.env[result] = v.Varying(wide)


def _coordinate(b: Builder, number: Idx, axis: int, block: tuple[int, int, int]) -> Idx:
    """Coordinate along an axis of thread `number`, x fastest; folded where the block is thin."""
    x, y, z = block
    below, extent, above = (1, x, y * z) if axis == 0 else (x, y, z) if axis == 1 else (x * y, z, 1)
    if extent == 1:
        return 0
    if below > 1:
        number = b.add(arith.DivUIOp(b.idx(number), b.idx(below)))
    if above > 1:
        number = b.add(arith.RemUIOp(b.idx(number), b.idx(extent)))
    return number


# Shuffles -------------------------------------------------------------------------------------------------------------


@lowers("gpu.shuffle")
def shuffle(low: Lowering, op: Any) -> None:
    """The value of another lane of the segment of `width` lanes, and whether that lane is one of it."""
    low.together()
    if low.lanes == 1:
        raise low.refuse("between lanes in a program of subgroups")
    mode, b = str(op.mode), low.b
    width = constant(op.width)
    value = low.wide(op.value)
    offset = constant(op.offset)
    if width is not None and offset is not None:
        chosen = [_source(mode, lane, offset, width) for lane in range(low.lanes)]
        valid = [
            lane // width * width <= s < lane // width * width + width
            for lane, s in enumerate(chosen)
        ]
        if mode == "rotate":
            valid = [True] * low.lanes
        sources = [
            s if ok else lane for lane, (s, ok) in enumerate(zip(chosen, valid, strict=True))
        ]
        low.env[op.results[0]] = v.Varying(permute(b, value, sources))
        flags = vec(i1, low.lanes)
        low.env[op.results[1]] = v.Varying(b.dense(flags, [int(x) for x in valid]))
        return
    source, valid_mask = _sources(low, mode, low.wide(op.offset), low.wide(op.width))
    low.env[op.results[0]] = v.Varying(_by_memory(low, value, source))
    low.env[op.results[1]] = v.Varying(valid_mask)


def _source(mode: str, lane: int, offset: int, width: int) -> int:
    start = lane - lane % width
    match mode:
        case "xor":
            return start + ((lane - start) ^ offset)
        case "up":
            return lane - offset
        case "down":
            return lane + offset
        case "rotate":
            return start + (lane - start + offset) % width
        case _:
            return start + offset


def permute(b: Builder, value: SSAValue, sources: list[int]) -> SSAValue:
    """Each lane takes what lane `sources[lane]` has; the lanes are the last dimension."""
    shape = shape_of(value.type)
    lanes = shape[-1]
    if len(shape) == 1:
        return b.shuffle(value, value, sources)
    rows = 1
    for n in shape[:-1]:
        rows *= n
    flat = b.shape(value, rows, lanes)
    moved = [b.shuffle(r, r, sources) for r in (b.extract(flat, i) for i in range(rows))]
    return b.shape(b.stack(moved), *shape)


def _sources(
    low: Lowering, mode: str, offset: SSAValue, width: SSAValue
) -> tuple[SSAValue, SSAValue]:
    """The lane that each lane reads, and whether it is one of its segment."""
    b = low.b
    kind = vec(i32, low.lanes)
    lane = b.dense(kind, list(range(low.lanes)))
    within = b.add(arith.RemSIOp(lane, width))
    start = b.add(arith.SubiOp(lane, within))
    match mode:
        case "xor":
            source = b.add(arith.AddiOp(start, b.add(arith.XOrIOp(within, offset))))
        case "up":
            source = b.add(arith.SubiOp(lane, offset))
        case "down":
            source = b.add(arith.AddiOp(lane, offset))
        case "rotate":
            turned = b.add(arith.RemSIOp(b.add(arith.AddiOp(within, offset)), width))
            return b.add(arith.AddiOp(start, turned)), b.constant(vec(i1, low.lanes), 1)
        case _:
            source = b.add(arith.AddiOp(start, offset))
    end = b.add(arith.AddiOp(start, width))
    valid = b.add(
        arith.AndIOp(
            b.add(arith.CmpiOp(source, start, "sge")), b.add(arith.CmpiOp(source, end, "slt"))
        )
    )
    return b.add(arith.SelectOp(valid, source, lane)), valid


def _by_memory(low: Lowering, value: SSAValue, source: SSAValue) -> SSAValue:
    """Lanes read each other's values where they are known at run time only: through memory of the subgroup."""
    b, lanes = low.b, low.lanes
    shape, element = shape_of(value.type), element_of(value.type)
    rows = 1
    for n in shape[:-1]:
        rows *= n
    size = size_of(element)
    room = b.scratch(size * lanes)
    lane = b.add(arith.IndexCastOp(source, vec(index, lanes)))  # pyright: ignore
    offsets = b.add(arith.MuliOp(lane, b.constant(lane.type, size)))
    every, zero = b.constant(vec(i1, lanes), 1), b.zeros(vec(element, lanes))
    flat = b.shape(value, rows, lanes)
    moved: list[SSAValue] = []
    for i in range(rows):
        b.store(b.extract(flat, i), room)
        moved.append(b.gather(room, offsets, every, zero))
    return moved[0] if len(shape) == 1 else b.shape(b.stack(moved), *shape)


# Reductions -----------------------------------------------------------------------------------------------------------

_FLOAT = {
    "add": arith.AddfOp,
    "mul": arith.MulfOp,
    "minimumf": arith.MinimumfOp,
    "maximumf": arith.MaximumfOp,
    "minnumf": arith.MinnumfOp,
    "maxnumf": arith.MaxnumfOp,
}
_INTEGER = {
    "add": arith.AddiOp,
    "mul": arith.MuliOp,
    "minsi": arith.MinSIOp,
    "maxsi": arith.MaxSIOp,
    "minui": arith.MinUIOp,
    "maxui": arith.MaxUIOp,
    "and": arith.AndIOp,
    "or": arith.OrIOp,
    "xor": arith.XOrIOp,
}


def combiner(
    low: Lowering, kind: str, element: Attribute
) -> Callable[[SSAValue, SSAValue], SSAValue]:
    """The combination of a kind of reduction (vector.kind's names)."""
    table = _FLOAT if isinstance(element, AnyFloat) else _INTEGER
    if kind not in table:
        raise low.refuse(f"a reduction of kind {kind}")
    return lambda a, x: low.b.add(table[kind](a, x))


def wide_float(element: Attribute) -> bool:
    """Is arithmetic on the type done in itself?"""
    return not isinstance(element, AnyFloat) or isinstance(element, Float32Type | Float64Type)


@lowers("gpu.subgroup_reduce")
def subgroup_reduce(low: Lowering, op: Any) -> None:
    """All lanes get the combination of their values, halves of the subgroup at a time."""
    from tilewright.targets.emu.products import narrow, widen

    low.together()
    value = low.wide(op.operand)
    if low.lanes == 1:
        raise low.refuse("over lanes in a program of subgroups")
    element = element_of(value.type)
    kind = _kind(op)
    cluster = op.properties.get("cluster_size")
    lanes = low.lanes if cluster is None else cluster.value.data
    stride = op.properties.get("cluster_stride")
    distance = 1 if stride is None else stride.value.data
    computed: Attribute = element if wide_float(element) else Float32Type()
    combine = combiner(low, kind, computed)
    total = widen(low.b, value, computed)
    count = lanes
    while count > 1:
        sources = [lane ^ distance for lane in range(low.lanes)]
        total = combine(total, permute(low.b, total, sources))
        distance, count = 2 * distance, count // 2
    total = narrow(low.b, total, element)
    if cluster is None and len(shape_of(total.type)) == 1:
        low.env[op.result] = v.Uniform(low.b.extract(total, 0))
    elif cluster is None:
        low.env[op.result] = v.Uniform(_first_lane(low.b, total))
    else:
        low.env[op.result] = v.Varying(total)


def _kind(op: Any) -> str:
    """vector.kind's name of a gpu.all_reduce_operation."""
    return str(getattr(op.op, "data", op.op)).rsplit(".", 1)[-1].lower()


@lowers("gpu.all_reduce")
def all_reduce(low: Lowering, op: Any) -> None:
    """All lanes of the workgroup get the combination of their values: each subgroup's, then through shared memory."""
    from tilewright.targets.emu.products import narrow, widen

    b = low.b
    if op.op is None or low.lanes == 1 or shape_of(op.operand.type):
        raise low.refuse("but of a lane's number with a kind")
    subgroup_reduce(low, op)
    mine = low.uniform(op.result)
    element = mine.type
    x, y, z = low.launch_block
    count = x * y * z // low.threads
    size = size_of(element)
    base = b.plus(low.field(context.SHARED), low.shared.place(op, size * count))
    barrier = [b.pointer(low.base), low.site()]
    b.store(mine, b.plus(base, b.times(low.subgroup, size)))
    b.put(mach.CallOp("tw_emu_barrier", barrier))
    computed: Attribute = element if wide_float(element) else Float32Type()
    combine = combiner(low, _kind(op), computed)
    total: SSAValue | None = None
    for i in range(count):
        value = widen(b, b.load(element, b.plus(base, i * size)), computed)
        total = value if total is None else combine(total, value)
    assert total is not None
    b.put(mach.CallOp("tw_emu_barrier", barrier))  # the place may be used again
    low.env[op.result] = v.Uniform(narrow(b, total, element))


def _first_lane(b: Builder, value: SSAValue) -> SSAValue:
    """[..] of [.., lanes]: what lane 0 has."""
    *shape, lanes = shape_of(value.type)
    count = 1
    for n in shape:
        count *= n
    flat = b.shape(value, count * lanes)
    return b.shape(b.shuffle(flat, flat, [i * lanes for i in range(count)]), *shape)
