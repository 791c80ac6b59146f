"""gpu: barriers, exchange between lanes, printf."""

from __future__ import annotations

from collections.abc import Sequence
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
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    base,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.effects import PEOPLE, Acts
from tilewright.dialects.upstream.complete import (
    add_ops,
    set_custom,
    set_format,
)

Numbers = NDArray[Any]
SHUFFLE_MODES = ("xor", "up", "down", "idx", "rotate")
REDUCE_KINDS = (
    *("add", "mul", "minui", "minsi", "minnumf", "maxui", "maxsi", "maxnumf"),
    *("and", "or", "xor", "minimumf", "maximumf"),
)


@irdl_op_definition
class ShuffleOp(IRDLOperation):
    """`%v, %valid = gpu.shuffle xor %x, %offset, %width : f32`: another lane's value."""

    name = "gpu.shuffle"

    value = operand_def()
    offset = operand_def(IntegerType(32))
    width = operand_def(IntegerType(32))
    mode_attr = prop_def(StringAttr, prop_name="mode")
    shuffleResult = result_def()
    valid = result_def(i1)

    traits = traits_def(Pure())

    def __init__(
        self, value: SSAValue | Operation, offset: SSAValue, width: SSAValue, mode: str = "xor"
    ):
        value = SSAValue.get(value)
        super().__init__(
            operands=[value, offset, width],
            properties={"mode": StringAttr(mode)},
            result_types=[value.type, i1],
        )

    @property
    def mode(self) -> str:
        return self.mode_attr.data

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
        if self.value.type != self.shuffleResult.type:
            raise VerifyException("requires the same type for value operand and result")

    @classmethod
    def parse(cls, parser: Parser) -> ShuffleOp:
        mode = parser.parse_keyword_in(SHUFFLE_MODES)
        operands = parser.parse_comma_separated_list(
            parser.Delimiter.NONE, parser.parse_unresolved_operand
        )
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        pos = parser.pos
        kind = parser.parse_type()
        values = parser.resolve_operands(operands, [kind, i32, i32], pos)
        op = cls(values[0], values[1], values[2], mode)
        op.attributes.update(attributes)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.mode} ")
        printer.print_list(self.operands, printer.print_operand)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.value.type)


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

    parser.parse_comma_separated_list(parser.Delimiter.PAREN, entry)
    return found


def _print_reduce(op: Any, printer: Printer) -> None:
    if op.op is not None:
        printer.print_string(f" {op.op.data}")
    printer.print_string(" ")
    printer.print_operand(op.operand)
    if op.uniform is not None:
        printer.print_string(" uniform")
    if isinstance(op, SubgroupReduceOp) and op.cluster_size is not None:
        stride = "" if op.cluster_stride is None else f", stride = {op.cluster_stride.value.data}"
        printer.print_string(f" cluster(size = {op.cluster_size.value.data}{stride})")
    if op.regions:
        printer.print_string(" ")
        printer.print_region(op.regions[0], print_empty_block=False)
    printer.print_op_attributes(op.attributes)
    printer.print_string(" : ")
    printer.print_function_type(op.operand_types, op.result_types)


@irdl_op_definition
class SubgroupReduceOp(IRDLOperation):
    """`gpu.subgroup_reduce add %x : (f32) -> f32`: every lane gets the reduction over all lanes."""

    name = "gpu.subgroup_reduce"

    operand = operand_def()
    op = prop_def(StringAttr)
    uniform = opt_prop_def(UnitAttr)
    cluster_size = opt_prop_def(IntegerAttr)
    cluster_stride = opt_prop_def(IntegerAttr)
    result = result_def()

    traits = traits_def(Pure())

    def __init__(self, kind: str, operand: SSAValue | Operation):
        operand = SSAValue.get(operand)
        super().__init__(
            operands=[operand],
            properties={"op": StringAttr(kind)},
            result_types=[operand.type],
        )

    def verify_(self) -> None:
        if self.op.data not in REDUCE_KINDS:
            raise VerifyException(f"unknown kind of reduction '{self.op.data}'")
        if self.operand.type != self.result.type:
            raise VerifyException("requires the same type for operand and result")


set_custom(SubgroupReduceOp, _parse_reduce, _print_reduce)


@irdl_op_definition
class PrintfOp(IRDLOperation):
    """`gpu.printf "%d\\n", %x : i32`, or without the comma as older MLIR writes it.

    The format is C's; operands are scalars: integers, indices, floats.
    """

    name = "gpu.printf"

    format = prop_def(StringAttr)
    args = var_operand_def()

    traits = traits_def(Acts(PEOPLE))

    def __init__(self, format: str, args: Sequence[SSAValue | Operation] = ()):
        super().__init__(operands=[args], properties={"format": StringAttr(format)})

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
        values: list[UnresolvedOperand] = []
        types: list[Attribute] = []
        pos = parser.pos
        if parser.parse_optional_punctuation(",") is not None:
            values.append(parser.parse_unresolved_operand())
        elif (first := parser.parse_optional_unresolved_operand()) is not None:
            values.append(first)
        while values and parser.parse_optional_punctuation(",") is not None:
            values.append(parser.parse_unresolved_operand())
        if values:
            parser.parse_punctuation(":")
            types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        op = cls(text, parser.resolve_operands(values, types, pos))
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attribute(self.format)
        printer.print_op_attributes(self.attributes)
        if self.args:
            printer.print_string(", ")
            printer.print_list(self.args, printer.print_operand)
            printer.print_string(" : ")
            printer.print_list([value.type for value in self.args], printer.print_attribute)


def complete() -> None:
    set_format("attr-dict", gpu.BarrierOp)
    set_format("attr-dict $devIndex", gpu.SetDefaultDeviceOp)
    set_format("$value attr-dict `:` type($value)", gpu.HostRegisterOp, gpu.HostUnregisterOp)
    # MLIR's names of the kinds besides the ones that the stock enumeration has.
    definition = gpu.AllReduceOp.get_irdl_definition()
    definition.properties["op"].constr = base(gpu.AllReduceOpAttr) | base(StringAttr)
    set_custom(gpu.AllReduceOp, _parse_reduce, _print_reduce)
    add_ops(gpu.GPU, (ShuffleOp, SubgroupReduceOp, PrintfOp))
