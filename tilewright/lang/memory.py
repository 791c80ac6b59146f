"""Reading and writing memory through tiles: load, store, prefetch, gather, scatter, atomics."""

from __future__ import annotations

from math import isinf
from typing import Any, cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, SSAValue

from tilewright.dialects import xetile
from tilewright.dialects.numerals import float_attr
from tilewright.dialects.xetile import ATOMIC_KINDS
from tilewright.dtypes import DType
from tilewright.lang.context import ArgumentError, emitter
from tilewright.lang.convert import (
    as_value,
    broadcast_shapes,
    broadcast_to,
    computed,
    constant,
    stored,
    to,
)
from tilewright.lang.maps import WgMap, cache_hints, mapped
from tilewright.lang.promote import exact_in
from tilewright.lang.registry import language
from tilewright.lang.tiles import expect_tile
from tilewright.lang.values import Array, Number, Operand, Tile, Value, describe_type


@language
def load_tile(
    tile: Tile,
    mask: Value | None = None,
    *,
    padding: float = 0,
    l1_hint: str | None = None,
    l2_hint: str | None = None,
    l3_hint: str | None = None,
    wg_map: WgMap | None = None,
) -> Value:
    """The elements of a block tile, as a value of the tile's shape and dtype.

    Elements outside the array, and those where ``mask`` (i1, broadcast to the tile's shape) is
    false, are ``padding``, a number of compile time. A mask says what the value is, not what is read:
    of elements that are masked off the array's may be read all the same. The cache hints are
    "cached", "uncached", "streaming" or "read_invalidate", and concern speed only.
    Source: XeTile RFC, load_tile; the mask is ours.

    >>> @tw.kernel
    ... def padded(X, Y):
    ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (1, 4)), padding=-1)
    ...     tw.store_tile(x, tw.init_tile(Y, [0, 0], (1, 4)))
    >>> x = np.array([[1, 2, 3]], np.int32); y = np.empty((1, 4), np.int32)
    >>> padded[1](x, y); y
    array([[ 1,  2,  3, -1]], dtype=int32)
    """
    tile = _block(tile, "load_tile", "load_gather")
    op = xetile.LoadTileOp(
        tile.ssa,
        padding=_padding(padding, tile.dtype),
        hints=cache_hints(l1_hint, l2_hint, l3_hint),
    )
    current = emitter("load_tile")
    value = Value(current.emit_checked(op).results[0], tile.dtype, tile.shape)
    wanted = _mask(mask, tile)
    if wanted is not None:
        other = broadcast_to(_constant(padding, tile.dtype), tile.shape)
        chosen = arith.SelectOp(wanted, computed(value), computed(other))
        value = Value(current.result(chosen), tile.dtype, tile.shape)
    return mapped(value, wg_map)


@language
def store_tile(
    value: Operand,
    tile: Tile,
    mask: Value | None = None,
    *,
    l1_hint: str | None = None,
    l2_hint: str | None = None,
    l3_hint: str | None = None,
) -> None:
    """Writes a value to the elements of a block tile; those outside the array are dropped.

    The value has the tile's dtype (convert with ``x.to(C.dtype)``) and a shape that broadcasts to
    the tile's; a number of compile time is written everywhere. Elements where ``mask`` (i1, broadcast
    to the tile's shape) is false are left as they are. Source: XeTile RFC, store_tile; the
    mask is ours.

    >>> @tw.kernel
    ... def fill(Y):
    ...     tw.store_tile(7, tw.init_tile(Y, [0, 0], (2, 2)))
    >>> y = np.zeros((2, 3), np.int32); fill[1](y); y
    array([[7, 7, 0],
           [7, 7, 0]], dtype=int32)

    >>> @tw.kernel
    ... def clamp(Y):
    ...     y = tw.init_tile(Y, [0], (1, 4))
    ...     tw.store_tile(0, y, tw.load_tile(y) < 0)
    >>> y = np.array([1, -2, 3, -4], np.int32); clamp[1](y); y.tolist()
    [1, 0, 3, 0]
    """
    tile = _block(tile, "store_tile", "store_scatter")
    written = _written(value, tile, "store_tile")
    op = xetile.StoreTileOp(
        written, tile.ssa, mask=_mask(mask, tile), hints=cache_hints(l1_hint, l2_hint, l3_hint)
    )
    emitter("store_tile").emit_checked(op)


