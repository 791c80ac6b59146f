"""vector: extract_strided_slice and insert_strided_slice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import (
    ArrayAttr,
    IntegerAttr,
    VectorType,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.upstream.vector.common import vector_of


def _i64s(values: Sequence[int]) -> ArrayAttr[IntegerAttr]:
    return ArrayAttr(IntegerAttr(value, i64) for value in values)


def _ints(array: ArrayAttr[IntegerAttr]) -> list[int]:
    return [element.value.data for element in array]


class _StridedSliceOp(IRDLOperation):
    """What extract_ and insert_strided_slice share: integer lists in the attribute dictionary."""

    LISTS: ClassVar[tuple[str, ...]] = ()

    def print_lists(self, printer: Printer) -> None:
        shown = {name: self.properties[name] for name in self.LISTS}
        printer.print_string(" {")
        printer.print_list(shown.items(), lambda item: _print_plain_ints(printer, *item))
        for name, attribute in self.attributes.items():
            printer.print_string(f", {name} = ")
            printer.print_attribute(attribute)
        printer.print_string("}")

    @classmethod
    def entries(cls, parser: Parser) -> dict[str, Attribute]:
        """The lists in a dictionary, or as newer text has them: `offsets = [0, 2], strides = [1, 1]`."""
        found: dict[str, Attribute] = {}
        for name in cls.LISTS:
            if found:
                parser.parse_punctuation(",")
            elif parser.parse_optional_keyword(name) is None:
                break
            if found:
                parser.parse_keyword(name)
            parser.parse_punctuation("=")
            found[name] = parser.parse_attribute()
        return {**found, **parser.parse_optional_attr_dict()}

    @classmethod
    def split(
        cls, parser: Parser, entries: dict[str, Attribute]
    ) -> tuple[dict[str, Attribute], dict[str, Attribute]]:
        properties: dict[str, Attribute] = {}
        for name in cls.LISTS:
            if name not in entries:
                parser.raise_error(f"expected the attribute '{name}'")
            properties[name] = entries.pop(name)
        return properties, entries


def _print_plain_ints(printer: Printer, name: str, array: Attribute) -> None:
    """`offsets = [0, 2]`: MLIR elides the type i64 of an array's elements."""
    assert isinstance(array, ArrayAttr)
    printer.print_string(f"{name} = [{', '.join(map(str, _ints(array)))}]")


@irdl_op_definition
class ExtractStridedSliceOp(_StridedSliceOp):
    """`vector.extract_strided_slice %v {offsets = [0, 2], sizes = [2, 4], strides = [1, 1]} : ...`."""

    name = "vector.extract_strided_slice"
    LISTS: ClassVar = ("offsets", "sizes", "strides")

    source = operand_def(VectorType)
    offsets_attr = prop_def(ArrayAttr[IntegerAttr], prop_name="offsets")
    sizes_attr = prop_def(ArrayAttr[IntegerAttr], prop_name="sizes")
    strides_attr = prop_def(ArrayAttr[IntegerAttr], prop_name="strides")
    result = result_def(VectorType)

    traits = traits_def(Pure())

    def __init__(
        self,
        source: SSAValue | Operation,
        offsets: Sequence[int],
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
    ):
        source = SSAValue.get(source)
        kind = vector_of(source)
        shape = [*sizes, *kind.get_shape()[len(sizes) :]]
        super().__init__(
            operands=[source],
            properties={
                "offsets": _i64s(offsets),
                "sizes": _i64s(sizes),
                "strides": _i64s(strides or [1] * len(sizes)),
            },
            result_types=[VectorType(kind.element_type, shape)],
        )

    @property
    def offsets(self) -> list[int]:
        return _ints(self.offsets_attr)

    @property
    def sizes(self) -> list[int]:
        return _ints(self.sizes_attr)

    @property
    def strides(self) -> list[int]:
        return _ints(self.strides_attr)

    def verify_(self) -> None:
        source, result = vector_of(self.source), vector_of(self.result)
        shape = source.get_shape()
        if not len(self.offsets) == len(self.sizes) == len(self.strides):
            raise VerifyException("expected offsets, sizes, and strides attributes of same size")
        if len(self.offsets) > len(shape):
            raise VerifyException("expected offsets attribute of rank no greater than vector rank")
        lists = zip(self.offsets, self.sizes, self.strides, shape, strict=False)
        for offset, size, stride, extent in lists:
            if stride != 1:
                raise VerifyException("expected strides to be confined to [1, 2)")
            if offset < 0 or size < 1 or offset + size > extent:
                raise VerifyException(
                    f"slice [{offset}, {offset + size}) is outside the dimension of {extent}"
                )
        expected = (*self.sizes, *shape[len(self.sizes) :])
        if result != VectorType(source.element_type, expected):
            raise VerifyException(f"expected result type to be vector of shape {expected}")

    @classmethod
    def parse(cls, parser: Parser) -> ExtractStridedSliceOp:
        operand = parser.parse_unresolved_operand()
        entries = cls.entries(parser)
        properties, attributes = cls.split(parser, entries)
        parser.parse_punctuation(":")
        source = parser.parse_type()
        parser.parse_keyword("to")
        result = parser.parse_type()
        return cls.create(
            operands=[parser.resolve_operand(operand, source)],
            properties=properties,
            attributes=attributes,
            result_types=[result],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.source)
        self.print_lists(printer)
        printer.print_string(" : ")
        printer.print_attribute(self.source.type)
        printer.print_string(" to ")
        printer.print_attribute(self.result.type)


