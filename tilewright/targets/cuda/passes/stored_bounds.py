"""stored-bounds: which rows or columns of a product's operand no store writes, for they lie beyond the array that the
product is stored to.

    %a = load_tile A[%m, %k]    ->    %a = load_tile A[%m, %k] {stage.stored = [0, 2, 0]}
    %d = tile_mma %a, %b, %acc
    store_tile %d, C[%m, %n]

Requires: XeTile at workgroup level, before programs are shared out (`split-k`, `persistent`), while places of loads
and stores can be compared. Guarantees: nothing is changed. `stage.stored` of a load has three numbers for each bound, a
dimension, an array argument and a dimension of that: elements from the coordinate on at which this ends are unseen.

Row i of %a reaches row i of %d alone, which is dropped where %m + i is beyond C's rows. So whatever A's rows from there
on are, nothing of them is seen: they need not be loaded.

Followed forwards: products (rows of A, columns of B), transposes, what is done element by element, what control flow
carries, sums of clusters. Anything else (a reduction, an atomic, k itself, a store elsewhere) sees every element.
"""

from __future__ import annotations

from xdsl.dialects import gpu, scf
from xdsl.dialects.builtin import DenseArrayBase, MemRefType, VectorType, i64
from xdsl.ir import BlockArgument, Operation, SSAValue, Use

from tilewright.dialects import stage, xetile
from tilewright.dialects.elementwise import DIVISIONS, is_elementwise
from tilewright.dialects.upstream.vector import TransposeOp
from tilewright.passes.access import Access, AccessAnalysis, AccessKind
from tilewright.passes.carried import carried_together

STORED = "stage.stored"
Bound = tuple[int, int]
"""(array argument, dimension) whose extent bounds what is stored, counted in coordinates of the loaded array."""
_Along = tuple[SSAValue, int]
"""A value, and which of its dimensions the dimension of the load has become."""


def note_stored_bounds(function: gpu.FuncOp, analysis: AccessAnalysis | None = None) -> None:
    """Notes rows and columns of products' operands that no store writes: they are not copied.

    `analysis`: the function's, where it is made.
    """
    analysis = analysis or AccessAnalysis(function)
    for op in function.walk():
        if not isinstance(op, xetile.LoadTileOp):
            continue
        bounds = [(dim, stored_bound(op, dim, analysis)) for dim in range(2)]
        found = [n for dim, bound in bounds if bound is not None for n in (dim, *bound)]
        if found:
            op.attributes[STORED] = DenseArrayBase.from_list(i64, found)


def bounds_of(load: xetile.LoadTileOp) -> tuple[int, ...]:
    """What `note_stored_bounds` noted."""
    found = load.attributes.get(STORED)
    return tuple(found.get_values()) if isinstance(found, DenseArrayBase) else ()  # pyright: ignore


def stored_bound(load: xetile.LoadTileOp, dim: int, analysis: AccessAnalysis) -> Bound | None:
    """The one bound of all stores that elements at a place along a dimension (0 or 1) of a load reach; None where
    something else sees them.
    """
    loaded = analysis.find(load)
    if loaded is None or loaded.scattered or len(load.results) != 1:
        return None
    work: list[_Along] = [(load.results[0], dim)]
    seen = set(work)
    bounds: set[Bound | None] = set()
    while work:
        value, along = work.pop()
        for use in value.uses:
            if isinstance(use.operation, xetile.StoreTileOp):
                bounds.add(_of_store(loaded, dim, analysis.find(use.operation), along, analysis))
                continue
            following = _following(use, along)
            if following is None:
                return None
            new = [step for step in following if step not in seen]
            seen.update(new)
            work += new
    return bounds.pop() if len(bounds) == 1 else None


def _of_store(
    loaded: Access, dim: int, stored: Access | None, along: int, analysis: AccessAnalysis
) -> Bound | None:
    """The extent that clips a store along a dimension of its tile, where it begins at the load's coordinate."""
    if stored is None or stored.scattered or stored.kind is not AccessKind.STORE:
        return None
    base = stored.base
    if not isinstance(base, BlockArgument) or not isinstance(base.type, MemRefType):
        return None
    place = len(stored.offsets) - 2 + along
    if base is not stored.root or base.type.get_num_dims() != len(stored.offsets):
        return None
    here = loaded.offsets[len(loaded.offsets) - 2 + dim]
    if here != stored.offsets[place] or loaded.shape[dim] != stored.shape[along]:
        return None
    if stored.extents[place] != analysis.extent(base, place):
        return None
    return base.index, place


def _following(use: Use, along: int) -> list[_Along] | None:
    """What the elements at a place reach by one use; None where that may be elements at other places."""
    op, value = use.operation, use.operation.operands[use.index]
    match op:
        case xetile.TileMmaOp():
            along_k = use.index == 1 - along  # columns of A, rows of B
            return None if along_k else [(op.result, along)]
        case xetile.TransposeOp() | TransposeOp():
            permutation = tuple(op.permutation)
            return [(op.results[0], permutation.index(along))] if len(permutation) == 2 else None
        case stage.ClusterSumOp():
            return [(op.result, along)] if along == 0 or op.result.type == value.type else None
        case scf.YieldOp() if isinstance(op.parent_op(), scf.ForOp | scf.IfOp):
            around = op.parent_op()
            assert around is not None
            return _carried(around, value, along)
        case scf.ForOp():
            return _carried(op, value, along)
        case _ if _each(op, value):
            return [(result, along) for result in op.results]
        case _:
            return None


def _carried(op: Operation, value: SSAValue, along: int) -> list[_Along]:
    return [(name, along) for names in carried_together(op) if value in names for name in names]


def _each(op: Operation, value: SSAValue) -> bool:
    """Does an op do the same to every element of tiles of one shape, whatever they are?"""
    if op.name in DIVISIONS:
        return False
    shapes = {v.type.get_shape() for v in op.results if isinstance(v.type, VectorType)}
    assert isinstance(value.type, VectorType)
    same = shapes == {value.type.get_shape()} and len(value.type.get_shape()) == 2
    return same and (is_elementwise(op) or op.name == "xetile.convert_layout")
