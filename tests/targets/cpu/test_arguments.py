"""Which program of the grid a task is: every one of them once, row after row."""

import numpy as np

import tilewright as tw


@tw.kernel
def numbered(COUNT, TURNS):
    """Each program notes how many ran before it."""
    x, y, z = tw.program_id(0), tw.program_id(1), tw.program_id(2)
    count = tw.init_tile(COUNT, [0, 0], (1, 16))
    before = tw.load_tile(count)
    tw.store_tile(before + 1, count)
    row = (z * tw.num_programs(1) + y) * tw.num_programs(0) + x
    tw.store_tile(before, tw.init_tile(TURNS, [row, 0], (1, 16)))


def test_programs_run_row_after_row(rng):
    x, y, z = (int(n) for n in rng.integers(1, 9, 3))
    count, found = np.zeros((1, 16), np.int32), np.full((x * y * z, 16), -1, np.int32)
    numbered.options(target="cpu", num_threads=1)[x, y, z](count, found)
    assert (found[:, 0] == np.arange(x * y * z)).all()
