"""memref: generic_atomic_rmw, an atomic whose region says what becomes of an element, and its yield."""

from __future__ import annotations

from xdsl.dialects.builtin import IndexType, MemRefType
from xdsl.ir import SSAValue
from xdsl.irdl import traits_def
from xdsl.traits import HasParent, IsTerminator, Pure, is_side_effect_free
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.effects import Writes
from tilewright.dialects.fields import Body, Follows, Op, Operand, Operands, op_definition


@op_definition
class AtomicYieldOp(Op):
    """`memref.atomic_yield %new : f32`: what the element becomes."""

    name = "memref.atomic_yield"

    result: Operand = Operand()
    traits = traits_def(IsTerminator(), Pure())

    assembly_format = "$result attr-dict `:` type($result)"

    def verify_(self) -> None:
        HasParent(GenericAtomicRMWOp).verify(self)


@op_definition
class GenericAtomicRMWOp(Op):
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

    memref: Operand[MemRefType] = Operand(MemRefType)
    indices: Operands[IndexType] = Operands(IndexType)
    atomic_body: Body = Body()
    result = Follows("memref", rule=lambda kind: kind.element_type)
    traits = traits_def(Writes("memref"))
    assembly_format = "$memref `[` $indices `]` `:` type($memref) $atomic_body attr-dict"

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
        element, block = self.memref.type.element_type, self.atomic_body.block
        if len(self.indices) != self.memref.type.get_num_dims():
            raise VerifyException("expects the number of subscripts to be equal to memref rank")
        if [v.type for v in block.args] != [element]:
            raise VerifyException("expected an argument of the element type in the body")
        if not isinstance(block.last_op, AtomicYieldOp) or self.new.type != element:
            raise VerifyException(f"expected the body to yield {element}")
        for op in block.ops:
            if op is not block.last_op and not is_side_effect_free(op):
                raise VerifyException(
                    "body of 'memref.generic_atomic_rmw' should contain only operations with no side effects"
                )
