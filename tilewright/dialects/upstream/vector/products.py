"""vector: outerproduct, scan."""

from __future__ import annotations

from xdsl.dialects.builtin import BoolAttr, IntegerAttr, VectorType
from xdsl.ir import Attribute
from xdsl.irdl import traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.fields import (
    Follows,
    Int,
    Op,
    Operand,
    OptOperand,
    Property,
    Str,
    follows,
    op_definition,
)
from tilewright.dialects.movement import vector_type
from tilewright.dialects.upstream.arith import element
from tilewright.dialects.upstream.combining import COMBINING
from tilewright.dialects.upstream.vector.rules import check_kind


def _outer(lhs: VectorType, rhs: Attribute) -> VectorType:
    extents = rhs.get_shape() if isinstance(rhs, VectorType) else ()
    return VectorType(lhs.element_type, [*lhs.get_shape(), *extents])


@op_definition
class OuterProductOp(Op):
    """`%r = vector.outerproduct %a, %b, %c {kind = #vector.kind<add>} : vector<4xf32>, vector<8xf32>`: every
    element of %a by every one of %b, combined with %c where that stands; by a scalar %b, a vector like %a.
    """

    name = "vector.outerproduct"
    lhs: Operand[VectorType] = Operand(VectorType)
    rhs: Operand = Operand()
    acc: OptOperand = OptOperand(follows("lhs", "rhs", rule=_outer))
    kind: Str = Str(*COMBINING, default="add", implicit=True)
    result = Follows("lhs", "rhs", rule=_outer)
    traits = traits_def(Pure())
    assembly_format = "$lhs `,` $rhs (`,` $acc^)? attr-dict `:` type($lhs) `,` type($rhs)"

    def verify_(self) -> None:
        lhs = vector_type(self.lhs)
        if lhs.get_num_dims() != 1:
            raise VerifyException("expected 1-d vector for operand #1")
        if isinstance(self.rhs.type, VectorType) and self.rhs.type.get_num_dims() != 1:
            raise VerifyException("expected 1-d vector for operand #2")
        if element(self.rhs.type) != lhs.element_type:
            raise VerifyException("operands must have one element type")
        check_kind(self.kind, lhs.element_type)


@op_definition
class ScanOp(Op):
    """`%d, %last = vector.scan <add>, %v, %start {inclusive = true, reduction_dim = 1 : i64} : vector<4x8xf32>,
    vector<4xf32>`: what the elements up to each along a dimension combine to.

    An exclusive scan begins with %start and leaves each element itself out; an inclusive one begins with the first
    element, as in MLIR, whatever %start is. %last is the scan's end.
    """

    name = "vector.scan"
    kind: Str = Str(*COMBINING)
    source: Operand[VectorType] = Operand(VectorType)
    initial_value: Operand[VectorType] = Operand(VectorType)
    is_inclusive: Property[bool, bool] = Property(
        BoolAttr, BoolAttr.from_bool, lambda held: bool(held.value.data), name="inclusive"
    )
    dim: Int = Int(IntegerAttr, name="reduction_dim")
    dest = Follows("source")
    accumulated_value = Follows("initial_value")
    traits = traits_def(Pure())
    assembly_format = (
        "$kind `,` $source `,` $initial_value attr-dict `:` type($source) `,` type($initial_value)"
    )

    def verify_(self) -> None:
        source = vector_type(self.source)
        shape = source.get_shape()
        if not 0 <= self.dim < len(shape):
            raise VerifyException(
                f"reduction dimension {self.dim} has to be less than {len(shape)}"
            )
        check_kind(self.kind, source.element_type)
        kept = [n for dim, n in enumerate(shape) if dim != self.dim]
        if self.initial_value.type != VectorType(source.element_type, kept):
            raise VerifyException("incompatible input/initial value shapes")
