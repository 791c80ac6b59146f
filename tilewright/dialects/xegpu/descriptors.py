"""Ops that make and move descriptors: blocks (create_nd_tdesc) and scattered elements (create_tdesc)."""

from __future__ import annotations

from xdsl.dialects.builtin import DYNAMIC_INDEX, IndexType, IntegerAttr, MemRefType
from xdsl.ir import Attribute
from xdsl.irdl import AttrSizedOperandSegments, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from tilewright.dialects.directives import say
from tilewright.dialects.fields import Follows, Op, Operand, Result, op_definition
from tilewright.dialects.xegpu import assembly, rules_block, rules_scatter
from tilewright.dialects.xegpu.assembly import OpText
from tilewright.dialects.xegpu.types import TensorDescType
from tilewright.dialects.xetile.assembly import (
    Index,
    Indexed,
    IndexList,
    OptIndices,
    parse_arrow,
    parse_index,
    parse_index_list,
    parse_optional_arrow,
    parse_optional_index_list,
    print_index_list,
)


@op_definition
class CreateNdDescOp(Indexed, Op):
    """Describes a block of a base matrix (RFC: create_nd_tdesc).

    ```mlir
    %t = xegpu.create_nd_tdesc %m : memref<1024x1024xf16> -> !xegpu.tensor_desc<8x16xf16>
    %t = xegpu.create_nd_tdesc %a, shape : [%h, %w], strides : [%s, 1] : i64 -> !xegpu.tensor_desc<8x16xf16>
    %t = xegpu.create_nd_tdesc %m[%x, 0] : memref<1024x1024xf16> -> !xegpu.tensor_desc<8x16xf16>
    ```
    The base is a memref of any rank or an integer address; the block lies in its innermost dimensions.
    Offsets, shape and strides count elements. Offsets here (the older text) and those on the memory op
    add up. A dynamic memref and an address take shape and strides as operands.
    """

    name = "xegpu.create_nd_tdesc"

    source: Operand = Operand(Attribute)
    result: Result[TensorDescType] = Result(TensorDescType)
    offsets: OptIndices = OptIndices("const_offsets")
    shape: OptIndices = OptIndices("const_shape")
    strides: OptIndices = OptIndices("const_strides")

    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure())

    @property
    def tdesc(self) -> TensorDescType:
        return self.result.type

    @property
    def has_offsets(self) -> bool:
        """Is this the older text, which places the block where it is created?"""
        return "const_offsets" in self.properties or bool(self.offsets)

    @property
    def mixed_shape(self) -> list[Index]:
        """Extents of the base given here; empty when the memref's type has them."""
        return self.mixed("shape")

    @property
    def mixed_strides(self) -> list[Index]:
        """Strides of the base given here, in elements; empty when the memref's type has them."""
        return self.mixed("strides")

    CHECK = rules_block.verify_create_nd_tdesc

    @classmethod
    def parse(cls, parser: Parser) -> CreateNdDescOp:
        source = parser.parse_unresolved_operand()
        lists: dict[str, IndexList] = {}
        if (found := parse_optional_index_list(parser)) is not None:
            lists["offsets"] = found
        bare = IndexList()
        while parser.parse_optional_punctuation(",") is not None:
            word = parser.parse_optional_keyword_in(("shape", "strides"))
            if word is not None:
                parser.parse_optional_punctuation(":")
                lists[word] = parse_index_list(parser)
            elif (found := parse_optional_index_list(parser)) is not None:
                # the first implementation's `%p[%x, %y], [%h, %w], [%s, %c1]`
                lists["strides" if "shape" in lists else "shape"] = found
            else:  # the RFC's positional `%p, %o:2, %shape:2, %strides:2`
                parse_index(parser, bare)
        attrs = assembly.parse_attr_dict(parser)
        parser.parse_punctuation(":", " before the type of the source")
        types = assembly.parse_types(parser)
        parse_arrow(parser)
        start = parser.pos
        result_type = assembly.parse_type(parser)
        if not isinstance(result_type, TensorDescType):
            parser.raise_error(f"expected a tensor_desc, got {result_type}", start, parser.pos)
        if bare.static:
            _split_positional(parser, bare, types[0], lists)
        static = {cls.lists()[name]: found.attribute() for name, found in lists.items()}
        dynamic = [lists[name].resolve(parser) if name in lists else [] for name in cls.lists()]
        base = parser.resolve_operand(source, types[0])
        return attrs.build(cls, [base, *dynamic], [result_type], static)

    def print(self, printer: Printer) -> None:
        say(printer, " ", self.source)
        self.print_list(printer, "offsets")
        self.print_list(printer, "shape", ", shape : ")
        self.print_list(printer, "strides", ", strides : ")
        hidden, types = self.lists().values(), [self.source.type]
        assembly.print_rest(printer, self, hidden, types, attributes=assembly.print_merged)


