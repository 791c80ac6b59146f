"""mem2reg: memory of one thread whose elements are all written where it is made becomes the values written.

    %s = memref.alloca() : memref<2xindex>
    memref.store %n, %s[%c0] : memref<2xindex>
    %m = memref.load %s[%c0] : memref<2xindex>        ->    uses of %m are uses of %n

Guarantees: the same results. Memory of which more is made than stores and loads of elements with constant indices
stays as it is, and so does memory with a store in a branch or loop, or a load of what no store before it wrote.
Targets whose arrays have no place in a thread's memory then need none.
"""

from __future__ import annotations

from xdsl.dialects import memref
from xdsl.dialects.builtin import NoneAttr
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.dialects.upstream.arith import constant


def mem2reg(module: Operation) -> bool:
    """Rewrites what it finds in a module or kernel; whether it found something."""
    made = [op for op in module.walk() if isinstance(op, memref.AllocaOp)]
    return sum(map(_promote, made)) > 0


def _promote(alloca: memref.AllocaOp) -> bool:
    block = alloca.parent
    space = alloca.memref.type.memory_space
    if block is None or not isinstance(space, NoneAttr):
        return False
    stores: dict[Operation, memref.StoreOp] = {}
    loads: dict[Operation, list[memref.LoadOp]] = {}
    for use in alloca.memref.uses:
        op = use.operation
        if isinstance(op, memref.StoreOp) and op.value is not alloca.memref and op.parent is block:
            stores[op] = op
        elif isinstance(op, memref.LoadOp):
            place = block.find_ancestor_op_in_block(op)
            if place is None:
                return False
            loads.setdefault(place, []).append(op)
        else:
            return False
    found: dict[memref.LoadOp, SSAValue] = {}
    held: dict[tuple[int, ...], SSAValue] = {}
    for place in block.ops:
        for load in loads.get(place, ()):
            at = _element(load)
            if at is None or at not in held:
                return False
            found[load] = held[at]
        if (store := stores.get(place)) is not None:
            if (at := _element(store)) is None:
                return False
            made = store.value.owner
            held[at] = (
                found[made] if isinstance(made, memref.LoadOp) and made in found else store.value
            )
    for load, value in found.items():
        Rewriter.replace_op(load, [], [value])
    for op in (*stores, alloca):
        Rewriter.erase_op(op)
    return True


def _element(op: memref.LoadOp | memref.StoreOp) -> tuple[int, ...] | None:
    """Which element an op reads or writes; None where its indices are no constants."""
    found = [constant(index) for index in op.indices]
    known = tuple(n for n in found if n is not None)
    return known if len(known) == len(found) else None
