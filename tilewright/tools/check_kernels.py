"""What `tilewright check` makes a kernel of: text of any dialect, functions whose outer loops are the grid."""

from __future__ import annotations

from xdsl.dialects import arith, func, gpu, scf
from xdsl.dialects.builtin import IntegerAttr, ModuleOp
from xdsl.rewriter import Rewriter
from xdsl.traits import IsTerminator

from tilewright.diagnostics import TilewrightError
from tilewright.passes.induction import Scalars
from tilewright.passes.xegpu.to_xetile import xegpu_to_xetile
from tilewright.reference.registry import has_meaning
from tilewright.targets.entry import host_to_tiles, outline

FEW = 2
"""Workgroups along an axis that a check of a large grid runs."""
ITERATIONS = 8
"""Iterations that a check of a long loop runs: a multi-buffer of four slots twice."""


def kernel_in(module: ModuleOp) -> gpu.FuncOp | None:
    """The first kernel of a module."""
    return next((op for op in module.walk() if isinstance(op, gpu.FuncOp)), None)


def separate(module: ModuleOp) -> list[tuple[str, ModuleOp]]:
    """Each kernel, or function of arrays, of a module without the others; with its name.

    A module whose functions belong together (one of them runs by itself, or calls) is one.
    """
    kernels = [op for op in module.walk() if isinstance(op, gpu.FuncOp) and op.kernel]
    functions = [
        op
        for op in module.body.block.ops
        if isinstance(op, func.FuncOp) and op.body.blocks and op.function_type.inputs.data
    ]
    calls = any(isinstance(op, func.CallOp | gpu.LaunchFuncOp) for op in module.walk())
    count = len(kernels) + len(functions)
    if count < 2 or calls or is_host(module):
        return [("", module)]
    found: list[tuple[str, ModuleOp]] = []
    for n in range(count):
        alone = module.clone()
        units = [
            *(op for op in alone.walk() if isinstance(op, gpu.FuncOp) and op.kernel),
            *(
                op
                for op in alone.body.block.ops
                if isinstance(op, func.FuncOp) and op.body.blocks and op.function_type.inputs.data
            ),
        ]
        for other in units:
            if other is not units[n]:
                Rewriter.erase_op(other)
        found.append((units[n].sym_name.data, alone))
    return found


def is_host(module: ModuleOp) -> bool:
    """Whether a module has a function that runs by itself."""
    return any(
        isinstance(op, func.FuncOp) and op.body.blocks and not op.function_type.inputs.data
        for op in module.walk()
    )


def outlined(module: ModuleOp) -> tuple[ModuleOp, tuple[int, int, int] | None]:
    """A function of arrays that is one kernel, its outer loops or its structured op, with a few workgroups of its grid.

    The programs of the RFCs are written so. Anything else is given back as it is, with no grid.
    """
    functions = [op for op in module.body.block.ops if isinstance(op, func.FuncOp)]
    written = [f for f in functions if f.body.blocks]
    if kernel_in(module) is not None or len(written) != 1:
        return module, None
    changed = module.clone()
    host_to_tiles(changed, "cpu")
    outline(changed)
    launches = [op for op in changed.walk() if isinstance(op, gpu.LaunchFuncOp)]
    if len(launches) != 1:
        return module, None
    (launch,) = launches
    scalars = Scalars()
    sizes = [
        scalars.expr(v).constant for v in (launch.gridSizeX, launch.gridSizeY, launch.gridSizeZ)
    ]
    x, y, z = (FEW if n is None else min(n, FEW) for n in sizes)
    for op in list(changed.body.block.ops):
        if isinstance(op, func.FuncOp):
            Rewriter.erase_op(op)
    changed.attributes.pop("gpu.container_module", None)
    return changed, (x, y, z)


def shortened(module: ModuleOp) -> tuple[ModuleOp, int]:
    """The module with its long loops cut to a few iterations, and how many loops that are.

    Only loops whose bounds are numbers in the text; those of arrays' extents follow the arrays. The cut
    program is another one, whose every stage has to agree all the same.
    """
    changed = module.clone()
    scalars, found = Scalars(), 0
    for loop in [op for op in changed.walk() if isinstance(op, scf.ForOp)]:
        lower, upper, step = (scalars.expr(v).constant for v in (loop.lb, loop.ub, loop.step))
        if lower is None or upper is None or step is None or step < 1:
            continue
        if -(-(upper - lower) // step) <= ITERATIONS:
            continue
        block = loop.parent_block()
        assert block is not None
        end = arith.ConstantOp(IntegerAttr(lower + ITERATIONS * step, loop.ub.type))  # pyright: ignore
        block.insert_op_before(end, loop)
        loop.operands[1] = end.result
        found += 1
    return (changed, found) if found else (module, 0)


def as_tiles(module: ModuleOp) -> gpu.FuncOp | None:
    """The kernel in XeTile, for questions about its accesses; as it is where it has no such form."""
    kernel = kernel_in(module)
    if kernel is None or not any(op.name.startswith("xegpu.") for op in kernel.walk()):
        return kernel
    changed = module.clone()
    try:
        xegpu_to_xetile(changed)
    except TilewrightError:
        return kernel
    return kernel_in(changed)


def is_executable(module: ModuleOp) -> bool:
    """Whether the reference executor knows every op of a module's kernel."""
    kernel = kernel_in(module)
    if kernel is None:
        return False
    structure = ("builtin.module", "gpu.module", "gpu.func", "gpu.module_end")
    return all(
        has_meaning(op) or op.name in structure or op.has_trait(IsTerminator)
        for op in kernel.walk()
    )
