"""Subgroup to lane: ops that only rearrange elements.

Part of :mod:`tilewright.passes.xegpu.subgroup_distribute`. Every op says which element of its source an element of
its result is; where all stay in their lanes that is a choice of registers and makes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from xdsl.dialects import vector
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    VectorType,
)
from xdsl.ir import SSAValue

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.upstream import vector as more
from tilewright.passes.xegpu.fragments import (
    Coords,
    Fragment,
    Free,
    Held,
    Through,
)
from tilewright.passes.xegpu.lane_layouts import joined, natural
from tilewright.passes.xegpu.lanes import Lanes, rule
from tilewright.passes.xegpu.ownership import (
    box_of_insertion,
    is_free,
    shape_of,
    slice_attributes,
)

# --- Rearrangements ------------------------------------------------------------------------------------


def rearranged(
    d: Lanes, result: SSAValue, source: SSAValue, through: Through, what: Hashable = None
) -> None:
    """The result's element at c is the source's at `through(c)`, a map that `what` names."""
    held = d.held[source]
    if isinstance(held, Free):
        d.held[result] = held
        return
    d.held[result] = d.move(held, d.owners.layout(result), through, what)


@rule("vector.broadcast")
def broadcast(d: Lanes, op: vector.BroadcastOp) -> None:
    source, result = op.source, op.vector
    if not isinstance(source.type, VectorType):
        d.held[result] = Free(source.type, None, d.env[source])
        return
    shape = shape_of(source)
    held = d.held[source]
    if is_free(result) and isinstance(held, Fragment):
        moved = d.move(
            held,
            ly.Layout.of((1,) * len(shape), [ly.Digit(ly.Axis.LANE, 1, d.lanes, None, 0)]),
            lambda c: c,
        )
        d.held[result] = Free(held.element, None, d.scalar_of(moved.registers[0]))
        return
    lead = len(shape_of(result)) - len(shape)

    def through(c: Coords) -> Coords:
        inner = c[lead:]
        return tuple(
            np.zeros_like(x) if extent == 1 else x for x, extent in zip(inner, shape, strict=True)
        )

    rearranged(d, result, source, through, ("broadcast",))


@rule("vector.transpose")
def transpose(d: Lanes, op: more.TransposeOp) -> None:
    p = op.permutation
    rearranged(
        d,
        op.result,
        op.vector,
        lambda c: tuple(c[p.index(d)] for d in range(len(p))),
        ("transpose", p),
    )


@rule("vector.shape_cast")
def shape_cast(d: Lanes, op: more.ShapeCastOp) -> None:
    before, after = shape_of(op.source), shape_of(op.result)
    rearranged(d, op.result, op.source, lambda c: reindexed(c, after, before), ("shape_cast",))


@rule("vector.bitcast")
def bitcast(d: Lanes, op: vector.BitcastOp) -> None:
    source, result = op.source, op.result
    held = d.owned_as_is(source)
    last = len(shape_of(source)) - 1
    a, b = shape_of(source)[last], shape_of(result)[last]
    if b >= a:
        layout = held.layout.expanded(last, b // a)
    else:
        try:
            layout = joined(held.layout, last, a // b)
        except ly.LayoutError:
            layout = natural(shape_of(result), 32, d.lanes)
            held = d.converted(held, layout.expanded(last, a // b))
    if b < a and not _in_runs(held.layout, last, a // b):
        layout = natural(shape_of(result), 32, d.lanes)
        held = d.converted(held, layout.expanded(last, a // b))
    kind = d.typed(result, layout)
    made = d.add(vector.BitcastOp(d.pick(held.registers), kind))
    d.give_vector(result, made, layout)


@rule("vector.extract_strided_slice")
def extract_strided_slice(d: Lanes, op: more.ExtractStridedSliceOp) -> None:
    offsets, sizes = slice_attributes(op)
    held = held_in_whole_lanes(d, op.source, sizes)
    if isinstance(held, Free):
        d.held[op.result] = held
        return
    d.held[op.result] = d.move(
        held,
        d.owners.layout(op.result),
        lambda c: tuple(x + o for x, o in zip(c, offsets, strict=True)),
        ("slice", *offsets),
    )


def held_in_whole_lanes(d: Lanes, source: SSAValue, sizes: Sequence[int]) -> Held:
    """A value to be sliced: where slices would cut through the lanes, dealt row by row, once for all."""
    held = d.held[source]
    if isinstance(held, Free):
        return held
    try:
        held.layout.cropped(sizes)
    except ly.LayoutError:
        usual = d.owners.natural(held.layout.shape, 32)
        if usual != held.layout:
            return converted_once(d, source, held, usual)
    return held


def converted_once(d: Lanes, value: SSAValue, held: Fragment, layout: ly.Layout) -> Fragment:
    key = ("converted", value, layout)
    found = d.known(key)
    if found is None:
        made = d.pick(d.converted(held, layout).registers)
        found = d.remember(key, made)
    return d.fragment(layout, found)


@rule("vector.extract")
def extract(d: Lanes, op: vector.ExtractOp) -> None:
    position = [int(n) for n in op.static_position.get_values()]
    if DYNAMIC_INDEX in position:
        raise d.refuse("a position that is known at run time only")
    held = d.held[op.vector]
    if isinstance(op.result.type, VectorType):
        fixed = [np.intp(n) for n in position]

        def through(c: Coords) -> Coords:
            return (*(np.full_like(c[0], n) for n in fixed), *c)

        rearranged(d, op.result, op.vector, through, ("extract", *position))
        return
    if isinstance(held, Free):
        one = d.splat(held, 1)
        d.env[op.result] = d.scalar_of((one, 0))
        return
    everywhere = ly.Layout.of((1,), [ly.Digit(ly.Axis.LANE, 1, d.lanes, None, 0)])
    moved = d.move(held, everywhere, lambda c: tuple(np.full_like(c[0], n) for n in position))
    d.env[op.result] = d.scalar_of(moved.registers[0])


@rule("vector.insert_strided_slice", "vector.insert")
def insert_strided_slice(d: Lanes, op: more.InsertStridedSliceOp | vector.InsertOp) -> None:
    """The destination with the source in a box of it: each register is taken from one of the two."""
    result, source, dest = op.result, op.source, op.dest
    where = box_of_insertion(op)
    if where is None:
        raise d.refuse("a position that is known at run time only")
    offsets, box, lead = where
    if not isinstance(source.type, VectorType):
        d.held[source] = Free(source.type, None, d.env[source])
    layout = d.owners.layout(result)
    below = d.owned(dest, layout)
    held = d.held[source]
    if isinstance(held, Free):
        everywhere = ly.Layout.of(
            shape_of(source) or (1,) * 0,
            ly.number(ly.Axis.LANE, [(d.lanes, None, 0)])
            + ly.number(ly.Axis.REGISTER, [(n, d, 1) for d, n in enumerate(shape_of(source))]),
        )
        above = Fragment(everywhere, held.element, ((d.splat(held, 1), 0),) * everywhere.registers)
    else:
        above = held
    coords = tuple(c[0] for c in layout.table())
    inside = np.ones((d.lanes, layout.registers), bool)
    local: list[Any] = []
    for c, offset, extent in zip(coords, offsets, box, strict=True):
        inside &= (c >= offset) & (c < offset + extent)
        local.append(np.clip(c - offset, 0, extent - 1))
    own = above.layout.owner(*local[lead:]) if above.layout.rank else None
    lanes = np.broadcast_to(np.arange(d.lanes)[:, None], inside.shape)
    lane_of = lanes if own is None else own.lane + above.layout.replica_part(ly.Axis.LANE, lanes)
    register_of = np.zeros_like(lanes) if own is None else own.register
    registers = np.broadcast_to(np.arange(layout.registers), inside.shape)
    d.held[result] = d.gather(
        [below, above],
        layout,
        inside.astype(np.intp),
        np.where(inside, lane_of, lanes),
        np.where(inside, register_of, registers),
    )


@rule("vector.shuffle")
def shuffle_op(d: Lanes, op: vector.ShuffleOp) -> None:
    """vector.shuffle of two subgroup vectors along their first dimension."""
    mask = [int(n) for n in op.mask.get_values()]
    first = shape_of(op.v1)[0]
    layout = d.owners.layout(op.result)
    sources = [d.owned_as_is(op.v1), d.owned_as_is(op.v2)]
    merged(d, op.result, sources, layout, lambda c: _shuffled(c, mask, first))


def merged(
    d: Lanes,
    result: SSAValue,
    sources: Sequence[Fragment],
    layout: ly.Layout,
    through: Callable[[Coords], tuple[Any, Coords]],
) -> None:
    """The result's element at c is that of source `which` at `coordinates`, both from `through(c)`."""
    which, coordinates = through(tuple(c[0] for c in layout.table()))
    lanes = np.broadcast_to(np.arange(d.lanes)[:, None], which.shape)
    lane, register = np.zeros_like(which), np.zeros_like(which)
    for n, source in enumerate(sources):
        clipped = [
            np.clip(c, 0, extent - 1)
            for c, extent in zip(coordinates, source.layout.shape, strict=True)
        ]
        own = source.layout.owner(*clipped)
        here = which == n
        lane = np.where(here, own.lane + source.layout.replica_part(ly.Axis.LANE, lanes), lane)
        register = np.where(here, own.register, register)
    d.held[result] = d.gather(sources, layout, which, lane, register)


