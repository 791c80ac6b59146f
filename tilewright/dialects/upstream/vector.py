"""vector: the ops that stock xDSL lacks, and the format of `vector.print`.

Shapes and slices: shape_cast, transpose, extract_strided_slice, insert_strided_slice, step,
constant_mask, interleave, deinterleave. Computation: multi_reduction, gather, scatter, contract,
outerproduct.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

from xdsl.dialects import vector
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    StringAttr,
    VectorType,
    i1,
    i64,
)
from xdsl.dialects.vector import CombiningKindAttr, CombiningKindFlag
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    OptOperandDef,
    VarConstraint,
    base,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.upstream.complete import (
    add_ops,
    add_optional_property,
    definition,
    set_custom,
)


def vector_of(value: SSAValue) -> VectorType:
    assert isinstance(value.type, VectorType)
    return value.type


def _i64s(values: Sequence[int]) -> ArrayAttr[IntegerAttr]:
    return ArrayAttr(IntegerAttr(value, i64) for value in values)


def _ints(array: ArrayAttr[IntegerAttr]) -> list[int]:
    return [element.value.data for element in array]


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


class _StridedSliceOp(IRDLOperation):
    """What extract_ and insert_strided_slice share: integer lists in the attribute dictionary."""

    LISTS: ClassVar[tuple[str, ...]] = ()

    def print_lists(self, printer: Printer) -> None:
        shown = {name: self.properties[name] for name in self.LISTS}
        printer.print_string(" {")
        printer.print_list(shown.items(), lambda item: _print_plain_ints(printer, *item))
        for name, attribute in self.attributes.items():
            printer.print_string(f", {name} = ")
            printer.print_attribute(attribute)
        printer.print_string("}")

    @classmethod
    def split(
        cls, parser: Parser, entries: dict[str, Attribute]
    ) -> tuple[dict[str, Attribute], dict[str, Attribute]]:
        properties: dict[str, Attribute] = {}
        for name in cls.LISTS:
            if name not in entries:
                parser.raise_error(f"expected the attribute '{name}'")
            properties[name] = entries.pop(name)
        return properties, entries


def _print_plain_ints(printer: Printer, name: str, array: Attribute) -> None:
    """`offsets = [0, 2]`: MLIR elides the type i64 of an array's elements."""
    assert isinstance(array, ArrayAttr)
    printer.print_string(f"{name} = [{', '.join(map(str, _ints(array)))}]")


@irdl_op_definition
class ExtractStridedSliceOp(_StridedSliceOp):
    """`vector.extract_strided_slice %v {offsets = [0, 2], sizes = [2, 4], strides = [1, 1]} : ...`."""

    name = "vector.extract_strided_slice"
    LISTS: ClassVar = ("offsets", "sizes", "strides")

    source = operand_def(VectorType)
    offsets_attr = prop_def(ArrayAttr[IntegerAttr], prop_name="offsets")
    sizes_attr = prop_def(ArrayAttr[IntegerAttr], prop_name="sizes")
    strides_attr = prop_def(ArrayAttr[IntegerAttr], prop_name="strides")
    result = result_def(VectorType)

    traits = traits_def(Pure())

    def __init__(
        self,
        source: SSAValue | Operation,
        offsets: Sequence[int],
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
    ):
        source = SSAValue.get(source)
        kind = vector_of(source)
        shape = [*sizes, *kind.get_shape()[len(sizes) :]]
        super().__init__(
            operands=[source],
            properties={
                "offsets": _i64s(offsets),
                "sizes": _i64s(sizes),
                "strides": _i64s(strides or [1] * len(sizes)),
            },
            result_types=[VectorType(kind.element_type, shape)],
        )

    @property
    def offsets(self) -> list[int]:
        return _ints(self.offsets_attr)

    @property
    def sizes(self) -> list[int]:
        return _ints(self.sizes_attr)

    @property
    def strides(self) -> list[int]:
        return _ints(self.strides_attr)

    def verify_(self) -> None:
        source, result = vector_of(self.source), vector_of(self.result)
        shape = source.get_shape()
        if not len(self.offsets) == len(self.sizes) == len(self.strides):
            raise VerifyException("expected offsets, sizes, and strides attributes of same size")
        if len(self.offsets) > len(shape):
            raise VerifyException("expected offsets attribute of rank no greater than vector rank")
        lists = zip(self.offsets, self.sizes, self.strides, shape, strict=False)
        for offset, size, stride, extent in lists:
            if stride != 1:
                raise VerifyException("expected strides to be confined to [1, 2)")
            if offset < 0 or size < 1 or offset + size > extent:
                raise VerifyException(
                    f"slice [{offset}, {offset + size}) is outside the dimension of {extent}"
                )
        expected = (*self.sizes, *shape[len(self.sizes) :])
        if result != VectorType(source.element_type, expected):
            raise VerifyException(f"expected result type to be vector of shape {expected}")

    @classmethod
    def parse(cls, parser: Parser) -> ExtractStridedSliceOp:
        operand = parser.parse_unresolved_operand()
        entries = parser.parse_optional_attr_dict()
        properties, attributes = cls.split(parser, entries)
        parser.parse_punctuation(":")
        source = parser.parse_type()
        parser.parse_keyword("to")
        result = parser.parse_type()
        return cls.create(
            operands=[parser.resolve_operand(operand, source)],
            properties=properties,
            attributes=attributes,
            result_types=[result],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.source)
        self.print_lists(printer)
        printer.print_string(" : ")
        printer.print_attribute(self.source.type)
        printer.print_string(" to ")
        printer.print_attribute(self.result.type)


