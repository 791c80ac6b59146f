"""k-slicing: a product whose A is computed from a staged tile is done in slices of k, each as soon as its A is there.

    %x = stage.read %s : 128x64                       %x0 = stage.read.part %s [0, 0] : 128x16
    %a = f(%x)                                        %x1 = stage.read.part %s [0, 16] : 128x16   ..
    %p = stage.mma.issue %a, %b, %c            ->     %p0 = stage.mma.issue f(%x0), %b, %c {first = 0}
                                                      %p1 = stage.mma.issue f(%x1), %b, %p0 {first = 16}   ..

Requires: products issued. Guarantees: the same sums in the same order.

What threads compute for one slice overlaps the product of the slice before; without that the matrix unit stands still
while a warpgroup prepares its operand. Takes part: A computed element by element from reads of staged tiles, from
constants, and from values repeated along k; a slice is what one instruction takes. All slices are read first: so the
computation alone stands between two products.
"""

from __future__ import annotations

from itertools import takewhile

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, VectorType
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.dialects import stage
from tilewright.dialects.elementwise import is_elementwise_on_vectors
from tilewright.dialects.nesting import ops_behind
from tilewright.dialects.numerals import dense
from tilewright.dialects.stage.products import vector_of
from tilewright.passes.cleanup import eliminate_dead
from tilewright.targets.cuda.passes.wgmma_legality import instruction_for
from tilewright.uarch.base import Machine


def slice_products_along_k(function: gpu.FuncOp, machine: Machine) -> int:
    """Splits a product whose A is computed (dequantized, activated) along k: one slice is computed while another
    multiplies. Returns how many products are done in slices."""
    count = 0
    for op in list(function.walk()):
        if isinstance(op, stage.ProductIssueOp) and _depth(op, machine) is not None:
            count += _rewrite(op, machine)
    eliminate_dead(function.body.block)
    return count


def _depth(op: stage.ProductIssueOp, machine: Machine) -> int | None:
    """Elements of k in a slice; None for a product that is not cut."""
    if isinstance(op.a.owner, stage.CopyWaitOp) or op.first is not None:
        return None
    a, b, c = op.a.type, op.b.type, vector_of(op.result.type)
    instruction = instruction_for(machine, a, b, c)
    if instruction is None or op.sizes[2] <= instruction.k or op.sizes[2] % instruction.k:
        return None
    return instruction.k


def _rewrite(op: stage.ProductIssueOp, machine: Machine) -> int:
    depth, block = _depth(op, machine), op.parent
    assert depth is not None and block is not None
    chain = _chain(op.a, block)
    if not any(isinstance(o, stage.ReadOp) for o in chain):
        return 0
    m, _, k = op.sizes
    reads: dict[tuple[Operation, int], SSAValue] = {}
    for at in range(0, k, depth):
        for source in chain:
            if isinstance(source, stage.ReadOp):
                kind = VectorType(source.result.type.element_type, (m, depth))
                part = stage.ReadPartOp(source.tile, (0, at), kind)
                part.result.name_hint = source.result.name_hint
                block.insert_op_before(part, source if _released(source, op) else op)
                reads[source, at] = part.result
    before = op.c
    for at in range(0, k, depth):
        values: dict[SSAValue, SSAValue] = {}
        for each in chain:
            if isinstance(each, stage.ReadOp):
                values[each.result] = reads[each, at]
            else:
                values[each.results[0]] = _sliced(each, values, op, (m, depth))
        made = stage.ProductIssueOp(
            values[op.a],
            op.b,
            before,
            op.result.type,
            transpose_b=op.transpose_b,
            first=at,
        )
        block.insert_op_before(made, op)
        before = made.result
    assert before is not None
    op.result.replace_all_uses_with(before)
    Rewriter.erase_op(op)
    for each in reversed(chain):
        if not any(result.uses for result in each.results) and each.parent is block:
            Rewriter.erase_op(each)
    return 1


def _released(read: stage.ReadOp, product: Operation) -> bool:
    """Is the slot of a read given back before the product, which another one shares its operand with?"""
    wait = read.tile.owner
    return any(
        isinstance(op, stage.CopyReleaseOp)
        and (not isinstance(wait, stage.CopyWaitOp) or op.buffer == wait.buffer)
        for op in takewhile(lambda op: op is not product, ops_behind(read))
    )


def _chain(a: SSAValue, block: Block) -> list[Operation]:
    """The ops that compute A, in order; empty if one of them cannot be done for a slice of k alone."""
    found: set[Operation] = set()
    work = [a]
    while work:
        value = work.pop()
        if not isinstance(value.type, VectorType):
            continue  # a scalar serves every slice
        if not isinstance(value, OpResult):
            return []
        op = value.op
        if op in found:
            continue
        found.add(op)
        if isinstance(op, stage.ReadOp):
            if op.parent is not block:
                return []
        elif is_elementwise_on_vectors(op):
            work += op.operands
        elif not _repeats(op):
            return []
    order: list[Operation] = []

    def visit(op: Operation) -> None:
        if op not in order and op in found:
            for operand in op.operands:
                if isinstance(operand, OpResult):
                    visit(operand.op)
            order.append(op)

    assert isinstance(a, OpResult)
    visit(a.op)
    return order


def _repeats(op: Operation) -> bool:
    """Has the op's result the same columns all along k?"""
    if isinstance(op, arith.ConstantOp):
        return isinstance(op.value, DenseIntOrFPElementsAttr) and op.value.is_splat()
    if op.name not in ("vector.broadcast", "xetile.broadcast"):
        return False
    source = op.operands[0].type
    return not isinstance(source, VectorType) or source.get_shape()[-1] == 1


def _sliced(
    op: Operation, values: dict[SSAValue, SSAValue], before: Operation, shape: tuple[int, int]
) -> SSAValue:
    """An op of the chain for one slice."""
    result = op.results[0]
    assert isinstance(result.type, VectorType) and before.parent is not None
    kind = VectorType(result.type.element_type, shape)
    made = op.clone(dict(values))
    if isinstance(made, arith.ConstantOp):
        number = op.value.get_values()[0]  # pyright: ignore
        made = arith.ConstantOp(dense(kind, [number]))
    before.parent.insert_op_before(made, before)
    if made.results[0].type != kind:
        return Rewriter.replace_value_with_new_type(made.results[0], kind)
    return made.results[0]
