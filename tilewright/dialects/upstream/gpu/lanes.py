"""gpu: barriers, exchange between lanes, printf."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import gpu
from xdsl.dialects.builtin import AnyFloat, IndexType, IntegerAttr, IntegerType, StringAttr, i1, i32
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute, SpacedOpaqueSyntaxAttribute
from xdsl.irdl import IRDLOperation, irdl_attr_definition, traits_def
from xdsl.irdl.declarative_assembly_format import (
    CustomDirective,
    ParsingState,
    PrintingState,
    RegionVariable,
    VariadicOperandVariable,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from tilewright.dialects.directives import say, spelled
from tilewright.dialects.effects import PEOPLE, Acts
from tilewright.dialects.fields import (
    Flag,
    Follows,
    Inferred,
    Int,
    Op,
    Operand,
    Operands,
    OptInt,
    OptOperand,
    Prop,
    Property,
    Str,
    op_definition,
)
from tilewright.dialects.upstream.complete import add_attributes, add_ops, set_format

LANES = "tilewright.lanes"
"""Attribute of a kernel: how many lanes its subgroups have."""
DEFAULT_LANES = 16
"""Lanes of a subgroup of a launch that does not say: that of PVC and BMG."""
Numbers = NDArray[Any]
I32: Any = (IntegerAttr.constr(i32), lambda value: IntegerAttr(value, 32))
SAME_TYPE = "requires the same type for value operand and result"


ShuffleMode = StrEnum("ShuffleMode", "XOR UP DOWN IDX ROTATE")
ReduceKind = StrEnum(
    "ReduceKind",
    "ADD MUL MINUI MINSI MINNUMF MAXUI MAXSI MAXNUMF AND OR XOR MINIMUMF MAXIMUMF MIN MAX",
)
"""MLIR's names of the kinds, and MIN and MAX, which only the stock attribute has."""


@irdl_attr_definition
class ShuffleModeAttr(EnumAttribute[ShuffleMode], SpacedOpaqueSyntaxAttribute):
    """`#gpu<shuffle_mode xor>`: which lane's value each lane gets."""

    name = "gpu.shuffle_mode"


@op_definition
class ShuffleOp(Op):
    """`%v, %valid = gpu.shuffle xor %x, %offset, %width : f32`: another lane's value."""

    name = "gpu.shuffle"
    value: Operand = Operand()
    offset: Operand = Operand(i32)
    width: Operand = Operand(i32)
    mode: Str = Str(
        ShuffleModeAttr,
        lambda word: ShuffleModeAttr(ShuffleMode(word)),
        lambda held: held.data.value,
        default="xor",
    )
    shuffleResult = Follows("value", message=SAME_TYPE)
    valid = Inferred(i1)
    traits = traits_def(Pure())
    assembly_format = "$mode $value `,` $offset `,` $width attr-dict `:` type($value)"

    def sources(self, lane: Numbers, offset: Numbers, width: Numbers) -> tuple[Numbers, Numbers]:
        """The lane that each lane reads, its own where there is none in its segment of `width` lanes; is there one?"""
        start = lane - lane % width
        within = lane - start
        match self.mode:
            case "xor":
                source = start + (within ^ offset)
            case "up":
                source = lane - offset
            case "down":
                source = lane + offset
            case "rotate":
                source = start + (within + offset) % width
            case _:
                source = start + offset
        valid = (source >= start) & (source < start + width)
        return np.where(valid, source, lane), valid


def _reduction(kind: str) -> gpu.AllReduceOpAttr:
    return gpu.AllReduceOpAttr(ReduceKind(kind))  # pyright: ignore


def _kind(parser: Parser) -> Attribute | None:
    """The kind of a reduction, where it is said."""
    kind = parser.parse_optional_keyword_in([*ReduceKind])
    return None if kind is None else _reduction(kind)


_KIND = spelled("Kind", _kind, lambda held: held.data.value)


@irdl_custom_directive
class Body(CustomDirective):
    """A region that may be left out."""

    body: RegionVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        self.body.parse_optional(parser, state)

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        say(printer, " ")
        printer.print_region(self.body.get(op), print_empty_block=False)


_REDUCES = "$operand (`uniform` $uniform^)? {} attr-dict `:` functional-type($operand, $result)"


