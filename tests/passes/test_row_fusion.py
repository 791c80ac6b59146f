"""How many passes over memory a kernel's ops make on the cpu."""

from __future__ import annotations

from typing import Any

import tilewright as tw
from tests.acceptance.test_in_place import N, halves, softmax, swap, transpose
from tilewright.dialects.stage import FusedOp
from tilewright.dialects.text import parse_module


def fused_ops(kernel: Any, *args: Any, **constexprs: Any) -> int:
    stage = kernel.compile(*args, **constexprs, target="cpu").ir["stage"]
    return sum(isinstance(op, FusedOp) for op in parse_module(stage).walk())


def test_what_is_in_place_takes_one_pass() -> None:
    """No copy is made where each element is overwritten by its own row, or by none of what is read."""
    x = tw.spec((N, 2 * N), tw.f32)
    assert fused_ops(softmax, x, N=N) == 1
    assert fused_ops(halves, x, N=N) == 1
    assert fused_ops(swap, x, x, N=N) == 1
    assert fused_ops(transpose, x, N=N) == 2
