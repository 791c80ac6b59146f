"""precision: what may be approximate is as precise as what becomes of it.

    %e = math.exp %x {fastmath<afn>} : f32          %e = math.exp %x {fastmath<afn>, mach.bits = 8}
    %y = arith.mulf %e, %r {fastmath<afn>}    ->    %y = arith.mulf %e, %r {fastmath<afn>}
    %z = arith.truncf %y : f32 to bf16              %z = arith.truncf %y {fastmath<afn>} : f32 to bf16

    %e = math.erf %x {fastmath<afn>} : f32           %n = arith.negf %x
    %s = arith.addf %1, %e {fastmath<afn>}     ->    %s = math.erfc %n {fastmath<afn>, mach.bits = 8}

(1 + tanh x is 2 / (1 + exp(-2 x)).)

    %t = math.tanh %x {fastmath<afn>}                 %t = math.tanh %x {fastmath<afn>, mach.absolute}
    %s = arith.mulf %t, %cap                    ->    ...
    %e = math.exp (%s - max %s)

Requires: workgroup level. Guarantees: only ops that the program lets be approximate (`afn`) change: an exponential, a
quotient and the sum of 1 and an error function or tanh have two bits more than the narrowest float through which
everything computed from them passes (1 + erf under 2^-25 is zero, as it is in f32, and a divisor under 2^-128 counts as
zero); what approximate arithmetic or a product of bf16 (of which tile instructions make no denormals either) gives, may
be zero as bf16 where it would be denormal.

A tanh times numbers that all elements share, of which nothing but exponentials with few bits come, may have an
absolute error, a few times 2^-24 (`loosen_exponents`): about what the largest of such exponents is rounded by, where
some tangent is near 1. Where none is, a large number makes the error seen, and so do many sums: numbers are constants,
and what they and sums make of an error is bounded (`MOST`).
Maxima of them may be in any exponential: all that they are subtracted from is scaled by the same.

How many bits of a value matter is read off its uses, to the fixed point where loops carry it. Products, quotients,
maxima and rearrangements keep a relative error; so do sums of what is not negative. All else asks for every bit.
"""

from __future__ import annotations

from math import ceil, log2

from xdsl.dialects import arith, gpu, math, scf
from xdsl.dialects.builtin import (
    BFloat16Type,
    Float16Type,
    Float32Type,
    IntegerAttr,
    UnitAttr,
    VectorType,
)
from xdsl.dialects.utils import FastMathFlag
from xdsl.ir import Attribute, Operation, OpResult, SSAValue

from tilewright.dialects import xetile as xt
from tilewright.dialects.fused import ContractOp
from tilewright.dialects.movement import ELEMENTS
from tilewright.dialects.nesting import values_made
from tilewright.dialects.upstream.math import ErfcOp
from tilewright.passes.carried import LOOPS_AND_BRANCHES, carried_together, given_by
from tilewright.passes.emit import Before
from tilewright.passes.fold_identities import splat

EVERY = 24
"""Bits of an f32."""
MOST = 2.0**12
"""How many times the absolute error of a tanh an exponent may have: a constant of 2^11, and a difference."""
NARROW: dict[type[Attribute], int] = {BFloat16Type: 8, Float16Type: 11}
EXPONENTIALS = ("math.exp", "math.exp2")
_KEEPS = frozenset(
    (
        *ELEMENTS,
        *(
            "arith.mulf",
            "arith.divf",
            "arith.negf",
            "arith.extf",
            "arith.maximumf",
            "arith.minimumf",
        ),
        *("arith.maxnumf", "arith.minnumf", "math.absf", "xetile.convert_layout", "arith.truncf"),
    )
)
"""Ops that keep a relative error, and (but for negf) give nothing negative of what is not."""
EXTREMES = ("maximumf", "minimumf", "maxnumf", "minnumf")
_SHIFTS = frozenset(
    (
        *ELEMENTS,
        *("arith.negf", "arith.select"),
        *(f"arith.{kind}" for kind in EXTREMES),
    )
)
"""Ops that keep an absolute error."""
_AFN = arith.FastMathFlagsAttr([FastMathFlag.APPROX_FUNC])


