"""xetile-to-xegpu: XeTile becomes XeGPU at the same level, op by op.

Requires: XeTile (workgroup or subgroup level); shared-memory tiles stay inside of their matrix, since
load_matrix does not pad. Guarantees: today's XeGPU text, the same values:

| XeTile | XeGPU |
|---|---|
| init_tile, update_tile_offset | create_nd_tdesc; offsets stand on the memory ops, loops carry them |
| load_tile, store_tile, prefetch_tile | load_nd, store_nd, prefetch_nd (locality stays) |
| padding other than 0 | load_nd, then arith.select by an in-bounds mask |
| order = [0, 1] | a descriptor of the transposed base, and vector.transpose |
| a tile of a 1-D array | a 1-D descriptor and a shape_cast |
| memory_space = 3 | create_mem_desc, load_matrix, store_matrix |
| scattered tile | base and offsets on load, store, atomic_rmw |
| atomic_rmw, masked store on a block | offset vectors with an in-bounds mask |
| masked store, memory_space = 3 | load_matrix, arith.select, store_matrix |
| tile_mma, convert_layout | dpas, convert_layout |
| reduction, broadcast, transpose | vector's, sizes of runs through shape_cast |
| wg_map, sg_map | layout<sg_layout, sg_data, inst_data, lane_layout, lane_data>; on vector ops layout_result_0 |

    %t = xetile.init_tile %a[%m, 0] : ..               %t = xegpu.create_nd_tdesc %a : ..
    %v = xetile.load_tile %t : ..               ->     %v = xegpu.load_nd %t[%m, 0] : ..
    %d = xetile.tile_mma %v, %w, %c : ..               %d = xegpu.dpas %v, %w, %c : ..
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from xdsl.context import Context
from xdsl.dialects import arith, memref, vector
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AffineMapAttr,
    AnyFloat,
    MemRefType,
    ModuleOp,
    StridedLayoutAttr,
    VectorType,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.passes import ModulePass

from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.dialects import xegpu, xetile
from tilewright.dialects.upstream.memref import TransposeOp as MemRefTransposeOp
from tilewright.dialects.xegpu import (
    BlockTensorDescAttr,
    LayoutAttr,
    MemDescType,
    MemLayoutAttr,
    TensorDescType,
)
from tilewright.dialects.xetile import TileType
from tilewright.dialects.xetile.assembly import Index
from tilewright.passes.strided_memrefs import strided_memrefs
from tilewright.passes.xegpu.emit import Before, shape_of, with_shape
from tilewright.passes.xegpu.from_xetile_values import convert_value, layout_of, swapped
from tilewright.passes.xegpu.positions import Placed, PositionRewriter


@dataclass(frozen=True)
class XeTileToXeGPU(ModulePass):
    """See the module's docstring."""

    name = "xetile-to-xegpu"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        strided_memrefs(op)
        for inner in list(op.walk()):
            convert_value(inner)
        PositionRewriter(_Tiles()).run(op.body)


# --- Tiles ---------------------------------------------------------------------------------


@dataclass
class _Base:
    """What a tile's root is: the tile's type and its matrix."""

    tile: TileType
    rank: int
    extents: list[Index] = field(default_factory=list[Index])
    strides: list[Index] = field(default_factory=list[Index])
    source: SSAValue | None = None


