"""The tw dialect: what a Python kernel can say that no upstream dialect has.

Printing, breakpoints for the reference executor, and the named barriers of subgroup level. It has
no types of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, IndexType, StringAttr
from xdsl.ir import Dialect, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.effects import ORDER, PEOPLE, Acts


@irdl_op_definition
class PrintOp(IRDLOperation):
    """Prints one line: the format with each ``{}`` replaced by an operand (``{{`` is a brace).

    ```mlir
    tw.print "row {} of {}" %i, %n : index, index
    ```
    """

    name = "tw.print"
    traits = traits_def(Acts(PEOPLE))

    format = prop_def(StringAttr)
    values = var_operand_def()

    def __init__(self, format: str, values: Sequence[SSAValue | Operation]):
        super().__init__(operands=[values], properties={"format": StringAttr(format)})

    def verify_(self) -> None:
        holes = self.format.data.replace("{{", "").replace("}}", "").count("{}")
        if holes != len(self.values):
            raise VerifyException(
                f"the format has {holes} places, but there are {len(self.values)} operands"
            )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attribute(self.format)
        _print_values(printer, self.values)

    @classmethod
    def parse(cls, parser: Parser) -> PrintOp:
        text = parser.parse_str_literal()
        return cls(text, _parse_values(parser))


@irdl_op_definition
class BreakpointOp(IRDLOperation):
    """Stops in a debugger with the kernel's variables at hand; the reference target alone does.

    ```mlir
    tw.breakpoint ["i", "acc"] %i, %acc : index, vector<4x4xf32>
    ```
    ``names`` are the variables that the operands are the values of.
    """

    name = "tw.breakpoint"
    traits = traits_def(Acts(PEOPLE))

    names = prop_def(ArrayAttr[StringAttr])
    values = var_operand_def()

    def __init__(self, names: Sequence[str], values: Sequence[SSAValue | Operation]):
        super().__init__(
            operands=[values], properties={"names": ArrayAttr([StringAttr(n) for n in names])}
        )

    def verify_(self) -> None:
        if len(self.names) != len(self.values):
            raise VerifyException(f"{len(self.names)} names for {len(self.values)} operands")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attribute(self.names)
        _print_values(printer, self.values)

    @classmethod
    def parse(cls, parser: Parser) -> BreakpointOp:
        names = cast(ArrayAttr[StringAttr], parser.parse_attribute())
        return cls([name.data for name in names], _parse_values(parser))


class _NamedBarrierOp(IRDLOperation):
    """The operands of both halves of a named barrier: which one, and how many subgroups meet."""

    id = operand_def(IndexType)
    count = operand_def(IndexType)

    def __init__(self, id: SSAValue | Operation, count: SSAValue | Operation):
        super().__init__(operands=[id, count])

    assembly_format = "$id `,` $count attr-dict"


@irdl_op_definition
class NamedBarrierArriveOp(_NamedBarrierOp):
    """This subgroup has reached named barrier ``id``; it does not wait.

    ```mlir
    tw.named_barrier_arrive %id, %count
    ```
    """

    name = "tw.named_barrier_arrive"
    traits = traits_def(Acts(ORDER))


@irdl_op_definition
class NamedBarrierWaitOp(_NamedBarrierOp):
    """Waits until ``count`` subgroups have reached named barrier ``id``.

    ```mlir
    tw.named_barrier_wait %id, %count
    ```
    """

    name = "tw.named_barrier_wait"
    traits = traits_def(Acts(ORDER))


def _print_values(printer: Printer, values: Sequence[SSAValue]) -> None:
    if not values:
        return
    printer.print_string(" ")
    printer.print_list(values, printer.print_operand)
    printer.print_string(" : ")
    printer.print_list([value.type for value in values], printer.print_attribute)


def _parse_values(parser: Parser) -> Sequence[SSAValue]:
    operands = parser.parse_optional_undelimited_comma_separated_list(
        parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
    )
    if not operands:
        return []
    parser.parse_punctuation(":")
    start = parser.pos
    types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
    return parser.resolve_operands(operands, types, start)


TW = Dialect("tw", [PrintOp, BreakpointOp, NamedBarrierArriveOp, NamedBarrierWaitOp])
