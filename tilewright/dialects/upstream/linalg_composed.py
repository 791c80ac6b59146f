"""Ops of linalg that are several structured ops, and ops of tensors that stock xDSL lacks; `bufferize` writes them out.

    linalg.softmax dimension(1) ins(%x : tensor<8x64xf32>) outs(%e : tensor<8x64xf32>) -> tensor<8x64xf32>
    linalg.pack %x padding_value(%p : f32) inner_dims_pos = [0] inner_tiles = [8] into %e
        : tensor<13xf32> -> tensor<2x8xf32>
    tensor.generate %n { ^bb0(%i: index): .. tensor.yield %v : f32 } : tensor<?xf32>

`tensor.pack` and `tensor.unpack` are what older texts call the ops of linalg.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import tensor
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    TensorType,
    i64,
)
from xdsl.dialects.utils.dynamic_index_list import parse_dynamic_index_list_without_types
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from tilewright.dialects.upstream.complete import OpClass


@irdl_op_definition
class SoftmaxOp(IRDLOperation):
    """exp(x - max) / sum of these along a dimension."""

    name = "linalg.softmax"
    input = operand_def()
    output = operand_def()
    dimension = prop_def(IntegerAttr)
    res = var_result_def(TensorType)

    @classmethod
    def parse(cls, parser: Parser) -> SoftmaxOp:
        attributes = parser.parse_optional_attr_dict()
        parser.parse_keyword("dimension")
        with parser.in_parens():
            dimension = parser.parse_integer()
        given: list[SSAValue] = []
        for word in ("ins", "outs"):
            parser.parse_keyword(word)
            with parser.in_parens():
                value = parser.parse_unresolved_operand()
                parser.parse_punctuation(":")
                given.append(parser.resolve_operand(value, parser.parse_type()))
        types = [parser.parse_type()] if parser.parse_optional_punctuation("->") else []
        number = IntegerAttr(dimension, i64)
        return cls.create(
            operands=given,
            result_types=types,
            properties={"dimension": number},
            attributes=attributes,
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(f" dimension({self.dimension.value.data})")
        for word, value in (("ins", self.input), ("outs", self.output)):
            printer.print_string(f" {word}(")
            printer.print_ssa_value(value)
            printer.print_string(" : ")
            printer.print_attribute(value.type)
            printer.print_string(")")
        for result in self.res:
            printer.print_string(" -> ")
            printer.print_attribute(result.type)


_LISTS = {"outer_dims_perm": False, "inner_dims_pos": True}


class Packing(IRDLOperation):
    """Tiles of a matrix one behind the other, or the matrix of such tiles."""

    source = operand_def()
    dest = operand_def()
    padding_value = opt_operand_def()
    inner_tiles = var_operand_def(IndexType)
    outer_dims_perm = opt_prop_def(DenseArrayBase.constr(i64))
    inner_dims_pos = prop_def(DenseArrayBase.constr(i64))
    static_inner_tiles = prop_def(DenseArrayBase.constr(i64))
    res = var_result_def(TensorType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    @classmethod
    def parse(cls, parser: Parser) -> Packing:
        source = parser.parse_unresolved_operand()
        padding: list[SSAValue] = []
        if parser.parse_optional_keyword("padding_value") is not None:
            with parser.in_parens():
                value = parser.parse_unresolved_operand()
                parser.parse_punctuation(":")
                padding.append(parser.resolve_operand(value, parser.parse_type()))
        lists: dict[str, Attribute | None] = {}
        for word in _LISTS:
            if parser.parse_optional_keyword(word) is not None:
                parser.parse_punctuation("=")
                numbers = parser.parse_comma_separated_list(
                    parser.Delimiter.SQUARE, parser.parse_integer
                )
                lists[word] = DenseArrayBase.from_list(i64, numbers)
        parser.parse_keyword("inner_tiles")
        parser.parse_punctuation("=")
        tiles, static = parse_dynamic_index_list_without_types(parser, DYNAMIC_INDEX)
        parser.parse_keyword("into")
        dest = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kinds = [parser.parse_type()]
        parser.parse_punctuation("->")
        kinds.append(parser.parse_type())
        given = [parser.resolve_operand(v, t) for v, t in zip((source, dest), kinds, strict=True)]
        sizes = [parser.resolve_operand(v, IndexType()) for v in tiles]
        lists["static_inner_tiles"] = DenseArrayBase.from_list(i64, static)
        made = cls(
            operands=[*given, padding, sizes],
            properties=lists,
            result_types=[[t for t in kinds[1:] if isinstance(t, TensorType)]],
        )
        made.attributes.update(attributes)
        return made

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.source)
        if self.padding_value is not None:
            printer.print_string(" padding_value(")
            printer.print_ssa_value(self.padding_value)
            printer.print_string(" : ")
            printer.print_attribute(self.padding_value.type)
            printer.print_string(")")
        for word in _LISTS:
            if (numbers := getattr(self, word)) is not None:
                printer.print_string(f" {word} = {[*numbers.get_values()]}")
        values, static = iter(self.inner_tiles), self.static_inner_tiles.get_values()
        printer.print_string(" inner_tiles = [")
        for place, number in enumerate(static):
            printer.print_string(", " if place else "")
            if number == DYNAMIC_INDEX:
                printer.print_ssa_value(next(values))
            else:
                printer.print_string(str(number))
        printer.print_string("] into ")
        printer.print_ssa_value(self.dest)
        printer.print_string(" : ")
        printer.print_attribute(self.source.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.dest.type)

    def tiles(self) -> dict[int, int]:
        """Extent of the tile by dimension of the matrix; `DYNAMIC_INDEX` where a value says it."""
        pairs = zip(
            self.inner_dims_pos.get_values(), self.static_inner_tiles.get_values(), strict=True
        )
        return {int(d): int(n) for d, n in pairs}

    def outer(self, rank: int) -> Sequence[int]:
        """The dimension of the matrix that each outer dimension of the tiles goes along."""
        given = self.outer_dims_perm
        return range(rank) if given is None else [int(d) for d in given.get_values()]


@irdl_op_definition
class PackOp(Packing):
    name = "linalg.pack"


@irdl_op_definition
class UnPackOp(Packing):
    name = "linalg.unpack"


@irdl_op_definition
class TensorPackOp(Packing):
    name = "tensor.pack"


@irdl_op_definition
class TensorUnPackOp(Packing):
    name = "tensor.unpack"


@irdl_op_definition
class GenerateOp(IRDLOperation):
    """Each element is what a region makes of its indices."""

    name = "tensor.generate"
    extents = var_operand_def(IndexType)
    result = result_def(TensorType)
    body = region_def("single_block")
    assembly_format = "$extents $body attr-dict `:` type($result)"


@irdl_op_definition
class RankOp(IRDLOperation):
    """The number of dimensions."""

    name = "tensor.rank"
    tensor = operand_def(TensorType)
    result = result_def(IndexType)
    traits = traits_def(Pure())

    @classmethod
    def parse(cls, parser: Parser) -> RankOp:
        value = parser.parse_unresolved_operand()
        parser.parse_punctuation(":")
        given = parser.resolve_operand(value, parser.parse_type())
        return cls(operands=[given], result_types=[IndexType()])

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.tensor)
        printer.print_string(" : ")
        printer.print_attribute(self.tensor.type)


@irdl_op_definition
class ParallelInsertSliceOp(IRDLOperation):
    """What an iteration of scf.forall puts into a tensor that all share."""

    name = "tensor.parallel_insert_slice"
    source = operand_def(TensorType)
    dest = operand_def(TensorType)
    offsets = var_operand_def(IndexType)
    sizes = var_operand_def(IndexType)
    strides = var_operand_def(IndexType)
    static_offsets = prop_def(DenseArrayBase.constr(i64))
    static_sizes = prop_def(DenseArrayBase.constr(i64))
    static_strides = prop_def(DenseArrayBase.constr(i64))
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format = tensor.InsertSliceOp.assembly_format
    custom_directives = tensor.InsertSliceOp.custom_directives


LINALG: Sequence[OpClass] = (SoftmaxOp, PackOp, UnPackOp)
TENSOR: Sequence[OpClass] = (
    TensorPackOp,
    TensorUnPackOp,
    GenerateOp,
    RankOp,
    ParallelInsertSliceOp,
)
