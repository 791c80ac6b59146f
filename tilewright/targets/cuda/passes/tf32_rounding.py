"""tf32-rounding: what a product rounds to tf32 is rounded on its way into shared memory, by the copy engine.

    %x = xetile.load_tile %t : f32              %x = xetile.load_tile %t : f32
    %y = xetile.transpose %x             ->     %r = arith.truncf %x : f32 to tf32
    %a = arith.truncf %y : f32 to tf32          %a = xetile.transpose %r

Requires: XeTile at workgroup level. Guarantees: the same values. A load that is used by nothing but roundings to tf32,
as it is or transposed, is followed by one rounding, its only use: `multi-buffering` then gives its slot elements of
tf32, and the copy engine, which knows that type in memory as f32, rounds while it copies. Other narrow types differ in
size from what lies in memory, and stay the work of threads.
"""

from __future__ import annotations

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import FloatTF32Type, VectorType
from xdsl.dialects.builtin import f32 as f32_type
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.dialects import xetile
from tilewright.dialects.movement import vector_type
from tilewright.passes.cleanup import eliminate_dead
from tilewright.passes.emit import Before, Behind
from tilewright.targets.cuda.passes.wgmma_legality import untransposed, users


def round_at_loads(function: gpu.FuncOp) -> int:
    """Rounds f32 operands to tf32 where they are loaded. Returns how many loads are rounded."""
    count = 0
    for op in list(function.walk()):
        if isinstance(op, xetile.LoadTileOp) and len(op.values) == 1:
            roundings = _roundings(op.values[0])
            if roundings:
                _rewrite(op, roundings)
                count += 1
    eliminate_dead(function.body.block)
    return count


def rounding_of(load: xetile.LoadTileOp) -> arith.TruncFOp | None:
    """The rounding to tf32 that is a load's only use; None if there is none."""
    uses = [use.operation for value in load.values for use in value.uses]
    if len(uses) == 1 and isinstance(uses[0], arith.TruncFOp) and _to_tf32(uses[0]):
        return uses[0] if uses[0].parent is load.parent else None
    return None


def loaded(value: SSAValue) -> xetile.LoadTileOp | None:
    """The load that a value is, rounded or not; None if it is none."""
    owner = value.owner
    if isinstance(owner, arith.TruncFOp) and isinstance(owner.input.owner, xetile.LoadTileOp):
        return owner.input.owner if rounding_of(owner.input.owner) is owner else None
    return owner if isinstance(owner, xetile.LoadTileOp) else None


def source_load(value: SSAValue, dimension: int) -> tuple[xetile.LoadTileOp, int] | None:
    """The load behind an operand's transposes and rounding, and which dimension of its tile is `dimension` of the
    operand; None if it is none."""
    source, transposed = untransposed(value)
    load = loaded(source)
    if load is None:
        return None
    return load, 1 - dimension if transposed else dimension


def _to_tf32(op: arith.TruncFOp) -> bool:
    source, result = op.input.type, op.result.type
    return (
        isinstance(source, VectorType)
        and isinstance(result, VectorType)
        and source.element_type == f32_type
        and isinstance(result.element_type, FloatTF32Type)
    )


def _roundings(value: SSAValue) -> list[arith.TruncFOp] | None:
    """All roundings that a value goes to, also transposed; None if it goes anywhere else."""
    found = users(value)
    rounding = [op for op in found if isinstance(op, arith.TruncFOp) and _to_tf32(op)]
    return rounding if len(rounding) == len(found) else None


def _rewrite(load: xetile.LoadTileOp, roundings: list[arith.TruncFOp]) -> None:
    source = load.values[0]
    kind = VectorType(FloatTF32Type(), vector_type(source).get_shape())
    rounded = Behind(load).add(arith.TruncFOp(source, kind))
    rounded.name_hint = source.name_hint
    for old in roundings:
        chain: list[Operation] = []
        here = old.input
        while here is not source:
            assert isinstance(here, OpResult)
            chain.append(here.op)
            here = here.op.operands[0]
        value = rounded
        for turn in reversed(chain):
            value = _turned(turn, value, old)
        Rewriter.replace_op(old, [], [value])


def _turned(turn: Operation, value: SSAValue, before: Operation) -> SSAValue:
    """A transpose as `turn` is one, of another value."""
    made = Before(before).add(turn.clone({turn.operands[0]: value}))
    kind = VectorType(FloatTF32Type(), vector_type(turn.results[0]).get_shape())
    return Rewriter.replace_value_with_new_type(made, kind)
