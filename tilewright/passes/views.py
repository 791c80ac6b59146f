"""fold-views: a tile of a part of an array becomes a tile of the array that ends where the part does.

    %v = memref.subview %A[%r, 0] [%n, %w] [1, 1]
    %t = xetile.init_tile %v[%i, 0], [%n, %w], ..    ->    %t = xetile.init_tile %A[%r + %i, 0], [%r + %n, %w], ..

So what is known of the array (alignment, strides, aliases) is known of the part. Requires: XeTile, tiles that no op
moves or carries (carry-offsets), and parts that begin inside of their array. Guarantees: the same elements, and ends
that are not 0 unless the array is empty or the part was.

Takes part: a view with steps of 1 of which nothing but tiles are made, none of which ever begins before it: a tile has
an end of its matrix, but no beginning other than 0. The other views stay.

Shared memory is what its parts say it is, so that it can be cut with the tiles of it. Tiles that lie inside of a part
of it, a slot of a ring for instance, are tiles of the whole, without ends; and where all views of some bytes are arrays
that lie apart, these are allocated, each by itself:

    %m = memref.alloc() : memref<8192xi8, 3>
    %v = memref.view %m[%c4096][] : .. to memref<32x32xf32, 3>      ->    %v = memref.alloc() : memref<32x32xf32, 3>
"""

from __future__ import annotations

from math import gcd
from typing import Any

from xdsl.dialects import arith, gpu, memref
from xdsl.dialects.builtin import DYNAMIC_INDEX, IntegerAttr, MemRefType, NoneAttr, i64
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects import xetile
from tilewright.dialects.movement import memref_type
from tilewright.dialects.upstream.arith import constant
from tilewright.dialects.upstream.gpu.memory import is_shared
from tilewright.dialects.upstream.strided import Metadata
from tilewright.dialects.upstream.subview import kept_dimensions
from tilewright.dialects.xetile.assembly import merge_indices
from tilewright.frozen import field, frozen
from tilewright.passes.access import AccessAnalysis
from tilewright.passes.emit import Before
from tilewright.passes.integers import Index, is_natural
from tilewright.passes.own_memory import bytes_of
from tilewright.passes.pipeline import Pass, Unit


def fold_views(function: gpu.FuncOp) -> None:
    """Turns tiles of array views into tiles of the arrays, and views of shared bytes into arrays."""
    for op in list(function.walk()):
        if isinstance(
            op, memref.DeallocOp
        ):  # what a kernel has it keeps, so that passes may move what reads it
            Rewriter.erase_op(op)
    for op in list(function.walk()):
        if isinstance(op, memref.AllocOp | memref.AllocaOp) and is_shared(op.memref.type):
            _allocate_apart(op)
    views = [op for op in function.walk() if isinstance(op, memref.SubviewOp)]
    if not views:
        return
    analysis = AccessAnalysis(function)
    reached = _reached(function, analysis)
    for view in reversed(views):  # a view of a view comes first
        if reached is None or view.result in reached.before:
            continue
        slot = _is_slot(view) and view.result not in reached.behind
        if not slot and not _is_plain(view):
            continue
        users = [use.operation for use in view.result.uses]
        if all(isinstance(u, xetile.InitTileOp) and not u.tile_type.scattered for u in users):
            for user in dict.fromkeys(users):
                _fold(user, view, slot)  # pyright: ignore[reportArgumentType]
        if view.result.first_use is None:
            Rewriter.erase_op(view)


@frozen
class _Reached:
    """Arrays of which some tile may begin before the first element, or end behind the last."""

    before: set[SSAValue] = field(default_factory=set[SSAValue])
    behind: set[SSAValue] = field(default_factory=set[SSAValue])


def _reached(function: gpu.FuncOp, analysis: AccessAnalysis) -> _Reached | None:
    """None where a tile's array is not known."""
    found = _Reached()
    for op in function.walk():
        if op.results or op.operands:
            tiles = [v for v in op.operands if isinstance(v.type, xetile.TileType)]
            access = analysis.find(op)
            if access is None:
                if tiles and op.name.startswith("xetile.") and not _makes_tile(op):
                    return None
                continue
            rows = (1,) * (len(access.offsets) - 2) + access.shape
            for offset, count, extent in zip(access.offsets, rows, access.extents, strict=False):
                if not offset.is_nonnegative:
                    found.before.add(access.base)
                if not (extent - offset - count).is_nonnegative:
                    found.behind.add(access.base)
    return found


