"""What the compiler needs to know of a kernel object without importing it."""

from __future__ import annotations

from types import FunctionType
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["workgroup", "subgroup"]


class KernelFunction:
    """Base of :class:`tilewright.lang.kernel.Kernel`: a Python function and its execution level."""

    def __init__(self, function: FunctionType, level: Level, subgroups: int | None):
        self._function = function
        self.level: Level = level
        self.subgroups = subgroups

    @property
    def function(self) -> FunctionType:
        """The function as it was written."""
        return self._function
