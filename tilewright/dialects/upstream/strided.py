"""The strided form of a memref's layout: where its elements lie, as strides and an offset.

| layout | strides of memref<4x8xf32, ..> |
|---|---|
| none | 8, 1 |
| strided<[16, 1], offset: 3> | 16, 1 from 3 |
| affine_map<(i, j) -> (j, i)> | 1, 4: the dimensions in another order, dense |
| affine_map<(i, j) -> (i * 16 + j + 3)> | 16, 1 from 3 |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AffineMapAttr,
    MemRefType,
    NoneAttr,
    StridedLayoutAttr,
)
from xdsl.dialects.memref import ExtractStridedMetaDataOp, ReinterpretCastOp
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
)

from tilewright.dialects.folding import Combines, Folding, Idx
from tilewright.dialects.movement import memref_type


def strided_form(type: MemRefType) -> tuple[tuple[int, ...], int]:
    """(strides, offset) of a memref in elements, `DYNAMIC_INDEX` where unknown.

    TypeError for a layout that is no strided form.
    """
    shape, layout = type.get_shape(), type.layout
    match layout:
        case NoneAttr():
            return dense(shape, range(len(shape))), 0
        case StridedLayoutAttr():
            known, offset = layout.get_strides(), layout.get_offset()
            strides = tuple(DYNAMIC_INDEX if s is None else s for s in known)
            return strides, DYNAMIC_INDEX if offset is None else offset
        case AffineMapAttr():
            found = _of_map(layout.data, shape)
            if found is not None:
                return found
        case _:
            pass
    raise TypeError(f"{type}: its layout is not a strided form")


def static_strides(type: MemRefType) -> list[int | None]:
    """Strides of a memref in elements; None for what is known at run time, and for a layout that is no strided form."""
    try:
        strides, _ = strided_form(type)
    except TypeError:
        return [None] * type.get_num_dims()
    return [None if s == DYNAMIC_INDEX else s for s in strides]


class Metadata:
    """Offset, extents and strides of an array: numbers as far as its type says, else results of one op, which `put`
    inserts (or finds) where somebody asks. TypeError for a layout that is no strided form."""

    def __init__(self, array: SSAValue, put: Callable[[Operation], Operation]):
        kind = memref_type(array)
        self.value, self.kind = array, kind
        self._put, self._made = put, list[SSAValue]()
        self._shape, (self._strides, self._offset) = kind.get_shape(), strided_form(kind)

    @property
    def offset(self) -> int | SSAValue:
        return self._numbers(1, [self._offset])[0]

    @property
    def sizes(self) -> list[int | SSAValue]:
        return self._numbers(2, self._shape)

    @property
    def strides(self) -> list[int | SSAValue]:
        return self._numbers(2 + len(self._shape), self._strides)

    def _numbers(self, first: int, known: Iterable[int]) -> list[int | SSAValue]:
        found: list[int | SSAValue] = []
        for place, number in enumerate(known, first):
            if number == DYNAMIC_INDEX and not self._made:
                self._made = list(self._put(ExtractStridedMetaDataOp(self.value)).results)
            found.append(self._made[place] if number == DYNAMIC_INDEX else number)
        return found


def row_of(
    at: Combines, array: Metadata, sizes: Sequence[Idx], strides: Sequence[Idx]
) -> ReinterpretCastOp:
    """A matrix of an array as a 1-D memref: from where the array begins to the last element of the matrix."""
    length: Idx = 1
    for size, stride in zip(sizes, strides, strict=True):
        reach = Folding.times(at, Folding.plus(at, size, -1), stride)
        length = Folding.plus(at, length, reach)
    kind, offset = array.kind, array.offset
    begins = offset if isinstance(offset, int) else None
    layout = NoneAttr() if begins == 0 else StridedLayoutAttr([1], begins)
    extent = length if isinstance(length, int) else DYNAMIC_INDEX
    result = MemRefType(kind.element_type, [extent], layout, kind.memory_space)
    return ReinterpretCastOp.from_dynamic(array.value, [offset], [length], [1], result)


def dense(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Strides of dimensions that lie in each other, `order` from the outermost in."""
    strides = [1] * len(shape)
    step = 1
    for dim in reversed(order):
        strides[dim] = step
        step = DYNAMIC_INDEX if step == DYNAMIC_INDEX or shape[dim] < 0 else step * shape[dim]
    return tuple(strides)


def _of_map(map: AffineMap, shape: Sequence[int]) -> tuple[tuple[int, ...], int] | None:
    """A permutation of the dimensions, or one linear expression; None for anything else."""
    rank, results = len(shape), map.results
    order = [e.position for e in results if isinstance(e, AffineDimExpr)]
    if len(order) == len(results) and sorted(order) == list(range(rank)):
        return dense(shape, order), 0
    if len(results) != 1 or not all(_is_linear(e) for e in results[0].dfs()):
        return None

    def at(symbol: int) -> list[int]:
        """The offset, and the step along each dimension, where all symbols are one number."""
        symbols = [symbol] * map.num_symbols
        (start,) = map.eval([0] * rank, symbols)
        units = [[int(i == dim) for i in range(rank)] for dim in range(rank)]
        return [start, *(map.eval(unit, symbols)[0] - start for unit in units)]

    # What changes with a symbol is known only at run time.
    start, *strides = (a if a == b else DYNAMIC_INDEX for a, b in zip(at(0), at(1), strict=True))
    return tuple(strides), start


def _is_linear(expr: AffineExpr) -> bool:
    """Sums, and products with numbers or symbols."""
    if not isinstance(expr, AffineBinaryOpExpr):
        return True
    if expr.kind is AffineBinaryOpKind.Mul:
        return not all(
            any(isinstance(e, AffineDimExpr) for e in side.dfs()) for side in (expr.lhs, expr.rhs)
        )
    return expr.kind is AffineBinaryOpKind.Add