def _makes_tile(op: Operation) -> bool:
    return any(isinstance(r.type, xetile.TileType) for r in op.results)


def _is_plain(view: memref.SubviewOp) -> bool:
    """Does it keep every dimension, step by step?"""
    source = memref_type(view.source)
    return _by_steps_of_one(view) and source.get_num_dims() == view.result.type.get_num_dims()


def _is_slot(view: memref.SubviewOp) -> bool:
    """Is it of shared memory, of an array without gaps, and are its dimensions the innermost ones?"""
    source = memref_type(view.source)
    ranks, kept = source.get_num_dims(), kept_dimensions(view)
    plain = isinstance(source.layout, NoneAttr) and DYNAMIC_INDEX not in source.get_shape()
    innermost = kept == [*range(ranks - len(kept), ranks)]
    return is_shared(source) and plain and innermost and _by_steps_of_one(view)


def _by_steps_of_one(view: memref.SubviewOp) -> bool:
    return set(view.static_strides.get_values()) <= {1}


def _fold(tile: xetile.InitTileOp, view: memref.SubviewOp, slot: bool) -> None:
    """`slot`: the tile lies inside of the view, whatever its ends."""
    at = Before(tile)
    starts = [_inside(at, s) for s in merge_indices(view.static_offsets, view.offsets)]
    inner = [*[0] * (len(starts) - len(tile.mixed_offsets)), *tile.mixed_offsets]
    offsets = [at.plus(s, o) for s, o in zip(starts, inner, strict=True)]
    if slot:
        at.replace(at.add(xetile.InitTileOp(view.source, tile.tile_type, offsets)))
        return
    counts = merge_indices(view.static_sizes, view.sizes)
    sizes = tile.mixed_sizes or counts
    new = xetile.InitTileOp(
        view.source,
        tile.tile_type,
        offsets,
        [at.plus(s, n) for s, n in zip(starts, sizes, strict=True)],
        tile.mixed_strides or Metadata(view.source, at.insert).strides,
    )
    at.replace(at.add(new))


def _inside(at: Before, start: Index) -> Index:
    """Where a part begins, in a form of which it is known not to be negative."""
    if is_natural(start):
        return start
    return at.add(arith.MaxSIOp(at.index(start), at.index(0)))


def _allocate_apart(op: memref.AllocOp | memref.AllocaOp) -> None:
    """Gives each array that bytes are viewed as memory of its own, if no two of them meet."""
    arrays: dict[tuple[int, MemRefType], list[memref.ViewOp]] = {}
    for view in [use.operation for use in op.memref.uses]:
        if not isinstance(view, memref.ViewOp) or view.sizes:
            return
        start, kind = constant(view.byte_shift), view.result.type
        if start is None or not isinstance(kind, MemRefType) or kind.layout != NoneAttr():
            return
        arrays.setdefault((start, kind), []).append(view)
    end = 0
    for start, kind in sorted(arrays, key=lambda each: each[0]):
        if start < end:
            return
        end = start + bytes_of(kind)
    if not arrays:
        return
    aligned = 0 if op.alignment is None else op.alignment.value.data
    made = [_array_like(op, kind, gcd(aligned, start)) for start, kind in arrays]
    for array, same in zip(made, arrays.values(), strict=True):
        Rewriter.insert_op(array, InsertPoint.before(op))
        for view in same:
            Rewriter.replace_op(view, [], [array.results[0]])
    Rewriter.erase_op(op)


def _array_like(op: Operation, kind: MemRefType, alignment: int) -> Operation:
    """An allocation like `op`, of another array."""
    properties = {k: v for k, v in op.properties.items() if k != "alignment"}
    if alignment:
        properties["alignment"] = IntegerAttr(alignment, i64)
    made = type(op).create(result_types=[kind], properties=properties)
    made.location = op.location
    return made


FOLD_VIEWS = Pass[Unit[Any]]("fold-views", fold_views, ("workgroup", "subgroup"))
