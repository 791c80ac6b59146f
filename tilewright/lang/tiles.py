"""Making and moving tiles: init_tile, update_tile_offset, alloc_slm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from xdsl.dialects import memref
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    IntAttr,
    IntegerAttr,
    MemRefType,
    NoneAttr,
    StridedLayoutAttr,
    i64,
)
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from tilewright import dtypes
from tilewright.diagnostics import CompileError
from tilewright.dialects import xetile
from tilewright.dialects.upstream.strided import static_strides
from tilewright.dtypes import DType
from tilewright.lang.context import ArgumentError, demanded, emitter
from tilewright.lang.convert import (
    computed,
    constant_ssa,
    expect_dtype,
    index_operand,
    to,
    whole_number,
)
from tilewright.lang.maps import SgMap, WgMap, sg_attr, wg_attr
from tilewright.lang.registry import language
from tilewright.lang.values import Array, Tile, Value, describe_type

Offset = int | Value
SLM = 3
"""The memory space of shared local memory, and the only one beside global memory (0)."""


@language
def init_tile(
    base: Array,
    offsets: Sequence[Offset] | Value,
    shape: Sequence[int] | None = None,
    *,
    order: Sequence[int] | None = None,
    memory_space: int | None = None,
    wg_map: WgMap | None = None,
    sg_map: SgMap | None = None,
) -> Tile:
    """A tile of ``shape`` whose first element is at ``offsets`` in ``base``.

    ``base`` is an array argument, a :func:`view` of one or the result of :func:`alloc_slm`;
    ``offsets`` counts elements, one per dimension of the array. The tile covers the two innermost
    dimensions, leading offsets select the matrix; a 1-D array is one row. ``shape`` is (rows, columns),
    or (columns,) for one row. Offsets may be negative or past the end: what is outside the matrix reads
    as padding and is not written.

    ``order`` is the order of the matrix in memory, slowest dimension first: ``[1, 0]`` row-major,
    ``[0, 1]`` column-major. None takes the array's strides; a given order must agree with them.
    ``memory_space`` (0 global, 3 shared local) must agree with the array's as well.

    With one vector of offsets (of :func:`arange`, index arithmetic, or a loaded tile) in place of
    ``offsets`` and ``shape``, the tile is *scattered*: each element has an offset of its own into
    the flattened array, for :func:`load_gather`, :func:`store_scatter`, :func:`atomic_rmw`.

    Source: XeTile RFC, init_tile.

    >>> @tw.kernel
    ... def second_block(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [2, 4], (2, 4)))
    ...     tw.store_tile(x, tw.init_tile(Y, [0, 0], (2, 4)))
    >>> x = np.arange(32.0, dtype=np.float32).reshape(4, 8); y = np.empty((2, 4), np.float32)
    >>> second_block[1](x, y); bool((y == x[2:, 4:]).all())
    True
    """
    if not isinstance(base, Array):
        raise ArgumentError(
            "base",
            f"init_tile makes a tile of an array, not of {describe_type(base)}",
            hint="pass an array parameter of the kernel or the result of tw.alloc_slm",
        )
    if memory_space is not None and memory_space != base.memory_space:
        raise ArgumentError(
            "memory_space",
            f"memory_space={memory_space!r}, but {base!r} is in space {base.memory_space}",
            rule="a tile is where its array is: 0 is global memory, 3 shared local memory",
        )
    if isinstance(offsets, Value) and not offsets.is_scalar:
        return _scattered(base, offsets, shape, order, wg_map, sg_map)
    if shape is None:
        raise ArgumentError(
            "offsets",
            "a block tile needs a shape",
            hint="a scattered tile has one vector of offsets into the flattened array; A[i, j] reads by two"
            if isinstance(offsets, (tuple, list))
            and any(isinstance(x, Value) and not x.is_scalar for x in offsets)
            else "tw.init_tile(base, offsets, (rows, columns))",
        )
    rows, columns = static_shape(shape, "shape")
    at = integers_of(base, offsets)
    row_major = _order(base, order)
    attributes = None
    if wg_map is not None or sg_map is not None or base.memory_space or not row_major:
        attributes = xetile.TileAttr(
            sg_map=sg_attr(sg_map),
            wg_map=wg_attr(wg_map),
            order=None if row_major else (0, 1),
            memory_space=base.memory_space or None,
        )
    type_ = _tile_type((rows, columns), base.dtype, attributes)
    sizes, strides = _dynamic_shape(base)
    op = xetile.InitTileOp(base.ssa, type_, offsets=at, sizes=sizes, strides=strides)
    return Tile(emitter("init_tile").emit_checked(op).result, base.dtype)


def _tile_type(
    shape: Sequence[int], dtype: DType, attributes: xetile.TileAttr | None
) -> xetile.TileType:
    try:
        return xetile.TileType(shape, dtype.mlir, attributes)
    except VerifyException as error:
        raise demanded(error, "xetile.init_tile") from None


def static_shape(shape: object, name: str) -> tuple[int, int]:
    """Two positive compile-time extents; (N,) counts as one row."""
    if isinstance(shape, int) and not isinstance(shape, bool):
        shape = (shape,)
    if not isinstance(shape, (tuple, list)) or not 1 <= len(shape) <= 2:
        raise ArgumentError(
            name,
            f"{name} must be (rows, columns), not {describe_type(shape)}",
            hint="a tile covers the two innermost dimensions, leading offsets select the matrix; of a value"
            " several dimensions are folded into one, as in (2 * 4, 8), and tw.reshape folds others",
        )
    for extent in shape:
        if isinstance(extent, Value):
            raise ArgumentError(
                name,
                f"{name} contains {describe_type(extent)}",
                rule="shapes of tiles are known at compile time",
                hint="make the extent a tw.constexpr parameter; what a loop computes it from is one of"
                " tw.static_range(...)",
            )
        if not isinstance(extent, int) or isinstance(extent, bool):
            raise ArgumentError(
                name,
                f"{name} must hold integers, not {describe_type(extent)}",
                hint=whole_number(extent),
            )
        if extent < 1:
            raise ArgumentError(
                name, f"{name} is {tuple(shape)!r}", rule="extents of a tile are at least 1"
            )
    return (1, shape[0]) if len(shape) == 1 else (shape[0], shape[1])


def integers_of(
    base: Array, given: object, name: str = "offsets", one: str = "offset"
) -> list[Any]:
    """An integer for each dimension of an array, or an index at run time; None stays where a `shape` has it."""
    if isinstance(given, (int, Value)) and not isinstance(given, bool) and base.ndim == 1:
        given = [given]
    if not isinstance(given, (tuple, list)):
        raise ArgumentError(
            name,
            f"{name} must be a list of {base.ndim} integers, not {describe_type(given)}",
            hint="one per dimension of the array, outermost first: [m, n]",
        )
    numbers = list(cast(Sequence[Any], given))
    if len(numbers) != base.ndim:
        raise ArgumentError(
            name,
            f"{len(numbers)} {one}{'s' * (len(numbers) != 1)} for {base!r}",
            rule=f"one {one} per dimension of the array, outermost first",
        )
    try:
        opened = name == "shape"
        return [None if n is None and opened else index_operand(n, f"an {one}") for n in numbers]
    except CompileError as error:
        raise ArgumentError(name, error.message, hint=error.hint) from None


def _order(base: Array, order: object) -> bool:
    """True for row-major; a given order must be the array's."""
    strides = static_strides(base.type)
    # A row has no second dimension that could be the fast one.
    column_major = len(strides) >= 2 and strides[-2] == 1 and strides[-1] != 1
    if order is None:
        return not column_major
    if not isinstance(order, (tuple, list)) or sorted(cast(Any, order)) != [0, 1]:
        raise ArgumentError("order", f"order must be [1, 0] or [0, 1], not {order!r}")
    wants_column_major = list(cast(Any, order)) == [0, 1]
    if wants_column_major != column_major:
        have = "[0, 1] (column-major)" if column_major else "[1, 0] (row-major)"
        raise ArgumentError(
            "order",
            f"order={list(cast(Any, order))}, but {base!r} is {have} by its strides",
            rule="order is the memory order of the base matrix",
            hint="leave order out, or pass the array transposed (x.T)",
        )
    return not wants_column_major


