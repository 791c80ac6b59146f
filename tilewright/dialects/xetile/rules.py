"""What the ops on tiles demand beyond the types of their operands.

Messages have the sense of the public implementation's, so that its negative tests hold here. A rule
that only the implementation has and the RFCs have not goes through `narrower`: a warning, an error
under `--strict`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    VectorType,
    i1,
    i64,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.attribute_fields import ints
from tilewright.dialects.cache_hints import LEVELS
from tilewright.dialects.movement import vector_type
from tilewright.dialects.strict import narrower
from tilewright.dialects.upstream.arith import constant
from tilewright.dialects.upstream.gpu import memory_space_number
from tilewright.dialects.upstream.strided import strided_form
from tilewright.dialects.xetile import kinds
from tilewright.dialects.xetile.attrs import READ_HINTS, WRITE_HINTS, CacheHintAttr, WgMapAttr
from tilewright.dialects.xetile.distribution import UNEVEN
from tilewright.dialects.xetile.types import TileType

if TYPE_CHECKING:
    from tilewright.dialects.xetile import init, memory
    from tilewright.dialects.xetile.assembly import Index

Strides = list[int | None]

NEEDS_SHAPE = (
    "memref with a dynamic shape or raw address is used as source but dynamic shape argument "
    "missing or it is not of valid rank"
)


def extents(shape: Sequence[int]) -> str:
    return "x".join(str(dim) for dim in shape)


# --- Base matrix of a tile ------------------------------------------------------------------------


def verify_init_tile(op: init.InitTileOp) -> None:
    source = op.source.type
    if isinstance(source, MemRefType):
        if memory_space_number(source) != op.tile_type.memory_space:
            raise VerifyException("memory space of the tile doesn't match with the source.")
        if source.element_type != op.tile_type.element_type:
            raise VerifyException(
                f"element type of the tile, {op.tile_type.element_type}, doesn't match that of the "
                f"source, {source.element_type}"
            )
    elif not (isinstance(source, IntegerType) and source.width.data in (32, 64)):
        raise VerifyException(
            f"expected a memref or an integer address of 32 or 64 bits as source, got {source}"
        )
    if op.offset_vector is not None or op.tile_type.scattered:
        _verify_scattered(op)
    else:
        _verify_block(op)


def _verify_scattered(op: init.InitTileOp) -> None:
    tile, source = op.tile_type, op.source.type
    if isinstance(source, MemRefType) and source.get_num_dims() > 1:
        raise VerifyException("Expecting a 0-D or 1-D memref as source.")
    if not tile.scattered:
        raise VerifyException("Expecting a scattered TileType.")
    if op.offset_vector is None:
        raise VerifyException("a scattered tile takes a vector of offsets, one per element")
    if op.mixed_offsets or op.mixed_sizes or op.mixed_strides:
        raise VerifyException(
            "a scattered tile takes no offsets, sizes or strides besides its vector"
        )
    _verify_offsetvector_type(op.offset_vector, tile)


def _verify_offsetvector_type(vector: SSAValue, tile: TileType) -> None:
    kind = vector_type(vector)
    if not isinstance(kind.element_type, IndexType):
        raise VerifyException(f"offsets of a scattered tile are of type index, got {kind}")
    if kind.get_shape() != tile.get_shape():
        raise VerifyException(
            f"offsets of shape {extents(kind.get_shape())} don't match the tile's shape "
            f"{extents(tile.get_shape())}"
        )


def _verify_block(op: init.InitTileOp) -> None:
    source, offsets = op.source.type, op.mixed_offsets
    sizes, strides = op.mixed_sizes, op.mixed_strides
    if isinstance(source, MemRefType):
        rank = source.get_num_dims()
        if rank == 0:
            raise VerifyException("a block tile needs a base matrix, got a 0-D memref")
        if rank == 1 and op.tile_type.get_shape()[0] != 1:
            raise VerifyException(
                "a tile of a 1-D memref is one row, got a tile of shape "
                + extents(op.tile_type.get_shape())
            )
        if len(offsets) != rank:
            raise VerifyException(
                f"expected {rank} offsets, one per dimension of the source, got {len(offsets)}"
            )
        dynamic_shape = DYNAMIC_INDEX in source.get_shape()
        known = _memref_strides(source)
        if not dynamic_shape and None not in known:
            if sizes or strides:
                raise VerifyException(
                    "dynamic sizes are not allowed with a static shaped memref as source"
                )
        elif dynamic_shape or sizes or strides:
            _verify_dynamic(sizes, strides, rank)
        _verify_order(op, source.get_shape(), known)
    else:
        if len(offsets) < 2:
            raise VerifyException("expected two offsets or more with an address as source")
        _verify_dynamic(sizes, strides, len(offsets))
    if strides:
        _verify_order(
            op,
            [DYNAMIC_INDEX if (n := constant(size)) is None else n for size in sizes],
            [constant(stride) for stride in strides],
        )


def _verify_dynamic(sizes: Sequence[Index], strides: Sequence[Index], rank: int) -> None:
    if not sizes and not strides:
        raise VerifyException(NEEDS_SHAPE)
    if not sizes or not strides:
        raise VerifyException("dynamic shape and strides must not be empty")
    if len(sizes) != rank or len(strides) != rank:
        raise VerifyException(NEEDS_SHAPE)


def _memref_strides(source: MemRefType) -> Strides:
    """Strides of a memref in elements, None for one that is not known before run time."""
    try:
        strides, _ = strided_form(source)
    except TypeError:
        raise VerifyException("expected a valid affine map in the layout") from None
    return [None if s == DYNAMIC_INDEX else s for s in strides]


def _verify_order(op: init.InitTileOp, shape: Sequence[int], strides: Strides) -> None:
    """The tile's order agrees with the memory: its fastest dimension has stride 1 (RFC: order).

    A dimension of extent 1 has no stride worth the name. The implementation wants the matrix to be
    dense besides; a longer pitch is what the RFC's base_strides are for.
    """
    if len(strides) < 2:
        if strides and strides[0] not in (None, 1) and shape[0] != 1:
            raise VerifyException("memref operand is expected to have a row-major layout")
        return
    row_major = op.tile_type.order == (1, 0)
    word = "row-major" if row_major else "column-major"
    fast, slow = (-1, -2) if row_major else (-2, -1)
    message = f"memref operand is expected to have a {word} layout"
    if shape[fast] != 1 and strides[fast] not in (None, 1):
        raise VerifyException(message)
    pitch = strides[slow]
    if pitch is None or shape[fast] == DYNAMIC_INDEX or shape[slow] == 1:
        return
    # A negative pitch walks backwards; rows of a shorter one would overlap.
    if pitch == 0:
        raise VerifyException(
            f"{message}, and stride 0 makes its {'rows' if row_major else 'columns'} one in memory"
        )
    if abs(pitch) < shape[fast]:
        raise VerifyException(message)
    if pitch != shape[fast]:
        narrower(op, message)


def verify_distributed_evenly(
    op: IRDLOperation, shape: Sequence[int], wg: WgMapAttr | None
) -> None:
    """The implementation refuses maps by which several subgroups own the same elements."""
    if wg is None:
        return
    for extent, data, grid in zip(shape, ints(wg.sg_data), ints(wg.sg_layout), strict=False):
        if extent % data or (extent // data) % grid:
            narrower(op, f"{UNEVEN}.")
            return


# --- Moving, loading, storing -----------------------------------------------------------------------


def verify_update_tile_offset(op: init.UpdateTileOffsetOp) -> None:
    tile = op.tile.type
    if tile != op.result.type:
        raise VerifyException("the result must have the tile's type")
    if tile.scattered:
        if op.offset_vector is None:
            raise VerifyException("a scattered tile moves by a vector of offsets, one per element")
        if op.mixed_offsets:
            raise VerifyException("a scattered tile takes no offsets besides its vector")
        _verify_offsetvector_type(op.offset_vector, tile)
        return
    if op.offset_vector is not None:
        raise VerifyException("Expecting a scattered TileType.")
    if len(op.mixed_offsets) != 2:
        raise VerifyException(
            f"expected two offsets, for rows and columns, got {len(op.mixed_offsets)}"
        )


def _verify_hints(op: IRDLOperation, allowed: frozenset[str], verb: str) -> None:
    for level in LEVELS:
        hint = op.properties.get(level)
        if isinstance(hint, CacheHintAttr) and hint.kind not in allowed:
            raise VerifyException(f"invalid {level}: #xetile.cache_hint<{hint.kind}> for a {verb}")


def _verify_padding(padding: Attribute | None, element: Attribute) -> None:
    if padding is None:
        return
    if not isinstance(padding, (IntegerAttr, FloatAttr)):
        raise VerifyException(f"padding must be a number, got {padding}")
    if isinstance(padding, FloatAttr) and not isinstance(element, AnyFloat):
        raise VerifyException(f"padding of {element} elements must be an integer, got {padding}")
    # The RFCs write a bare number, which is one of i64 where it is whole; one float is rounded to another.
    if isinstance(padding, IntegerAttr) and padding.type not in (element, i64):
        raise VerifyException(f"padding of {element} elements must have their type, got {padding}")


def _verify_same(value: VectorType, tile: TileType, shape: Sequence[int], what: str) -> None:
    if value.get_shape() != tuple(shape):
        turned = "" if tuple(shape) == tile.get_shape() else "transposed "
        raise VerifyException(
            f"{what} of shape {extents(value.get_shape())} doesn't match the tile's {turned}shape "
            f"{extents(shape)}"
        )
    if value.element_type != tile.element_type:
        raise VerifyException(
            f"{what} of element type {value.element_type} doesn't match the tile's element type "
            f"{tile.element_type}"
        )


def _verify_block_tile(tile: TileType, instead: str) -> None:
    if tile.scattered:
        raise VerifyException(f"expected a block tile; a scattered one takes {instead}")


def verify_load_tile(op: memory.LoadTileOp) -> None:
    tile = op.tile_type
    _verify_block_tile(tile, "xetile.load")
    shape = tile.get_shape()
    permutation = op.permutation
    if permutation is not None:
        if sorted(permutation) != [0, 1]:
            raise VerifyException(
                f"expected transpose to be [1, 0], or [0, 1] for none, got {[*permutation]}"
            )
        shape = tuple(shape[dim] for dim in permutation)
    if len(op.values) != tile.array_length:
        raise VerifyException(
            f"expected {tile.array_length} results, the tile's array_length, got {len(op.values)}"
        )
    for value in op.values:
        _verify_same(vector_type(value), tile, shape, "result")
    _verify_padding(op.padding, tile.element_type)
    _verify_hints(op, READ_HINTS, "load")


def verify_store_tile(op: memory.StoreTileOp) -> None:
    tile = op.tile_type
    _verify_block_tile(tile, "xetile.store")
    if tile.array_length != 1:
        raise VerifyException("array_length is not supported by store_tile")
    if "padding" in op.attributes:
        raise VerifyException(
            "a store takes no padding: what lies outside of the matrix is dropped"
        )
    _verify_same(vector_type(op.value), tile, tile.get_shape(), "value")
    _verify_mask(op.mask, tile)
    _verify_hints(op, WRITE_HINTS, "store")
    verify_distributed_evenly(op, tile.get_shape(), tile.wg_map)


def verify_prefetch_tile(op: memory.PrefetchTileOp) -> None:
    if op.locality is not None and not 0 <= op.locality <= 3:
        raise VerifyException(f"locality ranges from 0 to 3, got {op.locality}")
    _verify_hints(op, READ_HINTS, "prefetch")


def _verify_mask(mask: SSAValue | None, tile: TileType) -> None:
    if mask is None:
        return
    kind = vector_type(mask)
    if kind.element_type != i1 or kind.get_shape() != tile.get_shape():
        raise VerifyException(
            f"mask must be a vector of i1 of the tile's shape {extents(tile.get_shape())}, "
            f"got {kind}"
        )


def _verify_scattered_tile(tile: TileType) -> None:
    if not tile.scattered:
        raise VerifyException("Expecting a scattered TileType.")


def verify_load_gather(op: memory.LoadGatherOp) -> None:
    _verify_scattered_tile(op.tile_type)
    _verify_same(vector_type(op.result), op.tile_type, op.tile_type.get_shape(), "result")
    _verify_mask(op.mask, op.tile_type)
    _verify_padding(op.padding, op.tile_type.element_type)
    _verify_hints(op, READ_HINTS, "load")


def verify_store_scatter(op: memory.StoreScatterOp) -> None:
    _verify_scattered_tile(op.tile_type)
    _verify_same(vector_type(op.value), op.tile_type, op.tile_type.get_shape(), "value")
    _verify_mask(op.mask, op.tile_type)
    _verify_hints(op, WRITE_HINTS, "store")


def verify_atomic_rmw(op: memory.AtomicRmwOp) -> None:
    if op.kind not in kinds.ATOMIC_KINDS:
        raise VerifyException(f"unknown kind of atomic: {op.kind.strip('<>')}")
    tile = op.tile_type
    _verify_same(vector_type(op.value), tile, tile.get_shape(), "value")
    if op.result.type != op.value.type:
        raise VerifyException("the result must have the value's type")
    _verify_mask(op.mask, tile)
    if not kinds.accepts(kinds.FLOAT_ATOMICS, kinds.INTEGER_ATOMICS, op.kind, tile.element_type):
        raise VerifyException(f"{op.kind} is not defined on elements of type {tile.element_type}")
