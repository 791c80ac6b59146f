"""Which LLVM registers hold a value: the representation of each target.

Every SSA value of the last stage prints as a *tuple* of LLVM registers. A vector of any rank is the
row-major list of its components, cut into consecutive registers; only the cut differs between
targets:

    representation       vector<4x16xf32>      vector<24xf32>              vector<1xf32>
    SIMD (x86)           4 x <16 x float>      <24 x float>                float
    lane vectors (xe)    4 x <16 x float>      <16 x float>, <8 x float>   float
    fragments (cuda)     64 x float            24 x float                  float

Because the cut depends on the shape alone, elementwise ops are written once as a zip over
registers, and shape_cast, extract and the like once as index arithmetic on the row-major list. bf16
and f8 values live in integer registers: LLVM then never meets a type that some target would soften
into library calls.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from math import prod

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    BFloat16Type,
    Float8E4M3FNType,
    Float8E5M2Type,
    Float8E8M0FNUType,
    Float16Type,
    Float32Type,
    Float64Type,
    FloatTF32Type,
    IndexType,
    IntAttr,
    IntegerType,
    MemRefType,
    NoneAttr,
    UnrankedMemRefType,
    VectorType,
)
from xdsl.ir import Attribute

from tilewright.dialects.mach import AmxType
from tilewright.dialects.upstream.gpu import memory_space_number
from tilewright.dialects.upstream.pointer import LLVMPointerType
from tilewright.dialects.upstream.strided import strided_form as memref_form
from tilewright.frozen import frozen

DYNAMIC = -1
"""A size, stride or offset of a memref that is known only at run time."""


@frozen
class Element:
    """A scalar type: MLIR name, LLVM type of its register, bits there and in memory."""

    name: str
    llvm: str
    kind: str
    """`int`, `float`, `ptr`, `amx` or `other`."""
    bits: int
    stored_bits: int

    @property
    def stored(self) -> str:
        """LLVM type in memory: the register's type, but i1 takes a byte."""
        return f"i{self.stored_bits}" if self.stored_bits != self.bits else self.llvm

    @property
    def stored_bytes(self) -> int:
        return self.stored_bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "float"


_FLOATS: dict[type[Attribute], tuple[str, str, int]] = {
    Float64Type: ("f64", "double", 64),
    Float32Type: ("f32", "float", 32),
    FloatTF32Type: ("tf32", "float", 32),
    Float16Type: ("f16", "half", 16),
    BFloat16Type: ("bf16", "i16", 16),
    Float8E4M3FNType: ("f8E4M3FN", "i8", 8),
    Float8E5M2Type: ("f8E5M2", "i8", 8),
    Float8E8M0FNUType: ("f8E8M0FNU", "i8", 8),
}


@frozen
class RegisterLayout:
    """The registers of one type: `types[i]` holds `counts[i]` consecutive components, row-major."""

    element: Element
    shape: tuple[int, ...]
    counts: tuple[int, ...]
    types: tuple[str, ...]

    @property
    def size(self) -> int:
        return prod(self.shape)


@frozen
class MemRefLayout:
    """A memref's descriptor; `DYNAMIC` entries are registers: base, offset, sizes, strides."""

    element: Element
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    pointer: str
    types: tuple[str, ...]
    element_bytes: int
    identity: bool
    """Is it row-major without gaps by its type?"""


class NoRegister(Exception):
    """The type has no register on this target."""


def llvm_vector(count: int, scalar: str) -> str:
    """`<count x scalar>`, or the scalar itself for one component."""
    return scalar if count == 1 else f"<{count} x {scalar}>"


