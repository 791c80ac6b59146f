"""memref: custom formats of casts, globals, copies and atomics; the ops transpose and prefetch.

Stock xDSL has no custom format for cast, memory_space_cast, extract_aligned_pointer_as_index,
global, copy, rank and atomic_rmw, and lacks memref.transpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from xdsl.dialects import memref
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AffineMapAttr,
    DenseIntOrFPElementsAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    StringAttr,
    TensorType,
    UnitAttr,
    UnrankedMemRefType,
    i32,
)
from xdsl.ir import Attribute, Operation
from xdsl.ir.affine import AffineDimExpr
from xdsl.irdl import IntSetConstraint, IRDLOperation, OptPropertyDef, PropertyDef, base, traits_def
from xdsl.irdl.constraints import VerificationContext
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, Pure
from xdsl.transforms.canonicalization_patterns.utils import const_evaluate_operand
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.directives import Map, numbered_word, say
from tilewright.dialects.effects import CACHES, Acts
from tilewright.dialects.fields import Op, Operand, Operands, Prop, Result, op_definition
from tilewright.dialects.movement import memref_type
from tilewright.dialects.upstream.combining import ATOMIC_KINDS
from tilewright.dialects.upstream.complete import (
    add_listed_property,
    add_ops,
    add_verifier,
    definition,
    set_custom,
    set_format,
    set_operand,
    set_verifier,
)
from tilewright.dialects.upstream.generic_atomic import AtomicYieldOp, GenericAtomicRMWOp
from tilewright.dialects.upstream.strided import dense, strided_form

_ANY = base(MemRefType) | base(UnrankedMemRefType)


class _Alignments(IntSetConstraint):
    def verify(self, i: int, constraint_context: VerificationContext) -> None:
        if i not in self.values:
            raise VerifyException(f"expected an alignment in bytes, a power of two, got {i}")


_BYTES = _Alignments(frozenset(1 << n for n in range(32)))
ALIGNMENT = IntegerAttr.constr(value=_BYTES)
"""Bytes: a power of two."""
_CAST = "$source attr-dict `:` type($source) `to` type($dest)"


# --- memref.global ----------------------------------------------------------------------------------


def _parse_global(cls: type[IRDLOperation], parser: Parser) -> Operation:
    """`memref.global "private" constant @x : memref<2xf32> = dense<..> {alignment = 64 : i64}`."""
    properties: dict[str, Attribute] = {}
    visibility = parser.parse_optional_str_literal()
    if visibility is not None:
        properties["sym_visibility"] = StringAttr(visibility)
    else:
        keyword = parser.parse_optional_visibility_keyword()
        if keyword is not None:
            properties["sym_visibility"] = keyword
    if parser.parse_optional_keyword("constant") is not None:
        properties["constant"] = UnitAttr()
    properties["sym_name"] = parser.parse_symbol_name()
    parser.parse_punctuation(":")
    pos = parser.pos
    kind = parser.parse_type()
    if not isinstance(kind, MemRefType):
        parser.raise_error("expected a memref type", pos, parser.pos)
    properties["type"] = kind
    if parser.parse_optional_punctuation("=") is not None:
        if parser.parse_optional_keyword("uninitialized") is not None:
            properties["initial_value"] = UnitAttr()
        else:
            properties["initial_value"] = _parse_initial_value(parser, kind)
    attributes = parser.parse_optional_attr_dict()
    if "alignment" in attributes:
        properties["alignment"] = attributes.pop("alignment")
    return cls.create(properties=properties, attributes=attributes)


def _parse_initial_value(parser: Parser, kind: MemRefType) -> Attribute:
    tensor = TensorType(kind.element_type, kind.get_shape())
    word = next((w for w in ("dense", "dense_resource") if parser.parse_optional_keyword(w)), None)
    if word is not None:
        reader: Any = parser
        read = (
            reader.parse_dense_int_or_fp_elements_attr
            if word == "dense"
            else reader.parse_dense_resource
        )
        value = read(tensor)
        if parser.parse_optional_punctuation(":") is not None:
            parser.parse_type()
        return value
    return parser.parse_attribute()


def _print_global(op: Any, printer: Printer) -> None:
    visibility = op.properties.get("sym_visibility")
    if isinstance(visibility, StringAttr):
        say(printer, " ", visibility)
    say(printer, " " if op.constant is None else " constant ")
    printer.print_symbol_name(op.sym_name.data)
    say(printer, " : ", op.type)
    value = op.properties.get("initial_value")
    if isinstance(value, DenseIntOrFPElementsAttr):
        say(printer, " = ")
        value.print_without_type(printer)
    elif value is not None:
        say(printer, " = ", "uninitialized" if isinstance(value, UnitAttr) else value)
    alignment = {} if op.alignment is None else {"alignment": op.alignment}
    printer.print_op_attributes({**op.attributes, **alignment})


def _complete_global() -> None:
    """Visibility and initial value are optional, as in MLIR: a declaration has neither."""
    properties = definition(memref.GlobalOp).properties
    for name in ("sym_visibility", "initial_value"):
        properties[name] = OptPropertyDef(properties[name].constr)
    set_custom(memref.GlobalOp, _parse_global, _print_global)


# --- Casts, copies, pointers --------------------------------------------------------------------------


def alike(source: Attribute, dest: Attribute) -> bool:
    """Extents agree where both sides state them."""
    if not (isinstance(source, MemRefType) and isinstance(dest, MemRefType)):
        return True
    pairs = list(zip(source.get_shape(), dest.get_shape(), strict=False))
    differ = any(a != b and a >= 0 and b >= 0 for a, b in pairs)
    return not differ and len(source.get_shape()) == len(dest.get_shape())


def _verify_memory_space_cast(op: memref.MemorySpaceCastOp) -> None:
    source, dest = op.source.type, op.dest.type
    if isinstance(source, UnrankedMemRefType) or isinstance(dest, UnrankedMemRefType):
        return
    assert isinstance(source, MemRefType) and isinstance(dest, MemRefType)
    _verify_same(source, dest, source.get_shape() == dest.get_shape())


def _verify_same(source: MemRefType, dest: MemRefType, shape: bool) -> None:
    if not shape:
        raise VerifyException("Expected source and destination to have the same shape.")
    if source.element_type != dest.element_type:
        raise VerifyException("Expected source and destination to have the same element type.")


def _verify_cast(op: memref.CastOp) -> None:
    """The element type and the memory space stay."""
    source: Any = op.source.type
    dest: Any = op.dest.type
    if source.element_type != dest.element_type or not alike(source, dest):
        raise VerifyException(
            f"operand type '{source}' and result type '{dest}' are cast incompatible"
        )


def _verify_metadata(op: memref.ExtractStridedMetaDataOp) -> None:
    source, made = memref_type(op.source), memref_type(op.base_buffer)
    wanted = MemRefType(source.element_type, [], memory_space=source.memory_space)
    if made != wanted or len(op.sizes) != source.get_num_dims():
        raise VerifyException(f"expected {wanted}, and an offset, sizes and strides of {source}")


def _verify_copy(op: memref.CopyOp) -> None:
    source, dest = op.source.type, op.destination.type
    assert isinstance(source, MemRefType) and isinstance(dest, MemRefType)
    _verify_same(source, dest, alike(source, dest))


# --- New ops -------------------------------------------------------------------------------------------


@op_definition
class TransposeOp(Op):
    """`memref.transpose %m (d0, d1) -> (d1, d0) : memref<4x8xf32> to memref<8x4xf32, strided<..>>`.

    A view with its dimensions permuted; no data moves.
    """

    name = "memref.transpose"
    in_: Operand[MemRefType] = Operand(MemRefType)
    permutation_attr: Prop[AffineMapAttr] = Prop(AffineMapAttr, name="permutation")
    result: Result[MemRefType] = Result(MemRefType)
    traits = traits_def(Pure())
    assembly_format = "$in_ custom<Map>($permutation) attr-dict `:` type($in_) `to` type($result)"
    custom_directives = (Map,)

    @property
    def permutation(self) -> tuple[int, ...]:
        """Dimension of the source that each dimension of the result is."""
        results = self.permutation_attr.data.results
        return tuple(expr.position for expr in results if isinstance(expr, AffineDimExpr))

    def verify_(self) -> None:
        source, result = self.in_.type, self.result.type
        rank = source.get_num_dims()
        if sorted(self.permutation) != list(range(rank)):
            raise VerifyException("expected a permutation map")
        shape = tuple(source.get_shape()[dim] for dim in self.permutation)
        if result.get_shape() != shape or result.element_type != source.element_type:
            raise VerifyException(
                f"result type {result} is not {source} with its dimensions permuted"
            )
        with suppress(TypeError):  # a layout that is no strided form
            (steps, start), (stated, stated_start) = strided_form(source), strided_form(result)
            wanted = [*(steps[dim] for dim in self.permutation), start]
            fits = zip([*stated, stated_start], wanted, strict=True)
            if any(a not in (b, DYNAMIC_INDEX) for a, b in fits):
                raise VerifyException(
                    f"result type {result} has not the layout of {source} permuted"
                )


PREFETCHED = (
    "`,` custom<Access>($isWrite) `,` `locality` `<` $localityHint `>` `,` custom<Cache>($isDataCache) "
    "attr-dict `:` type($memref)"
)
PREFETCH_WORDS = (
    numbered_word("Access", ("read", "write"), "access", 1),
    numbered_word("Cache", ("instr", "data"), "cache", 1),
)
"""What follows the subscripts of a prefetch."""


@op_definition
class PrefetchOp(Op):
    """`memref.prefetch %m[%i, %j], read, locality<3>, data : memref<400x400xi32>`."""

    name = "memref.prefetch"
    memref: Operand[MemRefType] = Operand(MemRefType)
    indices: Operands[IndexType] = Operands(IndexType)
    isWrite: Prop[IntegerAttr] = Prop(IntegerAttr)
    localityHint: Prop[IntegerAttr] = Prop(IntegerAttr.constr(i32))
    isDataCache: Prop[IntegerAttr] = Prop(IntegerAttr)
    traits = traits_def(Acts(CACHES))
    assembly_format = f"$memref `[` $indices `]` {PREFETCHED}"
    custom_directives = PREFETCH_WORDS

    def verify_(self) -> None:
        verify_locality(self.localityHint)


def verify_locality(hint: IntegerAttr) -> None:
    """Of both dialects that have prefetches."""
    if not 0 <= hint.value.data <= 3:
        raise VerifyException(f"locality is 0, 1, 2 or 3, got {hint.value.data}")


def in_rows(type: MemRefType) -> bool:
    """Whether elements lie one after the other from the first, row after row."""
    shape = type.get_shape()
    return strided_form(type) == (dense(shape, range(len(shape))), 0)


@op_definition
class ReshapeOp(Op):
    """`memref.reshape %m(%shape) : (memref<4x8xf32>, memref<1xindex>) -> memref<32xf32>`: the same elements in rows
    of other lengths, which stand in memory.
    """

    name = "memref.reshape"
    source: Operand = Operand(_ANY)
    shape: Operand[MemRefType] = Operand(MemRefType)
    result: Result[MemRefType | UnrankedMemRefType] = Result(_ANY)
    traits = traits_def(MemoryReadEffect())
    assembly_format = "$source `(` $shape `)` attr-dict `:` functional-type(operands, results)"

    def verify_(self) -> None:
        source, shape, result = self.source.type, self.shape.type, self.result.type
        extents, number = shape.get_shape(), shape.element_type
        if len(extents) != 1 or not isinstance(number, (IndexType, IntegerType)):
            raise VerifyException(f"expects a shape in one row of integers, got {shape}")
        if source.element_type != result.element_type:  # pyright: ignore[reportAttributeAccessIssue]
            raise VerifyException(
                "element types of source and destination memref types should be the same"
            )
        for word, type in (("source", source), ("result", result)):
            if isinstance(type, MemRefType) and not in_rows(type):
                raise VerifyException(f"{word} memref type should have identity affine map")
        if isinstance(result, MemRefType):
            if extents[0] == DYNAMIC_INDEX:
                raise VerifyException(
                    "cannot use shape operand with dynamic length to reshape to statically-ranked memref type"
                )
            if extents[0] != len(result.get_shape()):
                raise VerifyException(
                    "length of shape operand differs from the result's memref rank"
                )


def _verify_dim(op: memref.DimOp) -> None:
    number = const_evaluate_operand(op.index)
    if isinstance(op.source.type, MemRefType) and number is not None:
        rank = op.source.type.get_num_dims()
        if not 0 <= number < rank:
            raise VerifyException(
                f"index {number} is out of range: the memref has {rank} dimensions"
            )


def _verify_reinterpret_cast(op: memref.ReinterpretCastOp) -> None:
    for word, numbers in (("offsets", op.static_offsets), ("sizes", op.static_sizes)):
        for number in numbers.get_values():
            if number < 0 and number != DYNAMIC_INDEX:
                raise VerifyException(f"expected {word} to be non-negative, but got {number}")
    source, result = op.source.type, op.result.type
    assert isinstance(source, MemRefType) and isinstance(result, MemRefType)
    if source.element_type != result.element_type:
        raise VerifyException(f"different element types specified for {source} and {result}")
    stated: list[Sequence[int]] = [result.get_shape()]
    given = [op.static_sizes.get_values()]
    with suppress(TypeError):  # a layout that is no strided form
        steps, start = strided_form(result)
        stated += [steps, [start]]
        given += [op.static_strides.get_values(), op.static_offsets.get_values()]
    for word, says, has in zip(("sizes", "strides", "offset"), given, stated, strict=False):
        fits = zip(says, has, strict=True) if len(says) == len(has) else [(0, 1)]
        if any(a not in (b, DYNAMIC_INDEX) and b != DYNAMIC_INDEX for a, b in fits):
            raise VerifyException(f"expected a result with {word} {list(says)}, got {result}")


def complete() -> None:
    add_verifier(memref.DimOp, _verify_dim)
    add_verifier(memref.ReinterpretCastOp, _verify_reinterpret_cast)
    set_format(_CAST, memref.CastOp, memref.MemorySpaceCastOp)
    set_verifier(memref.CastOp, _verify_cast)
    set_verifier(memref.MemorySpaceCastOp, _verify_memory_space_cast)
    set_operand(memref.ExtractAlignedPointerAsIndexOp, "source", _ANY)
    set_format(
        "$source attr-dict `:` type($source) `->` type(results)",
        memref.ExtractAlignedPointerAsIndexOp,
    )
    set_operand(memref.RankOp, "source", _ANY)
    set_format("$source attr-dict `:` type($source)", memref.RankOp)
    set_format(
        "$source `,` $destination attr-dict `:` type($source) `to` type($destination)",
        memref.CopyOp,
    )
    set_verifier(memref.CopyOp, _verify_copy)
    set_format(
        "custom<Kind>($kind) $value `,` $memref `[` $indices `]` attr-dict "
        "`:` `(` type($value) `,` type($memref) `)` `->` type($result)",
        memref.AtomicRMWOp,
        using=(numbered_word("Kind", ATOMIC_KINDS, "atomic"),),
    )
    for access in (memref.LoadOp, memref.StoreOp):
        add_listed_property(access, "alignment", ALIGNMENT)
    # In its format the type goes without saying, but only where there is one.
    definition(memref.AssumeAlignmentOp).properties["alignment"] = PropertyDef(
        IntegerAttr.constr(i32, value=_BYTES)
    )
    add_verifier(memref.ExtractStridedMetaDataOp, _verify_metadata)
    _complete_global()
    add_ops(memref.MemRef, (TransposeOp, PrefetchOp, ReshapeOp, GenericAtomicRMWOp, AtomicYieldOp))
