"""split-functions: nests of loops of a long function are functions of their own, which are compiled at the same time.

    func @f { .. scf.for %i = %a to %b { scf.for .. } .. }
                ->  func @f { .. scf.if %a < %b { call @f_part0(%a, %b) } .. }
                    func @f_part0(%a, %b) { scf.for %i = %a to %b { scf.for .. } }

LLVM takes most of a kernel's compile time, and one thread for one function. Requires functions of the last stage;
guarantees that what is computed, and in which order, stays. A nest inside of a loop has at least two loops, beside
which a call costs nothing; it has at most half of its function's ops. Takes time in proportion to the ops.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import arith, func, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.passes.alike_loops import Nest, shared
from tilewright.passes.carried import LOOPS

LONG = 400
"""Ops of a function from which on it is split."""
LEAST = 80
"""Ops of a part."""
CONFIGURES = 3
"""Loops in one another beside which it costs nothing that a function configures tiles of AMX."""


def split_functions(module: ModuleOp) -> None:
    """Makes nests of loops of a long function functions of their own, which are compiled at the same time."""
    for function in [op for op in module.ops if isinstance(op, func.FuncOp)]:
        if function.attributes.keys() & {"mach.once", "mach.common"}:
            continue
        sizes: dict[Operation, tuple[int, int]] = {}
        ops, _ = _measured(function, sizes)
        if ops < LONG:
            continue
        for i, nest in enumerate([*_nests(function.body, ops // 2, sizes, 1)]):
            name = f"{function.sym_name.data}_part{i}"
            if isinstance(nest.loop, scf.ForOp):
                _guard(nest.loop)
            Rewriter.insert_op(shared(name, [nest]), InsertPoint.before(function))


def _measured(op: Operation, sizes: dict[Operation, tuple[int, int]]) -> tuple[int, int]:
    """The ops in an op, itself among them, and how deep loops are nested in it; of those with regions, noted."""
    if not op.regions:
        return 1, 0
    ops, depth = 1, 0
    for block in (b for region in op.regions for b in region.blocks):
        for inner in block.ops:
            count, deep = _measured(inner, sizes)
            ops, depth = ops + count, max(depth, deep)
    sizes[op] = ops, depth + isinstance(op, LOOPS)
    return sizes[op]


def _nests(
    region: Region, most: int, sizes: dict[Operation, tuple[int, int]], loops: int
) -> Iterator[Nest]:
    """The outermost ops that may be functions, with at least so many `loops` in one another."""
    for op in (op for block in region.blocks for op in block.ops if op in sizes):
        ops, depth = sizes[op]
        if ops < LEAST:
            continue
        if (
            ops <= most
            and depth >= loops
            and not op.results
            and isinstance(op, scf.ForOp | scf.IfOp)
        ):
            nest = Nest(op)
            if nest.passes and (nest.is_data or depth >= CONFIGURES):
                yield nest
                continue
        for inner in op.regions:
            yield from _nests(inner, most, sizes, loops if isinstance(op, scf.IfOp) else 2)


def _guard(loop: scf.ForOp) -> None:
    """Puts a loop under the condition that it has a turn: others need no call."""
    is_run = arith.CmpiOp(loop.lb, loop.ub, "slt")
    Rewriter.insert_op(is_run, InsertPoint.before(loop))
    loop.detach()
    guard = scf.IfOp(is_run.result, [], Region(Block([loop, scf.YieldOp()])))
    Rewriter.insert_op(guard, InsertPoint.after(is_run))
