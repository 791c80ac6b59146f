"""What a name in a kernel can stand for at run time: :class:`Value`, :class:`Tile`, :class:`Array`.

While a kernel is being built these objects flow through its expressions in place of numbers, and
their operators write IR. Everything else that a kernel handles (numbers, dtypes, tuples, functions)
is an ordinary Python object of compile time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects import memref
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType
from xdsl.ir import SSAValue

from tilewright.diagnostics import CompileError
from tilewright.dialects.upstream.strided import static_strides
from tilewright.dtypes import DType
from tilewright.frozen import frozen
from tilewright.lang.context import OpT, emitter
from tilewright.lang.registry import FUNCTIONS, is_method

if TYPE_CHECKING:
    from tilewright.dialects.xetile import TileType

Number = int | float | bool
"""A compile-time number."""


_Operator = Callable[["Value", "Operand"], "Value"]


def _operator(symbol: str) -> tuple[_Operator, _Operator]:
    """A method for each side on which a value can stand."""

    def left(self: Value, other: Operand) -> Value:
        return _binary(symbol, self, other)

    def right(self: Value, other: Operand) -> Value:
        return _binary(symbol, other, self)

    return left, right


class Value:
    """A run-time scalar or the value of a whole tile.

    ``shape`` is ``()`` for a scalar, ``(M, N)`` for the value of a tile, ``(N,)`` for a vector of
    offsets. Operators broadcast as numpy does; `tilewright.lang.promote` says what dtype they give.
    """

    __slots__ = ("dtype", "shape", "ssa", "weak")

    __hash__ = object.__hash__

    def __init__(self, ssa: SSAValue, dtype: DType, shape: tuple[int, ...], *, weak: bool = False):
        self.ssa = ssa
        self.dtype = dtype
        self.shape = shape
        self.weak = weak
        """A scalar that stood as a Python float: it takes the dtype of what it meets."""

    @property
    def is_scalar(self) -> bool:
        """Whether it is one number, the same for the whole program."""
        return self.shape == ()

    @property
    def ndim(self) -> int:
        """2 for the value of a tile, 0 for a scalar."""
        return len(self.shape)

    def to(self, dtype: DType, *, bitcast: bool = False) -> Value:
        """The value converted to ``dtype``, elementwise.

        Float to float rounds to nearest even; float to integer truncates toward zero, and values
        outside the integer's range (or NaN) give an unspecified result; integer to a narrower
        integer wraps; anything to i1 is ``!= 0``. With ``bitcast`` the same bits are read as another dtype of
        as many: ``x.to(tw.i32, bitcast=True)`` of f32 is its sign, exponent and fraction.

        >>> @tw.kernel
        ... def cast(X, Y):
        ...     x = tw.load_tile(tw.init_tile(X, [0, 0], (4, 4)))
        ...     tw.store_tile(x.to(tw.i32), tw.init_tile(Y, [0, 0], (4, 4)))
        >>> x = np.full((4, 4), -2.75, np.float32); y = np.empty((4, 4), np.int32)
        >>> cast[1](x, y); int(y[0, 0])
        -2
        """
        from tilewright.lang import convert

        return convert.to(self, dtype, bitcast)

    def item(self) -> Value:
        """The only element of a 1x1 tile, as a scalar."""
        from tilewright.lang import convert

        return convert.item(self)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Functions of the language whose first parameter is ``x`` are methods: ``x.sum(1)`` is ``tw.sum(x, 1)``."""
        if is_method(name):
            return partial(FUNCTIONS[name], self)
        raise AttributeError(name)

    __add__, __radd__ = _operator("+")
    __sub__, __rsub__ = _operator("-")
    __mul__, __rmul__ = _operator("*")
    __truediv__, __rtruediv__ = _operator("/")
    __floordiv__, __rfloordiv__ = _operator("//")
    __mod__, __rmod__ = _operator("%")
    __pow__, __rpow__ = _operator("**")
    __and__, __rand__ = _operator("&")
    __or__, __ror__ = _operator("|")
    __xor__, __rxor__ = _operator("^")
    __lshift__, __rlshift__ = _operator("<<")
    __rshift__, __rrshift__ = _operator(">>")
    __lt__, __gt__ = _operator("<")[0], _operator(">")[0]
    __le__, __ge__ = _operator("<=")[0], _operator(">=")[0]

    def __eq__(self, other: object) -> Value:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _binary("==", self, cast(Any, other))

    def __ne__(self, other: object) -> Value:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _binary("!=", self, cast(Any, other))

    def __neg__(self) -> Value:
        return _unary("-", self)

    def __pos__(self) -> Value:
        return self

    def __invert__(self) -> Value:
        return _unary("~", self)

    # A kernel may write `if n > 0`, `range(n)`, `float(n)`: the front end gives these a run-time
    # meaning. Reached from ordinary Python they have none.

    def __bool__(self) -> bool:
        raise self._no_number("a truth value")

    def __index__(self) -> int:
        raise self._no_number("an integer")

    def __float__(self) -> float:
        raise self._no_number("a float")

    def _no_number(self, what: str) -> CompileError:
        return CompileError(
            f"{self} is known only at run time, but {what} is needed at compile time",
            hint="make it a tw.constexpr parameter, or use the functions of the tile language",
        )

    def __repr__(self) -> str:
        return f"a {describe_type(self)}"


