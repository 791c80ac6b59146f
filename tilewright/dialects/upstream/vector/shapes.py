"""vector: shape_cast, transpose, step, constant_mask, interleave, deinterleave, from_elements, to_elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import (
    DenseArrayBase,
    IndexType,
    IntegerType,
    VectorType,
    i1,
    i64,
)
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    VarConstraint,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.upstream.vector.common import vector_of


@irdl_op_definition
class ShapeCastOp(IRDLOperation):
    """`vector.shape_cast %v : vector<16xf32> to vector<4x4xf32>`: same elements in row-major order."""

    name = "vector.shape_cast"

    source = operand_def(VectorType)
    result = result_def(VectorType)

    traits = traits_def(Pure())
    assembly_format = "$source attr-dict `:` type($source) `to` type($result)"

    def __init__(self, source: SSAValue | Operation, result_type: VectorType):
        super().__init__(operands=[source], result_types=[result_type])

    def verify_(self) -> None:
        source, result = vector_of(self.source), vector_of(self.result)
        if source.element_type != result.element_type:
            raise VerifyException("source/result vectors must have same element type")
        if prod(source.get_shape()) != prod(result.get_shape()):
            raise VerifyException(
                f"source/result number of elements must match, got {prod(source.get_shape())} "
                f"and {prod(result.get_shape())}"
            )


@irdl_op_definition
class TransposeOp(IRDLOperation):
    """`vector.transpose %v, [1, 0] : vector<4x8xf32> to vector<8x4xf32>`."""

    name = "vector.transpose"

    vector = operand_def(VectorType)
    permutation_attr = prop_def(DenseArrayBase.constr(i64), prop_name="permutation")
    result = result_def(VectorType)

    traits = traits_def(Pure())

    def __init__(self, source: SSAValue | Operation, permutation: Sequence[int]):
        source = SSAValue.get(source)
        kind = vector_of(source)
        shape = [kind.get_shape()[dim] for dim in permutation]
        super().__init__(
            operands=[source],
            properties={"permutation": DenseArrayBase.from_list(i64, permutation)},
            result_types=[VectorType(kind.element_type, shape)],
        )

    @property
    def permutation(self) -> tuple[int, ...]:
        return tuple(int(dim) for dim in self.permutation_attr.get_values())

    def verify_(self) -> None:
        source, result = vector_of(self.vector), vector_of(self.result)
        shape, permutation = source.get_shape(), self.permutation
        if len(permutation) != len(shape) or len(result.get_shape()) != len(shape):
            raise VerifyException(
                f"transposition length mismatch: {len(permutation)} for rank {len(shape)}"
            )
        for position, dim in enumerate(permutation):
            if not 0 <= dim < len(shape):
                raise VerifyException(f"transposition index out of range: {dim}")
            if permutation.index(dim) != position:
                raise VerifyException(f"duplicate position index: {dim}")
            if result.get_shape()[position] != shape[dim]:
                raise VerifyException(f"dimension size mismatch at: {dim}")
        if source.element_type != result.element_type:
            raise VerifyException("source and result must have the same element type")

    @classmethod
    def parse(cls, parser: Parser) -> TransposeOp:
        operand = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        permutation = parser.parse_comma_separated_list(
            parser.Delimiter.SQUARE, parser.parse_integer
        )
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        source = parser.parse_type()
        parser.parse_keyword("to")
        result = parser.parse_type()
        return cls.create(
            operands=[parser.resolve_operand(operand, source)],
            properties={"permutation": DenseArrayBase.from_list(i64, permutation)},
            attributes=attributes,
            result_types=[result],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.vector)
        printer.print_string(f", [{', '.join(map(str, self.permutation))}]")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.vector.type)
        printer.print_string(" to ")
        printer.print_attribute(self.result.type)


@irdl_op_definition
class StepOp(IRDLOperation):
    """`vector.step : vector<8xindex>`: 0, 1, 2, ..."""

    name = "vector.step"

    result = result_def(VectorType)

    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"

    def __init__(self, result_type: VectorType):
        super().__init__(result_types=[result_type])

    def verify_(self) -> None:
        kind = vector_of(self.result)
        if len(kind.get_shape()) != 1 or not isinstance(
            kind.element_type, (IndexType, IntegerType)
        ):
            raise VerifyException("result must be a 1-D vector of index or integer type")


@irdl_op_definition
class ConstantMaskOp(IRDLOperation):
    """`vector.constant_mask [3, 2] : vector<4x3xi1>`: true in the leading box."""

    name = "vector.constant_mask"

    sizes_attr = prop_def(DenseArrayBase.constr(i64), prop_name="mask_dim_sizes")
    result = result_def(VectorType)

    traits = traits_def(Pure())

    def __init__(self, sizes: Sequence[int], result_type: VectorType):
        super().__init__(
            properties={"mask_dim_sizes": DenseArrayBase.from_list(i64, sizes)},
            result_types=[result_type],
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(int(size) for size in self.sizes_attr.get_values())

    def verify_(self) -> None:
        kind = vector_of(self.result)
        if kind.element_type != i1:
            raise VerifyException("result must be a vector of i1")
        shape = kind.get_shape()
        if len(self.sizes) != max(len(shape), 1):
            raise VerifyException("must specify array attr of size equal vector result rank")
        for size, extent in zip(self.sizes, shape or (1,), strict=True):
            if not 0 <= size <= extent:
                raise VerifyException(
                    "array attr of size out of bounds of vector result dimension size"
                )

    @classmethod
    def parse(cls, parser: Parser) -> ConstantMaskOp:
        sizes = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        return cls.create(
            properties={"mask_dim_sizes": DenseArrayBase.from_list(i64, sizes)},
            attributes=attributes,
            result_types=[parser.parse_type()],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(f" [{', '.join(map(str, self.sizes))}]")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.result.type)


@irdl_op_definition
class InterleaveOp(IRDLOperation):
    """`vector.interleave %a, %b : vector<4xf32> -> vector<8xf32>`: a0 b0 a1 b1 ... in the last dim."""

    name = "vector.interleave"

    T: ClassVar = VarConstraint("T", AnyAttr())
    lhs = operand_def(T)
    rhs = operand_def(T)
    result = result_def(VectorType)

    traits = traits_def(Pure())
    assembly_format = "$lhs `,` $rhs attr-dict `:` type($lhs) `->` type($result)"

    def __init__(self, lhs: SSAValue | Operation, rhs: SSAValue | Operation):
        lhs = SSAValue.get(lhs)
        kind = vector_of(lhs)
        shape = [*kind.get_shape()[:-1], 2 * kind.get_shape()[-1]]
        super().__init__(operands=[lhs, rhs], result_types=[VectorType(kind.element_type, shape)])

    def verify_(self) -> None:
        _verify_interleaved(self.lhs, self.result)


@irdl_op_definition
class DeinterleaveOp(IRDLOperation):
    """`%even, %odd = vector.deinterleave %v : vector<8xf32> -> vector<4xf32>`."""

    name = "vector.deinterleave"

    T: ClassVar = VarConstraint("T", AnyAttr())
    source = operand_def(VectorType)
    res1 = result_def(T)
    res2 = result_def(T)

    traits = traits_def(Pure())
    assembly_format = "$source attr-dict `:` type($source) `->` type($res1)"

    def __init__(self, source: SSAValue | Operation):
        source = SSAValue.get(source)
        kind = vector_of(source)
        half = VectorType(kind.element_type, [*kind.get_shape()[:-1], kind.get_shape()[-1] // 2])
        super().__init__(operands=[source], result_types=[half, half])

    def verify_(self) -> None:
        _verify_interleaved(self.res1, self.source)


def _verify_interleaved(part: SSAValue, whole: SSAValue) -> None:
    if not isinstance(part.type, VectorType) or not part.type.get_shape():
        raise VerifyException("expected a vector of rank 1 or more")
    shape = part.type.get_shape()
    expected = VectorType(part.type.element_type, [*shape[:-1], 2 * shape[-1]])
    if whole.type != expected:
        raise VerifyException(f"expected {expected} to match {part.type}, got {whole.type}")


def _verify_elements(elements: Sequence[SSAValue], whole: SSAValue, are: str) -> None:
    kind = vector_of(whole)
    if len(elements) != prod(kind.get_shape()):
        raise VerifyException(
            f"{kind} has {prod(kind.get_shape())} elements, {len(elements)} are {are}"
        )
    if any(v.type != kind.element_type for v in elements):
        raise VerifyException(f"elements must be of {kind}'s element type")


def _parse_vector_type(parser: Parser) -> VectorType:
    start = parser.pos
    kind = parser.parse_type()
    if not isinstance(kind, VectorType):
        parser.raise_error("expected a vector type", start, parser.pos)
    return kind


@irdl_op_definition
class FromElementsOp(IRDLOperation):
    """`vector.from_elements %a, %b, %c, %d : vector<2x2xf32>`: scalars, row-major."""

    name = "vector.from_elements"

    elements = var_operand_def(AnyAttr())
    result = result_def(VectorType)

    traits = traits_def(Pure())

    def verify_(self) -> None:
        _verify_elements(self.elements, self.result, "given")

    @classmethod
    def parse(cls, parser: Parser) -> FromElementsOp:
        given = parser.parse_optional_undelimited_comma_separated_list(
            parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
        )
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kind = _parse_vector_type(parser)
        elements = [parser.resolve_operand(v, kind.element_type) for v in given or ()]
        return cls.create(operands=elements, attributes=attributes, result_types=[kind])

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.elements, printer.print_operand)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.result.type)


@irdl_op_definition
class ToElementsOp(IRDLOperation):
    """`%e:4 = vector.to_elements %v : vector<2x2xf32>`: the scalars, row-major."""

    name = "vector.to_elements"

    source = operand_def(VectorType)
    elements = var_result_def(AnyAttr())

    traits = traits_def(Pure())

    def verify_(self) -> None:
        _verify_elements(self.elements, self.source, "named")

    @classmethod
    def parse(cls, parser: Parser) -> ToElementsOp:
        operand = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kind = _parse_vector_type(parser)
        return cls.create(
            operands=[parser.resolve_operand(operand, kind)],
            attributes=attributes,
            result_types=[kind.element_type] * prod(kind.get_shape()),
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.source)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.source.type)