def _split_positional(
    parser: Parser, bare: IndexList, source: Attribute, lists: dict[str, IndexList]
) -> None:
    """Split the RFC's positional operands into offsets, shape and strides.

    A static memref is followed by its offsets; anything else by offsets, shape and strides of equal
    number. A single operand behind an address is the 1-D form's offset.
    """
    if lists:
        parser.raise_error("offsets are given both in brackets and as plain operands")
    static = isinstance(source, MemRefType) and -1 not in source.get_shape()
    count = len(bare.static)
    if static or count == 1:
        lists["offsets"] = bare
        return
    if count % 3:
        parser.raise_error(f"{count} operands are not offsets, shape and strides of one rank")
    third = count // 3
    dynamic = iter(bare.dynamic)
    for part, name in enumerate(CreateNdDescOp.lists()):
        indices = IndexList(bare.static[part * third : (part + 1) * third])
        indices.dynamic = [next(dynamic) for v in indices.static if v == DYNAMIC_INDEX]
        lists[name] = indices


@op_definition
class UpdateNdOffsetOp(Indexed, Op):
    """Moves a block descriptor by offsets in elements (RFC: update_nd_offset; gone from today's text).

    ```mlir
    %t2 = xegpu.update_nd_offset %t, [%x, 16] : !xegpu.tensor_desc<8x16xf16>
    ```
    """

    name = "xegpu.update_nd_offset"

    tensor_desc: Operand[TensorDescType] = Operand(TensorDescType)
    offsets: OptIndices = OptIndices("const_offsets")
    result = Follows("tensor_desc", message="the result has the operand's type")

    traits = traits_def(Pure())

    @property
    def tdesc(self) -> TensorDescType:
        return self.tensor_desc.type

    CHECK = rules_block.verify_update_nd_offset

    @classmethod
    def parse(cls, parser: Parser) -> UpdateNdOffsetOp:
        tdesc = parser.parse_unresolved_operand()
        indices = parse_optional_index_list(parser) or IndexList()
        while parser.parse_optional_punctuation(",") is not None:
            if (found := parse_optional_index_list(parser)) is not None:
                indices = found
            else:
                parse_index(parser, indices)
        attrs = assembly.parse_attr_dict(parser)
        parser.parse_punctuation(":", " before the type of the tensor_desc")
        types = assembly.parse_types(parser)
        if parse_optional_arrow(parser):
            types.append(assembly.parse_type(parser))
        if not isinstance(types[0], TensorDescType):
            parser.raise_error(f"expected a tensor_desc, got {types[0]}")
        for extra in types[1:]:
            if not isinstance(extra, IndexType) and extra != types[0]:
                parser.raise_error(f"the result has the operand's type, not {extra}")
        operands = [parser.resolve_operand(tdesc, types[0]), indices.resolve(parser)]
        static = {"const_offsets": indices.attribute()}
        return attrs.build(cls, operands, [types[0]], static)

    def print(self, printer: Printer) -> None:
        say(printer, " ", self.tensor_desc, ", ")
        print_index_list(printer, self.mixed_offsets)
        hidden, types, merged = ("const_offsets",), [self.tensor_desc.type], assembly.print_merged
        assembly.print_rest(printer, self, hidden, types, attributes=merged, results=False)


