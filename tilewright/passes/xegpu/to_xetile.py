"""xegpu-to-xetile: workgroup-level XeGPU becomes XeTile, so that it reaches every target.

Requires: XeGPU of any generation in which an op describes the whole workgroup's (or, without layouts, one
subgroup's) block; xegpu-upgrade runs first. Guarantees: no XeGPU op that touches memory or multiplies
remains, the values are the same. Barriers, fences and compile_hint stay.

| XeGPU | XeTile |
|---|---|
| load_nd, store_nd, prefetch_nd at offsets | init_tile at the same offsets, then load, store, prefetch |
| descriptors of rank 1, of rank 3 and more | rows; one tile per leading index |
| transpose, packed, array_length | vector.transpose and shape_cast on the loaded tile |
| create_mem_desc, load_matrix, store_matrix | tiles of the shared memref, order by its strides |
| load, store, atomic_rmw by base and offsets | scattered tiles, one element each |
| dpas; dpas_mx | tile_mma; bf16 operands times their scales, then tile_mma |
| vector.multi_reduction of one dimension of two | reduction, shape_cast, and the accumulator |
| layout<sg_layout, sg_data> of two dimensions in row-major order | wg_map |

Other layouts are dropped: at workgroup level a map never changes a value.

    %v = xegpu.load_nd %t[%m, %k] : ..          %x = xetile.init_tile %a[%m, %k] : ..
                                         ->     %v = xetile.load_tile %x : ..
"""

from __future__ import annotations

from math import prod

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import (
    Float4E2M1FNType,
    IndexType,
    IntegerType,
    MemRefType,
    ModuleOp,
    NoneAttr,
    StridedLayoutAttr,
    VectorType,
)
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.diagnostics import unsupported
from tilewright.dialects import xegpu, xetile
from tilewright.dialects.cache_hints import hints_of
from tilewright.dialects.movement import memref_type, shape_of, vector_type
from tilewright.dialects.upstream.vector import MultiReductionOp
from tilewright.dialects.xegpu.compute import packing_factor
from tilewright.dialects.xegpu.layouts import Ownership
from tilewright.dialects.xegpu.types import MemDescType
from tilewright.dialects.xetile import TileAttr, TileType
from tilewright.dialects.xetile.assembly import Index
from tilewright.frozen import record
from tilewright.passes.emit import Before, element_of
from tilewright.passes.expand_ops import EXPANSIONS
from tilewright.passes.vector_elements import matrix_of, read, scattered_tile, write
from tilewright.passes.vector_reductions import reduction_of_tile
from tilewright.passes.xegpu.legalize import MATRICES, as_matrices
from tilewright.passes.xegpu.to_xetile_values import (
    convert_dpas,
    convert_layout,
    ownership_in,
    wg_map_of,
)
from tilewright.passes.xegpu.upgrade import upgrade


def xegpu_to_xetile(module: ModuleOp) -> None:
    """Rewrites a module in place."""
    upgrade(module)
    for inner in list(module.walk()):
        if isinstance(inner, xegpu.BlockAccess) and len(inner.tdesc.get_shape()) > 2:
            as_matrices(inner)
    for inner in [op for op in module.walk() if isinstance(op, xegpu.DpasMxOp)]:
        EXPANSIONS[inner.name](inner, Before(inner))
    for inner in list(module.walk()):
        _convert(inner)
    for inner in reversed(list(module.walk())):
        makes = (xegpu.CreateNdDescOp, xegpu.CreateMemDescOp)
        if isinstance(inner, makes) and inner.results[0].first_use is None:
            Rewriter.erase_op(inner)
        for name in [n for n in inner.attributes if n.startswith("layout_")]:
            wg_map = wg_map_of(ownership_in(inner.attributes.pop(name)))
            if name == "layout_result_0" and wg_map is not None:
                inner.attributes["map"] = wg_map


