"""What code is specialised on, and nothing else.

A :class:`Signature` holds, per run-time parameter, exactly the facts that the code may depend on:
dtype, rank, which dimension has unit stride, which extents equal 1, classes of divisibility and
alignment, and whether the array overlaps another argument. Plain extents and addresses are not
among them: two launches with equal signatures run the same code, and blocking is compile-time while
trip counts are run-time.

The same object says how the parameter stands in the IR: :meth:`ArrayType.mlir` is the type of the
gpu.func's argument, :meth:`ArrayType.facts` its entry of ``tilewright.args``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tilewright import dtypes
from tilewright.arguments import HOST_ALIGNMENT, NOWHERE, ArrayArg
from tilewright.diagnostics import LaunchError
from tilewright.dtypes import DType
from tilewright.frozen import frozen
from tilewright.runtime.sharing import lattice, meet, overlaps_itself

if TYPE_CHECKING:
    from xdsl.dialects.builtin import DictionaryAttr
    from xdsl.ir import Attribute

DIVISORS = (64, 16, 1)
"""Classes of extents: multiples of 64, of 16, and all others. Few, for every one is compiled anew."""

VECTORS = (16, 8, 4)
"""Bytes that a thread of a device moves at a time. Rows are classed by what divides their begin and their length, which
of dense arrays are the same number."""

WORD = 4
"""Bytes at whose multiples 1-D block messages read (Xe); a class of alignment where `row` is asked for."""


@frozen
class ArrayType:
    """Everything that code may know about an array."""

    dtype: DType
    rank: int
    unit: int | None
    """The dimension whose stride is 1 (the innermost of several); None when there is none."""
    ones: tuple[bool, ...]
    """Which extents equal 1."""
    align: int
    """64, 16, 8 or 4 where a target asks, the size of an element, or 1: divides the address and every
    non-unit stride, in bytes."""
    div: tuple[int, ...]
    """64, 16 or 1 per dimension: divides the extent. Of rows on devices also the elements of a narrower vector."""
    noalias: bool
    """Whether the array shares no byte range with another argument, and its rows none with one another."""
    row: int = 0
    """`BLOCK_ROW` where its rows (columns, where these are contiguous) have as many bytes and are whole words of 4;
    else, and where a target does not ask, 0."""

    def mlir(self) -> Attribute:
        """``memref<?x?xbf16, strided<[?, 1]>>``: static are unit extents and the unit stride."""
        from xdsl.dialects.builtin import (
            DYNAMIC_INDEX,
            ArrayAttr,
            IntAttr,
            MemRefType,
            NoneAttr,
            StridedLayoutAttr,
        )

        shape = [1 if one else DYNAMIC_INDEX for one in self.ones]
        strides = ArrayAttr(
            IntAttr(1) if axis == self.unit else NoneAttr() for axis in range(self.rank)
        )
        return MemRefType(self.dtype.mlir, shape, StridedLayoutAttr(strides, IntAttr(0)))

    def facts(self) -> DictionaryAttr:
        """``{align = 64 : i64, div = [64, 16], noalias}``."""
        from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, UnitAttr, i64

        facts: dict[str, Attribute] = {
            "align": IntegerAttr(self.align, i64),
            "div": ArrayAttr(IntegerAttr(d, i64) for d in self.div),
        }
        if self.noalias:
            facts["noalias"] = UnitAttr()
        if self.unit is not None and self.row > self.div[self.unit] * self.dtype.itemsize:
            facts["row"] = IntegerAttr(self.row, i64)
        return DictionaryAttr(facts)

    def __str__(self) -> str:
        extents = "x".join(
            "1" if one else f"?%{d}" for one, d in zip(self.ones, self.div, strict=True)
        )
        alias = "" if self.noalias else ", may alias"
        row = f", rows of {self.row} bytes" if self.row else ""
        return f"{self.dtype}[{extents}, unit {self.unit}, align {self.align}{row}{alias}]"


@frozen
class ScalarType:
    """A number that is given at launch: its value never changes the code."""

    dtype: DType

    def mlir(self) -> Attribute:
        return self.dtype.arith

    def facts(self) -> DictionaryAttr:
        from xdsl.dialects.builtin import DictionaryAttr

        return DictionaryAttr({})

    def __str__(self) -> str:
        return str(self.dtype)


ArgType: TypeAlias = ArrayType | ScalarType

Signature: TypeAlias = tuple[ArgType, ...]
"""One entry per run-time parameter, in order."""


def mlir_facts(signature: Signature) -> Attribute:
    """The gpu.func's ``tilewright.args``."""
    from xdsl.dialects.builtin import ArrayAttr

    return ArrayAttr([arg.facts() for arg in signature])