def _dynamic_shape(base: Array) -> tuple[list[int | SSAValue], list[int | SSAValue]]:
    """Sizes and strides as operands, or nothing where the memref's type carries them all."""
    type_ = base.type
    if DYNAMIC_INDEX not in type_.get_shape() and None not in static_strides(type_):
        return [], []
    sizes = [index_operand(x, "an extent") for x in base.shape]
    return sizes, [index_operand(x, "a stride") for x in base.strides]


def _scattered(
    base: Array,
    offsets: Value,
    shape: object,
    order: object,
    wg_map: WgMap | None,
    sg_map: SgMap | None,
) -> Tile:
    if shape is not None and tuple(cast(Any, shape)) != offsets.shape:
        raise ArgumentError(
            "shape",
            f"shape is {shape!r}, but the offsets have shape {offsets.shape}",
            rule="a scattered tile has the shape of its vector of offsets",
        )
    if order is not None:
        raise ArgumentError("order", "a scattered tile has no order: each element has its offset")
    if not offsets.dtype.is_integer:
        raise ArgumentError(
            "offsets", f"offsets must be integers, not {offsets.dtype}", hint="x.to(tw.i32)"
        )
    attributes = xetile.TileAttr(
        sg_map=sg_attr(sg_map),
        wg_map=wg_attr(wg_map),
        memory_space=base.memory_space or None,
        scattered=True,
    )
    type_ = _tile_type(offsets.shape, base.dtype, attributes)
    if base.is_view and static_strides(base.type) != [1]:
        raise ArgumentError(
            "base",
            f"a scattered tile indexes an array as one flat one, which {base!r} is not",
            hint="index the array of the view, with a mask for what is inside",
        )
    vector = computed(to(offsets, dtypes.index))
    op = xetile.InitTileOp(_flat(base), type_, offset_vector=vector)
    return Tile(emitter("init_tile").emit_checked(op).result, base.dtype)


