"""`stage.pack` -> a phase of the launch: every task packs some panels of the array, for some block of k."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from xdsl.dialects import arith, func
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, UnrealizedConversionCastOp
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.codegen.builder import Builder, Idx, function, index, lane_type
from tilewright.codegen.tiles import Tile, itemsize, plain
from tilewright.dialects import mach
from tilewright.dialects.fused import PackOp, YieldOp
from tilewright.dialects.text import print_module
from tilewright.dialects.upstream.arith import folded
from tilewright.targets.cpu.amx import TILE_BYTES, parts_of
from tilewright.targets.cpu.arguments import split
from tilewright.targets.cpu.dots import is_unsigned
from tilewright.targets.cpu.evaluate import Position
from tilewright.targets.cpu.machine import FEW_COPIES, FEW_READS, CpuMachine
from tilewright.targets.cpu.operands import PACK_ARGUMENTS, spread
from tilewright.targets.cpu.packed_array import PackedArray
from tilewright.targets.cpu.panels import PanelFormat, block_depth, pack_block
from tilewright.uarch.cpu import Caches

if TYPE_CHECKING:
    from tilewright.targets.cpu.arguments import ArgumentBlock
    from tilewright.targets.cpu.lower import FunctionContext

    Build = Callable[[tuple[func.FuncOp, Builder], Sequence[Operation]], FunctionContext]

PANELS_PER_TASK = 8
"""Neighbouring panels go together where their elements do; where each has rows of its own, `ROWS_PER_TASK` rows do."""
ROWS_PER_TASK = 64
K_PER_TASK = 128
K_BYTES = 1024
"""Of each row, at most: blocks of k that are deeper would leave a few rows to as few threads, and others wait."""
ROW_BYTES, SHORT_ROWS = 2048, 64
"""Bytes of each row and rows that go together where a panel has less than a line of one: caches fetch long runs ahead,
and what lies between a line's halves would read it twice."""


