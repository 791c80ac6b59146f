"""gpu-kernel-outlining: the region of a gpu.launch becomes a kernel of its own, as MLIR's pass of that name makes it.

    func.func @f(%a: memref<64xf32>) {                     func.func @f(%a: memref<64xf32>) {
      gpu.launch blocks(%i, ..) in (%gx = %c4, ..)           gpu.launch_func @f_kernel::@f_kernel
                 threads(%t, ..) in (%bx = %c16, ..) {  ->     blocks in (%c4, ..) threads in (%c16, ..) args(%a)
        .. %i .. %a ..                                     }
        gpu.terminator                                     gpu.module @f_kernel { gpu.func @f_kernel(%a) kernel {
      }                                                      %i = gpu.block_id x
    }                                                        .. %i .. %a ..

Requires: a verified module. Guarantees: same results; constants are the kernel's own, every other value from around
the launch is an argument; numbers of threads that are constants are its `known_block_size`. What kernels have by their
launches besides is part of them then (`launch_facts`).
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, StringAttr, SymbolRefAttr, UnitAttr, i32
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects.nesting import ops_around, used_from_above
from tilewright.dialects.upstream.arith import constant
from tilewright.dialects.upstream.gpu.functions import WORKGROUP
from tilewright.dialects.upstream.gpu.ids import ClusterDimOp, ClusterIdOp
from tilewright.dialects.upstream.gpu.launch import ids_of
from tilewright.passes.launch_facts import launch_facts

_IDS = (
    gpu.BlockIdOp, gpu.ThreadIdOp, gpu.GridDimOp, gpu.BlockDimOp, ClusterIdOp, ClusterDimOp
)  # fmt: skip
"""What the arguments of a launch's region are, three of each."""


def outline_launches(module: ModuleOp) -> None:
    """Turns the regions of gpu.launch into kernels, and makes what launches say of theirs a part of them."""
    taken = {op.sym_name.data for op in module.walk() if isinstance(op, gpu.ModuleOp)}
    for launch in [op for op in module.walk() if isinstance(op, gpu.LaunchOp)]:
        stem = name = _stated(launch, "module") or f"{_name_around(launch)}_kernel"
        number = 0
        while name in taken:
            name, number = f"{stem}_{number}", number + 1
        taken.add(name)
        inner = _stated(launch, "function") or name
        kernel, captured = _kernel(launch, inner)
        host = launch
        while (outer := host.parent_op()) is not module:
            assert outer is not None
            host = outer
        add_kernel(module, kernel, name, host)
        call = gpu.LaunchFuncOp(
            SymbolRefAttr(name, [inner]),
            [launch.gridSizeX, launch.gridSizeY, launch.gridSizeZ],
            _threads(launch),
            clusterSize=[v for v in _clusters(launch) if v is not None] or None,
            kernelOperands=captured,
            async_launch=launch.asyncToken is not None,
            asyncDependencies=launch.asyncDependencies,
            dynamicSharedMemorySize=launch.dynamicSharedMemorySize,
        )
        call.location = launch.location
        Rewriter.replace_op(launch, call, call.results)
    launch_facts(module)


def add_kernel(module: ModuleOp, kernel: gpu.FuncOp, name: str, before: Operation) -> None:
    """Puts a kernel in front of an op of a module, in a table of this name."""
    table = gpu.ModuleOp(StringAttr(name), Region(Block([kernel])))  # pyright: ignore
    table.location = kernel.location
    Rewriter.insert_op(table, InsertPoint.before(before))
    module.attributes["gpu.container_module"] = UnitAttr()


def _stated(launch: gpu.LaunchOp, name: str) -> str:
    found = launch.properties.get(name)
    return found.string_value() if isinstance(found, SymbolRefAttr) else ""


def _clusters(launch: gpu.LaunchOp) -> list[SSAValue | None]:
    return [launch.clusterSizeX, launch.clusterSizeY, launch.clusterSizeZ]


def _name_around(launch: Operation) -> str:
    names = (scope.get_attr_or_prop("sym_name") for scope in ops_around(launch))
    return next((name.data for name in names if isinstance(name, StringAttr)), "main")


def _threads(launch: gpu.LaunchOp) -> list[SSAValue]:
    return [launch.blockSizeX, launch.blockSizeY, launch.blockSizeZ]


def _kernel(launch: gpu.LaunchOp, name: str) -> tuple[gpu.FuncOp, list[SSAValue]]:
    """The kernel, and the values of the host that its arguments are."""
    count = ids_of(launch)
    body = launch.detach_region(launch.body)
    entry = body.blocks[0]
    ids: list[Operation] = []
    for place, argument in enumerate(list(entry.args[:count])):
        if argument.first_use is not None:
            axis = gpu.DimensionAttr(gpu.DimensionEnum("xyz"[place % 3]))
            ids.append(_IDS[place // 3](axis))
            ids[-1].location = launch.location
            ids[-1].results[0].name_hint = argument.name_hint
            argument.replace_all_uses_with(ids[-1].results[0])
        entry.erase_arg(argument)
    _put_first(entry, ids)
    captured, outer = used_from_above(body), list[SSAValue]()
    for value in captured:
        owner = value.owner
        if isinstance(owner, arith.ConstantOp):
            own = owner.clone()
            _put_first(entry, [own])
            inside = own.result
        else:
            inside = entry.insert_arg(value.type, len(outer))
            outer.append(value)
        inside.name_hint = value.name_hint
        value.replace_uses_with_if(inside, lambda use: body.is_ancestor(use.operation))
    for end in [op for op in body.walk() if isinstance(op, gpu.TerminatorOp)]:
        Rewriter.replace_op(end, gpu.ReturnOp([]), [])
    inputs = [value.type for value in outer]
    kernel = gpu.FuncOp(name, (inputs, ()), body, kernel=True)
    kernel.location = launch.location
    said = {
        k: v for k, v in launch.attributes.items() if k.startswith("tilewright.") or k == WORKGROUP
    }
    kernel.attributes |= said
    sizes = [n for value in _threads(launch) if (n := constant(value)) is not None]
    if len(sizes) == 3:
        kernel.attributes["known_block_size"] = DenseArrayBase.from_list(i32, sizes)
    return kernel, outer


def _put_first(entry: Block, ops: Sequence[Operation]) -> None:
    Rewriter.insert_op(ops, InsertPoint.at_start(entry))
