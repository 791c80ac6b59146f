"""What stands around an op, what it takes of that, and what it makes.

    func.func @f(%a: index) {
      scf.for %i = .. {                  the scf.for stands around the addition, and the func.func around both
        %b = arith.addi %i, %a           what the loop uses from above: its bounds and %a; what it makes: %i
        ..

MLIR has these as `getParentOfType` and `getUsedValuesDefinedAbove`; stock xDSL lacks them. It says whether an op, block
or region holds another (`is_ancestor`), and which op of a block does (`Block.find_ancestor_op_in_block`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

T = TypeVar("T", bound=Operation)


def terminator(block: Block) -> Operation:
    """The op that ends a block."""
    assert block.last_op is not None
    return block.last_op


def blocks_in(op: Operation) -> Iterator[Block]:
    """The blocks of an op's regions, in their order."""
    return (block for region in op.regions for block in region.blocks)


def ops_around(node: Operation | Block) -> Iterator[Operation]:
    """The ops that an op or block stands in, innermost first."""
    op = node.parent_op()
    while op is not None:
        yield op
        op = op.parent_op()


def move(ops: Iterable[Operation], to: InsertPoint) -> None:
    """Ops leave their places and stand at another, in this order."""
    moved = list(ops)
    for op in moved:
        op.detach()
    Rewriter.insert_op(moved, to)


def ops_behind(op: Operation) -> Iterator[Operation]:
    """The ops behind an op in its block, in their order."""
    here = op.next_op
    while here is not None:
        yield here
        here = here.next_op


def enclosing(node: Operation | Block, *kinds: type[T]) -> T | None:
    """The innermost op of these kinds that an op or block stands in; None where it stands in none."""
    return next((op for op in ops_around(node) if isinstance(op, kinds)), None)


def used_from_above(scope: Operation | Region) -> list[SSAValue]:
    """The values from around an op or a region that are used there, in the order of their first use: an op's operands
    among them."""
    used = (
        v
        for op in scope.walk()
        for v in op.operands
        if op is scope or not scope.is_ancestor(v.owner)
    )
    return list(dict.fromkeys(used))


def values_made(op: Operation) -> list[SSAValue]:
    """The results of an op, and the arguments of its blocks."""
    return [*op.results, *(a for block in blocks_in(op) for a in block.args)]
