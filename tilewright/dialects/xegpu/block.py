"""Block ops: descriptors of n-D blocks of a matrix, and load, store and prefetch through them."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, VectorType, i32
from xdsl.ir import Attribute
from xdsl.irdl import traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect

from tilewright.dialects.cache_hints import HintFields
from tilewright.dialects.directives import say
from tilewright.dialects.effects import CACHES, Acts, Writes
from tilewright.dialects.fields import (
    Flag,
    Op,
    Operand,
    OptInt,
    OptInts,
    OptProp,
    Result,
    op_definition,
)
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.xegpu import assembly
from tilewright.dialects.xegpu import rules_block as rules
from tilewright.dialects.xegpu.assembly import OpText
from tilewright.dialects.xegpu.attrs import CacheHintAttr
from tilewright.dialects.xegpu.layouts import Ownership, is_ownership
from tilewright.dialects.xegpu.types import TensorDescType
from tilewright.dialects.xetile.assembly import (
    Index,
    Indexed,
    OptIndices,
    parse_locality,
    print_index_list,
)


def ownership_of(attribute: Attribute | None) -> Ownership | None:
    assert attribute is None or is_ownership(attribute)
    return attribute  # pyright: ignore[reportReturnType]


def operand_of_kind(op: Op, kind: type[Attribute]) -> int:
    """The position of the first operand whose type is of a kind."""
    return next(i for i, type in enumerate(op.operand_types) if isinstance(type, kind))


class BlockAccess(Indexed, Op, kw_only=True):
    """What load_nd, store_nd and prefetch_nd share: a descriptor, the offsets behind it, hints, a layout."""

    hints: HintFields = HintFields(CacheHintAttr)
    layout: OptProp[Attribute] = OptProp()

    @property
    def tdesc_operand(self) -> int:
        """The position of the descriptor among the operands; the offsets follow it."""
        return operand_of_kind(self, TensorDescType)

    @property
    def tdesc(self) -> TensorDescType:
        type = self.operands[self.tdesc_operand].type
        assert isinstance(type, TensorDescType)
        return type

    @property
    def mixed_offsets(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
    ) -> list[Index] | None:
        """Offsets from the descriptor's position; None in the older text."""
        offsets = self.mixed("offsets")
        return offsets if "const_offsets" in self.properties else offsets or None

    @property
    def ownership(self) -> Ownership | None:
        """The layout on the op, else that of the descriptor."""
        layout = ownership_of(self.layout)
        return self.tdesc.ownership if layout is None else layout

    @classmethod
    def parse(cls, parser: Parser):
        text = OpText()
        assembly.parse_attr_dict(parser, text.attrs)
        assembly.parse_operands(parser, text)
        assembly.parse_attr_dict(parser, text.attrs)
        if "locality" in cls.get_irdl_definition().properties:
            parse_locality(parser, text.attrs)
            assembly.parse_attr_dict(parser, text.attrs)
        assembly.parse_types_of(parser, text, results=True)
        return assembly.build_access(cls, parser, text, TensorDescType)

    def print(self, printer: Printer) -> None:
        values = self.operands[: self.tdesc_operand + 1]
        say(printer, " ", values)
        if (offsets := self.mixed_offsets) is not None:
            print_index_list(printer, offsets)
        if (locality := self.properties.get("locality")) is not None:
            assert isinstance(locality, IntegerAttr)
            say(printer, f" locality<{locality.value.data}>")
        hidden = ("const_offsets", "locality")
        assembly.print_rest(printer, self, hidden, [v.type for v in values])


@op_definition
class LoadNdOp(BlockAccess):
    """Loads a block into a vector (RFC: load_nd).

    ```mlir
    %v = xegpu.load_nd %t[%x, %y] <{l1_hint = #xegpu.cache_hint<cached>, packed}>
      : !xegpu.tensor_desc<16x16xf16> -> vector<8x16x2xf16>
    ```
    Elements outside of the base matrix read as 0. `packed`: groups of rows that fill 32 bits become the
    innermost dimension (VNNI). `transpose = [1, 0]`: the block is transposed; with
    `transpose_bit_width = 32` as if its elements were of that width: those that stay together lie side by
    side in the rows of the result, or are its innermost dimension. `array_length = n` in the
    descriptor gives n blocks side by side, stacked or as a leading dimension. At lane level the result
    is one lane's fragment: 1-D, or `[units, packed]` under an sg_map.
    """

    name = "xegpu.load_nd"

    tensor_desc: Operand[TensorDescType] = Operand(TensorDescType)
    value: Result[VectorType] = Result(VectorType)
    offsets: OptIndices = OptIndices("const_offsets")
    packed: Flag = Flag()
    transpose: OptInts = OptInts()
    transpose_bit_width: OptInt = OptInt(into=lambda bits: IntegerAttr(bits, i32))

    traits = traits_def(MemoryReadEffect())

    @property
    def transposes(self) -> bool:
        """Does the load really exchange dimensions?"""
        return self.transpose is not None and list(self.transpose) != sorted(self.transpose)

    @property
    def together(self) -> int:
        """Elements of a row that stay neighbours when the load transposes: what `transpose_bit_width` holds."""
        width = self.transpose_bit_width
        return 1 if width is None else width // element_bits(self.tdesc.element_type)

    CHECK = rules.verify_load_nd


@op_definition
class StoreNdOp(BlockAccess):
    """Stores a vector to a block (RFC: store_nd). Elements outside of the base matrix are dropped.

    ```mlir
    xegpu.store_nd %v, %t[%x, %y] <{l1_hint = #xegpu.cache_hint<write_back>}>
      : vector<8x16xf32>, !xegpu.tensor_desc<8x16xf32>
    ```
    """

    name = "xegpu.store_nd"

    value: Operand[VectorType] = Operand(VectorType)
    tensor_desc: Operand[TensorDescType] = Operand(TensorDescType)
    offsets: OptIndices = OptIndices("const_offsets")

    traits = traits_def(Writes("tensor_desc"))

    CHECK = rules.verify_store_nd


@op_definition
class PrefetchNdOp(BlockAccess):
    """Brings a block into the caches (RFC: prefetch_nd); outside of the base matrix it does nothing.

    ```mlir
    xegpu.prefetch_nd %t[%x, %y] <{l1_hint = #xegpu.cache_hint<cached>}> : !xegpu.tensor_desc<8x16xf16>
    xegpu.prefetch_nd %t[%x, %y] locality<2> : !xegpu.tensor_desc<8x16xf16>
    ```
    `locality` (RFC, appendix 1.3): 3 every cache, 2 not the first, 1 the last, 0 no reuse expected.
    """

    name = "xegpu.prefetch_nd"

    tensor_desc: Operand[TensorDescType] = Operand(TensorDescType)
    offsets: OptIndices = OptIndices("const_offsets")

    locality: OptInt = OptInt()

    traits = traits_def(Acts(CACHES))

    CHECK = rules.verify_prefetch_nd