class _Tiles:
    """What XeTile's ops are to the splitting into base and position."""

    def __init__(self) -> None:
        self.bases: dict[SSAValue, _Base] = {}
        self.roots: dict[tuple[SSAValue, Attribute], SSAValue] = {}

    def is_moving(self, type: Attribute) -> bool:
        return isinstance(type, TileType)

    def root(self, op: Operation) -> Placed | None:
        if not isinstance(op, xetile.InitTileOp):
            return None
        if op.offset_vector is not None:
            return Placed(op.source, [op.offset_vector])
        root = _slm_root(op) if op.tile_type.memory_space == 3 else _block_root(op)
        extents, strides = _matrix(op)
        self.bases[root] = _Base(op.tile_type, len(op.mixed_offsets), extents, strides, op.source)
        return Placed(root, op.mixed_offsets)

    def moved(self, op: Operation, operand: Placed) -> list[Index] | None:
        if not isinstance(op, xetile.UpdateTileOffsetOp):
            return None
        return [op.offset_vector] if op.offset_vector is not None else op.mixed_offsets

    def access(self, op: Operation, placed: dict[int, Placed]) -> None:
        at = next(iter(placed.values()))
        base = self.bases.get(at.root)
        match op:
            case xetile.LoadTileOp() if base:
                _load(op, at, base)
            case xetile.StoreTileOp() if base:
                _store(op, at, base)
            case xetile.PrefetchTileOp():
                _prefetch(op, at, base)
            case xetile.AtomicRmwOp():
                _atomic(op, at, base)
            case xetile.LoadGatherOp():
                _gather(op, at)
            case xetile.StoreScatterOp():
                _scatter(op, at)
            case _:
                raise error_at(
                    op, f"{op.name} takes a tile, which XeGPU cannot say", kind=UnsupportedError
                )


def _matrix(op: xetile.InitTileOp) -> tuple[list[Index], list[Index]]:
    """Extents and strides of the base matrix."""
    if op.mixed_sizes:
        return op.mixed_sizes, op.mixed_strides
    source = op.source.type
    assert isinstance(source, MemRefType)
    shape = source.get_shape()
    strides = source.get_strides()
    extents: list[Index] = list(shape)
    if DYNAMIC_INDEX in shape or strides is None or None in strides:
        at = Before(op)
        metadata = memref.ExtractStridedMetaDataOp(op.source)
        at.insert(metadata)
        return list(metadata.sizes), list(metadata.strides)
    return extents, [int(s) for s in strides if s is not None]


def _is_column_major(tile: TileType) -> bool:
    return tile.order == (0, 1)


def _tile_layout(tile: TileType) -> LayoutAttr | None:
    layout = layout_of(tile.wg_map, tile.sg_map)
    return swapped(layout) if _is_column_major(tile) else layout


def _block_root(op: xetile.InitTileOp) -> SSAValue:
    """The descriptor of the base; that of a column-major tile describes the transposed base."""
    at = Before(op)
    tile, source = op.tile_type, op.source
    rows = isinstance(source.type, MemRefType) and len(source.type.get_shape()) == 1
    shape: tuple[int, ...] = tile.get_shape()
    sizes, strides = op.mixed_sizes, op.mixed_strides
    layout = _tile_layout(tile)
    if rows:
        shape, layout = shape[1:], None
    elif _is_column_major(tile):
        shape = tuple(reversed(shape))
        sizes, strides = _swap_last(sizes), _swap_last(strides)
        if isinstance(source.type, MemRefType):
            source = _transposed_memref(at, source, source.type)
    encoding = BlockTensorDescAttr(array_length=tile.array_length)
    type = TensorDescType(shape, tile.element_type, encoding, layout)
    new = xegpu.CreateNdDescOp(source, type, shape=sizes or None, strides=strides or None)
    new.result.name_hint = op.result.name_hint
    return at.add(new)


def _swap_last(values: list[Index]) -> list[Index]:
    return [*values[:-2], values[-1], values[-2]] if len(values) > 1 else values


def _transposed_memref(at: Before, source: SSAValue, type: MemRefType[Attribute]) -> SSAValue:
    """The same memory with the two innermost dimensions exchanged."""
    rank = len(type.get_shape())
    order = [*range(rank - 2), rank - 1, rank - 2]
    strides = type.get_strides()
    shape = [type.get_shape()[d] for d in order]
    if strides is None:
        raise error_at(at.op, f"the strides of {type} are not known", kind=UnsupportedError)
    # A dynamic stride is None in both xDSL's list and the layout attribute.
    layout = StridedLayoutAttr([strides[d] for d in order], type.get_offset())
    new = MemRefType(type.element_type, shape, layout, type.memory_space)
    dims = tuple(AffineExpr.dimension(d) for d in order)
    permutation = AffineMapAttr(AffineMap(rank, 0, dims))
    return at.add(MemRefTransposeOp(source, permutation, new))


