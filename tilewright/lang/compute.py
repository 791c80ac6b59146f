"""Ops on whole values: matrix product, transpose, broadcast, change of ownership."""

from __future__ import annotations

from xdsl.dialects.builtin import VectorType

from tilewright import dtypes
from tilewright.dialects import xetile
from tilewright.dialects.xetile.vector_rules import are_multiplied
from tilewright.dtypes import DType
from tilewright.lang.context import ArgumentError, emitter
from tilewright.lang.convert import computed, stored
from tilewright.lang.maps import WgMap, wg_attr
from tilewright.lang.registry import language
from tilewright.lang.values import Array, Tile, Value, describe_type


@language
def tile_mma(a: Value, b: Value, c: Value | None = None, *, wg_map: WgMap | None = None) -> Value:
    """The matrix product ``a @ b + c`` of values ``[M, K]``, ``[K, N]`` and ``[M, N]``.

    ``a`` and ``b`` have one dtype, or are bytes with and without signs (i8 and u8), or 8-bit floats of
    two kinds (f8e4m3 and f8e5m2). The dtype of ``c`` decides in what is accumulated: f32 for f32,
    tf32, f16, bf16 and f8 (f16 and bf16 accumulators where the machine has them), f64 for f64, i32
    for integers; without ``c`` it is f32, f64 or i32. f32 operands are multiplied as IEEE f32; ask
    for tf32 with ``x.to(tw.tf32)``. The order of accumulation is free. ``wg_map`` is the ownership
    of the result. Source: XeTile RFC, tile_mma.

    >>> @tw.kernel
    ... def product(A, B, C):
    ...     a = tw.load_tile(tw.init_tile(A, [0, 0], (4, 8)))
    ...     b = tw.load_tile(tw.init_tile(B, [0, 0], (8, 4)))
    ...     tw.store_tile(tw.tile_mma(a, b), tw.init_tile(C, [0, 0], (4, 4)))
    >>> a = np.ones((4, 8), np.float32); b = np.ones((8, 4), np.float32)
    >>> c = np.empty((4, 4), np.float32); product[1](a, b, c); float(c[0, 0])
    8.0
    """
    a, b = matrix(a, "a"), matrix(b, "b")
    if not are_multiplied(a.dtype.mlir, b.dtype.mlir):
        raise ArgumentError(
            "b",
            f"tile_mma multiplies {a.dtype} by {b.dtype}",
            rule="both operands have one dtype, but for i8 by u8 and f8e4m3 by f8e5m2",
            hint=f"convert one: b.to(tw.{a.dtype})",
        )
    (m, k), (k2, n) = a.shape, b.shape
    if k != k2:
        raise ArgumentError(
            "b",
            f"tile_mma multiplies [M, K] by [K, N], but the shapes are {m}x{k} and {k2}x{n}",
            hint="load the tile with matching shape, or transpose it with tw.transpose(x)",
        )
    if c is None:
        accumulator = _accumulators(a.dtype)[0]
    else:
        c = matrix(c, "c")
        accumulator = c.dtype
        if c.shape != (m, n):
            raise ArgumentError(
                "c",
                f"tile_mma of {m}x{k} and {k2}x{n} accumulates in {m}x{n}, but c is"
                f" {c.shape[0]}x{c.shape[1]}",
                hint="tw.tile_mma(a, b) + c broadcasts c"
                if all(x in (1, y) for x, y in zip(c.shape, (m, n), strict=True))
                else None,
            )
        if accumulator not in _accumulators(a.dtype):
            known = " or ".join(map(str, _accumulators(a.dtype)))
            raise ArgumentError(
                "c",
                f"tile_mma of {a.dtype} accumulates in {known}, but c is {accumulator}",
                hint=f"start with tw.zeros(({m}, {n}), tw.{_accumulators(a.dtype)[0]})",
            )
    op = xetile.TileMmaOp(
        stored(a),
        stored(b),
        None if c is None else computed(c),
        result_type=VectorType(accumulator.arith, (m, n)),
        wg_map_c=wg_attr(wg_map),
    )
    return Value(emitter("tile_mma").emit_checked(op).result, accumulator, (m, n))


def _accumulators(dtype: DType) -> tuple[DType, ...]:
    """The dtypes in which products of ``dtype`` may be accumulated, the default first."""
    if dtype is dtypes.f64:
        return (dtypes.f64,)
    if dtype in (dtypes.f16, dtypes.f8e4m3, dtypes.f8e5m2):
        return dtypes.f32, dtypes.f16
    if dtype is dtypes.bf16:
        return dtypes.f32, dtypes.bf16
    if dtype.is_float:
        return (dtypes.f32,)
    if dtype.is_integer and dtype.bits <= 32 and not dtype.is_index:
        return (dtypes.i32,)
    raise ArgumentError(
        "a",
        f"tile_mma does not multiply {dtype}",
        hint="it multiplies floats and integers of at most 32 bits; convert first",
    )


