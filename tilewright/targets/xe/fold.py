"""xe-fold: arithmetic on numbers that are known is done here.

    %a = arith.muli %id, %c0 ; %b = arith.addi %a, %c1 ; %c = arith.minui %b, %c0      ->      %c = 0
    %m = arith.cmpi slt, dense<[0, 8]>, dense<4> ; %s = arith.andi %m, %n              ->      one constant, or %n
    xegpu.store %v, %a[%i], %false                                                     ->      nothing

The offline compiler of 2022 fails, without a word, on some modules with arithmetic of constants on constants, and
aborts on loops whose values are chosen by masks that it finds to be constant; and the text is shorter. Requires: a
lane program. Guarantees: the same results.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import arith, gpu, memref, vector
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
)
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.dialects import xegpu
from tilewright.dialects.numerals import number_attr
from tilewright.dialects.upstream.arith import (
    PREDICATES,
    WHOLE,
    constant,
    constants,
    element,
    holds,
)
from tilewright.passes.budget import poll
from tilewright.passes.cleanup import eliminate_dead
from tilewright.passes.emit import Before, Behind
from tilewright.passes.fold_identities import kept
from tilewright.passes.integers import bounds

_WIDTH = 64
_BIT = IntegerType(1)
_ULT = PREDICATES.index("ult")

Numbers = tuple[int, ...]
"""Constants, one per element; of a scalar and of a splat one."""


def _unsigned(x: int) -> int:
    return x % (1 << _WIDTH)


_FUNCTIONS: dict[type[Operation], Callable[[int, int], int]] = {
    **WHOLE,
    arith.MinUIOp: lambda a, b: min(a, b, key=_unsigned),
    arith.MaxUIOp: lambda a, b: max(a, b, key=_unsigned),
}


def fold(kernel: gpu.FuncOp) -> bool:
    """Folds constants. Index arithmetic, comparisons and masks; returns whether there was something."""
    changed = False
    for op in list(kernel.walk()):
        poll()
        if isinstance(op, memref.DimOp | memref.ExtractStridedMetaDataOp):
            changed |= _extents(op)
            continue
        if isinstance(op, xegpu.StoreScatterOp) and numbers(op.mask) == (0,):
            Rewriter.erase_op(op)
            changed = True
            continue
        found = _value(op)
        if found is None:
            continue
        changed = True
        at = Before(op)
        if isinstance(found, IntegerAttr | DenseIntOrFPElementsAttr):
            found = at.add(arith.ConstantOp(found))
        at.replace(found)
    if changed:
        eliminate_dead(kernel.body.block)
    return changed


def _extents(op: memref.DimOp | memref.ExtractStridedMetaDataOp) -> bool:
    """Extents that a type states are constants."""
    kind = op.operands[0].type
    if not isinstance(kind, MemRefType):
        return False
    shape = kind.get_shape()
    known: list[tuple[SSAValue, int]] = []
    if isinstance(op, memref.DimOp):
        n = constant(op.index)
        known = [(op.result, shape[n])] if n is not None and 0 <= n < len(shape) else []
    else:
        known = list(zip(op.results[2 : 2 + len(shape)], shape, strict=True))
    changed = False
    for value, extent in known:
        if extent < 0 or value.first_use is None:
            continue
        value.replace_all_uses_with(Behind(op).index(extent))
        changed = True
    return changed


def scalar_of(value: SSAValue) -> SSAValue:
    """What a splat repeats; else the value."""
    return value.owner.source if isinstance(value.owner, vector.BroadcastOp) else value


def numbers(value: SSAValue) -> Numbers | None:
    """The constants that a value is; None where it is none. Bits are 0 and 1."""
    value = scalar_of(value)
    known = constants(value)
    if known is None:
        return None
    found = tuple(x & 1 if element(value.type) == _BIT else x for x in known)
    return found[:1] if len(set(found)) == 1 else found


def together(a: Numbers, b: Numbers) -> list[tuple[int, int]]:
    """Pairs, element by element; a splat meets every element."""
    count = max(len(a), len(b))
    return list(zip(*(x * count if len(x) == 1 else x for x in (a, b)), strict=True))


def _below(value: SSAValue, extent: SSAValue) -> bool | None:
    """Is a number below an extent, as their ranges show? None where they do not, or elements differ."""
    (low, high), (least, most) = bounds(value), bounds(extent)
    if low is None or low < 0 or least is None or least < 0:
        return None
    if most is not None and low >= most:
        return False
    return True if high is not None and high < least else None


def _value(op: Operation) -> SSAValue | IntegerAttr | DenseIntOrFPElementsAttr | None:
    """What an op gives: a constant, one of its operands, or something unknown (None)."""
    if isinstance(op, arith.IndexCastOp) and isinstance(op.result.type, IndexType):
        number = constant(op.input)
        return None if number is None else IntegerAttr(number, IndexType())
    if isinstance(op, arith.SelectOp):
        chosen = numbers(op.cond)
        return op.lhs if chosen == (1,) else op.rhs if chosen == (0,) else None
    if isinstance(op, vector.ExtractOp) and isinstance(op.result.type, IntegerType | IndexType):
        known, at = numbers(op.vector), op.static_position.get_values()
        if known is None or len(at) != 1 or len(op.operands) != 1:
            return None
        return number_attr(op.result.type, *(known if len(known) == 1 else known[at[0] :]))
    if len(op.results) != 1 or len(op.operands) != 2:
        return None
    one, two = op.operands
    a, b = numbers(one), numbers(two)
    kind = op.results[0].type
    if isinstance(op, arith.CmpiOp) and isinstance(element(one.type), IndexType):
        if a is None or b is None:
            below = _below(one, two) if op.predicate.value.data == _ULT else None
            return None if below is None else number_attr(kind, below)
        number = op.predicate.value.data
        return number_attr(kind, *(holds(number, x, y) for x, y in together(a, b)))
    if isinstance(op, arith.AndIOp) and element(kind) == _BIT:
        if a == (0,) or b == (0,):
            return number_attr(kind, 0)
        if a is not None and b is not None:
            return number_attr(kind, *(x & y for x, y in together(a, b)))
        return kept(op)
    if not isinstance(element(kind), IndexType) or type(op) not in _FUNCTIONS:
        return None
    if a is not None and b is not None:
        whole = [_unsigned(_FUNCTIONS[type(op)](x, y)) for x, y in together(a, b)]
        return number_attr(kind, *(x - (x >> _WIDTH - 1 << _WIDTH) for x in whole))
    if isinstance(op, arith.MuliOp) and (0,) in (a, b):
        return number_attr(kind, 0)
    return kept(op)
