"""The one door by which the text of a kernel reaches a target: `run`, `compile` and `check` come through it.

Text has forms that the front end never makes: branches between blocks, functions whose loops are the grid, kernels
that do not say whose program they are, arguments that no launch can pass. Here, for every target and command alike,
branches become loops, such functions kernels, and each kernel says its level; what stays is refused where it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.dialects import arith, cf, func, gpu, scf
from xdsl.dialects.builtin import (
    FunctionType,
    IntAttr,
    IntegerType,
    MemRefType,
    ModuleOp,
    NoneAttr,
    StridedLayoutAttr,
    StringAttr,
    VectorType,
)
from xdsl.ir import Attribute
from xdsl.rewriter import Rewriter

from tilewright import dtypes
from tilewright.diagnostics import TilewrightError, UnsupportedError, location_of, unsupported
from tilewright.dialects.upstream.arith import constant, element
from tilewright.dialects.upstream.pointer import LLVMPointerType
from tilewright.observer import Observer, ignore
from tilewright.passes.affine_to_scf import affine_to_scf
from tilewright.passes.all_reduce import all_reduce
from tilewright.passes.array_arguments import array_arguments
from tilewright.passes.assume_alignment import assume_alignment
from tilewright.passes.branches_to_loops import branches_to_loops
from tilewright.passes.chosen_arrays import chosen_arrays
from tilewright.passes.complex_pairs import complex_pairs
from tilewright.passes.emit import Before
from tilewright.passes.expand_ops import expand_ops
from tilewright.passes.inline_calls import called_function
from tilewright.passes.kernel import LEVEL, kernel_of, level_of
from tilewright.passes.kernel_outlining import outline_launches
from tilewright.passes.level import state_launch
from tilewright.passes.linalg import is_structured
from tilewright.passes.loop_nests import loop_nests
from tilewright.passes.other_integers import other_integers
from tilewright.passes.outer_loops_to_grid import outer_loops_to_grid
from tilewright.passes.ranked_arguments import ranked_arguments
from tilewright.passes.vector_arrays import vector_arrays
from tilewright.targets.base import CompileOptions, Executable, get_target


def build_text(
    module: ModuleOp, options: CompileOptions, observe: Observer = ignore, *, launched: bool = True
) -> Executable:
    """Compile the kernel of `module`, changing it in place; every diagnostic has a place in its text.

    `launched`: arrays lie where the text says; else, for no launch that one knows of, as `memref.alloc` has them.

    Raises what the target raises, UnsupportedError for an argument that is no array and no number, and CompileError
    where the text has no kernel.
    """
    target = get_target(options.target)
    enter(module, options.target, observe)
    if target.aligned and not launched:
        assume_alignment(module)
    kernel = next(iter(_kernels(module)), None) or kernel_of(module)
    try:
        return target.build(module, options, observe)
    except TilewrightError as error:
        raise error.at(location_of(kernel)) from None


def first_forms(module: ModuleOp) -> None:
    """What every program goes through first, in place: accesses by affine maps, complex numbers and arrays
    of vectors become plain.
    """
    affine_to_scf(module)
    complex_pairs(module)
    vector_arrays(module)
    if any(op.name.startswith("gpu.subgroup_mma_") for op in module.walk()):
        from tilewright.passes.subgroup_matrices import subgroup_matrices

        subgroup_matrices(module)


def enter(module: ModuleOp, target: str, observe: Observer = ignore) -> None:
    """The text in the form that passes know, in place: kernels without branches, at a level that they say.

    What no target could compile is refused at its place.
    """
    other_integers(module)
    host_to_tiles(module, target)
    ranked_arguments(module)
    array_arguments(module)
    first_forms(module)
    if expand_ops(module):
        observe("expand-ops", module)
    for kernel in _kernels(module):
        check_arguments(kernel)
        _begin_at_first_elements(kernel)
        _check_vectors(kernel, target)
        for op in kernel.walk():
            if isinstance(op, func.CallOp):
                called_function(op)
        if len(kernel.body.blocks) > 1:
            if branches_to_loops(kernel):
                observe("branches-to-loops", module)
            elif not get_target(target).takes_branches:
                _refuse_branches(kernel)
    outline(module)
    if get_target(target).compiles:
        loop_nests(module)
    for kernel in state_levels(module):
        if get_target(target).compiles:
            _refuse_other_integers(kernel)
            _assert_steps(kernel)
            all_reduce(kernel)
            if level_of(kernel) != "lane" and chosen_arrays(kernel):
                observe("chosen-arrays", module)
        if get_target(target).compiles and _vectors_as_tiles(kernel):
            observe("vector-to-xetile", module)


def _assert_steps(kernel: gpu.FuncOp) -> None:
    """A loop of the text whose step is 0 at run time fails as an assertion does; it would have no end.

    The executors tell of it by themselves.
    """
    for op in list(kernel.walk()):
        if isinstance(op, scf.ForOp) and constant(op.step) is None:
            at = Before(op)
            positive = at.add(arith.CmpiOp(op.step, at.constant(op.step.type, 0), "sgt"))
            at.insert(cf.AssertOp(positive, "scf.for needs a step above zero"))


def state_levels(module: ModuleOp) -> list[gpu.FuncOp]:
    """The kernels without branches, each of which now says who runs it, and how many subgroups where that is known."""
    found = [kernel for kernel in _kernels(module) if len(kernel.body.blocks) == 1]
    for kernel in found:
        kernel.attributes[LEVEL] = StringAttr(level_of(kernel))
        state_launch(kernel)
    return found


def _vectors_as_tiles(kernel: gpu.FuncOp) -> bool:
    """Reads, writes and products of vectors become tiles, which all targets have, but for a lane's; is there any?"""
    moves = ("transfer_", "load", "store", "masked", "gather", "scatter", "contract")
    names = tuple(f"vector.{move}" for move in moves)
    if level_of(kernel) == "lane" or not any(op.name.startswith(names) for op in kernel.walk()):
        return False
    from tilewright.passes.strided_memrefs import strided_memrefs
    from tilewright.passes.vector_to_xetile import vector_to_xetile

    strided_memrefs(kernel)
    vector_to_xetile(kernel)
    return True


