"""host-checks: what is undefined in host code is reported where it happens, before it happens.

    %q = arith.divsi %a, %b : i32     ->     %zero = arith.cmpi eq, %b, %c0 : i32
                                             scf.if %zero { mach.call @tw_undefined(%site, ..) }
                                             %q = arith.divsi %a, %b : i32

Checked are assertions, divisors, steps of loops, extents of allocations, parts that subviews take, shapes of copies and
casts: few ops of a program, none of its loads and stores (an address outside of every allocation ends the worker).
Compiled code goes through LLVM's passes, for which all but assertions cannot fail: they would print anything, loop for
ever, or go on.

Requires: host functions; run after the passes that look for loops.  Guarantees: the same results, or a call of
`tw_undefined` with the number of an entry of the returned list, which does not return.  What is known to be right from
constants costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from xdsl.dialects import arith, cf, memref, scf, vector
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    FixedBitwidthType,
    IndexType,
    IntegerType,
    MemRefType,
    ModuleOp,
    VectorType,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.diagnostics import CheckError, TilewrightError, error_at
from tilewright.dialects import mach
from tilewright.dialects.movement import memref_type
from tilewright.dialects.numerals import number_attr
from tilewright.dialects.upstream.arith import constants, element
from tilewright.dialects.upstream.subview import static_parts
from tilewright.dialects.upstream.vector import ShapeCastOp
from tilewright.frozen import frozen, record
from tilewright.passes.emit import Inserter

UNDEFINED = "tw_undefined"
"""The runtime's function (number of the check, a number that its message shows)."""

MOST_BYTES = 1 << 47
"""Of an allocation: all addresses that a process has."""

_SIGNED = ("divsi", "remsi", "floordivsi", "ceildivsi", "divs", "rems", "floordivs", "ceildivs")
_UNSIGNED = ("divui", "remui", "ceildivui", "divu", "remu", "ceildivu")


@frozen
class Check:
    """One place that may turn out to be undefined; `{value}` of its message is a number of the run."""

    op: str
    message: str
    location: Attribute

    def error(self, value: int) -> TilewrightError:
        message = f"{self.op}: {self.message.format(value=value)}"
        return error_at(self.location, message, kind=CheckError)


def host_checks(module: ModuleOp) -> list[Check]:
    """Put the checks in front of the ops of every function of `module`, in place."""
    found: list[Check] = []
    for op in list(module.walk()):
        rule = _RULES.get(op.name)
        if rule is not None:
            rule(_Inserter(op, found))
    return found


@record
class _Inserter(Inserter):
    """Makes ops in front of `op`."""

    op: Operation
    found: list[Check]

    def number(self, value: int, type: Attribute | None = None) -> SSAValue:
        return self.add(arith.ConstantOp(number_attr(type or IndexType(), value)))

    def compare(self, how: str, a: SSAValue, b: SSAValue | int) -> SSAValue:
        right = self.number(b, a.type) if isinstance(b, int) else b
        return self.add(arith.CmpiOp(a, right, how))

    def either(self, *conditions: SSAValue) -> SSAValue:
        first, *rest = conditions
        for other in rest:
            first = self.add(arith.OrIOp(first, other))
        return first

    def extent(self, source: SSAValue, axis: int) -> SSAValue | int:
        """How long `source` is, a number where its type says so."""
        assert isinstance(source.type, MemRefType)
        known = source.type.get_shape()[axis]
        return (
            known if known != DYNAMIC_INDEX else self.add(memref.DimOp(source, self.number(axis)))
        )

    def value(self, given: SSAValue | int) -> SSAValue:
        return self.number(given) if isinstance(given, int) else given

    def end_where(self, condition: SSAValue, message: str, value: SSAValue | None = None) -> None:
        """Where `condition` holds, the program ends with the message."""
        number = len(self.found)
        self.found.append(Check(self.op.name, message, self.op.location))

        def end() -> None:
            shown = self.number(0, i64) if value is None else value
            if isinstance(shown.type, IndexType):
                shown = self.add(arith.IndexCastOp(shown, i64))
            self.insert(mach.CallOp(UNDEFINED, [self.number(number, i64), shown]))

        self.choose(condition, [], end)


def _division(at: _Inserter, signed: bool) -> None:
    a, b = at.op.operands
    known = constants(b)
    if known is not None and not any(v in ((0, -1) if signed else (0,)) for v in known):
        return
    at.end_where(_any(at, at.compare("eq", b, 0)), "division by zero")
    if signed:
        kind = element(a.type)
        width = kind.width.data if isinstance(kind, IntegerType) else 64
        least = at.compare("eq", a, -(1 << (width - 1)))
        both = at.add(arith.AndIOp(least, at.compare("eq", b, -1)))
        at.end_where(_any(at, both), "division whose quotient does not fit")


def _any(at: _Inserter, condition: SSAValue) -> SSAValue:
    """Whether any element of a condition holds, as an i1."""
    type = condition.type
    if not isinstance(type, VectorType):
        return condition
    bits: Any = VectorType(IntegerType(8), type.get_shape())
    condition = at.add(arith.ExtUIOp(condition, bits))
    flat = VectorType(element(bits), [prod(type.get_shape())])
    if flat != bits:
        condition = at.add(ShapeCastOp(condition, flat))
    kind = vector.CombiningKindAttr(vector.CombiningKindFlag.OR)
    reduction = vector.ReductionOp.create(
        operands=[condition],
        result_types=[element(bits)],
        properties={"kind": kind, "fastmath": arith.FastMathFlagsAttr("none")},
    )
    return at.compare("ne", at.add(reduction), 0)


