"""launch-facts: what a kernel has by its launches, besides arguments, becomes part of it.

    gpu.launch_func @m::@k clusters in (%c2, ..) .. dynamic_shared_memory_size %c256 ..

    gpu.func @k(%a: ..) workgroup(%s : memref<32xf32, 3>)        gpu.func @k(%a: ..) kernel {
        kernel {                                                   %s = memref.alloca() : memref<32xf32, 3>
      %d = gpu.dynamic_shared_memory : memref<?xi8, 3>      ->     %n = memref.alloca() : memref<256xi8, 3>
      %c = gpu.cluster_id x                                        %d = memref.cast %n : .. to memref<?xi8, 3>
                                                                   %b = gpu.block_id x ; %c = arith.divui %b, %c2

Requires: a verified module. Guarantees: the same results, and no such memory and no ops of clusters in kernels: each
target shares memory that a kernel allocates among the workgroup. Workgroups of a cluster run like any others.
Raises UnsupportedError where a launch says no constant, or launches have clusters of several sizes, and CompileError
where a size is too small.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, gpu, memref
from xdsl.dialects.builtin import FixedBitwidthType, MemRefType, ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.diagnostics import error_at, unsupported
from tilewright.dialects.movement import memref_type
from tilewright.dialects.upstream.arith import constant
from tilewright.dialects.upstream.gpu.functions import WORKGROUP
from tilewright.dialects.upstream.gpu.ids import (
    CLUSTERS,
    ClusterDimBlocksOp,
    ClusterDimOp,
    ClusterIdOp,
)
from tilewright.dialects.upstream.gpu.memory import DynamicSharedMemoryOp
from tilewright.passes.emit import Before
from tilewright.passes.kernel import launches_by_kernel

_ALIGNMENT = 16
"""Bytes: what an element or vector of any type in it may ask for."""


def launch_facts(module: ModuleOp) -> None:
    """Writes memory and clusters of launches into their kernels, in place."""
    for kernel, launches in launches_by_kernel(module).items():
        _own_memory(kernel)
        _dynamic_memory(kernel, launches)
        _clusters(kernel, launches)


def constant_arguments(module: ModuleOp) -> None:
    """Makes numbers that all launches of a kernel pass its constants, in place, as `gpu-kernel-outlining` of MLIR
    passes constants like any value: of a program that runs as a whole, for who launches a kernel alone may pass others.
    """
    for kernel, launches in launches_by_kernel(module).items():
        _constants(kernel, launches)


def _own_memory(kernel: gpu.FuncOp) -> None:
    """Memory that the kernel's head names is allocated at its start."""
    entry = kernel.body.blocks[0]
    kernel.attributes.pop(WORKGROUP, None)
    for argument in reversed(entry.args[len(kernel.function_type.inputs) :]):
        made = _allocate(kernel, memref_type(argument))
        made.name_hint = argument.name_hint
        argument.replace_all_uses_with(made)
        entry.erase_arg(argument)


def _constants(kernel: gpu.FuncOp, launches: Sequence[gpu.LaunchFuncOp]) -> None:
    for place, argument in enumerate(kernel.body.blocks[0].args):
        passed = [each.kernelOperands[place].owner for each in launches]
        first = passed[0] if passed else None
        if isinstance(first, arith.ConstantOp) and all(
            isinstance(op, arith.ConstantOp) and op.value == first.value for op in passed
        ):
            argument.replace_all_uses_with(_first(kernel, first.clone()).results[0])


def _first(kernel: gpu.FuncOp, made: Operation) -> Operation:
    """An op that a kernel begins with."""
    made.location = kernel.location
    Rewriter.insert_op(made, InsertPoint.at_start(kernel.body.blocks[0]))
    return made


def _allocate(kernel: gpu.FuncOp, kind: MemRefType) -> SSAValue:
    made = memref.AllocaOp.get(
        kind.element_type,
        _ALIGNMENT,
        kind.get_shape(),
        layout=kind.layout,
        memory_space=kind.memory_space,
    )
    return _first(kernel, made).results[0]


def _dynamic_memory(kernel: gpu.FuncOp, launches: Sequence[gpu.LaunchFuncOp]) -> None:
    """One allocation, which is what all ops of the kernel give, of the most bytes that a launch asks for."""
    found = [op for op in kernel.walk() if isinstance(op, DynamicSharedMemoryOp)]
    if not found:
        return
    bytes_ = max((_stated(op, op.dynamicSharedMemorySize, least=0) for op in launches), default=0)
    kind = memref_type(found[0].resultMemref)
    element = kind.element_type
    size = max(1, element.bitwidth // 8) if isinstance(element, FixedBitwidthType) else 1
    whole = MemRefType(element, [bytes_ // size], memory_space=kind.memory_space)
    made = _allocate(kernel, whole)
    for op in found:
        at = Before(op)
        at.replace(at.add(memref.CastOp.get(made, memref_type(op.resultMemref))))


def _stated(launch: gpu.LaunchFuncOp, value: SSAValue | None, least: int) -> int:
    """A number of a launch, the least that it may be where nothing is said."""
    number = least if value is None else constant(value)
    if number is None:
        raise unsupported(
            launch,
            "gpu.launch_func has clusters, or dynamic shared memory, of a size that is no constant",
            hint="mlir-opt --canonicalize folds what computes it; the kernel is compiled for that size",
        )
    if number < least:
        raise error_at(
            launch,
            "gpu.launch_func has clusters of no workgroups, or dynamic shared memory of fewer than 0 bytes",
        )
    return number


def _clusters(kernel: gpu.FuncOp, launches: Sequence[gpu.LaunchFuncOp]) -> None:
    for op in [op for op in kernel.walk() if isinstance(op, CLUSTERS)]:
        axis = "xyz".index(str(op.dimension.data))
        sizes = {
            _stated(each, (each.clusterSizeX, each.clusterSizeY, each.clusterSizeZ)[axis], least=1)
            for each in launches
        }
        if len(sizes) > 1:
            raise unsupported(
                op,
                f"{op.name}: launches of @{kernel.sym_name.data} have clusters of "
                f"{' and of '.join(map(str, sorted(sizes)))} workgroups",
                hint="one copy of the kernel for each: it is compiled for their size",
            )
        at = Before(op)
        size = at.constant(op.result.type, max(sizes, default=1))
        match op:
            case ClusterDimBlocksOp():
                at.replace(size)
            case ClusterDimOp():
                at.replace(at.add(arith.CeilDivUIOp(at.add(gpu.GridDimOp(op.dimension)), size)))
            case _:
                kind = arith.DivUIOp if isinstance(op, ClusterIdOp) else arith.RemUIOp
                at.replace(at.add(kind(at.add(gpu.BlockIdOp(op.dimension)), size)))