VALUE_MEMBERS = ("dtype", "shape", "ndim", "to", "item")


def is_number_member(owner: object, name: str) -> bool:
    """Whether a number of compile time stands where other arguments give a scalar: an extent of 1 is a number."""
    return isinstance(owner, (int, float)) and name in VALUE_MEMBERS


@dataclass(frozen=True, eq=False, slots=True)
class Tile:
    """A region of an array: what load, store and tile_mma work on. Tiles are values.

    ``shape`` is the tile's shape, ``dtype`` its array's element type.
    """

    ssa: SSAValue
    dtype: DType

    @property
    def type(self) -> TileType:
        """The type in the IR: shape, element type, order, memory space, maps."""
        return cast("TileType", self.ssa.type)

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return self.type.get_shape()

    @property
    def scattered(self) -> bool:
        """Whether each element has an offset of its own."""
        return self.type.scattered

    def __repr__(self) -> str:
        return f"a {describe_type(self)}"


class Array:
    """An array argument of a kernel, a part of one (``view``), or shared local memory (``alloc_slm``).

    Extents and strides count elements. An extent that is 1 and a stride that is 1 by the array's
    class are compile-time numbers, the others run-time scalars.
    """

    __slots__ = (
        "_chosen", "_shape", "_strides", "dtype", "is_view", "memory_space", "name", "ssa",
    )  # fmt: skip

    __hash__ = object.__hash__

    def __init__(
        self,
        ssa: SSAValue,
        dtype: DType,
        name: str,
        memory_space: int = 0,
        *,
        shape: tuple[int | Value, ...] | None = None,
        strides: tuple[int | Value, ...] | None = None,
        chosen: bool = False,
    ):
        self.ssa = ssa
        self._chosen = chosen
        self.dtype = dtype
        self.name = name
        self.memory_space = memory_space
        self._shape = shape
        self._strides = strides
        self.is_view = shape is not None
        """Whether it is a part of an array, made in the kernel."""

    @property
    def type(self) -> MemRefType:
        """The memref type: known extents and strides, memory space."""
        return cast(MemRefType, self.ssa.type)

    @property
    def ndim(self) -> int:
        """The number of dimensions: a number of compile time."""
        return len(self.type.get_shape())

    @property
    def shape(self) -> tuple[Value, ...]:
        """Extents, outermost first: ``A.shape[1]``."""
        if self._shape is None:
            found = tuple(
                self._extent(d) if size == DYNAMIC_INDEX else size
                for d, size in enumerate(self.type.get_shape())
            )
            self._shape = None if self._chosen else found
            return cast(tuple[Value, ...], found)
        return cast(tuple[Value, ...], self._shape)

    @property
    def strides(self) -> tuple[Value, ...]:
        """Distances in elements between neighbours along each dimension."""
        if self._strides is None:
            static = static_strides(self.type)
            dynamic: list[Value] = []
            if None in static:
                op = self._ask("strides", memref.ExtractStridedMetaDataOp(self.ssa))
                dynamic = [_index(value) for value in op.strides]
            found = tuple(dynamic[d] if s is None else s for d, s in enumerate(static))
            self._strides = None if self._chosen else found
            return cast(tuple[Value, ...], found)
        return cast(tuple[Value, ...], self._strides)

    def _extent(self, dim: int) -> Value:
        from tilewright.dtypes import index
        from tilewright.lang.convert import constant_ssa

        return _index(
            self._ask("shape", memref.DimOp(self.ssa, constant_ssa(dim, index))).results[0]
        )

    def _ask(self, what: str, op: OpT) -> OpT:
        """Of an argument once, at the head of the kernel; of what control flow chose wherever it is asked for."""
        current = emitter(what)
        return current.emit(op) if self._chosen else current.emit_at_entry(op)

    def __repr__(self) -> str:
        return f"the array {self.name} ({self.ndim}-D, {self.dtype})"


