"""Blocking: ops that only rearrange elements, fragment by fragment.

Part of :mod:`tilewright.passes.xegpu.blocking`. What does not fall into fragments stays whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

from xdsl.dialects import vector
from xdsl.dialects.builtin import DenseArrayBase, VectorType, i64
from xdsl.ir import Operation, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.movement import integers, positions_at_run_time, shape_of, static_position
from tilewright.dialects.upstream import vector as more
from tilewright.passes.xegpu.inst_fragments import Fragments, Shape, rule, starts
from tilewright.passes.xegpu.lane_layouts import lane_attribute
from tilewright.passes.xegpu.lazy_registers import Free
from tilewright.passes.xegpu.ownership import box_of_insertion
from tilewright.passes.xegpu.split import fragmentwise, rearranged


def rearrange(d: Fragments, op: Operation, fragment: Shape) -> None:
    """Piece by fragment; what is one number everywhere stays that."""
    (source,), (result,) = op.operands, op.results
    held = d.grids[source]
    if isinstance(held, Free):
        d.grids[result] = held
        return
    rearranged(d, op, fragment)


@rule("vector.broadcast")
def broadcast(d: Fragments, op: vector.BroadcastOp) -> None:
    if isinstance(op.source.type, VectorType):
        rearrange(d, op, d.owners.fragment(op.vector))
    else:
        d.grids[op.vector] = Free(op.source.type, None, d.env[op.source])


@rule("vector.transpose")
def transpose(d: Fragments, op: more.TransposeOp) -> None:
    """Piece by fragment where the source is distributed as the result is, else in tiles of whole fragments of both."""
    p = op.permutation
    fragment, given = d.owners.fragment(op.result), d.owners.fragment(op.vector)
    if tuple(given[d] for d in p) != fragment:
        tile = tuple(lcm(n, given[d]) for n, d in zip(fragment, p, strict=True))
        shape = shape_of(op.result)
        if all(extent % n == 0 for extent, n in zip(shape, tile, strict=True)):
            fragment = tile
    rearrange(d, op, fragment)


@rule("vector.shape_cast")
def shape_cast(d: Fragments, op: more.ShapeCastOp) -> None:
    """Piece by fragment where dimensions of extent 1 come and go, else as a whole."""
    before, after = shape_of(op.source), shape_of(op.result)
    single = [n for n in before if n != 1] == [n for n in after if n != 1]
    rearrange(d, op, d.owners.fragment(op.result) if single else after)


@rule("vector.extract_strided_slice")
def extract_strided_slice(d: Fragments, op: more.ExtractStridedSliceOp) -> None:
    rearrange(d, op, d.owners.fragment(op.result))


@rule("vector.extract")
def extract(d: Fragments, op: vector.ExtractOp) -> None:
    if positions_at_run_time(op):
        raise d.refuse("a position that is known only at run time")
    if isinstance(op.result.type, VectorType):
        rearrange(d, op, d.owners.fragment(op.result))
        return
    held = d.grids[op.vector]
    if isinstance(held, Free):
        d.env[op.result] = d.element_at(held.splat(d, [1]), [0])
        return
    position = static_position(op)
    index = tuple(p // n for p, n in zip(position, held.fragment, strict=True))
    local = [p % n for p, n in zip(position, held.fragment, strict=True)]
    d.env[op.result] = d.element_at(held.values[held.number(index)], local)


@rule("vector.bitcast")
def bitcast(d: Fragments, op: vector.BitcastOp) -> None:
    before, after = shape_of(op.source)[-1], shape_of(op.result)[-1]
    fragment = d.owners.fragment(op.result)
    last = fragment[-1] * before
    if last % after or last < after:
        d.unruled(op)
        return
    part = (*fragment[:-1], last // after)
    values = d.fragments(op.source, part)
    kind = d.typed(op.result, fragment)
    made = [d.add(vector.BitcastOp(v, kind)) for v in values]
    d.give(op.result, fragment, made)


@rule("vector.insert_strided_slice", "vector.insert")
def insert_strided_slice(d: Fragments, op: more.InsertStridedSliceOp | vector.InsertOp) -> None:
    """The destination with the source in a box of it, fragment by fragment."""
    result, source, dest = op.result, op.source, op.dest
    box = box_of_insertion(op)
    if box is None:
        raise d.refuse("a position that is known only at run time")
    offsets, size, lead = box
    if not isinstance(source.type, VectorType):
        d.grids[source] = Free(source.type, None, d.env[source])
    fragment = d.owners.fragment(result)
    made: list[SSAValue] = []
    for start in starts(shape_of(result), fragment):
        low = [max(a, b) for a, b in zip(start, offsets, strict=True)]
        high = [
            min(a + p, b + n) for a, p, b, n in zip(start, fragment, offsets, size, strict=True)
        ]
        if any(a >= b for a, b in zip(low, high, strict=True)):
            made.append(d.box(dest, start, fragment))
            continue
        extent = tuple(b - a for a, b in zip(low, high, strict=True))
        where = tuple(a - b for a, b in zip(low, offsets, strict=True))
        part = (
            d.cast(d.box(source, where[lead:], extent[lead:]), extent)
            if extent[lead:]
            else _free(d, source).splat(d, extent)
        )
        if extent != fragment:
            local = [a - b for a, b in zip(low, start, strict=True)]
            part = d.add(more.InsertStridedSliceOp(part, d.box(dest, start, fragment), local))
        made.append(part)
    d.give(result, fragment, made)


def _free(d: Fragments, value: SSAValue) -> Free:
    held = d.grids[value]
    assert isinstance(held, Free)
    return held


@rule("vector.shuffle")
def shuffle(d: Fragments, op: vector.ShuffleOp) -> None:
    """Each fragment from the rows that it takes of the operands, in whole fragments of these."""
    sources = (op.v1, op.v2)
    inner = _tile(d, (op.result, *sources), 1) if shape_of(op.v1) else None
    if inner is None:
        d.unruled(op)
        return
    tile = (d.owners.fragment(op.result)[0], *inner)
    count = shape_of(op.v1)[0]
    mask = [max(n, 0) for n in integers(op, "mask")]
    made: list[SSAValue] = []
    for start in starts(shape_of(op.result), tile):
        wanted = mask[start[0] : start[0] + tile[0]]
        boxes: list[SSAValue] = []
        place: dict[int, int] = {}
        for source, of in ((op.v1, range(count)), (op.v2, range(count, max(mask) + 1))):
            if rows := [n for n in wanted if n in of]:
                step = d.owners.fragment(source)[0]
                low = (min(rows) - of.start) // step * step
                high = -(-(max(rows) + 1 - of.start) // step) * step
                at = sum(shape_of(box)[0] for box in boxes) - of.start - low
                place |= {n: n + at for n in rows}
                boxes.append(d.box(source, (low, *start[1:]), (high - low, *tile[1:])))
        rows = DenseArrayBase.from_list(i64, [place[n] for n in wanted])
        kind = d.typed(op.result, tile)
        new = vector.ShuffleOp(boxes[0], boxes[-1], rows, result_type=kind)
        made.append(d.add(d.mark(new, tile)))
    d.give(op.result, tile, made)


@rule("vector.interleave", "vector.deinterleave")
def interleave(d: Fragments, op: Operation) -> None:
    """Tile by tile, of half the length where a value has half the length."""
    tile = _tile(d, (*op.operands, *op.results))
    if tile is None:
        d.unruled(op)
        return
    longest = max(shape_of(v)[-1] for v in (op.operands[0], op.results[0]))

    def cut(value: SSAValue) -> Shape:
        return (*tile[:-1], tile[-1] * shape_of(value)[-1] // longest)

    made = fragmentwise(d, op, [cut(v) for v in op.operands], cut(op.results[0]))
    for result, fragments in zip(op.results, made, strict=True):
        d.give(result, cut(result), fragments)


def _tile(d: Fragments, values: Sequence[SSAValue], dim: int = 0) -> Shape | None:
    """The smallest box of whole fragments of all values in the dimensions from `dim` on, in elements of the longest;
    None where they are not made of such."""
    longest = tuple(max(extents) for extents in zip(*map(shape_of, values), strict=True))[dim:]
    own: list[Shape] = []
    for value in values:
        if not isinstance(d.grids.get(value), Free):
            each = zip(d.owners.fragment(value)[dim:], shape_of(value)[dim:], longest, strict=True)
            own.append(tuple(part * most // extent for part, extent, most in each))
    tile = tuple(lcm(*each) for each in zip(*own, strict=True))
    return tile if all(n % m == 0 for n, m in zip(longest, tile, strict=True)) else None


@rule("xegpu.convert_layout")
def convert_layout(d: Fragments, op: xegpu.ConvertLayoutOp) -> None:
    if not isinstance(op.source.type, VectorType):
        d.env[op.result] = d.env[op.source]
        return
    held = d.grids[op.source]
    if isinstance(held, Free):
        d.grids[op.result] = held
        return
    layout = d.owners.layout(op.result)
    target = lane_attribute(layout)
    values = d.fragments(op.source, layout.shape)
    if target is not None:
        values = [d.add(xegpu.ConvertLayoutOp(v, target)) for v in values]
    d.give(op.result, layout.shape, values)