@language
def prefetch_tile(
    tile: Tile,
    *,
    locality: int = 3,
    l1_hint: str | None = None,
    l2_hint: str | None = None,
    l3_hint: str | None = None,
) -> None:
    """Asks for the elements of a tile to be brought into the caches; changes no value.

    ``locality`` 3 asks for all cache levels, 2 for all but the first, 1 for the last, streaming,
    0 for streaming or none. Outside the array nothing happens. Source: XeTile RFC, prefetch_tile.

    >>> @tw.kernel
    ... def prefetched(X, Y):
    ...     x = tw.init_tile(X, [0, 0], (2, 2))
    ...     tw.prefetch_tile(x, locality=2)
    ...     tw.store_tile(tw.load_tile(x), tw.init_tile(Y, [0, 0], (2, 2)))
    >>> x = np.eye(2, dtype=np.float32); y = np.empty_like(x)
    >>> prefetched[1](x, y); bool((x == y).all())
    True
    """
    tile = expect_tile(tile, "prefetch_tile")
    if locality not in (0, 1, 2, 3):
        raise ArgumentError(
            "locality",
            f"locality is 0, 1, 2 or 3, not {locality!r}",
            rule="3 is for all caches, 2 for all but the first, 1 for the last, 0 for none",
        )
    op = xetile.PrefetchTileOp(
        tile.ssa, locality=locality, hints=cache_hints(l1_hint, l2_hint, l3_hint)
    )
    emitter("prefetch_tile").emit_checked(op)


@language
def load_gather(
    tile: Tile,
    mask: Value | None = None,
    *,
    padding: float = 0,
    l1_hint: str | None = None,
    l2_hint: str | None = None,
    l3_hint: str | None = None,
    wg_map: WgMap | None = None,
) -> Value:
    """The elements of a scattered tile, as a value of its shape.

    Where ``mask`` (i1, broadcast to the tile's shape) is false, and where an offset lies outside of
    the array, nothing is read and the result is ``padding``. Source: XeTile RFC, load_gather.

    >>> @tw.kernel
    ... def reverse(X, Y):
    ...     at = 7 - tw.arange(0, 8, axis=1, shape=(1, 8))
    ...     x = tw.load_gather(tw.init_tile(X, at))
    ...     tw.store_tile(x, tw.init_tile(Y, [0], (1, 8)))
    >>> x = np.arange(8, dtype=np.float32); y = np.empty_like(x)
    >>> reverse[1](x, y); bool((y == x[::-1]).all())
    True
    """
    tile = _scattered(tile, "load_gather", "load_tile")
    op = xetile.LoadGatherOp(
        tile.ssa,
        mask=_mask(mask, tile),
        padding=_padding(padding, tile.dtype),
        hints=cache_hints(l1_hint, l2_hint, l3_hint),
    )
    result = emitter("load_gather").emit_checked(op).results[0]
    return mapped(Value(result, tile.dtype, tile.shape), wg_map)


@language
def store_scatter(
    value: Operand,
    tile: Tile,
    mask: Value | None = None,
    *,
    l1_hint: str | None = None,
    l2_hint: str | None = None,
    l3_hint: str | None = None,
) -> None:
    """Writes a value to the elements of a scattered tile, except where ``mask`` is false.

    Those outside the array are dropped. Two elements at one place leave either value there. Source:
    XeTile RFC, store_scatter.

    >>> @tw.kernel
    ... def spread(X, Y):
    ...     i = tw.arange(0, 4, axis=1, shape=(1, 4))
    ...     x = tw.load_tile(tw.init_tile(X, [0], (1, 4)))
    ...     tw.store_scatter(x, tw.init_tile(Y, i * 2), i < 3)
    >>> x = np.arange(1, 5, dtype=np.int32); y = np.zeros(8, np.int32)
    >>> spread[1](x, y); y
    array([1, 0, 2, 0, 3, 0, 0, 0], dtype=int32)
    """
    tile = _scattered(tile, "store_scatter", "store_tile")
    op = xetile.StoreScatterOp(
        _written(value, tile, "store_scatter"),
        tile.ssa,
        mask=_mask(mask, tile),
        hints=cache_hints(l1_hint, l2_hint, l3_hint),
    )
    emitter("store_scatter").emit_checked(op)


