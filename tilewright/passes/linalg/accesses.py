"""What a structured op accesses: linear functions of loops, and the memory that they reach as a strided view.

An operand of linalg is accessed at affine functions of the loops. Each loop then has a stride in the operand's memory,
whatever the functions are, and the operand is a matrix of as many dimensions as loops reach it:

    image[n, 2 * oh + kh, 2 * ow + kw, c] of memref<1x9x9x8xf32>
      =  view[n, oh, ow, kh, kw, c] of strides 648, 144, 16, 72, 8, 1

So a transposed operand, a diagonal and the windows of a convolution need no code of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType, StridedLayoutAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
)

from tilewright.dialects.movement import memref_type
from tilewright.dialects.upstream.strided import strided_form
from tilewright.frozen import frozen
from tilewright.passes.emit import Before


@frozen
class Sum:
    """A whole number that the host computes: multiples of extents and strides of memrefs, and a constant."""

    terms: tuple[tuple[RuntimeExtent | Product, int], ...]
    constant: int = 0


@frozen
class RuntimeExtent:
    """What the type of a memref leaves open: an extent, a stride, or the offset."""

    memref: SSAValue
    what: str
    dim: int = 0


@frozen
class Product:
    a: Size
    b: Size


Size = int | Sum


def times(a: Size, b: Size) -> Size:
    if isinstance(b, int):
        a, b = b, a
    return plus(0, b, a) if isinstance(a, int) else Sum(((Product(a, b), 1),))


def plus(a: Size, b: Size, times: int = 1) -> Size:
    """a + times * b."""
    parts = [Sum((), each) if isinstance(each, int) else each for each in (a, b)]
    terms = dict(parts[0].terms)
    for asked, factor in parts[1].terms:
        terms[asked] = terms.get(asked, 0) + times * factor
    kept = tuple((asked, factor) for asked, factor in terms.items() if factor)
    constant = parts[0].constant + times * parts[1].constant
    return Sum(kept, constant) if kept else constant


@dataclass(eq=False)
class ProgramLoop:
    """A loop of a tile program: a tile's rows or columns, the grid, or a loop of its own."""

    extent: Size


@frozen
class Linear:
    """A linear function of loops."""

    terms: tuple[tuple[ProgramLoop, int], ...]
    constant: int = 0


def linear(expr: AffineExpr, bound: Sequence[Linear | None]) -> Linear | None:
    """An affine expression of dimensions that are bound to functions of loops; None where it is not linear."""
    match expr:
        case AffineConstantExpr():
            return Linear((), expr.value)
        case AffineDimExpr():
            return bound[expr.position]
        case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Add):
            sides = linear(expr.lhs, bound), linear(expr.rhs, bound)
            return None if sides[0] is None or sides[1] is None else _added(sides[0], sides[1])
        case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Mul):
            sides = linear(expr.lhs, bound), linear(expr.rhs, bound)
            for a, b in (sides, sides[::-1]):
                if a is not None and b is not None and not b.terms:
                    return _added(Linear(()), a, b.constant)
            return None
        case _:
            return None


def _added(a: Linear, b: Linear, times: int = 1) -> Linear:
    terms = dict(a.terms)
    for loop, factor in b.terms:
        terms[loop] = terms.get(loop, 0) + times * factor
    kept = tuple((loop, factor) for loop, factor in terms.items() if factor)
    return Linear(kept, a.constant + times * b.constant)


@frozen
class StridedView:
    """Part of a memref's memory as a matrix."""

    memref: SSAValue
    offset: Size
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]

    @property
    def is_whole(self) -> bool:
        """Whether it is the memref as it stands."""
        own, offset = strides(self.memref)
        return (*extents(self.memref), *own, offset) == (*self.sizes, *self.strides, self.offset)

    @property
    def type(self) -> MemRefType[Attribute]:
        base = memref_type(self.memref)
        if self.is_whole:
            return base
        numbers = [
            [n if isinstance(n, int) else None for n in each]
            for each in (self.strides, [self.offset])
        ]
        layout = StridedLayoutAttr(numbers[0], numbers[1][0])
        sizes = [n if isinstance(n, int) else DYNAMIC_INDEX for n in self.sizes]
        return MemRefType(base.element_type, sizes, layout, base.memory_space)

    @property
    def is_static(self) -> bool:
        return all(isinstance(n, int) for n in (*self.sizes, *self.strides))


