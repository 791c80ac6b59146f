"""What expand-ops does with maps and switches: arithmetic and branches.

affine.apply affine_map<(d0)[s0] -> (d0 mod 4 + s0)>(%i)[%j]   ->   arith.floordivsi, muli, subi, addi
affine.delinearize_index %n into (4, 8)                        ->   (%n floordiv 8, %n mod 8)
scf.index_switch %n case 0 { .. } default { .. }               ->   scf.if (%n == 0) { .. } else { .. }
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xdsl.dialects import arith, scf
from xdsl.ir import Block, Region, SSAValue
from xdsl.ir.affine import AffineBinaryOpKind, AffineExpr
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects.folding import Idx
from tilewright.dialects.nesting import terminator
from tilewright.dialects.upstream.affine import DelinearizeIndexOp, LinearizeIndexOp, MaxOp, extents
from tilewright.dialects.upstream.affine_expressions import evaluated
from tilewright.passes.emit import Before

# --- Maps ----------------------------------------------------------------------------------------


def _value_of(at: Before, expr: AffineExpr, dims: Sequence[Idx], symbols: Sequence[Idx]) -> Idx:
    """A number of an affine map; a remainder is x - floor(x / y) * y, never negative."""

    def floor(x: Idx, y: Idx) -> Idx:
        return at.add(arith.FloorDivSIOp(at.index(x), at.index(y)))

    operations: Mapping[AffineBinaryOpKind, Callable[[Idx, Idx], Idx]] = {
        AffineBinaryOpKind.Add: at.plus,
        AffineBinaryOpKind.Mul: at.times,
        AffineBinaryOpKind.CeilDiv: lambda x, y: at.add(
            arith.CeilDivSIOp(at.index(x), at.index(y))
        ),
        AffineBinaryOpKind.FloorDiv: floor,
        AffineBinaryOpKind.Mod: lambda x, y: at.minus(x, at.times(floor(x, y), y)),
    }
    return evaluated(expr, dims, symbols, int, operations)


def affine_map(op: Any, at: Before) -> None:
    """affine.apply, and affine.min and max, which pick one of several numbers."""
    map, operands = op.map.data, list(op.operands)
    dims, symbols = operands[: map.num_dims], operands[map.num_dims :]
    first, *rest = (at.index(_value_of(at, e, dims, symbols)) for e in map.results)
    pick = arith.MaxSIOp if isinstance(op, MaxOp) else arith.MinSIOp
    for value in rest:
        first = at.add(pick(first, value))
    at.replace(first)


def delinearize_index(op: DelinearizeIndexOp, at: Before) -> None:
    """Each digit is what remains of the rest; the first is what is left."""
    rest, digits = op.linear_index, list[SSAValue]()
    for extent in reversed(extents(op, op.dynamic_basis)):
        quotient = at.add(arith.FloorDivSIOp(rest, at.index(extent)))
        digits.append(at.index(at.minus(rest, at.times(quotient, extent))))
        rest = quotient
    at.replace(rest, *reversed(digits))


def linearize_index(op: LinearizeIndexOp, at: Before) -> None:
    number, *digits = op.multi_index
    for digit, extent in zip(digits, extents(op, op.dynamic_basis), strict=True):
        number = at.plus(at.times(number, extent), digit)
    at.replace(at.index(number))


# --- Branches ------------------------------------------------------------------------------------


def index_switch(op: scf.IndexSwitchOp, at: Before) -> None:
    """A branch for each case, in the other side of that of the case before it."""
    results = [r.type for r in op.results]
    cases = [*zip(op.cases.get_values(), op.case_regions, strict=True)]
    tests = [at.compare("eq", op.arg, int(n)) for n, _ in cases]
    rest = op.detach_region(op.default_region)
    if not tests:
        at.replace(*_inlined(rest, at))
        return
    branch = None
    for n in reversed(range(len(tests))):
        branch = scf.IfOp(tests[n], results, op.detach_region(cases[n][1]), rest)
        branch.location = op.location
        if n:
            rest = Region(Block([branch, scf.YieldOp(*branch.results)]))
    assert branch is not None
    at.insert(branch)
    at.replace(*branch.results)


def execute_region(op: scf.ExecuteRegionOp, at: Before) -> None:
    """What its one block does, where it stands; of blocks that are neither loops nor ifs it stays."""
    if len(op.region.blocks) == 1:
        at.replace(*_inlined(op.region, at))


def _inlined(region: Region, at: Before) -> list[SSAValue]:
    """The ops of a region of one block before those that follow; what it gives."""
    end = terminator(region.block)
    given = list(end.operands)
    Rewriter.erase_op(end)
    Rewriter.inline_block(region.block, InsertPoint.before(at.op))
    return given
