"""The same smallest kernel in Triton, where it is installed: a peer for the time of a launch."""

# Triton's kernels are not typed Python either.
# pyright: reportMissingParameterType=false, reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownParameterType=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def triton_add(x: Any, y: Any, z: Any) -> Callable[[], Any] | None:
    """A launch of an addition of 256 elements; None without Triton."""
    try:
        import triton
    except ImportError:
        return None
    from benchmarks.suites.gpu_triton_kernel import add

    assert triton.__version__
    return lambda: add[(1,)](x, y, z, N=256)  # pyright: ignore[reportIndexIssue]