@irdl_op_definition
class InsertStridedSliceOp(_StridedSliceOp):
    """`vector.insert_strided_slice %v, %into {offsets = [0, 2], strides = [1, 1]} : ... into ...`."""

    name = "vector.insert_strided_slice"
    LISTS: ClassVar = ("offsets", "strides")

    source = operand_def(VectorType)
    dest = operand_def(VectorType)
    offsets_attr = prop_def(ArrayAttr[IntegerAttr], prop_name="offsets")
    strides_attr = prop_def(ArrayAttr[IntegerAttr], prop_name="strides")
    result = result_def(VectorType)

    traits = traits_def(Pure())

    def __init__(
        self,
        source: SSAValue | Operation,
        dest: SSAValue | Operation,
        offsets: Sequence[int],
        strides: Sequence[int] | None = None,
    ):
        source, dest = SSAValue.get(source), SSAValue.get(dest)
        rank = len(vector_of(source).get_shape())
        super().__init__(
            operands=[source, dest],
            properties={"offsets": _i64s(offsets), "strides": _i64s(strides or [1] * rank)},
            result_types=[dest.type],
        )

    @property
    def offsets(self) -> list[int]:
        return _ints(self.offsets_attr)

    @property
    def strides(self) -> list[int]:
        return _ints(self.strides_attr)

    def verify_(self) -> None:
        source, dest = vector_of(self.source), vector_of(self.dest)
        if dest != self.result.type:
            raise VerifyException("expected the result to have the type of the destination")
        if source.element_type != dest.element_type:
            raise VerifyException("source and destination must have the same element type")
        rank = len(source.get_shape())
        if len(self.offsets) != len(dest.get_shape()):
            raise VerifyException("expected offsets of same size as destination vector rank")
        if len(self.strides) != rank:
            raise VerifyException("expected strides of same size as source vector rank")
        if rank > len(dest.get_shape()):
            raise VerifyException("expected source rank to be no greater than destination rank")
        lead = len(dest.get_shape()) - rank
        extents = (*((1,) * lead), *source.get_shape())
        for offset, extent, full in zip(self.offsets, extents, dest.get_shape(), strict=True):
            if offset < 0 or offset + extent > full:
                raise VerifyException(
                    f"slice [{offset}, {offset + extent}) is outside the dimension of {full}"
                )
        if any(stride != 1 for stride in self.strides):
            raise VerifyException("expected strides to be confined to [1, 2)")

    @classmethod
    def parse(cls, parser: Parser) -> InsertStridedSliceOp:
        pos = parser.pos
        operands = parser.parse_comma_separated_list(
            parser.Delimiter.NONE, parser.parse_unresolved_operand
        )
        entries = cls.entries(parser)
        properties, attributes = cls.split(parser, entries)
        parser.parse_punctuation(":")
        source = parser.parse_type()
        parser.parse_keyword("into")
        dest = parser.parse_type()
        return cls.create(
            operands=parser.resolve_operands(operands, [source, dest], pos),
            properties=properties,
            attributes=attributes,
            result_types=[dest],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_operand)
        self.print_lists(printer)
        printer.print_string(" : ")
        printer.print_attribute(self.source.type)
        printer.print_string(" into ")
        printer.print_attribute(self.dest.type)
