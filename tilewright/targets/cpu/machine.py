"""Which x86 this is, and the sizes that follow from it: vector width, micro-kernel shapes, cache blocks.

Features come from LLVM's reading of CPUID, never from the name of the processor (it may lie in a virtual machine). AMX
also needs leave of the kernel (arch_prctl), which is asked for once and may be refused.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from typing import Any

from tilewright.codegen.target import X86_LEVELS, LLVMTarget, x86
from tilewright.uarch.x86 import level_of

_ARCH_PRCTL, _REQ_XCOMP_PERM, _XTILEDATA = 158, 0x1023, 18


@dataclass(frozen=True)
class Machine:
    """Parameters of code generation for one x86 level."""

    target: LLVMTarget
    vector_bytes: int
    """Width of a vector register."""
    mr: int
    """Rows of the FMA micro-kernel: with `nv` vectors, mr * nv accumulators fit the registers beside one B row."""
    nv: int
    """Vectors per row of the FMA micro-kernel."""
    kc: int
    """Elements of k per block: a panel of B of that depth fits half of the first cache."""
    amx: bool = False

    def nr(self, size: int) -> int:
        """Columns of the micro-kernel for accumulators of `size` bytes."""
        return self.nv * self.vector_bytes // size

    def depth(self, group: int) -> int:
        """Elements of k per block for instructions that take `group` k at once: 16 steps of AMX, else `kc`."""
        return 16 * group if group >= 32 else self.kc

    @property
    def row_unit(self) -> int:
        """Rows of buffers come in multiples of this, so that micro-kernels may write whole blocks."""
        return 32 if self.amx else self.mr

    def has(self, feature: str) -> bool:
        return self.target.has(feature)


@cache
def host_features() -> frozenset[str]:
    """LLVM names of the features that this processor and kernel have."""
    import llvmlite.binding as llvm

    features: Any = llvm.get_host_cpu_features()
    return frozenset(name for name, on in features.items() if on)


@cache
def amx_allowed() -> bool:
    """Ask the kernel once for AMX state; false where it is refused or the machine has none."""
    if "amx-tile" not in host_features() or os.uname().machine != "x86_64":
        return False
    try:
        return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQ_XCOMP_PERM, _XTILEDATA) == 0
    except (OSError, AttributeError):
        return False


def host_level() -> str:
    """The highest level of `X86_LEVELS` that this machine has in full."""
    found = "x86-64"
    have = host_features()
    for name, features in X86_LEVELS.items():
        if not set(features) <= have or (name == "amx" and not amx_allowed()):
            break
        found = name
    return found


@cache
def machine(level: str | None = None) -> Machine:
    """The machine of a level (`x86-64`, `avx2`, `avx512`, `vnni`, `amx`); None is the one at hand."""
    name = host_level() if level in (None, "native") else level
    assert name is not None
    extra = frozenset[str]()
    if level in (None, "native"):
        wanted = {"f16c", "avx512fp16", "avx512bf16", "amx-fp16", "avxvnni"}
        extra = frozenset(wanted & host_features())
        if name != "amx":
            extra -= {"amx-fp16"}
    target = x86(name, extra)
    shape = level_of(target.features)
    amx = target.has("amx-tile")
    return Machine(target, shape.vector_bytes, shape.mr, shape.nv, shape.kc, amx=amx)
