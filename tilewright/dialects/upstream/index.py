"""index: MLIR's dialect of arithmetic on values of type `index`. Stock xDSL does not have it."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import BoolAttr, IndexType, IntegerAttr, IntegerType, StringAttr, i1
from xdsl.ir import Dialect, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Commutative, ConstantLike, Pure
from xdsl.utils.exceptions import VerifyException


class BinaryOp(IRDLOperation):
    """`%r = index.add %a, %b`: no types, all are index."""

    lhs = operand_def(IndexType)
    rhs = operand_def(IndexType)
    result = result_def(IndexType)

    assembly_format: ClassVar = "$lhs `,` $rhs attr-dict"

    def __init__(self, lhs: SSAValue | Operation, rhs: SSAValue | Operation):
        super().__init__(operands=[lhs, rhs], result_types=[IndexType()])


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
    return irdl_op_definition(type(class_name, (BinaryOp,), fields))


AddOp = _binary("add", commutative=True)
SubOp = _binary("sub")
MulOp = _binary("mul", commutative=True)
DivSOp = _binary("divs")
DivUOp = _binary("divu")
CeilDivSOp = _binary("ceildivs")
CeilDivUOp = _binary("ceildivu")
FloorDivSOp = _binary("floordivs")
RemSOp = _binary("rems")
RemUOp = _binary("remu")
MaxSOp = _binary("maxs", commutative=True)
MaxUOp = _binary("maxu", commutative=True)
MinSOp = _binary("mins", commutative=True)
MinUOp = _binary("minu", commutative=True)
ShlOp = _binary("shl")
ShrSOp = _binary("shrs")
ShrUOp = _binary("shru")
AndOp = _binary("and", commutative=True)
OrOp = _binary("or", commutative=True)
XOrOp = _binary("xor", commutative=True)


class CastOp(IRDLOperation):
    """Between index and an integer type; which extension is meant, the subclass says."""

    input = operand_def(IndexType | IntegerType)
    output = result_def(IndexType | IntegerType)

    assembly_format: ClassVar = "$input attr-dict `:` type($input) `to` type($output)"

    def __init__(self, value: SSAValue | Operation, result_type: IndexType | IntegerType):
        super().__init__(operands=[value], result_types=[result_type])

    def verify_(self) -> None:
        kinds = (self.input.type, self.output.type)
        if sum(isinstance(kind, IndexType) for kind in kinds) != 1:
            raise VerifyException("exactly one of operand and result is of type index")


@irdl_op_definition
class CastSOp(CastOp):
    """`index.casts %a : index to i64`, sign-extended."""

    name = "index.casts"
    traits = traits_def(Pure())


@irdl_op_definition
class CastUOp(CastOp):
    """`index.castu %a : index to i64`, zero-extended."""

    name = "index.castu"
    traits = traits_def(Pure())


PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")


@irdl_op_definition
class CmpOp(IRDLOperation):
    """`index.cmp slt(%a, %b)`."""

    name = "index.cmp"

    pred = prop_def(StringAttr)
    lhs = operand_def(IndexType)
    rhs = operand_def(IndexType)
    result = result_def(i1)

    traits = traits_def(Pure())

    def __init__(self, predicate: str, lhs: SSAValue | Operation, rhs: SSAValue | Operation):
        super().__init__(
            operands=[lhs, rhs],
            properties={"pred": StringAttr(predicate)},
            result_types=[i1],
        )

    @property
    def predicate(self) -> str:
        return self.pred.data

    def verify_(self) -> None:
        if self.predicate not in PREDICATES:
            raise VerifyException(f"unknown predicate '{self.predicate}'")

    @classmethod
    def parse(cls, parser: Parser) -> CmpOp:
        predicate = parser.parse_keyword_in(PREDICATES)
        with parser.in_parens():
            lhs = parser.parse_operand(IndexType())
            parser.parse_punctuation(",")
            rhs = parser.parse_operand(IndexType())
        op = cls(predicate, lhs, rhs)
        op.attributes.update(parser.parse_optional_attr_dict())
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.predicate}(")
        printer.print_list(self.operands, printer.print_operand)
        printer.print_string(")")
        printer.print_op_attributes(self.attributes)


@irdl_op_definition
class ConstantOp(IRDLOperation):
    """`index.constant 8`."""

    name = "index.constant"

    value = prop_def(IntegerAttr)
    result = result_def(IndexType)

    traits = traits_def(Pure(), ConstantLike())

    def __init__(self, value: int):
        super().__init__(
            properties={"value": IntegerAttr(value, IndexType())}, result_types=[IndexType()]
        )

    @classmethod
    def parse(cls, parser: Parser) -> ConstantOp:
        attributes = parser.parse_optional_attr_dict()
        op = cls(parser.parse_integer(allow_boolean=False))
        op.attributes.update(attributes)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_op_attributes(self.attributes)
        printer.print_string(f" {self.value.value.data}")


@irdl_op_definition
class BoolConstantOp(IRDLOperation):
    """`index.bool.constant true`."""

    name = "index.bool.constant"

    value = prop_def(BoolAttr)
    result = result_def(i1)

    traits = traits_def(Pure(), ConstantLike())

    def __init__(self, value: bool):
        super().__init__(properties={"value": BoolAttr.from_bool(value)}, result_types=[i1])

    @classmethod
    def parse(cls, parser: Parser) -> BoolConstantOp:
        attributes = parser.parse_optional_attr_dict()
        op = cls(parser.parse_boolean())
        op.attributes.update(attributes)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_op_attributes(self.attributes)
        printer.print_string(" true" if self.value.value.data else " false")


@irdl_op_definition
class SizeOfOp(IRDLOperation):
    """`index.sizeof`: the width of index in bits."""

    name = "index.sizeof"

    result = result_def(IndexType)

    traits = traits_def(Pure())
    assembly_format: ClassVar = "attr-dict"

    def __init__(self):
        super().__init__(result_types=[IndexType()])


Index = Dialect(
    "index",
    [
        *(AddOp, SubOp, MulOp, DivSOp, DivUOp, CeilDivSOp, CeilDivUOp, FloorDivSOp, RemSOp),
        *(RemUOp, MaxSOp, MaxUOp, MinSOp, MinUOp, ShlOp, ShrSOp, ShrUOp, AndOp, OrOp, XOrOp),
        *(CastSOp, CastUOp, CmpOp, ConstantOp, BoolConstantOp, SizeOfOp),
    ],
    [],
)
