"""Scattered ops: one address per lane. Gather, scatter, prefetch and atomics.

Today's text gives base and offsets on the op; the older text makes a scattered descriptor first. Both
are the same op class here: `source` is a descriptor, or a base (memref, address) that `offsets` index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, cast

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, UnitAttr, i1
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import traits_def
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect

from tilewright.dialects.cache_hints import HintFields
from tilewright.dialects.directives import say
from tilewright.dialects.effects import CACHES, Acts, Writes
from tilewright.dialects.fields import (
    Flag,
    Op,
    Operand,
    OpT,
    OptInt,
    OptOperand,
    OptProp,
    Result,
    op_definition,
)
from tilewright.dialects.movement import shape_of_type
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.dialects.xegpu import assembly
from tilewright.dialects.xegpu import rules_scatter as rules
from tilewright.dialects.xegpu.assembly import OpText
from tilewright.dialects.xegpu.attrs import CacheHintAttr
from tilewright.dialects.xegpu.block import ownership_of
from tilewright.dialects.xegpu.layouts import Ownership
from tilewright.dialects.xegpu.types import TensorDescType
from tilewright.dialects.xetile.assembly import AttrDict


def is_mask(type: Attribute) -> bool:
    return element_of(type) == i1


class ScatterAccess(Op, kw_only=True):
    """What the scattered memory ops share."""

    hints: HintFields = HintFields(CacheHintAttr)
    layout: OptProp[Attribute] = OptProp()

    @property
    def source_operand(self) -> SSAValue:
        return cast(Any, self).source

    @property
    def offsets_operand(self) -> SSAValue | None:
        return cast(Any, self).offsets

    @property
    def tdesc(self) -> TensorDescType | None:
        """The scattered descriptor; None in the address form."""
        type = self.source_operand.type
        return type if isinstance(type, TensorDescType) else None

    @property
    def chunk(self) -> int:
        """Elements per lane."""
        if (tdesc := self.tdesc) is not None:
            return tdesc.chunk_size
        size = self.properties.get("chunk_size")
        return size.value.data if isinstance(size, IntegerAttr) else 1

    @property
    def lanes(self) -> tuple[int, ...]:
        """The shape of the lanes: that of the offsets, () for a scalar access."""
        if (tdesc := self.tdesc) is not None:
            return tdesc.lanes
        assert self.offsets_operand is not None
        return shape_of_type(self.offsets_operand.type)

    @property
    def lane_count(self) -> int:
        return prod(self.lanes)

    @property
    def ownership(self) -> Ownership | None:
        layout = ownership_of(self.layout)
        if layout is None and (tdesc := self.tdesc) is not None:
            return tdesc.ownership
        return layout

    def print(self, printer: Printer) -> None:
        operands, offsets = list(self.operands), self.offsets_operand
        for n, value in enumerate(operands):
            bracket = value is offsets and operands[n - 1] is self.source_operand
            before = "[" if bracket else ", " if n else " "
            say(printer, before, value, "]" if bracket else "")
        assembly.print_rest(printer, self, ("kind",))


class ScatterText:
    """A scattered op's text with roles: `source` and `offsets` resolved, the `others` in order."""

    def __init__(self, parser: Parser, text: OpText):
        offsets: UnresolvedOperand | None = None
        if text.indices is not None:
            if text.indices.static.count(text.indices.static[0]) != 1 or not text.indices.dynamic:
                parser.raise_error("expected one offset value in brackets")
            offsets = text.indices.dynamic[0]
            at = text.indexed
            assert at is not None
            text.operands.insert(at + 1, offsets)
        values = text.resolve(parser)
        self.offsets: SSAValue | None = None
        if offsets is not None and text.indexed is not None:
            self.source = values[text.indexed]
            self.offsets = values[text.indexed + 1]
            self.others = values[: text.indexed] + values[text.indexed + 2 :]
        else:
            found = [v for v in values if isinstance(v.type, TensorDescType)]
            if len(found) != 1:
                parser.raise_error("expected one tensor_desc, or a base with offsets in brackets")
            self.source = found[0]
            self.others = [v for v in values if v is not found[0]]
        if len(text.attrs.bare) > 1:
            parser.raise_error("expected at most one layout")
        if text.attrs.bare:
            text.attrs.named.setdefault("layout", text.attrs.bare[0])
        _pop_transpose_pair(text.attrs)
        self.attrs = text.attrs

    def build(
        self,
        op: type[OpT],
        before: Sequence[SSAValue] = (),
        behind: Sequence[SSAValue] = (),
        results: Sequence[Attribute] = (),
        properties: Mapping[str, Attribute] | None = None,
    ) -> OpT:
        """The op: operands before and behind its source and offsets."""
        offsets = [] if self.offsets is None else [self.offsets]
        operands = [*before, self.source, offsets, *behind]
        return self.attrs.build(op, operands, results, properties)

    def no_others(self, parser: Parser) -> None:
        if self.others:
            parser.raise_error(f"unexpected operand of type {self.others[0].type}")

    def mask(self, parser: Parser) -> SSAValue:
        """Remove and return the mask: the last i1 operand."""
        for position in reversed(range(len(self.others))):
            if is_mask(self.others[position].type):
                return self.others.pop(position)
        parser.raise_error("expected a mask of i1")