@language
def transpose(x: Value, *, wg_map: WgMap | None = None) -> Value:
    """The value ``[N, M]`` of a value ``[M, N]``. Source: XeTile RFC, transpose.

    >>> @tw.kernel
    ... def flip(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (2, 4)))
    ...     tw.store_tile(tw.transpose(x), tw.init_tile(Y, [0, 0], (4, 2)))
    >>> x = np.arange(8, dtype=np.float32).reshape(2, 4); y = np.empty((4, 2), np.float32)
    >>> flip[1](x, y); bool((y == x.T).all())
    True
    """
    x = matrix(x, "x")
    op = xetile.TransposeOp(computed(x), (1, 0), wg_map=wg_attr(wg_map))
    m, n = x.shape
    return Value(emitter("transpose").emit_checked(op).result, x.dtype, (n, m))


@language
def broadcast(
    x: Value,
    axis: int,
    size: int,
    *,
    broadcast_size: int | None = None,
    wg_map: WgMap | None = None,
) -> Value:
    """``x`` repeated along ``axis``, whose extent is 1, to extent ``size``.

    With ``broadcast_size=s`` the extent may be any, each element fills s contiguous places, and
    ``size`` is s times the extent. Elementwise ops broadcast by themselves; this op is for saying
    it, or for a map. Source: XeTile RFC, broadcast.

    >>> @tw.kernel
    ... def repeat(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (1, 2)))
    ...     tw.store_tile(tw.broadcast(x, 0, 2), tw.init_tile(Y, [0, 0], (2, 2)))
    >>> x = np.array([[1, 2]], np.int32); y = np.empty((2, 2), np.int32)
    >>> repeat[1](x, y); y.tolist()
    [[1, 2], [1, 2]]
    """
    x = matrix(x, "x")
    dim = axis_of(axis)
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ArgumentError("size", f"size must be a positive integer, not {describe_type(size)}")
    have = x.shape[dim]
    if broadcast_size is None and have != 1:
        raise ArgumentError(
            "x",
            f"dimension {dim} of {describe_type(x)} has extent {have}",
            rule="a broadcast dimension has extent 1, unless broadcast_size is given",
        )
    if broadcast_size is not None and have * broadcast_size != size:
        raise ArgumentError(
            "broadcast_size",
            f"extent {have} times broadcast_size {broadcast_size} is not size {size}",
            rule="each element is repeated broadcast_size times",
        )
    shape = tuple(size if d == dim else extent for d, extent in enumerate(x.shape))
    op = xetile.BroadcastOp(
        computed(x),
        VectorType(x.dtype.arith, shape),
        [dim],
        broadcast_size=broadcast_size,
        wg_map=wg_attr(wg_map),
    )
    return Value(emitter("broadcast").emit_checked(op).result, x.dtype, shape)


@language
def convert_layout(x: Value, wg_map: WgMap, source: WgMap | None = None) -> Value:
    """``x``, owned by the subgroups as ``wg_map`` says; no element changes.

    ``source`` may state the ownership that x has now. Source: XeTile RFC, convert_layout.

    >>> @tw.kernel
    ... def distributed(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (8, 8)))
    ...     x = tw.convert_layout(x, tw.wg_map([2, 2], [4, 4]))
    ...     tw.store_tile(x, tw.init_tile(Y, [0, 0], (8, 8)))
    >>> x = np.eye(8, dtype=np.float32); y = np.empty_like(x)
    >>> distributed[1](x, y); bool((x == y).all())
    True
    """
    x = matrix(x, "x")
    result = wg_attr(wg_map)
    if result is None:
        raise ArgumentError(
            "wg_map",
            "convert_layout needs the map of its result",
            hint="wg_map=tw.wg_map(sg_layout, sg_data)",
        )
    op = xetile.ConvertLayoutOp(computed(x), result, wg_attr(source, "source"))
    return Value(emitter("convert_layout").emit_checked(op).result, x.dtype, x.shape)


# --- Shared by the ops -----------------------------------------------------------------------


def matrix(x: object, name: str) -> Value:
    if isinstance(x, Value) and x.ndim == 2:
        return x
    hint = None
    if isinstance(x, Tile):
        hint = "a tile is a region of memory; tw.load_tile(tile) returns its elements"
    elif isinstance(x, Array):
        hint = "load a part of the array: tw.load_tile(tw.init_tile(array, offsets, shape))"
    raise ArgumentError(
        name, f"{name} must be the value of a 2-D tile, not {describe_type(x)}", hint=hint
    )


def axis_of(axis: object) -> int:
    if isinstance(axis, int) and not isinstance(axis, bool) and -2 <= axis < 2:
        return axis % 2
    what, hint = repr(axis), None
    if isinstance(axis, Value):
        what, hint = describe_type(axis), "tw.maximum(a, b) and tw.minimum(a, b) are elementwise"
    elif isinstance(axis, (tuple, list, int)):
        hint = "values are two-dimensional; axis=None is both"
    raise ArgumentError("axis", f"axis is 0 or 1, not {what}", hint=hint)
