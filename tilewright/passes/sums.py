"""What a loop and its ops must look like for `contraction` to read the loop as a sum of products."""

from __future__ import annotations

from xdsl.dialects import scf, vector
from xdsl.dialects.builtin import UnrealizedConversionCastOp, VectorType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import is_side_effect_free

from tilewright.dialects import xetile as xt
from tilewright.dialects.elementwise import is_elementwise
from tilewright.dialects.nesting import terminator


def carried(op: scf.ForOp | scf.WhileOp):
    """(block of the body, carried arguments, initial values, yielded values, results), or None for another shape."""
    if isinstance(op, scf.ForOp):
        block = op.body.block
        last = terminator(block)
        return (
            block,
            list(block.args[1:]),
            list(op.iter_args),
            list(last.operands),
            list(op.results),
        )
    before, after = op.before_region.block, op.after_region.block
    condition, last = before.last_op, after.last_op
    if not isinstance(condition, scf.ConditionOp) or last is None:
        return None
    # The loop passes on exactly what it carries.
    if list(condition.operands[1:]) != list(before.args):
        return None
    if any(not is_side_effect_free(o) for o in before.ops if o is not condition):
        return None
    if any(isinstance(a.type, VectorType) and len(list(a.uses)) != 1 for a in before.args):
        return None
    return after, list(after.args), list(op.arguments), list(last.operands), list(op.results)


def only_added(arg: SSAValue, yielded: SSAValue) -> xt.TileMmaOp | None:
    """The tile_mma that adds to a carried value, if nothing else reads either."""
    uses = list(arg.uses)
    if len(uses) != 1 or not isinstance(uses[0].operation, xt.TileMmaOp):
        return None
    mma = uses[0].operation
    if mma.c is not arg or mma.a is arg or mma.b is arg or mma.result is not yielded:
        return None
    return mma if len(list(mma.result.uses)) == 1 else None


def harmless(op: Operation, block: Block) -> bool:
    """Ops that may stand in the body of a sum: prefetches, loads, and what has no side effect."""
    if op.regions:
        return False
    if isinstance(op, xt.LoadTileOp | xt.PrefetchTileOp | scf.YieldOp | xt.TileMmaOp):
        return True
    return is_side_effect_free(op)


def positionwise(op: Operation) -> bool:
    """Does element [i, j] of the result depend on elements [i, j] of the operands only?"""
    if isinstance(op, UnrealizedConversionCastOp | xt.ConvertLayoutOp):
        return True
    if isinstance(op, vector.BroadcastOp):
        return not isinstance(op.operands[0].type, VectorType)
    return is_elementwise(op) and len(op.results) == 1
