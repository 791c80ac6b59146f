"""What of a kernel says how many workgroups should compute one of its programs: its loop, measured (`sharing.Work`)."""

from __future__ import annotations

from xdsl.dialects import gpu, memref
from xdsl.dialects.builtin import MemRefType, VectorType
from xdsl.ir import BlockArgument, SSAValue

from tilewright import dtypes
from tilewright.dialects import xetile
from tilewright.dialects.upstream.arith import constant
from tilewright.targets.cuda.passes.rings import loads_of
from tilewright.targets.cuda.passes.shares import shared_loop
from tilewright.targets.cuda.passes.steps import can_merge
from tilewright.targets.cuda.passes.suits import instruction_for
from tilewright.targets.cuda.sharing import Work
from tilewright.uarch import sm90
from tilewright.uarch.base import Machine


def work_of(kernel: gpu.FuncOp, machine: Machine) -> Work | None:
    """The loop of a kernel whose tiles are placed where they are loaded; None where it has another form."""
    loop = shared_loop(kernel)
    if loop is None:
        return None
    start, step = constant(loop.lb), constant(loop.step)
    end = _end(kernel, loop.ub)
    if start is None or not step or end is None:
        return None
    products = [op for op in loop.body.block.ops if isinstance(op, xetile.TileMmaOp)]
    shapes = {tuple(_vector(op.result).get_shape()) for op in products}
    if len(shapes) != 1:
        return None
    rows, columns = shapes.pop()
    clocks = 0.0
    along_rows: set[xetile.LoadTileOp] = set()
    along_columns: set[xetile.LoadTileOp] = set()
    for op in products:
        a, b = _vector(op.a), _vector(op.b)
        instruction = instruction_for(machine, a, b, _vector(op.result))
        if instruction is None or instruction.flops_per_cycle is None:
            return None
        clocks += 2 * rows * columns * a.get_shape()[1] / instruction.flops_per_cycle
        along_rows.update(loads_of(op.a, computed=True))
        along_columns.update(loads_of(op.b, computed=False))
    return Work(
        *end,
        start,
        step,
        rows,
        columns,
        len(products),
        sum(map(_bytes, along_rows)),
        sum(map(_bytes, along_columns)),
        clocks,
        True,
        can_merge(kernel),
        _array(along_rows, kernel),
        _array(along_columns, kernel),
        dict(sm90.COPY_RATES),
    )


def _end(kernel: gpu.FuncOp, bound: SSAValue) -> tuple[int, int] | None:
    """The array argument and its extent that a loop's end is, or the scalar argument with -1."""
    source, dimension = bound, -1
    if isinstance(bound.owner, memref.DimOp):
        source, found = bound.owner.source, constant(bound.owner.index)
        dimension = -2 if found is None else found
    if not isinstance(source, BlockArgument) or source.block is not kernel.body.block:
        return None
    if dimension == -2 or isinstance(source.type, MemRefType) != (dimension >= 0):
        return None
    return source.index, dimension


def _array(loads: set[xetile.LoadTileOp], kernel: gpu.FuncOp) -> int:
    """The argument of two dimensions, addressed whole, that all loads read; -1 if there is no such one."""
    found: set[int] = set()
    for load in loads:
        origin = load.tile.owner
        if not isinstance(origin, xetile.InitTileOp) or load.permutation is not None:
            return -1
        source = origin.source
        if not isinstance(source, BlockArgument) or source.block is not kernel.body.block:
            return -1
        if len(origin.mixed_offsets) != 2:
            return -1
        found.add(source.index)
    return found.pop() if len(found) == 1 else -1


def _vector(value: SSAValue) -> VectorType:
    assert isinstance(value.type, VectorType)
    return value.type


def _bytes(load: xetile.LoadTileOp) -> int:
    rows, columns = load.tile_type.get_shape()
    return rows * columns * dtypes.from_mlir(load.tile_type.element_type).itemsize
