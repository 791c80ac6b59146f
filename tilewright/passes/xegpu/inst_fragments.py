"""Vectors cut into fragments: what blocking keeps for each value of the old program.

A value is a grid of equal fragments, row-major, or one number everywhere (`Free`). `Fragments.box` gives any box of it:
a fragment, a slice of one, or several put together. Boxes that are asked for twice are made once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects import gpu, vector
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.movement import shape_of
from tilewright.dialects.upstream import vector as more
from tilewright.dialects.xegpu.types import TensorDescType
from tilewright.frozen import frozen
from tilewright.passes.xegpu import split
from tilewright.passes.xegpu.lane_layouts import lane_attribute
from tilewright.passes.xegpu.lazy_registers import Free
from tilewright.passes.xegpu.ownership import OwnershipAnalysis
from tilewright.rules import Rules
from tilewright.uarch.xe import XeMachine

Shape = tuple[int, ...]


@frozen
class Grid:
    """The fragments of a value of `shape`. A source may hold several (blocks of a load): (vector, block, row)."""

    shape: Shape
    fragment: Shape
    values: tuple[SSAValue, ...]

    def number(self, place: Shape) -> int:
        """Which fragment stands at a place among the fragments."""
        return int(np.ravel_multi_index(place, grid_of(self.shape, self.fragment)))


def grid_of(shape: Shape, fragment: Shape) -> Shape:
    return tuple(extent // size for extent, size in zip(shape, fragment, strict=True))


def starts(shape: Shape, fragment: Shape) -> Iterator[Shape]:
    """Where each fragment begins, row-major."""
    ranges = (range(0, extent, size) for extent, size in zip(shape, fragment, strict=True))
    return product(*ranges)


_RULES = ("blocking_values", "blocking_memory")
rule: Rules[Callable[[Fragments, Any], None]] = Rules(
    *(f"tilewright.passes.xegpu.{name}" for name in _RULES), shared=split.rule
)
"""How ops are blocked."""


class Fragments(split.Split[Shape]):
    """A kernel under construction at instruction level: values are cut into fragments of a shape, which `grids` has."""

    rules = rule

    def __init__(self, kernel: gpu.FuncOp, xe: XeMachine):
        super().__init__()
        self.owners = OwnershipAnalysis(kernel, xe, whole=False)
        self.grids: dict[SSAValue, Grid | Free] = {}
        self.remarks: list[str] = []
        self.plans: dict[Operation, Any] = {}
        """How block ops are cut (`blocking_memory.Plan`)."""
        self.descriptors: dict[tuple[SSAValue, TensorDescType], SSAValue] = {}
        """The messages' descriptors, by the old one and their type."""

    def cut_of(self, value: SSAValue) -> Shape:
        return self.owners.fragment(value)

    def starts(self, cut: Shape, shape: Sequence[int]) -> list[Shape]:
        return list(starts(tuple(shape), cut))

    def boxes(self, cut: Shape, shape: Sequence[int]) -> list[tuple[Shape, Shape]]:
        return [(start, cut) for start in starts(tuple(shape), cut)]

    def source(self, op: Operation, cut: Shape) -> Callable[[Shape, Shape], SSAValue]:
        return partial(self.box, op.operands[0])

    def scatter_cuts(self, op: xegpu.ScatterAccess) -> tuple[Shape, Shape]:
        assert op.offsets_operand is not None
        fragment = self.owners.fragment(op.offsets_operand)
        return ((*fragment, op.chunk) if op.chunk > 1 else fragment), fragment

    def mark(self, new: Operation, cut: Shape) -> Operation:
        if self.op is not None and "layout_result_0" in self.op.attributes:
            layout = lane_attribute(self.owners.layout(self.op.results[0]))
            if layout is not None:
                new.attributes["layout_result_0"] = layout
        return new

    def unruled(self, op: Operation) -> None:
        """An op that has no form on fragments stays whole."""
        operands = [
            self.whole(v) if isinstance(v.type, VectorType) else self.env[v] for v in op.operands
        ]
        new = op.clone(dict(zip(op.operands, operands, strict=True)))
        self.put(new)
        for old, made in zip(op.results, new.results, strict=True):
            if isinstance(old.type, VectorType):
                self.give(old, shape_of(old), [made])
            else:
                self.env[old] = made

    def typed(self, value: SSAValue, cut: Shape) -> VectorType:
        kind = value.type
        element = kind.element_type if isinstance(kind, VectorType) else kind
        return VectorType(element, list(cut))  # pyright: ignore[reportArgumentType]

    def give(self, value: SSAValue, cut: Shape, fragments: Sequence[SSAValue]) -> None:
        shape = shape_of(value)
        if prod(grid_of(shape, cut)) != len(fragments):
            raise AssertionError(f"{len(fragments)} fragments {cut} of {shape}")
        if value.name_hint is not None:
            for made in fragments:
                if made.name_hint is None:
                    made.name_hint = value.name_hint
        self.grids[value] = Grid(shape, cut, tuple(fragments))

    def fragments(self, value: SSAValue, cut: Shape, what: str = "an operand") -> list[SSAValue]:
        grid = self.grids[value]
        if isinstance(grid, Grid) and grid.fragment == cut:
            return list(grid.values)
        return [self.box(value, start, cut) for start in starts(shape_of(value), cut)]

    def whole(self, value: SSAValue) -> SSAValue:
        shape = shape_of(value)
        return self.box(value, (0,) * len(shape), shape)

    def box(self, value: SSAValue, start: Shape, size: Shape) -> SSAValue:
        """The elements of a value in [start, start + size)."""
        grid = self.grids[value]
        if isinstance(grid, Free):
            return grid.splat(self, size)
        return self.once(("box", value, start, size), lambda: self._box(grid, start, size))

    def _box(self, grid: Grid, start: Shape, size: Shape) -> SSAValue:
        """From the fragments that the box meets."""
        first = (s // p for s, p in zip(start, grid.fragment, strict=True))
        last = ((s + n - 1) // p for s, n, p in zip(start, size, grid.fragment, strict=True))
        met = product(*(range(a, b + 1) for a, b in zip(first, last, strict=True)))
        return self.assembled(
            start,
            size,
            [
                (
                    tuple(i * p for i, p in zip(index, grid.fragment, strict=True)),
                    grid.values[grid.number(index)],
                )
                for index in met
            ],
        )

    def cast(self, value: SSAValue, shape: Shape) -> SSAValue:
        if shape_of(value) == shape:
            return value
        return self.once(("cast", value, shape), more.ShapeCastOp(value, self.typed(value, shape)))

    def element_at(self, value: SSAValue, position: Sequence[int]) -> SSAValue:
        """`vector.extract` at a position that may leave inner dimensions."""
        rest = shape_of(value)[len(position) :]
        kind = self.typed(value, rest) if rest else self.typed(value, ()).element_type
        op = vector.ExtractOp(value, list(position), kind)
        return self.once(("at", value, tuple(position)), op)