@frozen
class Representation:
    """How vectors are cut. `widths`: component counts that a register may have, largest first; None
    = any.

    `half` is the register type of f16: `i16` where LLVM's half would fall back to library calls.
    """

    name: str
    widths: tuple[int, ...] | None
    half: str = "half"
    address_spaces: tuple[tuple[int, int], ...] = ()
    """(memref memory space, LLVM address space) where they differ from identity; () = always 0."""

    def cut(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Component counts of the registers that hold a vector of `shape`."""
        size = prod(shape)
        if self.widths is None:
            row = next((n for n in reversed(shape) if n != 1), 1)
            return (row,) * (size // row) if row else ()
        counts: list[int] = []
        for width in self.widths:
            taken, size = divmod(size, width)
            counts += [width] * taken
        return tuple(counts)

    def element(self, type: Attribute) -> Element:
        """The scalar `type`; NoRegister if it is none."""
        if isinstance(type, IntegerType):
            bits = type.width.data
            return Element(f"i{bits}", f"i{bits}", "int", bits, max(8, -(-bits // 8) * 8))
        if isinstance(type, IndexType):
            return Element("index", "i64", "int", 64, 64)
        if isinstance(type, LLVMPointerType):
            space = type.addr_space
            return self.pointer(space.data if isinstance(space, IntAttr) else 0)
        if (known := _FLOATS.get(type.__class__)) is not None:
            name, llvm, bits = known
            return Element(name, self.half if name == "f16" else llvm, "float", bits, bits)
        if isinstance(type, AmxType):
            return Element("amx", "x86_amx", "amx", 8192, 8192)
        raise NoRegister(str(type))

    def pointer(self, space: int) -> Element:
        llvm = f"ptr addrspace({space})" if space else "ptr"
        return Element(llvm, llvm, "ptr", 64, 64)

    def layout(self, type: Attribute) -> RegisterLayout:
        """Registers of a scalar or vector type; NoRegister for any other."""
        if isinstance(type, VectorType):
            element, shape = self.element(type.element_type), type.get_shape()
            if any(bool(d) for d in type.get_scalable_dims()):
                raise NoRegister(f"{type}: scalable vectors have no fixed registers")
            return self.layout_of(element, shape)
        element = self.element(type)
        return RegisterLayout(element, (), (1,), (element.llvm,))

    def layout_of(self, element: Element, shape: tuple[int, ...]) -> RegisterLayout:
        """Registers of a vector of `shape`."""
        counts = self.cut(shape)
        return RegisterLayout(
            element, shape, counts, tuple(llvm_vector(n, element.llvm) for n in counts)
        )

    def address_space(self, type: MemRefType) -> int:
        """LLVM's number of the memory that a memref lies in."""
        return dict(self.address_spaces).get(memory_space_number(type), 0)

    def memref(self, type: MemRefType) -> MemRefLayout:
        """Descriptor of a ranked memref with identity or strided layout."""
        sizes = tuple(DYNAMIC if n < 0 else n for n in type.get_shape())
        strides, offset = strided_form(type)
        pointer = self.pointer(self.address_space(type)).llvm
        dynamic = sum(x == DYNAMIC for x in chain((offset,), sizes, strides))
        element = self.layout(type.element_type)
        return MemRefLayout(
            element.element,
            sizes,
            strides,
            offset,
            pointer,
            (pointer,) + ("i64",) * dynamic,
            element.element.stored_bytes * element.size,
            isinstance(type.layout, NoneAttr),
        )

    def registers(self, type: Attribute) -> tuple[str, ...]:
        """Register types of any value: vectors and scalars, memrefs, and tokens (which have none)."""
        if isinstance(type, MemRefType):
            return self.memref(type).types
        if isinstance(type, UnrankedMemRefType):
            return ("i64", "ptr")
        if type.name in ("gpu.async.token", "none"):
            return ()
        return self.layout(type).types


def strided_form(type: MemRefType) -> tuple[tuple[int, ...], int]:
    """(strides, offset) of a memref in elements, `DYNAMIC` where unknown. NoRegister where it has none."""
    try:
        strides, offset = memref_form(type)
    except TypeError as error:
        raise NoRegister(str(error)) from None
    known = tuple(DYNAMIC if s == DYNAMIC_INDEX else s for s in strides)
    return known, DYNAMIC if offset == DYNAMIC_INDEX else offset


SIMD = Representation("simd", None, half="i16")
LANES = Representation(
    "lanes", (16, 8, 4, 3, 2, 1), address_spaces=((0, 1), (1, 1), (2, 2), (3, 3), (5, 0))
)
FRAGMENTS = Representation("fragments", (1,), address_spaces=((0, 0), (1, 1), (3, 3)))

SCALARS = replace(LANES, name="scalars", widths=(1,))

REPRESENTATIONS = {each.name: each for each in (SIMD, LANES, FRAGMENTS, SCALARS)}
