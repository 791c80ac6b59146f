"""Loops of a function around structured ops become one launch, where their rounds are independent.

    func.func @f(%a: .., %c: ..) {                      func.func @f(%a: .., %c: ..) {
      scf.for %i = %c0 to %c1024 step %c32 {              func.call @f_nest_0(%a, %c)
        %p = memref.subview %a[%i, 0] ..          ->    }
        %q = memref.subview %c[%i, 0] ..                func.func private @f_nest_0(%a: .., %c: ..) {
        linalg.exp ins(%p) outs(%q)                       gpu.launch_func @f_nest_0_kernel .. blocks in (%c32, ..)
      }                                                 }
    }                                                   and the kernel, which computes a round's ops at their place

Requires: memrefs, and that memory that a loop hands on has the name that it has outside. Guarantees: the same
results. A loop stays as it is, and each of its structured ops a launch, where `outer-loops-to-grid` finds no axis in it
(loops in it are asked, then), where it does what a kernel does not, and where it makes few launches.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from math import prod

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, ModuleOp, StringAttr
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects.nesting import used_from_above
from tilewright.passes.integers import trip_count
from tilewright.passes.kernel import LEVEL
from tilewright.passes.linalg.overlap import overlap
from tilewright.passes.loop_nests import parallel_to_for
from tilewright.passes.memory_objects import memory_root
from tilewright.passes.outer_loops_to_grid import outline, program_of
from tilewright.passes.own_memory import bytes_of

FEW = 16
"""Launches of which each may as well be a launch of its own: it is spread over the machine as a whole."""
MEMORY = 1 << 16
"""Bytes that a round may allocate for itself: a workgroup of any machine has as many."""

Lower = Callable[[func.FuncOp], None]
"""Computes the structured ops of a function at their place, as the program of a workgroup does."""


def launch_nests(module: ModuleOp, lower: Lower) -> None:
    """Rewrites the functions of a module, in place."""
    for function in [op for op in module.body.block.ops if isinstance(op, func.FuncOp)]:
        for number, loop in enumerate(_outermost(function)):
            _launched(function, f"{function.sym_name.data}_nest_{number}", loop, lower)


def _outermost(scope: Operation) -> list[Operation]:
    """The loops around structured ops that stand in no other loop."""
    found: list[Operation] = []
    for op in [op for region in scope.regions for block in region.blocks for op in block.ops]:
        loops = isinstance(op, scf.ForOp | scf.ParallelOp)
        if op.regions and not isinstance(op, GenericOp) and any(map(_structured, op.walk())):
            found += [op] if loops else _outermost(op)
    return found


def _structured(op: Operation) -> bool:
    return isinstance(op, GenericOp)


def _launched(function: func.FuncOp, name: str, loop: Operation, lower: Lower) -> None:
    """A launch in place of a loop, or of what loops in it can be launched."""
    if not _one_launch(function, name, loop, lower):
        for number, inner in enumerate(_outermost(loop)):
            _launched(function, f"{name}_{number}", inner, lower)


def _one_launch(function: func.FuncOp, name: str, loop: Operation, lower: Lower) -> bool:
    if loop.results or not _is_of_a_kernel(loop):
        return False
    nest, captured = _outlined(name, loop)
    if any(overlap(a, b) for a, b in combinations(captured, 2)):
        return False
    lower(nest)
    program = program_of(nest)
    trips = [trip_count(axis) for axis in program.axes]
    if not trips or (None not in trips and prod(trips) < FEW):  # pyright: ignore
        return False
    module = function.parent_op()
    assert isinstance(module, ModuleOp)
    Rewriter.insert_op(nest, InsertPoint.before(function))
    outline(module, nest, program)
    call = func.CallOp(name, captured, [])
    call.location = loop.location
    Rewriter.replace_op(loop, call, [])
    return True


def _is_of_a_kernel(loop: Operation) -> bool:
    """Whether the program of a workgroup can do all that a loop does, in memory that it has."""
    bytes_ = 0
    for op in loop.walk():
        if isinstance(op, memref.AllocOp | memref.AllocaOp):
            if DYNAMIC_INDEX in op.memref.type.get_shape() or op.dynamic_sizes:
                return False
            bytes_ += bytes_of(op.memref.type)
        elif op.dialect_name() not in _DIALECTS:
            return False
    return bytes_ <= MEMORY


_DIALECTS = ("affine", "arith", "index", "linalg", "math", "memref", "scf", "vector")


def _outlined(name: str, loop: Operation) -> tuple[func.FuncOp, list[SSAValue]]:
    """The function that does what a loop does, and its arguments: numbers, and arrays that are no views of others."""
    captured: dict[SSAValue, None] = {}
    made: dict[Operation, None] = {}

    def take(value: SSAValue) -> None:
        owner = value.owner
        if (
            isinstance(owner, Operation)
            and not owner.regions
            and (
                (owner.results and memory_root(value) is not value)
                or isinstance(owner, arith.ConstantOp)
            )
        ):
            for operand in owner.operands:
                take(operand)
            made.setdefault(owner)
        else:
            captured.setdefault(value)

    for value in used_from_above(loop):
        take(value)
    arguments = list(captured)
    block = Block(arg_types=[value.type for value in arguments])
    values: dict[SSAValue, SSAValue] = dict(zip(arguments, block.args, strict=True))
    for value, inside in values.items():
        inside.name_hint = value.name_hint
    for op in (*made, loop):
        block.add_op(op.clone(values))
    block.add_op(func.ReturnOp())
    function = func.FuncOp(name, (list(block.arg_types), []), Region(block), visibility="private")
    function.location = loop.location
    function.attributes[LEVEL] = StringAttr("workgroup")
    for op in [op for op in function.walk() if isinstance(op, scf.ParallelOp)]:
        parallel_to_for(op)
    return function, arguments
