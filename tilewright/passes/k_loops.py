"""k-loops: a deep product whose operands are loaded becomes a loop over k.

    %a = load_tile .. : 128x512                         scf.for %s = 0 to 32 iter_args(%sum = %c) {
    %b = load_tile .. : 512x128                           %a = load_tile .. : 128x16    at column %s * 16
    %d = tile_mma %a, %b, %c : 128x128           ->       %b = load_tile .. : 16x128    at row %s * 16
                                                          %d = tile_mma %a, %b, %sum
                                                          scf.yield %d }

What no matrix instruction does is one outer product after the other: their number, and the registers of A and B, do not
grow with k then. A target says which products.

Requires: workgroup or subgroup level, XeTile. A product is left alone where the ops behind its operands, up to the
tiles, do more than load, transpose or change each element, where memory may be written between a load and the product,
or where it is summed in a type narrower than the sum's. Guarantees: the same results, products added in the order of k.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import Float32Type, Float64Type, IndexType, IntegerType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.dialects import xetile as xt
from tilewright.dialects.movement import vector_type
from tilewright.passes.axes import Axes, axes_of
from tilewright.passes.emit import Before
from tilewright.passes.memory_objects import is_pure, may_write, orders
from tilewright.passes.split_workgroups import SplitChoice, narrow
from tilewright.passes.tile_origin import is_read_only

LEAST = 4
"""Elements of k in a step below which rows are too short to load."""


def k_loops(kernel: gpu.FuncOp, most: int, wants: Callable[[xt.TileMmaOp], bool]) -> None:
    """Turns the products of a kernel that a target `wants` into loops, of `most` elements of k at most in a step."""
    products = [op for op in kernel.walk() if isinstance(op, xt.TileMmaOp) and wants(op)]
    for op in products:
        depth = vector_type(op.a).get_shape()[1]
        step = gcd(depth, most)
        if step < LEAST or depth // step < 2 or not _is_wide(op):
            continue
        behind = _Depth(op, Axes(kernel))
        if behind.comes_in_parts():
            _loop(behind, depth // step, step)


def _is_wide(op: xt.TileMmaOp) -> bool:
    """Is the type of the result that of the sum?"""
    element = op.result.type.element_type
    return isinstance(element, Float32Type | Float64Type) or (
        isinstance(element, IntegerType) and element.width.data >= 32
    )


class _Depth:
    """The ops that make the operands of a product, as far as k reaches: `ops`, in their order, and their `members`."""

    def __init__(self, product: xt.TileMmaOp, axes: Axes):
        self.product, self.axes = product, axes
        self.root = axes.tied.find((product.a, 1))
        self.ops: dict[Operation, None] = {}

    def dims(self, value: SSAValue) -> list[int]:
        return [d for d in axes_of(value) if self.axes.tied.find((value, d)) == self.root]

    def comes_in_parts(self) -> bool:
        """Whether they can come step by step; collects them."""
        a, b = self.product.a, self.product.b
        if self.root in self.axes.roots(self.axes.fixed):
            return False
        return self.dims(a) == [1] and self.dims(b) == [0] and self._visit(a) and self._visit(b)

    def _visit(self, value: SSAValue) -> bool:
        dims, maker = self.dims(value), value.owner
        if not dims:
            return True
        if len(dims) > 1 or not isinstance(maker, Operation):
            return False
        if maker in self.ops:
            return True
        if not self._may_move(maker):
            return False
        if not all(self._visit(v) for v in maker.operands):
            return False
        self.ops[maker] = None
        return True

    def _may_move(self, maker: Operation) -> bool:
        if isinstance(maker, xt.InitTileOp):
            return maker.offset_vector is None
        if isinstance(maker, xt.LoadTileOp):
            return is_read_only(maker.tile) or _nothing_written(maker, self.product)
        return is_pure(maker) and not maker.regions and not isinstance(maker, xt.TileMmaOp)


def _nothing_written(first: Operation, last: Operation) -> bool:
    """Whether no op between two of the same block may write memory."""
    each: Operation | None = first
    while each is not None and each is not last:
        if any(may_write(inner) or orders(inner) for inner in each.walk()):
            return False
        each = each.next_op
    return each is last


def _loop(depth: _Depth, count: int, step: int) -> None:
    """The product of a step, and what makes its operands, in a loop that carries the sum."""
    product = depth.product
    before, kind = Before(product), product.result.type
    first = product.c or before.constant(kind, 0)
    zero, end, one = (before.index(n) for n in (0, count, 1))
    body = Block(arg_types=(IndexType(), kind))
    loop = before.add(scf.ForOp(zero, end, one, [first], body))
    size = arith.ConstantOp.from_int_and_width(step, IndexType())
    start = arith.MuliOp(body.args[0], size.result)
    copies: dict[SSAValue, SSAValue] = {}
    ops = [each.clone(copies) for each in depth.ops]
    maps = product.wg_map_a, product.wg_map_b, product.wg_map_c
    new = xt.TileMmaOp(copies[product.a], copies[product.b], body.args[1], kind, *maps)
    for op in (size, start, new):
        op.location = product.location
    body.add_ops([size, start, *ops, new, scf.YieldOp(new.result)])
    members = [(copies[v], d) for op in depth.ops for v in op.results for d in depth.dims(v)]
    narrow(SplitChoice(tuple(members), count * step), count, start.result)
    before.replace(loop)
    for op in reversed(depth.ops):
        if all(r.first_use is None for r in op.results):
            Rewriter.erase_op(op)
