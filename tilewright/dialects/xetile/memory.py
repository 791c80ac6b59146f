"""Ops that move whole tiles, load, store, prefetch, and those that do element by element: gather, scatter, atomics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, VectorType, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect

from tilewright.dialects.cache_hints import HintFields, Hints
from tilewright.dialects.directives import parse_names, say
from tilewright.dialects.effects import CACHES, Acts, Writes
from tilewright.dialects.fields import (
    Given,
    Inferred,
    Op,
    Operand,
    OptInt,
    OptInts,
    OptOperand,
    OptProp,
    Results,
    Str,
    op_definition,
)
from tilewright.dialects.xetile import assembly, kinds, rules
from tilewright.dialects.xetile.attrs import CacheHintAttr
from tilewright.dialects.xetile.types import TileType


def padding_number(padding: Attribute | None) -> int | float:
    """The number that a padding attribute stands for; absent is 0."""
    if isinstance(padding, IntegerAttr):
        return padding.value.data
    if isinstance(padding, FloatAttr):
        return padding.value.data
    return 0


class TileAccess(Op):
    """What ops on a tile share."""

    @property
    def tile_type(self) -> TileType:
        return next(v.type for v in self.operands if isinstance(v.type, TileType))

    def print(self, printer: Printer) -> None:
        if not isinstance(locality := self.properties.get("locality"), IntegerAttr):
            assembly.print_op(printer, self)
            return
        say(printer, " ", self.operands, f" locality<{locality.value.data}>")
        assembly.print_rest(printer, self, ("locality",))


def parse_stored(parser: Parser) -> tuple[SSAValue, SSAValue, list[SSAValue], assembly.AttrDict]:
    """`%value, %tile, %mask {..} : types`: the RFCs write value and tile in both orders."""
    start = parser.pos
    operands = parse_names(parser)
    if not 2 <= len(operands) <= 3:
        parser.raise_error("expected a value, a tile and an optional mask", start, parser.pos)
    attrs = assembly.parse_attr_dict(parser)
    parser.parse_punctuation(":")
    types = assembly.parse_types(parser)
    if len(types) == 1 and assembly.parse_optional_arrow(parser):
        types.append(assembly.parse_type(parser))
    values = assembly.assign_types(parser, operands, types)
    tiles = [value for value in values if isinstance(value.type, TileType)]
    if len(tiles) != 1:
        parser.raise_error("expected one tile among the operands", start, parser.pos)
    value, *mask = [value for value in values if value is not tiles[0]]
    return value, tiles[0], mask, attrs


_NUMBERS: Any = (
    ArrayAttr[IntegerAttr],
    lambda dims: ArrayAttr(IntegerAttr(dim, i64) for dim in dims),
    lambda held: tuple(dim.value.data for dim in held),
)


@op_definition
class LoadTileOp(TileAccess):
    """Loads a tile into a vector of the same shape (RFC: load_tile).

    ```mlir
    %v = xetile.load_tile %t {padding = 1.0 : f16} : !xetile.tile<64x32xf16> -> vector<64x32xf16>
    ```
    Elements outside the base matrix read as `padding` (default 0). With `array_length = n` in the
    tile's type there are n results, tiles side by side along the fastest dimension. `transpose`
    is the early RFC's: the result is the transposed tile.
    """

    name = "xetile.load_tile"

    tile: Operand[TileType] = Operand(TileType)
    values: Results[VectorType] = Results(VectorType)
    padding: OptProp[Attribute] = OptProp()
    permutation: OptInts = OptInts(*_NUMBERS, name="transpose")
    """The early RFC's `transpose`, None when absent."""
    hints: HintFields = HintFields(CacheHintAttr)

    traits = traits_def(MemoryReadEffect())

    def __init__(
        self,
        tile: SSAValue | Operation,
        padding: Attribute | None = None,
        hints: Hints = (),
        result_type: VectorType | Sequence[VectorType] | None = None,
        transpose: Sequence[int] | None = None,
    ):
        tile = SSAValue.get(tile)
        tile_type = tile.type
        assert isinstance(tile_type, TileType)
        if result_type is None:
            shape = tile_type.get_shape()
            if transpose is not None:
                shape = tuple(shape[dim] for dim in transpose)
            vector = VectorType(tile_type.element_type, shape)
            result_type = [vector] * tile_type.array_length
        elif isinstance(result_type, VectorType):
            result_type = [result_type]
        Op.__init__(self, tile, result_type, padding, transpose, hints)

    @property
    def result(self) -> SSAValue:
        """The (first) loaded vector."""
        return self.values[0]

    @property
    def padding_value(self) -> int | float:
        return padding_number(self.padding)

    CHECK = rules.verify_load_tile

    @classmethod
    def parse(cls, parser: Parser) -> LoadTileOp:
        tile = parser.parse_unresolved_operand()
        attrs = assembly.parse_attr_dict(parser)
        parser.parse_punctuation(":")
        tile_type = assembly.parse_type(parser)
        assembly.parse_arrow(parser)
        results = assembly.parse_types(parser)
        attrs.name_bare(parser, ())
        return attrs.build(cls, [parser.resolve_operand(tile, tile_type)], [results])


