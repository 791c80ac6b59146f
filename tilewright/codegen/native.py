"""The x86 of this process: what LLVM's reading of CPUID says; abilities never by the name of the processor.

AMX also needs leave of the operating system's kernel (arch_prctl), which is asked for once and may be refused.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

from tilewright.codegen.target import X86_LEVELS, LLVMTarget, x86

_ARCH_PRCTL, _REQ_XCOMP_PERM, _XTILEDATA = 158, 0x1023, 18


@cache
def host_features() -> frozenset[str]:
    """LLVM names of the features that this processor and kernel have."""
    import llvmlite.binding as llvm

    features: Any = llvm.get_host_cpu_features()
    return frozenset(name for name, on in features.items() if on)


@cache
def host_core() -> str:
    """LLVM's name of the core, from CPUID's family and model: a key of tables of rates, never of abilities."""
    import llvmlite.binding as llvm

    return str(llvm.get_host_cpu_name())


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
def native() -> LLVMTarget:
    """The x86 target of this process, without AMX."""
    level = host_level()
    extra = frozenset({"f16c", "avx512bf16"} & host_features())
    return x86("vnni" if level == "amx" else level, extra)
