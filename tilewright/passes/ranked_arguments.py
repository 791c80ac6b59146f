"""ranked-arguments: an array of unknown rank that a kernel takes for one of a known type is an argument of that type.

    gpu.func @k(%a: memref<*xf32>) kernel {                        gpu.func @k(%b: memref<16x16xf32>) kernel {
      %b = memref.cast %a : memref<*xf32> to memref<16x16xf32>  ->   ..
      ..                                                           }
    }
    gpu.launch_func .. args(%x : memref<*xf32>)                    %y = memref.cast %x : .. to memref<16x16xf32>
                                                                   gpu.launch_func .. args(%y : memref<16x16xf32>)

Guarantees: same results. An argument that is used in another way, or as arrays of several types, stays.
"""

from __future__ import annotations

from xdsl.dialects import gpu, memref
from xdsl.dialects.builtin import (
    FunctionType,
    MemRefType,
    ModuleOp,
    SymbolRefAttr,
    UnrankedMemRefType,
)
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from tilewright.passes.emit import Before


def ranked_arguments(module: ModuleOp) -> None:
    """Rewrites the kernels of a module and their launches, in place."""
    for kernel in [op for op in module.walk() if isinstance(op, gpu.FuncOp)]:
        for place, argument in enumerate(kernel.body.blocks[0].args):
            if isinstance(argument.type, UnrankedMemRefType):
                _rank(module, kernel, place, argument)


def _rank(module: ModuleOp, kernel: gpu.FuncOp, place: int, argument: SSAValue) -> None:
    users = [use.operation for use in argument.uses]
    casts = [op for op in users if isinstance(op, memref.CastOp)]
    kinds = {cast.dest.type for cast in casts}
    if len(casts) < len(users) or len(kinds) != 1:
        return
    (kind,) = kinds
    if not isinstance(kind, MemRefType):
        return
    argument = Rewriter.replace_value_with_new_type(argument, kind)
    for cast in casts:
        cast.dest.replace_all_uses_with(argument)
        Rewriter.erase_op(cast)
    inputs = list(kernel.function_type.inputs)
    if place < len(inputs):
        inputs[place] = kind
        kernel.properties["function_type"] = FunctionType.from_lists(inputs, [])
    table = kernel.parent_op()
    if not isinstance(table, gpu.ModuleOp):
        return
    name = SymbolRefAttr(table.sym_name, [kernel.sym_name])
    for launch in [op for op in module.walk() if isinstance(op, gpu.LaunchFuncOp)]:
        if launch.kernel == name:
            cast = Before(launch).add(memref.CastOp.get(launch.kernelOperands[place], kind))
            behind = len(launch.kernelOperands) + int(launch.asyncObject is not None)
            launch.operands[len(launch.operands) - behind + place] = cast