def _slm_root(op: xetile.InitTileOp) -> SSAValue:
    """The shared memref as a mem_desc."""
    source = op.source.type
    if not isinstance(source, MemRefType):
        raise error_at(op, "a shared-memory tile needs a memref", kind=UnsupportedError)
    shape, strides = source.get_shape(), source.get_strides()
    if DYNAMIC_INDEX in shape or len(shape) < 2 or strides is None or None in strides:
        raise error_at(
            op,
            f"a shared-memory tile needs a static memref of rank 2 or more, got {source}",
            kind=UnsupportedError,
        )
    plain = tuple(prod(shape[d + 1 :]) for d in range(len(shape)))
    given = tuple(int(s) for s in strides if s is not None)
    layout = None if given == plain else MemLayoutAttr(stride=given)
    return Before(op).add(
        xegpu.CreateMemDescOp(op.source, MemDescType(shape, source.element_type, layout))
    )


def _load(op: xetile.LoadTileOp, placed: Placed, base: _Base) -> None:
    at = Before(op)
    tile = op.tile_type
    shape, offsets = tile.get_shape(), placed.parts
    count = tile.array_length
    element = tile.element_type
    blocks: list[SSAValue]
    if isinstance(placed.root.type, MemDescType):
        blocks = [
            at.add(
                xegpu.LoadMatrixOp(
                    placed.root,
                    _beside(at, offsets, n, tile),
                    with_shape(element, _leading(shape, base.rank)),
                    layout_of(tile.wg_map, tile.sg_map),
                )
            )
            for n in range(count)
        ]
        blocks = [at.cast(block, shape) for block in blocks]
    else:
        blocks = _load_blocks(at, op, placed, base)
    if op.padding is not None and op.padding_value != 0:
        padding = at.splat(op.padding_value, VectorType(element, list(shape)))
        for n, block in enumerate(blocks):
            inside = at.inside(_beside(at, offsets, n, tile), base.extents, _fit(shape, base.rank))
            inside = at.cast(inside, shape)
            blocks[n] = at.add(arith.SelectOp(inside, block, padding))
    if op.permutation is not None:
        blocks = [at.transpose(block, op.permutation) for block in blocks]
    at.replace(*blocks)


