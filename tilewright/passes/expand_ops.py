"""expand-ops: what other ops say as well becomes those.

    %n = math.isnan %x : f32                 ->      %n = arith.cmpf uno, %x, %x : f32
    %r = math.clampf %x to [%a, %b] : f32    ->      %m = arith.maximumf %x, %a ; %r = arith.minimumf %m, %b

Guarantees: the same results, and none of the ops of `EXPANSIONS`. Targets know the others only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.dialects import arith, gpu, math
from xdsl.dialects.builtin import (
    AnyFloat,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    VectorType,
    f32,
    i32,
)
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright import dtypes
from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.dialects.movement import shape_of
from tilewright.dialects.upstream import gpu as more_gpu
from tilewright.dialects.upstream import math as more_math
from tilewright.dialects.upstream import vector as more
from tilewright.dialects.upstream.arith import combining, with_element
from tilewright.passes.emit import Before, element_of, with_shape

Rule = Callable[[Any, Before], None]


def expand_ops(module: Operation) -> bool:
    """Rewrites what it finds in a module or kernel; whether it found something."""
    found = [op for op in module.walk() if type(op) in EXPANSIONS]
    for op in found:
        EXPANSIONS[type(op)](op, Before(op))
    return bool(found)


# --- Classes of floats ---------------------------------------------------------------------------


def _number(at: Before, value: float, like: Attribute) -> SSAValue:
    element = element_of(like)
    assert isinstance(element, AnyFloat)
    if isinstance(like, VectorType):
        return at.splat(value, like)
    return at.add(arith.ConstantOp(FloatAttr(value, element)))


def _isnan(op: more_math.IsNaNOp, at: Before) -> None:
    at.replace(at.add(arith.CmpfOp(op.operand, op.operand, "uno")))


def _against_infinity(predicate: str) -> Rule:
    def expand(op: Any, at: Before) -> None:
        size = at.add(math.AbsFOp(op.operand))
        infinity = _number(at, float("inf"), op.operand.type)
        at.replace(at.add(arith.CmpfOp(size, infinity, predicate)))

    return expand


def _isnormal(op: more_math.IsNormalOp, at: Before) -> None:
    kind = op.operand.type
    least = 2.0 ** (2 - 2 ** (dtypes.from_mlir(element_of(kind)).exponent_bits - 1))
    size = at.add(math.AbsFOp(op.operand))
    finite = at.add(arith.CmpfOp(size, _number(at, float("inf"), kind), "olt"))
    large = at.add(arith.CmpfOp(size, _number(at, least, kind), "oge"))
    at.replace(at.add(arith.AndIOp(finite, large)))


def _sincos(op: more_math.SincosOp, at: Before) -> None:
    at.replace(at.add(math.SinOp(op.operand)), at.add(math.CosOp(op.operand)))


def _clampf(op: more_math.ClampFOp, at: Before) -> None:
    above = at.add(arith.MaximumfOp(op.value, op.min))
    at.replace(at.add(arith.MinimumfOp(above, op.max)))


_ERFC_MIDDLE = 2.5
_ERFC = (
    -0.01881308,
    0.0801797377,
    -0.0828237245,
    -0.0847332931,
    0.158476624,
    -0.0415856157,
    0.170257578,
    0.157960184,
    0.209944423,
    0.225452062,
    0.225685102,
)
"""erfc(z) exp(z^2) / t by powers of t = 2.5 / (2.5 + z), the highest first: fitted to 1e-8 for z from 0 to 10.5."""
_ERFC_END = 10.5
"""From here on erfc is less than the least float32."""


def _erfc(op: more_math.ErfcOp, at: Before) -> None:
    """exp(-z^2) by the fitted polynomial, z^2 in two parts, so that small results are as precise as others."""
    given = op.operand.type
    element = element_of(given)
    if isinstance(element, Float64Type):
        raise error_at(op, "math.erfc of f64 is not computed", kind=UnsupportedError)
    kind = with_shape(given, shape_of(op.operand)) if isinstance(given, VectorType) else given
    wide = with_element(kind, f32) if isinstance(kind, VectorType) else f32
    x = op.operand if element == f32 else at.add(arith.ExtFOp(op.operand, wide))  # pyright: ignore

    def number(value: float) -> SSAValue:
        return _number(at, value, wide)

    size = at.add(math.AbsFOp(x))
    z = at.add(arith.MinimumfOp(size, number(_ERFC_END)))
    t = at.add(arith.DivfOp(number(_ERFC_MIDDLE), at.add(arith.AddfOp(z, number(_ERFC_MIDDLE)))))
    total = number(_ERFC[0])
    for coefficient in _ERFC[1:]:
        total = at.add(arith.AddfOp(at.add(arith.MulfOp(total, t)), number(coefficient)))
    bits = with_element(kind, i32) if isinstance(kind, VectorType) else i32
    mask = at.splat(-4096, bits) if isinstance(bits, VectorType) else _word(at, -4096)
    whole = at.add(arith.AndIOp(at.add(arith.BitcastOp(z, bits)), mask))
    high = at.add(arith.BitcastOp(whole, wide))
    square = at.add(arith.NegfOp(at.add(arith.MulfOp(high, high))))
    rest = at.add(arith.MulfOp(at.add(arith.SubfOp(high, z)), at.add(arith.AddfOp(high, z))))
    power = at.add(arith.MulfOp(at.add(math.ExpOp(square)), at.add(math.ExpOp(rest))))
    right = at.add(arith.MulfOp(power, at.add(arith.MulfOp(total, t))))
    left = at.add(arith.SubfOp(number(2.0), right))
    negative = at.add(arith.CmpfOp(x, number(0.0), "olt"))
    made = at.add(arith.SelectOp(negative, left, right))
    at.replace(made if element == f32 else at.add(arith.TruncFOp(made, given)))  # pyright: ignore


# --- Vectors ---------------------------------------------------------------------------------------


def _outerproduct(op: more.OuterProductOp, at: Before) -> None:
    shape = shape_of(op.result)
    rows = at.broadcast(at.cast(op.lhs, [shape[0], *[1] * (len(shape) - 1)]), shape)
    columns = at.broadcast(op.rhs, shape)
    product = at.add(combining("mul", rows, columns))
    at.replace(product if op.acc is None else at.add(combining(op.kind, product, op.acc)))


def _scan(op: more.ScanOp, at: Before) -> None:
    """Slice after slice along the dimension."""
    shape, dim = shape_of(op.source), op.dim
    row = [1 if d == dim else n for d, n in enumerate(shape)]
    ones = [1] * len(shape)
    kind = with_shape(op.source.type, row)

    def slice_(n: int) -> SSAValue:
        place = [n if d == dim else 0 for d in range(len(shape))]
        return at.add(more.ExtractStridedSliceOp(op.source, place, row, ones))

    total = slice_(0) if op.is_inclusive else at.cast(op.initial_value, row)
    made = at.broadcast(total, shape)
    for n in range(1, shape[dim]):
        total = at.add(combining(op.kind, total, slice_(n if op.is_inclusive else n - 1)))
        place = [n if d == dim else 0 for d in range(len(shape))]
        made = at.add(more.InsertStridedSliceOp(total, made, place, ones))
    assert total.type == kind
    at.replace(made, at.cast(total, shape_of(op.accumulated_value)))


# --- Lanes -------------------------------------------------------------------------------------------


def _word(at: Before, number: int) -> SSAValue:
    return at.add(arith.ConstantOp(IntegerAttr(number, i32)))


def _subgroup_broadcast(op: more_gpu.SubgroupBroadcastOp, at: Before) -> None:
    lane = _word(at, 0) if op.lane is None else op.lane
    width = at.add(arith.IndexCastOp(at.add(gpu.SubgroupSizeOp()), i32))
    at.replace(at.add(more_gpu.ShuffleOp(op.src, lane, width, "idx")))


def _rotate(op: more_gpu.RotateOp, at: Before) -> None:
    width = op.width.value.data
    lane = at.add(gpu.LaneIdOp())
    further = at.add(arith.AddiOp(lane, at.index(op.offset.value.data)))
    place = at.add(arith.AndIOp(further, at.index(width - 1)))
    source = at.add(arith.IndexCastOp(place, i32))
    value = at.add(more_gpu.ShuffleOp(op.value, source, _word(at, width), "idx"))
    at.replace(value, at.add(arith.CmpiOp(lane, at.index(width), "ult")))


EXPANSIONS: dict[type[Operation], Rule] = {
    more_math.IsNaNOp: _isnan,
    more_math.IsInfOp: _against_infinity("oeq"),
    more_math.IsFiniteOp: _against_infinity("olt"),
    more_math.IsNormalOp: _isnormal,
    more_math.SincosOp: _sincos,
    more_math.ClampFOp: _clampf,
    more_math.ErfcOp: _erfc,
    more.OuterProductOp: _outerproduct,
    more.ScanOp: _scan,
    more_gpu.SubgroupBroadcastOp: _subgroup_broadcast,
    more_gpu.RotateOp: _rotate,
}
"""How each op is said by others."""
