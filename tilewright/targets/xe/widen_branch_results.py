"""xe-widen-branch-results: what a branch gives as short components leaves it as words of 32 bits.

    %v = scf.if %c -> (vector<4xi16>) { .. yield %a } else { .. }
    ->
    %w = scf.if %c -> (vector<2xi32>) { .. yield (bitcast %a) } else { .. } ; %v = vector.bitcast %w

A compiler that takes a branch's vectors apart gives every component a register of its own: two halves of a word would
be two registers.

Requires: a lane program. Guarantees: the same results.
"""

from __future__ import annotations

from xdsl.dialects import gpu, scf, vector
from xdsl.dialects.builtin import IntegerType, VectorType, i32
from xdsl.ir import Attribute
from xdsl.rewriter import Rewriter

from tilewright.dialects.nesting import terminator
from tilewright.passes.emit import Before, Behind
from tilewright.targets.xe.building import bits_of

WORD = 32


def widen_branch_results(kernel: gpu.FuncOp) -> bool:
    """Widens the short results of branches to 32 bits. Returns whether there was one."""
    changed = False
    for op in list(kernel.walk()):
        if isinstance(op, scf.IfOp):
            for n in range(len(op.results)):
                changed |= _rewrite(op, n)
    return changed


def _words(kind: Attribute) -> VectorType | None:
    if not isinstance(kind, VectorType) or len(kind.get_shape()) != 1:
        return None
    element = kind.element_type
    if element == IntegerType(1) or bits_of(element) >= WORD:
        return None
    count, rest = divmod(kind.get_shape()[0] * bits_of(element), WORD)
    return VectorType(i32, [count]) if not rest else None


def _rewrite(op: scf.IfOp, n: int) -> bool:
    given = op.results[n].type
    words = _words(given)
    if words is None:
        return False
    for region in op.regions:
        last = terminator(region.block)
        last.operands[n] = Before(last).add(vector.BitcastOp(last.operands[n], words))
    result = Rewriter.replace_value_with_new_type(op.results[n], words)
    Behind(op).instead(result, vector.BitcastOp(result, given))  # pyright: ignore
    return True