def lower_precision(function: gpu.FuncOp) -> None:
    """Lowers the precision of approximate functions, quotients and conversions to what their uses need."""
    ops = list(function.walk())
    for op in ops:
        if isinstance(op, arith.TruncFOp) and _element(op.result) is BFloat16Type:
            source = op.operands[0].owner
            if isinstance(source, Operation) and (_is_approximate(source) or _of_bf16(source)):
                op.attributes["fastmath"] = _AFN
    approximate = [op for op in ops if _is_approximate(op)]
    approximate = [op for op in approximate if _element(op.results[0]) is Float32Type]
    lowered = [op for op in approximate if op.name in EXPONENTIALS or _is_quotient(op)]
    complements = {op: f for op in approximate if (f := _complement(op)) is not None}
    if not lowered and not complements:
        return
    needed = _needed(ops)
    for op in (*lowered, *complements):
        bits = needed.get(op.results[0], 0)
        if not 0 < bits < EVERY:
            continue
        for changed in _lowered_complement(op, complements[op]) if op in complements else (op,):
            changed.attributes["mach.bits"] = IntegerAttr(bits, 64)


def loosen_exponents(function: gpu.FuncOp) -> int:
    """Lets tangents that are part of exponents have an absolute error instead of a relative one. Returns how many."""
    found = [op for op in function.walk() if isinstance(op, math.TanhOp) and _is_approximate(op)]
    found = [op for op in found if _element(op.result) is Float32Type]
    needed = _needed([*function.walk()]) if found else {}
    found = [op for op in found if _gives_exponents(op.result, needed)]
    for op in found:
        op.attributes["mach.absolute"] = UnitAttr()
    return len(found)


def _gives_exponents(value: SSAValue, needed: dict[SSAValue, int]) -> bool:
    """Does nothing come of a value but exponentials of few bits, and of maxima any?"""
    waiting, seen = [(value, False, 1.0)], dict[tuple[SSAValue, bool], float]()
    while waiting:
        value, reduced, factor = waiting.pop()
        if not factor <= MOST:  # or no number
            return False
        factor = 2.0 ** ceil(log2(max(factor, 1.0)))  # few powers: loops end soon
        if factor <= seen.get((value, reduced), 0.0):
            continue
        seen[value, reduced] = factor
        for use in value.uses:
            op = use.operation
            if op.name in EXPONENTIALS:
                if not reduced and needed[op.results[0]] > max(NARROW.values()):
                    return False
                continue
            given = op.parent_op() if isinstance(op, scf.YieldOp) else op
            if isinstance(given, LOOPS_AND_BRANCHES):
                groups = [group for group in carried_together(given) if value in group]
                waiting += [(v, reduced, factor) for group in groups for v in group]
                if not groups:
                    return False
            elif isinstance(op, xt.ReductionOp) and op.kind in EXTREMES:
                waiting.append((op.result, True, factor))
            elif isinstance(op, arith.AddfOp | arith.SubfOp):  # the other may have an error, too
                waiting.append((op.result, reduced, 2 * factor))
            elif op.name in _SHIFTS and not (isinstance(op, arith.SelectOp) and use.index == 0):
                waiting += [(r, reduced, factor) for r in op.results]
            elif isinstance(op, arith.MulfOp) and (by := [*filter(None, map(splat, op.operands))]):
                waiting.append((op.result, reduced, factor * abs(by[0])))
            else:
                return False
    return True


def _is_quotient(op: Operation) -> bool:
    """By what is no constant, which is multiplied by its inverse."""
    return isinstance(op, arith.DivfOp) and splat(op.rhs) is None


def _complement(op: Operation) -> math.ErfOp | math.TanhOp | None:
    """The error function or tangent that is added to 1, or taken from it; None for another op."""
    if not isinstance(op, arith.AddfOp | arith.SubfOp) or not isinstance(
        op.result.type, VectorType
    ):
        return None
    for one, other in (op.operands, *([op.operands[::-1]] if isinstance(op, arith.AddfOp) else ())):
        function = other.owner
        if not isinstance(function, math.ErfOp | math.TanhOp) or not _is_approximate(function):
            continue
        if splat(one) == 1:
            return function
    return None


