"""gpu: device memory, asynchronous tokens, address spaces."""

from __future__ import annotations

from typing import Any

from xdsl.dialects import gpu
from xdsl.dialects.builtin import (
    IndexType,
    IntegerAttr,
    MemRefType,
    UnitAttr,
)
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_result_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from tilewright.dialects.effects import Writes
from tilewright.dialects.upstream.complete import (
    add_attributes,
    add_ops,
    set_custom,
    set_verifier,
)

TOKEN = gpu.AsyncTokenType()


def parse_async(parser: Parser) -> tuple[list[Attribute], list[SSAValue]]:
    """The type of the token, if one is made, and the tokens waited for."""
    results: list[Attribute] = [TOKEN] if parser.parse_optional_keyword("async") else []
    dependencies = parser.parse_optional_comma_separated_list(
        parser.Delimiter.SQUARE, lambda: parser.parse_operand(TOKEN)
    )
    return results, list(dependencies or ())


def print_async(op: Any, printer: Printer) -> None:
    if op.asyncToken is not None:
        printer.print_string(" async")
    if op.asyncDependencies:
        printer.print_string(" [")
        printer.print_list(op.asyncDependencies, printer.print_operand)
        printer.print_string("]")


def _parse_alloc(cls: type[IRDLOperation], parser: Parser) -> Operation:
    token, dependencies = parse_async(parser)
    properties: dict[str, Attribute] = {}
    if parser.parse_optional_keyword("host_shared") is not None:
        properties["hostShared"] = UnitAttr()

    def index() -> SSAValue:
        return parser.parse_operand(IndexType())

    sizes = parser.parse_comma_separated_list(parser.Delimiter.PAREN, index)
    symbols = parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, index)
    attributes = parser.parse_optional_attr_dict()
    parser.parse_punctuation(":")
    result = parser.parse_type()
    return cls.build(
        operands=[dependencies, sizes, symbols or []],
        properties=properties,
        attributes=attributes,
        result_types=[result, token],
    )


def _print_alloc(op: Any, printer: Printer) -> None:
    print_async(op, printer)
    if op.hostShared is not None:
        printer.print_string(" host_shared")
    printer.print_string(" (")
    printer.print_list(op.dynamicSizes, printer.print_operand)
    printer.print_string(")")
    if op.symbolOperands:
        printer.print_string("[")
        printer.print_list(op.symbolOperands, printer.print_operand)
        printer.print_string("]")
    printer.print_op_attributes(op.attributes)
    printer.print_string(" : ")
    printer.print_attribute(op.result.type)


def _parse_dealloc(cls: type[IRDLOperation], parser: Parser) -> Operation:
    token, dependencies = parse_async(parser)
    buffer = parser.parse_unresolved_operand()
    attributes = parser.parse_optional_attr_dict()
    parser.parse_punctuation(":")
    operand = parser.resolve_operand(buffer, parser.parse_type())
    return cls.build(operands=[dependencies, operand], attributes=attributes, result_types=[token])


def _print_dealloc(op: Any, printer: Printer) -> None:
    print_async(op, printer)
    printer.print_string(" ")
    printer.print_operand(op.buffer)
    _print_attributes_without_segments(op, printer)
    printer.print_string(" : ")
    printer.print_attribute(op.buffer.type)


def _print_attributes_without_segments(op: Any, printer: Printer) -> None:
    printer.print_op_attributes(
        op.attributes, reserved_attr_names=("operandSegmentSizes", "resultSegmentSizes")
    )


def _parse_copy(cls: type[IRDLOperation], parser: Parser) -> Operation:
    """memcpy and memset: `async [%d] %to, %from : type, type`."""
    token, dependencies = parse_async(parser)
    pos = parser.pos
    operands = parser.parse_comma_separated_list(
        parser.Delimiter.NONE, parser.parse_unresolved_operand
    )
    attributes = parser.parse_optional_attr_dict()
    parser.parse_punctuation(":")
    types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
    if len(operands) != 2:
        parser.raise_error("expected two operands", pos)
    values = parser.resolve_operands(operands, types, pos)
    return cls.build(operands=[dependencies, *values], attributes=attributes, result_types=[token])


