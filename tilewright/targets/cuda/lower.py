"""A kernel at workgroup level, with its layouts chosen, becomes the function of one thread.

The function's parameters are, per array, its address and every extent and stride that its type does
not fix, and the scalars; then what rules asked for (tensor maps, numbers of programs). Parameters that
nothing reads are left out.
"""

from __future__ import annotations

from xdsl.dialects import func, gpu
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, MemRefType, ModuleOp, UnitAttr
from xdsl.ir import Attribute, SSAValue

from tilewright.codegen.builder import Idx, function, index
from tilewright.codegen.registers import DYNAMIC, strided_form
from tilewright.codegen.tiles import matrix_of_memref, plain
from tilewright.dialects import stage
from tilewright.dialects.mach import KERNEL
from tilewright.dialects.stage import cluster_size
from tilewright.frozen import record
from tilewright.passes.kernel import integer
from tilewright.passes.memory_objects import may_alias
from tilewright.targets.cuda import lower_multi_buffers, lower_tma_stores, staged
from tilewright.targets.cuda.distribute import GLOBAL, Distributor, Team, pointer_in
from tilewright.targets.cuda.lowered import (
    Extent,
    LoweredThread,
    Pointer,
    Scalar,
    Slot,
    Stride,
    TensorMapOf,
)
from tilewright.targets.cuda.ownership import Ownership
from tilewright.targets.cuda.passes.persistent import SHARED
from tilewright.targets.cuda.smem import SharedMemory
from tilewright.targets.host_arguments import scalar_format
from tilewright.uarch.base import Machine
from tilewright.uarch.nvidia import THREADS


@record
class Parameters:
    """Slots of the function's parameters with their types, per argument of the kernel."""

    slots: list[Slot]
    types: list[Attribute]

    @classmethod
    def of(cls, types: list[Attribute]) -> Parameters:
        self = cls([], [])
        for number, type in enumerate(types):
            if not isinstance(type, MemRefType):
                self.add(Scalar(number, scalar_format(type)), plain(type))
                continue
            self.add(Pointer(number), pointer_in(GLOBAL))
            strides, _ = strided_form(type)
            for dim, n in enumerate(type.get_shape()):
                if n < 0:
                    self.add(Extent(number, dim), index)
            for dim, s in enumerate(strides):
                if s == DYNAMIC:
                    self.add(Stride(number, dim), index)
        return self

    def add(self, slot: Slot, type: Attribute) -> None:
        self.slots.append(slot)
        self.types.append(type)


def lower_kernel(kernel: gpu.FuncOp, ownership: Ownership, machine: Machine) -> LoweredThread:
    """The thread's function and how to launch it. SharedMemoryError where it needs more than a workgroup has."""
    body = kernel.body.block
    name = kernel.sym_name.data
    parameters = Parameters.of([a.type for a in body.args])
    op, b = function(name, parameters.types)
    op.attributes[KERNEL] = UnitAttr()
    shared = SharedMemory(machine)
    team = Team(ownership.warps)
    d = Distributor(b, ownership, machine, shared, team)
    d.hazards.may_alias = may_alias
    _bind_arguments(d, kernel, parameters)
    staged.facts_of(b).cluster = cluster_size(kernel)
    d.lower_block(body)
    lower_tma_stores.finish_stores(d)
    lower_multi_buffers.end_cluster(d)
    b.op(func.ReturnOp())
    d.finish()
    shared.check()
    slots = list(parameters.slots)
    facts = staged.facts_of(b)
    slots += [slot for slot, _ in facts.slots]
    kept: list[Slot] = []
    for arg, slot in list(zip(b.entry.args, slots, strict=True)):
        if arg.first_use is None:
            b.entry.erase_arg(arg)
        else:
            kept.append(slot)
    op.update_function_type()
    maps = [isinstance(slot, TensorMapOf) for slot in kept]
    if any(maps):
        marks = [DictionaryAttr({"mach.tensor_map": UnitAttr()} if m else {}) for m in maps]
        op.arg_attrs = ArrayAttr(marks)
    return LoweredThread(
        ModuleOp([op]),
        name,
        kept,
        team.threads,
        shared.bytes,
        persistent=_persistent(kernel, team) if facts.persistent else 0,
        barriers=facts.barriers,
        cluster=(facts.cluster, 1, 1),
        registers=facts.registers,
        minimum_per_multiprocessor=_resident(ownership, shared),
        shares=integer(kernel, SHARED, 1),
    )


def _persistent(kernel: gpu.FuncOp, team: Team) -> int:
    """Workgroups per multiprocessor that share the programs: one that copies beside them, or as many as there are
    threads for."""
    copies = any(isinstance(op, stage.MultiBufferOp) for op in kernel.walk())
    return 1 if copies else max(1, THREADS // team.threads)


def _resident(ownership: Ownership, shared: SharedMemory) -> int:
    """Workgroups per multiprocessor that shared memory leaves room for."""
    fits = shared.machine.memories["smem"].size // max(1, shared.bytes)
    return max(1, min(ownership.resident, fits))


def _bind_arguments(d: Distributor, kernel: gpu.FuncOp, parameters: Parameters) -> None:
    b = d.b
    known: dict[Slot, SSAValue] = dict(zip(parameters.slots, b.entry.args, strict=True))
    for number, arg in enumerate(kernel.body.block.args):
        type = arg.type
        if not isinstance(type, MemRefType):
            d.set_scalar(arg, known[Scalar(number, scalar_format(type))])
            continue
        rank = len(type.get_shape())
        sizes: list[Idx] = []
        strides: list[Idx] = []
        for dim in range(rank):
            size = known.get(Extent(number, dim))
            if size is not None:
                b.nonnegative.add(size)
            sizes.append(0 if size is None else size)
            stride = known.get(Stride(number, dim))
            strides.append(0 if stride is None else stride)
        pointer = known[Pointer(number)]
        d.set_matrix(arg, matrix_of_memref(b, pointer, type, sizes, strides))
