"""The target of CPUs. It is imported when first asked for: what runs on the host alone needs only `machine`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.targets.cpu.target import TARGET

__all__ = ["TARGET"]


def __getattr__(name: str) -> Any:
    if name != "TARGET":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tilewright.targets.cpu.target import TARGET

    return TARGET
