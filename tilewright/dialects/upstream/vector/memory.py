"""vector: gather, scatter, type_cast, print."""

from __future__ import annotations

from xdsl.dialects import vector
from xdsl.dialects.builtin import (
    IndexType,
    MemRefType,
    NoneAttr,
    StringAttr,
    TensorType,
    VectorType,
)
from xdsl.irdl import AnyAttr, OptOperandDef, base, irdl_attr_definition, traits_def
from xdsl.parser import Parser
from xdsl.traits import MemoryReadEffect, Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.attribute_fields import Word
from tilewright.dialects.directives import spelled
from tilewright.dialects.effects import Writes
from tilewright.dialects.fields import Follows, Op, Operand, Operands, Result, op_definition
from tilewright.dialects.movement import vector_type
from tilewright.dialects.upstream.complete import (
    add_optional_property,
    add_verifier,
    definition,
    set_format,
)


def _verify_masked(op: GatherOp | ScatterOp | ExpandLoadOp | CompressStoreOp) -> None:
    """The vector that is moved has the array's elements, and the shape of its indices and mask."""
    kind, moved = op.base.type, vector_type(op.operands[-1])
    name = "pass_thru" if op.results else "valueToStore"
    parts = (("indices", op.indices),) if isinstance(op, GatherOp | ScatterOp) else ()
    for part, value in (*parts, ("mask", op.mask)):
        if vector_type(value).get_shape() != moved.get_shape():
            raise VerifyException(f"expected {name} shape to match {part} shape")
    if isinstance(kind, MemRefType | TensorType):
        if kind.element_type != moved.element_type:
            raise VerifyException(f"base and {name} element type should match")
        if kind.get_num_dims() != len(op.offsets):
            raise VerifyException("requires one index per dimension of the base")


def _verify_dense(op: ExpandLoadOp | CompressStoreOp) -> None:
    _verify_masked(op)
    if vector_type(op.mask).get_num_dims() != 1:
        raise VerifyException("expected a mask of rank 1")


@op_definition
class GatherOp(Op):
    """`vector.gather %base[%i, %j] [%idx], %mask, %passthru : memref<..>, vector<..> ... into ...`."""

    name = "vector.gather"
    base: Operand = Operand()
    offsets: Operands[IndexType] = Operands(IndexType)
    indices: Operand[VectorType] = Operand(VectorType)
    mask: Operand[VectorType] = Operand(VectorType)
    pass_thru: Operand[VectorType] = Operand(VectorType)
    result = Follows("pass_thru", message="expected pass_thru of same type as result type")
    traits = traits_def(MemoryReadEffect())
    assembly_format = (
        "$base `[` $offsets `]` `[` $indices `]` `,` $mask `,` $pass_thru attr-dict `:` type($base) "
        "`,` type($indices) `,` type($mask) `,` type($pass_thru) `into` type($result)"
    )

    CHECK = _verify_masked


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

    CHECK = _verify_masked


@op_definition
class ExpandLoadOp(Op):
    """`vector.expandload %base[%i], %mask, %passthru : memref<..>, vector<..>, ... into ...`: the elements where the
    mask is true come from memory, one behind the other."""

    name = "vector.expandload"
    base: Operand[MemRefType] = Operand(MemRefType)
    offsets: Operands[IndexType] = Operands(IndexType)
    mask: Operand[VectorType] = Operand(VectorType)
    pass_thru: Operand[VectorType] = Operand(VectorType)
    result = Follows("pass_thru", message="expected pass_thru of same type as result type")
    traits = traits_def(MemoryReadEffect())
    assembly_format = (
        "$base `[` $offsets `]` `,` $mask `,` $pass_thru attr-dict `:` type($base) "
        "`,` type($mask) `,` type($pass_thru) `into` type($result)"
    )

    CHECK = _verify_dense


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

    CHECK = _verify_dense


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


@irdl_attr_definition
class PunctuationAttr(Word):
    """What ends a printed value."""

    name = "vector.punctuation"
    WORDS = ("no_punctuation", "newline", "comma", "open", "close")


def _punctuation(parser: Parser) -> PunctuationAttr:
    with parser.in_angle_brackets():
        return PunctuationAttr.new((StringAttr(parser.parse_keyword_in(PunctuationAttr.WORDS)),))


_PUNCTUATION = spelled("Punctuation", _punctuation, lambda held: f"<{held.word.data}>")


def ending(op: vector.PrintOp) -> str:
    """What stands behind what an op prints; behind a string nothing."""
    mark = op.properties.get("punctuation")
    if "stringLiteral" in op.properties:
        return "no_punctuation"
    return mark.word.data if isinstance(mark, PunctuationAttr) else "newline"


def _verify_print(op: vector.PrintOp) -> None:
    mark = op.properties.get("punctuation")
    ends = isinstance(mark, PunctuationAttr) and mark.word.data != "newline"
    if "stringLiteral" in op.properties and (op.operands or ends):
        raise VerifyException("a string is printed without a value and without punctuation")


def complete_print() -> None:
    """`source` becomes optional: a string or a punctuation mark has none."""
    definition(vector.PrintOp).operands[0] = ("source", OptOperandDef(AnyAttr()))
    source = property(lambda op: op.operands[0] if op.operands else None)
    setattr(vector.PrintOp, "source", source)  # noqa: B010
    add_optional_property(vector.PrintOp, "stringLiteral", base(StringAttr))
    add_optional_property(vector.PrintOp, "punctuation", base(PunctuationAttr))
    set_format(
        "($source^ `:` type($source))? (`str` $stringLiteral^)? "
        "(`punctuation` custom<Punctuation>($punctuation)^)? attr-dict",
        vector.PrintOp,
        using=(_PUNCTUATION,),
    )
    add_verifier(vector.PrintOp, _verify_print)