def _flat(base: Array) -> SSAValue:
    """The array as 1-D memory, made once. The launch checks that a kernel argument is contiguous."""
    current = emitter()
    if base.ndim == 1 and static_strides(base.type) == [1]:
        return base.ssa
    known = current.flat.get(base.ssa)
    if known is not None:
        return known
    size: int | SSAValue = 1
    for extent in (index_operand(x, "an extent") for x in base.shape):
        if isinstance(size, int) and isinstance(extent, int):
            size *= extent
        elif size == 1:
            size = extent
        else:
            factors = [
                constant_ssa(x, dtypes.index) if isinstance(x, int) else x for x in (size, extent)
            ]
            size = current.hoisted_product(*factors)
    space = base.type.memory_space
    layout = StridedLayoutAttr(ArrayAttr([IntAttr(1)]), IntAttr(0))
    if base.memory_space:
        layout = NoneAttr()
    extent = size if isinstance(size, int) else DYNAMIC_INDEX
    type_ = MemRefType(base.dtype.mlir, [extent], layout, space)
    op = memref.ReinterpretCastOp.from_dynamic(base.ssa, [0], [size], [1], type_)
    if base.memory_space:
        flat = current.emit(op).result
    else:
        flat = current.emit_at_entry(op).result
        current.contiguous.add(base.name)
    current.flat[base.ssa] = flat
    return flat


