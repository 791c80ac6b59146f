"""vector: shape_cast, transpose, step, constant_mask, interleave, deinterleave, from_elements, to_elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from xdsl.dialects.builtin import IndexType, IntegerType, VectorType, i1
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import AnyAttr, IRDLOperation, VarConstraint, traits_def
from xdsl.irdl.declarative_assembly_format import (
    CustomDirective,
    ParsingState,
    PrintingState,
    TypeDirective,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.fields import (
    Follows,
    Given,
    Inferred,
    Ints,
    Op,
    Operand,
    Operands,
    Result,
    Results,
    op_definition,
    variable,
)
from tilewright.dialects.movement import vector_type

_ELEMENT = VarConstraint("element", AnyAttr())


@irdl_custom_directive
class Elements(CustomDirective):
    """The type of a vector, from which follow those of its elements."""

    vector: TypeDirective
    elements: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        start = parser.pos
        kind = parser.parse_type()
        if not isinstance(kind, VectorType):
            parser.raise_error("expected a vector type", start, parser.pos)
        self.vector.set(state, [kind])
        self.elements.set(state, [kind.element_type] * prod(kind.get_shape()))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        self.vector.print(printer, state, op)


@op_definition
class ShapeCastOp(Op):
    """`vector.shape_cast %v : vector<16xf32> to vector<4x4xf32>`: same elements in row-major order."""

    name = "vector.shape_cast"
    source: Operand[VectorType] = Operand(VectorType)
    result: Result[VectorType] = Result(VectorType)
    traits = traits_def(Pure())
    assembly_format = "$source attr-dict `:` type($source) `to` type($result)"

    def verify_(self) -> None:
        source, result = vector_type(self.source), vector_type(self.result)
        if source.element_type != result.element_type:
            raise VerifyException("source/result vectors must have same element type")
        if prod(source.get_shape()) != prod(result.get_shape()):
            raise VerifyException(
                f"source/result number of elements must match, got {prod(source.get_shape())} "
                f"and {prod(result.get_shape())}"
            )


def _transposed(given: Given) -> VectorType:
    kind = vector_type(SSAValue.get(given["vector"]))
    return VectorType(kind.element_type, [kind.get_shape()[dim] for dim in given["permutation"]])


@op_definition
class TransposeOp(Op):
    """`vector.transpose %v, [1, 0] : vector<4x8xf32> to vector<8x4xf32>`."""

    name = "vector.transpose"
    vector: Operand[VectorType] = Operand(VectorType)
    permutation: Ints = Ints()
    result = Inferred(VectorType, _transposed)
    traits = traits_def(Pure())
    assembly_format = "$vector `,` $permutation attr-dict `:` type($vector) `to` type($result)"

    def verify_(self) -> None:
        source, result = vector_type(self.vector), vector_type(self.result)
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


@op_definition
class StepOp(Op):
    """`vector.step : vector<8xindex>`: 0, 1, 2, ..."""

    name = "vector.step"
    result: Result[VectorType] = Result(VectorType)
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"

    def verify_(self) -> None:
        kind = vector_type(self.result)
        if len(kind.get_shape()) != 1 or not isinstance(
            kind.element_type, (IndexType, IntegerType)
        ):
            raise VerifyException("result must be a 1-D vector of index or integer type")


@op_definition
class ConstantMaskOp(Op):
    """`vector.constant_mask [3, 2] : vector<4x3xi1>`: true in the leading box; an empty box is all zeros."""

    name = "vector.constant_mask"
    sizes: Ints = Ints(name="mask_dim_sizes")
    result: Result[VectorType] = Result(VectorType)
    traits = traits_def(Pure())
    assembly_format = "$mask_dim_sizes attr-dict `:` type($result)"

    def verify_(self) -> None:
        kind = vector_type(self.result)
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
        if 0 in self.sizes and any(self.sizes):
            raise VerifyException(
                "expected all mask dim sizes to be zeros, as a result of conjunction with zero mask dim"
            )


def _half(n: int) -> int:
    if n % 2:
        raise VerifyException(f"expected an even last extent, got {n}")
    return n // 2


def _last(of: Callable[[int], int]) -> Callable[[VectorType], VectorType]:
    """The type of another last extent."""

    def rule(kind: VectorType) -> VectorType:
        shape = kind.get_shape()
        if not shape:
            raise VerifyException("expected a vector of rank 1 or more")
        return VectorType(kind.element_type, [*shape[:-1], of(shape[-1])])

    return rule


@op_definition
class InterleaveOp(Op):
    """`vector.interleave %a, %b : vector<4xf32> -> vector<8xf32>`: a0 b0 a1 b1 ... in the last dim."""

    name = "vector.interleave"
    lhs: Operand[VectorType] = Operand(VectorType)
    rhs: Operand = Operand(variable("lhs"))
    result = Follows("lhs", rule=_last(lambda n: 2 * n))
    traits = traits_def(Pure())
    assembly_format = "$lhs `,` $rhs attr-dict `:` type($lhs) `->` type($result)"


@op_definition
class DeinterleaveOp(Op):
    """`%even, %odd = vector.deinterleave %v : vector<8xf32> -> vector<4xf32>`."""

    name = "vector.deinterleave"
    source: Operand[VectorType] = Operand(VectorType)
    res1 = Follows("source", rule=_last(_half))
    res2 = Follows("source", rule=_last(_half))
    traits = traits_def(Pure())
    assembly_format = "$source attr-dict `:` type($source) `->` type($res1)"


def _count(whole: SSAValue, elements: Sequence[SSAValue], are: str) -> None:
    kind = vector_type(whole)
    if len(elements) != prod(kind.get_shape()):
        raise VerifyException(
            f"{kind} has {prod(kind.get_shape())} elements, {len(elements)} are {are}"
        )


@op_definition
class FromElementsOp(Op):
    """`vector.from_elements %a, %b, %c, %d : vector<2x2xf32>`: scalars, row-major."""

    name = "vector.from_elements"
    elements: Operands = Operands(_ELEMENT)
    result: Result[VectorType] = Result(VectorType.constr(_ELEMENT))
    traits = traits_def(Pure())
    assembly_format = "$elements attr-dict `:` type($result)"

    def verify_(self) -> None:
        _count(self.result, self.elements, "given")


@op_definition
class ToElementsOp(Op):
    """`%e:4 = vector.to_elements %v : vector<2x2xf32>`: the scalars, row-major."""

    name = "vector.to_elements"
    source: Operand[VectorType] = Operand(VectorType.constr(_ELEMENT))
    elements: Results[Attribute] = Results(_ELEMENT)
    traits = traits_def(Pure())
    assembly_format = "$source attr-dict `:` custom<Elements>(type($source), type($elements))"
    custom_directives = (Elements,)

    def verify_(self) -> None:
        _count(self.source, self.elements, "named")
