"""The emulator: kernels of lanes and subgroups on the CPU, lanes as elements of vectors, subgroups as fibres."""

from tilewright.targets.emu.target import TARGET

__all__ = ["TARGET"]