class TileStore(TileAccess):
    """What ops that store vectors to tiles share."""

    value: Operand[VectorType] = Operand(VectorType)
    tile: Operand[TileType] = Operand(TileType)
    mask: OptOperand[VectorType] = OptOperand(VectorType, default=None)
    hints: HintFields = HintFields(CacheHintAttr)

    traits = traits_def(Writes("tile"))

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        value, tile, mask, attrs = parse_stored(parser)
        attrs.name_bare(parser, ())
        return attrs.build(cls, [value, tile, mask])


@op_definition
class StoreTileOp(TileStore):
    """Stores a vector to a tile of the same shape; elements outside the matrix are dropped.

    ```mlir
    xetile.store_tile %v, %t : vector<64x64xf16>, !xetile.tile<64x64xf16>
    xetile.store_tile %v, %t, %m : vector<64x64xf16>, !xetile.tile<64x64xf16>, vector<64x64xi1>
    ```
    Where a mask is given (ours, as the RFC gives one to the scattered store), elements for which it
    is false are left alone. The RFCs' order `%t, %v` is read too.
    """

    name = "xetile.store_tile"

    CHECK = rules.verify_store_tile


@op_definition
class PrefetchTileOp(TileAccess):
    """Brings a tile into a cache; does nothing outside the matrix (RFC: prefetch_tile).

    ```mlir
    xetile.prefetch_tile %t locality<3> : !xetile.tile<8x32xf16>
    xetile.prefetch_tile %t {l1_hint = #xetile.cache_hint<cached>} : !xetile.tile<8x32xf16>
    ```
    `locality`: 3 every cache, 2 not the first, 1 the last, 0 no reuse expected; absent is 3.
    """

    name = "xetile.prefetch_tile"

    tile: Operand[TileType] = Operand(TileType)
    locality: OptInt = OptInt()
    hints: HintFields = HintFields(CacheHintAttr)

    traits = traits_def(Acts(CACHES))

    CHECK = rules.verify_prefetch_tile

    @classmethod
    def parse(cls, parser: Parser) -> PrefetchTileOp:
        tile = parser.parse_unresolved_operand()
        parser.parse_optional_punctuation(",")
        attrs = assembly.parse_attr_dict(parser)
        assembly.parse_locality(parser, attrs)
        attrs = assembly.parse_attr_dict(parser, attrs)
        parser.parse_punctuation(":")
        tile_type = assembly.parse_type(parser)
        attrs.name_bare(parser, ())
        return attrs.build(cls, [parser.resolve_operand(tile, tile_type)])


# --- Element by element ---------------------------------------------------------------------------


def _elements(given: Given) -> VectorType:
    tile = SSAValue.get(given["tile"]).type
    assert isinstance(tile, TileType)
    return VectorType(tile.element_type, tile.get_shape())


