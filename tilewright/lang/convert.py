"""Constants, dtype conversion, and broadcasting of values: the plumbing under every operator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import isinf
from numbers import Real
from typing import Any, cast

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, UnrealizedConversionCastOp, VectorType
from xdsl.ir import Attribute, SSAValue

from tilewright import dtypes
from tilewright.diagnostics import CompileError
from tilewright.dialects import xetile
from tilewright.dialects.numerals import float_attr
from tilewright.dialects.upstream import vector as upstream_vector
from tilewright.dtypes import DType
from tilewright.lang.context import ArgumentError, emitter
from tilewright.lang.promote import exact_in
from tilewright.lang.values import Number, Value, describe_type, load_hint


@lru_cache(maxsize=1024)
def shaped(element: Attribute, shape: tuple[int, ...]) -> Attribute:
    """``element`` for a scalar, a vector of it for a tile."""
    return VectorType(element, shape) if shape else element


def computed(value: Value) -> SSAValue:
    """The SSA value in its arithmetic type (signless integers)."""
    if not value.dtype.is_unsigned:
        return value.ssa
    return _retyped(value.ssa, shaped(value.dtype.arith, value.shape))


def stored(value: Value) -> SSAValue:
    """The SSA value in its memory type (``ui8`` for u8)."""
    if not value.dtype.is_unsigned:
        return value.ssa
    return _retyped(value.ssa, shaped(value.dtype.mlir, value.shape))


def _retyped(ssa: SSAValue, wanted: Attribute) -> SSAValue:
    if ssa.type == wanted:
        return ssa
    # ui8 <-> i8: the same bits under another name.
    return emitter().result(UnrealizedConversionCastOp.get([ssa], [wanted]))


# --- Constants -------------------------------------------------------------------------------


def constant_ssa(value: Number, dtype: DType) -> SSAValue:
    """A scalar constant, written once per kernel at its head."""
    current = emitter()
    element = dtype.arith
    if dtype.is_float:
        attr: FloatAttr[Any] | IntegerAttr[Any] = float_attr(value, element)
    else:
        attr = IntegerAttr(_wrapped(int(value), dtype), cast(Any, element))
    known = current.constants.get(attr)
    if known is None:
        known = current.emit_at_entry(arith.ConstantOp(attr)).result
        current.constants[attr] = known
    return known


def _wrapped(value: int, dtype: DType) -> int:
    """Unsigned constants above the signed maximum stand as their two's complement."""
    if dtype.is_unsigned and value >> (dtype.bits - 1):
        return value - (1 << dtype.bits)
    return value


def constant(value: Number | None, dtype: DType) -> Value:
    """A scalar constant of a dtype; an integer that the dtype cannot hold is refused, and what is no number."""
    if not isinstance(value, Real):
        raise CompileError(
            f"a number or a value is expected, not {describe_type(value)}",
            hint="a function without a return returns None"
            if value is None
            else load_hint(value) or "load a tile or an array first: tw.load_tile(tile)",
        )
    if not dtype.is_float:
        if isinstance(value, float):
            raise CompileError(
                f"{value!r} cannot be combined with {dtype}, which holds integers",
                rule="a scalar never widens a tile's dtype",
                hint=f"convert the {dtype} operand first, e.g. x.to(tw.f32)",
            )
        if not exact_in(int(value), dtype):
            raise CompileError(
                f"{_spelt(value)} is no value of {dtype}",
                rule="a number takes the dtype of the other operand",
                hint=_holding(int(value), dtype),
            )
    elif isinstance(value, int) and abs(value) > 1 << 1023:
        raise CompileError(f"{_spelt(value)} is no value of {dtype}")
    elif isinf(value) and not dtype.has_infinity:
        raise CompileError(
            f"{value} is no value of {dtype}",
            rule="a number takes the dtype of the other operand",
            hint="convert the value to a wider dtype first, e.g. x.to(tw.f32)",
        )
    return Value(constant_ssa(value, dtype), dtype, ())


def _holding(value: int, dtype: DType) -> str | None:
    """What to convert to: the narrowest integers that have the number and all that ``dtype`` has."""
    for wide in reversed(dtypes.ALL):
        if (
            wide.is_integer
            and not wide.is_index
            and all(exact_in(n, wide) for n in (value, *dtype.integers))
        ):
            return f"convert the other operand first: x.to(tw.{wide}) has both"
    return None


def _spelt(value: Number) -> str:
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)


