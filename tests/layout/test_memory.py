"""Memory layouts: strides, blocks, swizzles, and what an access of a subgroup costs."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import layout as ly
from tilewright.layout import LayoutError, Swizzle, memory


def test_row_major():
    at = np.indices((3, 5))
    assert np.array_equal(ly.row_major([3, 5]).address(*at), np.arange(15).reshape(3, 5))


def test_padding_leaves_gaps():
    padded = ly.strided([4, 6], [8, 1])
    assert padded.extent(ly.Axis.MEMORY) == 3 * 8 + 6
    assert padded.address(2, 5) == 21
    with pytest.raises(LayoutError, match="follows digits that cover"):
        ly.strided([4, 6], [4, 1])


def test_mem_layout_of_the_implementation():
    """mem_desc<32x256xf16, block = [16, 8], stride = [1, 32]> is [2, 32, 16, 8] x [128, 256, 1, 16]."""
    tile = ly.mem_layout([32, 256], stride=[1, 32], block=[16, 8])
    r, c = np.indices((32, 256))
    want = r // 16 * 128 + c // 8 * 256 + r % 16 * 1 + c % 8 * 16
    assert np.array_equal(tile.address(r, c), want)


def test_mem_layout_row_major_blocks():
    tile = ly.mem_layout([32, 32], block=[8, 16])
    r, c = np.indices((32, 32))
    want = r // 8 * 256 + c // 16 * 128 + r % 8 * 16 + c % 16
    assert np.array_equal(tile.address(r, c), want)
    with pytest.raises(LayoutError, match="32 elements in blocks of 12 in dimension 1"):
        ly.mem_layout([32, 32], block=[8, 12])


@pytest.mark.parametrize("width", [32, 64, 128])
@pytest.mark.parametrize("itemsize", [1, 2, 4])
def test_swizzle_in_bytes(width: int, itemsize: int):
    """16-byte chunk c of row r of `width` bytes goes to chunk c ^ f(r), 8 rows of 128 bytes a period."""
    swizzle = Swizzle.of_bytes(width, itemsize)
    address = np.arange(1024 // itemsize)
    byte = address * itemsize
    chunk, row128 = byte // 16 % 8, byte // 128 % 8
    chunks = width // 16
    want = byte - chunk * 16 + (chunk ^ (row128 % chunks)) * 16
    assert np.array_equal(swizzle(address) * itemsize, want)
    assert np.array_equal(swizzle(swizzle(address)), address)


def test_swizzle_refuses_what_it_cannot():
    with pytest.raises(LayoutError, match="32, 64 or 128 bytes, not 48"):
        Swizzle.of_bytes(48, 2)
    with pytest.raises(LayoutError, match="1 to 16 bytes, not 3"):
        Swizzle.of_bytes(128, 3)


def test_swizzled_memory_is_read_back():
    tile = ly.row_major([64, 64], Swizzle.of_bytes(128, 2))
    at = np.indices((64, 64))
    address = tile.address(*at)
    assert np.array_equal(np.sort(address.ravel()), np.arange(64 * 64))
    assert np.array_equal(np.stack(tile.at(address=address)), at)


@pytest.mark.parametrize(("lane_data", "run"), [([1, 1], 1), ([1, 2], 2), ([1, 8], 8), ([2, 1], 1)])
def test_contiguous_run_is_the_vector_width(lane_data, run):
    fragment = ly.layout(lane_layout=[1, 8], lane_data=lane_data).over([8, 64])
    assert memory.contiguous_run(fragment, ly.row_major([8, 64])) == run


def test_contiguous_run_sees_alignment():
    fragment = ly.layout(lane_layout=[1, 8], lane_data=[1, 8]).over([8, 64])
    assert memory.contiguous_run(fragment, ly.strided([8, 64], [68, 1])) == 4


def test_run_along_a_dimension_ends_with_its_row():
    """Registers 2 columns, 4 rows, 2 columns more: neighbours along rows come in twos, along columns they do not."""
    digits = [(2, 1, 1), (4, 0, 1), (2, 1, 2)]
    fragment = ly.Layout.of([4, 4], ly.number(ly.Axis.REGISTER, digits))
    assert [memory.run_along(fragment, dim) for dim in (0, 1, -1)] == [1, 2, 2]
    turned = fragment.permuted((1, 0))
    assert [memory.run_along(turned, dim) for dim in (0, 1)] == [2, 1]
    # A lane that begins in the middle of a pair has no aligned pair.
    apart = ly.layout(lane_layout=[1, 2], lane_data=[1, 3]).over([1, 6])
    assert memory.run_along(apart, 1) == 1
    whole = ly.Layout.of([2, 4], ly.number(ly.Axis.REGISTER, [(4, 1, 1), (2, 0, 1)]))
    assert memory.run_along(whole, 1) == 4


def test_bank_conflicts_of_columns():
    columns = ly.layout(lane_layout=[32, 1], lane_data=[1, 1]).over([32, 32])
    assert memory.bank_conflicts(columns, ly.row_major([32, 32]), 4) == 32
    assert memory.bank_conflicts(columns, ly.strided([32, 32], [33, 1]), 4) == 1
    rows = ly.layout(lane_layout=[1, 32], lane_data=[1, 1]).over([32, 32])
    assert memory.bank_conflicts(rows, ly.row_major([32, 32]), 4) == 1


@pytest.mark.parametrize("itemsize", [2, 4])
def test_staging_costs_no_more_than_a_plain_buffer(itemsize: int):
    """Columns written, rows read: a plain buffer serialises one side, the chosen one neither."""
    columns = ly.layout(lane_layout=[32, 1], lane_data=[1, 1]).over([32, 32])
    rows = ly.layout(lane_layout=[1, 32], lane_data=[1, 1]).over([32, 32])
    chosen = memory.staging(columns, rows, itemsize)
    at = np.indices((32, 32))
    assert len(np.unique(chosen.address(*at))) == 32 * 32
    passes = [
        memory.bank_conflicts(
            side, chosen, itemsize, vector=min(memory.contiguous_run(side, chosen), 16 // itemsize)
        )
        for side in (columns, rows)
    ]
    assert passes == [1, 1]


def test_bank_conflicts_count_words_once():
    """Two 16-bit elements of one word, and lanes that read the same word, are one access."""
    pairs = ly.layout(lane_layout=[1, 32], lane_data=[1, 1]).over([1, 32])
    assert memory.bank_conflicts(pairs, ly.row_major([1, 32]), 2) == 1
    same = ly.layout(lane_layout=[1, 32], lane_data=[1, 1]).over([8, 32]).contracted(1)
    assert memory.bank_conflicts(same, ly.row_major([8, 1]), 4) == 1
