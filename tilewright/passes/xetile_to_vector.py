"""xetile-to-vector: tiles become transfers of vectors, products vector.contract, for hardware without matrix units.

    %t = xetile.init_tile %a[%i, 0] : memref<64x32xf32> -> !xetile.tile<16x32xf32>
    %v = xetile.load_tile %t : ..                          ->   %v = vector.transfer_read %a[%i, %c0], %zero : ..
    %d = xetile.tile_mma %v, %w, %c : ..                        %d = vector.contract {..} %v, %w, %c : ..
    xetile.store_tile %d, %s : ..                               vector.transfer_write %d, %m[%i, %j] : ..

A tile is a memref and offsets: loops carry the offsets. `in_bounds` is false everywhere, as a tile may reach outside.
Requires: XeTile of a workgroup or a subgroup. Guarantees: the same results, and upstream dialects alone. Maps and
prefetches go. Raises UnsupportedError for atomics, tiles of an address, and a matrix that is only part of a memref.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

from xdsl.dialects import func, gpu, memref, vector
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    BoolAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    MemRefType,
    VectorType,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.ir.affine import AffineMap

from tilewright.dialects import xetile
from tilewright.dialects.movement import shape_of
from tilewright.dialects.numerals import dense, number_attr
from tilewright.dialects.upstream.arith import constant
from tilewright.dialects.upstream.combining import neutral
from tilewright.dialects.upstream.vector import (
    ContractionOp,
    GatherOp,
    MultiReductionOp,
    ScatterOp,
    ShapeCastOp,
    TransposeOp,
)
from tilewright.dialects.xetile.assembly import Index
from tilewright.frozen import frozen
from tilewright.passes.carry_offsets import carry_offsets
from tilewright.passes.emit import with_shape
from tilewright.passes.new_body import NewBody
from tilewright.rules import Rules

rule: Rules[Any] = Rules()
PRODUCT = tuple(
    AffineMapAttr(AffineMap.from_callable(each))
    for each in (lambda m, n, k: (m, k), lambda m, n, k: (k, n), lambda m, n, k: (m, n))  # pyright: ignore
)
"""Maps of a product of matrices."""


def xetile_to_vector(function: gpu.FuncOp | func.FuncOp) -> None:
    """Rewrites one function or kernel, in place."""
    carry_offsets(function)
    _ToVector().kernel(function)


@frozen
class _Tile:
    """What a tile is made of: a memref, and where the tile begins or, scattered, where each element is."""

    memory: SSAValue
    offsets: tuple[Index, ...]
    scattered: bool = False


class _ToVector(NewBody):
    rules: ClassVar[Rules[Any]] = rule

    def __init__(self) -> None:
        super().__init__()
        self.tiles: dict[SSAValue, _Tile] = {}

    def unruled(self, op: Operation) -> None:
        self.keep(op)

    def convert(self, op: Operation) -> None:
        known = rule.of(op.name) is not None
        if op.name.startswith("xetile.") and not known:
            raise self.refuse("has no form in vector")
        super().convert(op)

    def number(self, attribute: Attribute | None, kind: Attribute) -> SSAValue:
        """A constant of a type: of an attribute, else 0."""
        data = attribute.value.data if isinstance(attribute, IntegerAttr | FloatAttr) else 0
        return self.constant(number_attr(kind, data))

    def splat(self, kind: VectorType, number: int | float) -> SSAValue:
        return self.constant(dense(kind, [number]))

    def cast(self, value: SSAValue, shape: Sequence[int]) -> SSAValue:
        if shape_of(value) == tuple(shape):
            return value
        return self.add(ShapeCastOp(value, with_shape(value.type, shape)))


@rule("xetile.init_tile")
def _init(d: _ToVector, op: xetile.InitTileOp) -> None:
    source = op.source
    if not isinstance(source.type, MemRefType):
        raise d.refuse("a tile of an address", "give a memref")
    for axis, size in enumerate(op.mixed_sizes):
        made = size.owner if isinstance(size, SSAValue) else None
        whole = (
            isinstance(made, memref.DimOp)
            and made.source is source
            and constant(made.index) == axis
        )
        if not whole and size != source.type.get_shape()[axis]:
            raise d.refuse(
                "its matrix is not the whole memref", "take a memref.subview of that part"
            )
    if op.offset_vector is not None:
        d.tiles[op.result] = _Tile(d.same(source), (d.same(op.offset_vector),), scattered=True)
        return
    offsets = [d.same(o) if isinstance(o, SSAValue) else o for o in op.mixed_offsets]
    d.tiles[op.result] = _Tile(d.same(source), tuple(offsets))


@rule("xetile.load_tile")
def _load(d: _ToVector, op: xetile.LoadTileOp) -> None:
    if len(op.values) != 1:
        raise d.refuse("several tiles at once (array_length)", "load them one by one")
    tile = d.tiles[op.tile]
    kind = VectorType(op.tile_type.element_type, op.tile_type.get_shape())
    padding = d.number(op.padding, kind.element_type)
    loaded = d.add(
        vector.TransferReadOp(
            tile.memory, [d.index(o) for o in tile.offsets], padding, _transferred(tile, kind),
            _outside(tile), _minor(tile),
        )
    )  # fmt: skip
    loaded = d.cast(loaded, kind.get_shape())
    if op.permutation is not None:
        loaded = d.add(TransposeOp(loaded, list(op.permutation)))
    d.env[op.result] = loaded


@rule("xetile.store_tile")
def _store(d: _ToVector, op: xetile.StoreTileOp) -> None:
    tile, value = d.tiles[op.tile], d.same(op.value)
    assert isinstance(value.type, VectorType)
    if op.mask is not None:
        raise d.refuse("a mask", "select what was there, and store that")
    kind = _transferred(tile, value.type)
    d.put(
        vector.TransferWriteOp(
            d.cast(value, kind.get_shape()), tile.memory, [d.index(o) for o in tile.offsets],
            _outside(tile), permutation_map=_minor(tile),
        )
    )  # fmt: skip


def _transferred(tile: _Tile, kind: VectorType) -> VectorType:
    """A tile of a memref of one dimension is its one row."""
    rank = min(2, len(tile.offsets))
    return with_shape(kind, kind.get_shape()[-rank:])


def _minor(tile: _Tile) -> AffineMapAttr:
    rank = len(tile.offsets)
    return AffineMapAttr(AffineMap.minor_identity(rank, min(2, rank)))


def _outside(tile: _Tile) -> ArrayAttr[BoolAttr]:
    return ArrayAttr([BoolAttr.from_bool(False)] * min(2, len(tile.offsets)))


@rule("xetile.prefetch_tile")
def _prefetch(d: _ToVector, op: Operation) -> None:
    """It changes nothing."""


@rule("xetile.convert_layout")
def _same(d: _ToVector, op: xetile.ConvertLayoutOp) -> None:
    d.env[op.result] = d.same(op.source)


@rule("xetile.tile_mma")
def _product(d: _ToVector, op: xetile.TileMmaOp) -> None:
    kind = op.result.type
    sums = d.constant(number_attr(kind, 0)) if op.c is None else d.same(op.c)
    kinds = ("parallel", "parallel", "reduction")
    d.env[op.result] = d.add(ContractionOp(d.same(op.a), d.same(op.b), sums, PRODUCT, kinds))


@rule("xetile.transpose")
def _transpose(d: _ToVector, op: xetile.TransposeOp) -> None:
    d.env[op.result] = d.add(TransposeOp(d.same(op.operands[0]), list(op.permutation)))


@rule("xetile.reduction")
def _reduction(d: _ToVector, op: xetile.ReductionOp) -> None:
    """A partial reduction splits its dimension in two, of which one is left."""
    source, kept, away = d.same(op.source), list[int](), list[int]()
    for axis, n in enumerate(shape_of(source)):
        size = op.reduction_size or n
        if axis in op.dims:
            away.append(len(kept) + 1)
            kept += [n // size, size]
        else:
            kept.append(n)
    result = op.result.type
    left = [n for place, n in enumerate(kept) if place not in away]
    element = result.element_type
    start = d.splat(with_shape(result, left), neutral(op.kind, element))
    d.env[op.result] = d.add(MultiReductionOp(op.kind, d.cast(source, kept), start, away))


@rule("xetile.broadcast")
def _broadcast(d: _ToVector, op: xetile.BroadcastOp) -> None:
    """Elements that are repeated in a row get a dimension of their own."""
    source, result = d.same(op.source), op.result.type
    if op.broadcast_size is None:
        d.env[op.result] = d.add(vector.BroadcastOp(source, result))
        return
    narrow, wide = list[int](), list[int]()
    for axis, n in enumerate(shape_of(source)):
        narrow += [n, 1] if axis in op.dims else [n]
        wide += [n, op.broadcast_size] if axis in op.dims else [n]
    spread = d.add(vector.BroadcastOp(d.cast(source, narrow), with_shape(result, wide)))
    d.env[op.result] = d.cast(spread, result.get_shape())


@rule("xetile.load")
def _gather(d: _ToVector, op: xetile.LoadGatherOp) -> None:
    tile, kind = d.tiles[op.tile], op.result.type
    padding = op.padding.value.data if isinstance(op.padding, IntegerAttr | FloatAttr) else 0
    d.env[op.result] = d.add(
        GatherOp(*_addresses(d, tile), _mask(d, op.mask, kind), d.splat(kind, padding))
    )


@rule("xetile.store")
def _scatter(d: _ToVector, op: xetile.StoreScatterOp) -> None:
    tile, value = d.tiles[op.tile], d.same(op.value)
    mask = _mask(d, op.mask, op.value.type)
    memory, at, places = _addresses(d, tile)
    count = [prod(shape_of(value))]
    d.put(ScatterOp(memory, at, d.cast(places, count), d.cast(mask, count), d.cast(value, count)))


def _addresses(d: _ToVector, tile: _Tile) -> tuple[SSAValue, list[SSAValue], SSAValue]:
    if not isinstance(tile.memory.type, MemRefType) or tile.memory.type.get_num_dims() != 1:
        raise d.refuse("scattered elements of a memref of several dimensions", "collapse it first")
    return tile.memory, [d.index(0)], d.index(tile.offsets[0])


def _mask(d: _ToVector, mask: SSAValue | None, kind: Attribute) -> SSAValue:
    if mask is not None:
        return d.same(mask)
    assert isinstance(kind, VectorType)
    return d.splat(VectorType(IntegerType(1), kind.get_shape()), 1)
