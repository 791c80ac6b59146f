"""Numbers computed of a program's number that are those of a grid: the same results, from programs along more axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import reference
from tilewright.dialects.text import parse_module, verify_module
from tilewright.passes.kernel import kernel_of
from tilewright.passes.program_numbers import ProgramNumbers
from tilewright.runtime.arrays import describe


@tw.kernel
def placed(
    X: Any,
    Y: Any,
    M: Any,
    N: Any,
    GROUP: Any,
    ORDER: tw.constexpr,
    BM: tw.constexpr,
    BN: tw.constexpr,
):
    """Y = X + the program's place, by tiles whose order is one of many."""
    i, z = tw.program_id(0), tw.program_id(1)
    rows, columns = tw.cdiv(M, BM), tw.cdiv(N, BN)
    if ORDER == "along rows":
        m, n = i // columns, i % columns
    elif ORDER == "along columns":
        m, n = i % rows, i // rows
    elif ORDER == "backwards":
        m, n = rows - 1 - i // columns, i % columns
    elif ORDER == "grouped":
        first = i // (GROUP * columns) * GROUP
        size = tw.minimum(rows - first, GROUP)
        m, n = first + i % (GROUP * columns) % size, i % (GROUP * columns) // size
    elif ORDER == "diagonal":
        m, n = i // columns, (i + i // columns) % columns
    elif ORDER == "with batches":
        z, m, n = i // (rows * columns), i // columns % rows, i % columns
    elif ORDER == "twice":
        m, n = i // columns, i // columns
    elif ORDER == "as it is":
        m, n = i, i
    elif ORDER == "loaded":
        m, n = i // columns, i % columns
    if ORDER == "told":
        m, n = i // columns, i % columns
        tw.device_assert(m < rows, "too many programs")
    value = tw.load_tile(tw.init_tile(X, [z, m * BM, n * BN], (BM, BN)))
    place = (m * columns + n + tw.num_programs(0)).to(tw.f32)
    tw.store_tile(value + place, tw.init_tile(Y, [z, m * BM, n * BN], (BM, BN)))


def launch(rng: np.random.Generator, order: str, more: int = 0):
    """A module, its grid and arguments."""
    batches, m, n = (int(x) for x in rng.integers((2, 17, 17), (4, 90, 90)))
    bm, bn = (int(x) for x in rng.choice([8, 16], 2))
    x = rng.standard_normal((batches, m, n)).astype(np.float32)
    args = [x, np.full_like(x, np.nan), m, n, int(rng.integers(1, 5))]
    compiled = placed.compile(*args, order, bm, bn, target="reference")
    tiles = -(-m // bm) * -(-n // bn)
    grid = (tiles * batches + more, 1, 1) if order == "with batches" else (tiles + more, batches, 1)
    return parse_module(compiled.ir["xetile"]), grid, args


def described(args):
    return [describe(a, "") if isinstance(a, np.ndarray) else a for a in args]


@pytest.mark.parametrize(
    "order", ["along rows", "along columns", "backwards", "grouped", "diagonal", "with batches"]
)
def test_numbers_that_take_each_combination_once_become_a_grid(rng, order):
    module, grid, args = launch(rng, order)
    expected = [np.copy(a) if isinstance(a, np.ndarray) else a for a in args]
    reference.run(module.clone(), grid, expected, check=True)
    numbers = ProgramNumbers(kernel_of(module))
    assert set(numbers.arguments) <= {2, 3, 4}
    found = numbers.choice(grid, described(args))
    assert found is not None
    choice, numbered = found
    assert np.prod(numbered) == np.prod(grid)
    assert sum(n > 1 for n in numbered) > sum(n > 1 for n in grid)
    before = str(module)
    made = numbers.applied(choice)
    assert str(module) == before
    verify_module(made)
    assert not ProgramNumbers(kernel_of(made)).cuts
    report = reference.run(made, numbered, args, check=True)
    assert report.workgroups == np.prod(grid)
    assert np.array_equal(args[1], expected[1]) and not np.isnan(args[1]).any()


@pytest.mark.parametrize(
    ("order", "more"), [("twice", 0), ("as it is", 0), ("told", 0), ("along rows", 1)]
)
def test_other_numbers_stay_what_they_are(rng, order, more):
    """Those of several programs, the program's own, those of programs that tell them, grids with programs left over."""
    module, grid, args = launch(rng, order, more)
    numbers = ProgramNumbers(kernel_of(module))
    assert numbers.choice(grid, described(args)) is None


def test_what_divides_by_zero_has_no_numbers(rng):
    module, grid, args = launch(rng, "along rows")
    args[3] = 0
    assert ProgramNumbers(kernel_of(module)).choice(grid, described(args)) is None