@language
def update_tile_offset(tile: Tile, deltas: Sequence[Offset] | Value) -> Tile:
    """A new tile, moved by ``deltas`` (rows, columns) relative to ``tile``, which stays.

    A scattered tile is moved by a vector of offsets that is added to its own, or by one scalar for
    all elements. Source: XeTile RFC, update_tile_offset.

    >>> @tw.kernel
    ... def next_row(X, Y):
    ...     x = tw.init_tile(X, [0, 0], (1, 4))
    ...     x = tw.update_tile_offset(x, [1, 0])
    ...     tw.store_tile(tw.load_tile(x), tw.init_tile(Y, [0, 0], (1, 4)))
    >>> x = np.arange(8, dtype=np.int32).reshape(2, 4); y = np.empty((1, 4), np.int32)
    >>> next_row[1](x, y); y
    array([[4, 5, 6, 7]], dtype=int32)
    """
    tile = expect_tile(tile, "update_tile_offset")
    if tile.scattered:
        from tilewright.lang.convert import as_value, broadcast_to

        if isinstance(deltas, (tuple, list)):
            raise ArgumentError(
                "deltas",
                "a scattered tile is moved by a vector of offsets",
                hint="pass one offset per element, or one scalar for all",
            )
        moved = to(as_value(deltas, "deltas"), dtypes.index)
        vector = computed(broadcast_to(moved, tile.shape))
        op = xetile.UpdateTileOffsetOp(tile.ssa, offset_vector=vector)
    else:
        if not isinstance(deltas, (tuple, list)) or len(cast(Any, deltas)) != 2:
            raise ArgumentError(
                "deltas",
                f"deltas must be [rows, columns], not {describe_type(deltas)}",
                rule="a block tile moves in the two dimensions that it covers",
                hint="[0, n] moves it along a row, [n, 0] down",
            )
        moves = [index_operand(d, "a delta") for d in cast(Sequence[Any], deltas)]
        op = xetile.UpdateTileOffsetOp(tile.ssa, offsets=moves)
    return Tile(emitter("update_tile_offset").emit_checked(op).result, tile.dtype)


@language
def alloc_slm(shape: Sequence[int], dtype: DType) -> Array:
    """Shared local memory of the workgroup: an array of ``shape`` and ``dtype`` with undefined contents.

    Extents are compile-time numbers. Every subgroup of the workgroup sees the same memory;
    :func:`barrier` orders what they write and read. How much there is depends on the machine, and a
    kernel that asks for more is refused.

    >>> @tw.kernel
    ... def through_slm(X, Y):
    ...     slm = tw.alloc_slm((4, 4), tw.f32)
    ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (4, 4)))
    ...     tw.store_tile(x + 1, tw.init_tile(slm, [0, 0], (4, 4)))
    ...     tw.barrier()
    ...     y = tw.load_tile(tw.init_tile(slm, [0, 0], (4, 4)))
    ...     tw.store_tile(y, tw.init_tile(Y, [0, 0], (4, 4)))
    >>> x = np.ones((4, 4), np.float32); y = np.empty_like(x)
    >>> through_slm[1](x, y); float(y.sum())
    32.0
    """
    current = emitter("alloc_slm")
    if isinstance(shape, int) and not isinstance(shape, bool):
        shape = (shape,)
    if not isinstance(shape, (tuple, list)) or not shape:
        raise ArgumentError(
            "shape",
            f"shape must be a tuple, not {describe_type(shape)}",
            rule="extents of shared memory are known where the kernel is compiled",
        )
    for extent in shape:
        if not isinstance(extent, int) or isinstance(extent, bool) or extent < 1:
            raise ArgumentError(
                "shape",
                f"an extent of shared local memory is {describe_type(extent)}",
                rule="extents are positive numbers of compile time",
                hint="make the extent a tw.constexpr parameter"
                if isinstance(extent, Value)
                else None,
            )
    dtype = expect_dtype(dtype, "dtype must be")
    type_ = MemRefType(dtype.mlir, shape, memory_space=IntegerAttr(SLM, i64))
    # Allocated once per workgroup wherever it is written, so it stands at the head of the kernel.
    op = current.emit_at_entry(memref.AllocOp([], [], type_))
    return Array(op.memref, dtype, "shared local memory", memory_space=SLM)


def expect_tile(tile: object, what: str) -> Tile:
    """``tile`` as a Tile, or an error that says what it is instead."""
    if isinstance(tile, Tile):
        return tile
    hint = None
    if isinstance(tile, Array):
        hint = "make a tile of the array: tw.init_tile(array, offsets, shape)"
    elif isinstance(tile, Value):
        hint = "this is the value of a tile already; tiles come from tw.init_tile"
    raise ArgumentError("tile", f"{what} takes a tile, not {describe_type(tile)}", hint=hint)
