"""xetile-to-xegpu: XeTile becomes XeGPU at the same level, op by op.

Requires: XeTile (workgroup or subgroup level). Guarantees: today's XeGPU text, the same values:

| XeTile | XeGPU |
|---|---|
| init_tile, update_tile_offset | create_nd_tdesc; offsets stand on the memory ops, loops carry them |
| load_tile, store_tile, prefetch_tile | load_nd, store_nd, prefetch_nd (locality stays) |
| padding other than 0 | load_nd, then arith.select by an in-bounds mask |
| order = [0, 1] | a descriptor of the transposed base, and vector.transpose |
| a tile of a 1-D array | a 1-D descriptor and a shape_cast |
| memory_space = 3 | create_mem_desc, load_matrix, store_matrix, which know no bounds: |
| the same, perhaps reaching outside | offset vectors with an in-bounds mask |
| scattered tile | base and offsets on load, store, atomic_rmw |
| atomic_rmw, masked store on a block | offset vectors with an in-bounds mask |
| masked store, memory_space = 3 | load_matrix, arith.select, store_matrix |
| tile_mma, convert_layout | dpas, convert_layout |
| reduction, broadcast, transpose | vector's, sizes of runs through shape_cast |
| wg_map, sg_map | layout<sg_layout, sg_data, inst_data, lane_layout, lane_data>; on vector ops layout_result_0 |

    %t = xetile.init_tile %a[%m, 0] : ..               %t = xegpu.create_nd_tdesc %a : ..
    %v = xetile.load_tile %t : ..               ->     %v = xegpu.load_nd %t[%m, 0] : ..
    %d = xetile.tile_mma %v, %w, %c : ..               %d = xegpu.dpas %v, %w, %c : ..

Scattered tiles, blocks with a mask, and blocks of shared memory that may reach outside of it are accessed element by
element. An element is accessed where it is asked for and lies in its array: XeTile has the others padded or dropped,
XeGPU leaves undefined what is read or written outside.

    %t = xetile.init_tile %a, %at : memref<?xf32>, ..     %n = memref.dim %a, %c0
    %v = xetile.load %t                             ->    %inside = arith.cmpi ult, %at, broadcast(%n)
                                                          %r = xegpu.load %a[%at], %inside
                                                          %v = arith.select %inside, %r, 0.0
"""

from __future__ import annotations

from typing import Any

from xdsl.dialects import arith, memref, vector
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AffineMapAttr,
    AnyFloat,
    IndexType,
    MemRefType,
    ModuleOp,
    StridedLayoutAttr,
    VectorType,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.rewriter import Rewriter

from tilewright.diagnostics import unsupported
from tilewright.dialects import xegpu, xetile
from tilewright.dialects.cache_hints import hints_of
from tilewright.dialects.movement import shape_of, vector_type
from tilewright.dialects.upstream.arith import element as element_of
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
from tilewright.frozen import field, record
from tilewright.layout.digits import row_strides
from tilewright.passes.carry_offsets import carry_offsets
from tilewright.passes.emit import Before, with_shape
from tilewright.passes.pipeline import Pass, Unit
from tilewright.passes.positions import Placed
from tilewright.passes.strided_memrefs import strided_memrefs
from tilewright.passes.vector_elements import flattened, matrix_of
from tilewright.passes.xegpu.facts import inside
from tilewright.passes.xegpu.from_xetile_values import convert_value, layout_of, swapped


def xetile_to_xegpu(module: ModuleOp) -> None:
    """Converts XeTile to XeGPU, op by op."""
    strided_memrefs(module)
    for inner in list(module.walk()):
        convert_value(inner)
    carry_offsets(module)
    tiles: dict[SSAValue, tuple[Placed, Base | None]] = {}
    for inner in list(module.walk()):
        if isinstance(inner, xetile.InitTileOp):
            tiles[inner.result] = _placed(inner)
        elif (found := next((tiles[v] for v in inner.operands if v in tiles), None)) is not None:
            _access(inner, *found)
    for tile in tiles:
        Rewriter.erase_op(tile.owner)  # pyright: ignore[reportArgumentType]


# --- Tiles ---------------------------------------------------------------------------------