def as_value(x: object, what: str = "operand") -> Value:
    """A run-time value of ``x``: itself, or a number as an index, f32 or i1 scalar."""
    if isinstance(x, Value):
        return x
    if isinstance(x, bool):
        return constant(x, dtypes.i1)
    if isinstance(x, int):
        return constant(x, dtypes.index)
    if isinstance(x, float):
        return Value(constant_ssa(x, dtypes.f32), dtypes.f32, (), weak=True)
    raise CompileError(
        f"{what} must be a number or a value, not {describe_type(x)}", hint=load_hint(x)
    )


def index_operand(x: object, what: str) -> int | SSAValue:
    """An offset, size or bound: a Python integer stays one, a scalar becomes an index value."""
    if isinstance(x, bool) or not isinstance(x, (int, Value)):
        raise CompileError(
            f"{what} must be an integer, not {describe_type(x)}", hint=whole_number(x)
        )
    if isinstance(x, int):
        if not exact_in(x, dtypes.index):
            raise CompileError(f"{what} is {_spelt(x)}, which does not fit 64 bits")
        return x
    if not x.is_scalar or x.dtype.is_float:
        whole = "x.item() is its number" if set(x.shape) == {1} else "reduce it: tw.max(x).item()"
        hint = "a // b rounds down, tw.cdiv(a, b) up" if x.is_scalar else whole
        raise CompileError(f"{what} must be an integer scalar, not {describe_type(x)}", hint=hint)
    return to(x, dtypes.index).ssa


def index_value(x: object, what: str) -> SSAValue:
    """Like :func:`index_operand`, with constants as SSA values too."""
    operand = index_operand(x, what)
    return constant_ssa(operand, dtypes.index) if isinstance(operand, int) else operand


# --- Shapes ----------------------------------------------------------------------------------


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """numpy's rule: shapes are aligned at the right, extents are equal or 1."""
    shape = _common(shapes)
    if shape is None:
        texts = " and ".join("x".join(map(str, shape)) for shape in shapes if shape)
        raise CompileError(
            f"shapes {texts} do not broadcast",
            rule="extents are equal or 1, dimension by dimension from the right, as in numpy",
            hint=_turned(shapes),
        )
    return shape


