"""Types of XeGPU: `tensor_desc` (addresses of a block or of scattered elements), `mem_desc`, `nbarrier`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from xdsl.dialects.builtin import (
    AnyFloat,
    ArrayAttr,
    Float16Type,
    Float32Type,
    Float64Type,
    IntAttr,
    IntegerType,
    NoneAttr,
    Signedness,
)
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.attribute_fields import Shaped, checked, int_array, ints, parse_shape
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.xegpu import distribution
from tilewright.dialects.xegpu.attrs import (
    BlockTensorDescAttr,
    MemLayoutAttr,
    MemorySpace,
    ScatterTensorDescAttr,
)
from tilewright.dialects.xegpu.layouts import LayoutAttr, Ownership, SgMapAttr, SliceAttr
from tilewright.layout.digits import row_strides

# The RFC's names of element types, beside MLIR's.
RFC_ELEMENTS: dict[str, Attribute] = {
    "float": Float32Type(),
    **{f"fp{kind.bitwidth}": kind for kind in (Float16Type(), Float32Type(), Float64Type())},
    **{f"int{width}": IntegerType(width) for width in (8, 16, 32, 64)},
    **{f"uint{width}": IntegerType(width, Signedness.UNSIGNED) for width in (8, 16, 32, 64)},
    "Uint8_t": IntegerType(8),
}

MAX_DIMENSION = 2**31 - 1
"""No block of registers is larger; also keeps products of a malformed shape finite."""


def is_element_type(attribute: Attribute) -> bool:
    """Integers up to 64 bits of any signedness, and floats from f4E2M1FN to f64."""
    if isinstance(attribute, IntegerType):
        return attribute.width.data in (1, 2, 4, 8, 16, 32, 64)
    return isinstance(attribute, AnyFloat) and element_bits(attribute) in (4, 8, 16, 32, 64)


def _verify_shape(what: str, shape: tuple[int, ...], element: Attribute) -> None:
    for dim in shape:
        if dim < 1 or dim > MAX_DIMENSION:
            text = "dynamic" if dim < 0 else str(dim)
            raise VerifyException(
                f"dimensions of a {what} are static, positive and below 2^31, got {text}"
            )
    if not is_element_type(element):
        raise VerifyException(f"unsupported element type '{element}': expected integer or float")


@irdl_attr_definition
class TensorDescType(Shaped):
    """`!xegpu.tensor_desc<8x16xf16, #xegpu.block_tdesc_attr<..>, #xegpu.layout<..>>`.

    A block of a base matrix (`block_tdesc_attr`, the default) or one address per lane
    (`scatter_tdesc_attr`). The layout says which subgroup and lane owns which element; without one the
    descriptor belongs to one subgroup, or to a lane program's subgroup as a whole.
    """

    name = "xegpu.tensor_desc"

    shape: ArrayAttr[IntAttr]
    element_type: Attribute
    encoding: BlockTensorDescAttr | ScatterTensorDescAttr | NoneAttr
    layout: LayoutAttr | SliceAttr | SgMapAttr | NoneAttr

    def __init__(
        self,
        shape: Iterable[int],
        element_type: Attribute,
        encoding: BlockTensorDescAttr | ScatterTensorDescAttr | None = None,
        layout: Ownership | None = None,
    ):
        shaped = int_array(shape), element_type
        super().__init__(*shaped, _canonical(encoding), layout or NoneAttr())

    @property
    def scattered(self) -> bool:
        return isinstance(self.encoding, ScatterTensorDescAttr)

    @property
    def space(self) -> MemorySpace:
        return MemorySpace.GLOBAL if isinstance(self.encoding, NoneAttr) else self.encoding.space

    @property
    def array_length(self) -> int:
        return self.encoding.length if isinstance(self.encoding, BlockTensorDescAttr) else 1

    @property
    def boundary_check(self) -> bool:
        encoding = self.encoding
        return encoding.checks_boundary if isinstance(encoding, BlockTensorDescAttr) else True

    @property
    def chunk_size(self) -> int:
        return self.encoding.chunk if isinstance(self.encoding, ScatterTensorDescAttr) else 1

    @property
    def lanes(self) -> tuple[int, ...]:
        """The shape of the lanes of scattered elements."""
        shape = self.get_shape()
        return shape[:-1] if self.chunk_size > 1 else shape

    @property
    def ownership(self) -> Ownership | None:
        return None if isinstance(self.layout, NoneAttr) else self.layout

    @property
    def sg_map(self) -> SgMapAttr | None:
        return self.layout if isinstance(self.layout, SgMapAttr) else None

    def without_layout(self) -> TensorDescType:
        encoding = None if isinstance(self.encoding, NoneAttr) else self.encoding
        return TensorDescType(self.get_shape(), self.element_type, encoding)

    def verify(self) -> None:
        shape = self.get_shape()
        if not shape:
            raise VerifyException("expected non-zero rank tensor")
        _verify_shape("tensor_desc", shape, self.element_type)
        if isinstance(self.encoding, ScatterTensorDescAttr):
            self._verify_chunk(shape)
        self._verify_layout(shape)

    def _verify_chunk(self, shape: tuple[int, ...]) -> None:
        chunk = self.chunk_size
        if chunk == 1:
            return
        if len(shape) == 1:
            raise VerifyException(
                f"expected non-contiguous elements for 1D tensor, got chunk size {chunk}"
            )
        if shape[-1] != chunk:
            raise VerifyException(
                f"expected last dim of tensor to match chunk size {chunk}, got {shape[-1]}"
            )
        packing = max(1, 32 // element_bits(self.element_type))
        if chunk % packing:
            raise VerifyException(
                f"expected last dim of tensor to be a multiple of {packing}: "
                f"{chunk} elements of {self.element_type} do not fill 32-bit units"
            )
        lanes = prod(shape[:-1])
        size = lanes * chunk * element_bits(self.element_type) // 8
        if lanes in (8, 16, 32) and size > 512:
            raise VerifyException(
                f"{lanes} lanes of {chunk} elements access {size} bytes, at most 512 are allowed"
            )

    def _verify_layout(self, shape: tuple[int, ...]) -> None:
        layout = self.layout
        if isinstance(layout, NoneAttr):
            return
        # The RFC maps a 1-D descriptor with a 2-D sg_map whose first dimension is ignored.
        rank = len(shape)
        if layout.rank != rank and not (isinstance(layout, SgMapAttr) and rank == 1):
            raise VerifyException("expected layout rank to match tensor rank")
        unit = layout.field("lane_data") if isinstance(layout, LayoutAttr) else None
        packing = max(1, 32 // element_bits(self.element_type))
        if self.scattered and rank > 1 and unit is not None and unit[-1] % packing:
            raise VerifyException(f"expected last dim of lane_data to be a multiple of: {packing}")
        fault = distribution.fault(layout, shape)
        if fault is not None:
            text = "x".join(str(dim) for dim in shape)
            raise VerifyException(f"cannot distribute [{text}] using {layout}: {fault}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            start = parser.pos
            shape, element = parse_shape(parser, RFC_ELEMENTS)
            encoding: Attribute = NoneAttr()
            layout: Attribute = NoneAttr()
            while parser.parse_optional_punctuation(",") is not None:
                here = parser.pos
                attribute = parser.parse_attribute()
                if isinstance(attribute, (BlockTensorDescAttr, ScatterTensorDescAttr)):
                    if not isinstance(encoding, NoneAttr):
                        parser.raise_error("the encoding is given twice", here, parser.pos)
                    encoding = _canonical(attribute)
                elif isinstance(attribute, (LayoutAttr, SliceAttr, SgMapAttr)):
                    if not isinstance(layout, NoneAttr):
                        parser.raise_error("the layout is given twice", here, parser.pos)
                    layout = attribute
                else:
                    parser.raise_error(
                        "expected a block_tdesc_attr, a scatter_tdesc_attr, a layout, a slice or an "
                        f"sg_map, got {attribute}",
                        here,
                        parser.pos,
                    )
            return checked(parser, cls, [shape, element, encoding, layout], start)


def _canonical(
    encoding: Attribute | None,
) -> BlockTensorDescAttr | ScatterTensorDescAttr | NoneAttr:
    """Absence stands for the default block encoding, so that equal types compare equal."""
    match encoding:
        case BlockTensorDescAttr():
            return NoneAttr() if encoding.is_default() else encoding
        case ScatterTensorDescAttr():
            return encoding
        case _:
            return NoneAttr()


@irdl_attr_definition
class MemDescType(Shaped):
    """`!xegpu.mem_desc<32x32xf16, #xegpu.mem_layout<stride = [1, 32], block = [16, 16]>>`.

    A matrix in shared local memory; always of the whole workgroup.
    """

    name = "xegpu.mem_desc"

    shape: ArrayAttr[IntAttr]
    element_type: Attribute
    mem_layout: MemLayoutAttr | NoneAttr

    def __init__(
        self, shape: Iterable[int], element_type: Attribute, mem_layout: MemLayoutAttr | None = None
    ):
        super().__init__(int_array(shape), element_type, mem_layout or NoneAttr())

    @property
    def block(self) -> tuple[int, ...] | None:
        layout = self.mem_layout
        if isinstance(layout, MemLayoutAttr) and isinstance(layout.block, ArrayAttr):
            return ints(layout.block)
        return None

    @property
    def stride(self) -> tuple[int, ...]:
        """Distance in elements of neighbours, per dimension, were the matrix not blocked."""
        layout = self.mem_layout
        if isinstance(layout, MemLayoutAttr) and isinstance(layout.stride, ArrayAttr):
            return ints(layout.stride)
        return row_strides(self.get_shape())

    def verify(self) -> None:
        shape = self.get_shape()
        if len(shape) < 2:
            raise VerifyException("mem_desc must be 2D or greater.")
        _verify_shape("mem_desc", shape, self.element_type)
        layout = self.mem_layout
        if not isinstance(layout, MemLayoutAttr):
            return
        for name, value in (("stride", layout.stride), ("block", layout.block)):
            if isinstance(value, ArrayAttr) and len(value) != len(shape):
                raise VerifyException(
                    f"expected {name} of mem_layout to have rank {len(shape)}, got {len(value)}"
                )
        for extent, size in zip(shape, self.block or shape, strict=True):
            if extent % size:
                raise VerifyException(f"block size {size} of mem_layout does not divide {extent}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        start = parser.pos
        with parser.in_angle_brackets():
            shape, element = parse_shape(parser, RFC_ELEMENTS)
            layout: Attribute = NoneAttr()
            if parser.parse_optional_punctuation(",") is not None:
                here = parser.pos
                layout = parser.parse_attribute()
                if not isinstance(layout, MemLayoutAttr):
                    parser.raise_error("expected a mem_layout", here, parser.pos)
            return checked(parser, cls, [shape, element, layout], start)


@irdl_attr_definition
class NbarrierType(ParametrizedAttribute, TypeAttribute):
    """`!xegpu.nbarrier`: one named barrier and the number of its participants."""

    name = "xegpu.nbarrier"
