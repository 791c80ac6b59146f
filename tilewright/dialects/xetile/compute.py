"""Ops that rearrange vectors: transpose, reduction, broadcast, convert_layout.

They touch no memory. A `wg_map` on them says who owns the result; maps of the operands follow from
it (RFC, "Workgroup Level XeTile extension") and never change a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, VectorType, i64
from xdsl.dialects.vector import CombiningKindAttr, CombiningKindFlag
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import traits_def
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import Pure

from tilewright.dialects.directives import say
from tilewright.dialects.fields import (
    Given,
    Inferred,
    Ints,
    Op,
    Operand,
    OpT,
    OptInt,
    OptProp,
    Prop,
    Result,
    Str,
    op_definition,
)
from tilewright.dialects.movement import vector_type
from tilewright.dialects.upstream.combining import COMBINING
from tilewright.dialects.xetile import assembly, kinds, vector_rules
from tilewright.dialects.xetile.attrs import WgMapAttr


def _optional_dims(parser: Parser) -> list[int] | None:
    """`[1, 0]` if it comes next."""
    return parser.parse_optional_comma_separated_list(
        parser.Delimiter.SQUARE, lambda: parser.parse_integer(allow_boolean=False)
    )


def _parse_dims(parser: Parser) -> list[int]:
    if (dims := _optional_dims(parser)) is None:
        parser.raise_error("expected '[' before a list of dimensions")
    return dims


def _integer_property(named: dict[str, Attribute], name: str) -> IntegerAttr | None:
    """A size given as `32`, `32 : i64` or, as the RFC once writes, `[32]`."""
    attribute = named.pop(name, None)
    if isinstance(attribute, IntegerAttr):
        return IntegerAttr(attribute.value.data, i64)
    elements = getattr(attribute, "data", None)
    if isinstance(elements, tuple) and len(elements) == 1 and isinstance(elements[0], IntegerAttr):
        return IntegerAttr(elements[0].value.data, i64)
    if attribute is not None:
        named[name] = attribute
    return None


def _parse_rest(
    parser: Parser,
    op: type[OpT],
    value: UnresolvedOperand,
    attrs: assembly.AttrDict,
    properties: Mapping[str, Attribute],
    size: str = "",
) -> OpT:
    """`: T -> R` behind the attributes, among which are the op's maps and its `size`."""
    attrs.name_bare(parser, ("wg_map", "wg_map_source"))
    source, result = assembly.parse_signature(parser)
    if (number := _integer_property(attrs.named, size)) is not None:
        attrs.named[size] = number
    return attrs.build(op, [parser.resolve_operand(value, source)], [result], properties)


def _print_dims(
    printer: Printer, op: Op, before: str, between: str, dims: Sequence[int], hidden: Sequence[str]
) -> None:
    """`%v [0] {attributes} : T -> R`."""
    say(printer, before, op.operands[0], f"{between}{list(dims)}")
    assembly.print_rest(printer, op, hidden)


def _transposed(given: Given) -> VectorType:
    source = vector_type(SSAValue.get(given["value"]))
    shape = source.get_shape()
    permuted = [shape[dim] if 0 <= dim < len(shape) else 1 for dim in given["permutation"]]
    return VectorType(source.element_type, permuted)


@op_definition
class TransposeOp(Op):
    """Swaps the two dimensions of a vector (RFC: transpose).

    ```mlir
    %r = xetile.transpose %v, [1, 0] : vector<8x16xf16> -> vector<16x8xf16>
    ```
    """

    name = "xetile.transpose"

    value: Operand[VectorType] = Operand(VectorType)
    permutation: Ints = Ints(default=(1, 0))
    wg_map: OptProp[WgMapAttr] = OptProp(WgMapAttr)
    wg_map_source: OptProp[WgMapAttr] = OptProp(WgMapAttr)
    result = Inferred(VectorType, _transposed)

    traits = traits_def(Pure())

    CHECK = vector_rules.verify_transpose

    @classmethod
    def parse(cls, parser: Parser) -> TransposeOp:
        head = assembly.parse_attr_dict(parser)
        head.name_bare(parser, _prefix_names(head))
        permutation = _optional_dims(parser)
        value = parser.parse_unresolved_operand()
        parser.parse_optional_punctuation(",")
        attrs = assembly.parse_attr_dict(parser, head)
        if permutation is None:
            permutation = _optional_dims(parser)
        attrs = assembly.parse_attr_dict(parser, attrs)
        dims = [1, 0] if permutation is None else permutation
        properties = {"permutation": DenseArrayBase.from_list(i64, dims)}
        return _parse_rest(parser, cls, value, attrs, properties)

    def print(self, printer: Printer) -> None:
        _print_dims(printer, self, " ", ", ", self.permutation, ("permutation",))


def _prefix_names(attrs: assembly.AttrDict) -> tuple[str, ...]:
    """Nameless maps before the operand (RFC appendix 2.2) go from source to result."""
    return ("wg_map_source", "wg_map") if len(attrs.bare) == 2 else ("wg_map",)


def _reduced(given: Given) -> VectorType:
    value, size = vector_type(SSAValue.get(given["source"])), given["reduction_size"]
    shape = list(value.get_shape())
    for dim in given["dims"]:
        shape[dim] = shape[dim] // size if size else 1
    return VectorType(value.element_type, shape)


