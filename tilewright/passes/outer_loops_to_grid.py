"""outer-loops-to-grid: independent outer loops of a function become the grid of a kernel.

The programs of the RFCs are functions whose outer loops visit the tiles of the result:

    func.func @f(%a: ..., %c: ...) {                 func.func @f(%a: ..., %c: ...) {
      scf.for %i = %c0 to %c4096 step %c256 {          gpu.launch_func @f_kernel::@f_kernel
        scf.for %j = %c0 to %c4096 step %c256 {          blocks in (%c16, %c16, %c1) ... args(%a, %c)
          ... %i ... %j ...                    ->      return
        }                                            }
      }                                              gpu.module @f_kernel { gpu.func @f_kernel(...) kernel {
      return                                           %i = block_id x * 256, %j = block_id y * 256
    }                                                  ... %i ... %j ...

Requires: a function without results that works on XeTile tiles.  A loop becomes an axis when it carries nothing,
returns nothing, its bounds are known outside of the nest, it stands alone in its block but for ops without side
effects (shared memory allocations among them: they are the workgroup's own), and different iterations provably
touch disjoint elements wherever one of them writes; atomics of one kind may meet where nobody uses the old values.
Guarantees: same results; the kernel's level is written down; loops that do not qualify stay loops.
Assumes, as callers of such functions do, that arrays passed as different arguments do not overlap where one of
them is written; the kernel's `noalias` facts say so, and launches check them.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, func, gpu, memref, scf
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    IndexType,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
)
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import is_side_effect_free

from tilewright.dialects import xetile
from tilewright.dialects.nesting import terminator
from tilewright.frozen import frozen
from tilewright.passes.access import AccessAnalysis, add_up
from tilewright.passes.affine import Expr
from tilewright.passes.carried import reached
from tilewright.passes.carry_offsets import with_offsets
from tilewright.passes.emit import Before
from tilewright.passes.kernel import LEVEL, level_of
from tilewright.passes.kernel_outlining import add_kernel
from tilewright.passes.memory_objects import ARGS, is_allocation, stored_arguments
from tilewright.passes.views import fold_views

MAX_AXES = 3


def outer_loops_to_grid(module: ModuleOp) -> None:
    """Turns independent outer loops into the grid. Functions that are programs over tiles become kernels."""
    for function in [f for f in module.body.block.ops if isinstance(f, func.FuncOp)]:
        if not function.is_declaration and _is_tile_program(function):
            outline(module, function, program_of(function))


def _is_tile_program(function: func.FuncOp) -> bool:
    return not function.function_type.outputs.data and any(
        isinstance(op, xetile.InitTileOp) for op in function.walk()
    )


@frozen
class LoopProgram:
    """A program over tiles as a kernel that still has its loops."""

    kernel: gpu.FuncOp
    axes: Sequence[scf.ForOp]
    """Those whose iterations are independent, outermost first."""


def program_of(function: func.FuncOp) -> LoopProgram:
    """What `outline` makes a launch of; the function stays as it is."""
    kernel = _as_kernel(function)
    return LoopProgram(kernel, _axes(kernel))


def outline(module: ModuleOp, function: func.FuncOp, program: LoopProgram) -> None:
    """Makes of a function, in place, the launch of its program, with the kernel in front of it."""
    kernel, axes = program.kernel, program.axes
    sizes: list[SSAValue] = []

    host = Block(arg_types=function.body.block.arg_types)
    for new, old in zip(host.args, function.body.block.args, strict=True):
        new.name_hint = old.name_hint
    copies: dict[SSAValue, SSAValue] = dict(zip(kernel.body.block.args, host.args, strict=True))
    for loop in axes:
        sizes.append(_trip_count(loop, host, copies))
    one = arith.ConstantOp.from_int_and_width(1, IndexType())
    host.add_op(one)
    grid = [*sizes, *([one.result] * (MAX_AXES - len(sizes)))]
    name = f"{function.sym_name.data}_kernel"
    launch = gpu.LaunchFuncOp(
        SymbolRefAttr(name, [name]), grid, [one.result] * 3, kernelOperands=list(host.args)
    )
    launch.location = function.location
    host.add_ops([launch, func.ReturnOp()])

    for axis, loop in enumerate(axes):
        _become_axis(loop, axis)
    function.body.detach_block(function.body.block)
    function.body.add_block(host)
    add_kernel(module, kernel, name, function)


def _as_kernel(function: func.FuncOp) -> gpu.FuncOp:
    """The function's body as a kernel that still has its loops."""
    name = f"{function.sym_name.data}_kernel"
    body = function.body.clone()
    for op in list(body.walk()):
        if isinstance(op, func.ReturnOp):
            op.parent_block().insert_op_before(gpu.ReturnOp([]), op)  # pyright: ignore
            Rewriter.erase_op(op)
    kernel = gpu.FuncOp(name, (body.block.arg_types, ()), body, kernel=True)
    kernel.location = function.location
    kernel.attributes[LEVEL] = StringAttr(level_of(function))
    stored = stored_arguments(kernel)
    kernel.attributes[ARGS] = ArrayAttr(
        [
            DictionaryAttr({"noalias": UnitAttr()} if n in stored else {})
            for n in range(len(body.block.args))
        ]
    )
    return kernel


