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

from math import prod

from xdsl.dialects import func, gpu, memref, vector
from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, BoolAttr, MemRefType, VectorType
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import Rewriter

from tilewright.dialects import xetile
from tilewright.dialects.movement import shape_of
from tilewright.dialects.upstream.arith import constant
from tilewright.dialects.upstream.combining import neutral
from tilewright.dialects.upstream.vector import ContractionOp, GatherOp, MultiReductionOp, ScatterOp
from tilewright.passes.carry_offsets import carry_offsets
from tilewright.passes.emit import Before, with_shape

PRODUCT = tuple(
    AffineMapAttr(AffineMap.from_callable(each))
    for each in (lambda m, n, k: (m, k), lambda m, n, k: (k, n), lambda m, n, k: (m, n))  # pyright: ignore
)
"""Maps of a product of matrices."""


def xetile_to_vector(function: gpu.FuncOp | func.FuncOp) -> None:
    """Rewrites one function or kernel, in place."""
    carry_offsets(function)
    ops = list(function.walk())
    for op in ops:
        if op.name.startswith("xetile.") and not isinstance(op, xetile.InitTileOp):
            _rewrite(op, Before(op))
    for op in ops:
        if isinstance(op, xetile.InitTileOp):
            Rewriter.erase_op(op)


def _rewrite(op: Operation, at: Before) -> None:
    match op:
        case xetile.LoadTileOp():
            at.replace(_load(op, at))
        case xetile.StoreTileOp():
            _store(op, at)
            at.replace()
        case xetile.LoadGatherOp():
            kind = op.result.type
            mask, other = _mask(op, at, kind), at.constant(kind, op.padding_value)
            at.replace(at.add(GatherOp(*_addresses(op, at), mask, other)))
        case xetile.StoreScatterOp():
            memory, first, places = _addresses(op, at)
            count = [prod(shape_of(op.value))]
            moved = (at.cast(v, count) for v in (places, _mask(op, at, op.value.type), op.value))
            at.insert(ScatterOp(memory, first, *moved))
            at.replace()
        case xetile.PrefetchTileOp():
            at.replace()
        case xetile.TileMmaOp():
            sums = at.constant(op.result.type, 0) if op.c is None else op.c
            kinds = ("parallel", "parallel", "reduction")
            at.replace(at.add(ContractionOp(op.a, op.b, sums, PRODUCT, kinds)))
        case xetile.ConvertLayoutOp():
            at.replace(op.source)
        case xetile.TransposeOp() | xetile.BroadcastOp() | xetile.ReductionOp():
            at.replace(rearranged(op, at))
        case _:
            raise at.refuse("has no form in vector")


# Values. --------------------------------------------------------------------------------------------------------


def rearranged(
    op: xetile.TransposeOp | xetile.BroadcastOp | xetile.ReductionOp, at: Before
) -> SSAValue:
    """What a transpose, a broadcast or a reduction of XeTile gives, by vector's ops."""
    match op:
        case xetile.TransposeOp():
            return at.transpose(op.value, op.permutation)
        case xetile.BroadcastOp() if op.broadcast_size is not None:
            return at.repeated(op.source, op.dims[0], op.broadcast_size)
        case xetile.BroadcastOp():
            return at.broadcast(op.source, op.result.type.get_shape())
        case xetile.ReductionOp():
            return _reduced(op, at)


def _reduced(op: xetile.ReductionOp, at: Before) -> SSAValue:
    source, result = op.source, op.result.type
    shape, dims = list(shape_of(source)), sorted(op.dims)
    if (size := op.reduction_size) is not None:
        # [M, N] -> [M, N / s, s]: the runs become a dimension of their own.
        dim = dims[0]
        shape[dim : dim + 1] = [shape[dim] // size, size]
        source, dims = at.cast(source, shape), [dim + 1]
    kept = [extent for d, extent in enumerate(shape) if d not in dims]
    element = result.element_type
    acc = at.constant(VectorType(element, kept or [1]), neutral(op.kind, element))
    if not kept:
        acc = at.add(vector.ExtractOp(acc, [0], element))
    reduced = at.add(MultiReductionOp(op.kind, source, acc, dims))
    return (at.cast if kept else at.broadcast)(reduced, result.get_shape())


# Tiles. ---------------------------------------------------------------------------------------------------------


def _made(tile: SSAValue) -> xetile.InitTileOp:
    """The op that makes a tile, which is one of a whole memref."""
    init = tile.owner
    assert isinstance(init, xetile.InitTileOp)
    at, kind = Before(init), init.source.type
    if not isinstance(kind, MemRefType):
        raise at.refuse("a tile of an address", "give a memref")
    for axis, size in enumerate(init.mixed_sizes):
        made = size.owner if isinstance(size, SSAValue) else None
        whole = (
            isinstance(made, memref.DimOp)
            and made.source is init.source
            and constant(made.index) == axis
        )
        if not whole and size != kind.get_shape()[axis]:
            hint = "take a memref.subview of that part"
            raise at.refuse("its matrix is not the whole memref", hint)
    return init


def _transfer(
    init: xetile.InitTileOp, at: Before, kind: VectorType
) -> tuple[list[SSAValue], VectorType, ArrayAttr[BoolAttr], AffineMapAttr]:
    """Where a transfer begins, and its type, of one dimension where the memref has one, bounds and map."""
    offsets = init.mixed_offsets
    rank = min(2, len(offsets))
    return (
        [at.index(o) for o in offsets],
        with_shape(kind, kind.get_shape()[-rank:]),
        ArrayAttr([BoolAttr.from_bool(False)] * rank),
        AffineMapAttr(AffineMap.minor_identity(len(offsets), rank)),
    )


def _load(op: xetile.LoadTileOp, at: Before) -> SSAValue:
    if len(op.values) != 1:
        raise at.refuse("several tiles at once (array_length)", "load them one by one")
    init, tile = _made(op.tile), op.tile_type
    whole = VectorType(tile.element_type, tile.get_shape())
    first, kind, inside, map_ = _transfer(init, at, whole)
    padding = at.constant(tile.element_type, op.padding_value)
    read = vector.TransferReadOp(init.source, first, padding, kind, inside, map_)
    loaded = at.cast(at.add(read), whole.get_shape())
    return loaded if op.permutation is None else at.transpose(loaded, op.permutation)


def _store(op: xetile.StoreTileOp, at: Before) -> None:
    if op.mask is not None:
        raise at.refuse("a mask", "select what was there, and store that")
    init = _made(op.tile)
    first, kind, inside, map_ = _transfer(init, at, op.value.type)
    value = at.cast(op.value, kind.get_shape())
    at.insert(vector.TransferWriteOp(value, init.source, first, inside, permutation_map=map_))


def _addresses(
    op: xetile.LoadGatherOp | xetile.StoreScatterOp, at: Before
) -> tuple[SSAValue, list[SSAValue], SSAValue]:
    init = _made(op.tile)
    if init.source.type.get_num_dims() != 1:  # pyright: ignore
        raise at.refuse("scattered elements of a memref of several dimensions", "collapse it first")
    assert init.offset_vector is not None
    return init.source, [at.index(0)], init.offset_vector


def _mask(
    op: xetile.LoadGatherOp | xetile.StoreScatterOp, at: Before, kind: VectorType
) -> SSAValue:
    return at.all_true(kind.get_shape()) if op.mask is None else op.mask
