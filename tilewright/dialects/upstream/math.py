"""math: the ops that stock xDSL lacks: classes of floats, sine and cosine at once, clamping."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.arith import FastMathFlagsAttr
from xdsl.dialects.builtin import AnyFloat, i1
from xdsl.dialects.math import Math
from xdsl.ir import SSAValue
from xdsl.irdl import traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.fields import Follows, Op, Operand, OptProp, op_definition, variable
from tilewright.dialects.upstream.arith import NO_FLAGS, element, with_element
from tilewright.dialects.upstream.complete import add_ops

_FLAGS = "(`fastmath` `` $fastmath^)? attr-dict `:` type"


def _of_floats(value: SSAValue) -> None:
    if not isinstance(element(value.type), AnyFloat):
        raise VerifyException(f"takes floats or vectors of floats, got {value.type}")


class _Unary(Op):
    """`%r = math.isnan %x fastmath<..> : f32`: one float, or a vector of them."""

    operand: Operand = Operand()
    fastmath: OptProp[FastMathFlagsAttr] = OptProp(
        FastMathFlagsAttr, default=NO_FLAGS, implicit=True
    )
    traits = traits_def(Pure())
    assembly_format: ClassVar = f"$operand {_FLAGS}($operand)"

    def verify_(self) -> None:
        _of_floats(self.operand)


class _Class(_Unary):
    """A truth value for each float."""

    result = Follows("operand", rule=lambda kind: with_element(kind, i1))


@op_definition
class IsNaNOp(_Class):
    """`%r = math.isnan %x : vector<4xf32>`, a vector<4xi1>."""

    name = "math.isnan"


@op_definition
class IsInfOp(_Class):
    """`%r = math.isinf %x : f32`: infinity of either sign."""

    name = "math.isinf"


@op_definition
class IsFiniteOp(_Class):
    """`%r = math.isfinite %x : f32`: neither infinite nor NaN."""

    name = "math.isfinite"


@op_definition
class IsNormalOp(_Class):
    """`%r = math.isnormal %x : f32`: neither zero, subnormal, infinite nor NaN."""

    name = "math.isnormal"


@op_definition
class ErfcOp(_Unary):
    """`%r = math.erfc %x : f32`: 1 - erf(x), without its loss of digits."""

    name = "math.erfc"
    result = Follows("operand")


@op_definition
class SincosOp(_Unary):
    """`%sin, %cos = math.sincos %x : f32`."""

    name = "math.sincos"
    sin = Follows("operand")
    cos = Follows("operand")


@op_definition
class ClampFOp(Op):
    """`%r = math.clampf %x to [%low, %high] : f32`: the nearest float from low to high; NaN where one is NaN."""

    name = "math.clampf"
    value: Operand = Operand()
    min: Operand = Operand(variable("value"))
    max: Operand = Operand(variable("value"))
    result = Follows("value")
    fastmath: OptProp[FastMathFlagsAttr] = OptProp(
        FastMathFlagsAttr, default=NO_FLAGS, implicit=True
    )
    traits = traits_def(Pure())
    assembly_format = f"$value `to` `[` $min `,` $max `]` {_FLAGS}($value)"

    def verify_(self) -> None:
        _of_floats(self.value)


def complete() -> None:
    add_ops(Math, (IsNaNOp, IsInfOp, IsFiniteOp, IsNormalOp, ErfcOp, SincosOp, ClampFOp))
