"""vector: multi_reduction, contract."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    DenseArrayBase,
    StringAttr,
    VectorType,
    i64,
)
from xdsl.dialects.vector import CombiningKindAttr, CombiningKindFlag
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

from tilewright.dialects.upstream.arith import element
from tilewright.dialects.upstream.vector.common import vector_of
from tilewright.dialects.upstream.vector.rules import check_kind


@irdl_op_definition
class MultiReductionOp(IRDLOperation):
    """`vector.multi_reduction <add>, %v, %acc [1] : vector<4x8xf32> to vector<4xf32>`.

    Reduces the given dimensions away, starting from the accumulator.
    """

    name = "vector.multi_reduction"

    kind_attr = prop_def(CombiningKindAttr, prop_name="kind")
    dims_attr = prop_def(DenseArrayBase.constr(i64), prop_name="reduction_dims")
    source = operand_def(VectorType)
    acc = operand_def()
    dest = result_def()

    traits = traits_def(Pure())

    def __init__(
        self,
        kind: str,
        source: SSAValue | Operation,
        acc: SSAValue | Operation,
        dims: Sequence[int],
    ):
        acc = SSAValue.get(acc)
        super().__init__(
            operands=[source, acc],
            properties={
                "kind": CombiningKindAttr(CombiningKindFlag(kind)),
                "reduction_dims": DenseArrayBase.from_list(i64, dims),
            },
            result_types=[acc.type],
        )

    @property
    def kind(self) -> str:
        return self.kind_attr.data.value

    @property
    def dims(self) -> tuple[int, ...]:
        return tuple(int(dim) for dim in self.dims_attr.get_values())

    def verify_(self) -> None:
        source = vector_of(self.source)
        shape = source.get_shape()
        check_kind(self.kind, source.element_type)
        if any(not 0 <= dim < len(shape) for dim in self.dims):
            raise VerifyException("reduction dimension out of range")
        kept = [extent for dim, extent in enumerate(shape) if dim not in self.dims]
        expected = VectorType(source.element_type, kept) if kept else source.element_type
        zero_rank = VectorType(source.element_type, [])
        if self.dest.type != expected and not (not kept and self.dest.type == zero_rank):
            raise VerifyException(
                f"destination type {self.dest.type} is incompatible with source type {source}"
            )
        if self.acc.type != self.dest.type:
            raise VerifyException("accumulator and destination must have the same type")

    @classmethod
    def parse(cls, parser: Parser) -> MultiReductionOp:
        kind = CombiningKindAttr(CombiningKindAttr.parse_parameter(parser))
        parser.parse_punctuation(",")
        source = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        acc = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        dims = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
        attributes |= parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        source_type = parser.parse_type()
        parser.parse_keyword("to")
        dest = parser.parse_type()
        return cls.create(
            operands=[
                parser.resolve_operand(source, source_type),
                parser.resolve_operand(acc, dest),
            ],
            properties={"kind": kind, "reduction_dims": DenseArrayBase.from_list(i64, dims)},
            attributes=attributes,
            result_types=[dest],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(f" <{self.kind}>, ")
        printer.print_list(self.operands, printer.print_operand)
        printer.print_op_attributes(self.attributes)
        printer.print_string(f" [{', '.join(map(str, self.dims))}]")
        printer.print_string(" : ")
        printer.print_attribute(self.source.type)
        printer.print_string(" to ")
        printer.print_attribute(self.dest.type)


@irdl_op_definition
class ContractionOp(IRDLOperation):
    """`vector.contract {indexing_maps = [..], iterator_types = [..], kind = #vector.kind<add>} %a, %b, %c
    : A, B into C`: a contraction in the sense of einsum, added to %c.
    """

    name = "vector.contract"

    lhs = operand_def(VectorType)
    rhs = operand_def(VectorType)
    acc = operand_def()
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr])
    iterator_types = prop_def(ArrayAttr)
    kind_attr = prop_def(
        CombiningKindAttr,
        prop_name="kind",
        default_value=CombiningKindAttr(CombiningKindFlag.ADD),
    )
    result = result_def()

    traits = traits_def(Pure())

    def __init__(
        self,
        lhs: SSAValue | Operation,
        rhs: SSAValue | Operation,
        acc: SSAValue | Operation,
        indexing_maps: Sequence[AffineMapAttr],
        iterator_types: Sequence[str],
        kind: str = "add",
    ):
        acc = SSAValue.get(acc)
        super().__init__(
            operands=[lhs, rhs, acc],
            properties={
                "indexing_maps": ArrayAttr(indexing_maps),
                "iterator_types": ArrayAttr(StringAttr(word) for word in iterator_types),
                "kind": CombiningKindAttr(CombiningKindFlag(kind)),
            },
            result_types=[acc.type],
        )

    @property
    def kind(self) -> str:
        return self.kind_attr.data.value

    def verify_(self) -> None:
        if len(self.indexing_maps) != 3:
            raise VerifyException("expected an indexing map for each vector operand")
        for position, map in enumerate(self.indexing_maps):
            if map.data.num_dims != len(self.iterator_types):
                raise VerifyException(
                    f"expected indexing map {position} to have {len(self.iterator_types)} inputs"
                )
            kind = self.operands[position].type
            rank = kind.get_num_dims() if isinstance(kind, VectorType) else 0
            if len(map.data.results) != rank:
                raise VerifyException(f"expected indexing map {position} to have {rank} outputs")
        if self.acc.type != self.result.type:
            raise VerifyException("accumulator and result must have the same type")
        check_kind(self.kind, element(self.acc.type))

    @classmethod
    def parse(cls, parser: Parser) -> ContractionOp:
        entries = parser.parse_optional_attr_dict()
        pos = parser.pos
        operands = parser.parse_comma_separated_list(
            parser.Delimiter.NONE, parser.parse_unresolved_operand
        )
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        parser.parse_keyword("into")
        result = parser.parse_type()
        if len(operands) != 3 or len(types) != 2:
            parser.raise_error("expected two vectors and an accumulator", pos)
        properties: dict[str, Attribute] = {
            name: entries.pop(name)
            for name in ("indexing_maps", "iterator_types", "kind")
            if name in entries
        }
        for name in ("indexing_maps", "iterator_types"):
            if name not in properties:
                parser.raise_error(f"expected the attribute '{name}'", pos)
        properties.setdefault("kind", CombiningKindAttr(CombiningKindFlag.ADD))
        return cls.create(
            operands=parser.resolve_operands(operands, [*types, result], pos),
            properties=properties,
            attributes=entries,
            result_types=[result],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attr_dict({**self.properties, **self.attributes})
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_operand)
        printer.print_string(" : ")
        printer.print_list([self.lhs.type, self.rhs.type], printer.print_attribute)
        printer.print_string(" into ")
        printer.print_attribute(self.result.type)
