"""The program of a lane becomes that of a thread: it is one already.

    gpu.func @k(%a: memref<?x64xf32>)                   func.func @k(%a: memref<?x64xf32>)
        {tilewright.lanes = 16, ..}               ->        {mach.kernel, tilewright.lanes = 16, nvvm.reqntid = ..}
      %s = memref.alloc() : memref<512xf32, 3>            %s = memref.alloc() {mach.offset = 0} : memref<512xf32, 3>

Subgroups of 8 and 16 lanes are parts of a warp: the emitter numbers lanes and makes shuffles by the function's
`tilewright.lanes`. Each parameter of an array is its address and what of its extents and strides the type leaves open.
"""

from __future__ import annotations

from xdsl.dialects import arith, cf, func, gpu, memref
from xdsl.dialects.builtin import (
    IntegerAttr,
    MemRefType,
    ModuleOp,
    StridedLayoutAttr,
    UnitAttr,
    i1,
    i64,
)
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.codegen.nvptx_values import OFFSET
from tilewright.codegen.registers import strided_form
from tilewright.diagnostics import unsupported
from tilewright.dialects import mach
from tilewright.dialects.mach import KERNEL
from tilewright.dialects.upstream.gpu.lanes import DEFAULT_LANES, LANES
from tilewright.passes.emit import Before
from tilewright.passes.kernel import integer, subgroups_of
from tilewright.passes.own_memory import own_memory, shared_bytes
from tilewright.passes.pipeline import Unit
from tilewright.passes.thread_ids import threads_in_line
from tilewright.passes.xegpu.lane_elements import lane_elements
from tilewright.passes.xegpu.lane_memory import lane_memory
from tilewright.passes.xegpu.upgrade import upgrade_older
from tilewright.reference.batch import WARP
from tilewright.targets.cuda.lower import Parameters
from tilewright.targets.cuda.lowered import LoweredThread
from tilewright.uarch.base import Machine


def lower_lanes(kernel: gpu.FuncOp, lanes: int) -> LoweredThread:
    """The thread's function, which takes the kernel's body, and how to launch it."""
    shared = _place_shared(kernel)
    for op in list(kernel.walk()):
        if isinstance(op, gpu.ReturnOp):
            Rewriter.replace_op(op, func.ReturnOp())
        elif isinstance(op, cf.AssertOp):
            _trap_unless(op)
        elif isinstance(op, memref.GetGlobalOp):
            raise unsupported(
                op, f"{op.name}: a lane's program on this target has no arrays of its module"
            )
    _begin_at_addresses(kernel)
    name = kernel.sym_name.data
    types = [a.type for a in kernel.body.block.args]
    function = func.FuncOp(name, (types, []), kernel.detach_region(kernel.body))
    function.attributes[KERNEL] = UnitAttr()
    function.location = kernel.location
    slots = Parameters.of(types).slots
    threads = subgroups_of(kernel) * lanes
    return LoweredThread(ModuleOp([function]), name, slots, threads, shared, lanes=lanes)


def legalize_lanes(unit: Unit[Machine]) -> None:
    """Rewrites what a warp's threads have no instruction for: XeGPU's ops, memory of a lane, ids of threads."""
    kernel = unit.kernel
    lanes = lanes_of(kernel)
    upgrade_older(unit.module)
    own_memory(kernel)
    lane_elements(kernel, lanes)
    lane_memory(kernel, lanes)
    threads_in_line(kernel, lanes)


def lanes_of(kernel: gpu.FuncOp) -> int:
    """Of a subgroup; UnsupportedError where they are no part of a warp."""
    lanes = integer(kernel, LANES, DEFAULT_LANES)
    if lanes not in (1, 2, 4, 8, 16, WARP):
        raise unsupported(
            kernel,
            f"subgroups of {lanes} lanes are not possible: they are warps of {WARP} threads, or parts of 1 to 16",
        )
    return lanes


def _place_shared(kernel: gpu.FuncOp) -> int:
    """Says of each array in shared memory where it begins there; the bytes of all."""
    total = 0
    for op in kernel.walk():
        if size := shared_bytes(op):
            op.attributes[OFFSET] = IntegerAttr(total, i64)
            total += size
    return total


def _trap_unless(op: cf.AssertOp) -> None:
    """An assertion: the launch fails where it does not hold."""
    at = Before(op)
    failed = at.add(arith.XOrIOp(op.arg, at.constant(i1, 1)))
    at.choose(failed, [], lambda: at.insert(mach.InstrOp("nvptx.trap")).results)
    at.replace()


def _begin_at_addresses(kernel: gpu.FuncOp) -> None:
    """A launch gives the address of an array's first element, however far its type says that is from elsewhere."""
    block = kernel.body.block
    for argument in block.args:
        kind = argument.type
        if not isinstance(kind, MemRefType) or strided_form(kind)[1] == 0:
            continue
        assert isinstance(kind.layout, StridedLayoutAttr) and block.first_op is not None
        here = StridedLayoutAttr(kind.layout.strides, 0)
        begins = MemRefType(kind.element_type, kind.get_shape(), here, kind.memory_space)
        cast = memref.CastOp.get(argument, kind)
        Rewriter.insert_op(cast, InsertPoint.at_start(block))
        behind = cast.results[0]
        argument.replace_uses_with_if(behind, lambda use, cast=cast: use.operation is not cast)
        Rewriter.replace_value_with_new_type(argument, begins)
