"""merge-programs: fewer programs with larger tiles; what is not the same then stays as it is."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tilewright as tw
from tests.fuzz.programs import Program
from tests.fuzz.test_programs import Case
from tests.lowering.programs import programs, run, wrong
from tests.lowering.test_random import lowering
from tilewright import reference
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.text import parse_module, verify_module
from tilewright.passes.kernel import kernel_of
from tilewright.passes.merge_programs import ask, merge, merge_programs, merges


@lowering
@given(
    program=programs(),
    seed=st.integers(0, 2**32 - 1),
    factor=st.integers(2, 5) | st.sampled_from([Fraction(3, 2), Fraction(5, 4), Fraction(1, 2)]),
)
def test_random_programs_keep_their_results(program: Program, seed: int, factor: int | Fraction):
    case = Case(program, seed)
    assume(case.expected().finite)
    grid, args = (*program.grid, 1), [*case.inputs, *case.outputs]
    module = case.module.clone()
    kernel, shapes = kernel_of(module), [np.shape(a) for a in args]
    found = [each for each in merges(kernel) if each.covers(grid[each.axis], factor, shapes)]
    assume(found)
    expected = run(case.module, grid, args)
    for each in found:
        try:
            merge(kernel, each, factor)
        except UnsupportedError:  # of whole numbers of programs all are merged
            assert factor.denominator > 1
            assume(False)
    verify_module(module)
    assert wrong(expected, run(module, grid, args, check=True)) is None


@tw.kernel
def sized(X: Any, Y: Any):
    m, n = tw.program_id(0) * 2, tw.program_id(1) * 2
    x = tw.load_tile(tw.init_tile(X, [m, 0], (2, 1)))
    y = tw.broadcast(x, 1, 2, broadcast_size=2)
    tw.store_tile(y, tw.init_tile(Y, [m, n], (2, 2)))


def test_what_is_repeated_as_often_as_an_op_says_stays_as_long():
    x, y = np.zeros((4, 1), np.float32), np.zeros((4, 4), np.float32)
    kernel = kernel_of(parse_module(sized.compile(x, y).ir["xetile"]))
    assert [each.axis for each in merges(kernel)] == [0]


@tw.kernel
def biased(A: Any, B: Any, bias: Any, C: Any, MEAN: Any, BM: tw.constexpr, BN: tw.constexpr):
    """Batches of a product, of which rows are summed in turn."""
    z, m, n = tw.program_id(2), tw.program_id(1) * BM, tw.program_id(0) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[2], 16):
        a = tw.load_tile(tw.init_tile(A, [z, m, k], (BM, 16)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (16, BN))), acc)
    x = tw.exp(acc + tw.broadcast(tw.load_tile(tw.init_tile(bias, [0, n], (1, BN))), 0, BM))
    tw.store_tile(x, tw.init_tile(C, [z, m, n], (BM, BN)))
    if BN == 64:
        tw.store_tile(tw.sum(x, axis=1), tw.init_tile(MEAN, [m, n // 64], (BM, 1)))


def module_of(
    rng: np.random.Generator, shape: tuple[int, int, int], **tiles: int
) -> tuple[Any, list[Any]]:
    m, n, k = shape
    arrays = (rng.standard_normal(s, np.float32) for s in ((2, m, k), (k, n), (1, n)))
    args = [*arrays, np.full((2, m, n), np.nan, np.float32), np.full((m, 1), np.nan, np.float32)]
    return parse_module(biased.compile(*args, **tiles, target="reference").ir["xetile"]), args


@pytest.mark.parametrize(("tiles", "axes"), [((16, 32), [0, 1]), ((16, 64), [1])])
def test_axes_of_the_grid_that_place_tiles_are_merged(
    rng: np.random.Generator, tiles: tuple[int, int], axes: list[int]
):
    """Not those along which a sum is added up, nor batches."""
    m, n, k = (int(extent) for extent in rng.integers(20, 60, 3))
    module, args = module_of(rng, (m, n, k), BM=tiles[0], BN=tiles[1])
    grid = (-(-n // tiles[1]), -(-m // tiles[0]), 2)
    expected = [a.copy() for a in args]
    reference.run(module.clone(), grid, expected)
    found = merges(kernel_of(module))
    assert [each.axis for each in found] == axes
    factors = [3 if axis in axes else 1 for axis in range(3)]
    ask(kernel_of(module), factors)
    merge_programs(kernel_of(module))
    verify_module(module)
    report = reference.run(module, grid, args, check=True)
    assert report.workgroups == np.prod([-(-n // f) for n, f in zip(grid, factors, strict=True)])
    for got, want in zip(args, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_what_the_grid_leaves_out_must_be_known_to_be_left_out(rng: np.random.Generator):
    module, args = module_of(rng, (60, 60, 20), BM=16, BN=32)
    x, y = merges(kernel_of(module))
    shapes = [a.shape for a in args]
    assert x.covers(2, 4, shapes) and y.covers(4, 16, shapes)
    assert not x.covers(1, 4, shapes) and not y.covers(3, 2, shapes)
    assert y.covers(2, 2, shapes)


@tw.kernel
def masked(X: Any, Y: Any, C: tw.constexpr):
    m = tw.program_id(0) * 16
    x = tw.load_tile(tw.init_tile(X, [m, 0], (16, 32)))
    if C == "rows":
        x = x + m
    elif C == "gaps":
        m = tw.program_id(0) * 17
    elif C == "counted":
        x = x * tw.num_programs(0)
    elif C == "same":
        x = x + tw.load_tile(tw.init_tile(X, [0, 0], (16, 32)))
    row = tw.arange(0, 16, axis=0, shape=(16, 32))
    if C == "adding":
        x = x + tw.load_tile(tw.init_tile(Y, [m, 0], (16, 32)))
    elif C == "counting":
        x = tw.where(m + row - 3 < tw.arange(0, 32, axis=1, shape=(16, 32)), x, 0.0)
    elif C == "gathering":
        at = (row + m) * 32 + tw.arange(0, 32, axis=1, shape=(16, 32))
        x = x + tw.load_gather(tw.init_tile(X, at), row + m < 50)
    elif C == "by twos":
        x = tw.where(m + row * 2 < 30, x, 0.0)
    elif C == "parts":
        x = tw.where(row < 5, x, 0.0)
    tw.store_tile(x, tw.init_tile(Y, [m, 0], (16, 32)))
    if C == "again":
        tw.store_tile(
            x * tw.load_tile(tw.init_tile(Y, [m + 1, 0], (16, 32))),
            tw.init_tile(Y, [m, 0], (16, 32)),
        )


@pytest.mark.parametrize("what", ["plain", "adding", "counting", "gathering", "counted"])
def test_programs_whose_number_places_and_counts_are_merged(rng: np.random.Generator, what: str):
    x, y = rng.standard_normal((2, 64, 32), np.float32)
    module = parse_module(masked.compile(x, y, what, target="reference").ir["xetile"])
    expected = y.copy()
    reference.run(module.clone(), (4, 1, 1), [x, expected])
    (along,) = merges(kernel_of(module))
    assert along.covers(3, 2, [(48, 32), (48, 32)]) == (what in ("plain", "adding", "counting"))
    ask(kernel_of(module), [2, 1, 1])
    merge_programs(kernel_of(module))
    verify_module(module)
    assert reference.run(module, (4, 1, 1), [x, y], check=True).workgroups == 2
    assert y.tobytes() == expected.tobytes()


@pytest.mark.parametrize("what", ["rows", "gaps", "same", "again", "by twos", "parts"])
def test_programs_that_do_more_with_their_number_stay(what: str):
    x = np.zeros((64, 32), np.float32)
    module = parse_module(masked.compile(x, x.copy(), what, target="reference").ir["xetile"])
    kernel = kernel_of(module)
    assert merges(kernel) == []
    ask(kernel, [2, 1, 1])
    with pytest.raises(UnsupportedError, match="programs along x cannot be merged"):
        merge_programs(kernel)
