"""fold-views: a tile of a part of an array becomes a tile of the array that ends where the part does.

    %v = memref.subview %A[%r, 0] [%n, %w] [1, 1]
    %t = xetile.init_tile %v[%i, 0], [%n, %w], ..    ->    %t = xetile.init_tile %A[%r + %i, 0], [%r + %n, %w], ..

So what is known of the array (alignment, strides, aliases) is known of the part. Requires: XeTile, and parts that begin
inside of their array. Guarantees: the same elements, and ends that are not 0 unless the array is empty or the part was.

Takes part: a view with steps of 1 of which nothing but tiles are made, none of which ever begins before it: a tile has
an end of its matrix, but no beginning other than 0. The other views stay.
"""

from __future__ import annotations

from typing import Any

from xdsl.dialects import gpu, memref
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Operation, SSAValue

from tilewright.dialects import xetile
from tilewright.dialects.upstream.strided import Metadata
from tilewright.dialects.xetile.assembly import merge_indices
from tilewright.passes.access import AccessAnalysis
from tilewright.passes.emit import Before
from tilewright.passes.pipeline import Pass, Unit


def fold_views(function: gpu.FuncOp) -> None:
    """Turns tiles of array views into tiles of the arrays. Views that no tile has any more are removed."""
    views = [op for op in function.walk() if isinstance(op, memref.SubviewOp)]
    if not views:
        return
    analysis = AccessAnalysis(function)
    before = _begun_before(function, analysis)
    for view in reversed(views):  # a view of a view comes first
        if before is None or view.result in before or not _is_plain(view):
            continue
        users = [use.operation for use in view.result.uses]
        if all(isinstance(u, xetile.InitTileOp) and not u.tile_type.scattered for u in users):
            for user in dict.fromkeys(users):
                _fold(user, view)  # pyright: ignore[reportArgumentType]
        if view.result.first_use is None:
            view.detach()
            view.erase()


def _begun_before(function: gpu.FuncOp, analysis: AccessAnalysis) -> set[SSAValue] | None:
    """Arrays of which some tile may begin before the first element; None where a tile's array is not known."""
    found: set[SSAValue] = set()
    for op in function.walk():
        if op.results or op.operands:
            tiles = [v for v in op.operands if isinstance(v.type, xetile.TileType)]
            access = analysis.find(op)
            if access is None:
                if tiles and op.name.startswith("xetile.") and not _makes_tile(op):
                    return None
                continue
            for offset in access.offsets:
                low, _ = offset.range()
                if low is None or low < 0:
                    found.add(access.base)
    return found


def _makes_tile(op: Operation) -> bool:
    return any(isinstance(r.type, xetile.TileType) for r in op.results)


def _is_plain(view: memref.SubviewOp) -> bool:
    """Does it keep every dimension, step by step?"""
    source = view.source.type
    assert isinstance(source, MemRefType)
    steps = tuple(view.static_strides.get_values())
    return steps == (1,) * source.get_num_dims() == (1,) * view.result.type.get_num_dims()


def _fold(tile: xetile.InitTileOp, view: memref.SubviewOp) -> None:
    at = Before(tile)
    starts = merge_indices(view.static_offsets, view.offsets)
    counts = merge_indices(view.static_sizes, view.sizes)
    sizes = tile.mixed_sizes or counts
    new = xetile.InitTileOp(
        view.source,
        tile.tile_type,
        [at.plus(s, o) for s, o in zip(starts, tile.mixed_offsets, strict=True)],
        [at.plus(s, n) for s, n in zip(starts, sizes, strict=True)],
        tile.mixed_strides or Metadata(view.source, at.insert).strides,
    )
    at.replace(at.add(new))


FOLD_VIEWS = Pass[Unit[Any]]("fold-views", fold_views, ("workgroup", "subgroup"))
