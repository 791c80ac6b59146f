"""vector-contractions: sums of products of matrices become tile_mma, other contractions products and a reduction.

    %d = vector.contract {(m, k), (k, n) -> (m, n), add} %a, %b, %c      ->   %d = xetile.tile_mma %a, %b, %c

    %d = vector.contract {(k, m), (k) -> (m), maximumf} %a, %b, %c       ->   %x = vector.transpose %a, [1, 0]
                                                                              %y = vector.broadcast %b
                                                                              %p = arith.mulf %x, %y
                                                                              %d = vector.multi_reduction %p, %c [1]

Matrices are what is left when dimensions of one kind are put together: rows (of one operand and the result), columns
(of the other and the result) and those that are summed; of a dimension of all three, each slice is a product.
Guarantees: no contraction is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, IndexType, IntegerType, f32
from xdsl.dialects.vector import CreateMaskOp
from xdsl.ir import Attribute, SSAValue

from tilewright.diagnostics import unsupported
from tilewright.dialects import xetile
from tilewright.dialects.upstream.arith import element, with_element
from tilewright.dialects.upstream.combining import combining, neutral
from tilewright.dialects.upstream.vector import (
    ContractionOp,
    ExtractStridedSliceOp,
    InsertStridedSliceOp,
    MultiReductionOp,
)
from tilewright.dialects.xetile.vector_rules import are_multiplied
from tilewright.frozen import record
from tilewright.passes.emit import Before, shape_of, with_shape


def check(op: ContractionOp) -> None:
    """UnsupportedError for a contraction that `contract` does not take."""
    _form(op)
    wide: Any = element(op.acc.type)
    for value in (op.lhs, op.rhs):
        own: Any = element(value.type)
        alike = any(
            isinstance(own, t) and isinstance(wide, t) for t in (AnyFloat, IntegerType, IndexType)
        )
        if not alike or (own != wide and own.bitwidth > wide.bitwidth):
            raise unsupported(
                op,
                f"{op.name}: products of {own} do not add up in {wide}",
                rule="a sum is as wide as its factors at least",
                hint="give it an accumulator of their type",
            )


def contract(op: ContractionOp) -> None:
    """Rewrites one contraction, in place."""
    at, form = Before(op), _form(op)
    factors = element(op.lhs.type), element(op.rhs.type)
    matrices = form.rows and form.columns and form.summed and not form.alone
    if op.kind == "add" and matrices and are_multiplied(*factors):
        at.replace(_products(op, at, form))
    else:
        at.replace(_elements(op, at, form))


def masked(op: ContractionOp, mask: SSAValue, at: Before) -> SSAValue:
    """What a contraction, detached, gives of the products where a mask over its iterators is true.

    A mask of a corner is one of each operand: sums of products stay a contraction, of zeros behind the corner.
    """
    form, corner = _form(op), mask.owner
    if op.kind != "add" or not isinstance(corner, CreateMaskOp):
        return _elements(op, at, form, mask)

    def kept(dims: list[int], value: SSAValue, other: SSAValue) -> SSAValue:
        part = at.where("slt", [corner.operands[d] for d in dims], form.sizes(dims))
        return at.add(arith.SelectOp(part, value, other))

    inner = op.clone()
    for n, (value, dims) in enumerate(((op.lhs, form.left), (op.rhs, form.right))):
        inner.operands[n] = kept(dims, value, at.constant(value.type, 0))
    made = at.add(inner)
    return kept(form.out, made, op.acc) if form.out else made


@record
class _Form:
    """The iterators of a contraction: those of each operand and of the result, in order, and how far each goes."""

    left: list[int]
    right: list[int]
    out: list[int]
    extents: dict[int, int]

    def __post_init__(self) -> None:
        both = [d for d in self.left if d in self.right]
        self.batch = [d for d in self.out if d in both]
        self.rows = [d for d in self.out if d not in self.right]
        self.columns = [d for d in self.out if d not in self.left]
        self.summed = [d for d in both if d not in self.out]
        self.alone = {*self.left, *self.right} - {*both, *self.out}

    def sizes(self, dims: Sequence[int]) -> list[int]:
        return [self.extents[d] for d in dims]


def _form(op: ContractionOp) -> _Form:
    maps: list[list[int]] = []
    extents: dict[int, int] = {}
    for map, value in zip(op.indexing_maps, op.operands, strict=True):
        dims = [getattr(each, "position", -1) for each in map.data.results]
        if -1 in dims:
            raise unsupported(
                op,
                f"{op.name}: {map} is no projection",
                rule="each map lists iterators",
                hint="extract what a constant index stands for",
            )
        maps.append(dims)
        extents |= zip(dims, shape_of(value) if dims else (), strict=True)
    left, right, out = maps
    return _Form(left, right, out, extents)


# Products of matrices. -----------------------------------------------------------------------------------------


def _products(op: ContractionOp, at: Before, form: _Form) -> SSAValue:
    a, b = (op.lhs, form.left), (op.rhs, form.right)
    rows, columns = form.rows, form.columns
    if form.out.index(columns[0]) < form.out.index(rows[0]):
        a, b, rows, columns = b, a, columns, rows

    def matrices(value: SSAValue, dims: list[int], first: list[int], second: list[int]) -> SSAValue:
        """Of each step of the batch, if there is one, a matrix."""
        order = [dims.index(d) for d in (*form.batch, *first, *second)]
        turned = order == [1, 0]
        value = at.add(xetile.TransposeOp(value)) if turned else at.transpose(value, order)
        shape = [prod(form.sizes(dims)) for dims in (form.batch, first, second)]
        return at.cast(value, shape if form.batch else shape[1:])

    left, right = matrices(*a, rows, form.summed), matrices(*b, form.summed, columns)
    made = matrices(op.acc, form.out, rows, columns)
    if not form.batch:
        made = at.add(xetile.TileMmaOp(left, right, made))
    else:
        for n in range(shape_of(made)[0]):
            x, y, z = (_slice(at, value, n) for value in (left, right, made))
            product = at.add(xetile.TileMmaOp(x, y, z))
            one = at.cast(product, [1, *shape_of(product)])
            made = at.add(InsertStridedSliceOp(one, made, [n, 0, 0], [1, 1, 1]))
    grouped = [*form.batch, *rows, *columns]
    made = at.cast(made, form.sizes(grouped))
    return at.transpose(made, [grouped.index(d) for d in form.out])


def _slice(at: Before, value: SSAValue, n: int) -> SSAValue:
    sizes = shape_of(value)[1:]
    part = ExtractStridedSliceOp(value, [n, 0, 0], [1, *sizes], [1, 1, 1])
    return at.cast(at.add(part), sizes)


# All others. ---------------------------------------------------------------------------------------------------


def _elements(op: ContractionOp, at: Before, form: _Form, mask: SSAValue | None = None) -> SSAValue:
    """Sums of narrow floats are f32 until they are rounded once."""
    given = op.acc.type
    kind = element(given)
    wide = f32 if isinstance(kind, AnyFloat) and kind.bitwidth < 32 else kind
    order = [*form.out, *(d for d in form.extents if d not in form.out)]
    shape = form.sizes(order)
    factors = [
        at.spread(_as(at, value, wide), [order.index(d) for d in dims], shape)
        for value, dims in ((op.lhs, form.left), (op.rhs, form.right))
    ]
    acc, product = _as(at, op.acc, wide), at.add(combining("mul", *factors))
    if mask is not None:
        nothing = at.constant(with_shape(product.type, shape), neutral(op.kind, wide))
        product = at.add(arith.SelectOp(at.transpose(mask, order), product, nothing))
    over = [*range(len(form.out), len(order))]
    last = (
        MultiReductionOp(op.kind, product, acc, over) if over else combining(op.kind, product, acc)
    )
    made = at.add(last)
    return made if made.type == given else at.add(arith.TruncFOp(made, given))  # pyright: ignore


def _as(at: Before, value: SSAValue, wide: Attribute) -> SSAValue:
    """A number, or a vector of numbers, as wide as the sum."""
    if element(value.type) == wide:
        return value
    convert = arith.ExtFOp if isinstance(wide, AnyFloat) else arith.ExtSIOp
    return at.add(convert(value, with_element(value.type, wide)))  # pyright: ignore
