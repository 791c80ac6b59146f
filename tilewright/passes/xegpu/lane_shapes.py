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
    element_of,
)
from tilewright.passes.xegpu.lane_layouts import joined, natural
from tilewright.passes.xegpu.lane_values import LaneValues
from tilewright.passes.xegpu.ownership import (
    box_of_insertion,
    is_free,
    shape_of,
    slice_attributes,
)


class LaneShapes(LaneValues):
    """Handlers of rearrangements."""

    # --- Rearrangements ------------------------------------------------------------------------------------

    def rearranged(
        self, result: SSAValue, source: SSAValue, through: Through, what: Hashable = None
    ) -> None:
        """The result's element at c is the source's at `through(c)`, a map that `what` names."""
        held = self.held[source]
        if isinstance(held, Free):
            self.held[result] = held
            return
        self.held[result] = self.move(held, self.owners.layout(result), through, what)

    def broadcast(self, op: vector.BroadcastOp) -> None:
        source, result = op.source, op.vector
        if not isinstance(source.type, VectorType):
            self.held[result] = Free(source.type, None, self.env[source])
            return
        shape = shape_of(source)
        held = self.held[source]
        if is_free(result) and isinstance(held, Fragment):
            moved = self.move(
                held,
                ly.Layout.of((1,) * len(shape), [ly.Digit(ly.Axis.LANE, 1, self.lanes, None, 0)]),
                lambda c: c,
            )
            self.held[result] = Free(held.element, None, self.scalar_of(moved.registers[0]))
            return
        lead = len(shape_of(result)) - len(shape)

        def through(c: Coords) -> Coords:
            inner = c[lead:]
            return tuple(
                np.zeros_like(x) if extent == 1 else x
                for x, extent in zip(inner, shape, strict=True)
            )

        self.rearranged(result, source, through, ("broadcast",))

    def transpose(self, op: more.TransposeOp) -> None:
        p = op.permutation
        self.rearranged(
            op.result,
            op.vector,
            lambda c: tuple(c[p.index(d)] for d in range(len(p))),
            ("transpose", p),
        )

    def shape_cast(self, op: more.ShapeCastOp) -> None:
        before, after = shape_of(op.source), shape_of(op.result)
        self.rearranged(
            op.result, op.source, lambda c: reindexed(c, after, before), ("shape_cast",)
        )

    def bitcast(self, op: vector.BitcastOp) -> None:
        source, result = op.source, op.result
        held = self.owned_as_is(source)
        last = len(shape_of(source)) - 1
        a, b = shape_of(source)[last], shape_of(result)[last]
        if b >= a:
            layout = held.layout.expanded(last, b // a)
        else:
            try:
                layout = joined(held.layout, last, a // b)
            except ly.LayoutError:
                layout = natural(shape_of(result), 32, self.lanes)
                held = self.converted(held, layout.expanded(last, a // b))
        if b < a and not _in_runs(held.layout, last, a // b):
            layout = natural(shape_of(result), 32, self.lanes)
            held = self.converted(held, layout.expanded(last, a // b))
        kind = VectorType(element_of(result), [layout.registers])  # pyright: ignore
        made = self.add(vector.BitcastOp(self.pick(held.registers), kind))
        self.give_vector(result, made, layout)

    def extract_strided_slice(self, op: more.ExtractStridedSliceOp) -> None:
        offsets, sizes = slice_attributes(op)
        held = self.held_in_whole_lanes(op.source, sizes)
        if isinstance(held, Free):
            self.held[op.result] = held
            return
        self.held[op.result] = self.move(
            held,
            self.owners.layout(op.result),
            lambda c: tuple(x + o for x, o in zip(c, offsets, strict=True)),
            ("slice", *offsets),
        )

    def held_in_whole_lanes(self, source: SSAValue, sizes: Sequence[int]) -> Held:
        """A value to be sliced: where slices would cut through the lanes, dealt row by row, once for all."""
        held = self.held[source]
        if isinstance(held, Free):
            return held
        try:
            held.layout.cropped(sizes)
        except ly.LayoutError:
            usual = self.owners.natural(held.layout.shape, 32)
            if usual != held.layout:
                return self.converted_once(source, held, usual)
        return held

    def converted_once(self, value: SSAValue, held: Fragment, layout: ly.Layout) -> Fragment:
        key = ("converted", value, layout)
        found = self.known(key)
        if found is None:
            made = self.pick(self.converted(held, layout).registers)
            found = self.remember(key, made)
        return self.fragment(layout, found)

    def extract(self, op: vector.ExtractOp) -> None:
        position = [int(n) for n in op.static_position.get_values()]
        if DYNAMIC_INDEX in position:
            raise self.refuse("a position that is known at run time only")
        held = self.held[op.vector]
        if isinstance(op.result.type, VectorType):
            fixed = [np.intp(n) for n in position]

            def through(c: Coords) -> Coords:
                return (*(np.full_like(c[0], n) for n in fixed), *c)

            self.rearranged(op.result, op.vector, through, ("extract", *position))
            return
        if isinstance(held, Free):
            one = self.splat(held, 1)
            self.env[op.result] = self.scalar_of((one, 0))
            return
        everywhere = ly.Layout.of((1,), [ly.Digit(ly.Axis.LANE, 1, self.lanes, None, 0)])
        moved = self.move(
            held, everywhere, lambda c: tuple(np.full_like(c[0], n) for n in position)
        )
        self.env[op.result] = self.scalar_of(moved.registers[0])

    def insert_strided_slice(self, op: more.InsertStridedSliceOp | vector.InsertOp) -> None:
        """The destination with the source in a box of it: each register is taken from one of the two."""
        result, source, dest = op.result, op.source, op.dest
        where = box_of_insertion(op)
        if where is None:
            raise self.refuse("a position that is known at run time only")
        offsets, box, lead = where
        if not isinstance(source.type, VectorType):
            self.held[source] = Free(source.type, None, self.env[source])
        layout = self.owners.layout(result)
        below = self.owned(dest, layout)
        held = self.held[source]
        if isinstance(held, Free):
            everywhere = ly.Layout.of(
                shape_of(source) or (1,) * 0,
                ly.number(ly.Axis.LANE, [(self.lanes, None, 0)])
                + ly.number(ly.Axis.REGISTER, [(n, d, 1) for d, n in enumerate(shape_of(source))]),
            )
            above = Fragment(
                everywhere, held.element, ((self.splat(held, 1), 0),) * everywhere.registers
            )
        else:
            above = held
        coords = tuple(c[0] for c in layout.table())
        inside = np.ones((self.lanes, layout.registers), bool)
        local: list[Any] = []
        for c, offset, extent in zip(coords, offsets, box, strict=True):
            inside &= (c >= offset) & (c < offset + extent)
            local.append(np.clip(c - offset, 0, extent - 1))
        own = above.layout.owner(*local[lead:]) if above.layout.rank else None
        lanes = np.broadcast_to(np.arange(self.lanes)[:, None], inside.shape)
        lane_of = (
            lanes if own is None else own.lane + above.layout.replica_part(ly.Axis.LANE, lanes)
        )
        register_of = np.zeros_like(lanes) if own is None else own.register
        registers = np.broadcast_to(np.arange(layout.registers), inside.shape)
        self.held[result] = self.gather(
            [below, above],
            layout,
            inside.astype(np.intp),
            np.where(inside, lane_of, lanes),
            np.where(inside, register_of, registers),
        )

    insert = insert_strided_slice

    def shuffle_op(self, op: vector.ShuffleOp) -> None:
        """vector.shuffle of two subgroup vectors along their first dimension."""
        mask = [int(n) for n in op.mask.get_values()]
        first = shape_of(op.v1)[0]
        layout = self.owners.layout(op.result)
        sources = [self.owned_as_is(op.v1), self.owned_as_is(op.v2)]
        self.merged(op.result, sources, layout, lambda c: _shuffled(c, mask, first))

    def merged(
        self,
        result: SSAValue,
        sources: Sequence[Fragment],
        layout: ly.Layout,
        through: Callable[[Coords], tuple[Any, Coords]],
    ) -> None:
        """The result's element at c is that of source `which` at `coordinates`, both from `through(c)`."""
        which, coordinates = through(tuple(c[0] for c in layout.table()))
        lanes = np.broadcast_to(np.arange(self.lanes)[:, None], which.shape)
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
        self.held[result] = self.gather(sources, layout, which, lane, register)

    def interleave(self, op: more.InterleaveOp) -> None:
        layout = self.owners.layout(op.result)
        sources = [self.owned_as_is(op.lhs), self.owned_as_is(op.rhs)]
        self.merged(op.result, sources, layout, lambda c: (c[-1] % 2, (*c[:-1], c[-1] // 2)))

    def deinterleave(self, op: more.DeinterleaveOp) -> None:
        for n, result in enumerate(op.results):
            self.rearranged(result, op.source, lambda c, n=n: (*c[:-1], 2 * c[-1] + n))

    def convert_layout(self, op: xegpu.ConvertLayoutOp) -> None:
        if not isinstance(op.source.type, VectorType):
            self.env[op.result] = self.env[op.source]
            return
        self.rearranged(op.result, op.source, lambda c: c)


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
