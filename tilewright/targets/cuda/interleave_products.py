"""interleave-products: products that read registers are issued one by one among the arithmetic that follows them.

    wgmma p0, wgmma p1, ..                    wgmma p0;  x0 = exp2(s[0:8] - m);   sched.barrier
    x = exp2(s - m)                    ->     wgmma p1;  x1 = exp2(s[8:16] - m);  sched.barrier  ..
                                              x = x0, x1, ..

A warp that issues such a product is kept until the matrix unit takes it, so that products in a row keep it for as long
as those before them take. Requires: the program of a thread. Guarantees: the same values.

Takes part: a run of such products with a function of the special function unit behind it in the block, before anything
is waited for: `mma-pipelining` leaves them so where the functions take longer. With them go the elementwise ops on
vectors of the same length between.
"""

from __future__ import annotations

from itertools import takewhile

from xdsl.dialects.builtin import ModuleOp, VectorType
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects import mach
from tilewright.dialects.elementwise import is_elementwise_on_vectors, retyped
from tilewright.dialects.nesting import move, ops_behind
from tilewright.dialects.stage.products import vector_of
from tilewright.dialects.upstream.vector import ExtractStridedSliceOp
from tilewright.passes.memory_objects import is_pure
from tilewright.uarch.nvidia import SPECIAL_FUNCTIONS

LEAST = 16
"""Elements of a thread for which it is worth while."""


def interleave_products(module: ModuleOp) -> int:
    """Spreads products among the arithmetic behind them. Returns how many runs of them."""
    found = [op for op in module.walk() if _is(op, "wgmma.commit")]
    return sum(_interleave(op) for op in found)


def _is(op: Operation | None, name: str) -> bool:
    return isinstance(op, mach.InstrOp) and op.instruction == f"nvptx.{name}"


def _interleave(commit: Operation) -> bool:
    """Does so with the products that a commit closes."""
    products: list[Operation] = []
    fence: Operation | None = commit
    while fence is not None and not _is(fence, "wgmma.fence"):
        if isinstance(fence, mach.InstrOp) and fence.instruction.endswith(".rs"):
            products.insert(0, fence)
        fence = fence.prev_op
    behind = list(
        takewhile(lambda op: is_pure(op) and not isinstance(op, mach.InstrOp), ops_behind(commit))
    )
    least = max(LEAST, len(products))
    special = [
        i for i, op in enumerate(behind) if op.name in SPECIAL_FUNCTIONS and _length(op) >= least
    ]
    if fence is None or len(products) < 2 or not special:
        return False
    length = _length(behind[special[-1]])
    before = behind[: special[-1] + 1]
    shared = [
        op
        for op in before
        if is_elementwise_on_vectors(op) and len(op.results) == 1 and _length(op) == length
    ]
    parts: dict[SSAValue, list[SSAValue]] = {op.results[0]: [] for op in shared}
    # What is made of the products themselves (the join of their parts) stays behind them.
    pending = {r for op in products for r in op.results}
    for op in before:
        if pending & set(op.operands):
            pending |= set(op.results)
    others = [op for op in before if op not in shared]
    if parts.keys() & pending or any(parts.keys() & set(op.operands) for op in others):
        return False
    first = [op for op in others if not pending & set(op.results)]
    block, rest = commit.parent, before[-1].next_op
    assert block is not None and rest is not None
    move(first, InsertPoint.before(fence))
    block.insert_op_before(_barrier(), fence)
    for i, product in enumerate(products):
        start, end = (length * j // len(products) for j in (i, i + 1))
        new: list[Operation] = []
        for op in shared:
            operands: list[SSAValue] = []
            for value in op.operands:
                if value in parts:
                    operands.append(parts[value][i])
                elif not isinstance(value.type, VectorType):
                    operands.append(value)
                else:
                    new.append(ExtractStridedSliceOp(value, [start], [end - start], [1]))
                    operands.append(new[-1].results[0])
            element = vector_of(op.results[0].type).element_type
            new.append(retyped(op, operands, [VectorType(element, [end - start])]))
            parts[op.results[0]].append(new[-1].results[0])
        place = product.next_op if i + 1 < len(products) else rest
        assert place is not None
        block.insert_ops_before([*new, _barrier()], place)
    for op in reversed(shared):
        result = op.results[0]
        if result.first_use is not None:
            join = mach.JoinOp(parts[result])
            block.insert_op_before(join, rest)
            result.replace_all_uses_with(join.result)
        Rewriter.erase_op(op)
    return True


def _length(op: Operation) -> int:
    """Elements of an op's result that a thread has; 0 where it has no vector."""
    type = op.results[0].type if op.results else None
    return type.get_shape()[0] if isinstance(type, VectorType) else 0


def _barrier() -> Operation:
    return mach.InstrOp("nvptx.sched.barrier")