@op_definition
class CreateDescOp(Op):
    """A scattered descriptor (RFC: create_tdesc; gone from today's text).

    ```mlir
    %t = xegpu.create_tdesc %base, %offsets : memref<?xf32>, vector<16xindex>
      -> !xegpu.tensor_desc<16x2xf32, #xegpu.scatter_tdesc_attr<chunk_size = 2>>
    ```
    Offsets count elements from the base, a 1-D memref or an integer address.
    """

    name = "xegpu.create_tdesc"

    source: Operand = Operand(Attribute)
    offsets: Operand = Operand(Attribute)
    result: Result[TensorDescType] = Result(TensorDescType)

    traits = traits_def(Pure())

    @property
    def tdesc(self) -> TensorDescType:
        return self.result.type

    CHECK = rules_scatter.verify_create_tdesc

    @classmethod
    def parse(cls, parser: Parser) -> CreateDescOp:
        parser.parse_optional_punctuation(",")  # the RFC has `create_tdesc, %base, %offsets`
        text = OpText()
        assembly.parse_operands(parser, text)
        if text.indices is not None:
            parser.raise_error("offsets of create_tdesc are a vector operand: `%base, %offsets`")
        assembly.parse_attr_dict(parser, text.attrs)
        parser.parse_punctuation(":", " before the operand types")
        # `uint64, vector<16xindex>, into tensor_desc<..>` (RFC) has a comma too many.
        text.types = [assembly.parse_type(parser)]
        while parser.parse_optional_punctuation(",") is not None:
            if parse_optional_arrow(parser):
                text.results = [assembly.parse_type(parser)]
                break
            text.types.append(assembly.parse_type(parser))
        else:
            parse_arrow(parser)
            text.results = [assembly.parse_type(parser)]
        # The RFC's SIMT examples repeat the descriptor's chunk size on the op.
        chunk = text.attrs.named.pop("chunk_size", None)
        result = text.results[0]
        have = result.chunk_size if isinstance(result, TensorDescType) else None
        if isinstance(chunk, IntegerAttr) and chunk.value.data != have:
            parser.raise_error(f"chunk_size is {chunk.value.data} here, but {have} in {result}")
        assembly.no_bare(parser, text)
        values = text.resolve(parser)
        if len(values) != 2:
            parser.raise_error("expected a base and its offsets")
        return text.attrs.build(cls, values, [result])

    def print(self, printer: Printer) -> None:
        assembly.print_op(printer, self)


@op_definition
class UpdateOffsetOp(Op):
    """Moves a scattered descriptor by offsets in elements (RFC: update_offset; gone from today's text).

    ```mlir
    %t2 = xegpu.update_offset %t, %d
      : !xegpu.tensor_desc<16xf32, #xegpu.scatter_tdesc_attr<>>, vector<16xindex>
    ```
    """

    name = "xegpu.update_offset"

    tensor_desc: Operand[TensorDescType] = Operand(TensorDescType)
    offsets: Operand = Operand(Attribute)
    result = Follows("tensor_desc", message="the result has the operand's type")

    traits = traits_def(Pure())

    @property
    def tdesc(self) -> TensorDescType:
        return self.tensor_desc.type

    CHECK = rules_scatter.verify_update_offset

    @classmethod
    def parse(cls, parser: Parser) -> UpdateOffsetOp:
        text = assembly.parse_op(parser, results=True)
        assembly.no_bare(parser, text)
        values = text.resolve(parser)
        if len(values) != 2 or text.indices is not None:
            parser.raise_error("expected a tensor_desc and a vector of offsets")
        if text.results and text.results[0] != values[0].type:
            parser.raise_error(f"the result has the operand's type, not {text.results[0]}")
        return text.attrs.build(cls, values, [values[0].type])

    def print(self, printer: Printer) -> None:
        assembly.print_op(printer, self, results=False)
