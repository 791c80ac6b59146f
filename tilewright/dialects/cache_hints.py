"""Cache hints of memory ops: what each level of the caches should do with what they move.

XeTile and XeGPU have the same ones, each in attributes of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Attribute, Operation
from xdsl.irdl import opt_prop_def
from xdsl.utils.str_enum import StrEnum

from tilewright.dialects.fields import Field


class CacheHint(StrEnum):
    """Cache policies that a memory op may ask for, per cache level."""

    CACHED = "cached"
    UNCACHED = "uncached"
    STREAMING = "streaming"
    READ_INVALIDATE = "read_invalidate"
    WRITE_BACK = "write_back"
    WRITE_THROUGH = "write_through"


LEVELS = ("l1_hint", "l2_hint", "l3_hint")
"""The properties that hold them, the level next to the core first."""
Hints = Sequence[str | None]
"""One for each of `LEVELS`; where there are fewer, the rest is not said."""


def hints_of(op: Operation) -> list[str | None]:
    """The hints of an op of either dialect."""
    return [getattr(op.properties.get(level), "kind", None) for level in LEVELS]


class HintFields(Field[list[str | None], Hints]):
    """The properties of an op that hold its hints, as attributes of its dialect's class."""

    out = staticmethod(hints_of)

    def __init__(self, attribute: type[Attribute]):
        super().__init__(attribute, default=())

    def declared(self, name: str) -> dict[str, Any]:
        return {level: opt_prop_def(self.constraint) for level in LEVELS}

    def given(self, name: str, value: Hints) -> dict[str, Any]:
        found = (None if hint is None else self.constraint(hint) for hint in value)
        return dict(zip(LEVELS, found, strict=False))