def _convert(op: Operation) -> None:
    if any(isinstance(element_of(v.type), Float4E2M1FNType) for v in op.results):
        raise unsupported(
            op,
            "4-bit floats",
            rule="an element of a tile has whole bytes",
            hint="--target emu runs them as subgroups are written",
        )
    at = Before(op)
    match op:
        case xegpu.LoadNdOp():
            block = _block(op)
            value = at.add(xetile.LoadTileOp(_tile(at, block, op.ownership), hints=hints_of(op)))
            at.replace(_arranged(at, op, at.cast(value, block.shape), shape_of(op.value)))
        case xegpu.StoreNdOp():
            _store_nd(at, op)
        case xegpu.PrefetchNdOp():
            tile = _tile(at, _block(op), op.ownership)
            at.insert(xetile.PrefetchTileOp(tile, op.locality, hints=hints_of(op)))
            at.replace()
        case xegpu.LoadMatrixOp():
            shape = shape_of(op.value)
            tile, _ = _matrix_tile(at, op, shape)
            at.replace(at.cast(at.add(xetile.LoadTileOp(tile)), shape))
        case xegpu.StoreMatrixOp():
            tile, shape = _matrix_tile(at, op, shape_of(op.value))
            at.insert(xetile.StoreTileOp(at.cast(op.value, shape), tile))
            at.replace()
        case xegpu.LoadGatherOp():
            at.replace(read(at, *_elements(at, op), vector_type(op.value), None))
        case xegpu.StoreScatterOp():
            write(at, op.value, *_elements(at, op))
            at.replace()
        case xegpu.AtomicRMWOp():
            kind = vector_type(op.value)
            tile, mask = scattered_tile(at, *_elements(at, op), kind.element_type)
            value = at.cast(op.value, tile.type.get_shape())  # pyright: ignore
            old = at.add(xetile.AtomicRmwOp(op.kind, value, tile, mask))
            at.replace(at.cast(old, kind.get_shape()))
        case xegpu.PrefetchOp() | xegpu.CompileHintOp():
            at.replace()
        case xegpu.DpasOp():
            convert_dpas(op)
        case xegpu.ConvertLayoutOp():
            convert_layout(op)
        case MultiReductionOp():
            reduction_of_tile(op)
        case xegpu.FloatConversion():
            EXPANSIONS[op.name](op, at)
        case _:
            pass


# --- Blocks --------------------------------------------------------------------------------


@record
class _Block:
    """The base and position of a block access."""

    create: xegpu.CreateNdDescOp
    offsets: list[Index]
    shape: tuple[int, ...]
    """Of the whole access: array_length blocks side by side are one wide block."""


def _block(op: xegpu.BlockAccess) -> _Block:
    desc = op.operands[op.tdesc_operand]
    create = desc.owner
    if not isinstance(create, xegpu.CreateNdDescOp):
        raise unsupported(op, "the origin of this descriptor is unknown")
    lead = op.tdesc.get_shape()[:-2]
    if lead:  # too many for `as_matrices`
        raise unsupported(
            op,
            f"{prod(lead)} tiles for the leading dimensions {[*lead]} of one access; at most "
            f"{MATRICES} are written out",
            hint="loop over the leading dimensions",
        )
    offsets = list(op.mixed_offsets or [0] * len(op.tdesc.get_shape()))
    source = create.source.type
    rank = len(source.get_shape()) if isinstance(source, MemRefType) else len(create.mixed_shape)
    rank = max(rank, len(op.tdesc.get_shape()))
    offsets = [*([0] * (rank - len(offsets))), *offsets]
    shape = op.tdesc.get_shape()
    return _Block(create, offsets, (*shape[:-1], shape[-1] * op.tdesc.array_length))


def _tile(at: Before, block: _Block, layout: Ownership | None) -> SSAValue:
    create, count, shape = block.create, len(block.shape), block.shape
    if count == 1:
        # A 1-D descriptor is a row, of a 1-D array or of the innermost dimension.
        shape = (1, shape[0])
    tdesc = create.tdesc
    space = 3 if tdesc.space is xegpu.MemorySpace.SLM else None
    wg_map = wg_map_of(layout) if count >= 2 else None
    if space is None and wg_map is None:
        attributes = None
    else:
        attributes = TileAttr(wg_map=wg_map, memory_space=space)
    kind = TileType(shape, tdesc.element_type, attributes)
    sizes, strides = create.mixed_shape, create.mixed_strides
    source = create.source
    if not sizes and isinstance(source.type, IntegerType):
        # An address without extents: a row without bounds.
        sizes, strides = [2**40], [1]
    if not sizes:
        sizes, strides = matrix_of(at, source)
        if all(isinstance(n, int) for n in (*sizes, *strides)):
            sizes, strides = [], []
    return at.add(xetile.InitTileOp(source, kind, block.offsets, sizes=sizes, strides=strides))


