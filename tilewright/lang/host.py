"""What both a kernel and the program around it call, the latter without loading a compiler."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any, overload

from tilewright.lang.registry import language

if TYPE_CHECKING:
    from tilewright.lang.values import Value


@overload
def cdiv(a: int, b: int) -> int: ...
@overload
def cdiv(a: Value, b: Value | int) -> Value: ...
@overload
def cdiv(a: int, b: Value) -> Value: ...
@language
def cdiv(a: Any, b: Any) -> Any:
    """The quotient of two integers rounded up: how many tiles of b cover a.

    A kernel may use it on scalars and values; it also serves outside of kernels, for grids.

    >>> tw.cdiv(1000, 256)
    4
    """
    if type(a) is int and type(b) is int and b:  # a grid asks at every launch
        return -(-a // b)
    if isinstance(a, Integral) and isinstance(b, Integral) and b:
        return -(-int(a) // int(b))
    from tilewright.lang.arithmetic import binary
    from tilewright.lang.context import ArgumentError
    from tilewright.lang.values import Value, describe_type

    for name, x in (("a", a), ("b", b)):
        if not (isinstance(x, Integral) or (isinstance(x, Value) and not x.dtype.is_float)):
            raise ArgumentError(name, f"cdiv takes integers, not {describe_type(x)}")
    left, right = (x if isinstance(x, Value) else int(x) for x in (a, b))
    return binary("cdiv", left, right)
