"""Layouts that the cuda target chooses: complete, as the instructions' tables say, free of conflicts."""

# Kernels are not typed Python, and fixtures give what they say.
# pyright: reportMissingParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import f64

import tilewright as tw
from tilewright.dialects.stage import PartAttr
from tilewright.layout.memory import bank_conflicts
from tilewright.passes import tile_origin
from tilewright.targets.cuda import blocked as bl
from tilewright.targets.cuda import exchange as ex
from tilewright.targets.cuda.products import layouts
from tilewright.targets.cuda.rules_product import operand_memory
from tilewright.targets.cuda.rules_reduce import across_warps
from tilewright.targets.cuda.staged import memory_of
from tilewright.uarch.nvidia import MMA_F64, MMA_SYNC

SHAPES = [((4, 320), 1), ((1, 1), 1), ((64, 64), 0), ((3, 5), 1), ((24,), 0), ((2, 8, 12), 2)]


@pytest.mark.parametrize("shape, fast", SHAPES, ids=str)
@pytest.mark.parametrize("warps", [1, 4, 8])
def test_blocked_layouts_have_all_threads_and_every_element(shape, fast, warps):
    layout = bl.blocked(shape, fast, 4, warps)
    assert (layout.lanes, layout.subgroups) == (32, warps)
    held = np.zeros(shape, int)
    held[layout.table()] = 1
    assert held.all()


HALF = MMA_SYNC[0]


def test_lanes_go_along_the_contiguous_dimension():
    layout = bl.blocked((16, 256), 1, 4, 4)
    rows, columns = layout.at(lane=np.arange(32))
    assert (columns == 4 * np.arange(32)).all() and (rows == 0).all()


@pytest.mark.parametrize("each", MMA_SYNC + MMA_F64, ids=lambda each: f"{each.types}, {each.k}")
def test_a_warp_of_a_product_holds_the_instructions_fragments(each):
    """The first registers of every warp are one instruction's fragment of the table."""
    held = layouts(each, 64, 32, 4 * each.k, (2, 2), 4)
    for mine, table in zip(held, each.fragments(), strict=True):
        assert (mine.subgroups, mine.lanes) == (4, 32)
        lanes, registers = np.arange(32)[:, None], np.arange(table.registers)
        for x, y in zip(mine.at(0, lanes, registers), table.at(0, lanes, registers), strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("columns", [16, 32, 64, 128])
@pytest.mark.parametrize("fast", [0, 1])
def test_operands_are_read_by_ldmatrix_without_conflicts(columns, fast):
    """Whichever dimension memory has contiguous, rows of 16 bytes are found and no bank is hit twice."""
    shape = (64, columns)
    source = bl.blocked(shape, fast, 8, 4)
    memory = operand_memory(source, 2)
    want = layouts(HALF, 64, 8, columns, (4, 1), 4)[0]
    found = ex.matrices(want, memory, 2, 4)
    assert found is not None and found.transposed == (fast == 0)
    rows = np.array(found.at.thread)[:8] // 16 % 8
    assert len(set(rows)) == 8 or shape[fast] * 2 < 32
    assert bank_conflicts(source, memory, 2, vector=8) <= 2


@pytest.mark.parametrize("each", MMA_F64, ids=lambda each: f"m{each.m[0]}k{each.k}")
@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
def test_f64_is_copied_to_where_no_bank_is_hit_twice(each, order):
    """Half a warp reads four neighbours of each of four lines, along either dimension."""
    held = layouts(each, 64, 64, 32, (2, 2), 4)
    for shape, want in (((64, 32), held[0]), ((32, 64), held[1])):
        memory = memory_of(PartAttr(shape, f64, order, 0))
        assert bank_conflicts(want, memory, 8) == 1


def test_addresses_part_into_thread_and_register():
    source, target = bl.blocked((64, 64), 1, 4, 4), layouts(HALF, 64, 64, 16, (2, 2), 4)[2]
    memory = ex.staging_memory(source, target, 4)
    for layout in (source, target):
        at = ex.addresses(layout, memory, 4)
        real = memory.address(*layout.table()).reshape(128, -1)[:, :: at.vector] * 4
        np.testing.assert_array_equal(at.table(), real)


def test_reductions_across_warps_spread_one_part_per_warp():
    source = bl.blocked((1, 4096), 1, 4, 4)
    result = source.contracted(1)
    held, wanted = across_warps(source, result, tuple(d for d in source.digits if d.axis == 2))
    assert held.shape == wanted.shape == (4, 1, 1)
    assert wanted.registers == 4 and held.registers == 1


@tw.kernel
def rows_added(X, B, Y, N: tw.constexpr):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (64, 64)))
    for i in tw.static_range(N):
        x = x * tw.load_tile(tw.init_tile(B, [i, 0], (1, 64)))
    tw.store_tile(x, tw.init_tile(Y, [0, 0], (64, 64)))


def test_what_a_kernel_writes_is_found_once_for_all_of_its_small_loads(monkeypatch):
    plain, found = tile_origin.written_roots, []
    monkeypatch.setattr(tile_origin, "written_roots", lambda op: found.append(op) or plain(op))
    x = np.zeros((64, 64), np.float32)
    counts = []
    for n in (2, 12):
        found.clear()
        rows_added.compile(x, x, x, target="cuda", N=n)
        counts.append(len(found))
    assert counts[0] == counts[1] > 0
