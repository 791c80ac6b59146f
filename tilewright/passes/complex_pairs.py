"""complex-pairs: a complex number is a vector of its real and its imaginary part, in an array of them too.

    %z = complex.create %x, %y : complex<f32>   ->   %z = vector.from_elements %x, %y : vector<2xf32>
    %w = complex.mul %z, %z : complex<f32>      ->   %a = vector.extract %z[0], %b = vector.extract %z[1], ..
                                                     %w = vector.from_elements %re, %im : vector<2xf32>

Quotients and magnitudes are scaled by the larger part, so that what is in range has no intermediate out of range.

Requires: nothing.  Guarantees: no op of the complex dialect and no complex type is left, or (where there is an op that
no rule is for, or a tensor of them) all is as it was.
"""

from __future__ import annotations

import math as numbers
from collections.abc import Callable

from xdsl.dialects import arith, complex, math
from xdsl.dialects.arith import AddfOp as Add
from xdsl.dialects.arith import DivfOp as Div
from xdsl.dialects.arith import MulfOp as Mul
from xdsl.dialects.arith import NegfOp as Neg
from xdsl.dialects.arith import SubfOp as Sub
from xdsl.dialects.builtin import ComplexType, ModuleOp, TensorType, VectorType
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.dialects.upstream.vector import FromElementsOp
from tilewright.passes.emit import Before
from tilewright.passes.retype import retype, types_of

Pair = tuple[SSAValue, SSAValue]
Made = Pair | SSAValue


def complex_pairs(module: ModuleOp) -> None:
    """Rewrites `module` in place."""
    ops = list(module.walk())
    if not any(map(_holds_complex, (kind for op in ops for kind in types_of(op)))):
        return
    mine = [op for op in ops if op.name.startswith("complex.")]
    if any(op.name not in _RULES for op in mine) or any(
        isinstance(kind, TensorType) and _holds_complex(kind) for op in ops for kind in types_of(op)
    ):
        return
    retype(
        ops,
        lambda kind: VectorType(kind.element_type, [2]) if isinstance(kind, ComplexType) else None,
    )
    for op in mine:
        at = Numbers(op)
        given = [at.parts(value) for value in op.operands]
        made = _RULES[op.name](at, *given)
        if isinstance(made, tuple):
            made = at.add(FromElementsOp(made, VectorType(made[0].type, [2])))
        at.replace(made)


def _holds_complex(kind: Attribute) -> bool:
    return isinstance(getattr(kind, "element_type", kind), ComplexType) or isinstance(
        kind, ComplexType
    )


class Numbers(Before):
    """Inserts arithmetic of real numbers and of pairs of them."""

    def f(self, kind: Callable[..., Operation], *values: SSAValue) -> SSAValue:
        return self.add(kind(*values))

    def number(self, like: SSAValue, value: float) -> SSAValue:
        return self.constant(like.type, value)

    def parts(self, value: SSAValue) -> Made:
        if not isinstance(value.type, VectorType):
            return value
        return self.component(value, 0), self.component(value, 1)

    def chosen(
        self, predicate: str, x: SSAValue, y: SSAValue, yes: SSAValue, no: SSAValue
    ) -> SSAValue:
        return self.add(arith.SelectOp(self.add(arith.CmpfOp(x, y, predicate)), yes, no))


def _constant(at: Numbers) -> Pair:
    op = at.op
    assert isinstance(op, complex.ConstantOp)
    kind = op.results[0].type.element_type  # pyright: ignore
    re, im = (at.constant(kind, each.value.data) for each in op.value)
    return re, im


def _each(kind: Callable[..., Operation]) -> Callable[..., Pair]:
    return lambda at, *pairs: tuple(at.f(kind, *parts) for parts in zip(*pairs, strict=True))  # pyright: ignore


def _multiply(at: Numbers, x: Pair, y: Pair) -> Pair:
    (a, b), (c, d) = x, y
    return (
        at.f(Sub, at.f(Mul, a, c), at.f(Mul, b, d)),
        at.f(Add, at.f(Mul, a, d), at.f(Mul, b, c)),
    )


def _divide(at: Numbers, x: Pair, y: Pair) -> Pair:
    """By the divisor's larger part first; where that is the imaginary one, as i x / (i y) with parts exchanged."""
    (a, b), (c, d) = x, y
    sizes = at.f(math.AbsFOp, c), at.f(math.AbsFOp, d)
    u, v, p, q = (at.chosen("oge", *sizes, *sides) for sides in ((c, d), (d, c), (a, b), (b, a)))
    ratio = at.f(Div, v, u)
    whole = at.f(Add, u, at.f(Mul, v, ratio))
    re = at.f(Div, at.f(Add, p, at.f(Mul, q, ratio)), whole)
    im = at.f(Div, at.f(Sub, q, at.f(Mul, p, ratio)), whole)
    return re, at.chosen("oge", *sizes, im, at.f(Neg, im))


def _abs(at: Numbers, z: Pair) -> SSAValue:
    sizes = [at.f(math.AbsFOp, part) for part in z]
    most, least = at.f(arith.MaximumfOp, *sizes), at.f(arith.MinimumfOp, *sizes)
    ratio = at.f(Div, least, most)
    root = at.f(math.SqrtOp, at.f(Add, at.number(most, 1), at.f(Mul, ratio, ratio)))
    # Two zeros and two infinities have no ratio.
    root = at.chosen("oeq", most, least, at.number(most, numbers.sqrt(2)), root)
    return at.f(Mul, most, root)


def _angle(at: Numbers, z: Pair) -> SSAValue:
    return at.f(math.Atan2Op, z[1], z[0])


