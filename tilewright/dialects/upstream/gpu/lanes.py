"""gpu: barriers, exchange between lanes, printf."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import gpu
from xdsl.dialects.builtin import (
    AnyFloat,
    IndexType,
    IntegerAttr,
    IntegerType,
    StringAttr,
    UnitAttr,
    i1,
    i32,
)
from xdsl.ir import Attribute, Operation, Region
from xdsl.irdl import base, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.directives import parse_listed, parse_type_list, say, typed, word
from tilewright.dialects.effects import PEOPLE, Acts
from tilewright.dialects.fields import (
    Flag,
    Follows,
    Inferred,
    Op,
    Operand,
    Operands,
    OptInt,
    Property,
    Str,
    op_definition,
)
from tilewright.dialects.upstream.complete import add_ops, set_custom, set_format
from tilewright.dialects.upstream.gpu.exchange import I32, SAME_TYPE

LANES = "tilewright.lanes"
"""Attribute of a kernel: how many lanes its subgroups have."""
DEFAULT_LANES = 16
"""Lanes of a subgroup of a launch that does not say: that of PVC and BMG."""
Numbers = NDArray[Any]
SHUFFLE_MODES = ("xor", "up", "down", "idx", "rotate")
REDUCE_KINDS = (
    *("add", "mul", "minui", "minsi", "minnumf", "maxui", "maxsi", "maxnumf"),
    *("and", "or", "xor", "minimumf", "maximumf"),
)


@op_definition
class ShuffleOp(Op):
    """`%v, %valid = gpu.shuffle xor %x, %offset, %width : f32`: another lane's value."""

    name = "gpu.shuffle"
    value: Operand = Operand()
    offset: Operand = Operand(i32)
    width: Operand = Operand(i32)
    mode: Str = Str(default="xor")
    shuffleResult = Follows("value", message=SAME_TYPE)
    valid = Inferred(i1)
    traits = traits_def(Pure())
    assembly_format = "custom<Mode>($mode) $value `,` $offset `,` $width attr-dict `:` type($value)"
    custom_directives = (word("Mode", SHUFFLE_MODES),)

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

    def verify_(self) -> None:
        if self.mode not in SHUFFLE_MODES:
            raise VerifyException(f"unknown mode '{self.mode}'")


def _parse_reduce(cls: Any, parser: Parser) -> Operation:
    """all_reduce and subgroup_reduce: `add %x uniform ... : (f32) -> f32`."""
    properties: dict[str, Attribute] = {}
    kind = parser.parse_optional_keyword_in((*REDUCE_KINDS, "min", "max"))
    if kind is not None:
        stock = cls is gpu.AllReduceOp and kind in list(gpu.AllReduceOpEnum)
        properties["op"] = (
            gpu.AllReduceOpAttr(gpu.AllReduceOpEnum(kind)) if stock else StringAttr(kind)
        )
    operand = parser.parse_unresolved_operand()
    if parser.parse_optional_keyword("uniform") is not None:
        properties["uniform"] = UnitAttr()
    if cls is SubgroupReduceOp and parser.parse_optional_keyword("cluster") is not None:
        for name, value in _parse_cluster(parser).items():
            properties[name] = value
    regions = [parser.parse_optional_region() or Region()] if cls is gpu.AllReduceOp else []
    attributes = parser.parse_optional_attr_dict()
    parser.parse_punctuation(":")
    kind_type = parser.parse_function_type()
    if len(kind_type.inputs) != 1:
        parser.raise_error("expected one operand type")
    return cls.create(
        operands=[parser.resolve_operand(operand, kind_type.inputs.data[0])],
        properties=properties,
        attributes=attributes,
        regions=regions,
        result_types=kind_type.outputs.data,
    )


def _parse_cluster(parser: Parser) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}

    def entry() -> None:
        word = parser.parse_keyword_in(("size", "stride"))
        parser.parse_punctuation("=")
        found[f"cluster_{word}"] = IntegerAttr(parser.parse_integer(), i32)

    parse_listed(parser, entry)
    return found


def _print_reduce(op: Any, printer: Printer) -> None:
    say(printer, "" if op.op is None else f" {op.op.data}", " ", op.operand)
    say(printer, " uniform" if op.uniform else "")
    if isinstance(op, SubgroupReduceOp) and op.cluster_size is not None:
        stride = "" if op.cluster_stride is None else f", stride = {op.cluster_stride}"
        say(printer, f" cluster(size = {op.cluster_size}{stride})")
    if op.regions:
        say(printer, " ")
        printer.print_region(op.regions[0], print_empty_block=False)
    printer.print_op_attributes(op.attributes)
    say(printer, " : ")
    printer.print_function_type(op.operand_types, op.result_types)


@op_definition
class SubgroupReduceOp(Op):
    """`gpu.subgroup_reduce add %x : (f32) -> f32`: every lane gets the reduction over all lanes."""

    name = "gpu.subgroup_reduce"
    op: Property[StringAttr, str] = Property(StringAttr, StringAttr)
    operand: Operand = Operand()
    uniform: Flag = Flag()
    cluster_size: OptInt = OptInt(*I32)
    cluster_stride: OptInt = OptInt(*I32)
    result = Follows("operand", message="requires the same type for operand and result")
    traits = traits_def(Pure())

    def verify_(self) -> None:
        if self.op.data not in REDUCE_KINDS:
            raise VerifyException(f"unknown kind of reduction '{self.op.data}'")


set_custom(SubgroupReduceOp, _parse_reduce, _print_reduce)


@op_definition
class PrintfOp(Op):
    """`gpu.printf "%d\\n", %x : i32`, or without the comma as older MLIR writes it.

    The format is C's; operands are scalars: integers, indices, floats.
    """

    name = "gpu.printf"
    format: Property[StringAttr, str] = Property(StringAttr, StringAttr)
    args: Operands = Operands()
    traits = traits_def(Acts(PEOPLE))

    def verify_(self) -> None:
        for number, value in enumerate(self.args):
            if not isinstance(value.type, IntegerType | IndexType | AnyFloat):
                raise VerifyException(
                    f"operand #{number} must be an integer, an index or a float, got {value.type}"
                )

    @classmethod
    def parse(cls, parser: Parser) -> PrintfOp:
        text = parser.parse_str_literal()
        attributes = parser.parse_optional_attr_dict()
        pos = parser.pos
        comma = parser.parse_optional_punctuation(",") is not None
        operand = parser.parse_unresolved_operand
        first = operand if comma else parser.parse_optional_unresolved_operand
        values = parser.parse_optional_undelimited_comma_separated_list(first, operand) or []
        types: list[Attribute] = []
        if values:
            parser.parse_punctuation(":")
            types = parse_type_list(parser)
        op = cls(text, parser.resolve_operands(values, types, pos))
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        say(printer, " ", self.format)
        printer.print_op_attributes(self.attributes)
        if self.args:
            say(printer, ", ", self.args, " : ", typed(self.args))


def complete() -> None:
    set_format("attr-dict", gpu.BarrierOp)
    set_format("attr-dict $devIndex", gpu.SetDefaultDeviceOp)
    set_format("$value attr-dict `:` type($value)", gpu.HostRegisterOp, gpu.HostUnregisterOp)
    # MLIR's names of the kinds besides the ones that the stock enumeration has.
    definition = gpu.AllReduceOp.get_irdl_definition()
    definition.properties["op"].constr = base(gpu.AllReduceOpAttr) | base(StringAttr)
    set_custom(gpu.AllReduceOp, _parse_reduce, _print_reduce)
    add_ops(gpu.GPU, (ShuffleOp, SubgroupReduceOp, PrintfOp))