@irdl_op_definition
class InsertStridedSliceOp(_StridedSliceOp):
    """`vector.insert_strided_slice %v, %into {offsets = [0, 2], strides = [1, 1]} : ... into ...`."""

    name = "vector.insert_strided_slice"
    LISTS: ClassVar = ("offsets", "strides")

    source = operand_def(VectorType)
    dest = operand_def(VectorType)
    offsets_attr = prop_def(ArrayAttr[IntegerAttr], prop_name="offsets")
    strides_attr = prop_def(ArrayAttr[IntegerAttr], prop_name="strides")
    result = result_def(VectorType)

    traits = traits_def(Pure())

    def __init__(
        self,
        source: SSAValue | Operation,
        dest: SSAValue | Operation,
        offsets: Sequence[int],
        strides: Sequence[int] | None = None,
    ):
        source, dest = SSAValue.get(source), SSAValue.get(dest)
        rank = len(vector_of(source).get_shape())
        super().__init__(
            operands=[source, dest],
            properties={"offsets": _i64s(offsets), "strides": _i64s(strides or [1] * rank)},
            result_types=[dest.type],
        )

    @property
    def offsets(self) -> list[int]:
        return _ints(self.offsets_attr)

    @property
    def strides(self) -> list[int]:
        return _ints(self.strides_attr)

    def verify_(self) -> None:
        source, dest = vector_of(self.source), vector_of(self.dest)
        if dest != self.result.type:
            raise VerifyException("expected the result to have the type of the destination")
        if source.element_type != dest.element_type:
            raise VerifyException("source and destination must have the same element type")
        rank = len(source.get_shape())
        if len(self.offsets) != len(dest.get_shape()):
            raise VerifyException("expected offsets of same size as destination vector rank")
        if len(self.strides) != rank:
            raise VerifyException("expected strides of same size as source vector rank")
        if rank > len(dest.get_shape()):
            raise VerifyException("expected source rank to be no greater than destination rank")
        lead = len(dest.get_shape()) - rank
        extents = (*((1,) * lead), *source.get_shape())
        for offset, extent, full in zip(self.offsets, extents, dest.get_shape(), strict=True):
            if offset < 0 or offset + extent > full:
                raise VerifyException(
                    f"slice [{offset}, {offset + extent}) is outside the dimension of {full}"
                )
        if any(stride != 1 for stride in self.strides):
            raise VerifyException("expected strides to be confined to [1, 2)")

    @classmethod
    def parse(cls, parser: Parser) -> InsertStridedSliceOp:
        pos = parser.pos
        operands = parser.parse_comma_separated_list(
            parser.Delimiter.NONE, parser.parse_unresolved_operand
        )
        entries = parser.parse_optional_attr_dict()
        properties, attributes = cls.split(parser, entries)
        parser.parse_punctuation(":")
        source = parser.parse_type()
        parser.parse_keyword("into")
        dest = parser.parse_type()
        return cls.create(
            operands=parser.resolve_operands(operands, [source, dest], pos),
            properties=properties,
            attributes=attributes,
            result_types=[dest],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_operand)
        self.print_lists(printer)
        printer.print_string(" : ")
        printer.print_attribute(self.source.type)
        printer.print_string(" into ")
        printer.print_attribute(self.dest.type)


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
        dims = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
        attributes = parser.parse_optional_attr_dict()
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
        printer.print_string(f" [{', '.join(map(str, self.dims))}]")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.source.type)
        printer.print_string(" to ")
        printer.print_attribute(self.dest.type)