Operand = Value | int | float | bool
"""What an operator takes beside a value."""


def describe_type(value: object) -> str:
    """A short name of what a kernel's object is, for messages: ``16x32 tile value of f16``."""
    if isinstance(value, Value):
        if value.is_scalar:
            return f"run-time {value.dtype} scalar"
        return f"{'x'.join(map(str, value.shape))} value of {value.dtype}"
    if isinstance(value, Tile):
        kind = "scattered tile" if value.scattered else "tile"
        where = ", column-major" * (value.type.order == (0, 1)) + ", shared local" * (
            value.type.memory_space == 3
        )
        return f"{'x'.join(map(str, value.shape))} {kind} of {value.dtype}{where}"
    if isinstance(value, Array):
        return f"{value.ndim}-D array of {value.dtype}"
    if value is None:
        return "None (what a function without return gives)"
    if isinstance(value, (bool, int, float, str)):
        return f"the constant {value!r}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__} of {len(cast(Any, value))}"
    if isinstance(value, DType):
        return f"the dtype {value!r}"
    if callable(value):
        kind = "class" if isinstance(value, type) else "function"
        return f"the {kind} {getattr(value, '__name__', value)!s}"
    return getattr(value, "described", None) or f"a Python object of type {type(value).__name__}"


def load_hint(*operands: object) -> str | None:
    """What an operation lacks that is given other things than values and numbers."""
    for x in operands:
        if isinstance(x, str):
            return 'an f-string holds what is known at run time: f"{x}"'
        if isinstance(x, Tile) and any(isinstance(y, (tuple, list)) for y in operands):
            return "a tile is moved with tw.update_tile_offset(tile, [rows, columns])"
        if isinstance(x, Tile):
            return "a tile is a region of memory; tw.load_tile(tile) returns its elements"
        if isinstance(x, Array):
            one = f"one element is A[{', '.join('ijklmnpq'[: x.ndim])}]"
            return f"load a part of the array: tw.load_tile(tw.init_tile(array, offsets, shape)); {one}"
    return None


def _index(ssa: SSAValue) -> Value:
    from tilewright.dtypes import index

    return Value(ssa, index, ())


def _binary(symbol: str, a: Any, b: Any) -> Value:
    from tilewright.lang import arithmetic

    binary: Callable[[str, Any, Any], Any] = arithmetic.binary
    return binary(symbol, a, b)


def _unary(symbol: str, a: Any) -> Value:
    from tilewright.lang import arithmetic

    return arithmetic.unary(symbol, a)


@frozen
class LoopRange:
    """``range(...)`` in a kernel: a loop at run time."""

    start: int | Value
    stop: int | Value
    step: int | Value
