"""Whether two memrefs of the host, or of a program of tiles, may share memory.

    %t = memref.alloc() : memref<8x8xf32>              %t and %a do not: %a was there before
    %p = memref.subview %a[0, 0] [4, 8] [1, 1] : ..    %p and %q do not: the rows of the one end where those of the
    %q = memref.subview %a[4, 0] [4, 8] [1, 1] : ..    other begin

Arrays that are different arguments of a function or kernel do not overlap where one is written: launches check it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from xdsl.dialects import func, gpu, memref
from xdsl.dialects.builtin import MemRefType, UnrankedMemRefType
from xdsl.ir import Block, BlockArgument, OpResult, SSAValue

from tilewright.dialects.upstream.memref import TransposeOp
from tilewright.dialects.upstream.subview import kept_dimensions
from tilewright.dialects.xetile.assembly import merge_indices
from tilewright.passes.affine import Expr
from tilewright.passes.induction import Scalars, same_view
from tilewright.passes.memory_objects import is_allocation, memory_root, memory_roots

MEMREF = (MemRefType, UnrankedMemRefType)
_Box = Sequence[tuple[Expr, Expr]]
"""By dimension of an array the first index, and how many."""


def overlap(a: SSAValue, b: SSAValue) -> bool:
    """Whether two memrefs that are there at the same time may share memory."""
    if not isinstance(a.type, MEMREF) or not isinstance(b.type, MEMREF):
        return False
    roots = _root(a), _root(b)
    if _are_apart(*roots) or all(_are_apart(*each) for each in product(*map(memory_roots, roots))):
        return False
    return a is b or not (roots[0] is roots[1] and _is_known(roots[0]) and _are_other_parts(a, b))


def _root(value: SSAValue) -> SSAValue:
    """What a memref is a view or a transpose of."""
    value = memory_root(value)
    while isinstance(value.owner, TransposeOp):
        value = memory_root(value.owner.in_)
    return value


def _are_apart(a: SSAValue, b: SSAValue) -> bool:
    both = _is_known(a) and _is_known(b)
    return a is not b and (both or _is_newer(a, b) or _is_newer(b, a))


def _is_known(root: SSAValue) -> bool:
    return is_allocation(root) or _is_argument(root) or _is_global(root)


def _is_newer(root: SSAValue, other: SSAValue) -> bool:
    """Whether memory was allocated when another memref, wherever that came from, was there."""
    if not is_allocation(root) or not isinstance(root, OpResult):
        return False
    block = other.owner if isinstance(other.owner, Block) else other.owner.parent
    at = None if block is None else block.find_ancestor_op_in_block(root.op)
    if at is None:
        return False
    return isinstance(other.owner, Block) or other.owner.is_before_in_block(at)


def _is_argument(root: SSAValue) -> bool:
    function = root.block.parent_op() if isinstance(root, BlockArgument) else None
    return isinstance(function, func.FuncOp | gpu.FuncOp)


def _is_global(root: SSAValue) -> bool:
    return isinstance(root, OpResult) and isinstance(root.op, memref.GetGlobalOp)


def _are_other_parts(a: SSAValue, b: SSAValue) -> bool:
    """Whether two memrefs are parts of one array that have no index in common."""
    scalars = Scalars()
    (array, box), (other, opposite) = _part(a, scalars), _part(b, scalars)
    return array is other and any(
        (first - last - count).is_nonnegative
        for sides in zip(box, opposite, strict=True)
        for (last, count), (first, _) in (sides, sides[::-1])
    )


def _part(value: SSAValue, scalars: Scalars) -> tuple[SSAValue, _Box]:
    """The root of a memref, or the last view on the way there that is no subview with steps of 1, and which part of
    that the memref is."""
    views: list[memref.SubviewOp] = []
    value = same_view(value)
    while isinstance(value.owner, memref.SubviewOp) and set(
        value.owner.static_strides.get_values()
    ) == {1}:
        views.append(value.owner)
        value = same_view(value.owner.source)
    if not isinstance(value.type, MemRefType) or memory_root(value) is not value:
        return value, ()
    dims = range(value.type.get_num_dims())
    box = [(Expr.of(0), scalars.extent(value, d)) for d in dims]
    places = list(dims)
    for view in reversed(views):
        starts = merge_indices(view.static_offsets, view.offsets)
        counts = merge_indices(view.static_sizes, view.sizes)
        for d, start, count in zip(places, starts, counts, strict=True):
            box[d] = box[d][0] + scalars.expr(start), scalars.expr(count)
        places = [places[d] for d in kept_dimensions(view)]
    return value, box