@irdl_op_definition
class GatherOp(IRDLOperation):
    """`vector.gather %base[%i, %j] [%idx], %mask, %passthru : memref<..>, vector<..> ... into ...`."""

    name = "vector.gather"

    base = operand_def()
    offsets = var_operand_def(IndexType)
    indices = operand_def(VectorType)
    mask = operand_def(VectorType)
    pass_thru = operand_def(VectorType)
    result = result_def(VectorType)

    traits = traits_def(MemoryReadEffect())
    assembly_format = (
        "$base `[` $offsets `]` `[` $indices `]` `,` $mask `,` $pass_thru attr-dict `:` type($base) "
        "`,` type($indices) `,` type($mask) `,` type($pass_thru) `into` type($result)"
    )

    def __init__(
        self,
        base: SSAValue | Operation,
        offsets: Sequence[SSAValue],
        indices: SSAValue | Operation,
        mask: SSAValue | Operation,
        pass_thru: SSAValue | Operation,
    ):
        pass_thru = SSAValue.get(pass_thru)
        super().__init__(
            operands=[base, offsets, indices, mask, pass_thru], result_types=[pass_thru.type]
        )

    def verify_(self) -> None:
        shape = vector_of(self.result).get_shape()
        for name in ("indices", "mask", "pass_thru"):
            if vector_of(getattr(self, name)).get_shape() != shape:
                raise VerifyException(f"expected result shape to match {name} shape")
        if isinstance(self.base.type, MemRefType) and self.base.type.get_num_dims() != len(
            self.offsets
        ):
            raise VerifyException("requires one index per dimension of the base")


@irdl_op_definition
class ScatterOp(IRDLOperation):
    """`vector.scatter %base[%i] [%idx], %mask, %value : memref<..>, vector<..>, ...`."""

    name = "vector.scatter"

    base = operand_def(MemRefType)
    offsets = var_operand_def(IndexType)
    indices = operand_def(VectorType)
    mask = operand_def(VectorType)
    valueToStore = operand_def(VectorType)

    traits = traits_def(MemoryWriteEffect())
    assembly_format = (
        "$base `[` $offsets `]` `[` $indices `]` `,` $mask `,` $valueToStore attr-dict "
        "`:` type($base) `,` type($indices) `,` type($mask) `,` type($valueToStore)"
    )

    def __init__(
        self,
        base: SSAValue | Operation,
        offsets: Sequence[SSAValue],
        indices: SSAValue | Operation,
        mask: SSAValue | Operation,
        value: SSAValue | Operation,
    ):
        super().__init__(operands=[base, offsets, indices, mask, value])

    def verify_(self) -> None:
        shape = vector_of(self.valueToStore).get_shape()
        if vector_of(self.indices).get_shape() != shape:
            raise VerifyException("expected valueToStore shape to match indices shape")
        if vector_of(self.mask).get_shape() != shape:
            raise VerifyException("expected valueToStore shape to match mask shape")


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


# --- vector.print -----------------------------------------------------------------------------------


def _parse_print(cls: Any, parser: Parser) -> Operation:
    """`vector.print %v : T`, `vector.print str "text"`, `vector.print punctuation <newline>`."""
    properties: dict[str, Attribute] = {}
    operand = parser.parse_optional_unresolved_operand()
    if operand is None and parser.parse_optional_keyword("str") is not None:
        properties["stringLiteral"] = StringAttr(parser.parse_str_literal())
    if parser.parse_optional_keyword("punctuation") is not None:
        with parser.in_angle_brackets():
            properties["punctuation"] = StringAttr(parser.parse_identifier())
    if operand is None and not properties:
        parser.raise_error("expected a value, a string or a punctuation to print")
    attributes = parser.parse_optional_attr_dict()
    operands: list[SSAValue] = []
    if operand is not None:
        parser.parse_punctuation(":")
        operands = [parser.resolve_operand(operand, parser.parse_type())]
    return cls.create(operands=operands, properties=properties, attributes=attributes)


def _print_print(op: vector.PrintOp, printer: Printer) -> None:
    if op.operands:
        printer.print_string(" ")
        printer.print_operand(op.operands[0])
    text = op.properties.get("stringLiteral")
    if isinstance(text, StringAttr):
        printer.print_string(" str ")
        printer.print_string_literal(text.data)
    punctuation = op.properties.get("punctuation")
    if isinstance(punctuation, StringAttr):
        printer.print_string(f" punctuation <{punctuation.data}>")
    printer.print_op_attributes(op.attributes)
    if op.operands:
        printer.print_string(" : ")
        printer.print_attribute(op.operands[0].type)


def _complete_print() -> None:
    """`source` becomes optional: a string or a punctuation mark has none."""
    operands = definition(vector.PrintOp).operands
    operands[0] = ("source", OptOperandDef(AnyAttr()))

    def source(self: vector.PrintOp) -> SSAValue | None:
        return self.operands[0] if self.operands else None

    setattr(vector.PrintOp, "source", property(source))  # noqa: B010
    for name in ("stringLiteral", "punctuation"):
        add_optional_property(vector.PrintOp, name, base(StringAttr))
    set_custom(vector.PrintOp, _parse_print, _print_print)


NEW_OPS = (
    ShapeCastOp,
    TransposeOp,
    ExtractStridedSliceOp,
    InsertStridedSliceOp,
    StepOp,
    ConstantMaskOp,
    InterleaveOp,
    DeinterleaveOp,
    MultiReductionOp,
    GatherOp,
    ScatterOp,
    ContractionOp,
)


def complete() -> None:
    _complete_print()
    add_ops(vector.Vector, NEW_OPS)
