"""pad-tiles: extents that threads cannot share are made longer; what is added takes part in nothing.

    %t = init_tile %A[%m, 0], [%h, %w], .. : 1x3000      %e = arith.minsi %w, 3000
    %x = load_tile %t : 1x3000                           %t = init_tile %A[%m, 0], [%h, %e], .. : 1x3072
    %s = reduction <add>, %x [1]                   ->    %x = load_tile %t : 1x3072
                                                         %y = arith.select (step < 3000), %x, 0
                                                         %s = reduction <add>, %y [1]

Only powers of two of an extent are distributed to lanes and warps (`blocked.py`): of 3000 elements a thread would hold
375 neighbours of each eighth, and all threads the same.

Rows and columns of products are padded to what warpgroups multiply, if these elements are such that they do or that
threads cannot share as they are, the way round that adds least (`swap-operands`):
104 x 136 becomes 104 x 192, whose right operand is loaded as if it had 192 columns.

Requires: XeTile at workgroup level, tiles that no op moves or carries (carry-offsets). Guarantees: the same results. An
axis is padded that is of no shared memory and along which elements neither move nor meet but in reductions, where that
makes the program several times as cheap; tiles of arrays end where they ended, gathers, scatters and atomics are
masked, reductions see their neutral element, and integers are divided by 1. What a product's tiles load beyond their
end is of the array, or zero: nothing sees it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.dialects import xetile as xt
from tilewright.dialects.elementwise import DIVISIONS
from tilewright.dialects.movement import vector_type
from tilewright.dialects.upstream.arith import element_bytes
from tilewright.dialects.upstream.combining import neutral
from tilewright.dialects.upstream.strided import Metadata
from tilewright.dialects.xetile.maps import without_maps
from tilewright.passes.axes import Axes, Axis, extents_of, shape_of
from tilewright.passes.emit import Before, element_of
from tilewright.passes.padding import ended, kept, longer, mask_operand
from tilewright.targets.cuda.blocked import power_of_two_in
from tilewright.targets.cuda.passes.wgmma_legality import instruction_for, untransposed
from tilewright.uarch.nvidia import LANES, WGMMA_ROWS
from tilewright.uarch.sm90 import SM90

Scattered = xt.LoadGatherOp | xt.StoreScatterOp | xt.AtomicRmwOp
Padded = Mapping[int, tuple[int, int]]
"""By dimension: its extent before and after."""
HELD = 8
"""Neighbours that a lane has at once: 16 bytes of 16-bit numbers."""
ELEMENTS, MOST_THREADS = 32, 256
"""Of a thread, and threads of a workgroup: as many as these are to share a tile."""
MOST_ODD = 7
"""The part of a padded extent that is no power of two: each thread holds as many vectors."""
GROUP, MOST_COLUMNS = 8, 256
"""Columns by which an instruction multiplies, and how many at most."""
LINES = {128: 1.0, 64: 1.25, 32: 2.0}
"""By bytes of the lines in which an operand lies: how much longer a product takes (128 x 136 by lines of 32 bytes took
58 us on an H200 where 104 x 128 by lines of 128 took 29)."""
GAIN = 2
"""So many times cheaper a program has to become."""


def pad_tiles(kernel: gpu.FuncOp) -> None:
    """Pads extents that threads cannot share, and masks what is added."""
    axes = Axes(kernel)
    products = [op for op in kernel.walk() if isinstance(op, xt.TileMmaOp)]
    multiplied: dict[Axis, int] = {}
    for op in products:
        for dim, after in enumerate(product_extents(op)):
            root = axes.tied.find((op.result, dim))
            multiplied[root] = max(after, multiplied.get(root, 0))
    combined = set[Axis]()
    for op in kernel.walk():
        if isinstance(op, xt.ReductionOp) and op.reduction_size is None:
            combined |= {(op.source, dim) for dim in op.dims}
    whole = axes.roots(axes.fixed | (axes.combined - combined))
    padded: dict[SSAValue, dict[int, tuple[int, int]]] = {}
    for root, members in sorted(axes.members().items(), key=lambda each: -max(extents_of(each[1]))):
        extents = extents_of(members)
        if root in whole or len(extents) > 1 or any(map(_is_shared, members)):
            continue
        if products:
            before, after = extents.pop(), multiplied.get(root, 0)
        else:
            before, after = _shared_extent(members, padded)
        if after > before:
            for value, dim in members:
                padded.setdefault(value, {})[dim] = (before, after)
    seen = [(op, _added(op, padded)) for op in kernel.walk()] if padded else []
    for value, dims in padded.items():
        _pad(value, dims, bool(products))
    for op, dims in seen:
        if dims:
            _mask(op, dims)


def _shared_extent(members: Sequence[Axis], padded: Mapping[SSAValue, Padded]) -> tuple[int, int]:
    """The extent of an axis, and the one by which threads share it."""
    widest, dim = max(members, key=lambda axis: prod(shape_of(axis[0]) or ()))
    known = padded.get(widest, {})
    shape = [known.get(d, (n, n))[1] for d, n in enumerate(shape_of(widest) or ())]
    before = shape.pop(dim)
    return before, padded_extent(before, shape)


def product_extents(op: xt.TileMmaOp) -> tuple[int, int]:
    """Rows and columns of a product as warpgroups do it fastest: 64 rows, and columns by the lines of shared memory
    that their operand lies in, either way round; its own where it would be twice as many elements, or where threads can
    share them as they are and no warpgroup multiplies such elements."""
    m, n = shape_of(op.result) or (0, 0)
    types = (vector_type(v) for v in (op.a, op.b, op.result))
    shared = power_of_two_in(m) * power_of_two_in(n) >= MOST_THREADS
    if max(m, n) < WGMMA_ROWS or (shared and instruction_for(SM90, *types) is None):
        return m, n

    def columns(extent: int, operand: SSAValue, along: int) -> list[tuple[int, float]]:
        source, turned = untransposed(operand)
        if isinstance(load := source.owner, xt.LoadTileOp) and load.tile_type.order == (0, 1):
            turned = not turned
        size = element_bytes(element_of(source.type))
        lines = {n // size: time for n, time in LINES.items()} if along != turned else {GROUP: 1.0}
        if extent > MOST_COLUMNS:
            lines = {MOST_COLUMNS: 1.0}
        return [(-(-extent // unit) * unit, time) for unit, time in lines.items()]

    def rows(extent: int) -> int:
        return -(-extent // WGMMA_ROWS) * WGMMA_ROWS

    ways = [(time * rows(m) * x, (rows(m), x)) for x, time in columns(n, op.b, 1)]
    ways += [(time * rows(n) * x, (x, rows(n))) for x, time in columns(m, op.a, 0)]
    if (m, n) in (extents for _, extents in ways):
        return m, n
    _, best = min(ways)
    return best if prod(best) < 2 * m * n else (m, n)


def padded_extent(extent: int, beside: Sequence[int]) -> int:
    """The cheapest extent for the threads from `extent` on, where a tile has these others; itself where none is much
    cheaper."""

    def cost(n: int) -> float:
        threads = min(MOST_THREADS, max(LANES, n * prod(beside) // ELEMENTS))
        parts = prod(map(power_of_two_in, (n, *beside)))
        return n * max(1, threads * HELD / parts)

    sizes = [odd << (-(-extent // odd) - 1).bit_length() for odd in range(1, MOST_ODD + 1, 2)]
    best = min(sizes, key=lambda n: (cost(n), n))
    return best if GAIN * cost(best) <= cost(extent) else extent


def _is_shared(axis: Axis) -> bool:
    kind = axis[0].type
    return isinstance(kind, MemRefType) or (
        isinstance(kind, xt.TileType) and kind.memory_space != 0
    )


def _added(op: Operation, padded: Mapping[SSAValue, Padded]) -> Padded:
    """The dimensions of what an op reads or writes of which it must not see what is added."""
    if isinstance(op, xt.ReductionOp):
        return {d: extents for d, extents in padded.get(op.source, {}).items() if d in op.dims}
    if isinstance(op, Scattered) and op.tile.type.scattered:
        return padded.get(op.tile, {})
    if op.name in DIVISIONS and not isinstance(op.operands[1].owner, arith.ConstantOp):
        return padded.get(op.operands[1], {})
    return {}


def _mask(op: Operation, dims: Padded) -> None:
    before = {dim: extent for dim, (extent, _) in dims.items()}
    if isinstance(op, xt.ReductionOp):
        element = element_of(op.source.type)
        mask_operand(op, 0, before, neutral(op.kind, element))
    elif not isinstance(op, Scattered):
        mask_operand(op, 1, before, 1)
    else:
        at = Before(op)
        inside = kept(at, op.tile.type.get_shape(), before)
        if op.mask is not None:
            op.operands[list(op.operands).index(op.mask)] = at.also(op.mask, inside)
        else:
            op.operands = [*op.operands, inside]


def _pad(value: SSAValue, dims: Padded, loose: bool) -> None:
    """A value's type with longer dimensions; a tile of an array ends where it did, or, `loose`, where it is but
    loaded, the array does."""
    kind, op = value.type, value.owner
    if not isinstance(kind, xt.TileType):
        longer(value, {dim: after for dim, (_, after) in dims.items()})
        return
    shape = [dims[d][1] if d in dims else n for d, n in enumerate(kind.get_shape())]
    tile = without_maps(kind, shape)
    if isinstance(op, xt.InitTileOp) and op.offset_vector is None:
        at, offsets = Before(op), op.mixed_offsets
        strides = op.mixed_strides or Metadata(op.source, at.insert).strides
        sizes = list(op.mixed_sizes or Metadata(op.source, at.insert).sizes)
        loose = loose and all(isinstance(use.operation, xt.LoadTileOp) for use in value.uses)
        for dim, (before, _) in dims.items() if not loose else ():
            place = dim - len(shape)
            sizes[place] = ended(at, sizes[place], at.plus(offsets[place], before))
        at.replace(at.add(xt.InitTileOp(op.source, tile, offsets, sizes, strides)))
    else:
        Rewriter.replace_value_with_new_type(value, tile)