@op_definition
class SubgroupReduceOp(Op):
    """`gpu.subgroup_reduce add %x : (f32) -> f32`: every lane gets the reduction over all lanes."""

    name = "gpu.subgroup_reduce"
    op: Property[gpu.AllReduceOpAttr, str] = Property(gpu.AllReduceOpAttr, _reduction)
    operand: Operand = Operand()
    uniform: Flag = Flag()
    cluster_size: OptInt = OptInt(*I32)
    cluster_stride: OptInt = OptInt(*I32)
    result = Follows("operand", message="requires the same type for operand and result")
    traits = traits_def(Pure())
    assembly_format = "custom<Kind>($op) " + _REDUCES.format(
        "(`cluster` `(` `size` `=` $cluster_size^ (`,` `stride` `=` $cluster_stride^)? `)`)?"
    )
    custom_directives = (_KIND,)

    def verify_(self) -> None:
        if self.op.data in (ReduceKind.MIN, ReduceKind.MAX):
            raise VerifyException(f"unknown kind of reduction '{self.op.data}'")


@irdl_custom_directive
class Printed(CustomDirective):
    """`, %a, %b`; the first comma may be left out, as older MLIR does."""

    values: VariadicOperandVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        comma = parser.parse_optional_punctuation(",") is not None
        one = parser.parse_unresolved_operand
        first = one if comma else parser.parse_optional_unresolved_operand
        found = parser.parse_optional_undelimited_comma_separated_list(first, one)
        self.values.set(state, found or ())

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        if values := self.values.get(op):
            say(printer, ", ", values)


@op_definition
class PrintfOp(Op):
    """`gpu.printf "%d\\n", %x : i32`, or without the comma as older MLIR writes it.

    The format is C's; operands are scalars: integers, indices, floats.
    """

    name = "gpu.printf"
    format: Property[StringAttr, str] = Property(StringAttr, StringAttr)
    args: Operands = Operands()
    traits = traits_def(Acts(PEOPLE))
    assembly_format = "$format attr-dict custom<Printed>($args) (`:` type($args)^)?"
    custom_directives = (Printed,)

    def verify_(self) -> None:
        for number, value in enumerate(self.args):
            if not isinstance(value.type, IntegerType | IndexType | AnyFloat):
                raise VerifyException(
                    f"operand #{number} must be an integer, an index or a float, got {value.type}"
                )


BroadcastType = StrEnum("BroadcastType", "First_Active_Lane Specific_Lane")


@irdl_attr_definition
class BroadcastTypeAttr(EnumAttribute[BroadcastType], SpacedOpaqueSyntaxAttribute):
    """`#gpu<broadcast first_active_lane>`: whose value a broadcast takes."""

    name = "gpu.broadcast"


@op_definition
class SubgroupBroadcastOp(Op):
    """`%r = gpu.subgroup_broadcast %x, specific_lane %lane : f32`, or `%x, first_active_lane`: one lane's value, to
    all. Here all lanes of a subgroup are active where they exchange.
    """

    name = "gpu.subgroup_broadcast"
    src: Operand = Operand()
    lane: OptOperand = OptOperand(i32)
    broadcast_type: Prop[BroadcastTypeAttr] = Prop(BroadcastTypeAttr)
    result = Follows("src", message="requires the same type for its operand and result")
    traits = traits_def(Pure())
    assembly_format = "$src `,` $broadcast_type ($lane^)? attr-dict `:` type($src)"

    def verify_(self) -> None:
        if (self.lane is not None) != (self.broadcast_type.data is BroadcastType.Specific_Lane):
            raise VerifyException(
                "lane must be specified for a broadcast of a specific lane, and for no other"
            )


@op_definition
class RotateOp(Op):
    """`%r, %valid = gpu.rotate %x, 4, 16 : f32`: the value of the lane 4 further on in the lane's segment of 16;
    valid in the first 16 lanes.
    """

    name = "gpu.rotate"
    value: Operand = Operand()
    offset: Int = Int(*I32)
    width: Int = Int(*I32)
    rotateResult = Follows("value", message=SAME_TYPE)
    valid = Inferred(i1)
    traits = traits_def(Pure())
    assembly_format = "$value `,` $offset `,` $width attr-dict `:` type($value)"

    def verify_(self) -> None:
        offset, width = self.offset, self.width
        if width < 1 or width & (width - 1):
            raise VerifyException(f"width must be a power of two, got {width}")
        if not 0 <= offset < width:
            raise VerifyException(f"offset must be in the range [0, {width}), got {offset}")


def complete() -> None:
    set_format("attr-dict", gpu.BarrierOp)
    set_format("attr-dict $devIndex", gpu.SetDefaultDeviceOp)
    set_format("$value attr-dict `:` type($value)", gpu.HostRegisterOp, gpu.HostUnregisterOp)
    gpu.AllReduceOpAttr.enum_type = ReduceKind
    text = "custom<Kind>($op) " + _REDUCES.format("custom<Body>($body)")
    set_format(text, gpu.AllReduceOp, using=(_KIND, Body))
    add_attributes(gpu.GPU, (ShuffleModeAttr, BroadcastTypeAttr))
    add_ops(gpu.GPU, (ShuffleOp, SubgroupReduceOp, PrintfOp, SubgroupBroadcastOp, RotateOp))
