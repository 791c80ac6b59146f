"""Subgroup to lane, values: arithmetic, constants, reductions, and what only rearranges elements.

Part of :mod:`tilewright.passes.xegpu.subgroup_distribute`. Every handler takes fragments in the ownership that
`OwnershipAnalysis` decided for the class of its values; operands that are owned otherwise are converted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    IndexType,
    IntegerType,
    Signedness,
    VectorType,
)
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.upstream import vector as more
from tilewright.dialects.upstream.gpu.lanes import SubgroupReduceOp
from tilewright.passes.xegpu.fragments import (
    Fragment,
    Fragments,
    Free,
    Held,
    dense,
    element_of,
)
from tilewright.passes.xegpu.ownership import (
    OwnershipAnalysis,
    dpas_fragments,
    has_instruction,
    right_layout,
    shape_of,
)
from tilewright.passes.xegpu.rebuild import floats_or_ints
from tilewright.passes.xegpu.sg_maps import dpas_instruction

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
        steps = _steps(places, kind)
        if steps is not None:
            # Indices, mostly: a lane's numbers are the first lane's and one that grows with the lane.
            number = self.table(steps)
            if kind.element_type != number.type:
                number = self.add(cast_index(number, kind.element_type))
            first = self.constant(dense(kind, list(places[0])))
            spread = self.add(vector.BroadcastOp(number, kind))
            self.give_vector(op.result, self.binary(arith.AddiOp, spread, first), layout)
            return
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

    # --- Products ----------------------------------------------------------------------------------------

    def dpas(self, op: xegpu.DpasOp) -> None:
        xe = self.owners.xe
        m, n, k = op.dims() or (0, 0, 0)
        fragments = dpas_fragments(xe, op) if has_instruction(xe, op) else None
        if (
            fragments is None
            or fragments.c.shape != (m, n)
            or fragments.a is None
            or k != fragments.a.shape[1]
        ):
            instruction = dpas_instruction(xe, op)
            raise self.refuse(
                f"a product of {m}x{k} by {k}x{n} is no instruction of {xe.name}, which multiplies "
                f"{instruction.m[-1]}x{instruction.k} by {instruction.k}x{instruction.n[-1]}",
                "run xegpu-blocking first",
            )
        assert fragments.b is not None
        operands = [
            self.taken(op.lhs, fragments.a),
            self.taken(op.rhs, right_layout(fragments.b, op.rhs)),
        ]
        if op.acc is not None:
            operands.append(self.taken(op.acc, fragments.c))
        kind = VectorType(element_of(op.result), [fragments.c.registers])  # pyright: ignore
        made = self.add(xegpu.DpasOp.create(operands=operands, result_types=[kind]))
        self.give_vector(op.result, made, fragments.c)


def _steps(places: np.ndarray[Any, Any], kind: VectorType[Any]) -> list[int] | None:
    """By how much each lane's numbers [lanes, registers] exceed the first lane's, where all of a lane's do alike."""
    element = kind.element_type
    if isinstance(element, IntegerType):
        if element.width.data == 1 or element.signedness.data is not Signedness.SIGNLESS:
            return None
    elif not isinstance(element, IndexType):
        return None
    more = places - places[0]
    alike = bool((more == more[:, :1]).all()) and bool((more != 0).any())
    if not alike or max(abs(int(n)) for n in more[:, 0]) >= 2**31:
        return None
    return [int(n) for n in more[:, 0]]


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