@rule("vector.interleave")
def interleave(d: Lanes, op: more.InterleaveOp) -> None:
    layout = d.owners.layout(op.result)
    sources = [d.owned_as_is(op.lhs), d.owned_as_is(op.rhs)]
    merged(d, op.result, sources, layout, lambda c: (c[-1] % 2, (*c[:-1], c[-1] // 2)))


@rule("vector.deinterleave")
def deinterleave(d: Lanes, op: more.DeinterleaveOp) -> None:
    for n, result in enumerate(op.results):
        rearranged(d, result, op.source, lambda c, n=n: (*c[:-1], 2 * c[-1] + n))


@rule("xegpu.convert_layout")
def convert_layout(d: Lanes, op: xegpu.ConvertLayoutOp) -> None:
    if not isinstance(op.source.type, VectorType):
        d.env[op.result] = d.env[op.source]
        return
    rearranged(d, op.result, op.source, lambda c: c)


def _in_runs(layout: ly.Layout, dim: int, factor: int) -> bool:
    """Are the parts of one wide element consecutive registers?"""
    at = layout.at(register=np.arange(layout.registers))
    groups = at[dim].reshape(-1, factor) if layout.registers % factor == 0 else None
    return groups is not None and bool(
        (groups == groups[:, :1] + np.arange(factor)).all() and (groups[:, 0] % factor == 0).all()
    )


def _shuffled(c: Coords, mask: Sequence[int], first: int) -> tuple[Any, Coords]:
    place = np.asarray(mask)[c[0]]
    which = (place >= first).astype(np.intp)
    return which, (place - which * first, *c[1:])


def reindexed(c: Coords, shape: Sequence[int], source: Sequence[int]) -> Coords:
    """Coordinates of one row-major shape as those of another."""
    linear = np.zeros_like(c[0])
    for x, extent in zip(c, shape, strict=True):
        linear = linear * extent + x
    return tuple(np.unravel_index(linear, tuple(source)))
