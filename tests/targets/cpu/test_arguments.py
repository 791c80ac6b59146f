"""Which program of the grid a task is: every one of them once, in strips where operands are shared."""

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tilewright.targets.cpu.arguments import STRIP


@tw.kernel
def numbered(A, B, C, COUNT, TURNS, SHARED: tw.constexpr):
    """Each program notes how many ran before it."""
    x, y, z = tw.program_id(0), tw.program_id(1), tw.program_id(2)
    m, n = x * 16, y * 16
    a = tw.load_tile(tw.init_tile(A, [m, 0], (16, 16)))
    b = tw.load_tile(tw.init_tile(B, [0, n if SHARED else m + n], (16, 16)))
    c = tw.tile_mma(a, b, tw.zeros((16, 16), tw.f32))
    tw.store_tile(c, tw.init_tile(C, [m, n], (16, 16)))
    count = tw.init_tile(COUNT, [0, 0], (1, 16))
    before = tw.load_tile(count)
    tw.store_tile(before + 1, count)
    row = (z * tw.num_programs(1) + y) * tw.num_programs(0) + x
    tw.store_tile(before, tw.init_tile(TURNS, [row, 0], (1, 16)))


def turns(grid, shared):
    x, y, z = grid
    rng = fresh_rng()
    a = rng.standard_normal((16 * x, 16)).astype(np.float32)
    b = rng.standard_normal((16, 16 * y)).astype(np.float32)
    c, count = np.full((16 * x, 16 * y), np.nan, np.float32), np.zeros((1, 16), np.int32)
    found = np.full((x * y * z, 16), -1, np.int32)
    numbered.options(target="cpu", num_threads=1)[grid](a, b, c, count, found, SHARED=shared)
    wanted = a.astype(np.float64) @ b
    assert not shared or np.linalg.norm(c - wanted) <= 1e-6 * np.linalg.norm(wanted)
    assert sorted(found[:, 0]) == list(range(x * y * z))
    return found[:, 0].reshape(z, y, x)


@pytest.mark.parametrize("grid", [(2 * STRIP + 3, 3, 2), (STRIP - 1, 5, 1), (STRIP, 1, 3)])
def test_programs_that_share_operands_both_ways_run_in_strips_and_others_row_after_row(grid):
    x, y, z = grid
    strips = [range(s, min(s + STRIP, x)) for s in range(0, x, STRIP)]
    order = [(k, j, i) for k in range(z) for strip in strips for j in range(y) for i in strip]
    found = turns(grid, True)
    assert [found[at] for at in order] == list(range(x * y * z))
    assert (turns(grid, False).ravel() == np.arange(x * y * z)).all()