def _placed(op: xetile.InitTileOp) -> tuple[Placed, Base | None]:
    """A tile as a place in a descriptor or shared matrix, or as scattered elements (no base)."""
    if op.offset_vector is not None:
        return Placed(op.source, [op.offset_vector]), None
    if isinstance(op.tile_type.element_type, IndexType):
        hint = "an array of i64 holds the same numbers"
        raise unsupported(op, "an array of index has no descriptor", hint=hint)
    root = _slm_root(op) if op.tile_type.memory_space == 3 else _block_root(op)
    extents, strides = _matrix(op)
    offsets = op.mixed_offsets
    if isinstance(root.type, MemDescType) and len(offsets) == 1:  # one row of a matrix
        extents, strides, offsets = [1, *extents], [extents[0], *strides], [0, *offsets]
    return Placed(root, offsets), Base(op.tile_type, len(offsets), extents, strides, op.source)


def _access(op: Operation, at: Placed, base: Base | None) -> None:
    match op:
        case xetile.LoadTileOp() if base:
            _load(op, at, base)
        case xetile.StoreTileOp() if base:
            _store(op, at, base)
        case xetile.PrefetchTileOp():
            _prefetch(op, at, base)
        case xetile.AtomicRmwOp():
            atomic(op, at, base)
        case xetile.LoadGatherOp():
            gather(op, at)
        case xetile.StoreScatterOp():
            scatter(op, at)
        case _:
            raise unsupported(op, f"{op.name} takes a tile, which XeGPU cannot express")


def _matrix(op: xetile.InitTileOp) -> tuple[list[Index], list[Index]]:
    """Extents and strides of the base matrix."""
    if op.mixed_sizes:
        return op.mixed_sizes, op.mixed_strides
    return matrix_of(Before(op), op.source)


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
        raise unsupported(at.op, f"the strides of {type} are not known")
    # A dynamic stride is None in both xDSL's list and the layout attribute.
    layout = StridedLayoutAttr([strides[d] for d in order], type.get_offset())
    new = MemRefType(type.element_type, shape, layout, type.memory_space)
    dims = tuple(AffineExpr.dimension(d) for d in order)
    permutation = AffineMapAttr(AffineMap(rank, 0, dims))
    return at.add(MemRefTransposeOp(source, permutation, new))


def _slm_root(op: xetile.InitTileOp) -> SSAValue:
    """The shared memref as a mem_desc: one of rank 1 as a row."""
    source = op.source.type
    if not isinstance(source, MemRefType):
        raise unsupported(op, "a shared-memory tile needs a memref")
    shape, strides = source.get_shape(), source.get_strides()
    if DYNAMIC_INDEX in shape or not shape or strides is None or None in strides:
        raise unsupported(
            op, f"a shared-memory tile needs a static memref of rank 1 or more, got {source}"
        )
    if len(shape) == 1:
        shape, strides = (1, *shape), (shape[0] * int(strides[0] or 1), *strides)
    given = tuple(int(s) for s in strides if s is not None)
    layout = None if given == row_strides(shape) else MemLayoutAttr(stride=given)
    return Before(op).add(
        xegpu.CreateMemDescOp(op.source, MemDescType(shape, source.element_type, layout))
    )


def _load(op: xetile.LoadTileOp, placed: Placed, base: Base) -> None:
    at = Before(op)
    tile = op.tile_type
    shape, offsets = tile.get_shape(), placed.parts
    count = tile.array_length
    element = tile.element_type
    blocks: list[SSAValue] = []
    if isinstance(placed.root.type, MemDescType):
        kept, layout = _stays_inside(placed, base), layout_of(tile.wg_map, tile.sg_map)
        for n in range(count):
            beside = _beside(at, offsets, n, tile)
            if kept:
                kind = with_shape(element, _leading(shape, base.rank))
                block = at.add(xegpu.LoadMatrixOp(placed.root, kind, beside, layout=layout))
                blocks.append(at.cast(block, shape))
                continue
            root, where, mask = addresses(at, Placed(placed.root, beside), base, shape)
            kind = VectorType(element, list(shape))
            blocks.append(load_elements(at, op, root, mask, where, kind))
    else:
        blocks = _load_blocks(at, op, placed, base)
    if op.padding is not None and op.padding_value != 0 and base.tile.memory_space != 3:
        padding = at.constant(VectorType(element, list(shape)), op.padding_value)
        for n, block in enumerate(blocks):
            mask = at.inside(_beside(at, offsets, n, tile), base.extents, fit(shape, base.rank))
            mask = at.cast(mask, shape)
            blocks[n] = at.add(arith.SelectOp(mask, block, padding))
    if op.permutation is not None:
        blocks = [at.transpose(block, op.permutation) for block in blocks]
    at.replace(*blocks)


