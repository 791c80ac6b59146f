"""What the copy engine cannot address is seen at launch, and loaded by threads instead."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.targets.cuda.test_asynchronous import gemm, text_of
from tilewright.dialects.text import parse_module
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.lowered import TensorMapOf
from tilewright.targets.cuda.reach import unreachable
from tilewright.targets.cuda.target import TARGET

bf16 = ml_dtypes.bfloat16


def apart(step: int) -> Any:
    """A (64, 128) array of bf16 whose rows are `step` bytes apart; nothing reads its elements."""
    return np.lib.stride_tricks.as_strided(np.zeros(128, bf16), (64, 128), (step, 2))


@pytest.fixture(scope="module")
def executable() -> Any:
    a, b, c = (np.zeros((256, 256), bf16) for _ in range(3))
    options = CompileOptions("cuda", "sm_90a")
    return TARGET.build(parse_module(text_of(gemm, (a, b, c))), options)


@pytest.mark.parametrize(
    ("a", "reason"),
    [
        (np.zeros((64, 128), bf16), None),
        (np.zeros((1, 128), bf16), None),
        (np.zeros((64, 0), bf16), "dimension 1 has 0 elements"),
        (np.broadcast_to(bf16(0), (1 << 30, 64)), "dimension 0 has 1073741824 elements"),
        (np.zeros((64, 128), bf16)[::-1], "a stride of -256 bytes"),
        (np.broadcast_to(np.zeros(128, bf16), (64, 128)), "a stride of 0 bytes"),
        (apart(16), None),
        (apart(24), "a stride of 24 bytes"),
        (apart((1 << 40) - 16), None),
        (apart(1 << 40), "a stride of 1099511627776 bytes"),
    ],
)
def test_what_it_reaches(executable: Any, a: Any, reason: str | None) -> None:
    b, c = np.zeros((128, 64), bf16), np.zeros((64, 64), bf16)
    found = unreachable(executable.plan, [describe(x) for x in (a, b, c)])
    assert found is None if reason is None else reason in str(found)


def test_threads_do_it_instead(executable: Any) -> None:
    other = executable.by_threads("argument 0: dimension 1 has 0 elements")
    assert not any(isinstance(slot, TensorMapOf) for slot in other.plan.slots)
    assert other is executable.by_threads("again")
    assert any("threads load and store" in remark for remark in executable.remarks)
