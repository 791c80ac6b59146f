"""Ops that make and move tiles: `init_tile` and `update_tile_offset`. They touch no memory."""

from __future__ import annotations

from xdsl.dialects.builtin import I64, DenseArrayBase, IndexType, VectorType, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import AttrSizedOperandSegments, prop_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from tilewright.dialects.directives import parse_names
from tilewright.dialects.fields import Inferred, Op, Operand, OptOperand, Result, op_definition
from tilewright.dialects.xetile import assembly, rules
from tilewright.dialects.xetile.assembly import Index, IndexList, Indices
from tilewright.dialects.xetile.types import TileType

# Properties that print as bracketed lists.
_LISTS = ("static_offsets", "static_sizes", "static_strides")


@op_definition
class InitTileOp(Op):
    """A tile of a base matrix at given offsets (RFC: init_tile).

    ```mlir
    %t = xetile.init_tile %m[8, %c16] : memref<1024x1024xf16> -> !xetile.tile<32x64xf16>
    %t = xetile.init_tile %m[%i, %j], [%h, %w], [%s, 1] : memref<?x?xf16> -> !xetile.tile<8x16xf16>
    %t = xetile.init_tile %address[%i, %j], [%h, %w], [%s, 1] : i64 -> !xetile.tile<8x16xf16>
    %t = xetile.init_tile %m, %idx : memref<?xf16>, vector<8x16xindex>
      -> !xetile.tile<8x16xf16, #xetile.tile_attr<scattered = true>>
    ```
    Offsets, sizes and strides count elements; there is one per dimension of the base matrix, whose
    two innermost dimensions hold the tile. A memref of static shape carries its own sizes and
    strides; one with dynamic extents, and an integer address, takes them as operands.
    """

    name = "xetile.init_tile"

    source: Operand = Operand()
    result: Result[TileType] = Result(TileType)
    offsets: Indices = Indices("static_offsets")
    sizes: Indices = Indices("static_sizes")
    strides: Indices = Indices("static_strides")
    offset_vector: OptOperand[VectorType] = OptOperand(VectorType, default=None)
    static_offsets = prop_def(DenseArrayBase.constr(i64))
    static_sizes = prop_def(DenseArrayBase.constr(i64))
    static_strides = prop_def(DenseArrayBase.constr(i64))

    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure())

    @property
    def tile_type(self) -> TileType:
        return self.result.type

    @property
    def mixed_offsets(self) -> list[Index]:
        """Offsets of the tile's first element, one per dimension of the base matrix."""
        return assembly.merge_indices(self.static_offsets, self.offsets)

    @property
    def mixed_sizes(self) -> list[Index]:
        """Extents given as operands; empty when the memref's type carries them."""
        return assembly.merge_indices(self.static_sizes, self.sizes)

    @property
    def mixed_strides(self) -> list[Index]:
        """Strides given as operands, in elements; empty when the memref's type carries them."""
        return assembly.merge_indices(self.static_strides, self.strides)

    def verify_(self) -> None:
        for name in ("offsets", "sizes", "strides"):
            static: DenseArrayBase[I64] = getattr(self, f"static_{name}")
            assembly.verify_indices(name, static, getattr(self, name))
        rules.verify_init_tile(self)

    @classmethod
    def parse(cls, parser: Parser) -> InitTileOp:
        source = parser.parse_unresolved_operand()
        lists: list[IndexList] = []
        vector = None
        if parser.parse_optional_punctuation("[") is not None:
            lists.append(assembly.parse_rest_of_list(parser))
        while parser.parse_optional_punctuation(",") is not None:
            if parser.parse_optional_punctuation("[") is not None:
                lists.append(assembly.parse_rest_of_list(parser))
                continue
            # A vector of offsets, or the RFC table's bare list `%base, %x, %y`.
            operand = parser.parse_unresolved_operand()
            if vector is None and not lists and _is_vector(parser, operand):
                vector = operand
                continue
            if not lists:
                lists.append(IndexList())
            lists[0].add(operand)
        if len(lists) > 3:
            parser.raise_error("expected at most offsets, sizes and strides")
        lists += [IndexList() for _ in range(3 - len(lists))]
        attrs = assembly.parse_attr_dict(parser)
        parser.parse_punctuation(":")
        source_type = assembly.parse_type(parser)
        vector_type: Attribute | None = None
        while parser.parse_optional_punctuation(",") is not None:
            # `index` types of the early RFC say nothing new.
            start = parser.pos
            written = assembly.parse_type(parser)
            if isinstance(written, VectorType):
                vector_type = written
            elif not isinstance(written, IndexType):
                parser.raise_error(f"unexpected operand type {written}", start, parser.pos)
        if vector_type is not None and vector is None and len(lists[0].dynamic) == 1:
            vector = lists[0].dynamic[0]
            lists[0] = IndexList()
        assembly.parse_arrow(parser)
        start = parser.pos
        result_type = assembly.parse_type(parser)
        if not isinstance(result_type, TileType):
            parser.raise_error(f"expected a tile type, got {result_type}", start, parser.pos)
        if (vector is None) != (vector_type is None):
            parser.raise_error("expected the type of the vector of offsets", start)
        operands = [
            [parser.resolve_operand(source, source_type)],
            *(each.resolve(parser) for each in lists),
            []
            if vector is None or vector_type is None
            else [parser.resolve_operand(vector, vector_type)],
        ]
        return cls.build(
            operands=operands,
            properties={
                "static_offsets": lists[0].attribute(),
                "static_sizes": lists[1].attribute(),
                "static_strides": lists[2].attribute(),
            },
            attributes=attrs.named,
            result_types=[result_type],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.source)
        if self.offset_vector is not None:
            printer.print_string(", ")
            printer.print_operand(self.offset_vector)
        else:
            assembly.print_index_list(printer, self.static_offsets, self.offsets)
            if len(self.static_sizes) or len(self.static_strides):
                printer.print_string(", ")
                assembly.print_index_list(printer, self.static_sizes, self.sizes)
                printer.print_string(", ")
                assembly.print_index_list(printer, self.static_strides, self.strides)
        assembly.print_attr_dict(printer, self, hidden=_LISTS)
        printer.print_string(" : ")
        printer.print_attribute(self.source.type)
        if self.offset_vector is not None:
            printer.print_string(", ")
            printer.print_attribute(self.offset_vector.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.result.type)


