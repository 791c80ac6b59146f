"""Multi-buffers as types: their slots, the parts of a slot and how a tile lies in one, and positions in a
multi-buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import ArrayAttr, IntAttr, VectorType
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from tilewright import dtypes
from tilewright.dialects.attribute_fields import int_array, ints, parse_int_array, parse_shape
from tilewright.dialects.directives import say

SWIZZLES = (0, 32, 64, 128)
DEINTERLEAVED = 8
"""Elements of a line whose even ones come first in a part of this kind: those that an instruction takes of 4 bytes."""


@irdl_attr_definition
class PartAttr(ParametrizedAttribute):
    """`#stage.part<128x64xbf16, order = [1, 0], swizzle = 128>`: one tile of a slot.

    `order` is the tile's, (1, 0) for rows that are contiguous. With a swizzle, panels of that many bytes of the
    contiguous dimension stand one after the other, and 16-byte chunks of a panel are XORed with its line. Without,
    lines stand one after the other, an odd number of chunks apart. With `deinterleaved`, the elements of even number
    come first in every `DEINTERLEAVED` of a line.
    """

    name = "stage.part"

    shape: ArrayAttr[IntAttr]
    element_type: Attribute
    order: ArrayAttr[IntAttr]
    swizzle: IntAttr
    deinterleaved: IntAttr

    def __init__(
        self,
        shape: Sequence[int],
        element: Attribute,
        order: Sequence[int],
        swizzle: int,
        deinterleaved: bool = False,
    ):
        whole = int_array(shape), element, int_array(order)
        super().__init__(*whole, IntAttr(swizzle), IntAttr(deinterleaved))

    def get_shape(self) -> tuple[int, int]:
        rows, columns = (n.data for n in self.shape)
        return rows, columns

    @property
    def row_major(self) -> bool:
        return self.order.data[0].data == 1

    def replaced(self, element: Attribute | None = None, deinterleaved: bool = False) -> PartAttr:
        """With another element type, or deinterleaved."""
        order = [n.data for n in self.order]
        kind = element or self.element_type
        return PartAttr(self.get_shape(), kind, order, self.swizzle.data, deinterleaved)

    @property
    def itemsize(self) -> int:
        return dtypes.from_mlir(self.element_type).itemsize

    @property
    def bytes(self) -> int:
        return (
            prod(self.get_shape()) * self.itemsize
            if self.swizzle.data
            else self.lines[0] * self.pitch
        )

    @property
    def pitch(self) -> int:
        """Bytes from one line to the next where there are no panels: an odd number of chunks of 16, so that the same
        chunk of eight lines lies in eight banks; of 32 where four neighbours of a line take those, and are read with
        those of four lines."""
        chunk = max(16, 4 * self.itemsize)
        return chunk * (-(-self.lines[1] * self.itemsize // chunk) | 1)

    @property
    def lines(self) -> tuple[int, int]:
        """(number of lines, elements of a line), a line being contiguous in the array."""
        rows, columns = self.get_shape()
        return (rows, columns) if self.row_major else (columns, rows)

    @property
    def vector(self) -> VectorType:
        return VectorType(self.element_type, self.get_shape())

    def verify(self) -> None:
        if len(self.shape) != 2 or sorted(n.data for n in self.order) != [0, 1]:
            raise VerifyException("a part of a buffer is a matrix, its order [1, 0] or [0, 1]")
        swizzle = self.swizzle.data
        if swizzle not in SWIZZLES:
            raise VerifyException(f"a swizzle spans 0, 32, 64 or 128 bytes, not {swizzle}")
        if self.deinterleaved and self.lines[1] % DEINTERLEAVED:
            raise VerifyException(
                f"lines of {self.lines[1]} elements are no multiple of the {DEINTERLEAVED} that are deinterleaved"
            )
        if swizzle and self.lines[1] * self.itemsize % swizzle:
            raise VerifyException(
                f"lines of {self.lines[1] * self.itemsize} bytes are no multiple of a swizzle of {swizzle} bytes"
            )

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            shape, element = parse_shape(parser, {})
            order, swizzle, deinterleaved = (1, 0), 0, False
            while parser.parse_optional_punctuation(",") is not None:
                if parser.parse_optional_keyword("order") is not None:
                    parser.parse_punctuation("=")
                    order = ints(parse_int_array(parser))
                elif parser.parse_optional_keyword("deinterleaved") is not None:
                    deinterleaved = True
                else:
                    parser.parse_keyword("swizzle")
                    parser.parse_punctuation("=")
                    swizzle = parser.parse_integer()
        return [shape, element, int_array(order), IntAttr(swizzle), IntAttr(deinterleaved)]

    def print_parameters(self, printer: Printer) -> None:
        rows, columns = self.get_shape()
        order = f"order = {[*ints(self.order)]}, swizzle = {self.swizzle.data}"
        last = ", deinterleaved" if self.deinterleaved else ""
        say(printer, f"<{rows}x{columns}x", self.element_type, f", {order}{last}>")


@irdl_attr_definition
class MultiBufferType(ParametrizedAttribute, TypeAttribute):
    """`!stage.multi_buffer<4, [#stage.part<..>, #stage.part<..>]>`: slots, and the tiles of each."""

    name = "stage.multi_buffer"

    slots: IntAttr
    parts: ArrayAttr[PartAttr]

    def __init__(self, slots: int, parts: Sequence[PartAttr]):
        super().__init__(IntAttr(slots), ArrayAttr(parts))

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot; parts follow one another, each at a multiple of 1024 bytes."""
        return sum(-(-part.bytes // 1024) * 1024 for part in self.parts)

    def verify(self) -> None:
        if self.slots.data < 1 or not self.parts.data:
            raise VerifyException("a multi-buffer has at least one slot of at least one part")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            slots = parser.parse_integer()
            parser.parse_punctuation(",")
            parts = parser.parse_comma_separated_list(
                parser.Delimiter.SQUARE, parser.parse_attribute
            )
        return [IntAttr(slots), ArrayAttr(parts)]

    def print_parameters(self, printer: Printer) -> None:
        say(printer, f"<{self.slots.data}, [", self.parts.data, "]>")


@irdl_attr_definition
class PipelineStateType(ParametrizedAttribute, TypeAttribute):
    """`!stage.pipeline_state<4>`: a position in a multi-buffer of that many slots."""

    name = "stage.pipeline_state"

    slots: IntAttr

    def __init__(self, slots: int):
        super().__init__(IntAttr(slots))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return [IntAttr(parser.parse_integer())]

    def print_parameters(self, printer: Printer) -> None:
        say(printer, f"<{self.slots.data}>")