def _exp(at: Numbers, z: Pair) -> Pair:
    size = at.f(math.ExpOp, z[0])
    return at.f(Mul, size, at.f(math.CosOp, z[1])), at.f(Mul, size, at.f(math.SinOp, z[1]))


def _expm1(at: Numbers, z: Pair) -> Pair:
    """exp(x) cos(y) - 1 = (exp(x) - 1) cos(y) - 2 sin(y/2)^2."""
    half = at.f(math.SinOp, at.f(Mul, z[1], at.number(z[1], 0.5)))
    re = at.f(Mul, at.f(math.ExpM1Op, z[0]), at.f(math.CosOp, z[1]))
    return at.f(Sub, re, at.f(Mul, at.f(Add, half, half), half)), _exp(at, z)[1]


def _log(at: Numbers, z: Pair) -> Pair:
    return at.f(math.LogOp, _abs(at, z)), _angle(at, z)


def _log1p(at: Numbers, z: Pair) -> Pair:
    """log |1 + z| = log1p(x (x + 2) + y^2) / 2."""
    x, y = z
    more = at.f(Add, at.f(Mul, x, at.f(Add, x, at.number(x, 2))), at.f(Mul, y, y))
    size = at.f(Mul, at.f(math.Log1pOp, more), at.number(x, 0.5))
    return size, at.f(math.Atan2Op, y, at.f(Add, x, at.number(x, 1)))


def _sqrt(at: Numbers, z: Pair) -> Pair:
    """The root of half of |z| + |x|, and the other part from it: nothing cancels."""
    x, y = z
    zero, half = at.number(x, 0), at.number(x, 0.5)
    whole = at.f(Add, _abs(at, z), at.f(math.AbsFOp, x))
    root = at.f(math.SqrtOp, at.f(Mul, whole, half))
    other = at.chosen("oeq", root, zero, y, at.f(Div, at.f(Mul, y, half), root))
    return (
        at.chosen("oge", x, zero, root, at.f(math.AbsFOp, other)),
        at.chosen("oge", x, zero, other, at.f(math.CopySignOp, root, y)),
    )


def _sin(at: Numbers, z: Pair) -> Pair:
    x, y = z
    return (
        at.f(Mul, at.f(math.SinOp, x), at.f(math.CoshOp, y)),
        at.f(Mul, at.f(math.CosOp, x), at.f(math.SinhOp, y)),
    )


def _cos(at: Numbers, z: Pair) -> Pair:
    x, y = z
    return (
        at.f(Mul, at.f(math.CosOp, x), at.f(math.CoshOp, y)),
        at.f(Neg, at.f(Mul, at.f(math.SinOp, x), at.f(math.SinhOp, y))),
    )


def _tanh(at: Numbers, z: Pair) -> Pair:
    """(t + iu) / (1 + itu), where t is tanh x and u is tan y."""
    t, u = at.f(math.TanhOp, z[0]), at.f(math.TanOp, z[1])
    return _divide(at, (t, u), (at.number(t, 1), at.f(Mul, t, u)))


def _tan(at: Numbers, z: Pair) -> Pair:
    """tanh(iz) / i."""
    re, im = _tanh(at, (at.f(Neg, z[1]), z[0]))
    return im, at.f(Neg, re)


def _pow(at: Numbers, z: Pair, w: Pair) -> Pair:
    """exp(w log z); 0 to the 0 is 1, and any other power of 0 is 0."""
    power, zero = _exp(at, _multiply(at, w, _log(at, z))), at.number(z[0], 0)
    size, exponent = _abs(at, z), _abs(at, w)
    of_zero = at.chosen("oeq", exponent, zero, at.number(zero, 1), zero), zero
    re, im = (at.chosen("oeq", size, zero, *sides) for sides in zip(of_zero, power, strict=True))
    return re, im


def _sign(at: Numbers, z: Pair) -> Pair:
    size, zero = _abs(at, z), at.number(z[0], 0)
    re, im = (at.chosen("oeq", size, zero, part, at.f(Div, part, size)) for part in z)
    return re, im


def _rsqrt(at: Numbers, z: Pair) -> Pair:
    return _divide(at, (at.number(z[0], 1), at.number(z[0], 0)), _sqrt(at, z))


def _equal(predicate: str, both: type[Operation]) -> Callable[..., SSAValue]:
    def rule(at: Numbers, x: Pair, y: Pair) -> SSAValue:
        pairs = zip(x, y, strict=True)
        return at.f(both, *(at.add(arith.CmpfOp(a, b, predicate)) for a, b in pairs))

    return rule


_RULES: dict[str, Callable[..., Made]] = {
    "complex.constant": _constant,
    "complex.create": lambda at, re, im: (re, im),
    "complex.re": lambda at, z: z[0],
    "complex.im": lambda at, z: z[1],
    "complex.conj": lambda at, z: (z[0], at.f(Neg, z[1])),
    "complex.neg": _each(Neg),
    "complex.add": _each(Add),
    "complex.sub": _each(Sub),
    "complex.mul": _multiply,
    "complex.div": _divide,
    "complex.abs": _abs,
    "complex.angle": _angle,
    "complex.exp": _exp,
    "complex.expm1": _expm1,
    "complex.log": _log,
    "complex.log1p": _log1p,
    "complex.sqrt": _sqrt,
    "complex.rsqrt": _rsqrt,
    "complex.sin": _sin,
    "complex.cos": _cos,
    "complex.tan": _tan,
    "complex.tanh": _tanh,
    "complex.pow": _pow,
    "complex.sign": _sign,
    "complex.eq": _equal("oeq", arith.AndIOp),
    "complex.neq": _equal("une", arith.OrIOp),
}
