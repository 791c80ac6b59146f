"""vector: outerproduct, scan."""

from __future__ import annotations

from xdsl.dialects.builtin import BoolAttr, IntegerAttr, VectorType
from xdsl.dialects.vector import CombiningKindAttr, CombiningKindFlag
from xdsl.ir import Attribute, Operation
from xdsl.irdl import (
    IRDLOperation,
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

from tilewright.dialects.upstream.arith import element
from tilewright.dialects.upstream.vector.common import vector_of
from tilewright.dialects.upstream.vector.rules import check_kind

_ADD = CombiningKindAttr(CombiningKindFlag.ADD)


@irdl_op_definition
class OuterProductOp(IRDLOperation):
    """`%r = vector.outerproduct %a, %b, %c {kind = #vector.kind<add>} : vector<4xf32>, vector<8xf32>`: every
    element of %a by every one of %b, combined with %c where that stands; by a scalar %b, a vector like %a.
    """

    name = "vector.outerproduct"

    lhs = operand_def(VectorType)
    rhs = operand_def()
    acc = opt_operand_def()
    kind_attr = prop_def(CombiningKindAttr, prop_name="kind", default_value=_ADD)
    result = result_def(VectorType)

    traits = traits_def(Pure())

    @property
    def kind(self) -> str:
        return self.kind_attr.data.value

    def verify_(self) -> None:
        lhs = vector_of(self.lhs)
        if lhs.get_num_dims() != 1:
            raise VerifyException("expected 1-d vector for operand #1")
        if isinstance(self.rhs.type, VectorType) and self.rhs.type.get_num_dims() != 1:
            raise VerifyException("expected 1-d vector for operand #2")
        if element(self.rhs.type) != lhs.element_type:
            raise VerifyException("operands must have one element type")
        if self.result.type != _outer(lhs, self.rhs.type):
            raise VerifyException(f"expected a result of {_outer(lhs, self.rhs.type)}")
        if self.acc is not None and self.acc.type != self.result.type:
            raise VerifyException("expected operand #3 of same type as result type")
        check_kind(self.kind, lhs.element_type)

    @classmethod
    def parse(cls, parser: Parser) -> Operation:
        pos = parser.pos
        operands = parser.parse_comma_separated_list(
            parser.Delimiter.NONE, parser.parse_unresolved_operand
        )
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        lhs = parser.parse_type()
        parser.parse_punctuation(",")
        rhs = parser.parse_type()
        if not isinstance(lhs, VectorType) or len(operands) not in (2, 3):
            parser.raise_error("expected a vector, a factor and perhaps an accumulator", pos)
        result = _outer(lhs, rhs)
        types = [lhs, rhs, result][: len(operands)]
        return cls.create(
            operands=parser.resolve_operands(operands, types, pos),
            properties={"kind": attributes.pop("kind", _ADD)},
            attributes=attributes,
            result_types=[result],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_operand)
        explicit = self.acc is not None or self.kind_attr != _ADD
        printer.print_op_attributes(
            {**({"kind": self.kind_attr} if explicit else {}), **self.attributes}
        )
        printer.print_string(" : ")
        printer.print_list([self.lhs.type, self.rhs.type], printer.print_attribute)


def _outer(lhs: VectorType, rhs: Attribute) -> VectorType:
    extents = rhs.get_shape() if isinstance(rhs, VectorType) else ()
    return VectorType(lhs.element_type, [*lhs.get_shape(), *extents])


@irdl_op_definition
class ScanOp(IRDLOperation):
    """`%d, %last = vector.scan <add>, %v, %start {inclusive = true, reduction_dim = 1 : i64} : vector<4x8xf32>,
    vector<4xf32>`: what the elements up to each along a dimension combine to.

    An exclusive scan begins with %start and leaves each element itself out; an inclusive one begins with the first
    element, as in MLIR, whatever %start is. %last is the scan's end.
    """

    name = "vector.scan"

    kind_attr = prop_def(CombiningKindAttr, prop_name="kind")
    source = operand_def(VectorType)
    initial_value = operand_def(VectorType)
    reduction_dim = prop_def(IntegerAttr)
    inclusive = prop_def(BoolAttr)
    dest = result_def(VectorType)
    accumulated_value = result_def(VectorType)

    traits = traits_def(Pure())

    @property
    def kind(self) -> str:
        return self.kind_attr.data.value

    @property
    def dim(self) -> int:
        return self.reduction_dim.value.data

    @property
    def is_inclusive(self) -> bool:
        return bool(self.inclusive.value.data)

    def verify_(self) -> None:
        source = vector_of(self.source)
        shape = source.get_shape()
        if not 0 <= self.dim < len(shape):
            raise VerifyException(
                f"reduction dimension {self.dim} has to be less than {len(shape)}"
            )
        check_kind(self.kind, source.element_type)
        kept = [n for dim, n in enumerate(shape) if dim != self.dim]
        if self.initial_value.type != VectorType(source.element_type, kept):
            raise VerifyException("incompatible input/initial value shapes")
        if self.dest.type != source or self.accumulated_value.type != self.initial_value.type:
            raise VerifyException("results have the types of the operands")

    @classmethod
    def parse(cls, parser: Parser) -> Operation:
        kind = CombiningKindAttr(CombiningKindAttr.parse_parameter(parser))
        parser.parse_punctuation(",")
        pos = parser.pos
        operands = parser.parse_comma_separated_list(
            parser.Delimiter.NONE, parser.parse_unresolved_operand
        )
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        if len(operands) != 2 or len(types) != 2:
            parser.raise_error("expected a vector and its initial value", pos)
        properties: dict[str, Attribute] = {"kind": kind}
        for name in ("reduction_dim", "inclusive"):
            if name not in attributes:
                parser.raise_error(f"expected the attribute '{name}'", pos)
            properties[name] = attributes.pop(name)
        return cls.create(
            operands=parser.resolve_operands(operands, types, pos),
            properties=properties,
            attributes=attributes,
            result_types=types,
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(f" <{self.kind}>, ")
        printer.print_list(self.operands, printer.print_operand)
        printer.print_op_attributes(
            {
                "inclusive": self.inclusive,
                "reduction_dim": self.reduction_dim,
                **self.attributes,
            }
        )
        printer.print_string(" : ")
        printer.print_list([v.type for v in self.operands], printer.print_attribute)
