"""Cache hints of memory ops: what each level of the caches should do with what they move.

XeTile and XeGPU have the same ones, each in attributes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import Attribute, Operation
from xdsl.utils.str_enum import StrEnum


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


def hint_properties(
    attribute: Callable[[str], Attribute], hints: Hints
) -> dict[str, Attribute | None]:
    """Hints as properties of an op, made by the class of its dialect's attribute."""
    found = (None if hint is None else attribute(hint) for hint in hints)
    return dict(zip(LEVELS, found, strict=False))


def hints_of(op: Operation) -> list[str | None]:
    """The hints of an op of either dialect."""
    return [getattr(op.properties.get(level), "kind", None) for level in LEVELS]


def hint_properties_of(op: Operation) -> dict[str, Attribute]:
    """The properties that say the hints of an op, for another op of its dialect."""
    return {name: hint for name, hint in op.properties.items() if name in LEVELS}