def host_to_tiles(
    module: ModuleOp, target: str, say: Callable[[str], object] | None = None
) -> None:
    """Structured ops of the host become kernels, whose tiles a target chooses; functions of the host that multiply
    matrices in vectors work on tiles.

    `say` is called with the reason why such a function stays as it is; without it that is raised.
    """
    if is_structured(module):
        from tilewright.passes.linalg.to_xetile import linalg_to_xetile

        options = CompileOptions(target=target)
        linalg_to_xetile(module, lambda request: get_target(target).resolve_auto(request, options))
    for function in [op for op in module.body.block.ops if isinstance(op, func.FuncOp)]:
        if not any(op.name == "vector.contract" for op in function.walk()):
            continue
        from tilewright.passes.strided_memrefs import strided_memrefs
        from tilewright.passes.vector_to_xetile import only_tiles, vector_to_xetile

        try:
            if only_tiles(function):
                expand_ops(function)
                strided_memrefs(function)
                vector_to_xetile(function)
        except UnsupportedError as error:
            if say is None:
                raise
            say(f"@{function.sym_name.data} stays code of the host, because {error.message}")


def _begin_at_first_elements(kernel: gpu.FuncOp) -> None:
    """A launch gives the address of an array's first element: how far that is from elsewhere, which the type may say,
    is not added once more."""
    for argument in list(kernel.body.blocks[0].args):
        kind = argument.type
        if (
            isinstance(kind, MemRefType)
            and isinstance(layout := kind.layout, StridedLayoutAttr)
            and layout.get_offset() != 0
        ):
            # What views it has a type that may depend on this one.
            tiles = all(u.operation.name in _EXTENTS_ALONE for u in argument.uses)
            begins = StridedLayoutAttr(layout.strides, IntAttr(0) if tiles else NoneAttr())
            there = MemRefType(kind.element_type, kind.get_shape(), begins, kind.memory_space)
            Rewriter.replace_value_with_new_type(argument, there)
    types = [argument.type for argument in kernel.body.blocks[0].args]
    kernel.properties["function_type"] = FunctionType.from_lists(types, [])


