"""The element types of tiles: one object per type, the same everywhere in the compiler.

A :class:`DType` knows its name, its size, its numpy type and its MLIR type. The numpy and MLIR
forms are made when first asked for, so that ``import tilewright`` loads neither.

Two MLIR forms exist because MLIR's arithmetic is signless: ``u8.mlir`` is ``ui8``, the type that
stands in memrefs, tiles and loaded vectors, and ``u8.arith`` is ``i8``, the type of a value that is
computed with. For every other type the two are equal. tf32 is stored in four bytes like f32.
"""

from __future__ import annotations

from functools import cache, cached_property
from math import inf
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    import numpy as np
    from xdsl.ir import Attribute

Kind = Literal["float", "signed", "unsigned", "bool", "index"]


class DType:
    """An element type. There is one instance per type, so ``is`` and ``==`` agree."""

    name: str
    """Tilewright's name: ``f32``, ``u8``, ``i1``, ``index``."""
    kind: Kind
    bits: int
    """Number of bits that carry the value (19 for tf32, 1 for i1)."""
    itemsize: int
    """Bytes of one element in memory."""

    def __init__(self, name: str, kind: Kind, bits: int, itemsize: int, numpy_name: str):
        self.name = name
        self.kind = kind
        self.bits = bits
        self.itemsize = itemsize
        self._numpy_name = numpy_name

    @property
    def is_float(self) -> bool:
        """Whether it is a float of any width, tf32 and the 8-bit ones among them."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers and for index; false for i1."""
        return self.kind in ("signed", "unsigned", "index")

    @property
    def is_signed(self) -> bool:
        """True for floats, signed integers and index."""
        return self.kind in ("float", "signed", "index")

    @property
    def is_unsigned(self) -> bool:
        """Whether it is an integer without a sign; i1 and index are not."""
        return self.kind == "unsigned"

    @property
    def is_bool(self) -> bool:
        """Whether it is i1, the type of masks."""
        return self.kind == "bool"

    @property
    def is_index(self) -> bool:
        """Whether it is the type of extents and offsets, 64 bits wide."""
        return self.kind == "index"

    @property
    def has_infinity(self) -> bool:
        """Whether it is a float with infinities: the 8-bit ones that have none make NaN of them."""
        return self.is_float and self.name not in ("f8e4m3", "f8e8m0")

    @property
    def upmost(self) -> float:
        """The float that none is above: infinity, or the largest where there is none."""
        if self.has_infinity:
            return inf
        import ml_dtypes

        return float(ml_dtypes.finfo(self.numpy).max)

    @property
    def integers(self) -> tuple[int, int]:
        """The least and the largest value of integers, of i1 too."""
        half = 1 << self.bits - 1
        return (-half, half - 1) if self.kind in ("signed", "index") else (0, 2 * half - 1)

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype of an array of this type (tf32 is held in float32)."""
        import numpy

        if self._numpy_name.startswith(("bfloat", "float8")):
            import ml_dtypes

            return numpy.dtype(getattr(ml_dtypes, self._numpy_name))
        return numpy.dtype(self._numpy_name)

    @cached_property
    def mlir(self) -> Attribute:
        """The MLIR type in memrefs, tiles, and vectors that are loaded or stored."""
        from xdsl.dialects import builtin

        if self.kind == "float":
            return _mlir_floats()[self.name]
        if self.kind == "index":
            return builtin.IndexType()
        if self.kind == "unsigned":
            return builtin.IntegerType(self.bits, builtin.Signedness.UNSIGNED)
        return builtin.IntegerType(self.bits)

    @cached_property
    def arith(self) -> Attribute:
        """The MLIR type in arithmetic: signless integers, otherwise the same as :attr:`mlir`."""
        from xdsl.dialects import builtin

        return builtin.IntegerType(self.bits) if self.kind == "unsigned" else self.mlir

    @cached_property
    def exponent_bits(self) -> int:
        """Width of a float's exponent; 0 for other types."""
        return _FORMATS[self.name][0] if self.is_float else 0

    @cached_property
    def mantissa_bits(self) -> int:
        """Width of a float's stored mantissa; 0 for other types."""
        return _FORMATS[self.name][1] if self.is_float else 0

    def __repr__(self) -> str:
        return f"tw.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return from_name, (self.name,)


_FORMATS = {
    "f64": (11, 52, "Float64Type"),
    "f32": (8, 23, "Float32Type"),
    "tf32": (8, 10, "FloatTF32Type"),
    "f16": (5, 10, "Float16Type"),
    "bf16": (8, 7, "BFloat16Type"),
    "f8e4m3": (4, 3, "Float8E4M3FNType"),
    "f8e5m2": (5, 2, "Float8E5M2Type"),
    "f8e8m0": (8, 0, "Float8E8M0FNUType"),
}
"""Of floats: the widths of exponent and stored mantissa, and the class of the MLIR type."""

