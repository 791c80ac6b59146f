"""NVIDIA GPUs, sm_80 and sm_90a: PTX through LLVM, loaded and launched by the driver alone."""

from tilewright.targets.cuda.target import TARGET

__all__ = ["TARGET"]