@language
def atomic_rmw(
    kind: str, value: Operand, tile: Tile, mask: Value | None = None, *, wg_map: WgMap | None = None
) -> Value:
    """Combines a value with the elements of a tile in memory, atomically; gives the old elements.

    ``kind`` is an atomic kind of MLIR: "addf", "addi", "mulf", "muli", "maximumf", "minimumf",
    "maxnumf", "minnumf", "maxs", "maxu", "mins", "minu", "andi", "ori", "xori", "assign"; the short
    forms "add", "mul", "max", "min", "and", "or", "xor" are completed by the tile's dtype. Elements outside the
    array, and those where ``mask`` (i1) is false, are left alone and give 0. Source: XeTile RFC, atomic_rmw.

    >>> @tw.kernel
    ... def count(Y):
    ...     tw.atomic_rmw("add", 1, tw.init_tile(Y, [0, 0], (1, 1)))
    >>> y = np.zeros((1, 1), np.int32); count[10](y); int(y[0, 0])
    10
    """
    tile = expect_tile(tile, "atomic_rmw")
    full = _atomic_kind(kind, tile.dtype)
    written = _written(value, tile, "atomic_rmw")
    op = xetile.AtomicRmwOp(full, written, tile.ssa, mask=_mask(mask, tile))
    result = emitter("atomic_rmw").emit_checked(op).results[0]
    return mapped(Value(result, tile.dtype, tile.shape), wg_map)


# --- Shared by the ops -----------------------------------------------------------------------


def _block(tile: object, what: str, other: str) -> Tile:
    found = expect_tile(tile, what)
    if found.scattered:
        raise ArgumentError(
            "tile", f"{what} takes a block tile, not {describe_type(found)}", hint=f"use tw.{other}"
        )
    return found


def _scattered(tile: object, what: str, other: str) -> Tile:
    found = expect_tile(tile, what)
    if not found.scattered:
        raise ArgumentError(
            "tile",
            f"{what} takes a scattered tile, not {describe_type(found)}",
            hint=f"use tw.{other}, or make the tile with a vector of offsets",
        )
    return found


def _padding(padding: object, dtype: DType) -> Attribute | None:
    """The attribute of a padding number; the default 0 stands for itself."""
    if isinstance(padding, Value) or not isinstance(padding, (int, float)):
        raise ArgumentError(
            "padding",
            f"padding must be a number of compile time, not {describe_type(padding)}",
            hint="load with the default, then choose with tw.where and a mask of positions",
        )
    if padding == 0 and str(padding) != "-0.0":
        return None
    if dtype.is_float:
        if isinstance(padding, int) and abs(padding) > 1 << 1023:
            raise ArgumentError("padding", f"padding is no value of {dtype}")
        if isinf(padding) and not dtype.has_infinity:
            raise ArgumentError(
                "padding",
                f"padding {padding} is no value of {dtype}",
                hint="choose with a mask of positions: tw.where(inside, x.to(tw.f32), padding)",
            )
        return float_attr(padding, dtype.mlir)
    whole = int(padding) if isinstance(padding, int) or padding.is_integer() else None
    if whole is None or not (dtype.is_index or exact_in(whole, dtype)):
        low, high = dtype.integers
        raise ArgumentError(
            "padding",
            f"padding {padding if whole is None else whole} is no value of {dtype}",
            hint=f"{dtype} holds integers from {low} to {high}",
        )
    return IntegerAttr(whole, cast(Any, dtype.mlir))


