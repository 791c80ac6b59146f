"""Scalar ops of a kernel at the last stage, which every program does as they are written."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from tilewright.codegen.builder import Builder
from tilewright.codegen.tiles import plain
from tilewright.dialects.elementwise import retyped
from tilewright.dialects.upstream.arith import folded

_NONNEGATIVE = (
    arith.AddiOp,
    arith.MuliOp,
    arith.MinSIOp,
    arith.RemUIOp,
    arith.DivUIOp,
    arith.DivSIOp,
    arith.RemSIOp,
)
"""Ops whose result is not negative if no operand is."""


def cloned(b: Builder, op: Operation, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
    """The results of an op on these operands; a constant stands once."""
    if isinstance(op, arith.ConstantOp):
        data = getattr(getattr(op.value, "value", None), "data", None)
        if data is not None:
            return [b.constant(plain(op.result.type), data)]
    return b.op(retyped(op, operands, [plain(r.type) for r in op.results])).results


def mark_nonnegative(
    b: Builder, op: Operation, operands: Sequence[SSAValue], results: Sequence[SSAValue]
) -> None:
    """Tells the builder of results that cannot be below zero."""
    known = [b.is_nonnegative(folded(v)) for v in operands]
    if (isinstance(op, _NONNEGATIVE) and all(known)) or (
        isinstance(op, arith.MaxSIOp) and any(known)
    ):
        b.nonnegative |= set(results)