@op_definition
class ReductionOp(Op):
    """Reduces a vector along dimensions, which stay with extent 1 (RFC: reduction).

    ```mlir
    %r = xetile.reduction <add>, %v [1] : vector<64x32xf32> -> vector<64x1xf32>
    %r = xetile.reduction <add>, %v [0] {reduction_size = 8 : i64} : vector<64x32xf32> -> vector<8x32xf32>
    ```
    With `reduction_size = s` runs of s contiguous elements are reduced, and extent / s remain.
    The order of the combination is free.
    """

    name = "xetile.reduction"

    kind: Str = Str(*COMBINING)
    source: Operand[VectorType] = Operand(VectorType)
    dims: Ints = Ints(name="reduction_dims")
    reduction_size: OptInt = OptInt()
    wg_map: OptProp[WgMapAttr] = OptProp(WgMapAttr)
    wg_map_source: OptProp[WgMapAttr] = OptProp(WgMapAttr)
    result = Inferred(VectorType, _reduced)

    traits = traits_def(Pure())

    CHECK = vector_rules.verify_reduction

    @classmethod
    def parse(cls, parser: Parser) -> ReductionOp:
        head = assembly.parse_attr_dict_before_kind(parser)
        head.name_bare(parser, _prefix_names(head))
        parser.parse_punctuation("<", " opening the kind of reduction")
        start = parser.pos
        word = parser.parse_identifier(" naming the kind of reduction")
        if word not in kinds.REDUCTION_KINDS:
            known = ", ".join(kinds.REDUCTION_KINDS)
            parser.raise_error(f"unknown kind '{word}', expected one of {known}", start, parser.pos)
        parser.parse_punctuation(">")
        parser.parse_optional_punctuation(",")
        value = parser.parse_unresolved_operand()
        dims = _parse_dims(parser)
        attrs = assembly.parse_attr_dict(parser, head)
        properties = {
            "kind": CombiningKindAttr(CombiningKindFlag(word)),
            "reduction_dims": DenseArrayBase.from_list(i64, dims),
        }
        return _parse_rest(parser, cls, value, attrs, properties, "reduction_size")

    def print(self, printer: Printer) -> None:
        _print_dims(printer, self, f" <{self.kind}>, ", " ", self.dims, ("kind", "reduction_dims"))


@op_definition
class BroadcastOp(Op):
    """Repeats a vector along dimensions of extent 1 (RFC: broadcast).

    ```mlir
    %r = xetile.broadcast %v [0] : vector<1x16xf16> -> vector<8x16xf16>
    %r = xetile.broadcast %v [0] {broadcast_size = 32 : i64} : vector<2x64xf32> -> vector<64x64xf32>
    ```
    With `broadcast_size = s` the dimension may have any extent, and each element fills s
    contiguous places.
    """

    name = "xetile.broadcast"

    source: Operand[VectorType] = Operand(VectorType)
    result: Result[VectorType] = Result(VectorType)
    dims: Ints = Ints(name="broadcast_dim")
    broadcast_size: OptInt = OptInt()
    wg_map: OptProp[WgMapAttr] = OptProp(WgMapAttr)
    wg_map_source: OptProp[WgMapAttr] = OptProp(WgMapAttr)

    traits = traits_def(Pure())

    CHECK = vector_rules.verify_broadcast

    @classmethod
    def parse(cls, parser: Parser) -> BroadcastOp:
        head = assembly.parse_attr_dict(parser)
        head.name_bare(parser, _prefix_names(head))
        value = parser.parse_unresolved_operand()
        dims = _parse_dims(parser)
        attrs = assembly.parse_attr_dict(parser, head)
        properties = {"broadcast_dim": DenseArrayBase.from_list(i64, dims)}
        return _parse_rest(parser, cls, value, attrs, properties, "broadcast_size")

    def print(self, printer: Printer) -> None:
        _print_dims(printer, self, " ", " ", self.dims, ("broadcast_dim",))


@op_definition
class ConvertLayoutOp(Op):
    """Hands a vector's elements to other subgroups; the values stay (RFC: convert_layout).

    ```mlir
    %r = xetile.convert_layout %v {wg_map_result = #new, wg_map_source = #old} : vector<256x256xf16>
    ```
    """

    name = "xetile.convert_layout"

    source: Operand[VectorType] = Operand(VectorType)
    wg_map_result: Prop[WgMapAttr] = Prop(WgMapAttr)
    wg_map_source: OptProp[WgMapAttr] = OptProp(WgMapAttr)
    result = Inferred(VectorType, "source")

    traits = traits_def(Pure())

    CHECK = vector_rules.verify_convert_layout

    @classmethod
    def parse(cls, parser: Parser) -> ConvertLayoutOp:
        names = ("wg_map_result", "wg_map_source")
        attrs = assembly.parse_attr_dict(parser)
        attrs.name_bare(parser, names[::-1] if len(attrs.bare) == 2 else names)
        value = parser.parse_unresolved_operand()
        attrs = assembly.parse_attr_dict(parser, attrs)
        attrs.name_bare(parser, names)
        parser.parse_punctuation(":")
        source = result = assembly.parse_type(parser)
        if assembly.parse_optional_arrow(parser):
            result = assembly.parse_type(parser)
        if "wg_map_result" not in attrs.named:
            parser.raise_error("convert_layout needs the map of its result, wg_map_result")
        return attrs.build(cls, [parser.resolve_operand(value, source)], [result])

    def print(self, printer: Printer) -> None:
        assembly.print_op(printer, self, results=False)