def _written(value: object, tile: Tile, what: str) -> SSAValue:
    """A value to be written: of the tile's dtype, broadcast to its shape."""
    if isinstance(value, (Tile, Array)):
        raise ArgumentError(
            "value",
            f"{what} takes the value first and then the tile, but the value is"
            f" {describe_type(value)}",
            hint=f"tw.{what}(value, tile); a tile's elements come from tw.load_tile(tile)",
        )
    if not isinstance(value, (Value, int, float)):
        raise ArgumentError("value", f"{what} writes a value, not {describe_type(value)}")
    if not isinstance(value, Value):
        found = _constant(value, tile.dtype)
    elif value.is_scalar and (value.weak or value.dtype.is_index):
        if value.weak and not tile.dtype.is_float:
            rule = "a number of Python takes the tile's dtype, but a float never becomes an integer"
            raise _dtype_error(what, value, tile, rule)
        found = to(value, tile.dtype)
    elif value.dtype is not tile.dtype:
        raise _dtype_error(what, value, tile)
    else:
        found = value
    try:
        fits = broadcast_shapes(found.shape, tile.shape) == tile.shape
    except Exception:
        fits = False
    if not fits:
        raise ArgumentError(
            "value",
            f"{what} writes {describe_type(found)} to a {describe_type(tile)}",
            rule="the value's shape equals the tile's, or broadcasts to it",
            hint="store tw.transpose(value)" if found.shape == tile.shape[::-1] else None,
        )
    return stored(broadcast_to(found, tile.shape))


def _constant(value: Number, dtype: DType) -> Value:
    try:
        return constant(value, dtype)
    except Exception as error:
        raise ArgumentError("value", getattr(error, "message", str(error))) from None


def _dtype_error(
    what: str, value: Value, tile: Tile, rule: str = "memory ops do not convert"
) -> ArgumentError:
    return ArgumentError(
        "value",
        f"{what} writes {describe_type(value)} to a {describe_type(tile)}",
        rule=rule,
        hint=f"convert the value: x.to(tw.{tile.dtype})",
    )


def _mask(mask: object, tile: Tile) -> SSAValue | None:
    if mask is None:
        return None
    if isinstance(mask, bool):
        mask = as_value(mask)
    if not isinstance(mask, Value) or not mask.dtype.is_bool:
        raise ArgumentError(
            "mask",
            f"mask must be a value of i1, not {describe_type(mask)}",
            hint="a comparison returns a mask: x < 3",
        )
    try:
        return computed(broadcast_to(mask, tile.shape))
    except Exception as error:
        raise ArgumentError(
            "mask",
            f"mask is {describe_type(mask)}, the tile is {describe_type(tile)}",
            hint=getattr(error, "hint", None),
        ) from None


_SHORT_KINDS: dict[str, tuple[str, str, str]] = {
    "add": ("addf", "addi", "addi"),
    "mul": ("mulf", "muli", "muli"),
    "max": ("maximumf", "maxs", "maxu"),
    "min": ("minimumf", "mins", "minu"),
}
"""Short names: their kind for floats, signed and unsigned integers."""


def _atomic_kind(kind: object, dtype: DType) -> str:
    if isinstance(kind, str) and kind in _SHORT_KINDS:
        return _SHORT_KINDS[kind][0 if dtype.is_float else 2 if dtype.is_unsigned else 1]
    full = {"and": "andi", "or": "ori", "xor": "xori"}.get(str(kind), str(kind))
    if full not in ATOMIC_KINDS:
        raise ArgumentError(
            "kind",
            f"{kind!r} is no kind of atomic operation",
            hint=f"one of {', '.join(ATOMIC_KINDS)}",
        )
    wants_float = full.endswith("f")
    if full != "assign" and wants_float != dtype.is_float:
        fitting = _SHORT_KINDS.get(full.rstrip("fisu").removesuffix("imum").removesuffix("num"))
        raise ArgumentError(
            "kind",
            f"atomic kind {full!r} is for {'floats' if wants_float else 'integers'}, but the tile"
            f" holds {dtype}",
            hint=f"use {fitting[0 if dtype.is_float else 1]!r}"
            if fitting
            else "floats are added, multiplied and compared: 'add', 'mul', 'max', 'min', 'assign'",
        )
    return full