def signature_of(
    args: Sequence[ArrayArg | ScalarType], *, alignment: int = HOST_ALIGNMENT, row: int = 0
) -> Signature:
    """The signature of a launch with these arguments.

    ``alignment`` is the largest that the target makes use of (beyond the host's: and of those of `VECTORS`), ``row``
    the bytes of a row that it asks for.
    """
    overlapping = overlapping_arguments(args)
    return tuple(
        array_type(
            arg,
            noalias=i not in overlapping and not overlaps_itself(arg),
            alignment=alignment,
            row=row,
        )
        if isinstance(arg, ArrayArg)
        else arg
        for i, arg in enumerate(args)
    )


def array_type(
    arg: ArrayArg, *, noalias: bool, alignment: int = HOST_ALIGNMENT, row: int = 0
) -> ArrayType:
    """The facts of one array."""
    size = arg.dtype.itemsize
    unit = unit_dimension(arg.strides)
    bits = arg.pointer
    for axis, (extent, stride) in enumerate(zip(arg.shape, arg.strides, strict=True)):
        if axis != unit and extent > 1:
            bits |= stride * size
    device = alignment > HOST_ALIGNMENT
    vectors = [v for v in (VECTORS if device else (WORD,) if row else ()) if v > size]
    align = _largest(bits, (alignment, HOST_ALIGNMENT, *vectors, size, 1))
    whole = [v // size for v in vectors if v <= align] if device else []
    long = unit is not None and unit >= arg.rank - 2 and _is_long(arg.shape[unit] * size, row)
    return ArrayType(
        dtype=arg.dtype,
        rank=arg.rank,
        unit=unit,
        ones=tuple(extent == 1 for extent in arg.shape),
        align=align,
        div=tuple(
            _largest(extent, (*DIVISORS[:-1], *(whole if axis == unit else ()), 1))
            for axis, extent in enumerate(arg.shape)
        ),
        noalias=noalias,
        row=row if long else 0,
    )


def _is_long(bytes: int, least: int) -> bool:
    """Do block messages reach a row of so many bytes?"""
    return bytes >= least and bytes % 4 == 0


def _largest(value: int, divisors: Sequence[int]) -> int:
    """The first of ``divisors`` that divides ``value``; 1 is the last of them."""
    return next(d for d in divisors if value % d == 0)


def unit_dimension(strides: Sequence[int]) -> int | None:
    """The innermost dimension whose stride is 1."""
    for axis in range(len(strides) - 1, -1, -1):
        if strides[axis] == 1:
            return axis
    return None


def overlapping_arguments(args: Sequence[object]) -> set[int]:
    """Positions of the arrays that have a byte in common with another array argument."""
    ranges = sorted(
        (*arg.byte_range(), i)
        for i, arg in enumerate(args)
        if isinstance(arg, ArrayArg) and arg.device != NOWHERE
    )
    found: set[int] = set()
    for place, (low, high, i) in enumerate(ranges):
        for other_low, _, j in ranges[place + 1 :]:
            if other_low >= high:
                break
            if low < high and not {i, j} <= found and _share(args[i], args[j]):
                found |= {i, j}
    return found


def _share(a: object, b: object) -> bool:
    assert isinstance(a, ArrayArg) and isinstance(b, ArrayArg)
    return meet(lattice(a), lattice(b), a.pointer - b.pointer)


def scalar_type(value: Any) -> ScalarType | None:
    """The type of a scalar argument: int -> index, float -> f32, bool -> i1, numpy by its dtype.

    None when ``value`` is no scalar. LaunchError for numbers that no kernel takes.
    """
    kind = type(value)
    found = _SCALARS.get(kind)
    if found is not None:
        return found
    if isinstance(value, np.generic):
        try:
            return ScalarType(dtypes.from_numpy(value.dtype))
        except TypeError as error:
            raise LaunchError(f"a scalar has an unsupported type: {error}") from None
    for base in (bool, int, float):
        if isinstance(value, base):
            return _SCALARS[base]
    return None


_SCALARS: dict[type, ScalarType] = {
    bool: ScalarType(dtypes.i1),
    int: ScalarType(dtypes.index),
    float: ScalarType(dtypes.f32),
}


def constexpr_key(constexprs: Mapping[str, Any]) -> str | None:
    """Constexpr values as text for a cache key; None when one has no stable text."""
    parts: list[str] = []
    for name in sorted(constexprs):
        text = stable_text(constexprs[name])
        if text is None:
            return None
        parts.append(f"{name}={text}")
    return ";".join(parts)


def stable_text(value: Any) -> str | None:
    """Text that is equal in every process exactly when the values are; None when there is none."""
    if isinstance(value, np.generic):
        return f"{value.dtype.name}:{value.tobytes().hex()}"
    if value is None or isinstance(value, (bool, int, str, DType)):
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, float):
        return f"float:{value.hex()}"
    if isinstance(value, np.dtype):
        return f"dtype:{value.name}"
    if isinstance(value, (tuple, list, frozenset)):
        parts = [stable_text(v) for v in value]
        if None in parts:
            return None
        if isinstance(value, frozenset):
            parts.sort(key=str)
        return f"{type(value).__name__}:({','.join(map(str, parts))})"
    return None
