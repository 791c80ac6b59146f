"""Which numbers are known to divide an index: constants, products, sums, and what loops count."""

from __future__ import annotations

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import BlockArgument, OpResult

from tilewright.dialects.xetile.assembly import Index


def is_multiple(value: Index, number: int, depth: int = 8) -> bool:
    """Is an index known to be a multiple of a number?"""
    if isinstance(value, int):
        return value % number == 0
    if depth == 0:
        return False
    if isinstance(value, BlockArgument):
        loop = value.block.parent_op()
        if isinstance(loop, scf.ForOp):
            bounds = (loop.lb, loop.step)
            if value.index == 0:
                return all(is_multiple(v, number, depth - 1) for v in bounds)
            yielded = loop.body.block.last_op
            assert yielded is not None
            step = yielded.operands[value.index - 1]
            start = loop.iter_args[value.index - 1]
            if isinstance(step, OpResult) and isinstance(step.op, arith.AddiOp):
                rest = [v for v in step.op.operands if v is not value]
                return (
                    len(rest) == 1
                    and is_multiple(start, number, depth - 1)
                    and is_multiple(rest[0], number, depth - 1)
                )
        return False
    op = value.owner
    match op:
        case arith.ConstantOp() if isinstance(op.value, IntegerAttr):
            return op.value.value.data % number == 0
        case arith.MuliOp():
            return any(is_multiple(v, number, depth - 1) for v in op.operands)
        case arith.AddiOp() | arith.SubiOp() | arith.RemUIOp() | arith.RemSIOp():
            return all(is_multiple(v, number, depth - 1) for v in op.operands)
        case arith.SelectOp():
            return all(is_multiple(v, number, depth - 1) for v in op.operands[1:])
        case arith.IndexCastOp():
            return is_multiple(op.input, number, depth - 1)
        case _:
            return False
