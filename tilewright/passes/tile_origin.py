"""Where a tile comes from, the init_tile behind moves, loops, branches and selections; what is known of its place.

Also which arrays the ops of a kernel write: what a tile lies in is read only where none may.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd

from xdsl.dialects import memref
from xdsl.dialects.builtin import DYNAMIC_INDEX
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.traits import MemoryEffectKind

from tilewright import dtypes
from tilewright.dialects import xetile
from tilewright.dialects.effects import memory_effects, written
from tilewright.dialects.movement import memref_type
from tilewright.dialects.upstream.strided import strided_form
from tilewright.dialects.xetile.assembly import merge_indices
from tilewright.passes.carried import origins
from tilewright.passes.induction import same_view
from tilewright.passes.integers import ANY, Divisors, divisor, extent_divisor
from tilewright.passes.memory_objects import (
    arg_facts,
    chosen_from,
    is_allocation,
    is_array_argument,
    is_memref,
    may_alias,
    may_write,
    memory_root,
    viewed,
)

WIDEST = 16
"""Bytes of the widest access, to which allocations are aligned."""
Pair = tuple[int, int]
"""Of rows and of columns."""


def tile_origin(tile: SSAValue) -> xetile.InitTileOp | None:
    """The init_tile that a tile goes back to.

    Several of the same memref, type, sizes and strides count as one; None where they differ, or where
    a tile comes from something else.
    """
    first, *others = (v.owner for v in origins([tile], _tile_sources))
    if not isinstance(first, xetile.InitTileOp):
        return None
    same = all(isinstance(o, xetile.InitTileOp) and _same_base(first, o) for o in others)
    return first if same else None


def _tile_sources(tile: SSAValue) -> Sequence[SSAValue]:
    """The tiles that a tile may be a moved copy of."""
    moved = tile.owner
    return (moved.tile,) if isinstance(moved, xetile.UpdateTileOffsetOp) else chosen_from(tile)


def _same_base(a: xetile.InitTileOp, b: xetile.InitTileOp) -> bool:
    return (
        same_view(a.source) is same_view(b.source)
        and a.tile_type == b.tile_type
        and a.mixed_sizes == b.mixed_sizes
        and a.mixed_strides == b.mixed_strides
    )


def root_of(tile: SSAValue) -> SSAValue | None:
    """The root of the memory that a tile lies in; None if it is not known."""
    origin = tile_origin(tile)
    return memory_root(origin.source) if origin is not None else None


def tile_alignment(tile: SSAValue, default: int) -> int:
    """Bytes that divide the address of a tile's matrix and its strides but the unit one."""
    origin = tile_origin(tile)
    if origin is None:
        return 1
    return memory_alignment(origin.source, default)


def memory_alignment(array: SSAValue, default: int) -> int:
    """Bytes that divide the address of an array's first element and its strides but the unit one.

    What is taken for granted of views other than parts is `default`.
    """
    source, view = viewed(array), array.owner
    if source is None:
        return WIDEST if is_allocation(array) else arg_facts(array, default).align
    if isinstance(view, memref.ReinterpretCastOp) and set(view.static_offsets.get_values()) != {0}:
        return default
    if isinstance(view, memref.ViewOp):
        return default
    known = memory_alignment(source, default)
    if isinstance(view, memref.SubviewOp):
        return _part_alignment(view, known)
    return known


def _part_alignment(view: memref.SubviewOp, alignment: int) -> int:
    """Of a part of an array whose address and strides but the unit one are multiples of `alignment` bytes."""
    kind = memref_type(view.source)
    size, strides = dtypes.from_mlir(kind.element_type).itemsize, strided_form(kind)[0]
    starts = merge_indices(view.static_offsets, view.offsets)
    steps = view.static_strides.get_values()
    for start, step, stride in zip(starts, steps, strides, strict=True):
        along = alignment if stride == DYNAMIC_INDEX else stride * size
        alignment = gcd(alignment, divisor(start) * along)
        if stride == 1 and step != 1:
            alignment = gcd(alignment, size)
    return alignment


def tile_divisors(tile: SSAValue) -> tuple[Pair, Pair]:
    """((rows, columns) that divide the last two offsets of an init_tile's tile, the same of its matrix's extents)."""
    op = tile.owner
    if not isinstance(op, xetile.InitTileOp) or not op.mixed_offsets:
        return (1, 1), (1, 1)
    indices = Divisors()
    offsets = [ANY, *map(indices.of_index, op.mixed_offsets)]
    extents = [1, *map(indices.of_index, op.mixed_sizes)]
    if not op.mixed_sizes:
        extents += [extent_divisor(op.source, n) for n in range(len(offsets) - 1)]
    return (offsets[-2], offsets[-1]), (extents[-2], extents[-1])


def tile_accesses(region: Operation) -> Iterator[tuple[Operation, SSAValue, bool]]:
    """The ops inside an op that touch memory through a tile, and that tile; does each access write?"""
    for op in region.walk():
        for tile in op.operands:
            if isinstance(tile.type, xetile.TileType) and (effects := memory_effects(op)):
                yield op, tile, MemoryEffectKind.WRITE in effects


def written_roots(region: Operation) -> set[SSAValue | None]:
    """Roots of what the ops inside an op may write (None: anything)."""

    def root(value: SSAValue) -> SSAValue | None:
        if isinstance(value.type, xetile.TileType):
            return root_of(value)
        return memory_root(value) if is_memref(value) else None

    found: set[SSAValue | None] = set()
    for op in region.walk():
        if may_write(op):
            found.update([root(value) for value in written(op)] or [None])
    return found


def is_read_only(
    tile: SSAValue, known: dict[Operation, set[SSAValue | None]] | None = None
) -> bool:
    """Does nothing in the kernel write what a tile lies in? `known`: what kernels that stay as they are write."""
    root = root_of(tile)
    if not isinstance(root, BlockArgument) or not is_array_argument(root):
        return False
    kernel = root.block.parent_op()
    assert kernel is not None
    known = {} if known is None else known
    if kernel not in known:
        known[kernel] = written_roots(kernel)
    return not any(w is None or may_alias(w, root) for w in known[kernel])
