"""Reads and writes of vectors element by element, by tiles that have an offset and a mask for each element.

vector.transfer_write %v, %m[%i, %j], %k         %at = (%i + rows) * 64 + (%j + columns)
    : vector<8x16xf32>, memref<32x64xf32>   ->   %in = %k and (%i + rows < 32) and (%j + columns < 64)
                                                 %t = xetile.init_tile %flat, %at : memref<2048xf32>, ..
                                                 xetile.store %v, %t, %in
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, MemRefType, NoneAttr, VectorType
from xdsl.ir import Attribute, SSAValue

from tilewright.dialects import xetile
from tilewright.dialects.movement import memref_type, shape_of
from tilewright.dialects.upstream.arith import folded
from tilewright.dialects.upstream.strided import Metadata, row_of
from tilewright.dialects.xetile.assembly import Index
from tilewright.passes.emit import Before, element_of

Matrix = tuple[list[Index], list[Index]]
"""Extents and strides of a memref."""


def matrix_of(at: Before, source: SSAValue) -> Matrix:
    """What the type says of a memref, the rest when it runs."""
    found = Metadata(source, at.insert)
    return found.sizes, found.strides


def flattened(at: Before, source: SSAValue, matrix: Matrix) -> SSAValue:
    """The matrix as a 1-D memref that reaches as far as its last element; itself where it is one."""
    kind = memref_type(source)
    if kind.get_num_dims() == 1 and matrix[1] == [1]:
        return source
    return at.add(row_of(at, Metadata(source, at.insert), *matrix))


def read(
    at: Before,
    base: SSAValue,
    offsets: SSAValue,
    mask: SSAValue | None,
    kind: VectorType,
    other: SSAValue | None,
) -> SSAValue:
    """What a flat base has at the offsets, and `other` where the mask is false."""
    tile, masked = scattered_tile(at, base, offsets, mask, kind.element_type)
    value = at.cast(at.add(xetile.LoadGatherOp(tile, masked)), kind.get_shape())
    if mask is None or other is None:
        return value
    return at.add(arith.SelectOp(mask, value, at.broadcast(other, kind.get_shape())))


def write(at: Before, value: SSAValue, base: SSAValue, offsets: SSAValue, mask: SSAValue | None) -> None:  # fmt: skip
    tile, masked = scattered_tile(at, base, offsets, mask, element_of(value.type))
    assert isinstance(tile.type, xetile.TileType)
    at.insert(xetile.StoreScatterOp(at.cast(value, tile.type.get_shape()), tile, masked))


def scattered_tile(
    at: Before, base: SSAValue, offsets: SSAValue, mask: SSAValue | None, element: Attribute
) -> tuple[SSAValue, SSAValue | None]:
    """The tile of elements at offsets from a flat base, a memref or an address, and the mask in its shape, which has
    one or two dimensions."""
    shape, kind = shape_of(offsets), base.type
    if len(shape) > 2:
        shape = prod(shape[:-1]), shape[-1]
    shared = isinstance(kind, MemRefType) and not isinstance(kind.memory_space, NoneAttr)
    scattered = xetile.TileAttr(scattered=True, memory_space=3 if shared else None)
    type = xetile.TileType(shape, element, scattered)
    made = xetile.InitTileOp(base, type, offset_vector=at.cast(offsets, shape))
    return at.add(made), None if mask is None else at.cast(mask, shape)


def indexed(
    at: Before, source: SSAValue, start: Sequence[SSAValue], offsets: SSAValue
) -> tuple[SSAValue, SSAValue]:
    """A memref as a flat base, and where a vector of offsets points in it that count from a place in the memref."""
    matrix, kind = matrix_of(at, source), VectorType(IndexType(), shape_of(offsets))
    if offsets.type != kind:
        offsets = at.add(arith.IndexCastOp(offsets, kind))
    indices = [folded(i) for i in start]
    if any(i != 0 for i in indices):
        first = at.linear(indices, matrix[1], kind.get_shape(), [-1] * len(indices))
        offsets = at.add_index(offsets, first)
    return flattened(at, source, matrix), offsets
