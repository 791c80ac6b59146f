"""load_tile, store_tile, prefetch_tile: arrays of any strides and bounds, and arrays in shared memory.

Vectors of up to 16 bytes where memory is contiguous and aligned (by the argument facts and by what
divides the tile's offsets), single elements otherwise. Where the extent is not known to be a multiple
of the vector, one branch that all threads take alike chooses between vectors and shorter ones. Masks stand
where an element may be outside.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from xdsl.dialects import vector
from xdsl.dialects.builtin import VectorType, i32
from xdsl.ir import Operation, SSAValue

from tilewright.codegen.builder import Made
from tilewright.codegen.tiles import ScatteredTile, Tile, element_of, itemsize
from tilewright.dialects import mach
from tilewright.dialects import xetile as xt
from tilewright.layout import Layout
from tilewright.passes.tile_origin import root_of
from tilewright.targets.cuda import access as ac
from tilewright.targets.cuda import blocked as bl
from tilewright.targets.cuda.blocked import replica_bits
from tilewright.targets.cuda.distribute import Distributor, Fragment, producer, rule
from tilewright.targets.cuda.sync import MemoryRange
from tilewright.uarch.nvidia import LINE

UNKNOWN = object()
"""The root of memory that nothing is known of."""


def as_words(d: Distributor, value: SSAValue) -> SSAValue:
    """A fragment as branches give it and loops carry it: pairs of 16 bits as words, which instructions take and give,
    not each in a register of its own. (Operands of warpgroups stay as they are: ptxas serialises products that read
    such words.)"""
    (count,) = value.type.get_shape()  # pyright: ignore
    if itemsize(element_of(value.type)) != 2 or count % 2:
        return value
    return bitcast(d, value, VectorType(i32, [count // 2]))


def bitcast(d: Distributor, value: SSAValue, type: VectorType) -> SSAValue:
    return value if value.type == type else d.b.value(vector.BitcastOp(value, type))


def place_of(tile: SSAValue, layout: Layout | None) -> MemoryRange:
    """The array of a tile for the hazard tracker; `layout` says who touches which element."""
    if layout is not None and replica_bits(layout):
        layout = None  # one replica writes what all read
    root = root_of(tile)
    owner = None if layout is None else (tile, layout)
    return MemoryRange(root=UNKNOWN if root is None else root, owner=owner, tile=tile)


def sums_of(op: Operation) -> str:
    """The kind of an atomic whose result nobody uses; nothing for another op."""
    return op.kind if isinstance(op, xt.AtomicRmwOp) and op.result.first_use is None else ""


def block_tile(d: Distributor, op: Operation, value: SSAValue) -> Tile:
    tile = d.tile(value)
    if isinstance(tile, ScatteredTile):
        raise d.error(op, f"{op.name} takes a tile that is no list of offsets")
    return tile


@producer("xetile.load_tile")
def load(d: Distributor, op: Operation, layout: Layout) -> SSAValue:
    """Each result in its turn: with `array_length` they are tiles side by side."""
    return load_result(d, op, d.result_number, layout)


def load_result(d: Distributor, op: Operation, number: int, layout: Layout) -> SSAValue:
    assert isinstance(op, xt.LoadTileOp)
    tile = block_tile(d, op, op.tile)
    if number:
        rows, cols = tile.shape
        along_rows = op.tile_type.order == (0, 1)
        tile = tile.moved(
            d.b, rows * number if along_rows else 0, 0 if along_rows else cols * number
        )
    d.hazards.read(d, place_of(op.tile, layout))
    along = facing_memory(op.tile, tile, layout)
    return d.convert(Fragment(load_fragment(d, op, tile, along), along), layout).value


def facing_memory(tile_value: SSAValue, tile: Tile, layout: Layout) -> Layout:
    """A layout of the same threads whose registers run along a tile's contiguous dimension, where they can."""
    unit = ac.facts_of(tile_value, tile).unit
    return bl.facing(layout, unit.index(True)) if any(unit) else layout


def load_fragment(d: Distributor, op: xt.LoadTileOp, tile: Tile, layout: Layout) -> SSAValue:
    """A fragment of a tile in `layout`; what lies outside is padding."""
    b, facts = d.b, ac.facts_of(op.tile, tile)
    dim, width = ac.vector_width(layout, tile, facts)

    def by(width: int, inside: bool) -> list[SSAValue]:
        type, align = VectorType(tile.element, [width]), _alignment(tile, facts, width)  # pyright: ignore
        parts: list[SSAValue] = []
        with d.scope():
            for chunk in ac.chunks(d, tile, layout, facts, width, inside):
                if chunk.inside is None:
                    parts.append(b.load(chunk.pointer, type, align=align))
                    continue
                other = b.constant(type, op.padding_value)
                mask = ac.splat_mask(d, chunk.inside, width)
                load = mach.MaskedLoadOp(chunk.pointer, mask, other, alignment=align)
                parts.append(b.value(load))
            made = d.concatenate(parts)
            return [made if interior is None else as_words(d, made)]

    extent = ac.straddles(layout, tile, facts, dim, width)
    interior = ac.interior(d, op, tile, layout, width)
    (made,) = _choose(d, extent, interior, width, by, facts.extents[dim])
    return bitcast(d, made, d.fragment_type(tile.element, layout))


