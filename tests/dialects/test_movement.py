"""The table of rearranging ops: a layout that it says keeps elements in place does, by the numbers it gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.ir import Operation

from tests.movement import CASES, kernel
from tilewright import layout as ly
from tilewright.dialects.movement import (
    ELEMENTS,
    LAYOUTS,
    kept_dimensions,
    numbered,
    operand_layout,
    result_layout,
    shape_of,
)
from tilewright.layout import Axis, BoundMap, Layout, LayoutError, Move, number
from tilewright.layout.plan import gather

LANES, SUBGROUPS = 8, 2


@st.composite
def layouts(draw: st.DrawFn, shape: tuple[int, ...]) -> Layout:
    """Factors of the extents distributed to registers, lanes and subgroups; lanes that are left hold replicas."""
    room = {Axis.LANE: LANES, Axis.SUBGROUP: SUBGROUPS}
    found: dict[Axis, list[tuple[int, int | None, int]]] = {a: [] for a in Axis}
    for dim in draw(st.permutations(range(len(shape)))):
        stride = 1
        while stride < shape[dim]:
            size = draw(st.sampled_from([2, 4]))
            size = size if shape[dim] // stride % size == 0 else shape[dim] // stride
            axes = [a for a in room if room[a] % size == 0] + [Axis.REGISTER]
            axis = draw(st.sampled_from(axes))
            if axis in room:
                room[axis] //= size
            found[axis].append((size, dim, stride))
            stride *= size
    for axis, rest in room.items():
        found[axis].append((rest, None, 0))
    return Layout.of(shape, [d for axis, digits in found.items() for d in number(axis, digits)])


def op_of(case: str, text: str | None = None) -> Operation:
    """The op of a case, or of text that makes %r."""
    name = case.partition(",")[0]
    if text is not None:
        text = text.replace("%r", "%x") + "\n%r = arith.addf %a, %b : vector<16x32xf32>"
    return [op for op in kernel(text or case).walk() if op.name == name][-1]


MOVING = [case for case in CASES if case.partition(",")[0] in ELEMENTS]


@pytest.mark.parametrize("case", MOVING)
@given(data=st.data())
def test_a_layout_in_place_moves_nothing(case: str, data: st.DataObject):
    op = op_of(case)
    source = op.operands[0]
    if not shape_of(source) or not shape_of(op.results[0]):
        return
    if data.draw(st.booleans()):
        given, change = source, result_layout
    else:
        given, change = op.results[0], operand_layout
    layout = data.draw(layouts(shape_of(given)))
    try:
        other = change(op, layout)
    except LayoutError:
        return
    nothing_moves(op, *((layout, other) if given is source else (other, layout)))


def nothing_moves(op: Operation, have: Layout, want: Layout) -> None:
    for numbers in numbered(op):
        # Of several operands, which have one layout, element n is at n modulo their size.
        places = numbers % have.size
        plan = gather(have, want, lambda c, at=places: np.unravel_index(at[c], have.shape))
        assert plan.kind in (Move.NOTHING, Move.REGISTERS) and plan.permutation is not None


@st.composite
def maps(draw: st.DrawFn, shape: tuple[int, ...]) -> BoundMap:
    """A map of subgroups in one round or two; perhaps of a value that was reduced along one more dimension."""
    grid = [draw(st.sampled_from([g for g in (1, 2, 4) if n % g == 0])) for n in shape]
    rounds = [
        draw(st.sampled_from([r for r in (1, 2) if n // g % r == 0]))
        for n, g in zip(shape, grid, strict=True)
    ]
    data = [n // g // r for n, g, r in zip(shape, grid, rounds, strict=True)]
    sliced: list[int] = []
    if draw(st.booleans()):
        at = draw(st.integers(0, len(shape)))
        grid.insert(at, draw(st.sampled_from([1, 2])))
        data.insert(at, draw(st.sampled_from([1, 8])))
        sliced = [at]
    order = draw(st.permutations(range(len(grid))))
    return BoundMap(ly.slice_(ly.layout(grid, data, order=order), sliced), shape)


@pytest.mark.parametrize("case", [*MOVING, "vector.bitcast", "vector.bitcast, to wider elements"])
@given(data=st.data())
def test_a_map_in_place_moves_nothing(case: str, data: st.DataObject):
    """What the table makes of a text's map is local to every subgroup, as of the normal form."""
    op = op_of(case)
    source, result = op.operands[0], op.results[0]
    if not shape_of(source) or not shape_of(result):
        return
    given, change = (
        (source, result_layout) if data.draw(st.booleans()) else (result, operand_layout)
    )
    bound = data.draw(maps(shape_of(given)))
    try:
        other = change(op, bound)
    except LayoutError:
        return
    assert other.shape == shape_of(result if given is source else source)
    pair = [each.map.over(each.shape) for each in (bound, other)]
    if op.name == "vector.bitcast":
        subgroups = [each.on(Axis.SUBGROUP) for each in pair]
        assert [(d.weight, d.size, d.dim) for d in subgroups[0]] == [
            (d.weight, d.size, d.dim) for d in subgroups[1]
        ]
        return
    nothing_moves(op, *(pair if given is source else reversed(pair)))


@pytest.mark.parametrize("case", MOVING)
def test_every_result_has_its_shape(case: str):
    op = op_of(case)
    for numbers, result in zip(numbered(op), op.results, strict=True):
        assert numbers.shape == shape_of(result)


@pytest.mark.parametrize(
    ("text", "kept", "mixed"),
    [
        ("%r = vector.transpose %a, [1, 0] : vector<16x32xf32> to vector<32x16xf32>", {0: 1, 1: 0}, ([], [])),
        ("%r = vector.shape_cast %a : vector<16x32xf32> to vector<4x4x32xf32>", {0: 0, 1: 2}, ([], [1])),
        ("%r = vector.shape_cast %a : vector<16x32xf32> to vector<512xf32>", {0: 0}, ([1], [])),
        ("%r = vector.shape_cast %a : vector<16x32xf32> to vector<32x16xf32>", {0: 0}, ([1], [1])),
        ("%r = vector.shape_cast %a : vector<16x32xf32> to vector<16x1x32xf32>", {0: 0, 1: 2}, ([], [])),
        ("%r = vector.broadcast %a : vector<16x32xf32> to vector<8x16x32xf32>", {0: 1, 1: 2}, ([], [])),
        ("%r = vector.extract %a[3] : vector<32xf32> from vector<16x32xf32>", {1: 0}, ([0], [])),
    ],
)  # fmt: skip
def test_dimensions_that_go_on(text: str, kept: dict[int, int], mixed: tuple[list[int], list[int]]):
    op = op_of(text.split()[2], text)
    assert kept_dimensions(op) == (kept, ({*mixed[0]}, {*mixed[1]}))


def test_layouts_are_of_ops_that_rearrange():
    assert {*LAYOUTS} - {*ELEMENTS} == {"vector.bitcast"}
    assert {*ELEMENTS} <= {case.partition(",")[0] for case in CASES}
