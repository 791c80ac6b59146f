"""gpu: what lanes of a subgroup hand to each other besides shuffles: subgroup_broadcast, rotate."""

from __future__ import annotations

from enum import auto

from xdsl.dialects import gpu
from xdsl.dialects.builtin import IntegerAttr, IntegerType, i1, i32
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Operation, SpacedOpaqueSyntaxAttribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from tilewright.dialects.upstream.complete import add_attributes, add_ops


class BroadcastType(StrEnum):
    First_Active_Lane = auto()
    Specific_Lane = auto()


@irdl_attr_definition
class BroadcastTypeAttr(EnumAttribute[BroadcastType], SpacedOpaqueSyntaxAttribute):
    """`#gpu<broadcast first_active_lane>`: whose value a broadcast takes."""

    name = "gpu.broadcast"


@irdl_op_definition
class SubgroupBroadcastOp(IRDLOperation):
    """`%r = gpu.subgroup_broadcast %x, specific_lane %lane : f32`, or `%x, first_active_lane`: one lane's value, to
    all. Here all lanes of a subgroup are active where they exchange.
    """

    name = "gpu.subgroup_broadcast"

    src = operand_def()
    lane = opt_operand_def(IntegerType(32))
    broadcast_type = prop_def(BroadcastTypeAttr)
    result = result_def()

    traits = traits_def(Pure())

    def verify_(self) -> None:
        if (self.lane is not None) != (self.broadcast_type.data is BroadcastType.Specific_Lane):
            raise VerifyException(
                "lane must be specified for a broadcast of a specific lane, and for no other"
            )
        if self.src.type != self.result.type:
            raise VerifyException("requires the same type for its operand and result")

    @classmethod
    def parse(cls, parser: Parser) -> Operation:
        source = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        word = BroadcastType(parser.parse_keyword_in([str(t) for t in BroadcastType]))
        lane = [parser.parse_operand(i32)] if word is BroadcastType.Specific_Lane else []
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kind = parser.parse_type()
        return cls.create(
            operands=[parser.resolve_operand(source, kind), *lane],
            properties={"broadcast_type": BroadcastTypeAttr(word)},
            attributes=attributes,
            result_types=[kind],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.src)
        printer.print_string(f", {self.broadcast_type.data}")
        if self.lane is not None:
            printer.print_string(" ")
            printer.print_operand(self.lane)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.src.type)


@irdl_op_definition
class RotateOp(IRDLOperation):
    """`%r, %valid = gpu.rotate %x, 4, 16 : f32`: the value of the lane 4 further on in the lane's segment of 16;
    valid in the first 16 lanes.
    """

    name = "gpu.rotate"

    value = operand_def()
    offset = prop_def(IntegerAttr)
    width = prop_def(IntegerAttr)
    rotateResult = result_def()
    valid = result_def(i1)

    traits = traits_def(Pure())

    def verify_(self) -> None:
        offset, width = self.offset.value.data, self.width.value.data
        if width < 1 or width & (width - 1):
            raise VerifyException(f"width must be a power of two, got {width}")
        if not 0 <= offset < width:
            raise VerifyException(f"offset must be in the range [0, {width}), got {offset}")
        if self.value.type != self.rotateResult.type:
            raise VerifyException("requires the same type for value operand and result")

    @classmethod
    def parse(cls, parser: Parser) -> Operation:
        value = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        offset = parser.parse_integer()
        parser.parse_punctuation(",")
        width = parser.parse_integer()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kind = parser.parse_type()
        return cls.create(
            operands=[parser.resolve_operand(value, kind)],
            properties={"offset": IntegerAttr(offset, 32), "width": IntegerAttr(width, 32)},
            attributes=attributes,
            result_types=[kind, i1],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.value)
        printer.print_string(f", {self.offset.value.data}, {self.width.value.data}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.value.type)


def complete() -> None:
    add_attributes(gpu.GPU, (BroadcastTypeAttr,))
    add_ops(gpu.GPU, (SubgroupBroadcastOp, RotateOp))
