"""New results: of the kind of the operand, large ones of torch in huge pages."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tilewright import ops
from tilewright.dtypes import bf16
from tilewright.ops.arrays import HUGE_BYTES, empty

torch = pytest.importorskip("torch")


def flags_of(address: int) -> set[str]:
    """What the system has been asked for the mapping that holds an address."""
    found = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        bounds = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
        if bounds:
            found = int(bounds[1], 16) <= address < int(bounds[2], 16)
        elif found and line.startswith("VmFlags:"):
            return set(line.split()[1:])
    return set()


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system tells no mappings")
@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="no huge pages here"
)
def test_large_results_may_lie_in_huge_pages():
    like = torch.zeros(3, dtype=torch.float32)
    large = empty((HUGE_BYTES // 1024, 1024), like)
    assert large.shape == (HUGE_BYTES // 1024, 1024) and large.dtype == torch.float32
    assert "hg" in flags_of(large.data_ptr() + large.numel() * 2)
    assert empty((2, 5), like, bf16).dtype == torch.bfloat16
    assert empty((0, 5), like).shape == (0, 5)
    assert isinstance(empty((2, 5), np.zeros(3, np.float32)), np.ndarray)


def test_a_large_result_is_right():
    x = torch.randn(300, 4100)
    torch.testing.assert_close(ops.softmax(x), torch.softmax(x, -1))
