"""host-parallel: loops of host code whose rounds keep apart become functions of a range, for threads to share.

    scf.for %i = %lo to %hi step %c1 {         mach.call @tw_parallel_0(%lo, %hi, %a)
      scf.for %j .. {                    ->
        memref.store %x, %a[%i, %j]            func.func @tw_rounds_0(%lo: index, %hi: index, %a: memref<..>) {
      }                                          scf.for %i = %lo to %hi step %c1 { .. }
    }                                          }

Requires: `HostMemory.independent`, a step of one, a loop inside (less is not worth a thread).
Guarantees: `tw_parallel_N` with the same arguments must call `tw_rounds_N` for ranges that make up the whole one.
Where the bounds are not constants, short loops stay as they are, by a test of their length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith, func, scf
from xdsl.dialects.builtin import FunctionType, IndexType, ModuleOp
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.dialects import mach
from tilewright.dialects.nesting import blocks_in, used_from_above
from tilewright.dialects.upstream.arith import constant
from tilewright.frozen import frozen
from tilewright.passes.emit import Before
from tilewright.passes.host.memory import HostMemory

PARALLEL = "tw_parallel_"
ROUNDS = "tw_rounds_"
SHORT = 32
"""Rounds below which a loop is not shared."""


@frozen
class SharedLoop:
    """`call(lo, hi, captured...)` in the host code asks for `rounds` to be called for parts of the range."""

    call: str
    rounds: str
    captured: tuple[Attribute, ...]


Passable = Callable[[Sequence[Attribute]], bool]
"""Whether values of these types can be passed to the function of a loop's rounds."""


def share_loops(module: ModuleOp, memory: HostMemory, passable: Passable) -> list[SharedLoop]:
    """Outline the outermost loops that qualify, in every function."""
    shared: list[SharedLoop] = []
    for function in list(module.body.block.ops):
        if isinstance(function, func.FuncOp) and not function.is_declaration:
            for block in function.body.blocks:
                _share(block, module, memory, passable, shared)
    return shared


def _share(
    block: Block, module: ModuleOp, memory: HostMemory, passable: Passable, shared: list[SharedLoop]
) -> None:
    for op in list(block.ops):
        if (
            isinstance(op, scf.ForOp)
            and _worthwhile(op)
            and memory.independent(op)
            and passable([value.type for value in _captured(op)])
        ):
            shared.append(_outline(op, module, memory, len(shared)))
        else:
            for inner in blocks_in(op):
                _share(inner, module, memory, passable, shared)


def _worthwhile(loop: scf.ForOp) -> bool:
    bounds = [constant(v) for v in (loop.lb, loop.ub)]
    known = None if None in bounds else bounds[1] - bounds[0]  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
    return (
        constant(loop.step) == 1
        and (known is None or known >= SHORT)
        and any(isinstance(op, scf.ForOp) for op in loop.body.walk())
    )


def _used(loop: scf.ForOp) -> list[SSAValue]:
    """The values from outside that the step and the body of a loop use, in order."""
    return list(dict.fromkeys([loop.step, *used_from_above(loop.body)]))


def _captured(loop: scf.ForOp) -> list[SSAValue]:
    """Those that are no constants, which the function has of its own."""
    return [value for value in _used(loop) if not isinstance(value.owner, arith.ConstantOp)]


def _outline(loop: scf.ForOp, module: ModuleOp, memory: HostMemory, number: int) -> SharedLoop:
    captured = _captured(loop)
    constants = {v: v.owner for v in _used(loop) if isinstance(v.owner, arith.ConstantOp)}
    types = tuple(value.type for value in captured)
    block = Block(arg_types=[IndexType(), IndexType(), *types])
    values: dict[SSAValue, SSAValue] = dict(zip(captured, block.args[2:], strict=True))
    for value, name in values.items():
        memory.learn(name, value)
    for value, op in constants.items():
        copy = op.clone()
        block.add_op(copy)
        values[value] = copy.results[0]
    body = Region()
    loop.body.clone_into(body, value_mapper=dict(values))
    copy = scf.ForOp(block.args[0], block.args[1], values[loop.step], [], body)
    copy.location = loop.location
    block.add_ops([copy, func.ReturnOp()])
    type_ = FunctionType.from_lists([IndexType(), IndexType(), *types], [])
    rounds = func.FuncOp(f"{ROUNDS}{number}", type_, Region(block))
    rounds.location = loop.location
    module.body.block.add_op(rounds)
    call = mach.CallOp(f"{PARALLEL}{number}", [loop.lb, loop.ub, *captured])
    _replace(loop, call)
    return SharedLoop(f"{PARALLEL}{number}", f"{ROUNDS}{number}", types)


def _replace(loop: scf.ForOp, call: mach.CallOp) -> None:
    at = Before(loop)
    if constant(loop.lb) is not None and constant(loop.ub) is not None:
        at.insert(call)
    else:
        length = at.add(arith.SubiOp(loop.ub, loop.lb))
        long = at.compare("sge", length, SHORT)
        at.insert(scf.IfOp(long, [], [call, scf.YieldOp()], [loop.clone(), scf.YieldOp()]))
    Rewriter.erase_op(loop, safe_erase=False)
