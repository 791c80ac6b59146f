"""gpu: matrices that the lanes of a subgroup hold together, and the ops on them (`gpu.subgroup_mma_*`)."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import gpu
from xdsl.dialects.builtin import (
    ArrayAttr,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    IntAttr,
    IntegerAttr,
    IntegerType,
    MemRefType,
    Signedness,
    StringAttr,
)
from xdsl.ir import Attribute, ParametrizedAttribute, SpacedOpaqueSyntaxAttribute, TypeAttribute
from xdsl.irdl import AnyAttr, ParamAttrConstraint, VarConstraint, irdl_attr_definition, traits_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.attribute_fields import checked, ints, parse_shape
from tilewright.dialects.directives import spelled
from tilewright.dialects.fields import (
    Flag,
    Follows,
    Op,
    Operand,
    Operands,
    Prop,
    Result,
    op_definition,
)
from tilewright.dialects.upstream.complete import add_attributes, add_ops
from tilewright.dialects.upstream.strided import strided_form

OPERANDS = ("AOp", "BOp", "COp")
ELEMENTWISE = (
    *("addf", "mulf", "subf", "maxf", "minf", "divf", "addi", "muli", "subi", "divs", "divu"),
    *("negatef", "negates", "extf"),
)


@irdl_attr_definition
class MMAMatrixType(ParametrizedAttribute, TypeAttribute):
    """`!gpu.mma_matrix<16x16xf16, "AOp">`: which lane has which element is the target's business."""

    name = "gpu.mma_matrix"
    shape: ArrayAttr[IntAttr]
    element_type: Attribute
    operand: StringAttr

    @property
    def extents(self) -> tuple[int, ...]:
        return ints(self.shape)

    def verify(self) -> None:
        if self.operand.data not in OPERANDS:
            raise VerifyException("operand expected to be one of AOp, BOp or COp")
        if len(self.shape) != 2 or min(self.extents) < 1:
            raise VerifyException("MMAMatrixType must have exactly two dimensions")
        kind = self.element_type
        whole = isinstance(kind, IntegerType) and (
            (kind.width.data == 8) != (kind.signedness.data is Signedness.SIGNLESS)
        )
        if not (
            isinstance(kind, Float16Type | Float32Type | Float64Type)
            or (whole and isinstance(kind, IntegerType) and kind.width.data in (8, 32))
        ):
            raise VerifyException(
                f"MMAMatrixType elements must be SI8, UI8, I32, F16, F32, or F64, got {kind}"
            )

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        start = parser.pos
        with parser.in_angle_brackets():
            shape, element = parse_shape(parser, {})
            parser.parse_punctuation(",")
            operand = StringAttr(parser.parse_str_literal())
            return checked(parser, cls, [shape, element, operand], start)

    def print_parameters(self, printer: Printer) -> None:
        extents = "".join(f"{n}x" for n in self.extents)
        printer.print_string(f'<{extents}{self.element_type}, "{self.operand.data}">')


@irdl_attr_definition
class ElementwiseAttr(ParametrizedAttribute, SpacedOpaqueSyntaxAttribute):
    """`#gpu<mma_element_wise addf>`: what is done with each element."""

    name = "gpu.mma_element_wise"
    kind: StringAttr

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        return [StringAttr(parser.parse_keyword_in(ELEMENTWISE))]

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string(self.kind.data)


Kind = spelled(
    "Kind",
    lambda parser: ElementwiseAttr(StringAttr(parser.parse_keyword_in(ELEMENTWISE))),
    lambda held: held.kind.data,
)
INDEX = IntegerAttr.constr(IndexType())
_ELEMENT = VarConstraint("element", AnyAttr())
_OF_ELEMENT = ParamAttrConstraint(MMAMatrixType, (AnyAttr(), _ELEMENT, AnyAttr()))


def _verify_memory(memory: MemRefType, indices: Sequence[object]) -> None:
    try:
        strides, _ = strided_form(memory)
    except TypeError:
        strides = ()  # a layout that is no strided form
    if not strides or strides[-1] != 1:
        raise VerifyException("expected source memref most minor dim must have unit stride")
    if len(indices) != memory.get_num_dims():
        raise VerifyException(f"expected {memory.get_num_dims()} subscripts")


