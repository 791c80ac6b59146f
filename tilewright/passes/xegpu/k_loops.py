"""xegpu-k-loops: a deep product of a subgroup whose operands lie in memory becomes a loop over k (:mod:`..k_loops`).

    %a = load_matrix %m[%r, 0] : 16x64                    %d = scf.for %i = 0 to 4 iter_args(%sum = %c) {
    %b = load_nd %t[%n, %x] : 64x16                         %k = arith.muli %i, 16
    %d = dpas %a, %b, %c                         ->         %a = load_matrix %m[%r, %k] : 16x16
                                                            %b = load_nd %u[%n + %k, %x] : 16x16
                                                            scf.yield dpas %a, %b, %sum }

At workgroup level an operand may be a value that was computed: here it has been exchanged through shared memory, and is
loaded. What no matrix instruction does is one outer product after the other.

Requires: subgroup level, with no layouts on what makes the operands: loads of blocks and of shared matrices, transposed
or each element changed, alone or by a number, that nothing else uses, with no write to what they load in between.
Guarantees: the same results, products added in the order of k.
"""

from __future__ import annotations

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    Float32Type,
    IndexType,
    NoneAttr,
    VectorType,
)
from xdsl.dialects.vector import BroadcastOp
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects import xegpu
from tilewright.dialects.elementwise import is_elementwise, retyped
from tilewright.dialects.movement import shape_of
from tilewright.dialects.upstream.vector import TransposeOp
from tilewright.dialects.xegpu.types import TensorDescType
from tilewright.dialects.xetile.assembly import split_indices
from tilewright.passes.emit import Before
from tilewright.passes.xegpu.block_messages import memory_of, never_written
from tilewright.passes.xegpu.load_late import may_change
from tilewright.passes.xegpu.sg_maps import multiplies
from tilewright.uarch.xe import XeMachine


def k_loops(kernel: gpu.FuncOp, machine: XeMachine) -> None:
    """Turns the products that the machine has no matrix instruction for into loops, of as many elements of k in a step
    as a subgroup has lanes."""
    kept = never_written(kernel)
    for op in [op for op in kernel.walk() if isinstance(op, xegpu.DpasOp)]:
        shapes = [shape_of(v) for v in (op.lhs, op.rhs, op.result)]
        if any(len(shape) != 2 for shape in shapes) or multiplies(
            machine, op.lhs, op.rhs, op.result
        ):
            continue
        count, rest = divmod(shapes[0][1], machine.lanes)
        if rest or count < 2 or not isinstance(op.result.type.element_type, Float32Type):
            continue
        if all(_comes_in_parts(op, v, kept) for v in (op.lhs, op.rhs)):
            _loop(op, count, machine.lanes)


def _comes_in_parts(product: xegpu.DpasOp, value: SSAValue, kept: set[SSAValue]) -> bool:
    """Can a part of an operand be loaded where the product stands? `kept`: arrays that nothing writes."""
    op = value.owner
    if _is_one_number(op):
        return True
    if not isinstance(op, Operation) or not value.has_one_use() or op.attributes:
        return False
    if op.parent is not product.parent or len(shape_of(value)) != 2:
        return False
    if isinstance(op, xegpu.LoadNdOp):
        plain = not op.packed and op.transpose is None and op.ownership is None
        whole = op.tdesc.get_shape() == shape_of(value) and op.mixed_offsets is not None
        made = op.operands[op.tdesc_operand].owner
        if not (plain and whole and isinstance(made, xegpu.CreateNdDescOp)):
            return False
        return not made.has_offsets and (memory_of(op) in kept or _keeps(op, product))
    if isinstance(op, xegpu.LoadMatrixOp):
        return op.ownership is None and not op.subgroup_block_io and _keeps(op, product)
    if isinstance(op, TransposeOp) or is_elementwise(op):
        return all(_comes_in_parts(product, v, kept) for v in op.operands)
    return False


def _is_one_number(op: Operation | Block) -> bool:
    """Does an op repeat a scalar?"""
    if isinstance(op, arith.ConstantOp):
        return isinstance(op.value, DenseIntOrFPElementsAttr) and op.value.is_splat()
    return isinstance(op, BroadcastOp) and not isinstance(op.operands[0].type, VectorType)


def _keeps(load: Operation, product: Operation) -> bool:
    """Whether what is loaded is there still where the product stands."""
    root, each = memory_of(load), load.next_op
    while each is not None and each is not product:
        if may_change(each, root):
            return False
        each = each.next_op
    return each is product


def _loop(product: xegpu.DpasOp, count: int, step: int) -> None:
    before, kind = Before(product), product.result.type
    first = product.acc or before.constant(kind, 0)
    zero, end, one = (before.index(n) for n in (0, count, 1))
    body = Block([last := scf.YieldOp()], arg_types=(IndexType(), kind))
    inner = Before(last)
    start = inner.add(arith.MuliOp(body.args[0], inner.index(step)))
    a, b = (_part(inner, v, dim, start, step) for v, dim in ((product.lhs, 1), (product.rhs, 0)))
    last.operands = [inner.add(retyped(product, [a, b, body.args[1]], [kind]))]
    loop = scf.ForOp(zero, end, one, [first], body)
    old = [product.lhs, product.rhs]
    before.replace(before.add(loop))
    while old:  # nothing else used them
        value = old.pop()
        op = value.owner
        assert isinstance(op, Operation)
        if value.first_use is None:
            old += [v for v in op.operands if isinstance(v.type, VectorType)]
            Rewriter.erase_op(op)


def _part(at: Before, value: SSAValue, dim: int, start: SSAValue, step: int) -> SSAValue:
    """`step` elements of a value along a dimension, from `start`."""
    assert isinstance(value, OpResult) and isinstance(value.type, VectorType)
    op, shape = value.op, [step if d == dim else n for d, n in enumerate(shape_of(value))]
    kind = VectorType(value.type.element_type, shape)
    at.op.location = op.location
    if _is_one_number(op):
        if isinstance(op, arith.ConstantOp):
            assert isinstance(op.value, DenseIntOrFPElementsAttr)
            return at.constant(kind, op.value.get_values()[0])  # pyright: ignore
        return at.add(retyped(op, op.operands, [kind]))
    if not isinstance(op, xegpu.LoadNdOp | xegpu.LoadMatrixOp):
        across = 1 - dim if isinstance(op, TransposeOp) else dim
        return at.add(retyped(op, [_part(at, v, across, start, step) for v in op.operands], [kind]))
    offsets = list(op.mixed_offsets or ())
    place = len(offsets) - 2 + dim
    offsets[place] = at.plus(offsets[place], start)
    static, dynamic = split_indices(offsets)
    source = op.operands[0]
    if isinstance(op, xegpu.LoadNdOp):
        made = source.owner
        assert isinstance(made, xegpu.CreateNdDescOp)
        encoding = op.tdesc.encoding
        encoding = None if isinstance(encoding, NoneAttr) else encoding
        desc = TensorDescType(shape, op.tdesc.element_type, encoding)
        smaller = retyped(made, made.operands, [desc])
        smaller.location = op.location
        Rewriter.insert_op(smaller, InsertPoint.after(made))
        source = smaller.results[0]
    new = retyped(op, [source, *dynamic], [kind])
    new.properties["const_offsets"] = static
    return at.add(new)