def _print_copy(op: Any, printer: Printer) -> None:
    print_async(op, printer)
    printer.print_string(" ")
    operands = list(op.operands)[len(op.asyncDependencies) :]
    printer.print_list(operands, printer.print_operand)
    _print_attributes_without_segments(op, printer)
    printer.print_string(" : ")
    printer.print_list([operand.type for operand in operands], printer.print_attribute)


def _verify_memcpy(op: gpu.MemcpyOp) -> None:
    """As in MLIR, memory spaces and layouts may differ."""
    source, target = op.src.type, op.dst.type
    assert isinstance(source, MemRefType) and isinstance(target, MemRefType)
    if source.element_type != target.element_type:
        raise VerifyException("arguments have incompatible element type")
    pairs = zip(source.get_shape(), target.get_shape(), strict=False)
    different = any(a != b and a >= 0 and b >= 0 for a, b in pairs)
    if different or len(source.get_shape()) != len(target.get_shape()):
        raise VerifyException("arguments have incompatible shape")


def _parse_wait(cls: type[IRDLOperation], parser: Parser) -> Operation:
    token, dependencies = parse_async(parser)
    attributes = parser.parse_optional_attr_dict()
    return cls.build(operands=[dependencies], attributes=attributes, result_types=[token])


def _print_wait(op: Any, printer: Printer) -> None:
    print_async(op, printer)
    printer.print_op_attributes(op.attributes)


@irdl_op_definition
class MemsetOp(IRDLOperation):
    """`gpu.memset async [%t] %buffer, %value : memref<8xf32>, f32`."""

    name = "gpu.memset"

    asyncDependencies = var_operand_def(gpu.AsyncTokenType)
    dst = operand_def(MemRefType)
    value = operand_def()
    asyncToken = opt_result_def(gpu.AsyncTokenType)

    traits = traits_def(Writes("dst"))


set_custom(MemsetOp, _parse_copy, _print_copy)


@irdl_op_definition
class DynamicSharedMemoryOp(IRDLOperation):
    """`gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>`."""

    name = "gpu.dynamic_shared_memory"

    resultMemref = result_def(MemRefType)

    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($resultMemref)"


class AddressSpace(StrEnum):
    """Memory spaces of MLIR's gpu dialect."""

    GLOBAL = "global"
    WORKGROUP = "workgroup"
    PRIVATE = "private"
    CONSTANT = "constant"


SHARED_MEMORY = 3
"""The number by which XeTile and XeGPU programs name memory that a workgroup shares."""


@irdl_attr_definition
class AddressSpaceAttr(EnumAttribute[AddressSpace]):
    """`#gpu.address_space<workgroup>`."""

    name = "gpu.address_space"

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.data.value)

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> AddressSpace:
        with parser.in_angle_brackets():
            return parser.parse_str_enum(AddressSpace)


def memory_space_number(kind: MemRefType) -> int:
    """0 for global memory, 3 for memory that a workgroup shares, other numbers as written."""
    space = kind.memory_space
    if isinstance(space, IntegerAttr):
        return space.value.data
    return SHARED_MEMORY if space == AddressSpaceAttr(AddressSpace.WORKGROUP) else 0


def complete() -> None:
    set_custom(gpu.AllocOp, _parse_alloc, _print_alloc)
    set_custom(gpu.DeallocOp, _parse_dealloc, _print_dealloc)
    set_custom(gpu.MemcpyOp, _parse_copy, _print_copy)
    set_verifier(gpu.MemcpyOp, _verify_memcpy)
    set_custom(gpu.WaitOp, _parse_wait, _print_wait)
    add_ops(gpu.GPU, (MemsetOp, DynamicSharedMemoryOp))
    add_attributes(gpu.GPU, (AddressSpaceAttr,))
