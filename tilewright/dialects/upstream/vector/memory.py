"""vector: gather, scatter, type_cast, print."""

from __future__ import annotations

from typing import Any

from xdsl.dialects import vector
from xdsl.dialects.builtin import (
    IndexType,
    MemRefType,
    NoneAttr,
    StringAttr,
    TensorType,
    VectorType,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import AnyAttr, OptOperandDef, base, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.directives import say
from tilewright.dialects.effects import Writes
from tilewright.dialects.fields import Inferred, Op, Operand, Operands, Result, op_definition
from tilewright.dialects.movement import vector_type
from tilewright.dialects.upstream.complete import add_optional_property, definition, set_custom


@op_definition
class GatherOp(Op):
    """`vector.gather %base[%i, %j] [%idx], %mask, %passthru : memref<..>, vector<..> ... into ...`."""

    name = "vector.gather"
    base: Operand = Operand()
    offsets: Operands[IndexType] = Operands(IndexType)
    indices: Operand[VectorType] = Operand(VectorType)
    mask: Operand[VectorType] = Operand(VectorType)
    pass_thru: Operand[VectorType] = Operand(VectorType)
    result = Inferred(VectorType, "pass_thru")
    traits = traits_def(MemoryReadEffect())
    assembly_format = (
        "$base `[` $offsets `]` `[` $indices `]` `,` $mask `,` $pass_thru attr-dict `:` type($base) "
        "`,` type($indices) `,` type($mask) `,` type($pass_thru) `into` type($result)"
    )

    def verify_(self) -> None:
        shape = vector_type(self.result).get_shape()
        for name in ("indices", "mask", "pass_thru"):
            if vector_type(getattr(self, name)).get_shape() != shape:
                raise VerifyException(f"expected result shape to match {name} shape")
        base = self.base.type
        if (
            isinstance(base, MemRefType | TensorType)
            and base.element_type != vector_type(self.result).element_type
        ):
            raise VerifyException("base and result element type should match")
        if isinstance(self.base.type, MemRefType) and self.base.type.get_num_dims() != len(
            self.offsets
        ):
            raise VerifyException("requires one index per dimension of the base")


@op_definition
class ScatterOp(Op):
    """`vector.scatter %base[%i] [%idx], %mask, %value : memref<..>, vector<..>, ...`."""

    name = "vector.scatter"
    base: Operand[MemRefType] = Operand(MemRefType)
    offsets: Operands[IndexType] = Operands(IndexType)
    indices: Operand[VectorType] = Operand(VectorType)
    mask: Operand[VectorType] = Operand(VectorType)
    valueToStore: Operand[VectorType] = Operand(VectorType)
    traits = traits_def(Writes("base"))
    assembly_format = (
        "$base `[` $offsets `]` `[` $indices `]` `,` $mask `,` $valueToStore attr-dict "
        "`:` type($base) `,` type($indices) `,` type($mask) `,` type($valueToStore)"
    )

    def verify_(self) -> None:
        shape = vector_type(self.valueToStore).get_shape()
        if vector_type(self.indices).get_shape() != shape:
            raise VerifyException("expected valueToStore shape to match indices shape")
        if vector_type(self.mask).get_shape() != shape:
            raise VerifyException("expected valueToStore shape to match mask shape")


@op_definition
class ExpandLoadOp(Op):
    """`vector.expandload %base[%i], %mask, %passthru : memref<..>, vector<..>, ... into ...`: the elements where the
    mask is true come from memory, one behind the other."""

    name = "vector.expandload"
    base: Operand[MemRefType] = Operand(MemRefType)
    offsets: Operands[IndexType] = Operands(IndexType)
    mask: Operand[VectorType] = Operand(VectorType)
    pass_thru: Operand[VectorType] = Operand(VectorType)
    result = Inferred(VectorType, "pass_thru")
    traits = traits_def(MemoryReadEffect())
    assembly_format = (
        "$base `[` $offsets `]` `,` $mask `,` $pass_thru attr-dict `:` type($base) "
        "`,` type($mask) `,` type($pass_thru) `into` type($result)"
    )

    def verify_(self) -> None:
        _verify_dense(self.base, self.offsets, self.mask, self.pass_thru)
        if self.result.type != self.pass_thru.type:
            raise VerifyException("expected pass_thru of same type as result type")


@op_definition
class CompressStoreOp(Op):
    """`vector.compressstore %base[%i], %mask, %value : memref<..>, vector<..>, ...`: the elements where the mask is
    true go to memory, one behind the other."""

    name = "vector.compressstore"
    base: Operand[MemRefType] = Operand(MemRefType)
    offsets: Operands[IndexType] = Operands(IndexType)
    mask: Operand[VectorType] = Operand(VectorType)
    valueToStore: Operand[VectorType] = Operand(VectorType)
    traits = traits_def(Writes("base"))
    assembly_format = (
        "$base `[` $offsets `]` `,` $mask `,` $valueToStore attr-dict `:` type($base) "
        "`,` type($mask) `,` type($valueToStore)"
    )

    def verify_(self) -> None:
        _verify_dense(self.base, self.offsets, self.mask, self.valueToStore)


def _verify_dense(array: SSAValue, offsets: Any, mask: SSAValue, value: SSAValue) -> None:
    kind, own = array.type, vector_type(value)
    assert isinstance(kind, MemRefType)
    if kind.element_type != own.element_type:
        raise VerifyException("base and vector element type should match")
    if kind.get_num_dims() != len(offsets):
        raise VerifyException("requires one index per dimension of the base")
    if own.get_num_dims() != 1 or vector_type(mask).get_shape() != own.get_shape():
        raise VerifyException("expected a vector of rank 1, and a mask of its shape")


def in_elements(kind: MemRefType) -> MemRefType:
    """The array whose last dimensions are those of the vectors in an array; itself where it holds numbers."""
    vector = kind.element_type
    if not isinstance(vector, VectorType):
        return kind
    shape = [*kind.get_shape(), *vector.get_shape()]
    return MemRefType(vector.element_type, shape, kind.layout, kind.memory_space)


@op_definition
class TypeCastOp(Op):
    """`vector.type_cast %m : memref<vector<4x8xf32>> to memref<4xvector<8xf32>>`: the same elements in an array of
    other vectors.
    """

    name = "vector.type_cast"
    memref: Operand[MemRefType] = Operand(MemRefType)
    result: Result[MemRefType] = Result(MemRefType)
    traits = traits_def(Pure())
    assembly_format = "$memref attr-dict `:` type($memref) `to` type($result)"

    def verify_(self) -> None:
        source, result = self.memref.type, self.result.type
        for word, kind in (("operand", source), ("result", result)):
            if not isinstance(kind.layout, NoneAttr):
                raise VerifyException(f"expects {word} to be a memref with identity layout")
        if source.memory_space != result.memory_space:
            raise VerifyException("expects result in same memory space")
        before, after = in_elements(source), in_elements(result)
        if before.element_type != after.element_type:
            raise VerifyException("expects the same element type in operand and result")
        if before.get_shape() != after.get_shape():
            raise VerifyException(
                f"expects the same elements in operand and result, got {source} and {result}"
            )


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
        say(printer, " ", op.operands[0])
    text = op.properties.get("stringLiteral")
    if isinstance(text, StringAttr):
        say(printer, " str ", text)
    punctuation = op.properties.get("punctuation")
    if isinstance(punctuation, StringAttr):
        say(printer, f" punctuation <{punctuation.data}>")
    printer.print_op_attributes(op.attributes)
    if op.operands:
        say(printer, " : ", op.operands[0].type)


def complete_print() -> None:
    """`source` becomes optional: a string or a punctuation mark has none."""
    operands = definition(vector.PrintOp).operands
    operands[0] = ("source", OptOperandDef(AnyAttr()))

    def source(self: vector.PrintOp) -> SSAValue | None:
        return self.operands[0] if self.operands else None

    setattr(vector.PrintOp, "source", property(source))  # noqa: B010
    for name in ("stringLiteral", "punctuation"):
        add_optional_property(vector.PrintOp, name, base(StringAttr))
    set_custom(vector.PrintOp, _parse_print, _print_print)
