"""gpu: ids and sizes, `gpu.block_id x`, `gpu.subgroup_id : index`."""

from __future__ import annotations

from typing import Any

from xdsl.dialects import gpu
from xdsl.dialects.builtin import (
    IndexType,
    IntegerAttr,
)
from xdsl.ir import Attribute, Operation
from xdsl.irdl import (
    IRDLOperation,
    base,
)
from xdsl.parser import Parser
from xdsl.printer import Printer

from tilewright.dialects.upstream.complete import (
    add_optional_property,
    set_custom,
)


def _parse_upper_bound(parser: Parser) -> dict[str, Attribute]:
    if parser.parse_optional_keyword("upper_bound") is None:
        return {}
    value = parser.parse_integer(allow_boolean=False)
    if parser.parse_optional_punctuation(":") is not None:
        parser.parse_type()
    return {"upper_bound": IntegerAttr(value, IndexType())}


def _print_upper_bound(op: IRDLOperation, printer: Printer) -> None:
    bound = op.properties.get("upper_bound")
    if isinstance(bound, IntegerAttr):
        printer.print_string(f" upper_bound {bound.value.data}")


def _parse_dimension_op(cls: type[IRDLOperation], parser: Parser) -> Operation:
    dimension = gpu.DimensionAttr(parser.parse_str_enum(gpu.DimensionEnum))
    properties: dict[str, Attribute] = {"dimension": dimension, **_parse_upper_bound(parser)}
    attributes = parser.parse_optional_attr_dict()
    return cls.create(result_types=[IndexType()], properties=properties, attributes=attributes)


def _print_dimension_op(op: Any, printer: Printer) -> None:
    printer.print_string(f" {op.dimension.data}")
    _print_upper_bound(op, printer)
    printer.print_op_attributes(op.attributes)


def _parse_id_op(cls: type[IRDLOperation], parser: Parser) -> Operation:
    properties = _parse_upper_bound(parser)
    attributes = parser.parse_optional_attr_dict()
    if parser.parse_optional_punctuation(":") is not None:
        parser.parse_type()
    return cls.create(result_types=[IndexType()], properties=properties, attributes=attributes)


def _print_id_op(op: Any, printer: Printer) -> None:
    _print_upper_bound(op, printer)
    printer.print_op_attributes(op.attributes)
    # MLIR prints the type of every op of this family but lane_id.
    if not isinstance(op, gpu.LaneIdOp):
        printer.print_string(" : ")
        printer.print_attribute(op.result.type)


def complete() -> None:
    for op in (
        gpu.BlockIdOp,
        gpu.BlockDimOp,
        gpu.GridDimOp,
        gpu.ThreadIdOp,
        gpu.GlobalIdOp,
    ):
        add_optional_property(op, "upper_bound", base(IntegerAttr))
        set_custom(op, _parse_dimension_op, _print_dimension_op)
    for op in (gpu.LaneIdOp, gpu.SubgroupIdOp, gpu.NumSubgroupsOp, gpu.SubgroupSizeOp):
        add_optional_property(op, "upper_bound", base(IntegerAttr))
        set_custom(op, _parse_id_op, _print_id_op)