def extents(value: SSAValue) -> list[Size]:
    return [
        n if n != DYNAMIC_INDEX else Sum(((RuntimeExtent(value, "extent", d), 1),))
        for d, n in enumerate(memref_type(value).get_shape())
    ]


def strides(value: SSAValue) -> tuple[list[Size], Size]:
    """Strides and offset of a memref. Raises TypeError for a layout that is not strided."""
    numbers, offset = strided_form(memref_type(value))
    own: list[Size] = [
        n if n != DYNAMIC_INDEX else Sum(((RuntimeExtent(value, "stride", d), 1),))
        for d, n in enumerate(numbers)
    ]
    return own, offset if offset != DYNAMIC_INDEX else Sum(((RuntimeExtent(value, "offset"), 1),))


def reached(value: SSAValue, indices: Sequence[Linear]) -> tuple[Mapping[ProgramLoop, Size], Size]:
    """The stride of each loop in a memref that is accessed at `indices`, and where the first element is."""
    own, offset = strides(value)
    steps: dict[ProgramLoop, Size] = {}
    for index, stride in zip(indices, own, strict=True):
        for loop, factor in index.terms:
            steps[loop] = plus(steps.get(loop, 0), stride, factor)
        offset = plus(offset, stride, index.constant)
    return steps, offset


class Host:
    """Computes sizes and views in front of an op of the host."""

    def __init__(self, before: Before) -> None:
        self.before = before
        self._known: dict[Any, SSAValue] = {}

    def size(self, size: Size) -> SSAValue:
        if size not in self._known:
            self._known[size] = self._made(size)
        return self._known[size]

    def _made(self, size: Size) -> SSAValue:
        before = self.before
        if isinstance(size, int):
            return before.index(size)
        total = before.index(size.constant) if size.constant or not size.terms else None
        for asked, factor in size.terms:
            part = self._asked(asked)
            if factor != 1:
                part = before.add(arith.MuliOp(part, self.size(factor)))
            total = part if total is None else before.add_index(total, part)
        assert total is not None
        return total

    def _asked(self, asked: RuntimeExtent | Product) -> SSAValue:
        if isinstance(asked, Product):
            return self.before.add(arith.MuliOp(self.size(asked.a), self.size(asked.b)))
        if asked not in self._known:
            source, rank = asked.memref, memref_type(asked.memref).get_num_dims()
            if asked.what == "extent":
                self._known[asked] = self.before.add(memref.DimOp(source, self.size(asked.dim)))
            else:
                op = memref.ExtractStridedMetaDataOp(source)
                self.before.insert(op)
                at = 1 if asked.what == "offset" else 2 + rank + asked.dim
                self._known[asked] = op.results[at]
        return self._known[asked]

    def programs(self, extents: Sequence[Size], tile: int) -> SSAValue:
        """How many tiles extents have, multiplied."""
        total = self.size(prod(-(-n // tile) for n in extents if isinstance(n, int)))
        for size in extents:
            if not isinstance(size, int):
                count = self.before.add(arith.CeilDivSIOp(self.size(size), self.size(tile)))
                total = self.before.add(arith.MuliOp(total, count))
        return total

    def view(self, view: StridedView) -> SSAValue:
        if view.is_whole:
            return view.memref
        offset, *rest = (
            [n if isinstance(n, int) else self.size(n) for n in each]
            for each in ([view.offset], view.sizes, view.strides)
        )
        made = memref.ReinterpretCastOp.from_dynamic(
            view.memref, offset, rest[0], rest[1], view.type
        )
        return self.before.add(made)


def subview_type(
    base: MemRefType[Attribute],
    offsets: Sequence[object],
    steps: Sequence[object],
    shape: Sequence[int],
    kept: Sequence[int],
) -> MemRefType[Attribute]:
    """The type of a part of a memref: `kept` are the dimensions that it has, `shape` their extents."""
    own, start = strided_form(base)

    def times(a: int, b: object) -> int:
        return a * b if isinstance(b, int) and a != DYNAMIC_INDEX else DYNAMIC_INDEX

    moves = [times(stride, offset) for stride, offset in zip(own, offsets, strict=True)]
    known = DYNAMIC_INDEX not in (start, *moves)
    made = [times(stride, step) for stride, step in zip(own, steps, strict=True)]
    layout = StridedLayoutAttr(
        [made[d] if made[d] != DYNAMIC_INDEX else None for d in kept],
        start + sum(moves) if known else None,
    )
    return MemRefType(base.element_type, shape, layout, base.memory_space)
