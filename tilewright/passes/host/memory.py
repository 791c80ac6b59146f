"""Which memory the memrefs of host code may point to, and whether the rounds of a loop keep apart.

A whole program is here, so every array comes from an allocation that can be seen: a memref's *roots* are the
allocations that it may be a view of.  Two memrefs without a root in common do not overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects import arith, func, gpu, memref, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, OpResult, SSAValue

from tilewright.passes.carried import origins
from tilewright.passes.memory_objects import points_into

Roots = frozenset[object] | None
"""Allocating ops; None where it may be any memory."""

_ALLOCATIONS = (memref.AllocOp, memref.AllocaOp, gpu.AllocOp)
_PURE = ("arith.", "math.", "index.")
_QUIET = (scf.ForOp, scf.IfOp, scf.YieldOp)


class HostMemory:
    """Roots of the memrefs of a module of host functions."""

    def __init__(self, module: ModuleOp) -> None:
        self._functions = {
            op.sym_name.data: op for op in module.body.block.ops if isinstance(op, func.FuncOp)
        }
        self._calls: dict[str, list[func.CallOp]] = {}
        for op in module.walk():
            if isinstance(op, func.CallOp):
                self._calls.setdefault(op.callee.string_value(), []).append(op)
        self._known: dict[SSAValue, Roots] = {}

    def roots(self, value: SSAValue) -> Roots:
        if value not in self._known:
            found = frozenset(root.owner for root in origins([value], self._points_into))
            all_known = all(isinstance(owner, _ALLOCATIONS) for owner in found)
            self._known[value] = found if found and all_known else None
        return self._known[value]

    def learn(self, value: SSAValue, same: SSAValue) -> None:
        """A memref that is another by a new name."""
        self._known[value] = self.roots(same)

    def _points_into(self, value: SSAValue) -> Sequence[SSAValue]:
        """As `points_into`, into functions and out of them. A reinterpret_cast may repeat elements: it counts as memory
        that is not known."""
        owner = value.owner
        if isinstance(owner, func.CallOp):
            callee = self._functions.get(owner.callee.string_value())
            ends = (op for op in callee.walk() if isinstance(op, func.ReturnOp)) if callee else ()
            return [end.operands[cast(OpResult, value).index] for end in ends]
        if isinstance(value, BlockArgument):
            function = value.block.parent_op()
            if isinstance(function, func.FuncOp) and value.block is function.body.blocks[0]:
                calls = self._calls.get(function.sym_name.data, [])
                return [call.arguments[value.index] for call in calls]
        return () if isinstance(owner, memref.ReinterpretCastOp) else points_into(value)

    def overlap(self, a: SSAValue, b: SSAValue) -> bool:
        """Whether two memrefs may share an element."""
        left, right = self.roots(a), self.roots(b)
        return left is None or right is None or bool(left & right)

    def independent(self, loop: scf.ForOp) -> bool:
        """Whether the rounds of a loop may run in any order and at the same time, with the same results.

        So it is where the loop carries nothing, and what one round stores no other touches: all accesses to
        an array that is stored to are through one memref, and some index of theirs tells the rounds apart.
        """
        if list(loop.iter_args):
            return False
        stores: list[memref.StoreOp] = []
        accesses: list[memref.StoreOp | memref.LoadOp] = []
        for op in loop.body.walk():
            if isinstance(op, memref.StoreOp):
                stores.append(op)
                accesses.append(op)
            elif isinstance(op, memref.LoadOp):
                accesses.append(op)
            elif not isinstance(op, _QUIET) and not op.name.startswith(_PURE):
                return False
        return all(
            store is other
            or not self.overlap(store.memref, other.memref)
            or _apart(loop, store, other)
            for store in stores
            for other in accesses
        ) and all(
            self.roots(store.memref) is not None and _apart(loop, store, store) for store in stores
        )


def _apart(
    loop: scf.ForOp, a: memref.StoreOp | memref.LoadOp, b: memref.StoreOp | memref.LoadOp
) -> bool:
    """Whether two accesses touch the same element in the same round only: a memref that each round chooses may be
    several views of one memory."""
    if a.memref is not b.memref or loop.is_ancestor(a.memref.owner):
        return False
    pairs = zip(a.indices, b.indices, strict=True)
    return any((key := _round(loop, i)) is not None and key == _round(loop, j) for i, j in pairs)


def _round(loop: scf.ForOp, index: SSAValue) -> tuple[SSAValue, ...] | None:
    """The terms from outside of the loop that are added to its counter, where the index is such a sum."""
    terms: list[SSAValue] = []
    counter = loop.body.block.args[0]
    while index is not counter:
        owner = index.owner
        if not isinstance(owner, arith.AddiOp):
            return None
        left, right = owner.operands
        if not loop.is_ancestor(right.owner):
            index, term = left, right
        elif not loop.is_ancestor(left.owner):
            index, term = right, left
        else:
            return None
        terms.append(term)
    return tuple(sorted(terms, key=id))
