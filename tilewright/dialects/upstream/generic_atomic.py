"""memref: generic_atomic_rmw, an atomic whose region says what becomes of an element, and its yield."""

from __future__ import annotations

from xdsl.dialects.builtin import IndexType, MemRefType
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import HasParent, IsTerminator, Pure, is_side_effect_free
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.effects import Writes


@irdl_op_definition
class AtomicYieldOp(IRDLOperation):
    """`memref.atomic_yield %new : f32`: what the element becomes."""

    name = "memref.atomic_yield"

    result = operand_def()

    traits = traits_def(IsTerminator(), Pure())

    assembly_format = "$result attr-dict `:` type($result)"

    def verify_(self) -> None:
        HasParent(GenericAtomicRMWOp).verify(self)


@irdl_op_definition
class GenericAtomicRMWOp(IRDLOperation):
    """An atomic update of an element; the region computes the new value of what was there, which the op gives.

    ```mlir
    %old = memref.generic_atomic_rmw %m[%i] : memref<10xf32> {
      ^bb0(%now: f32):
        %new = arith.mulf %now, %x : f32
        memref.atomic_yield %new : f32
    }
    ```
    """

    name = "memref.generic_atomic_rmw"

    memref = operand_def(MemRefType)
    indices = var_operand_def(IndexType)
    atomic_body = region_def("single_block")
    result = result_def()

    traits = traits_def(Writes("memref"))

    @property
    def now(self) -> SSAValue:
        """The element as the region finds it."""
        return self.atomic_body.block.args[0]

    @property
    def new(self) -> SSAValue:
        """The element as the region leaves it."""
        last = self.atomic_body.block.last_op
        assert isinstance(last, AtomicYieldOp)
        return last.result

    def verify_(self) -> None:
        assert isinstance(self.memref.type, MemRefType)
        element, block = self.memref.type.element_type, self.atomic_body.block
        if len(self.indices) != self.memref.type.get_num_dims():
            raise VerifyException("expects the number of subscripts to be equal to memref rank")
        if [v.type for v in block.args] != [element]:
            raise VerifyException("expected an argument of the element type in the body")
        if self.result.type != element:
            raise VerifyException(f"expected a result of {element}")
        if not isinstance(block.last_op, AtomicYieldOp) or self.new.type != element:
            raise VerifyException(f"expected the body to yield {element}")
        for op in block.ops:
            if op is not block.last_op and not is_side_effect_free(op):
                raise VerifyException(
                    "body of 'memref.generic_atomic_rmw' should contain only operations with no side effects"
                )

    @classmethod
    def parse(cls, parser: Parser) -> Operation:
        source = parser.parse_unresolved_operand()
        indices = parser.parse_comma_separated_list(
            parser.Delimiter.SQUARE, lambda: parser.parse_operand(IndexType())
        )
        parser.parse_punctuation(":")
        pos = parser.pos
        kind = parser.parse_type()
        if not isinstance(kind, MemRefType):
            parser.raise_error("expected a memref type", pos, parser.pos)
        body = parser.parse_region()
        attributes = parser.parse_optional_attr_dict()
        return cls.create(
            operands=[parser.resolve_operand(source, kind), *indices],
            regions=[body],
            attributes=attributes,
            result_types=[kind.element_type],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.memref)
        printer.print_string("[")
        printer.print_list(self.indices, printer.print_operand)
        printer.print_string("] : ")
        printer.print_attribute(self.memref.type)
        printer.print_string(" ")
        printer.print_region(self.atomic_body)
        printer.print_op_attributes(self.attributes)
