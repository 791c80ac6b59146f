"""Matrices in shared local memory: create_mem_desc, mem_desc_subview, load_matrix, store_matrix."""

from __future__ import annotations

from typing import ClassVar

from xdsl.ir import Attribute
from xdsl.irdl import traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, Pure

from tilewright.dialects.directives import say
from tilewright.dialects.effects import Writes
from tilewright.dialects.fields import Flag, Op, Operand, OptProp, Result, op_definition
from tilewright.dialects.xegpu import assembly
from tilewright.dialects.xegpu import rules_matrix as rules
from tilewright.dialects.xegpu.block import operand_of_kind, ownership_of
from tilewright.dialects.xegpu.layouts import Ownership
from tilewright.dialects.xegpu.types import MemDescType
from tilewright.dialects.xetile.assembly import Indexed, OptIndices, print_index_list


@op_definition
class CreateMemDescOp(assembly.PlainOp):
    """A matrix view of a part of shared local memory.

    ```mlir
    %m = xegpu.create_mem_desc %slm : memref<2048xi8, 3> -> !xegpu.mem_desc<32x32xf16>
    ```
    The source is a static memref in shared memory of the same size in bits.
    """

    name = "xegpu.create_mem_desc"

    EXPECTS: ClassVar = "one memref"
    source: Operand = Operand(Attribute)
    mem_desc: Result[MemDescType] = Result(MemDescType)

    traits = traits_def(Pure())

    @property
    def desc(self) -> MemDescType:
        return self.mem_desc.type

    CHECK = rules.verify_create_mem_desc


class MatrixPlace(Indexed, Op):
    """A matrix, and where in it a part of it begins."""

    @property
    def tdesc_operand(self) -> int:
        """The position of the matrix among the operands; the offsets follow it."""
        return operand_of_kind(self, MemDescType)

    @property
    def desc(self) -> MemDescType:
        type = self.operands[self.tdesc_operand].type
        assert isinstance(type, MemDescType)
        return type

    @classmethod
    def parse(cls, parser: Parser):
        text = assembly.parse_op(parser, results=True)
        if text.indices is None:
            parser.raise_error("expected offsets behind the mem_desc")
        return assembly.build_access(cls, parser, text, MemDescType)

    def print(self, printer: Printer) -> None:
        """The `index` types of SSA offsets are written out."""
        values = self.operands[: self.tdesc_operand + 1]
        say(printer, " ", values)
        print_index_list(printer, self.mixed_offsets)
        assembly.print_rest(printer, self, ("const_offsets",))


class MatrixAccess(MatrixPlace, kw_only=True):
    """What load_matrix and store_matrix share. `subgroup_block_io`: the lanes' data is contiguous, so
    that one block message moves it."""

    layout: OptProp[Attribute] = OptProp()
    subgroup_block_io: Flag = Flag()

    @property
    def ownership(self) -> Ownership | None:
        return ownership_of(self.layout)


@op_definition
class MemDescSubviewOp(MatrixPlace):
    """A part of a shared matrix, stored as the whole is: with its strides and blocks.

    ```mlir
    %s = xegpu.mem_desc_subview %m[%x, 16] : !xegpu.mem_desc<32x32xf16>, index
      -> !xegpu.mem_desc<16x16xf16, #xegpu.mem_layout<stride = [32, 1]>>
    ```
    It begins where a block does, if there are blocks.
    """

    name = "xegpu.mem_desc_subview"

    mem_desc: Operand[MemDescType] = Operand(MemDescType)
    part: Result[MemDescType] = Result(MemDescType)
    offsets: OptIndices = OptIndices("const_offsets")

    traits = traits_def(Pure())

    CHECK = rules.verify_subview


@op_definition
class LoadMatrixOp(MatrixAccess):
    """Loads a part of a shared matrix.

    ```mlir
    %v = xegpu.load_matrix %m[%x, 8] <{layout = #l}> : !xegpu.mem_desc<32x32xf16>, index -> vector<8x16xf16>
    ```
    """

    name = "xegpu.load_matrix"

    mem_desc: Operand[MemDescType] = Operand(MemDescType)
    value: Result[Attribute] = Result()
    offsets: OptIndices = OptIndices("const_offsets")

    traits = traits_def(MemoryReadEffect())

    CHECK = rules.verify_matrix_access


@op_definition
class StoreMatrixOp(MatrixAccess):
    """Stores a part of a shared matrix.

    ```mlir
    xegpu.store_matrix %v, %m[%x, 8] : vector<8x16xf16>, !xegpu.mem_desc<32x32xf16>, index
    ```
    """

    name = "xegpu.store_matrix"

    value: Operand = Operand(Attribute)
    mem_desc: Operand[MemDescType] = Operand(MemDescType)
    offsets: OptIndices = OptIndices("const_offsets")

    traits = traits_def(Writes("mem_desc"))

    CHECK = rules.verify_matrix_access
