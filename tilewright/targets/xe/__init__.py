"""Intel Xe: pvc, bmg, dg2. Lane XeGPU -> SPIR-V, offline ISA reports, launches through OpenCL."""

from tilewright.targets.xe.target import TARGET

__all__ = ["TARGET"]
