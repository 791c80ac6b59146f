"""Tiles at the last stage: base matrices, and tile values over them as the scalars that they consist of.

A `Tile` is a tile value at run time: the address of its base matrix and, for both dimensions, offset, extent and stride
in elements. A dimension outside of which nothing is reads as padding: leading offsets that miss the array make the
extent zero. A `ScatteredTile` is the elements at a vector of offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType, VectorType
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.codegen.registers import DYNAMIC, strided_form
from tilewright.dialects.elementwise import retyped
from tilewright.dialects.movement import memref_type
from tilewright.dialects.upstream.arith import folded
from tilewright.dialects.upstream.arith import signless as plain
from tilewright.dialects.upstream.views import View, viewed
from tilewright.dtypes import from_mlir
from tilewright.frozen import frozen

if TYPE_CHECKING:
    from tilewright.dialects.xetile import InitTileOp


def itemsize(type: Attribute) -> int:
    """Bytes of one element in memory."""
    return from_mlir(type).itemsize


def element_of(type: Attribute) -> Attribute:
    """Signless element type of a vector, or the scalar type itself."""
    return plain(type.element_type if isinstance(type, VectorType) else type)


def rows_cols(type: Attribute) -> tuple[int, int]:
    """The shape of a vector as rows and columns: leading dimensions fold into rows, 1-D is one row."""
    if not isinstance(type, VectorType):
        return 1, 1
    shape = type.get_shape()
    rows = 1
    for n in shape[:-1]:
        rows *= n
    return rows, shape[-1] if shape else 1


@frozen
class Matrix:
    """An array: address, extents and strides (in elements) of all dimensions."""

    pointer: SSAValue
    element: Attribute
    sizes: tuple[Idx, ...]
    strides: tuple[Idx, ...]
    offset: Idx = 0
    """How many elements the address lies behind the array's base, from which a `memref.reinterpret_cast` counts."""

    def base(self, b: Builder) -> SSAValue:
        return b.ptr(self.pointer, b.times(self.offset, -itemsize(self.element)))


@frozen
class Tile:
    """A 2-D tile of a base matrix."""

    pointer: SSAValue
    element: Attribute
    offsets: tuple[Idx, Idx]
    extents: tuple[Idx, Idx]
    strides: tuple[Idx, Idx]
    shape: tuple[int, int]
    base: SSAValue | None = None
    """The array of the kernel, by identity."""
    next: Tile | None = None
    """A tile that is read later: reads of this one fetch the same elements of it."""

    def moved(self, b: Builder, rows: Idx, cols: Idx) -> Tile:
        offsets = b.plus(self.offsets[0], rows), b.plus(self.offsets[1], cols)
        return replace(self, offsets=offsets, next=self.next and self.next.moved(b, rows, cols))

    def limit(self, b: Builder, axis: int) -> Idx:
        """Elements from the tile's start to the end of the matrix along `axis` (may be negative)."""
        return b.minus(self.extents[axis], self.offsets[axis])


@frozen
class ScatteredTile:
    """Elements at offsets (an index vector value) from `pointer`, legal in 0 .. count-1."""

    pointer: SSAValue
    element: Attribute
    count: Idx
    offsets: SSAValue
    base: SSAValue | None = None


def matrix_of_memref(
    b: Builder, pointer: SSAValue, type: MemRefType, sizes: Sequence[Idx], strides: Sequence[Idx]
) -> Matrix:
    """The array behind a memref; static extents and strides of the type are used where it has them."""
    known, offset = strided_form(type)
    shape = type.get_shape()
    full_sizes = tuple(n if n >= 0 else sizes[i] for i, n in enumerate(shape))
    full_strides = tuple(s if s != DYNAMIC else strides[i] for i, s in enumerate(known))
    element = plain(type.element_type)
    offset = 0 if offset == DYNAMIC else offset
    pointer = b.ptr(pointer, offset * itemsize(element))
    return Matrix(pointer, element, full_sizes, full_strides, offset)


def view_of(b: Builder, op: Operation, base: Matrix, operands: Sequence[Idx]) -> Matrix:
    """What an op of `upstream.views` makes of an array."""
    new = viewed(op, View(base.offset, base.sizes, base.strides), operands, b)
    type = memref_type(op.results[0])
    element = plain(type.element_type)
    further = b.minus(new.offset if new.bytes is None else new.bytes, base.offset)
    pointer = b.ptr(base.pointer, b.times(further, itemsize(base.element)))
    return Matrix(pointer, element, tuple(new.sizes), tuple(new.strides), new.offset)


def metadata_of(b: Builder, array: Matrix) -> tuple[Matrix, list[Idx]]:
    """What `memref.extract_strided_metadata` gives: the base, and offset, sizes and strides of the array."""
    whole = Matrix(array.base(b), array.element, (), ())
    return whole, [array.offset, *array.sizes, *array.strides]


def init_tile(
    b: Builder, op: InitTileOp, source: Matrix | SSAValue, index: dict[SSAValue, SSAValue]
) -> Tile | ScatteredTile:
    """The tile that an init_tile makes; `source` is its array, or a pointer for an integer address."""

    def known(value: int | SSAValue) -> Idx:
        return value if isinstance(value, int) else folded(index[value])

    sizes = [known(x) for x in op.mixed_sizes]
    strides = [known(x) for x in op.mixed_strides]
    type = op.tile_type
    element = plain(type.element_type)
    if isinstance(source, Matrix):
        pointer = source.pointer
        sizes = sizes or list(source.sizes)
        strides = strides or list(source.strides)
    else:
        pointer = source
    if op.offset_vector is not None:
        count = reduce(b.times, sizes, 1) if sizes else (1 << 62) - 1
        return ScatteredTile(pointer, element, count, op.offset_vector, op.source)
    offsets = [known(x) for x in op.mixed_offsets]
    if len(sizes) == 1:
        sizes, strides, offsets = [1, *sizes], [0, *strides], [0, *offsets]
    leading: Idx = 0
    inside: SSAValue | None = None
    for offset, size, stride in zip(offsets[:-2], sizes[:-2], strides[:-2], strict=True):
        leading = b.plus(leading, b.times(offset, stride))
        if not b.is_nonnegative(offset):
            inside = b.both(inside, b.cmp("sge", offset, 0))
        inside = b.both(inside, b.cmp("slt", offset, size))
    pointer = b.ptr(pointer, b.times(leading, itemsize(element)))
    rows, cols = sizes[-2], sizes[-1]
    if inside is not None:
        rows = b.select(inside, rows, 0, once=True)
    shape = type.get_shape()
    return Tile(
        pointer,
        element,
        (offsets[-2], offsets[-1]),
        (rows, cols),
        (strides[-2], strides[-1]),
        (shape[0], shape[1]),
        op.source,
    )


def cloned(b: Builder, op: Operation, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
    """The results of an op on these operands; a constant stands once."""
    if isinstance(op, arith.ConstantOp):
        data = getattr(getattr(op.value, "value", None), "data", None)
        if data is not None:
            return [b.constant(plain(op.result.type), data)]
    return b.op(retyped(op, operands, [plain(r.type) for r in op.results])).results