def _arranged(at: Before, op: xegpu.LoadNdOp, value: SSAValue, result: tuple[int, ...]) -> SSAValue:
    """Blocks apart, packed or transposed, from the wide block as it lies in memory."""
    shape, count = op.tdesc.get_shape(), op.tdesc.array_length
    if count > 1:
        m, n = shape if len(shape) == 2 else (1, shape[0])
        value = at.transpose(at.cast(value, (m, count, n)), (1, 0, 2))
        shape = (m, n)
    lead = [count] if count > 1 else []
    base = len(lead)
    outer = list(range(base))
    if op.packed and len(shape) == 2 and packing_factor(op.tdesc.element_type) > 1:
        factor = packing_factor(op.tdesc.element_type)
        split = [*lead, shape[0] // factor, factor, shape[1]]
        value = at.transpose(at.cast(value, split), (*outer, base, base + 2, base + 1))
    elif op.transposes and op.transpose is not None:
        unit = op.together
        if unit > 1:
            split = [*lead, shape[0], shape[1] // unit, unit]
            value = at.transpose(at.cast(value, split), (*outer, base + 1, base, base + 2))
        else:
            value = at.cast(value, (*lead, *shape))
            value = at.transpose(value, (*outer, *(base + d for d in op.transpose)))
    return at.cast(value, result)


def _store_nd(at: Before, op: xegpu.StoreNdOp) -> None:
    if shape_of(op.value) != op.tdesc.get_shape():
        raise unsupported(
            op,
            f"{op.value.type} is a lane's fragment of {op.tdesc}; a workgroup-level program stores "
            "the whole block",
        )
    tile = _tile(at, _block(op), op.ownership)
    value = at.cast(op.value, tile.type.get_shape())  # pyright: ignore
    at.insert(xetile.StoreTileOp(value, tile, hints=hints_of(op)))
    at.replace()


# --- Shared matrices -------------------------------------------------------------------------


def _matrix_tile(
    at: Before, op: xegpu.MatrixAccess, shape: tuple[int, ...]
) -> tuple[SSAValue, tuple[int, ...]]:
    """The tile of a shared matrix, and its shape."""
    if not shape:
        raise unsupported(op, "a scalar of a shared matrix is lane-level")
    desc = op.operands[op.tdesc_operand]
    create = desc.owner
    type = op.desc
    if not isinstance(create, xegpu.CreateMemDescOp):
        raise unsupported(op, "the origin of this mem_desc is unknown")
    if type.block is not None:
        raise unsupported(
            op,
            f"a matrix in blocks of {[*type.block]} is below XeTile; drop `block`, which changes no "
            "value where all accesses agree on it",
        )
    if len(type.get_shape()) != 2:
        raise unsupported(op, f"a shared matrix of rank {len(type.get_shape())}")
    column = type.stride[0] == 1 and type.stride[1] != 1
    if not column and type.stride[1] != 1:
        raise unsupported(op, f"no stride of {[*type.stride]} is 1")
    base = _shared_memref(at, create, type)
    order = (0, 1) if column else None
    tile_shape = (*([1] * (2 - len(shape))), *shape)
    kind = TileType(
        tile_shape,
        type.element_type,
        TileAttr(memory_space=3, order=order, wg_map=wg_map_of(op.ownership)),
    )
    return at.add(xetile.InitTileOp(base, kind, op.mixed_offsets)), tile_shape


def _shared_memref(at: Before, create: xegpu.CreateMemDescOp, type: MemDescType) -> SSAValue:
    """The shared bytes as a 2-D memref of the matrix' element type and strides."""
    source = memref_type(create.source)
    value = create.source
    shape = type.get_shape()
    if source.element_type != type.element_type:
        if source.element_type != IntegerType(8) or len(source.get_shape()) != 1:
            raise unsupported(create, f"{source} cannot be seen as {type.element_type}")
        whole = type.mem_layout == NoneAttr()
        extents = list(shape) if whole else [prod(shape)]
        kind = MemRefType(type.element_type, extents, NoneAttr(), source.memory_space)
        value = at.add(memref.ViewOp(value, at.index(0), [], kind))
        if whole:
            return value
    elif source.get_shape() == shape and type.mem_layout == NoneAttr():
        return value
    kind = MemRefType(
        type.element_type, list(shape), StridedLayoutAttr(list(type.stride)), source.memory_space
    )
    return at.add(
        memref.ReinterpretCastOp(value, [], [], [], [0], list(shape), list(type.stride), kind)
    )


# --- Scattered -------------------------------------------------------------------------------


def _elements(
    at: Before, op: xegpu.LoadGatherOp | xegpu.StoreScatterOp | xegpu.AtomicRMWOp
) -> tuple[SSAValue, SSAValue, SSAValue]:
    """The base of a scattered access, the offsets of its elements, and which are accessed."""
    offsets, mask = op.offsets_operand, op.mask
    assert offsets is not None
    lanes = shape_of(offsets)
    if not lanes:
        raise unsupported(op, "scalar offsets are lane-level")
    flat = lanes if len(lanes) <= 2 and op.chunk == 1 else (prod(lanes),)
    offsets, mask = at.cast(offsets, flat), at.cast(mask, flat)
    if not isinstance(element_of(offsets.type), IndexType):
        offsets = at.add(arith.IndexCastOp(offsets, VectorType(IndexType(), list(flat))))
    if op.chunk > 1:
        # Each lane's elements lie one after the other.
        column, wide = (*flat, 1), (*flat, op.chunk)
        offsets = at.broadcast(at.cast(offsets, column), wide)
        offsets = at.add_index(offsets, at.coordinates(0, wide, 1))
        mask = at.broadcast(at.cast(mask, column), wide)
    return op.source_operand, offsets, mask