def _step(at: _Inserter, steps: Sequence[SSAValue]) -> None:
    for step in steps:
        known = constants(step)
        if known is None or known[0] < 1:
            at.end_where(
                at.compare("sle", step, 0),
                "needs a step above zero, and has {value}",
                _wide(at, step),
            )


def _wide(at: _Inserter, value: SSAValue) -> SSAValue:
    """An integer as one of 64 bits, or an index."""
    narrow = isinstance(value.type, IntegerType) and value.type.width.data < 64
    return at.add(arith.ExtSIOp(value, i64)) if narrow else value


def _allocation(at: _Inserter) -> None:
    type = memref_type(at.op.results[0])
    kind = type.element_type
    bits = kind.bitwidth if isinstance(kind, FixedBitwidthType) else 64
    fixed = prod(n for n in type.get_shape() if n != DYNAMIC_INDEX) * max(1, bits // 8)
    if fixed > MOST_BYTES:
        raise error_at(at.op, f"{at.op.name} of {fixed} bytes, more than there are addresses")
    dynamic = list(at.op.operands)[: list(type.get_shape()).count(DYNAMIC_INDEX)]
    for extent in dynamic:
        if (known := constants(extent)) is None or known[0] < 0:
            at.end_where(at.compare("slt", extent, 0), "an extent of {value}", extent)
    if not dynamic or not fixed:
        return
    total, carries = at.number(fixed, i64), []
    for extent in dynamic:
        count = at.add(arith.IndexCastOp(extent, i64))
        product = arith.MulUIExtendedOp(total, count)
        total = at.add(product)
        carries.append(at.compare("ne", product.results[1], 0))
    wrong = at.either(*carries, at.compare("ugt", total, MOST_BYTES))
    at.end_where(wrong, "more bytes than there are addresses")


def _subview(at: _Inserter) -> None:
    op = at.op
    assert isinstance(op, memref.SubviewOp)
    given = [iter(part) for part in (op.offsets, op.sizes, op.strides)]
    for axis, written in enumerate(zip(*static_parts(op), strict=True)):
        part = [
            next(values) if number == DYNAMIC_INDEX else number
            for values, number in zip(given, written, strict=True)
        ]
        extent = at.extent(op.source, axis)
        if all(isinstance(p, int) for p in (*part, extent)):
            continue  # the verifier has seen it
        offset, size, stride, whole = map(at.value, (*part, extent))
        before = at.either(at.compare("slt", offset, 0), at.compare("slt", size, 0))
        steps = at.add(arith.SubiOp(size, at.number(1)))
        last = at.add(arith.AddiOp(offset, at.add(arith.MuliOp(steps, stride))))
        some = at.compare(
            "ne", size, 0
        )  # MLIR's loops over more threads than tiles begin empty parts anywhere
        beyond = at.add(arith.AndIOp(some, at.compare("uge", last, whole)))
        outside = at.either(before, beyond)
        at.end_where(outside, f"dimension {axis} runs out-of-bounds: up to {{value}}", last)


def _copy(at: _Inserter) -> None:
    source, target = at.op.operands
    _same_extents(at, source, target, "copies between shapes that differ in dimension {axis}")


def _cast(at: _Inserter) -> None:
    source, result = at.op.operands[0], at.op.results[0].type
    if not isinstance(source.type, MemRefType) or not isinstance(result, MemRefType):
        return
    for axis, wanted in enumerate(result.get_shape()):
        extent = at.extent(source, axis)
        if wanted != DYNAMIC_INDEX and isinstance(extent, SSAValue):
            message = f"dimension {axis} is {{value}} long, not {wanted}"
            at.end_where(at.compare("ne", extent, wanted), message, extent)


def _same_extents(at: _Inserter, a: SSAValue, b: SSAValue, message: str) -> None:
    assert isinstance(a.type, MemRefType)
    for axis in range(a.type.get_num_dims()):
        left, right = at.extent(a, axis), at.extent(b, axis)
        if isinstance(left, int) and isinstance(right, int):
            continue
        differ = at.compare("ne", at.value(left), at.value(right))
        at.end_where(differ, message.replace("{axis}", str(axis)))


def _assertion(at: _Inserter) -> None:
    assert isinstance(at.op, cf.AssertOp)
    message = at.op.msg.data.replace("{", "{{").replace("}", "}}")
    fails = at.compare("eq", at.op.arg, 0)
    at.end_where(fails, f"assertion failed: {message}")
    Rewriter.erase_op(at.op)


def _parallel_steps(at: _Inserter) -> None:
    assert isinstance(at.op, scf.ParallelOp)
    _step(at, list(at.op.step))


_RULES: dict[str, Callable[[_Inserter], None]] = {
    **{f"{d}.{n}": lambda at: _division(at, True) for d in ("arith", "index") for n in _SIGNED},
    **{f"{d}.{n}": lambda at: _division(at, False) for d in ("arith", "index") for n in _UNSIGNED},
    "cf.assert": _assertion,
    "scf.for": lambda at: _step(at, [at.op.operands[2]]),
    "scf.parallel": _parallel_steps,
    "memref.alloc": _allocation,
    "memref.alloca": _allocation,
    "memref.subview": _subview,
    "memref.copy": _copy,
    "memref.cast": _cast,
}