@op_definition
class LoadOp(Op):
    """`gpu.subgroup_mma_load_matrix %m[%i, %j] {leadDimension = 32 : index, transpose} : memref<..> -> ..`: rows, or
    columns, `leadDimension` elements apart.
    """

    name = "gpu.subgroup_mma_load_matrix"
    source: Operand[MemRefType] = Operand(MemRefType)
    indices: Operands[IndexType] = Operands(IndexType)
    leadDimension: Prop[IntegerAttr] = Prop(INDEX)
    result: Result[MMAMatrixType] = Result(MMAMatrixType)
    transpose: Flag = Flag()
    traits = traits_def(MemoryReadEffect())
    assembly_format = "$source `[` $indices `]` attr-dict `:` type($source) `->` type($result)"

    def verify_(self) -> None:
        _verify_memory(self.source.type, self.indices)


@op_definition
class StoreOp(Op):
    """`gpu.subgroup_mma_store_matrix %x, %m[%i, %j] {leadDimension = 32 : index} : .., memref<..>`."""

    name = "gpu.subgroup_mma_store_matrix"
    source: Operand[MMAMatrixType] = Operand(MMAMatrixType)
    target: Operand[MemRefType] = Operand(MemRefType)
    indices: Operands[IndexType] = Operands(IndexType)
    leadDimension: Prop[IntegerAttr] = Prop(INDEX)
    transpose: Flag = Flag()
    traits = traits_def(MemoryWriteEffect())
    assembly_format = (
        "$source `,` $target `[` $indices `]` attr-dict `:` type($source) `,` type($target)"
    )

    def verify_(self) -> None:
        _verify_memory(self.target.type, self.indices)
        if self.source.type.operand.data != "COp":
            raise VerifyException(
                "expected the operand matrix being stored to have 'COp' operand type"
            )


@op_definition
class ComputeOp(Op):
    """`%d = gpu.subgroup_mma_compute %a, %b, %c {b_transpose} : .., .. -> ..`: a b + c.

    `a_transpose` and `b_transpose` say how an operand was loaded, which does not change it again.
    """

    name = "gpu.subgroup_mma_compute"
    a: Operand[MMAMatrixType] = Operand(MMAMatrixType)
    b: Operand[MMAMatrixType] = Operand(MMAMatrixType)
    c: Operand[MMAMatrixType] = Operand(MMAMatrixType)
    a_transpose: Flag = Flag()
    b_transpose: Flag = Flag()
    result = Follows("c")
    traits = traits_def(Pure())
    assembly_format = "$a `,` $b `,` $c attr-dict `:` type($a) `,` type($b) `->` type($c)"

    def verify_(self) -> None:
        if [each.type.operand.data for each in (self.a, self.b, self.c)] != list(OPERANDS):
            raise VerifyException("operands must be in the order AOp, BOp, COp")
        (m, k), (other, n) = self.a.type.extents, self.b.type.extents
        if k != other or (m, n) != self.c.type.extents:
            raise VerifyException("operand shapes do not satisfy matmul constraints")


@op_definition
class ConstantOp(Op):
    """`%z = gpu.subgroup_mma_constant_matrix %x : !gpu.mma_matrix<16x16xf32, "COp">`: one number everywhere."""

    name = "gpu.subgroup_mma_constant_matrix"
    value: Operand = Operand(_ELEMENT)
    result: Result[MMAMatrixType] = Result(_OF_ELEMENT)
    traits = traits_def(Pure())
    assembly_format = "$value attr-dict `:` type($result)"


@op_definition
class ElementwiseOp(Op):
    """`%r = gpu.subgroup_mma_elementwise addf %x, %y : (.., ..) -> ..`."""

    name = "gpu.subgroup_mma_elementwise"
    args: Operands[MMAMatrixType] = Operands(MMAMatrixType)
    opType: Prop[ElementwiseAttr] = Prop(ElementwiseAttr)
    result: Result[MMAMatrixType] = Result(MMAMatrixType)
    traits = traits_def(Pure())
    assembly_format = "custom<Kind>($opType) $args attr-dict `:` functional-type($args, $result)"
    custom_directives = (Kind,)


def complete() -> None:
    add_attributes(gpu.GPU, (MMAMatrixType, ElementwiseAttr))
    add_ops(gpu.GPU, (LoadOp, StoreOp, ComputeOp, ConstantOp, ElementwiseOp))
