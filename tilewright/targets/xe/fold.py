"""xe-fold: arithmetic on numbers that are known is done here.

    %a = arith.muli %id, %c0 ; %b = arith.addi %a, %c1 ; %c = arith.minui %b, %c0      ->      %c = 0

The offline compiler of 2022 fails, without a word, on some modules with arithmetic of constants on constants; and the
text is shorter. Requires: a lane program. Guarantees: the same results.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import arith, gpu, memref
from xdsl.dialects.builtin import IndexType, IntegerAttr, IntegerType, MemRefType
from xdsl.ir import Operation, SSAValue

from tilewright.codegen.scf import constant_integer

_WIDTH = 64


def _unsigned(x: int) -> int:
    return x % (1 << _WIDTH)


_FUNCTIONS: dict[type[Operation], Callable[[int, int], int]] = {
    arith.AddiOp: lambda a, b: a + b,
    arith.SubiOp: lambda a, b: a - b,
    arith.MuliOp: lambda a, b: a * b,
    arith.MaxSIOp: max,
    arith.MinSIOp: min,
    arith.MinUIOp: lambda a, b: a if _unsigned(a) <= _unsigned(b) else b,
    arith.MaxUIOp: lambda a, b: a if _unsigned(a) >= _unsigned(b) else b,
}
_COMPARISONS: tuple[Callable[[int, int], bool], ...] = (
    lambda a, b: a == b,
    lambda a, b: a != b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
    lambda a, b: _unsigned(a) < _unsigned(b),
    lambda a, b: _unsigned(a) <= _unsigned(b),
    lambda a, b: _unsigned(a) > _unsigned(b),
    lambda a, b: _unsigned(a) >= _unsigned(b),
)
"""By the number of the predicate of arith.cmpi."""


def fold(kernel: gpu.FuncOp) -> bool:
    """Folds index arithmetic, comparisons and masks of a kernel; True where there was something."""
    changed = False
    for op in list(kernel.walk()):
        if isinstance(op, memref.DimOp | memref.ExtractStridedMetaDataOp):
            changed |= _extents(op)
            continue
        found = _value(op)
        if found is None:
            continue
        changed = True
        if isinstance(found, IntegerAttr):
            made = arith.ConstantOp(found)
            made.location = op.location
            assert op.parent is not None
            op.parent.insert_op_before(made, op)
            found = made.result
        op.results[0].replace_all_uses_with(found)
        op.detach()
        op.erase()
    return changed


def _extents(op: memref.DimOp | memref.ExtractStridedMetaDataOp) -> bool:
    """Extents that a type states are constants."""
    kind = op.operands[0].type
    if not isinstance(kind, MemRefType):
        return False
    shape = kind.get_shape()
    known: list[tuple[SSAValue, int]] = []
    if isinstance(op, memref.DimOp):
        n = constant_integer(op.index)
        known = [(op.result, shape[n])] if n is not None and 0 <= n < len(shape) else []
    else:
        known = list(zip(op.results[2 : 2 + len(shape)], shape, strict=True))
    changed = False
    for value, extent in known:
        if extent < 0 or value.first_use is None:
            continue
        made = arith.ConstantOp(IntegerAttr(extent, IndexType()))
        made.location = op.location
        assert op.parent is not None
        op.parent.insert_op_after(made, op)
        value.replace_all_uses_with(made.result)
        changed = True
    return changed


def _value(op: Operation) -> SSAValue | IntegerAttr | None:
    """What an op gives: a constant, one of its operands, or something unknown (None)."""
    if len(op.results) != 1 or len(op.operands) != 2:
        return None
    one, two = op.operands
    a, b = constant_integer(one), constant_integer(two)
    if isinstance(op, arith.CmpiOp) and isinstance(one.type, IndexType):
        if a is None or b is None:
            return None
        return IntegerAttr(int(_COMPARISONS[op.predicate.value.data](a, b)), IntegerType(1))
    if isinstance(op, arith.AndIOp) and op.results[0].type == IntegerType(1):
        if a == 0 or b == 0:
            return IntegerAttr(0, IntegerType(1))
        return two if a else one if b else None
    if not isinstance(op.results[0].type, IndexType) or type(op) not in _FUNCTIONS:
        return None
    if a is not None and b is not None:
        whole = _unsigned(_FUNCTIONS[type(op)](a, b))
        return IntegerAttr(whole - (whole >> _WIDTH - 1 << _WIDTH), IndexType())
    if isinstance(op, arith.AddiOp) and 0 in (a, b):
        return two if a == 0 else one
    if isinstance(op, arith.SubiOp) and b == 0:
        return one
    if isinstance(op, arith.MuliOp) and (0 in (a, b) or 1 in (a, b)):
        return IntegerAttr(0, IndexType()) if 0 in (a, b) else two if a == 1 else one
    return None
