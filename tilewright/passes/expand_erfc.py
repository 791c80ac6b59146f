"""erfc, as expand-ops writes it: a polynomial, and exp of a square in two parts.

    %r = math.erfc %x : f32     ->     exp(-h^2) exp((h - z) (h + z)) t p(t),  t = c / (c + z), z = |x|

and 2 less that of negative x.

h has the upper half of z's bits, so that its square is exact, and small results are as precise as others.
"""

from __future__ import annotations

from typing import Any

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import VectorType, f32, f64, i32, i64
from xdsl.ir import Attribute, SSAValue

from tilewright.dialects.movement import shape_of
from tilewright.dialects.upstream import math as more_math
from tilewright.dialects.upstream.arith import with_element
from tilewright.passes.emit import Before, element_of, with_shape

_ERFC = (
    -0.01881308, 0.0801797377, -0.0828237245, -0.0847332931, 0.158476624, -0.0415856157,
    0.170257578, 0.157960184, 0.209944423, 0.225452062, 0.225685102,
)  # fmt: skip
"""erfc(z) exp(z^2) / t by powers of t = 2.5 / (2.5 + z), the highest first: fitted to 1e-8 for z from 0 to 10.5."""
_ERFC_OF_F64 = (
    -0.0016696016384154877, 0.01562757191867463, -0.06226557049356456, 0.13333058560874037,
    -0.15252881792378825, 0.04937709109877898, 0.1323988769491949, -0.28254795385051,
    0.3103739860888748, -0.22777339393041407, 0.15115179679446666, -0.030501320473824065,
    0.06548240056386184, 0.056838737057245195, 0.08227284671229226, 0.09883722391554542,
    0.11503899263661566, 0.1278219580795201, 0.13663980433089887, 0.14104739057579088,
    0.14104739598001578,
)  # fmt: skip
"""The same of t = 4 / (4 + z): fitted to 8e-16 for z from 0 to 27."""


def erfc(op: more_math.ErfcOp, at: Before) -> None:
    """From the last z on it is less than the least number; narrower floats than f32 are computed in f32."""
    given = op.operand.type
    element = element_of(given)
    wide_element, whole_element = (f64, i64) if element == f64 else (f32, i32)
    middle, end, low_bits = (4.0, 27.3, 27) if element == f64 else (2.5, 10.5, 12)
    first, *others = _ERFC_OF_F64 if element == f64 else _ERFC
    kind = with_shape(given, shape_of(op.operand)) if isinstance(given, VectorType) else given

    def of(element: Attribute) -> Any:
        return with_element(kind, element) if isinstance(kind, VectorType) else element

    wide, bits = of(wide_element), of(whole_element)
    x = op.operand if element == wide_element else at.add(arith.ExtFOp(op.operand, wide))

    def number(value: float) -> SSAValue:
        return at.constant(wide, value)

    size = at.add(math.AbsFOp(x))
    z = at.add(arith.MinimumfOp(size, number(end)))
    t = at.add(arith.DivfOp(number(middle), at.add(arith.AddfOp(z, number(middle)))))
    total = number(first)
    for coefficient in others:
        total = at.add(arith.AddfOp(at.add(arith.MulfOp(total, t)), number(coefficient)))
    mask = at.constant(bits, -(1 << low_bits))
    whole = at.add(arith.AndIOp(at.add(arith.BitcastOp(z, bits)), mask))
    high = at.add(arith.BitcastOp(whole, wide))
    square = at.add(arith.NegfOp(at.add(arith.MulfOp(high, high))))
    rest = at.add(arith.MulfOp(at.add(arith.SubfOp(high, z)), at.add(arith.AddfOp(high, z))))
    power = at.add(arith.MulfOp(at.add(math.ExpOp(square)), at.add(math.ExpOp(rest))))
    right = at.add(arith.MulfOp(power, at.add(arith.MulfOp(total, t))))
    left = at.add(arith.SubfOp(number(2.0), right))
    negative = at.add(arith.CmpfOp(x, number(0.0), "olt"))
    made = at.add(arith.SelectOp(negative, left, right))
    at.replace(made if element == wide_element else at.add(arith.TruncFOp(made, given)))  # pyright: ignore
