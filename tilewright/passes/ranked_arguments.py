"""ranked-arguments: an array of unknown rank that a kernel takes for one of a known type is an argument of that type,
and one without dimensions is all elements from there on.

    gpu.func @k(%a: memref<*xf32>) kernel {                        gpu.func @k(%b: memref<16x16xf32>) kernel {
      %b = memref.cast %a : memref<*xf32> to memref<16x16xf32>  ->   ..
      ..                                                           }
    }
    gpu.launch_func .. args(%x : memref<*xf32>)                    %y = memref.cast %x : .. to memref<16x16xf32>
                                                                   gpu.launch_func .. args(%y : memref<16x16xf32>)

`gpu-decompose-memrefs` of MLIR passes the address of an array's first element, a `memref<f32>`, and its strides apart.
Guarantees: same results. An argument of unknown rank that is used in another way, or as arrays of several types, stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from xdsl.dialects import gpu, memref
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    FunctionType,
    MemRefType,
    ModuleOp,
    StridedLayoutAttr,
    UnrankedMemRefType,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects.folding import Idx
from tilewright.dialects.upstream.views import moved
from tilewright.passes.emit import Before
from tilewright.passes.kernel import launches_by_kernel

_Launches: TypeAlias = Sequence[gpu.LaunchFuncOp]


def ranked_arguments(module: ModuleOp) -> None:
    """Rewrites the kernels of a module and their launches, in place."""
    for kernel, launches in launches_by_kernel(module).items():
        for place, argument in enumerate(kernel.body.blocks[0].args):
            if place >= len(kernel.function_type.inputs):
                break
            if isinstance(argument.type, UnrankedMemRefType):
                _rank(launches, kernel, place, argument)
            elif isinstance(argument.type, MemRefType) and not argument.type.get_num_dims():
                _row(launches, kernel, place, argument)


def _rank(launches: _Launches, kernel: gpu.FuncOp, place: int, argument: SSAValue) -> None:
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
        Rewriter.replace_op(cast, [], [argument])
    _pass(launches, kernel, place, kind, lambda at, given: memref.CastOp.get(given, kind))


def _row(launches: _Launches, kernel: gpu.FuncOp, place: int, argument: SSAValue) -> None:
    """An address is passed as the elements from there on that the caller knows of."""
    point = argument.type
    assert isinstance(point, MemRefType)
    row = MemRefType(
        point.element_type, [DYNAMIC_INDEX], StridedLayoutAttr([1]), point.memory_space
    )
    argument = Rewriter.replace_value_with_new_type(argument, row)
    first = _view(argument, [], point)
    first.location = kernel.location
    argument.replace_all_uses_with(first.results[0])
    first.operands[0] = argument
    Rewriter.insert_op(first, InsertPoint.at_start(kernel.body.blocks[0]))
    _pass(launches, kernel, place, row, lambda at, given: _view(given, [_reach(at, given)], row))


def _view(source: SSAValue, sizes: list[Idx], kind: MemRefType) -> memref.ReinterpretCastOp:
    dynamic = [n for n in sizes if isinstance(n, SSAValue)]
    static = [DYNAMIC_INDEX if isinstance(n, SSAValue) else n for n in sizes]
    return memref.ReinterpretCastOp(source, [], dynamic, [], [0], static, [1] * len(sizes), kind)


def _reach(at: Before, given: SSAValue) -> Idx:
    """How many elements lie from an address on: those of the array that it is taken of, or one."""
    taken = given.owner
    if not isinstance(taken, memref.ExtractStridedMetaDataOp):
        return at.index(1)
    _, offset, *rest = taken.results
    rank = len(rest) // 2
    return moved(at.plus(1, offset), (at.plus(size, -1) for size in rest[:rank]), rest[rank:], at)


def _pass(
    launches: _Launches,
    kernel: gpu.FuncOp,
    place: int,
    kind: Attribute,
    made: Callable[[Before, SSAValue], Operation],
) -> None:
    """The kernel's argument at a place has this type, and launches pass what is made of what they gave."""
    inputs = list(kernel.function_type.inputs)
    inputs[place] = kind
    outputs = kernel.function_type.outputs
    kernel.properties["function_type"] = FunctionType.from_lists(inputs, [*outputs])
    for launch in launches:
        at = Before(launch)
        given = at.add(made(at, launch.kernelOperands[place]))
        behind = len(launch.kernelOperands) + int(launch.asyncObject is not None)
        launch.operands[len(launch.operands) - behind + place] = given
