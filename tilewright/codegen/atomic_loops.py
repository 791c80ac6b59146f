"""Atomics that a code generator has no instruction for, as loops of compare and exchange.

    %old = mach.atomic_rmw "mulf" %x, %p : f32, !llvm.ptr
    ->
    %first = mach.atomic_load %p : !llvm.ptr -> i32
    %last = scf.while (%known = %first) : (i32) -> i32 {
      %new = arith.mulf (arith.bitcast %known), %x
      %seen, %won = mach.cmpxchg %p, %known, (arith.bitcast %new) : !llvm.ptr, i32
      scf.condition(%won is 0) %seen
    } ..
    %old = arith.bitcast %last

What is compared is the bits of the element; where the target exchanges no word so short, the aligned word around them,
whose other bits are written back as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xdsl.dialects import arith, memref, scf, vector
from xdsl.dialects.builtin import AnyFloat, IntegerType, i1
from xdsl.dialects.vector import CombiningKindAttr, CombiningKindFlag
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.codegen.builder import Builder, replace
from tilewright.codegen.target import LLVMTarget
from tilewright.codegen.tiles import itemsize
from tilewright.codegen.vector_memory import array_of, element_at
from tilewright.dialects import mach
from tilewright.dialects.upstream.combining import ATOMIC_KINDS, reduction_of
from tilewright.dialects.upstream.generic_atomic import GenericAtomicRMWOp
from tilewright.dtypes import from_mlir

ATOMICS = (memref.AtomicRMWOp, GenericAtomicRMWOp, mach.AtomicRmwOp)


def expand_atomic(op: Operation, target: LLVMTarget) -> None:
    """Rewrites in place one of `ATOMICS` that `target` has no instruction for, or that is on an element of a memref."""
    if isinstance(op, memref.AtomicRMWOp):
        kind = ATOMIC_KINDS[op.kind.value.data]
        (made,) = replace(op, lambda b, op=op: [_on_memref(b, op, kind, target)])
        assert isinstance(made.owner, Operation)
        op = made.owner
    if isinstance(op, GenericAtomicRMWOp):
        replace(op, lambda b: [exchange(b, op, _element(b, op, target), {}, target.least_atomic)])
    if isinstance(op, mach.AtomicRmwOp) and not _has(target, op):
        replace(op, lambda b: [_by_kind(b, op, target.least_atomic)])


def _on_memref(b: Builder, op: memref.AtomicRMWOp, kind: str, target: LLVMTarget) -> SSAValue:
    pointer = _element(b, op, target)
    return b.value(mach.AtomicRmwOp(kind, op.value, pointer, ordering="acq_rel"))


def exchange(
    b: Builder,
    op: GenericAtomicRMWOp,
    pointer: SSAValue,
    outside: Mapping[SSAValue, SSAValue],
    least: int = 8,
) -> SSAValue:
    """What the region computes of the element at `pointer`; what it takes from `outside` is called otherwise here."""

    def new(now: SSAValue) -> SSAValue:
        known = {**outside, op.now: now}
        for inner in list(op.atomic_body.block.ops)[:-1]:
            b.op(inner.clone(known))
        return known.get(op.new, op.new)

    return _loop(b, pointer, op.result.type, new, least, "acq_rel", None)


def _element(
    b: Builder, op: memref.AtomicRMWOp | GenericAtomicRMWOp, target: LLVMTarget
) -> SSAValue:
    array = array_of(b, op, op.memref, target)
    return element_at(b, array, itemsize(array.element), op.indices)


def _has(target: LLVMTarget, op: mach.AtomicRmwOp) -> bool:
    kind, type = op.kind, op.value.type
    if kind in target.lacks_atomics:
        return False
    if isinstance(type, AnyFloat):
        return from_mlir(type).name in target.atomic_floats
    return not isinstance(type, IntegerType) or type.width.data >= target.least_atomic


def _by_kind(b: Builder, op: mach.AtomicRmwOp, least: int) -> SSAValue:
    kind = op.kind

    def new(now: SSAValue) -> SSAValue:
        if kind == "assign":
            return op.value
        return b.combine(reduction_of(kind), now, op.value)

    scope = None if op.scope is None else op.scope
    return _loop(b, op.pointer, op.value.type, new, least, op.ordering, scope)


def exchange_vector(
    b: Builder, kind: str, value: SSAValue, pointer: SSAValue, on: SSAValue
) -> SSAValue:
    """Combines the elements that are `on` with those of the aligned word at `pointer`, all at once, if there is one;
    the elements before, 0 for those that are not."""
    nothing = b.constant(value.type, 0)

    def desired(known: SSAValue) -> SSAValue:
        new = value if kind == "assign" else b.combine(reduction_of(kind), known, value)
        return b.value(arith.SelectOp(on, new, known))

    def swapped() -> list[SSAValue]:
        before = _swapped(b, pointer, value.type, desired, "monotonic", None)
        return [b.value(arith.SelectOp(on, before, nothing))]

    some = b.value(vector.ReductionOp(on, CombiningKindAttr(CombiningKindFlag.OR)))
    return b.choose(some, swapped, lambda: [nothing])[0]


def _loop(
    b: Builder,
    pointer: SSAValue,
    type: Attribute,
    new: Callable[[SSAValue], SSAValue],
    least: int,
    ordering: str,
    scope: str | None,
) -> SSAValue:
    bits = IntegerType(8 * itemsize(type))
    word = IntegerType(max(bits.width.data, least))
    shift = None
    if word != bits:
        pointer, shift = _aligned(b, pointer, word)

    def desired(known: SSAValue) -> SSAValue:
        return _to_word(b, new(_from_word(b, known, type, bits, shift)), known, bits, shift)

    last = _swapped(b, pointer, word, desired, ordering, scope)
    return _from_word(b, last, type, bits, shift)


def _swapped(
    b: Builder,
    pointer: SSAValue,
    word: Attribute,
    desired: Callable[[SSAValue], SSAValue],
    ordering: str,
    scope: str | None,
) -> SSAValue:
    """Read, compute, and write unless another wrote in between: then again with what it wrote. The word before."""
    first = b.value(mach.AtomicLoadOp(pointer, word, ordering="monotonic", scope=scope))
    before, after = Block(arg_types=[word]), Block(arg_types=[word])
    with b.inside(before):
        (known,) = before.args
        swap = mach.CmpxchgOp(pointer, known, desired(known), ordering=ordering, scope=scope)
        b.op(swap)
        failed = b.value(arith.XOrIOp(swap.success, b.constant(i1, 1)))
        b.op(scf.ConditionOp(failed, swap.old))
    with b.inside(after):
        b.op(scf.YieldOp(after.args[0]))
    return b.value(scf.WhileOp([first], [word], Region(before), Region(after)))


def _aligned(b: Builder, pointer: SSAValue, word: IntegerType) -> tuple[SSAValue, SSAValue]:
    """The word that holds the bytes at `pointer`, and by how many bits they are shifted there (little-endian)."""
    rest = b.rem(b.value(mach.IntFromPtrOp(pointer)), word.width.data // 8)
    start = b.value(mach.PtrAddOp(pointer, b.idx(b.minus(0, rest))))
    return start, b.value(arith.IndexCastOp(b.idx(b.times(rest, 8)), word))


def _from_word(
    b: Builder, word: SSAValue, type: Attribute, bits: IntegerType, shift: SSAValue | None
) -> SSAValue:
    """The element in its type."""
    if shift is not None:
        word = b.value(arith.TruncIOp(b.value(arith.ShRUIOp(word, shift)), bits))
    if word.type == type:
        return word
    if isinstance(type, AnyFloat):
        return b.value(arith.BitcastOp(word, type))
    return b.value(arith.TruncIOp(word, type))  # pyright: ignore


def _to_word(
    b: Builder, x: SSAValue, known: SSAValue, bits: IntegerType, shift: SSAValue | None
) -> SSAValue:
    """The word with the element in it, and its other bits as they were known."""
    if isinstance(x.type, AnyFloat):
        x = b.value(arith.BitcastOp(x, bits))
    elif x.type != bits:
        x = b.value(arith.ExtUIOp(x, bits))
    if shift is None:
        return x
    ones = b.constant(known.type, (1 << bits.width.data) - 1)
    hole = b.value(arith.XOrIOp(b.value(arith.ShLIOp(ones, shift)), b.constant(known.type, -1)))
    moved = b.value(arith.ShLIOp(b.value(arith.ExtUIOp(x, known.type)), shift))  # pyright: ignore
    return b.value(arith.OrIOp(b.value(arith.AndIOp(known, hole)), moved))
