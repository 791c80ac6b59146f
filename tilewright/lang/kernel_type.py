"""What the compiler needs to know of a kernel object without importing it."""

from __future__ import annotations

from types import FunctionType


class KernelFunction:
    """Base of :class:`tilewright.lang.kernel.Kernel`: a Python function and its execution level."""

    function: FunctionType
    level: str
    subgroups: int | None
