"""The x86-64 target."""

from tilewright.targets.cpu.target import TARGET

__all__ = ["TARGET"]