def packed_array(c: FunctionContext, op: PackOp, i: int, x: Idx) -> PackedArray:
    """The `i`-th packed array, for any function of a launch: what `tw_plan` found of it is read, not computed again.

    `x`: its extent where that is known, or what `plan_packs` gave.
    """
    b = c.b

    def word(name: str) -> SSAValue:
        return c.word(c.layout.of_pack(i, name))

    matrix, format = c.matrices[op.source], format_of(op, c.m)
    sizes = list(matrix.sizes) if len(matrix.sizes) > 1 else [1, *matrix.sizes]
    k_axis = op.result.type.k.data
    k = sizes[-2] if k_axis == 0 else sizes[-1]
    unit = op.depth or max(64 // itemsize(format.element), 16, format.group)
    panels, strides = word("panels"), [0, *matrix.strides][-2:]
    x_stride, k_stride = reversed(strides) if k_axis == 0 else strides
    return PackedArray(
        b.load(b.ptr(c.argument, c.layout.of_pack(i, "at")), mach.ptr),
        format, x if isinstance(x, int) else word("x"), k, panels, op.depth, k_axis, tuple(sizes[:-2]),
        tuple(matrix.strides[:-2]), b.round_up(k, unit), along_k(op, matrix.strides), b.cmp("ne", panels, 0),
        panels_function(i), c.argument, matrix.pointer, x_stride, k_stride,
        is_verbatim(op, matrix.element, format),
    )  # fmt: skip


def plan_packs(c: FunctionContext, packs: Sequence[PackOp]) -> list[Idx]:
    """Of `tw_plan`: what becomes of each array, how much memory packed arrays take, one after the other, and how many
    tasks make each. Each part starts on a cache line. An array that is not packed ahead takes no tasks.

    The extents of arrays along x, as far as they are used.
    """
    b = c.b
    extents: list[Idx] = []
    needed: Idx = 0
    for i, op in enumerate(packs):

        def place(name: str, i: int = i) -> SSAValue:
            return b.ptr(c.argument, c.layout.of_pack(i, name))

        c.lower_scalars_of(op)
        sizes = c.matrices[op.source].sizes
        x = sizes[-1] if op.result.type.k.data == 0 else ([1, *sizes])[-2]
        x = b.min(x, b.max(folded(c.e.scalar(op.used)), 0))
        extents.append(x)
        reads, few = folded(c.e.scalar(op.reads)), FEW_READS
        if not isinstance(reads, int) or reads > few:
            few = b.load(b.ptr(c.argument, c.layout.few_reads), index)
            few = b.max(few, copies(c, op))
        kept = b.cmp("ne", b.load(place("kept"), index), 0)
        ahead = b.either(kept, b.cmp("sgt", reads, few))
        panels = b.select(ahead, format_of(op, c.m).panels_before(b, x), 0)
        for name, value in (("x", x), ("panels", panels), ("at", needed)):
            b.store(b.idx(value), place(name))
        array = packed_array(c, op, i, x)
        batches, groups, k_blocks = tasks_of(b, array)
        size = b.times(batches, array.plane(b))
        b.store(b.idx(size), place("bytes"))
        b.store(b.idx(b.times(b.times(batches, groups), k_blocks)), place("end"))
        needed = b.plus(needed, b.select(kept, 0, b.round_up(b.plus(size, 4096), 4096)))
    b.store(b.idx(needed), b.ptr(c.argument, c.layout.needed))
    return extents


def copies(c: FunctionContext, op: PackOp) -> Idx:
    """Reads up to which readers copy rows while they multiply; 0 where micro-kernels need something else than rows."""
    b, matrix, format = c.b, c.matrices[op.source], format_of(op, c.m)
    kind, tile = op.result.type, format.group * itemsize(format.element)
    if tile != TILE_BYTES or not (
        along_k(op, matrix.strides) and is_verbatim(op, matrix.element, format)
    ):
        return 0
    pitch = b.times(matrix.strides[-2 + kind.k.data], itemsize(format.element))
    return b.select(spread(b, pitch), FEW_COPIES, 0)


def tasks_of(b: Builder, array: PackedArray) -> tuple[Idx, Idx, Idx]:
    """How the work of a packed array is cut: batch entries, groups of panels, blocks of k."""
    batches: Idx = 1
    for n in array.batch_sizes:
        batches = b.times(batches, n)
    groups = b.ceildiv(array.panels, panels_per_task(array.format, array.along_k))
    return batches, groups, b.ceildiv(array.k_extent, k_per_task(array))


def tasks_of_packs(b: Builder, argument: SSAValue, block: ArgumentBlock, packs: int) -> Idx:
    """Of `tw_run`: the tasks of all packs, after it wrote where those of each end, and where its panels are. Panels
    that are kept and filled take none."""
    end: Idx = 0
    workspace = b.load(b.ptr(argument, block.workspace), mach.ptr)
    for i in range(packs):
        at, kept = (b.ptr(argument, block.of_pack(i, name)) for name in ("at", "kept"))
        own = b.ptr(workspace, b.load(at, index))
        elsewhere = b.cmp("ne", b.load(kept, index), 0)
        b.store(b.value(arith.SelectOp(elsewhere, b.load(kept, mach.ptr), own)), at)
        place = b.ptr(argument, block.of_pack(i, "end"))
        filled = b.load(b.ptr(argument, block.of_pack(i, "filled")), index)
        tasks = b.select(b.cmp("ne", filled, 0), 0, b.load(place, index))
        end = b.plus(end, tasks)
        b.store(b.idx(end), place)
    return end


def panels_per_task(format: PanelFormat, runs_along_k: bool) -> int:
    if runs_along_k:
        return max(1, ROWS_PER_TASK // format.lanes)
    return ROW_BYTES // _row_bytes(format) if _short(format) else PANELS_PER_TASK


def k_per_task(array: PackedArray) -> int:
    """Blocks of k as a whole; parts of them where rows (see `ROW_BYTES`) or blocks are long."""
    depth = array.depth or K_PER_TASK
    if _short(array.format) and not array.along_k and depth % SHORT_ROWS == 0:
        return SHORT_ROWS
    while array.along_k and depth % 2 == 0 and depth * array.format.bytes > K_BYTES:
        depth //= 2
    return depth


def _short(format: PanelFormat) -> bool:
    """Does a panel have less than a line of a row along x?"""
    return _row_bytes(format) < Caches.line


def _row_bytes(format: PanelFormat) -> int:
    return format.lanes * itemsize(format.element)


def format_of(op: PackOp, m: CpuMachine) -> PanelFormat:
    kind, last = op.result.type, op.body.block.last_op
    assert last is not None
    unsigned = is_unsigned(last.operands[0].type)
    element, group = plain(kind.element_type), kind.group.data
    biased, parts = bool(kind.biased.data), parts_of(m, element, group)
    return PanelFormat(kind.lanes.data, group, element, unsigned, biased, parts, op.pitch)


def is_verbatim(op: PackOp, element: Attribute, format: PanelFormat) -> bool:
    """Are packed elements those of the array, bit by bit?"""
    plain_op = all(isinstance(o, UnrealizedConversionCastOp | YieldOp) for o in op.body.block.ops)
    same = plain_op and plain(element) == format.element
    return same and not format.biased and format.parts == 1


def pack_key(op: PackOp) -> str:
    """What its panels hold of its array, but for its place and the machine."""
    inner = "; ".join(print_module(o, generic=True).strip() for o in op.body.block.ops)
    return f"{op.source.type.element_type}: {inner}; {op.result.type} {op.depth} {op.pitch}"  # pyright: ignore


def along_k(op: PackOp, strides: Sequence[Idx]) -> bool:
    """Is k the dimension whose elements stand together?"""
    k, x = strides[-1], strides[-2] if len(strides) > 1 else 0
    if op.result.type.k.data == 0:
        k, x = x, k
    return k == 1 and x != 1


def task_function(
    name: str, *, once: bool = False, common: str | None = None
) -> tuple[func.FuncOp, Builder]:
    """An empty function `(ptr block, task, thread)`, as the threads of the pool call it."""
    return function(name, [mach.ptr, index, index], once=once, common=common)


def emit_pack_task(i: int, build: Build, op: PackOp, x: Idx) -> func.FuncOp:
    """The task function of the `i`-th pack: some panels, for some block of k."""
    name = pack_function(i)
    c = build(task_function(name, once=True, common=name), [op]).begun()
    b = c.b
    array = packed_array(c, op, i, x)
    _, groups, k_blocks = tasks_of(b, array)

    rest, k_block = split(b, c.task, k_blocks)
    batch, group = split(b, rest, groups)
    offset: Idx = 0
    remaining = batch
    for size, stride in zip(
        reversed(array.batch_sizes), reversed(array.batch_strides), strict=True
    ):
        remaining, digit = split(b, remaining, size)
        offset = b.plus(offset, b.times(digit, stride))
    size = itemsize(array.format.element)
    depth = k_per_task(array)
    k0 = b.times(k_block, depth)
    # Whole steps of the widest instruction: what lies beyond the array is packed as zeros.
    k1 = b.min(b.plus(k0, depth), b.round_up(array.k_extent, max(64 // size, 16)))
    count = panels_per_task(array.format, array.along_k)
    first = b.times(group, count)
    last = b.min(b.plus(first, count), array.panels)
    start, panel_bytes = array.place(b, batch, first, k0)
    array.fill(b, offset, first, last, k0, k1, start, panel_bytes)
    b.op(func.ReturnOp())
    return c.op


def emit_task(name: str, packs: int, block: ArgumentBlock) -> func.FuncOp:
    """The task function of a launch: tasks that pack each array, then the workgroups."""
    op, b = task_function(name, once=True)
    argument, task, thread = b.entry.args
    packed = b.ptr(argument, block.packed)

    def phase(i: int, start: Idx) -> None:
        number = b.idx(b.minus(task, start))
        if i == packs:
            b.call("tw_pool_wait", [packed, b.idx(start)])
            b.op(func.CallOp("tw_workgroup", [argument, number, thread], []))
            return
        end = b.load(b.ptr(argument, block.of_pack(i, "end")), index)

        def mine() -> None:
            b.op(func.CallOp(pack_function(i), [argument, number, thread], []))
            b.op(mach.AtomicRmwOp("addi", b.idx(1), packed, ordering="release"))

        b.choose(b.cmp("slt", task, end), mine, lambda: phase(i + 1, end))

    phase(0, 0)
    b.op(func.ReturnOp())
    return op


def pack_function(i: int) -> str:
    """The name of the task function of a pack."""
    return f"tw_pack{i}"


def panels_function(i: int) -> str:
    """The name of the function that packs panels for a task function and for workgroups."""
    return f"{pack_function(i)}_panels"


def emit_pack_function(i: int, build: Build, op: PackOp) -> func.FuncOp:
    """`panels_function(i)(block, offset, first, last, k0, k1, to, panel_bytes)`: panels [first, last), k in [k0, k1).

    The first goes to the address `to`, the others follow `panel_bytes` apart. `offset`: elements from the start of the
    array to the batch entry's.
    """
    c = build(function(panels_function(i), PACK_ARGUMENTS, common=pack_function(i)), [op])
    b, e, m = c.b, c.e, c.m
    _, offset, first, last, k0, k1, to, panel_bytes = b.entry.args
    b.nonnegative |= {first, last, k0, k1, panel_bytes}
    e.values.spare = to
    matrix, format = c.matrices[op.source], format_of(op, m)
    pointer = b.ptr(matrix.pointer, b.times(offset, itemsize(matrix.element)))
    sizes = list(matrix.sizes) if len(matrix.sizes) > 1 else [1, *matrix.sizes]
    strides = list(matrix.strides) if len(matrix.strides) > 1 else [0, *matrix.strides]
    tile = Tile(
        pointer, matrix.element, (0, 0), (sizes[-2], sizes[-1]), (strides[-2], strides[-1]), (1, 1)
    )
    padding = op.padding.value.data if isinstance(op.padding, IntegerAttr | FloatAttr) else 0
    x_axis = 1 - op.result.type.k.data
    runs = along_k(op, strides)
    step = block_depth(format, runs, m.vector_bytes)

    def source(tile: Tile, place: Position) -> SSAValue:
        """The region of the pack on the registers of a place."""
        registers: dict[SSAValue, SSAValue] = {op.body.block.args[0]: e.load(tile, place, padding)}
        for inner in op.body.block.ops:
            if isinstance(inner, YieldOp):
                return registers[inner.operands[0]]
            if isinstance(inner, arith.ConstantOp):
                number = inner.value.value.data  # pyright: ignore
                registers[inner.result] = b.constant(
                    lane_type(inner.result.type, place.lanes), number
                )
            elif isinstance(inner, UnrealizedConversionCastOp):
                registers[inner.results[0]] = registers[inner.operands[0]]
            else:
                values = [registers[v] for v in inner.operands]
                registers[inner.results[0]] = e.clone(inner, values, place.lanes)
        raise AssertionError("the region of a pack ends with a yield")

    def block_at(panel: Idx, k: Idx) -> None:
        x = format.start_of(b, panel)
        here = tile.moved(b, *((x, k) if x_axis == 0 else (k, x)))
        target = b.ptr(to, b.times(b.minus(panel, first), panel_bytes))
        target = b.ptr(target, b.times(b.minus(k, k0), format.lanes * format.bytes))
        fits = b.cmp("sle", b.plus(x, format.lanes), sizes[-2 + x_axis])
        fits = b.both(fits, b.cmp("sle", b.plus(k, step), sizes[-1 - x_axis]))
        assert fits is not None
        pack_block(
            b, format, partial(source, here), target, 0, 0, step,
            x_axis=x_axis, along_k=runs, vector_bytes=m.vector_bytes, inside=fits,
        )  # fmt: skip

    if runs:
        with b.loop(first, last) as p, b.loop(k0, k1, step) as k, e.scope():
            block_at(p.iv, k.iv)
    else:
        with b.loop(k0, k1, step) as k, b.loop(first, last) as p, e.scope():
            block_at(p.iv, k.iv)
    b.op(func.ReturnOp())
    return c.op
