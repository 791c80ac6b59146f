"""Small programs that fuzzing once found wrong on a target; each stays right."""

from __future__ import annotations

import pytest

from tests.devices import TARGETS
from tests.fuzz.programs import ArrayOf, Place, Program, Step, Value
from tests.fuzz.test_programs import Case

ORIGIN = (Place(0, 0, 0), Place(0, 0, 0))


def load(array: int, shape: tuple[int, int], padding: int = 0) -> Step:
    extra = {"array": array, "at": ORIGIN, "padding": padding, "map": None}
    return Step("load", (), Value(shape, "f32"), extra)


def dot(shape: tuple[int, int], k: int, depth: int, at: tuple[Place, Place] = ORIGIN) -> Step:
    extra = {"a": 0, "b": 1, "k": k, "depth": depth, "style": "update", "at": at}
    return Step("dot", (), Value(shape, "f32"), extra)


def arrays(*shapes: tuple[int, int]) -> list[ArrayOf]:
    return [ArrayOf(shape, "f32", "rows") for shape in shapes]


FOUND = {
    "a row that is stored, and carried by a loop as a column": Program(
        (1, 1),
        arrays((1, 1)),
        [
            load(0, (1, 3)),
            Step("transpose", (0,), Value((3, 1), "f32")),
            Step("unary", (1,), Value((3, 1), "f32"), {"op": "negf"}),
            Step("repeat", (1, 2), Value((3, 1), "f32"), {"times": 1, "op": "addf"}),
        ],
        [0, 3],
    ),
    "a value that both branches of an if give": Program(
        (2, 1),
        arrays((4, 4)),
        [
            load(0, (4, 4)),
            Step("unary", (0,), Value((4, 4), "f32"), {"op": "negf"}),
            Step("if", (0, 0), Value((4, 4), "f32"), {"axis": 0}),
        ],
        [0, 2],
    ),
    "a sum over nothing, of one column": Program(
        (1, 1), arrays((4, 1), (1, 1)), [dot((4, 1), 1, 0)], [0]
    ),
    "one k per step": Program(
        (1, 1),
        arrays((4, 2), (2, 4)),
        [dot((4, 4), 1, 2, (Place(0, 0, 0), Place(0, 1, 0)))],
        [0],
    ),
    "one column of a wider matrix, added to": Program(
        (1, 1),
        arrays((4, 16), (16, 3), (4, 1)),
        [
            load(0, (4, 16)),
            load(1, (16, 1)),
            load(2, (4, 1)),
            Step("mma", (0, 1, 2), Value((4, 1), "f32")),
        ],
        [3],
    ),
    "one column, many k, many rows": Program(
        (1, 1),
        arrays((40, 600), (600, 3)),
        [load(0, (40, 600)), load(1, (600, 1)), Step("mma", (0, 1), Value((40, 1), "f32"))],
        [2],
    ),
    "a value beside a reduction of runs": Program(
        (1, 2),
        arrays((2, 32)),
        [
            load(0, (2, 32)),
            Step("reduce", (0,), Value((2, 16), "f32"), {"op": "add", "dim": 1, "size": 2}),
            Step("if", (1, 1), Value((2, 16), "f32"), {"axis": 1}),
        ],
        [0, 2],
    ),
    "a column beside padding": Program(
        (1, 1),
        arrays((4, 16), (14, 1), (4, 1)),
        [
            load(0, (4, 16)),
            load(1, (16, 1), padding=1),
            load(2, (4, 1)),
            Step("mma", (0, 1, 2), Value((4, 1), "f32")),
        ],
        [3],
    ),
    "an operand computed for two products, one of them with what threads bring": Program(
        (1, 1),
        [
            ArrayOf((64, 96), "f16", "even rows"),
            ArrayOf((96, 16), "f16", "even rows"),
            ArrayOf((96, 16), "f16", "rows"),
        ],
        [
            Step(
                "dot",
                (),
                Value((64, 16), "f32"),
                {
                    "a": 0,
                    "b": 1,
                    "also": 2,
                    "before": "negf",
                    "k": 32,
                    "depth": 96,
                    "style": "update",
                    "at": ORIGIN,
                },
            )
        ],
        [0],
        layout="even rows",
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FOUND)
def test_programs_that_once_failed(target: str, name: str):
    case = Case(FOUND[name], seed=7)
    case.compare(case.expected(), case.launch(target), target)
