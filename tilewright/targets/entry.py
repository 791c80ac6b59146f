"""The one door by which the text of a kernel reaches a target: `run`, `compile` and `check` come through it.

Text has forms that the front end never makes: branches between blocks, arguments that no launch can pass. Branches
become loops here, for every target and command alike; what stays is refused where it stands.
"""

from __future__ import annotations

from xdsl.dialects import func, gpu
from xdsl.dialects.builtin import FixedBitwidthType, IndexType, MemRefType, ModuleOp, VectorType
from xdsl.dialects.llvm import LLVMPointerType
from xdsl.ir import Attribute

from tilewright.diagnostics import TilewrightError, UnsupportedError, error_at, location_of
from tilewright.passes.branches_to_loops import branches_to_loops
from tilewright.passes.inline_calls import called_function
from tilewright.passes.observer import Observer, ignore
from tilewright.targets.base import CompileOptions, Executable, get_target


def build_text(module: ModuleOp, options: CompileOptions, observe: Observer = ignore) -> Executable:
    """Compile the kernel of `module`, changing it in place; every diagnostic has a place in its text.

    Raises what the target raises, and UnsupportedError for an argument that is no array and no number.
    """
    prepare_text(module, options.target)
    try:
        return get_target(options.target).build(module, options, observe)
    except TilewrightError as error:
        kernel = next((op for op in module.walk() if isinstance(op, gpu.FuncOp)), module)
        raise error.at(location_of(kernel)) from None


def prepare_text(module: ModuleOp, target: str) -> None:
    """Branches become loops, in place; what no target could compile is refused at its place.

    For whatever looks into a kernel before it is built: the passes that follow know regions of one block alone.
    """
    for kernel in [op for op in module.walk() if isinstance(op, gpu.FuncOp)]:
        check_arguments(kernel)
        for op in kernel.walk():
            if isinstance(op, func.CallOp):
                called_function(op)
        loops = len(kernel.body.blocks) < 2 or branches_to_loops(kernel)
        if not loops and not getattr(get_target(target), "takes_branches", False):
            _refuse_branches(kernel)


def check_arguments(kernel: gpu.FuncOp) -> None:
    """UnsupportedError where no launch could pass an argument of a kernel."""
    for position, type in enumerate(kernel.function_type.inputs.data):
        if not _passes(type):
            raise error_at(
                kernel,
                f"argument {position} of @{kernel.sym_name.data} is {type}: no launch passes such a value",
                rule="a kernel takes memrefs of known rank, vectors, numbers and pointers",
                kind=UnsupportedError,
            )


def _passes(type: Attribute) -> bool:
    return isinstance(
        type, MemRefType | VectorType | IndexType | FixedBitwidthType | LLVMPointerType
    )


def _refuse_branches(kernel: gpu.FuncOp) -> None:
    """UnsupportedError at a branch of a kernel that `branches-to-loops` could not take."""
    for block in kernel.body.blocks:
        last = block.last_op
        if last is not None and last.successors:
            raise error_at(
                last,
                "this branch is part of no loop and no if that this target can be given",
                rule="what branches make is loops with one exit, and ifs; no jump into the middle of one",
                kind=UnsupportedError,
            )