def _common(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    found = [{extent for extent in extents if extent != 1} for extents in zip(*padded, strict=True)]
    return None if any(len(e) > 1 for e in found) else tuple(max(e, default=1) for e in found)


def _turned(shapes: Sequence[tuple[int, ...]]) -> str | None:
    """What to write where a vector lies the wrong way for the other shapes."""
    for i, shape in enumerate(shapes):
        turned = (*shapes[:i], shape[::-1], *shapes[i + 1 :])
        if len(shape) == 2 and 1 in shape and _common(turned) is not None:
            row = shape[0] == 1
            named = f"the {'row' if row else 'column'} of {max(shape)}"
            return f"{named} as {'a column: x[:, None]' if row else 'a row: x[None, :]'}"
    return None


def broadcast_to(value: Value, shape: tuple[int, ...]) -> Value:
    """The value repeated to ``shape``, as numpy's broadcast_to."""
    if value.shape == shape:
        return value
    if broadcast_shapes(value.shape, shape) != shape:
        raise CompileError(
            f"{describe_type(value)} does not broadcast to {'x'.join(map(str, shape))}",
            rule="an extent stays what it is, or is 1 and repeated",
        )
    current = emitter()
    ssa, own = computed(value), value.shape
    if not own:
        ssa = current.result(vector.BroadcastOp(ssa, VectorType(ssa.type, shape)))
        return Value(ssa, value.dtype, shape)
    if len(own) < len(shape):
        own = (1,) * (len(shape) - len(own)) + own
        ssa = current.result(upstream_vector.ShapeCastOp(ssa, VectorType(value.dtype.arith, own)))
    dims = [d for d, (have, want) in enumerate(zip(own, shape, strict=True)) if have != want]
    if dims:
        result = VectorType(value.dtype.arith, shape)
        ssa = current.result(xetile.BroadcastOp(ssa, result, dims))
    return Value(ssa, value.dtype, shape)


def item(value: Value) -> Value:
    """The only element of a one-element tile."""
    if value.is_scalar:
        return value
    if set(value.shape) != {1}:
        raise CompileError(
            f"item() takes a value of one element, not {describe_type(value)}",
            hint="reduce it first, e.g. tw.sum(x, axis=None).item()",
        )
    op = vector.ExtractOp(computed(value), [0] * value.ndim, value.dtype.arith)
    return Value(emitter().result(op), value.dtype, ())


# --- dtypes ----------------------------------------------------------------------------------


def expect_dtype(dtype: object, what: str) -> DType:
    """`dtype`; an ArgumentError, with its name here where it is numpy's or PyTorch's, for what is none of ours."""
    if isinstance(dtype, DType):
        return dtype
    known = dtypes.meant(dtype)
    raise ArgumentError(
        "dtype",
        f"{what} a dtype such as tw.f16, not {describe_type(dtype)}",
        hint=f"use {known!r}" if known else None,
    )


def whole_number(x: object) -> str | None:
    """What to write where a quotient stands for a whole number."""
    return "a // b of integers is an integer, a / b is not" if isinstance(x, float) else None


def to(value: Value, dtype: DType, bitcast: bool = False) -> Value:
    """Converts elementwise; `Value.to` says how each conversion rounds."""
    dtype = expect_dtype(dtype, "to() takes")
    source = value.dtype
    if bitcast:
        return _same_bits(value, dtype)
    if source is dtype:
        return Value(value.ssa, dtype, value.shape)
    if dtype.is_bool:
        from tilewright.lang.arithmetic import binary

        return binary("!=", value, 0.0 if source.is_float else 0)
    if source.is_float and dtype.is_float:
        return _float_to_float(value, dtype)
    if source.is_float:
        return _float_to_int(value, dtype)
    if dtype.is_float:
        return _int_to_float(value, dtype)
    return _int_to_int(value, dtype)


def _same_bits(value: Value, dtype: DType) -> Value:
    source = value.dtype
    fixed = (dtypes.i1, dtypes.tf32, dtypes.index)
    if source.bits != dtype.bits or source in fixed or dtype in fixed:
        raise ArgumentError(
            "dtype",
            f"{source} has no bits that are read as {dtype}",
            rule="a bitcast is between floats and integers of one width; i1, tf32 and index have none",
        )
    if source.arith == dtype.arith:
        return Value(computed(value), dtype, value.shape)
    return _emit(arith.BitcastOp, value, dtype)


def _emit(op: Any, value: Value, dtype: DType) -> Value:
    """Applies a cast op to ``dtype``'s arithmetic type."""
    wanted = shaped(dtype.arith, value.shape)
    return Value(emitter().result(op(computed(value), wanted)), dtype, value.shape)


def _float_to_float(value: Value, dtype: DType) -> Value:
    source = value.dtype
    # extf and truncf hold between a format and one that contains it; anything else goes by f32,
    # which contains every narrower format, so that there is one rounding.
    if _contains(dtype, source):
        return _emit(arith.ExtFOp, value, dtype)
    if _contains(source, dtype):
        return _emit(arith.TruncFOp, value, dtype)
    return to(to(value, dtypes.f32), dtype)


def _contains(wide: DType, narrow: DType) -> bool:
    return (
        wide.bits > narrow.bits
        and wide.exponent_bits >= narrow.exponent_bits
        and wide.mantissa_bits >= narrow.mantissa_bits
    )


def _float_to_int(value: Value, dtype: DType) -> Value:
    if value.dtype is dtypes.tf32:
        return to(to(value, dtypes.f32), dtype)
    if dtype.is_index:
        return to(to(value, dtypes.i64), dtype)
    return _emit(arith.FPToUIOp if dtype.is_unsigned else arith.FPToSIOp, value, dtype)


def _int_to_float(value: Value, dtype: DType) -> Value:
    if dtype is dtypes.tf32:
        return to(to(value, dtypes.f32), dtype)
    if value.dtype.is_index:
        value = to(value, dtypes.i64)
    signed = value.dtype.is_signed
    return _emit(arith.SIToFPOp if signed else arith.UIToFPOp, value, dtype)


def _int_to_int(value: Value, dtype: DType) -> Value:
    source = value.dtype
    if source.is_index or dtype.is_index:
        if source.is_unsigned or source.is_bool:
            value = to(value, dtypes.i64)  # index_cast extends by the sign
        elif source.is_index and dtype.bits != 64:
            return to(to(value, dtypes.i64), dtype)
        return _emit(arith.IndexCastOp, value, dtype)
    if source.bits == dtype.bits:
        return Value(computed(value), dtype, value.shape)
    if source.bits > dtype.bits:
        return _emit(arith.TruncIOp, value, dtype)
    return _emit(arith.ExtSIOp if source.is_signed else arith.ExtUIOp, value, dtype)
