"""Values out of nothing: zeros, full, arange."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IndexType, VectorType

from tilewright import dtypes
from tilewright.diagnostics import CompileError
from tilewright.dialects.upstream import vector as upstream_vector
from tilewright.dtypes import DType
from tilewright.lang.arithmetic import binary
from tilewright.lang.context import ArgumentError, emitter
from tilewright.lang.convert import broadcast_to, constant, expect_dtype, to
from tilewright.lang.maps import WgMap, mapped
from tilewright.lang.registry import language
from tilewright.lang.tiles import static_shape
from tilewright.lang.values import Operand, Value, describe_type


@language
def full(
    shape: Sequence[int], value: Operand, dtype: DType, *, wg_map: WgMap | None = None
) -> Value:
    """A value of ``shape`` and ``dtype`` that is ``value`` (a scalar) everywhere.

    >>> @tw.kernel
    ... def minus(Y):
    ...     tw.store_tile(tw.full((2, 2), -1, tw.i32), tw.init_tile(Y, [0, 0], (2, 2)))
    >>> y = np.empty((2, 2), np.int32); minus[1](y); int(y.sum())
    -4
    """
    extents = static_shape(shape, "shape")
    dtype = expect_dtype(dtype, "dtype must be")
    if isinstance(value, Value):
        if not value.is_scalar:
            raise ArgumentError(
                "value",
                f"value must be a scalar, not {describe_type(value)}",
                hint="tw.zeros(shape, dtype) + value repeats a row or a column; an element of it is value[0, 0].item()",
            )
        scalar = to(value, dtype)
    elif isinstance(value, (int, float)):
        emitter("a value made by tw.zeros or tw.full")
        try:
            scalar = constant(value, dtype)
        except CompileError as error:
            raise ArgumentError("value", error.message, hint="give another dtype") from None
    else:
        raise ArgumentError("value", f"value must be a number, not {describe_type(value)}")
    return mapped(broadcast_to(scalar, extents), wg_map)


@language
def zeros(shape: Sequence[int], dtype: DType, *, wg_map: WgMap | None = None) -> Value:
    """A value of ``shape`` and ``dtype`` that is 0 everywhere: where accumulators start.

    >>> @tw.kernel
    ... def clear(Y):
    ...     tw.store_tile(tw.zeros((2, 2), tw.f32), tw.init_tile(Y, [0, 0], (2, 2)))
    >>> y = np.ones((2, 2), np.float32); clear[1](y); float(y.sum())
    0.0
    """
    return full(shape, 0, dtype, wg_map=wg_map)


@language
def arange(
    start: int,
    stop: int | None = None,
    *,
    axis: int = 1,
    shape: Sequence[int] | None = None,
    wg_map: WgMap | None = None,
) -> Value:
    """``start .. stop-1`` along ``axis``, repeated to ``shape``; of index type. A single bound is the stop.

    Both bounds are numbers of compile time, and ``shape[axis]`` is their distance; without a shape
    the value is one row (axis 1) or one column (axis 0). Add a run-time offset to move it. index
    values mix with integers as i64, and are what positions, masks and gather offsets are made of.

    >>> @tw.kernel
    ... def table(Y):
    ...     i, j = tw.arange(3, axis=0), tw.arange(4)
    ...     tw.store_tile((10 * i + j).to(tw.i32), tw.init_tile(Y, [0, 0], (3, 4)))
    >>> y = np.empty((3, 4), np.int32); table[1](y); y[2].tolist()
    [20, 21, 22, 23]
    """
    if stop is None:
        start, stop = 0, start
    for name, bound in (("start", start), ("stop", stop)):
        if not isinstance(bound, int) or isinstance(bound, bool):
            raise ArgumentError(
                name,
                f"{name} must be an integer of compile time, not {describe_type(bound)}",
                hint="add the run-time part: tw.arange(0, N) + offset",
            )
    if axis not in (0, 1, -1, -2):
        raise ArgumentError("axis", f"axis is 0 or 1, not {axis!r}")
    dim, count = axis % 2, stop - start
    if count < 1:
        raise ArgumentError(
            "stop",
            f"arange({start}, {stop}) is empty",
            rule="it holds start and what follows it, without stop",
        )
    line = (count, 1) if dim == 0 else (1, count)
    extents = line if shape is None else static_shape(shape, "shape")
    if extents[dim] != count:
        raise ArgumentError(
            "shape",
            f"shape {extents} has extent {extents[dim]} along axis {dim}, but arange({start},"
            f" {stop}) has {count} elements",
        )
    current = emitter("arange")
    step = current.result(upstream_vector.StepOp(VectorType(IndexType(), [count])))
    cast = upstream_vector.ShapeCastOp(step, VectorType(IndexType(), line))
    value = broadcast_to(Value(current.result(cast), dtypes.index, line), extents)
    return mapped(binary("+", value, start) if start else value, wg_map)