_EXTENTS_ALONE = ("xetile.init_tile", "memref.dim", "memref.extract_strided_metadata")
"""Ops whose results have types that do not say where an array begins."""


def outline(module: ModuleOp) -> None:
    """Launches of regions, and functions that work on tiles, as the RFCs write programs, become kernels and their
    launches, in place."""
    outline_launches(module)
    if not _kernels(module) and any(op.name.startswith("xegpu.") for op in module.walk()):
        # Independent outer loops are found in XeTile: the two say the same of a workgroup.
        from tilewright.passes.xegpu.to_xetile import xegpu_to_xetile

        xegpu_to_xetile(module)
    outer_loops_to_grid(module)


def _kernels(module: ModuleOp) -> list[gpu.FuncOp]:
    return [op for op in module.walk() if isinstance(op, gpu.FuncOp)]


def check_arguments(kernel: gpu.FuncOp) -> None:
    """UnsupportedError where no launch could pass an argument of a kernel."""
    for position, type in enumerate(kernel.function_type.inputs.data):
        check_argument(kernel, type, f"argument {position} of @{kernel.sym_name.data}")


def check_argument(place: Any, type: Attribute, name: str) -> None:
    """UnsupportedError at an op or a launch where no launch could pass such a value."""
    kind = type.element_type if isinstance(type, MemRefType | VectorType) else type
    if not isinstance(type, LLVMPointerType) and not dtypes.is_known(kind):
        raise unsupported(
            place,
            f"{name} is {type}: no launch passes such a value",
            rule=f"a kernel takes memrefs of known rank, vectors, numbers and pointers; {_INTEGERS}",
            hint=_IN_BYTES if isinstance(kind, IntegerType) else None,
        )


_INTEGERS = "integers are i64, i32, i16, i8, i1 and index"
_IN_BYTES = (
    "keep two numbers of 4 bits in a byte: x << 4 >> 4 is the lower with its sign, x >> 4 the upper"
)


def _refuse_other_integers(kernel: gpu.FuncOp) -> None:
    """UnsupportedError where integers of 4 bits, or of another width that tiles lack, are computed with: they are but
    bits that an instruction of lanes takes."""
    for op in kernel.walk():
        for result in op.results if op.name.startswith(("arith.", "memref.alloc")) else ():
            kind = element(result.type)
            if isinstance(kind, IntegerType) and not dtypes.is_known(kind):
                raise unsupported(
                    op,
                    f"{op.name}: {result.type}: no target computes with {kind}",
                    rule=_INTEGERS,
                    hint=_IN_BYTES,
                )


def _check_vectors(kernel: gpu.FuncOp, target: str) -> None:
    """UnsupportedError where a launch of compiled code would have to pass a vector: only the executor does."""
    for position, type in enumerate(kernel.function_type.inputs.data):
        if isinstance(type, VectorType) and get_target(target).compiles:
            raise unsupported(
                kernel,
                f"argument {position} of @{kernel.sym_name.data} is {type}: target {target} passes no vectors",
                hint="a kernel takes an array, and loads the vector from it",
            )


def _refuse_branches(kernel: gpu.FuncOp) -> None:
    """UnsupportedError at a branch of a kernel that `branches-to-loops` could not take."""
    for block in kernel.body.blocks:
        last = block.last_op
        if last is not None and last.successors:
            raise unsupported(
                last,
                "this branch belongs to no loop or if that this target can compile",
                rule="what branches make is loops with one exit, and ifs; no jump into the middle of one",
            )