def _is_vector(parser: Parser, operand: assembly.UnresolvedOperand) -> bool:
    return isinstance(assembly.known_type(parser, operand), VectorType)


@op_definition
class UpdateTileOffsetOp(Op):
    """A new tile, moved by offsets relative to the given one (RFC: update_tile_offset).

    ```mlir
    %1 = xetile.update_tile_offset %t, [%c0, 32] : !xetile.tile<32x32xf16>
    %2 = xetile.update_tile_offset %s, %idx : !xetile.tile<128xf16, #scattered>, vector<128xindex>
    ```
    Two offsets for a block tile, for the two dimensions of the tile; a vector of offsets, added to
    each element's, for a scattered one. Tiles are values: the operand stays where it is.
    """

    name = "xetile.update_tile_offset"

    tile: Operand[TileType] = Operand(TileType)
    offsets: Indices = Indices("static_offsets")
    offset_vector: OptOperand[VectorType] = OptOperand(VectorType, default=None)
    static_offsets = prop_def(DenseArrayBase.constr(i64))
    result = Inferred(TileType, "tile")

    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure())

    @property
    def tile_type(self) -> TileType:
        return self.result.type

    @property
    def mixed_offsets(self) -> list[Index]:
        """Relative offsets in elements, for the rows and the columns of the tile."""
        return assembly.merge_indices(self.static_offsets, self.offsets)

    def verify_(self) -> None:
        assembly.verify_indices("offsets", self.static_offsets, self.offsets)
        rules.verify_update_tile_offset(self)

    @classmethod
    def parse(cls, parser: Parser) -> UpdateTileOffsetOp:
        tile = parser.parse_unresolved_operand()
        parser.parse_punctuation(",", " after the tile")
        indices = IndexList()
        if parser.parse_optional_punctuation("[") is not None:
            indices = assembly.parse_rest_of_list(parser)
        else:
            operands = parse_names(parser)
            for operand in operands:
                indices.add(operand)
        attrs = assembly.parse_attr_dict(parser)
        parser.parse_punctuation(":")
        start = parser.pos
        types = assembly.parse_types(parser)
        result_type = types[0]
        if assembly.parse_optional_arrow(parser):
            result_type = assembly.parse_type(parser)
        if not isinstance(result_type, TileType):
            parser.raise_error(f"expected a tile type, got {result_type}", start, parser.pos)
        vectors = [written for written in types[1:] if isinstance(written, VectorType)]
        vector_operands: list[SSAValue] = []
        if vectors:
            if len(indices.dynamic) != 1 or len(vectors) != 1:
                parser.raise_error("expected one vector of offsets", start, parser.pos)
            vector_operands = [parser.resolve_operand(indices.dynamic[0], vectors[0])]
            indices = IndexList()
        elif any(not isinstance(written, IndexType) for written in types[1:]):
            parser.raise_error("offsets are of type index", start, parser.pos)
        return cls.build(
            operands=[
                parser.resolve_operand(tile, types[0]),
                indices.resolve(parser),
                vector_operands,
            ],
            properties={"static_offsets": indices.attribute()},
            attributes=attrs.named,
            result_types=[result_type],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.tile)
        printer.print_string(", ")
        if self.offset_vector is not None:
            printer.print_operand(self.offset_vector)
        else:
            assembly.print_index_list(printer, self.static_offsets, self.offsets)
        assembly.print_attr_dict(printer, self, hidden=_LISTS)
        printer.print_string(" : ")
        printer.print_attribute(self.tile.type)
        if self.offset_vector is not None:
            printer.print_string(", ")
            printer.print_attribute(self.offset_vector.type)
