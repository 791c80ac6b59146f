"""index: MLIR's dialect of arithmetic on values of type `index`. Stock xDSL does not have it."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import BoolAttr, IndexType, IntegerAttr, IntegerType, i1
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import SpacedOpaqueSyntaxAttribute
from xdsl.irdl import irdl_attr_definition, traits_def
from xdsl.traits import Commutative, ConstantLike, Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from tilewright.dialects.fields import (
    Inferred,
    Op,
    Operand,
    Property,
    Result,
    Str,
    dialect,
    op_definition,
)

_INDEX = IndexType()


class BinaryOp(Op):
    """`%r = index.add %a, %b`: no types, all are index."""

    lhs: Operand[IndexType] = Operand(IndexType)
    rhs: Operand[IndexType] = Operand(IndexType)
    result = Inferred(IndexType)
    assembly_format: ClassVar = "$lhs `,` $rhs attr-dict"


def _binary(mnemonic: str, *, commutative: bool = False) -> type[BinaryOp]:
    """Ops that differ in nothing but their name."""
    traits = (Pure(), Commutative()) if commutative else (Pure(),)
    fields = {
        "name": f"index.{mnemonic}",
        "traits": traits_def(*traits),
        "__doc__": f"`index.{mnemonic}` of two index values.",
        "__module__": __name__,
    }
    class_name = mnemonic.capitalize() + "Op"
    return op_definition(type(class_name, (BinaryOp,), fields))


COMMUTATIVE = ("add", "mul", "maxs", "maxu", "mins", "minu", "and", "or", "xor")
OTHERS = (
    *("sub", "divs", "divu", "ceildivs", "ceildivu", "floordivs", "rems", "remu"),
    *("shl", "shrs", "shru"),
)
BINARY = [
    *(_binary(name, commutative=True) for name in COMMUTATIVE),
    *(_binary(name) for name in OTHERS),
]


class CastOp(Op):
    """Between index and an integer type; which extension is meant, the subclass says."""

    input: Operand = Operand(IndexType | IntegerType)
    output: Result[IndexType | IntegerType] = Result(IndexType | IntegerType)
    assembly_format: ClassVar = "$input attr-dict `:` type($input) `to` type($output)"

    def verify_(self) -> None:
        kinds = (self.input.type, self.output.type)
        if sum(isinstance(kind, IndexType) for kind in kinds) != 1:
            raise VerifyException("exactly one of operand and result is of type index")


@op_definition
class CastSOp(CastOp):
    """`index.casts %a : index to i64`, sign-extended."""

    name = "index.casts"
    traits = traits_def(Pure())


@op_definition
class CastUOp(CastOp):
    """`index.castu %a : index to i64`, zero-extended."""

    name = "index.castu"
    traits = traits_def(Pure())


CmpPredicate = StrEnum("CmpPredicate", "EQ NE SLT SLE SGT SGE ULT ULE UGT UGE")


@irdl_attr_definition
class CmpPredicateAttr(EnumAttribute[CmpPredicate], SpacedOpaqueSyntaxAttribute):
    """`#index<cmp_predicate slt>`."""

    name = "index.cmp_predicate"


@op_definition
class CmpOp(Op):
    """`index.cmp slt(%a, %b)`."""

    name = "index.cmp"
    predicate: Str = Str(
        CmpPredicateAttr,
        lambda word: CmpPredicateAttr(CmpPredicate(word)),
        lambda held: held.data.value,
        name="pred",
    )
    lhs: Operand[IndexType] = Operand(IndexType)
    rhs: Operand[IndexType] = Operand(IndexType)
    result = Inferred(i1)
    traits = traits_def(Pure())
    assembly_format = "$pred `(` $lhs `,` $rhs `)` attr-dict"


@op_definition
class ConstantOp(Op):
    """`index.constant 8`."""

    name = "index.constant"
    value: Property[IntegerAttr, int] = Property(
        IntegerAttr.constr(_INDEX), lambda value: IntegerAttr(value, _INDEX)
    )
    result = Inferred(IndexType)
    traits = traits_def(Pure(), ConstantLike())
    assembly_format = "attr-dict $value"


@op_definition
class BoolConstantOp(Op):
    """`index.bool.constant true`."""

    name = "index.bool.constant"
    value: Property[BoolAttr, bool] = Property(IntegerAttr.constr(i1), BoolAttr.from_bool)
    result = Inferred(i1)
    traits = traits_def(Pure(), ConstantLike())
    assembly_format = "attr-dict $value"


@op_definition
class SizeOfOp(Op):
    """`index.sizeof`: the width of index in bits."""

    name = "index.sizeof"
    result = Inferred(IndexType)
    traits = traits_def(Pure())
    assembly_format: ClassVar = "attr-dict"


Index = dialect("index", globals(), *BINARY)
