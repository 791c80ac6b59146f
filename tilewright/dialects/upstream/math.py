"""math: the ops that stock xDSL lacks: classes of floats, sine and cosine at once, clamping."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.arith import FastMathFlagsAttr
from xdsl.dialects.builtin import AnyFloat, VectorType, i1
from xdsl.dialects.math import Math
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    VarConstraint,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.upstream.arith import NO_FLAGS, element, with_element
from tilewright.dialects.upstream.complete import add_ops


def _flags(parser: Parser) -> dict[str, Attribute]:
    """`fastmath<contract>`, where it stands."""
    if parser.parse_optional_keyword("fastmath") is None:
        return {}
    return {"fastmath": FastMathFlagsAttr(FastMathFlagsAttr.parse_parameter(parser))}


def _print_flags(flags: Attribute | None, printer: Printer) -> None:
    if isinstance(flags, FastMathFlagsAttr) and flags != NO_FLAGS:
        printer.print_string(" fastmath")
        flags.print_parameter(printer)


def _of_floats(op: IRDLOperation, value: SSAValue) -> None:
    if not isinstance(element(value.type), AnyFloat):
        raise VerifyException(f"takes floats or vectors of floats, got {value.type}")


class _Unary(IRDLOperation):
    """`%r = math.isnan %x fastmath<..> : f32`: one float, or a vector of them."""

    T: ClassVar = VarConstraint("T", AnyAttr())
    operand = operand_def(T)
    fastmath = opt_prop_def(FastMathFlagsAttr)
    traits = traits_def(Pure())

    @staticmethod
    def results_of(kind: Attribute) -> list[Attribute]:
        """The types of the results for an operand of a type."""
        raise NotImplementedError

    def verify_(self) -> None:
        _of_floats(self, self.operand)
        expected = self.results_of(self.operand.type)
        if [r.type for r in self.results] != expected:
            given = ", ".join(str(r.type) for r in self.results)
            raise VerifyException(f"gives {', '.join(map(str, expected))}, not {given}")

    @classmethod
    def parse(cls, parser: Parser) -> Operation:
        operand = parser.parse_unresolved_operand()
        properties = _flags(parser)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kind = parser.parse_type()
        return cls.create(
            operands=[parser.resolve_operand(operand, kind)],
            properties=properties,
            attributes=attributes,
            result_types=cls.results_of(kind),
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.operand)
        _print_flags(self.fastmath, printer)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.operand.type)


class _Class(_Unary):
    """A truth value for each float."""

    result = result_def()

    @staticmethod
    def results_of(kind: Attribute) -> list[Attribute]:
        return [with_element(kind, i1) if isinstance(kind, VectorType) else i1]


@irdl_op_definition
class IsNaNOp(_Class):
    """`%r = math.isnan %x : vector<4xf32>`, a vector<4xi1>."""

    name = "math.isnan"


@irdl_op_definition
class IsInfOp(_Class):
    """`%r = math.isinf %x : f32`: infinity of either sign."""

    name = "math.isinf"


@irdl_op_definition
class IsFiniteOp(_Class):
    """`%r = math.isfinite %x : f32`: neither infinite nor NaN."""

    name = "math.isfinite"


@irdl_op_definition
class IsNormalOp(_Class):
    """`%r = math.isnormal %x : f32`: neither zero, subnormal, infinite nor NaN."""

    name = "math.isnormal"


@irdl_op_definition
class ErfcOp(_Unary):
    """`%r = math.erfc %x : f32`: 1 - erf(x), without its loss of digits."""

    name = "math.erfc"
    result = result_def()

    @staticmethod
    def results_of(kind: Attribute) -> list[Attribute]:
        return [kind]


@irdl_op_definition
class SincosOp(_Unary):
    """`%sin, %cos = math.sincos %x : f32`."""

    name = "math.sincos"
    sin = result_def()
    cos = result_def()

    @staticmethod
    def results_of(kind: Attribute) -> list[Attribute]:
        return [kind, kind]


@irdl_op_definition
class ClampFOp(IRDLOperation):
    """`%r = math.clampf %x to [%low, %high] : f32`: the nearest float from low to high; NaN where one is NaN."""

    name = "math.clampf"
    T: ClassVar = VarConstraint("T", AnyAttr())
    value = operand_def(T)
    min = operand_def(T)
    max = operand_def(T)
    result = result_def(T)
    fastmath = opt_prop_def(FastMathFlagsAttr)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        _of_floats(self, self.value)

    @classmethod
    def parse(cls, parser: Parser) -> Operation:
        value = parser.parse_unresolved_operand()
        parser.parse_keyword("to")
        pos = parser.pos
        ends = parser.parse_comma_separated_list(
            parser.Delimiter.SQUARE, parser.parse_unresolved_operand
        )
        if len(ends) != 2:
            parser.raise_error("expected the least and the largest value", pos, parser.pos)
        properties = _flags(parser)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kind = parser.parse_type()
        return cls.create(
            operands=[parser.resolve_operand(v, kind) for v in (value, *ends)],
            properties=properties,
            attributes=attributes,
            result_types=[kind],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.value)
        printer.print_string(" to [")
        printer.print_list([self.min, self.max], printer.print_operand)
        printer.print_string("]")
        _print_flags(self.fastmath, printer)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.value.type)


def complete() -> None:
    add_ops(Math, (IsNaNOp, IsInfOp, IsFiniteOp, IsNormalOp, ErfcOp, SincosOp, ClampFOp))