def _fit(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """The tile's shape in the matrix' rank: a tile of a 1-D array is one row."""
    return shape[len(shape) - rank :] if rank < len(shape) else shape


def _leading(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (*([1] * (rank - len(shape))), *shape)


def _beside(at: Before, offsets: list[Index], number: int, tile: TileType) -> list[Index]:
    """Offsets of the n-th tile of an array of tiles: side by side along the fastest dimension."""
    if number == 0:
        return offsets
    dim = -2 if _is_column_major(tile) else -1
    step = number * tile.get_shape()[dim]
    moved = list(offsets)
    here = moved[dim]
    moved[dim] = here + step if isinstance(here, int) else at.add_index(here, at.index(step))
    return moved


def _load_blocks(at: Before, op: xetile.LoadTileOp, placed: Placed, base: _Base) -> list[SSAValue]:
    tile = op.tile_type
    shape, count = tile.get_shape(), tile.array_length
    column = _is_column_major(tile) and base.rank > 1
    block = tuple(reversed(shape)) if column else shape
    offsets = _swap_last(placed.parts) if column else placed.parts
    loaded = _fit(block, base.rank)
    stacked = loaded if count == 1 else (count, *loaded)
    value = at.add(
        xegpu.LoadNdOp(
            placed.root,
            VectorType(tile.element_type, list(stacked)),
            offsets,
            l1_hint=_hint(op.l1_hint),
            l2_hint=_hint(op.l2_hint),
            l3_hint=_hint(op.l3_hint),
        )
    )
    blocks = [value]
    if count > 1:
        kind = VectorType(tile.element_type, list(loaded))
        blocks = [at.add(vector.ExtractOp(value, [n], kind)) for n in range(count)]
    blocks = [at.cast(each, block) for each in blocks]
    return [at.transpose(each) if column else each for each in blocks]


def _hint(value: xetile.CacheHintAttr | None) -> str | None:
    return None if value is None else value.kind


def _store(op: xetile.StoreTileOp, placed: Placed, base: _Base) -> None:
    at = Before(op)
    tile, offsets, value = op.tile_type, placed.parts, op.value
    if isinstance(placed.root.type, MemDescType):
        shape = _leading(tile.get_shape(), base.rank)
        value = at.cast(value, shape)
        layout = layout_of(tile.wg_map, tile.sg_map)
        if op.mask is not None:
            kind = with_shape(tile.element_type, shape)
            old = at.add(xegpu.LoadMatrixOp(placed.root, offsets, kind, layout))
            value = at.add(arith.SelectOp(at.cast(op.mask, shape), value, old))
        at.insert(xegpu.StoreMatrixOp(value, placed.root, offsets, layout))
        at.replace()
        return
    if op.mask is not None:
        root, where, inside = _addresses(at, placed, base, shape_of(value))
        mask = at.add(arith.AndIOp(op.mask, inside))
        _store_elements(at, op, root, mask, where)
        return
    if _is_column_major(tile) and base.rank > 1:
        value, offsets = at.transpose(value), _swap_last(offsets)
    value = at.cast(value, _fit(shape_of(value), base.rank))
    at.insert(
        xegpu.StoreNdOp(
            value,
            placed.root,
            offsets,
            l1_hint=_hint(op.l1_hint),
            l2_hint=_hint(op.l2_hint),
            l3_hint=_hint(op.l3_hint),
        )
    )
    at.replace()


def _prefetch(op: xetile.PrefetchTileOp, placed: Placed, base: _Base | None) -> None:
    at = Before(op)
    hints = {"l1": _hint(op.l1_hint), "l2": _hint(op.l2_hint), "l3": _hint(op.l3_hint)}
    if base is not None and not isinstance(placed.root.type, MemDescType):
        column = _is_column_major(op.tile_type) and base.rank > 1
        offsets = _swap_last(placed.parts) if column else placed.parts
        at.insert(
            xegpu.PrefetchNdOp(
                placed.root,
                offsets,
                op.locality,
                l1_hint=hints["l1"],
                l2_hint=hints["l2"],
                l3_hint=hints["l3"],
            )
        )
    # Shared memory has no cache, and the prefetch of single elements is not worth its cost.
    at.replace()


# --- Scattered -------------------------------------------------------------------------------


def _wanted(at: Before, mask: SSAValue | None, placed: Placed) -> SSAValue | None:
    """Of scattered elements those that are asked for and lie in their array (a bare pointer's has no end); None: all.

    XeGPU leaves what lies outside undefined, XeTile has it padded or dropped.
    """
    array = placed.root.type
    if not isinstance(array, MemRefType):
        return mask
    extent = next(iter(array.get_shape()), 1)
    if extent == DYNAMIC_INDEX:
        length = at.add(memref.DimOp(placed.root, at.index(0)))
    else:
        length = at.index(extent)
    offsets = _offsets(placed)
    # As in `Before.inside`, one unsigned comparison holds both bounds.
    inside = at.add(arith.CmpiOp(offsets, at.broadcast(length, shape_of(offsets)), "ult"))
    return inside if mask is None else at.add(arith.AndIOp(mask, inside))


def _mask(at: Before, mask: SSAValue | None, shape: tuple[int, ...]) -> SSAValue:
    return at.all_true(shape) if mask is None else mask


def _offsets(placed: Placed) -> SSAValue:
    offsets = placed.parts[0]
    assert isinstance(offsets, SSAValue)
    return offsets


def _gather(op: xetile.LoadGatherOp, placed: Placed) -> None:
    at = Before(op)
    result = op.result.type
    assert isinstance(result, VectorType)
    wanted = _wanted(at, op.mask, placed)
    mask = _mask(at, wanted, result.get_shape())
    value = at.add(
        xegpu.LoadGatherOp(
            placed.root,
            mask,
            result,
            offsets=_offsets(placed),
            l1_hint=_hint(op.l1_hint),
            l2_hint=_hint(op.l2_hint),
            l3_hint=_hint(op.l3_hint),
        )
    )
    if wanted is not None:
        # Masked-off lanes of xegpu.load are unspecified, those of XeTile's gather are the padding.
        padding = at.splat(op.padding_value, result)
        value = at.add(arith.SelectOp(mask, value, padding))
    at.replace(value)


def _scatter(op: xetile.StoreScatterOp, placed: Placed) -> None:
    at = Before(op)
    mask = _mask(at, _wanted(at, op.mask, placed), shape_of(op.value))
    _store_elements(at, op, placed.root, mask, _offsets(placed))


def _store_elements(
    at: Before,
    op: xetile.StoreTileOp | xetile.StoreScatterOp,
    root: SSAValue,
    mask: SSAValue,
    offsets: SSAValue,
) -> None:
    at.insert(
        xegpu.StoreScatterOp(
            op.value,
            root,
            mask,
            offsets=offsets,
            l1_hint=_hint(op.l1_hint),
            l2_hint=_hint(op.l2_hint),
            l3_hint=_hint(op.l3_hint),
        )
    )
    at.replace()


def _atomic(op: xetile.AtomicRmwOp, placed: Placed, base: _Base | None) -> None:
    at = Before(op)
    shape = shape_of(op.value)
    mask = op.mask
    if base is None:
        root, offsets = placed.root, _offsets(placed)
        mask = _wanted(at, mask, placed)
    else:
        root, offsets, inside = _addresses(at, placed, base, shape)
        mask = inside if mask is None else at.add(arith.AndIOp(mask, inside))
    mask = _mask(at, mask, shape)
    old = at.add(xegpu.AtomicRMWOp(op.kind, op.value, root, mask, offsets=offsets))
    zero: float | int = 0.0 if isinstance(_element(op.value), AnyFloat) else 0
    kind = old.type
    assert isinstance(kind, VectorType)
    at.replace(at.add(arith.SelectOp(mask, old, at.splat(zero, kind))))


def _element(value: SSAValue) -> Attribute:
    assert isinstance(value.type, VectorType)
    return value.type.element_type


def _addresses(
    at: Before, placed: Placed, base: _Base, shape: tuple[int, ...]
) -> tuple[SSAValue, SSAValue, SSAValue]:
    """A block as scattered elements: 1-D base, offsets, and which elements are in the matrix."""
    box = _fit(shape, base.rank)
    offsets = at.cast(at.linear(placed.parts, base.strides, box), shape)
    inside = at.cast(at.inside(placed.parts, base.extents, box), shape)
    source = base.source
    assert source is not None
    if isinstance(source.type, MemRefType) and len(source.type.get_shape()) > 1:
        source = _flattened(at, source, source.type, base)
    return source, offsets, inside


def _flattened(at: Before, source: SSAValue, type: MemRefType[Attribute], base: _Base) -> SSAValue:
    """The matrix as a 1-D memref that reaches as far as its last element."""
    length: Index = 1
    for extent, stride in zip(base.extents, base.strides, strict=True):
        if all(isinstance(v, int) for v in (length, extent, stride)):
            length = length + (extent - 1) * stride  # pyright: ignore[reportOperatorIssue]
            continue
        last = at.add(arith.SubiOp(at.index(extent), at.index(1)))
        reach = at.add(arith.MuliOp(last, at.index(stride)))
        length = at.add_index(at.index(length), reach)
    static = isinstance(length, int)
    offset = type.get_offset()
    flat = MemRefType(
        type.element_type,
        [length if isinstance(length, int) else DYNAMIC_INDEX],
        StridedLayoutAttr([1], offset),
        type.memory_space,
    )
    if offset is None:
        raise error_at(
            at.op, f"the offset of {type} is not known at compile time", kind=UnsupportedError
        )
    return at.add(
        memref.ReinterpretCastOp(
            source,
            [],
            [] if static else [at.index(length)],
            [],
            [offset],
            [length if isinstance(length, int) else DYNAMIC_INDEX],
            [1],
            flat,
        )
    )