def _lowered_complement(op: Operation, function: math.ErfOp | math.TanhOp) -> list[Operation]:
    """Replaces 1 + erf x by erfc(-x), 1 + tanh x by 2 / (1 + exp(-2 x)); gives the new ops that may be approximate."""
    at, x, kind = Before(op), function.operands[0], op.results[0].type
    assert isinstance(kind, VectorType)
    adds, flags = isinstance(op, arith.AddfOp), function.fastmath
    made: list[Operation]
    if isinstance(function, math.ErfOp):
        argument = at.add(arith.NegfOp(x)) if adds else x
        erfc = ErfcOp.create(
            operands=[argument], result_types=[kind], properties={"fastmath": flags}
        )
        made = [at.insert(erfc)]
    else:
        twice = at.add(arith.MulfOp(x, at.constant(kind, -2.0 if adds else 2.0), flags))
        power = at.insert(math.ExpOp(twice, flags))
        below = at.add(arith.AddfOp(power.results[0], at.constant(kind, 1.0), flags))
        made = [power, at.insert(arith.DivfOp(at.constant(kind, 2.0), below, flags))]
    at.replace(made[-1].results[0])
    if function.result.first_use is None:
        Before(function).replace()
    return made


def _needed(ops: list[Operation]) -> dict[SSAValue, int]:
    """Bits that matter of the values of a kernel; 0 of what nobody uses."""
    positive = _not_negative(ops)
    needed: dict[SSAValue, int] = {}
    changed = True

    def ask(value: SSAValue, bits: int) -> None:
        nonlocal changed
        if bits > needed.get(value, 0):
            needed[value], changed = bits, True

    while changed:
        changed = False
        for op in reversed(ops):
            most = max((needed.get(r, 0) for r in op.results), default=0)
            if isinstance(op, LOOPS_AND_BRANCHES):
                for group in carried_together(op):
                    together = max(needed.get(v, 0) for v in group)
                    for value in group:
                        ask(value, together)
            elif isinstance(op, arith.TruncFOp) and (bits := NARROW.get(_element(op.result))):
                ask(op.operands[0], bits)
            elif not isinstance(op, scf.YieldOp):
                keeps = op.name in _KEEPS or (
                    (isinstance(op, arith.AddfOp) or _is_sum(op))
                    and all(v in positive for v in op.operands)
                )
                for value in op.operands:
                    ask(value, most if keeps else EVERY)
    return needed


def _not_negative(ops: list[Operation]) -> set[SSAValue]:
    """Values without negative elements: the most that no op contradicts."""
    values = [value for op in ops for value in values_made(op)]
    found: set[SSAValue] = set(values)

    def holds(value: SSAValue) -> bool:
        if given := given_by(value):
            return all(v in found for v in given)
        if not isinstance(value, OpResult):
            return False
        op = value.op
        if isinstance(op, arith.ConstantOp):
            number = splat(value)
            return isinstance(number, int | float) and number >= 0
        if op.name in (*EXPONENTIALS, "math.absf", "math.sqrt", "math.rsqrt"):
            return True
        if op.name in ("arith.maximumf", "arith.maxnumf"):
            return any(v in found for v in op.operands)
        keeps = op.name in _KEEPS and op.name != "arith.negf"
        return (keeps or isinstance(op, arith.AddfOp) or _is_sum(op)) and all(
            v in found for v in op.operands
        )

    while contradicted := [v for v in found if not holds(v)]:
        found.difference_update(contradicted)
    return found


def _is_sum(op: Operation) -> bool:
    return isinstance(op, xt.ReductionOp) and op.kind == "add"


def _is_approximate(op: Operation) -> bool:
    flags = op.properties.get("fastmath")
    return isinstance(flags, arith.FastMathFlagsAttr) and FastMathFlag.APPROX_FUNC in flags.data


def _of_bf16(op: Operation) -> bool:
    """A sum of products of bf16?"""
    return isinstance(op, ContractOp) and all(
        _element(v) is BFloat16Type for pair in op.pairs for v in pair
    )


def _element(value: SSAValue) -> type[Attribute]:
    return type(getattr(value.type, "element_type", value.type))