def _alignment(tile: Tile, facts: ac.TileFacts, width: int) -> int:
    """Of accesses of so many elements."""
    size = itemsize(tile.element)
    return facts.alignment if facts.alignment < size else width * size


@rule("xetile.store_tile")
def store(d: Distributor, op: xt.StoreTileOp) -> None:
    """Writes a fragment to a tile, where the mask holds; of replicas the first writes."""
    tile = block_tile(d, op, op.tile)
    fragment = d.fragment_of(op.value)
    fragment = d.convert(fragment, facing_memory(op.tile, tile, fragment.layout))
    wanted = d.fragment_of(op.mask, fragment.layout).value if op.mask is not None else None
    b, value, layout = d.b, fragment.value, fragment.layout
    d.hazards.write(d, place_of(op.tile, layout))
    facts = ac.facts_of(op.tile, tile)
    dim, width = ac.vector_width(layout, tile, facts)
    first = d.first_replica(layout)

    def by(width: int, inside: bool) -> None:
        align = _alignment(tile, facts, width)
        with d.scope():
            for chunk in ac.chunks(d, tile, layout, facts, width, inside):
                registers = range(chunk.first, chunk.first + width)
                mask = b.both(chunk.inside, first)
                on = None if mask is None else ac.splat_mask(d, mask, width)
                if wanted is not None:
                    on = b.both(d.pick(wanted, registers), on)
                part = d.pick(value, registers)
                if on is None:
                    b.store(part, chunk.pointer, align=align)
                else:
                    b.op(mach.MaskedStoreOp(part, chunk.pointer, on, alignment=align))

    extent = ac.straddles(layout, tile, facts, dim, width)
    interior = ac.interior(d, op, tile, layout, width)
    _choose(d, extent, interior, width, by, facts.extents[dim])


def _choose(
    d: Distributor,
    extent: SSAValue | int | None,
    interior: SSAValue | None,
    width: int,
    by: Callable[[int, bool], Made],
    divisor: int,
) -> list[SSAValue]:
    """Without masks where the whole tile is inside; vectors where the extent is a multiple of them, those that its
    `divisor` allows where it is not."""
    b = d.b

    def masked() -> Made:
        if extent is None:
            return by(width, False)
        whole = b.cmp("eq", b.rem(extent, width), 0)
        return b.choose(whole, lambda: by(width, False), lambda: by(gcd(width, divisor), False))

    if interior is None:
        return list(masked() or ())
    return b.choose(interior, lambda: by(width, True), masked)


@rule("xetile.prefetch_tile")
def prefetch(d: Distributor, op: xt.PrefetchTileOp) -> None:
    """One prefetch per cache line of the tile, distributed to the threads; lines outside do nothing."""
    tile = d.tile(op.tile)
    locality = 3 if op.locality is None else op.locality
    if not isinstance(tile, Tile) or op.tile_type.memory_space == 3 or locality == 0:
        return
    b = d.b
    size = itemsize(tile.element)
    facts = ac.facts_of(op.tile, tile)
    fast = 1 if facts.unit[1] else 0 if facts.unit[0] else None
    if fast is None:
        return
    per_line = max(1, LINE // size)
    shape = list(tile.shape)
    shape[fast] = -(-shape[fast] // per_line)
    layout = bl.blocked((shape[0], shape[1]), fast, 1, d.team.warps)
    starts = d.coordinates(layout)
    at = layout.register_steps
    first = d.first_replica(layout)
    for r in range(layout.registers):
        place = [b.plus(starts[i], int(at[i][r])) for i in range(2)]
        place[fast] = b.times(place[fast], per_line)
        pointer, inside = tile.pointer, first
        for i in range(2):
            element = b.plus(tile.offsets[i], place[i])
            inside = b.both(inside, b.cmp("slt", element, tile.extents[i]))
            if not b.is_nonnegative(element):
                inside = b.both(inside, b.cmp("sge", element, 0))
            pointer = b.ptr(pointer, b.times(b.times(element, tile.strides[i]), size))
        with ac.guarded(d, inside):
            # LLVM's own prefetch has no code before sm_90.
            level = "L1" if locality == 3 else "L2"
            b.op(mach.InstrOp(f"nvptx.prefetch.global.{level}", [pointer]))