f64: Final = DType("f64", "float", 64, 8, "float64")
f32: Final = DType("f32", "float", 32, 4, "float32")
tf32: Final = DType("tf32", "float", 19, 4, "float32")
f16: Final = DType("f16", "float", 16, 2, "float16")
bf16: Final = DType("bf16", "float", 16, 2, "bfloat16")
f8e4m3: Final = DType("f8e4m3", "float", 8, 1, "float8_e4m3fn")
f8e5m2: Final = DType("f8e5m2", "float", 8, 1, "float8_e5m2")
f8e8m0: Final = DType("f8e8m0", "float", 8, 1, "float8_e8m0fnu")
"""A scale: 2 to the power of the byte - 127, or NaN. It has no zero and no sign."""
i64: Final = DType("i64", "signed", 64, 8, "int64")
i32: Final = DType("i32", "signed", 32, 4, "int32")
i16: Final = DType("i16", "signed", 16, 2, "int16")
i8: Final = DType("i8", "signed", 8, 1, "int8")
u64: Final = DType("u64", "unsigned", 64, 8, "uint64")
u32: Final = DType("u32", "unsigned", 32, 4, "uint32")
u16: Final = DType("u16", "unsigned", 16, 2, "uint16")
u8: Final = DType("u8", "unsigned", 8, 1, "uint8")
i1: Final = DType("i1", "bool", 1, 1, "bool")
index: Final = DType("index", "index", 64, 8, "int64")

ALL: Final[tuple[DType, ...]] = (
    *(f64, f32, tf32, f16, bf16, f8e4m3, f8e5m2),
    *(i64, i32, i16, i8, u64, u32, u16, u8, i1, index),
)
"""Every type of numbers, widest floats first."""

_BY_NAME = {dtype.name: dtype for dtype in (*ALL, f8e8m0)}
BY_NUMPY_NAME: Final = {d._numpy_name: d for d in _BY_NAME.values() if d not in (tf32, index)}  # pyright: ignore[reportPrivateUsage]
"""PyTorch has the same names."""


def from_name(name: str) -> DType:
    """The type called ``name``; KeyError lists the names when there is none."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise KeyError(f"no dtype is called {name!r}; there are {', '.join(_BY_NAME)}") from None


def meant(value: Any) -> DType | None:
    """The type that a name, or a type of numpy's, Python's or PyTorch's, stands for; None for what stands for none."""
    name = value if isinstance(value, type) else str(value).removeprefix("torch.")
    if isinstance(name, str) and (found := _BY_NAME.get(name) or BY_NUMPY_NAME.get(name)):
        return found
    try:
        return from_numpy(name) if isinstance(name, type) or name.isidentifier() else None
    except TypeError:
        return None


def from_numpy(dtype: Any) -> DType:
    """The type of the elements of a numpy array of ``dtype``.

    Anything ``numpy.dtype`` accepts is accepted; the types of ``ml_dtypes`` are known by name.
    Raises TypeError for types that no kernel can hold (complex, datetime, strings, records,
    byte-swapped data).
    """
    import numpy

    found = numpy.dtype(dtype)
    if not found.isnative:
        raise TypeError(f"numpy dtype {found} is byte-swapped")
    try:
        return BY_NUMPY_NAME[found.name]
    except KeyError:
        names = ", ".join(BY_NUMPY_NAME)
        raise TypeError(f"numpy dtype {found} has no tile type; there are {names}") from None


@cache
def from_mlir(attribute: Attribute) -> DType:
    """The type that stands for an MLIR element type (``ui8`` gives u8, ``i8`` gives i8).

    Raises TypeError for MLIR types that are no element type of a tile.
    """
    from xdsl.dialects import builtin

    if isinstance(attribute, builtin.IntegerType):
        if attribute.width.data == 1:
            return i1
        unsigned = attribute.signedness.data == builtin.Signedness.UNSIGNED
        found = _BY_NAME.get(f"{'u' if unsigned else 'i'}{attribute.width.data}")
    elif isinstance(attribute, builtin.IndexType):
        found = index
    else:
        found = next((_BY_NAME[n] for n, t in _mlir_floats().items() if t == attribute), None)
    if found is None:
        raise TypeError(f"MLIR type {attribute} is no element type of a tile")
    return found


def is_known(attribute: Attribute) -> bool:
    """Whether `from_mlir` has a type for it."""
    try:
        return bool(from_mlir(attribute))
    except TypeError:
        return False


def _mlir_floats() -> dict[str, Attribute]:
    from xdsl.dialects import builtin

    return {name: getattr(builtin, kind)() for name, (_, _, kind) in _FORMATS.items()}
