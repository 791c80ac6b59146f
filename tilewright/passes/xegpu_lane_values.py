"""Subgroup to lane, values: arithmetic, constants, reductions, and what only rearranges elements.

Part of :mod:`tilewright.passes.xegpu_subgroup_distribute`. Every handler takes fragments in the ownership that
`OwnershipAnalysis` decided for the class of its values; operands that are owned otherwise are converted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    DenseIntOrFPElementsAttr,
    IntegerType,
    VectorType,
)
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.upstream import vector as more
from tilewright.dialects.upstream.gpu.lanes import SubgroupReduceOp
from tilewright.passes.xegpu_fragments import (
    Coords,
    Fragment,
    Fragments,
    Free,
    Held,
    Through,
    dense,
    element_of,
)
from tilewright.passes.xegpu_ownership import (
    OwnershipAnalysis,
    is_free,
    joined,
    natural,
    restricted,
    shape_of,
    slice_attributes,
)
from tilewright.passes.xegpu_rebuild import floats_or_ints

COMBINE: dict[tuple[str, str], type[Operation]] = {
    ("add", "f"): arith.AddfOp,
    ("add", "i"): arith.AddiOp,
    ("mul", "f"): arith.MulfOp,
    ("mul", "i"): arith.MuliOp,
    ("minui", "i"): arith.MinUIOp,
    ("minsi", "i"): arith.MinSIOp,
    ("maxui", "i"): arith.MaxUIOp,
    ("maxsi", "i"): arith.MaxSIOp,
    ("minnumf", "f"): arith.MinnumfOp,
    ("maxnumf", "f"): arith.MaxnumfOp,
    ("minimumf", "f"): arith.MinimumfOp,
    ("maximumf", "f"): arith.MaximumfOp,
    ("and", "i"): arith.AndIOp,
    ("or", "i"): arith.OrIOp,
    ("xor", "i"): arith.XOrIOp,
}
"""The arith op of a vector.kind on floats ("f") and integers ("i")."""


class LaneValues(Fragments):
    """Handlers of ops on values."""

    owners: OwnershipAnalysis
    held: dict[SSAValue, Held]
    hardware_reductions: bool

    # --- Fragments of old values ---------------------------------------------------------------------

    def of(self, value: SSAValue) -> Held:
        return self.held[value]

    def owned(self, value: SSAValue, layout: ly.Layout) -> Fragment:
        """A value as a fragment of the given ownership."""
        held = self.held[value]
        if isinstance(held, Free):
            made = self.splat(held, 1)
            return Fragment(layout, held.element, ((made, 0),) * layout.registers)
        return self.converted(held, layout)

    def taken(self, value: SSAValue, layout: ly.Layout) -> SSAValue:
        """A value as one vector of the lane program."""
        return self.vector(self.held[value], layout)

    def give(self, value: SSAValue, held: Held) -> None:
        """The value is this, in the ownership of its class."""
        if isinstance(held, Fragment):
            held = self.converted(held, self.owners.layout(value))
        self.held[value] = held

    def give_vector(self, value: SSAValue, made: SSAValue, layout: ly.Layout) -> None:
        made.name_hint = value.name_hint
        self.give(value, self.fragment(layout, made))

    # --- Arithmetic ------------------------------------------------------------------------------------

    def elementwise(self, op: Operation) -> None:
        layout = self.owners.layout(op.results[0])
        operands = [
            self.taken(v, layout) if isinstance(v.type, VectorType) else self.env[v]
            for v in op.operands
        ]
        types = [
            VectorType(element_of(r), [layout.registers])  # pyright: ignore[reportArgumentType]
            for r in op.results
        ]
        new = self.put(
            type(op).create(
                operands=operands,
                result_types=types,
                properties=dict(op.properties),
                attributes=without_layouts(op.attributes),
            )
        )
        for old, made in zip(op.results, new.results, strict=True):
            made.name_hint = old.name_hint
            self.held[old] = self.fragment(layout, made)

    def constant_op(self, op: arith.ConstantOp) -> None:
        value = op.value
        assert isinstance(value, DenseIntOrFPElementsAttr)
        element = element_of(op.result)
        if value.is_splat():
            self.held[op.result] = Free(element, value.data, None)
            return
        layout = self.owners.layout(op.result)
        numbers = np.array(value.get_values(), dtype=object).reshape(shape_of(op.result))
        places = numbers[tuple(c[0] for c in layout.table())]  # [lanes, registers]
        kind = VectorType(element, [layout.registers])  # pyright: ignore[reportArgumentType]
        patterns: dict[tuple[Any, ...], list[int]] = {}
        for lane, row in enumerate(places):
            patterns.setdefault(tuple(row), []).append(lane)
        total: SSAValue | None = None
        for row, lanes in patterns.items():
            made = self.constant(dense(kind, list(row)))
            where = np.isin(np.arange(self.lanes), lanes)
            total = (
                made if total is None else self.add(arith.SelectOp(self.chosen(where), made, total))
            )
        assert total is not None
        self.give_vector(op.result, total, layout)

    def step_op(self, op: more.StepOp) -> None:
        layout = self.owners.layout(op.result)
        kind = VectorType(element_of(op.result), [layout.registers])  # pyright: ignore
        self.give_vector(op.result, self.coordinate(layout, 0, kind), layout)

    def coordinate(self, layout: ly.Layout, dim: int, kind: VectorType[Any]) -> SSAValue:
        """Where each register's element lies along a dimension."""
        key = ("coordinate", layout, dim, kind)
        found = self.known(key)
        if found is not None:
            return found
        lane = layout.at(lane=np.arange(self.lanes))[dim]
        register = layout.at(register=np.arange(layout.registers))[dim]
        steps = self.constant(dense(kind, [int(r) for r in register]))
        base = self.table([int(x) for x in lane])
        if kind.element_type != base.type:
            base = self.once(("as", base, kind.element_type), cast_index(base, kind.element_type))
        spread = self.once(("splat", base, kind), vector.BroadcastOp(base, kind))
        return self.remember(key, self.binary(arith.AddiOp, spread, steps))

    def mask_op(self, op: Operation) -> None:
        """create_mask and constant_mask: below the bound in every dimension."""
        from xdsl.dialects.builtin import IndexType

        result = op.results[0]
        layout = self.owners.layout(result)
        bounds = (
            list(op.sizes)
            if isinstance(op, more.ConstantMaskOp)
            else [self.env[v] for v in op.operands]
        )
        kind = VectorType(IndexType(), [layout.registers])
        total: SSAValue | None = None
        for dim, bound in enumerate(bounds):
            limit = self.index(bound)
            place = self.coordinate(layout, dim, kind)
            wide = self.once(("splat", limit, kind), vector.BroadcastOp(limit, kind))
            hit = self.compare("slt", place, wide)
            total = hit if total is None else self.binary(arith.AndIOp, total, hit)
        assert total is not None
        self.give_vector(result, total, layout)

    # --- Reductions --------------------------------------------------------------------------------------

    def multi_reduction(self, op: more.MultiReductionOp) -> None:
        reduced = self.reduced(op.kind, self.owned_as_is(op.source), op.dims)
        if isinstance(op.dest.type, VectorType) and op.dest.type.get_shape():
            layout = reduced.layout
            acc = self.taken(op.acc, layout)
            total = self.combine(op.kind, self.pick(reduced.registers), acc)
            self.give_vector(op.dest, total, layout)
            return
        total = self.scalar_of(reduced.registers[0])
        acc = self.env[op.acc]
        self.env[op.dest] = self.combine(op.kind, total, acc)

    def reduction(self, op: vector.ReductionOp) -> None:
        kind = op.properties["kind"].data.value  # pyright: ignore
        reduced = self.reduced(kind, self.owned_as_is(op.vector), (0,))
        total = self.scalar_of(reduced.registers[0])
        if op.acc is not None:
            total = self.combine(kind, total, self.env[op.acc])
        self.env[op.dest] = total

    def owned_as_is(self, value: SSAValue) -> Fragment:
        held = self.held[value]
        return held if isinstance(held, Fragment) else self.owned(value, self.owners.layout(value))

    def reduced(self, kind: str, source: Fragment, dims: Sequence[int]) -> Fragment:
        """Folds the lane's own registers, then the lanes of every group (butterfly, or one hardware op)."""
        fragment = source
        for dim in sorted(dims, reverse=True):
            plan = ly.plan.reduce(fragment.layout, dim)
            groups: list[list[int]] = [[] for _ in range(plan.result.registers)]
            for register, result in enumerate(plan.fold):
                groups[int(result)].append(register)
            columns = [
                self.pick([fragment.registers[group[n]] for group in groups])
                for n in range(len(groups[0]))
            ]
            while len(columns) > 1:
                pairs = zip(columns[::2], columns[1::2], strict=False)
                rest = columns[-1:] if len(columns) % 2 else []
                columns = [self.combine(kind, a, b) for a, b in pairs] + rest
            value = columns[0]
            if self.hardware_reductions and len(plan.partners(ly.Axis.LANE)) == self.lanes:
                value = self.add(SubgroupReduceOp(kind, value))
            else:
                for mask in plan.butterfly():
                    other = self.shuffle(value, "xor", self.number(mask))
                    value = self.combine(kind, value, other)
            fragment = self.fragment(plan.result.dropped(dim), value)
        return fragment

    def combine(self, kind: str, a: SSAValue, b: SSAValue) -> SSAValue:
        found = COMBINE.get((kind, floats_or_ints(element_of(a))))
        if found is None:
            raise self.refuse(f"a reduction <{kind}> of {element_of(a)}")
        return self.binary(found, a, b)

    # --- Rearrangements ------------------------------------------------------------------------------------

    def rearranged(self, result: SSAValue, source: SSAValue, through: Through) -> None:
        """The result's element at c is the source's at `through(c)`."""
        held = self.held[source]
        if isinstance(held, Free):
            self.held[result] = held
            return
        self.held[result] = self.move([held], self.owners.layout(result), through)

    def broadcast(self, op: vector.BroadcastOp) -> None:
        source, result = op.source, op.vector
        if not isinstance(source.type, VectorType):
            self.held[result] = Free(source.type, None, self.env[source])
            return
        shape = shape_of(source)
        held = self.held[source]
        if is_free(result) and isinstance(held, Fragment):
            moved = self.move(
                [held],
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

        self.rearranged(result, source, through)

    def transpose(self, op: more.TransposeOp) -> None:
        p = op.permutation
        self.rearranged(op.result, op.vector, lambda c: tuple(c[p.index(d)] for d in range(len(p))))

    def shape_cast(self, op: more.ShapeCastOp) -> None:
        before, after = shape_of(op.source), shape_of(op.result)
        self.rearranged(op.result, op.source, lambda c: reindexed(c, after, before))

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
        self.keep_lanes_whole(op.source, sizes)
        self.rearranged(
            op.result,
            op.source,
            lambda c: tuple(x + o for x, o in zip(c, offsets, strict=True)),
        )

    def keep_lanes_whole(self, source: SSAValue, sizes: Sequence[int]) -> None:
        """Where a slice would cut through the lanes, deals the source row by row first: once for all slices."""
        held = self.held[source]
        if isinstance(held, Free):
            return
        try:
            restricted(held.layout, sizes)
        except ly.LayoutError:
            usual = self.owners.natural(held.layout.shape, 32)
            if usual != held.layout:
                self.held[source] = self.converted_once(source, held, usual)

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

            self.rearranged(op.result, op.vector, through)
            return
        if isinstance(held, Free):
            one = self.splat(held, 1)
            self.env[op.result] = self.scalar_of((one, 0))
            return
        everywhere = ly.Layout.of((1,), [ly.Digit(ly.Axis.LANE, 1, self.lanes, None, 0)])
        moved = self.move(
            [held], everywhere, lambda c: tuple(np.full_like(c[0], n) for n in position)
        )
        self.env[op.result] = self.scalar_of(moved.registers[0])

    def insert_strided_slice(self, op: more.InsertStridedSliceOp) -> None:
        full, part = shape_of(op.dest), shape_of(op.source)
        lead = len(full) - len(part)
        self.inserted(op.result, op.source, op.dest, op.offsets, (*[1] * lead, *part), lead)

    def insert(self, op: vector.InsertOp) -> None:
        position = [int(n) for n in op.static_position.get_values()]
        if DYNAMIC_INDEX in position:
            raise self.refuse("a position that is known at run time only")
        full = shape_of(op.dest)
        if not isinstance(op.source.type, VectorType):
            self.held[op.source] = Free(op.source.type, None, self.env[op.source])
        offsets = [*position, *[0] * (len(full) - len(position))]
        box = (*[1] * len(position), *full[len(position) :])
        self.inserted(op.result, op.source, op.dest, offsets, box, len(position))

    def inserted(
        self,
        result: SSAValue,
        source: SSAValue,
        dest: SSAValue,
        offsets: Sequence[int],
        box: Sequence[int],
        lead: int,
    ) -> None:
        """`dest` with `source` in the box at `offsets`; the source lacks the box's `lead` outer dimensions."""
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

    # --- Products ----------------------------------------------------------------------------------------

    def dpas(self, op: xegpu.DpasOp) -> None:
        from tilewright.passes.xegpu_ownership import dpas_fragments, right_layout
        from tilewright.passes.xegpu_sg_maps import dpas_instruction

        instruction = dpas_instruction(self.owners.xe, op)
        m, n, k = op.dims() or (0, 0, 0)
        if m not in instruction.m or n not in instruction.n or k != instruction.k:
            raise self.refuse(
                f"a product of {m}x{k} by {k}x{n} is no instruction of {self.owners.xe.name}, "
                f"which multiplies {instruction.m[-1]}x{instruction.k} by {instruction.k}x{instruction.n[-1]}",
                "run xegpu-blocking first",
            )
        fragments = dpas_fragments(self.owners.xe, op)
        assert fragments.a is not None and fragments.b is not None
        operands = [
            self.taken(op.lhs, fragments.a),
            self.taken(op.rhs, right_layout(fragments.b, op.rhs)),
        ]
        if op.acc is not None:
            operands.append(self.taken(op.acc, fragments.c))
        kind = VectorType(element_of(op.result), [fragments.c.registers])  # pyright: ignore
        made = self.add(xegpu.DpasOp.create(operands=operands, result_types=[kind]))
        self.give_vector(op.result, made, fragments.c)


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


def cast_index(value: SSAValue, element: Attribute) -> Operation:
    """An i32 as another integer or an index."""
    if isinstance(element, IntegerType):
        if element.width.data > 32:
            return arith.ExtSIOp(value, element)
        return arith.TruncIOp(value, element)
    return arith.IndexCastOp(value, element)


def without_layouts(attributes: dict[str, Attribute]) -> dict[str, Attribute]:
    return {k: v for k, v in attributes.items() if not k.startswith("layout_")}


__all__ = ["COMBINE", "LaneValues", "without_layouts"]
