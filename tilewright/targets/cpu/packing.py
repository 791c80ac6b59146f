"""`stage.pack` -> a phase of the launch: every task packs some panels of the array, for some block of k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xdsl.dialects import arith, func, gpu
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, UnrealizedConversionCastOp
from xdsl.ir import SSAValue

from tilewright.codegen.builder import Idx, lane_type
from tilewright.dialects.stage import PackOp, YieldOp
from tilewright.dialects.upstream.arith import folded
from tilewright.targets.cpu.contract import PackedArray
from tilewright.targets.cpu.dots import is_unsigned
from tilewright.targets.cpu.evaluate import Place
from tilewright.targets.cpu.machine import Machine
from tilewright.targets.cpu.memory import Tile, itemsize, plain
from tilewright.targets.cpu.panels import PanelFormat, block_depth, pack_block

if TYPE_CHECKING:
    from tilewright.targets.cpu.arguments import ArgumentBlock
    from tilewright.targets.cpu.lower import FunctionContext

PANELS_PER_TASK = 8
K_PER_TASK = 256


@dataclass(frozen=True)
class Packing:
    """One packed array: where it is, how big, and how its work is cut."""

    packed: PackedArray
    bytes: Idx
    tasks: Idx
    panel_groups: Idx
    k_blocks: Idx
    batches: Idx


def packed_array(c: FunctionContext, op: PackOp, pointer: SSAValue) -> Packing:
    """Sizes of a packed array, computed where `c` stands. Each part starts on a cache line."""
    b = c.b
    c.lower_scalars_of(op)

    matrix = c.matrices[op.source]
    kind = op.result.type
    element = kind.element_type
    last = op.body.block.last_op
    assert last is not None
    unsigned = is_unsigned(last.operands[0].type)
    biased = bool(kind.biased.data)
    format = PanelFormat(kind.lanes.data, kind.group.data, plain(element), unsigned, biased)
    sizes = list(matrix.sizes) if len(matrix.sizes) > 1 else [1, *matrix.sizes]
    k_axis = kind.k.data
    k, x = (sizes[-2], sizes[-1]) if k_axis == 0 else (sizes[-1], sizes[-2])
    used = folded(c.e.scalar(op.used))
    x = b.min(x, b.max(used, 0))
    depth = op.depth.value.data
    panels = b.ceildiv(x, format.lanes)
    unit = depth or max(64 // itemsize(format.element), 16, format.group)
    rounded = b.round_up(k, unit)
    batches: Idx = 1
    for n in sizes[:-2]:
        batches = b.mul(batches, n)
    groups = b.ceildiv(panels, PANELS_PER_TASK)
    k_blocks = b.ceildiv(k, depth or K_PER_TASK)
    size = b.mul(b.mul(b.mul(batches, panels), rounded), format.lanes * itemsize(format.element))
    size = b.round_up(b.add(size, 4096), 4096)
    packed = PackedArray(pointer, format, x, k, panels, depth, k_axis, tuple(sizes[:-2]), rounded)
    tasks = b.mul(b.mul(batches, groups), k_blocks)
    return Packing(packed, size, tasks, groups, k_blocks, batches)


def emit_pack_task(
    name: str,
    context_class: Any,
    op: PackOp,
    kernel: gpu.FuncOp,
    block: ArgumentBlock,
    m: Machine,
    *,
    needed_before: Sequence[PackOp],
) -> tuple[func.FuncOp, None]:
    """The task function of one pack."""
    c: FunctionContext = context_class(name, kernel, block, m)
    b, e = c.b, c.e
    workspace = b.load(b.ptr(c.argument, block.workspace), _ptr())
    at: Idx = 0
    for earlier in needed_before:
        at = b.add(at, packed_array(c, earlier, workspace).bytes)
    packing = packed_array(c, op, b.ptr(workspace, at))
    array = packing.packed
    matrix = c.matrices[op.source]

    def split(value: SSAValue, by: Idx) -> tuple[SSAValue, SSAValue]:
        quotient = b.value(arith.DivSIOp(value, b.idx(by)))
        rest = b.value(arith.RemSIOp(value, b.idx(by)))
        b.nonnegative |= {quotient, rest}
        return quotient, rest

    rest, k_block = split(c.task, packing.k_blocks)
    rest, group = split(rest, packing.panel_groups)
    offset: Idx = 0
    if array.batch_sizes:
        remaining = rest
        for size, stride in zip(
            reversed(array.batch_sizes), reversed(matrix.strides[:-2]), strict=True
        ):
            remaining, digit = split(remaining, size)
            offset = b.add(offset, b.mul(digit, stride))
    pointer = b.ptr(matrix.pointer, b.mul(offset, itemsize(matrix.element)))
    sizes = list(matrix.sizes) if len(matrix.sizes) > 1 else [1, *matrix.sizes]
    strides = list(matrix.strides) if len(matrix.strides) > 1 else [0, *matrix.strides]
    tile = Tile(
        pointer, matrix.element, (0, 0), (sizes[-2], sizes[-1]), (strides[-2], strides[-1]), (1, 1)
    )
    padding = op.padding.value.data if isinstance(op.padding, IntegerAttr | FloatAttr) else 0

    format, size = array.format, itemsize(array.format.element)
    k_axis, x_axis = array.k_axis, 1 - array.k_axis
    along_k = tile.strides[k_axis] == 1 and tile.strides[x_axis] != 1
    step = block_depth(format, along_k, m.vector_bytes)
    plane = b.mul(b.mul(array.panels, array.rounded_k), format.lanes * size)
    base = b.ptr(array.pointer, b.mul(rest, plane))
    depth = array.depth or K_PER_TASK
    k0 = b.mul(k_block, depth)
    # Whole steps of the widest instruction: what lies beyond the array is packed as zeros.
    k1 = b.min(b.add(k0, depth), b.round_up(array.k_extent, max(64 // size, 16)))
    first = b.mul(group, PANELS_PER_TASK)
    last = b.min(b.add(first, PANELS_PER_TASK), array.panels)

    def source(place: Place) -> SSAValue:
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
        x = b.mul(panel, format.lanes)
        if array.depth:
            start = b.ptr(base, b.mul(b.mul(k_block, array.panels), depth * format.lanes * size))
            start = b.ptr(start, b.mul(panel, depth * format.lanes * size))
            target = b.ptr(start, b.mul(b.sub(k, k0), format.lanes * size))
        else:
            start = b.ptr(base, b.mul(panel, b.mul(array.rounded_k, format.lanes * size)))
            target = b.ptr(start, b.mul(k, format.lanes * size))
        fits = b.cmp("sle", b.add(x, format.lanes), array.x_extent)
        fits = b.both(fits, b.cmp("sle", b.add(k, step), array.k_extent))
        assert fits is not None

        def one(inside: bool) -> None:
            pack_block(
                b, format, source, target, x, k, step,
                x_axis=x_axis, along_k=along_k, vector_bytes=m.vector_bytes, inside=inside,
            )  # fmt: skip

        from xdsl.dialects import scf
        from xdsl.ir import Block

        fast, slow = Block(), Block()
        for target_block, inside in ((fast, True), (slow, False)):
            with b.inside(target_block), e.scope():
                one(inside)
                b.op(scf.YieldOp())
        b.if_else(fits, fast, slow, [])

    if along_k:
        with b.loop(first, last) as p, b.loop(k0, k1, step) as k, e.scope():
            block_at(p.iv, k.iv)
    else:
        with b.loop(k0, k1, step) as k, b.loop(first, last) as p, e.scope():
            block_at(p.iv, k.iv)
    b.op(func.ReturnOp())
    return c.op, None


def _ptr() -> Any:
    from tilewright.dialects import mach

    return mach.ptr
