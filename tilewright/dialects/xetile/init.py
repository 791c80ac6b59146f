"""Ops that make and move tiles: `init_tile` and `update_tile_offset`. They touch no memory."""

from __future__ import annotations

from xdsl.dialects.builtin import IndexType, VectorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import AttrSizedOperandSegments, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from tilewright.dialects.directives import parse_names, say
from tilewright.dialects.fields import Inferred, Op, Operand, OptOperand, Result, op_definition
from tilewright.dialects.xetile import assembly, rules
from tilewright.dialects.xetile.assembly import Index, Indexed, IndexList, Indices
from tilewright.dialects.xetile.types import TileType


@op_definition
class InitTileOp(Indexed, Op):
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

    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure())

    @property
    def tile_type(self) -> TileType:
        return self.result.type

    @property
    def mixed_sizes(self) -> list[Index]:
        """Extents given as operands; empty when the memref's type carries them."""
        return self.mixed("sizes")

    @property
    def mixed_strides(self) -> list[Index]:
        """Strides given as operands, in elements; empty when the memref's type carries them."""
        return self.mixed("strides")

    CHECK = rules.verify_init_tile

    @classmethod
    def parse(cls, parser: Parser) -> InitTileOp:
        source = parser.parse_unresolved_operand()
        lists: list[IndexList] = []
        vector = None
        if (found := assembly.parse_optional_index_list(parser)) is not None:
            lists.append(found)
        while parser.parse_optional_punctuation(",") is not None:
            if (found := assembly.parse_optional_index_list(parser)) is not None:
                lists.append(found)
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
        base = parser.resolve_operand(source, source_type)
        dynamic = [each.resolve(parser) for each in lists]
        vectors: list[SSAValue] = []
        if vector is not None and vector_type is not None:
            vectors = [parser.resolve_operand(vector, vector_type)]
        static = dict(zip(cls.lists().values(), (each.attribute() for each in lists), strict=True))
        return attrs.build(cls, [base, *dynamic, vectors], [result_type], static)

    def print(self, printer: Printer) -> None:
        say(printer, " ", self.source)
        if self.offset_vector is not None:
            say(printer, ", ", self.offset_vector)
        else:
            self.print_list(printer, "offsets")
            if self.mixed_sizes or self.mixed_strides:
                self.print_list(printer, "sizes", ", ")
                self.print_list(printer, "strides", ", ")
        _print_rest(printer, self, self.source)


def _print_rest(printer: Printer, op: InitTileOp | UpdateTileOffsetOp, base: SSAValue) -> None:
    """` {attributes} : T, U -> R`: the types of offsets of type index are not written."""
    vector = op.offset_vector
    types = [base.type] if vector is None else [base.type, vector.type]
    hidden = op.lists().values()
    assembly.print_rest(printer, op, hidden, types, results=isinstance(op, InitTileOp))


def _is_vector(parser: Parser, operand: assembly.UnresolvedOperand) -> bool:
    return isinstance(assembly.known_type(parser, operand), VectorType)


@op_definition
class UpdateTileOffsetOp(Indexed, Op):
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
    result = Inferred(TileType, "tile")

    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure())

    CHECK = rules.verify_update_tile_offset

    @classmethod
    def parse(cls, parser: Parser) -> UpdateTileOffsetOp:
        tile = parser.parse_unresolved_operand()
        parser.parse_punctuation(",", " after the tile")
        indices = assembly.parse_optional_index_list(parser)
        if indices is None:
            indices = IndexList()
            for operand in parse_names(parser):
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
        base, offsets = parser.resolve_operand(tile, types[0]), indices.resolve(parser)
        static = {"static_offsets": indices.attribute()}
        return attrs.build(cls, [base, offsets, vector_operands], [result_type], static)

    def print(self, printer: Printer) -> None:
        say(printer, " ", self.tile, ", ")
        if self.offset_vector is not None:
            say(printer, self.offset_vector)
        else:
            self.print_list(printer, "offsets")
        _print_rest(printer, self, self.tile)
