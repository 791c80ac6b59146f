"""Gather, scatter and atomics: ops on tiles element by element."""

from __future__ import annotations

from xdsl.dialects.builtin import VectorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect

from tilewright.dialects.cache_hints import HintFields
from tilewright.dialects.effects import Writes
from tilewright.dialects.fields import (
    Given,
    Inferred,
    Operand,
    OptOperand,
    OptProp,
    Str,
    op_definition,
)
from tilewright.dialects.xetile import assembly, kinds, rules
from tilewright.dialects.xetile.attrs import CacheHintAttr
from tilewright.dialects.xetile.memory import TileAccess, TileStore, padding_number, parse_stored
from tilewright.dialects.xetile.types import TileType


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