def _pop_transpose_pair(attrs: AttrDict) -> None:
    """The RFC writes `transpose` and `transpose = [1, 0]` for the same: a flag here."""
    value = attrs.named.get("transpose")
    if isinstance(value, DenseArrayBase):
        if list(value.get_values()) == [1, 0]:
            attrs.named["transpose"] = UnitAttr()
        else:
            del attrs.named["transpose"]


@op_definition
class LoadGatherOp(ScatterAccess):
    """Loads from one address per lane (RFC: load).

    ```mlir
    %v = xegpu.load %base[%offsets], %mask <{chunk_size = 2 : i64}>
      : memref<1024xf32>, vector<16xindex>, vector<16xi1> -> vector<16x2xf32>
    %v = xegpu.load %t, %mask : !xegpu.tensor_desc<16xf32, #..>, vector<16xi1> -> vector<16xf32>
    ```
    The result of masked-off lanes is unspecified. `transpose` (RFC): the result is [chunk, lanes].
    At lane level offsets and mask are scalars, or vectors of one element.
    """

    name = "xegpu.load"

    source: Operand = Operand(Attribute)
    offsets: OptOperand = OptOperand(default=None, kw_only=True)
    mask: Operand = Operand()
    value: Result[Attribute] = Result()
    chunk_size: OptInt = OptInt()
    transpose: Flag = Flag()

    traits = traits_def(MemoryReadEffect())

    CHECK = rules.verify_load_gather

    @classmethod
    def parse(cls, parser: Parser) -> LoadGatherOp:
        text = assembly.parse_op(parser, results=True)
        result = assembly.one_result(parser, text)
        parsed = ScatterText(parser, text)
        mask = parsed.mask(parser)
        parsed.no_others(parser)
        return parsed.build(cls, behind=[mask], results=[result])


@op_definition
class StoreScatterOp(ScatterAccess):
    """Stores to one address per lane (RFC: store); masked-off lanes write nothing.

    ```mlir
    xegpu.store %v, %base[%offsets], %mask : vector<16xf32>, i64, vector<16xindex>, vector<16xi1>
    ```
    Two lanes that name one address race. `transpose` (RFC): the value is [chunk, lanes].
    """

    name = "xegpu.store"

    value: Operand = Operand(Attribute)
    source: Operand = Operand(Attribute)
    offsets: OptOperand = OptOperand(default=None, kw_only=True)
    mask: Operand = Operand(Attribute)

    chunk_size: OptInt = OptInt()
    transpose: Flag = Flag()

    traits = traits_def(Writes("source"))

    CHECK = rules.verify_store_scatter

    @classmethod
    def parse(cls, parser: Parser) -> StoreScatterOp:
        text = assembly.parse_op(parser, results=False)
        parsed = ScatterText(parser, text)
        value, mask = value_and_mask(parser, parsed)
        return parsed.build(cls, [value], [mask])


def value_and_mask(parser: Parser, parsed: ScatterText) -> tuple[SSAValue, SSAValue]:
    """The data and the mask among the remaining operands (a mask is i1; of two i1s the last)."""
    mask = parsed.mask(parser)
    if len(parsed.others) != 1:
        parser.raise_error(
            f"expected one value, got {len(parsed.others)} operands besides the mask"
        )
    return parsed.others[0], mask


@op_definition
class PrefetchOp(ScatterAccess):
    """Brings scattered elements into the caches (RFC: prefetch).

    ```mlir
    xegpu.prefetch %base[%offsets] <{offset_align_byte = 4 : i64}> : i64, vector<16xindex>
    xegpu.prefetch %t : !xegpu.tensor_desc<16xf32, #xegpu.scatter_tdesc_attr<>>
    ```
    From an integer address offsets count units of `offset_align_byte` bytes.
    """

    name = "xegpu.prefetch"

    source: Operand = Operand(Attribute)
    offsets: OptOperand = OptOperand(default=None, kw_only=True)

    offset_align_byte: OptInt = OptInt()

    traits = traits_def(Acts(CACHES))

    CHECK = rules.verify_prefetch

    @classmethod
    def parse(cls, parser: Parser) -> PrefetchOp:
        text = assembly.parse_op(parser, results=False)
        parsed = ScatterText(parser, text)
        parsed.no_others(parser)
        return parsed.build(cls)