@op_definition
class LoadGatherOp(TileAccess):
    """Gathers the elements of a scattered tile (RFC: load_gather; printed `xetile.load`).

    ```mlir
    %v = xetile.load %t, %mask {padding = 0.0 : f32} : !tile, vector<128xi1> -> vector<128xf32>
    ```
    Elements that are masked off or outside the base matrix read as `padding` (default 0).
    """

    name = "xetile.load"

    tile: Operand[TileType] = Operand(TileType)
    mask: OptOperand[VectorType] = OptOperand(VectorType, default=None)
    padding: OptProp[Attribute] = OptProp(Attribute)
    hints: HintFields = HintFields(CacheHintAttr)
    result = Inferred(VectorType, _elements)

    traits = traits_def(MemoryReadEffect())

    @property
    def padding_value(self) -> int | float:
        return padding_number(self.padding)

    CHECK = rules.verify_load_gather

    @classmethod
    def parse(cls, parser: Parser) -> LoadGatherOp:
        operands = [parser.parse_unresolved_operand()]
        attrs = assembly.AttrDict()
        while parser.parse_optional_punctuation(",") is not None:
            operand = parser.parse_optional_unresolved_operand()
            if operand is None:
                break  # the RFC writes a comma before the dictionary
            operands.append(operand)
        attrs = assembly.parse_attr_dict(parser, attrs)
        parser.parse_punctuation(":")
        types = assembly.parse_types(parser)
        if assembly.parse_optional_arrow(parser):
            result_type = assembly.parse_type(parser)
        elif len(types) == len(operands) + 1:
            result_type = types.pop()  # RFC: `tile, mask, result`
        else:
            parser.raise_error("expected '->' before the result type")
        if len(operands) > 2:
            parser.raise_error("expected a tile and a mask")
        values = assembly.assign_types(parser, operands, types)
        attrs.name_bare(parser, ())
        return attrs.build(cls, [values[0], values[1:]], [result_type])


@op_definition
class StoreScatterOp(TileStore):
    """Scatters a vector to a scattered tile (RFC: store_scatter; printed `xetile.store`).

    ```mlir
    xetile.store %v, %t, %mask : vector<128xf32>, !tile, vector<128xi1>
    ```
    Elements that are masked off or outside the base matrix are dropped.
    """

    name = "xetile.store"

    CHECK = rules.verify_store_scatter


@op_definition
class AtomicRmwOp(TileAccess):
    """Reads, combines and writes each element of a tile atomically; gives the old values.

    ```mlir
    %old = xetile.atomic_rmw addf %v, %t : vector<8x16xf32>, !xetile.tile<8x16xf32> -> vector<8x16xf32>
    %old = xetile.atomic_rmw addi %v, %t, %mask : vector<16xi32>, !tile, vector<16xi1> -> vector<16xi32>
    ```
    Elements outside the matrix, and those masked off, are dropped and give the padding value 0.
    """

    name = "xetile.atomic_rmw"

    kind: Str = Str(*kinds.ATOMIC_KIND)
    value: Operand[VectorType] = Operand(VectorType)
    tile: Operand[TileType] = Operand(TileType)
    mask: OptOperand[VectorType] = OptOperand(VectorType, default=None)
    result = Inferred(VectorType, "value")

    traits = traits_def(MemoryReadEffect(), Writes("tile"))

    CHECK = rules.verify_atomic_rmw

    @classmethod
    def parse(cls, parser: Parser) -> AtomicRmwOp:
        named = kinds.parse_atomic_kind(parser)
        value, tile, mask, attrs = parse_stored(parser)
        assembly.parse_arrow(parser)
        result_type = assembly.parse_type(parser)
        assert isinstance(tile.type, TileType)
        kind = named(tile.type.element_type)
        attrs.name_bare(parser, ())
        return attrs.build(cls, [value, tile, mask], [result_type], kind)

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.kind}")
        assembly.print_op(printer, self, ("kind",))
