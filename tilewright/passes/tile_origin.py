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
from tilewright.passes.integers import ANY, Divisors, Solver, divisor, extent_divisor
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
    found = tile_inits(tile)
    same = found and all(_same_base(found[0], o) for o in found)
    return found[0] if same else None


def tile_inits(tile: SSAValue) -> list[xetile.InitTileOp]:
    """The init_tile ops that a tile may go back to; empty where one source is of another kind."""
    ends = [v.owner for v in origins([tile], _tile_sources)]
    found = [op for op in ends if isinstance(op, xetile.InitTileOp)]
    return found if len(found) == len(ends) else []


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


class _TileDivisors(Solver[tuple[int, ...]]):
    """What divides the last two offsets of tiles and extents of their matrices."""

    def __init__(self) -> None:
        super().__init__((1, 1, 1, 1))
        self.indices = Divisors()

    def sources(self, value: SSAValue) -> Sequence[SSAValue]:
        return _tile_sources(value)

    def joined(self, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(map(gcd, a, b))

    def fact(self, value: SSAValue) -> tuple[int, ...] | None:
        op = value.owner
        if isinstance(op, xetile.InitTileOp):
            return self._of_init(op)
        sources = _tile_sources(value)
        found = self.join_all(sources) if sources else self.unknown
        if found is not None and isinstance(op, xetile.UpdateTileOffsetOp):
            if op.offset_vector is not None:
                return self.unknown
            by = [self.indices.of_index(x) for x in op.mixed_offsets]
            return (*map(gcd, found[:2], by), *found[2:])
        return found

    def _of_init(self, op: xetile.InitTileOp) -> tuple[int, ...]:
        offsets = [self.indices.of_index(x) for x in op.mixed_offsets]
        extents = [self.indices.of_index(x) for x in op.mixed_sizes]
        extents = extents or [extent_divisor(op.source, n) for n in range(len(offsets))]
        if len(offsets) == 1:
            offsets, extents = [ANY, *offsets], [1, *extents]
        return (*offsets[-2:], *extents[-2:]) if len(offsets) > 1 else self.unknown


def tile_divisors(tile: SSAValue) -> tuple[Pair, Pair]:
    """((rows, columns) that divide a tile's last two offsets, the same of its matrix's extents)."""
    rows, columns, height, width = _TileDivisors().of(tile)
    return (rows, columns), (height, width)


def tile_accesses(region: Operation) -> Iterator[tuple[Operation, SSAValue, bool]]:
    """The ops inside an op that touch memory through a tile, and that tile; does each access write?"""
    for op in region.walk():
        for tile in op.operands:
            if isinstance(tile.type, xetile.TileType) and (effects := memory_effects(op)):
                yield op, tile, MemoryEffectKind.WRITE in effects


def written_roots(region: Operation) -> list[SSAValue | None]:
    """Roots of what the ops inside an op may write (None: anything)."""

    def root(value: SSAValue) -> SSAValue | None:
        if isinstance(value.type, xetile.TileType):
            return root_of(value)
        return memory_root(value) if is_memref(value) else None

    found: list[SSAValue | None] = []
    for op in region.walk():
        if may_write(op):
            found += [root(value) for value in written(op)] or [None]
    return found


def is_read_only(tile: SSAValue) -> bool:
    """Does nothing in the kernel write what a tile lies in?"""
    root = root_of(tile)
    if not isinstance(root, BlockArgument) or not is_array_argument(root):
        return False
    kernel = root.block.parent_op()
    assert kernel is not None
    return not any(w is None or may_alias(w, root) for w in written_roots(kernel))
