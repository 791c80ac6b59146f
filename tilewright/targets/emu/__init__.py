"""The emulator: kernels of lanes and subgroups, compiled for x86, lanes as elements of vectors, subgroups as fibres."""

from tilewright.targets.emu.target import TARGET

__all__ = ["TARGET"]