def _stays_inside(placed: Placed, base: Base) -> bool:
    """Is a tile of shared memory, side by side ones too, known to lie in its matrix?"""
    tile = base.tile
    shape = list(_leading(tile.get_shape(), base.rank))
    shape[-2 if _is_column_major(tile) else -1] *= tile.array_length
    return all(map(inside, placed.parts, shape, base.extents))


def _leading(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (*([1] * (rank - len(shape))), *shape)


def _beside(at: Before, offsets: list[Index], number: int, tile: TileType) -> list[Index]:
    """Offsets of the n-th tile of an array of tiles: side by side along the fastest dimension."""
    if number == 0:
        return offsets
    rows, columns = tile.get_shape()
    return at.shifted(
        offsets, (number * rows, 0) if _is_column_major(tile) else (number * columns,)
    )


def _load_blocks(at: Before, op: xetile.LoadTileOp, placed: Placed, base: Base) -> list[SSAValue]:
    tile = op.tile_type
    shape, count = tile.get_shape(), tile.array_length
    column = _is_column_major(tile) and base.rank > 1
    block = tuple(reversed(shape)) if column else shape
    offsets = _swap_last(placed.parts) if column else placed.parts
    loaded = fit(block, base.rank)
    stacked = loaded if count == 1 else (count, *loaded)
    value = at.add(
        xegpu.LoadNdOp(
            placed.root, VectorType(tile.element_type, list(stacked)), offsets, hints=hints_of(op)
        )
    )
    blocks = [value]
    if count > 1:
        kind = VectorType(tile.element_type, list(loaded))
        blocks = [at.add(vector.ExtractOp(value, [n], kind)) for n in range(count)]
    blocks = [at.cast(each, block) for each in blocks]
    return [at.transpose(each) if column else each for each in blocks]


def _store(op: xetile.StoreTileOp, placed: Placed, base: Base) -> None:
    at = Before(op)
    tile, offsets, value = op.tile_type, placed.parts, op.value
    shared = isinstance(placed.root.type, MemDescType)
    if shared and _stays_inside(placed, base):
        shape = _leading(tile.get_shape(), base.rank)
        value = at.cast(value, shape)
        layout = layout_of(tile.wg_map, tile.sg_map)
        if op.mask is not None:
            kind = with_shape(tile.element_type, shape)
            old = at.add(xegpu.LoadMatrixOp(placed.root, kind, offsets, layout=layout))
            value = at.add(arith.SelectOp(at.cast(op.mask, shape), value, old))
        at.insert(xegpu.StoreMatrixOp(value, placed.root, offsets, layout=layout))
        at.replace()
        return
    if op.mask is not None or shared:
        root, where, mask = addresses(at, placed, base, shape_of(value))
        store_elements(at, op, root, at.also(op.mask, mask), where)
        return
    if _is_column_major(tile) and base.rank > 1:
        value, offsets = at.transpose(value), _swap_last(offsets)
    value = at.cast(value, fit(shape_of(value), base.rank))
    at.insert(xegpu.StoreNdOp(value, placed.root, offsets, hints=hints_of(op)))
    at.replace()


def _prefetch(op: xetile.PrefetchTileOp, placed: Placed, base: Base | None) -> None:
    at = Before(op)
    if base is not None and not isinstance(placed.root.type, MemDescType):
        column = _is_column_major(op.tile_type) and base.rank > 1
        offsets = _swap_last(placed.parts) if column else placed.parts
        at.insert(xegpu.PrefetchNdOp(placed.root, offsets, op.locality, hints=hints_of(op)))
    # Shared memory has no cache, and the prefetch of single elements is not worth its cost.
    at.replace()


XETILE_TO_XEGPU = Pass[Unit[Any]](
    "xetile-to-xegpu", xetile_to_xegpu, ("workgroup", "subgroup"), "module"
)


# --- Element by element ---------------------------------------------------------------------------


@record
class Base:
    """What a tile's root is: the tile's type and its matrix."""

    tile: TileType
    rank: int
    extents: list[Index] = field(default_factory=list[Index])
    strides: list[Index] = field(default_factory=list[Index])
    source: SSAValue | None = None


def fit(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """The tile's shape in the matrix' rank: a tile of a 1-D array is one row."""
    return shape[len(shape) - rank :] if rank < len(shape) else shape


def _wanted(at: Before, mask: SSAValue | None, placed: Placed) -> SSAValue | None:
    """Of scattered elements those that are asked for and lie in their array (a pointer's has no end); None: all."""
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
    return at.also(mask, inside)


def _mask(at: Before, mask: SSAValue | None, shape: tuple[int, ...]) -> SSAValue:
    return at.all_true(shape) if mask is None else mask


def _offsets(placed: Placed) -> SSAValue:
    offsets = placed.parts[0]
    assert isinstance(offsets, SSAValue)
    return offsets


def gather(op: xetile.LoadGatherOp, placed: Placed) -> None:
    at = Before(op)
    result = op.result.type
    wanted = _wanted(at, op.mask, placed)
    at.replace(load_elements(at, op, placed.root, wanted, _offsets(placed), result))


def load_elements(
    at: Before,
    op: xetile.LoadTileOp | xetile.LoadGatherOp,
    root: SSAValue,
    mask: SSAValue | None,
    offsets: SSAValue,
    kind: VectorType[Attribute],
) -> SSAValue:
    """The elements that `mask` asks for (None: all), and the padding elsewhere."""
    wanted = _mask(at, mask, kind.get_shape())
    value = at.add(xegpu.LoadGatherOp(root, wanted, kind, offsets=offsets, hints=hints_of(op)))
    if mask is not None:
        # Masked-off lanes of xegpu.load are unspecified, those of XeTile's gather are the padding.
        value = at.add(arith.SelectOp(mask, value, at.constant(kind, op.padding_value)))
    return value


def scatter(op: xetile.StoreScatterOp, placed: Placed) -> None:
    at = Before(op)
    mask = _mask(at, _wanted(at, op.mask, placed), shape_of(op.value))
    store_elements(at, op, placed.root, mask, _offsets(placed))


def store_elements(
    at: Before,
    op: xetile.StoreTileOp | xetile.StoreScatterOp,
    root: SSAValue,
    mask: SSAValue,
    offsets: SSAValue,
) -> None:
    at.insert(xegpu.StoreScatterOp(op.value, root, mask, offsets=offsets, hints=hints_of(op)))
    at.replace()


def atomic(op: xetile.AtomicRmwOp, placed: Placed, base: Base | None) -> None:
    at = Before(op)
    shape = shape_of(op.value)
    mask = op.mask
    if base is None:
        root, offsets = placed.root, _offsets(placed)
        mask = _wanted(at, mask, placed)
    else:
        root, offsets, inside = addresses(at, placed, base, shape)
        mask = at.also(mask, inside)
    mask = _mask(at, mask, shape)
    old = at.add(xegpu.AtomicRMWOp(op.kind, root, mask, op.value, offsets=offsets))
    zero: float | int = 0.0 if isinstance(element_of(op.value.type), AnyFloat) else 0
    kind = vector_type(old)
    at.replace(at.add(arith.SelectOp(mask, old, at.constant(kind, zero))))


def addresses(
    at: Before, placed: Placed, base: Base, shape: tuple[int, ...]
) -> tuple[SSAValue, SSAValue, SSAValue]:
    """A block as scattered elements: 1-D base, offsets, and which elements are in the matrix."""
    box = fit(shape, base.rank)
    offsets = at.cast(at.linear(placed.parts, base.strides, box), shape)
    inside = at.cast(at.inside(placed.parts, base.extents, box), shape)
    source = base.source
    assert source is not None
    if isinstance(source.type, MemRefType) and len(source.type.get_shape()) > 1:
        source = flattened(at, source, (base.extents, base.strides))
    return source, offsets, inside
