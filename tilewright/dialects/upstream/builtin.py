"""builtin: elements of dense attributes, extents of vectors, floats that have no form here.

`dense<0xFF800000> : vector<8xf32>` gives the bits of the elements (-inf), as a scalar's
hexadecimal literal does; stock xDSL reads it as the number 4286578688. `dense<[0.0, -0.0]>` is no
splat, although its elements compare equal. And a splat costs one element: stock xDSL checks and packs
each copy, a second for `dense<5> : memref<1024x1024xi32>`.

A vector has elements, a memref's layout its rank, and an integer fewer than 2^24 bits, as MLIR says; numbers of f80
and f128, which stock xDSL reads but cannot write, are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import is_
from typing import Any

from xdsl.dialects.builtin import (
    AffineMapAttr,
    AnyFloat,
    DenseIntOrFPElementsAttr,
    Float80Type,
    Float128Type,
    FloatAttr,
    IntegerType,
    MemRefType,
    StridedLayoutAttr,
    VectorType,
)
from xdsl.ir import Attribute
from xdsl.parser import AttrParser
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.numerals import no_float

# The stock parser keeps an element's class private, and it is the only place to decode one.
_Element: Any = AttrParser._TensorLiteralElement  # pyright: ignore[reportPrivateUsage]
_number: Any = _Element.to_type


def _to_type(self: Any, parser: AttrParser, type: Any) -> Any:
    if isinstance(type, AnyFloat) and isinstance(self.value, bool):
        parser.raise_error(f"expected a number of type {type}", at_position=self.span)
    if not isinstance(type, AnyFloat) or not isinstance(self.value, int):
        return _number(self, parser, type)
    if why := no_float(self.span.text):
        parser.raise_error(why, at_position=self.span)
    size = type.compile_time_size
    if self.value >= 1 << (8 * size):
        parser.raise_error(f"hexadecimal value is too large for {type}", at_position=self.span)
    return next(type.iter_unpack(self.value.to_bytes(size, "little")))


_from_list: Any = DenseIntOrFPElementsAttr.from_list


def _dense(type: Any, data: Sequence[Any]) -> DenseIntOrFPElementsAttr:
    _check_width(type.element_type)
    # The same object throughout: equal numbers will not do, 0.0 equals -0.0.
    if len(data) > 1 and all(map(is_, data, repeat(data[0]))):
        data = data[:1]
    return _from_list(type, data)


def _is_splat(self: DenseIntOrFPElementsAttr) -> bool:
    """All elements have the same bits."""
    data = self.data.data
    size = self.type.element_type.compile_time_size
    return bool(data) and data == data[:size] * (len(data) // size)


def _check_width(type: Attribute) -> None:
    if isinstance(type, Float80Type | Float128Type):
        raise VerifyException(
            f"has a number of type {type}, wider than f64, which has no form here"
        )


_verify_vector: Any = VectorType.verify


def _verify_extents(self: VectorType) -> None:
    _verify_vector(self)
    for extent in self.get_shape():
        if extent < 1:
            raise VerifyException(
                f"vector types must have positive constant sizes but got {extent}"
            )


_verify_integer: Any = IntegerType.verify
_WIDEST = (1 << 24) - 1


def _verify_width(self: IntegerType) -> None:
    _verify_integer(self)
    if self.width.data > _WIDEST:
        raise VerifyException(f"integer bitwidth is limited to {_WIDEST} bits")


def _verify_layout(self: MemRefType) -> None:
    match self.layout:
        case StridedLayoutAttr():
            rank = len(self.layout.strides)
        case AffineMapAttr():
            rank = self.layout.data.num_dims
        case _:
            return
    if rank != self.get_num_dims():
        raise VerifyException(
            f"memref layout mismatch between rank and layout: {self.get_num_dims()} != {rank}"
        )


def complete() -> None:
    IntegerType.verify = _verify_width
    MemRefType.verify = _verify_layout
    number: Any = FloatAttr
    number.verify = lambda self: _check_width(self.type)
    VectorType.verify = _verify_extents
    _Element.to_type = _to_type
    stock: Any = DenseIntOrFPElementsAttr
    stock.from_list = staticmethod(_dense)
    stock.is_splat = _is_splat
