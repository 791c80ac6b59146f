"""persistent: a workgroup runs many programs of the grid, in an order that keeps what they share in the L2 cache.

    %x = gpu.block_id x                     %i, %n = stage.worker
    %y = gpu.block_id y              ->     scf.for %t = %i to %all step %n {
    ...                                       %x, %y, %z = (raster of %t)
                                              ...
                                            }

Requires: XeTile at workgroup level; no memory shared by the workgroup and no barriers (a program may not see what the
one before it left). Guarantees: every program of the grid runs once.

Programs are numbered in groups of `GROUP` along axis 0: inside a group axis 0 is fastest, then axis 1; axis 2 is
slowest. So the programs that run at the same time form a block of the grid that is nearly square, and tiles that
depend on one axis only are read by many of them.
"""

from __future__ import annotations

from xdsl.dialects import arith, gpu, memref, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr, UnitAttr, i32
from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.dialects import stage
from tilewright.targets.cuda.passes.rings import PROGRAMS

GROUP = 16
"""Programs along axis 0 that run side by side."""

index = IndexType()


def make_persistent(function: gpu.FuncOp, remarks: list[str]) -> bool:
    """Rewrites one kernel; whether it loops over programs now."""
    if any(
        isinstance(op, memref.AllocOp | memref.AllocaOp | gpu.BarrierOp) for op in function.walk()
    ):
        remarks.append("one program per workgroup: the kernel shares memory between its subgroups")
        return False
    top = function.body.block
    last = top.last_op
    assert last is not None
    body = Block(arg_types=[index])
    for op in list(top.ops):
        if op is not last and not _common(op):
            op.detach()
            body.add_op(op)
    body.add_op(scf.YieldOp())

    def outside(op: Operation) -> SSAValue:
        top.insert_op_before(op, last)
        return op.results[0]

    programs = [outside(stage.ProgramsOp(axis)) for axis in range(3)]
    plane = outside(arith.MuliOp(programs[0], programs[1]))
    total = outside(arith.MuliOp(plane, programs[2]))
    worker = stage.WorkerOp()
    top.insert_op_before(worker, last)
    loop = scf.ForOp(worker.number, total, worker.count, [], Region(body))
    loop.attributes[PROGRAMS] = UnitAttr()
    top.insert_op_before(loop, last)
    ids = _raster(body, programs, plane)
    for op in list(function.walk()):
        if isinstance(op, gpu.BlockIdOp | gpu.GridDimOp):
            axis = "xyz".index(op.dimension.data)
            values = ids if isinstance(op, gpu.BlockIdOp) else programs
            op.result.replace_all_uses_with(values[axis])
            op.detach()
            op.erase()
    return True


def _common(op: Operation) -> bool:
    """Scalars of the launch stay where they are."""
    return op.name in ("arith.constant", "memref.dim", "memref.extract_strided_metadata")


def _raster(body: Block, programs: list[SSAValue], plane: SSAValue) -> list[SSAValue]:
    """The ids of program number `body.args[0]`; numbers fit 32 bits, in which division is fast."""
    first = body.first_op
    assert first is not None

    def insert(op: Operation) -> SSAValue:
        body.insert_op_before(op, first)
        return op.results[0]

    def narrow(value: SSAValue) -> SSAValue:
        return insert(arith.IndexCastOp(value, i32))

    group = insert(arith.ConstantOp(IntegerAttr(GROUP, i32)))
    number, x_count, y_count, per_plane = map(narrow, (body.args[0], *programs[:2], plane))
    z = insert(arith.DivUIOp(number, per_plane))
    in_plane = insert(arith.RemUIOp(number, per_plane))
    per_group = insert(arith.MuliOp(y_count, group))
    which = insert(arith.DivUIOp(in_plane, per_group))
    in_group = insert(arith.RemUIOp(in_plane, per_group))
    start = insert(arith.MuliOp(which, group))
    left = insert(arith.SubiOp(x_count, start))
    width = insert(arith.MinUIOp(left, group))
    x = insert(arith.AddiOp(start, insert(arith.RemUIOp(in_group, width))))
    y = insert(arith.DivUIOp(in_group, width))
    return [insert(arith.IndexCastOp(v, index)) for v in (x, y, z)]