def _axes(kernel: gpu.FuncOp) -> list[scf.ForOp]:
    """The loops of the nest that become axes, outermost first."""
    # What is known of parts of arrays is known of tiles of the arrays: those of a copy, for `fold_views` comes later.
    copy = with_offsets(kernel)
    if copy is None:
        return []
    fold_views(copy)
    analysis = AccessAnalysis(copy)
    axes: list[scf.ForOp] = []
    # The copy's nest may go on: a loop that carried but tiles carries nothing there.
    for loop, same in zip(_nest(kernel), _nest(copy), strict=False):
        if not _independent(analysis, same):
            break
        axes.append(loop)
    return axes


def _nest(kernel: gpu.FuncOp) -> list[scf.ForOp]:
    nest: list[scf.ForOp] = []
    block = kernel.body.block
    while len(nest) < MAX_AXES:
        loop = _only_loop(block)
        if loop is None or not all(_outside(v, nest) for v in (loop.lb, loop.ub, loop.step)):
            break
        nest.append(loop)
        block = loop.body.block
    return nest


def _only_loop(block: Block) -> scf.ForOp | None:
    """The loop of a block whose other ops have no effect; None where there is no such loop."""
    found: scf.ForOp | None = None
    for op in block.ops:
        if isinstance(op, scf.ForOp):
            if found is not None or op.iter_args:
                return None
            found = op
        elif not (
            op is block.last_op or is_side_effect_free(op) or _is_tile_value(op) or _is_slm(op)
        ):
            return None
    return found


def _is_tile_value(op: Operation) -> bool:
    return isinstance(op, xetile.InitTileOp | xetile.UpdateTileOffsetOp)


def _is_slm(op: Operation) -> bool:
    return isinstance(op, memref.AllocOp | memref.AllocaOp) and "3" in str(op.memref.type)


def _outside(value: SSAValue, nest: Sequence[scf.ForOp]) -> bool:
    """Whether the host can compute a value: it depends on no counter of the nest."""
    counters = [loop.body.block.args[0] for loop in nest]
    needed = reached([value], lambda v: v.owner.operands if isinstance(v.owner, Operation) else ())
    return not any(
        v in counters or (isinstance(v.owner, Operation) and v.owner.regions) for v in needed
    )


def _independent(analysis: AccessAnalysis, loop: scf.ForOp) -> bool:
    """Whether different iterations touch disjoint elements wherever one of them writes."""
    if analysis.hidden():
        return False
    turns = analysis.loop(loop)
    if turns.trips == Expr.of(1):  # its counter is a constant, which separates nothing
        return True
    for write in analysis.accesses:
        if not write.writes or write.memory_space == 3 or _is_of_one_iteration(write.root, loop):
            continue
        for other in analysis.accesses:
            if add_up(write, other) or not analysis.may_overlap(write, other):
                continue
            if turns.counter not in analysis.separated_by(write, other):
                return False
    return True


def _is_of_one_iteration(root: SSAValue, loop: scf.ForOp) -> bool:
    return is_allocation(root) and loop.is_ancestor(root.owner)


def _trip_count(loop: scf.ForOp, host: Block, copies: dict[SSAValue, SSAValue]) -> SSAValue:
    """ceildiv(upper - lower, step), computed at the end of `host`."""
    lower, upper, step = (_copy(v, host, copies) for v in (loop.lb, loop.ub, loop.step))
    extent = arith.SubiOp(upper, lower)
    count = arith.CeilDivSIOp(extent.result, step)
    zero = arith.ConstantOp.from_int_and_width(0, IndexType())
    clamped = arith.MaxSIOp(count.result, zero.result)
    host.add_ops([extent, count, zero, clamped])
    return clamped.result


def _copy(value: SSAValue, host: Block, copies: dict[SSAValue, SSAValue]) -> SSAValue:
    """The value in `host`: copies the ops that it is made of."""
    if value not in copies:
        owner = value.owner
        assert isinstance(owner, Operation)
        for operand in owner.operands:
            _copy(operand, host, copies)
        host.add_op(owner.clone(copies))
    return copies[value]


def _become_axis(loop: scf.ForOp, axis: int) -> None:
    """Replace a loop with its body, its counter with lower + block_id * step."""
    body, at = loop.body.block, Before(loop)
    number = at.add(gpu.BlockIdOp(gpu.DimensionAttr(gpu.DimensionEnum("xyz"[axis]))))
    counter = at.add(arith.AddiOp(loop.lb, at.add(arith.MuliOp(number, loop.step))))
    counter.name_hint = body.args[0].name_hint
    Rewriter.erase_op(terminator(body))
    Rewriter.inline_block(body, InsertPoint.before(loop), [counter])
    Rewriter.erase_op(loop)
