"""The CPU of this process: what LLVM and the operating system say that it has; never by the name of the processor.

Some features need leave of the operating system's kernel (AMX), which is asked for once and may be refused.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from functools import cache
from typing import Any, Final

from tilewright import cache as disk
from tilewright.codegen.cpuid import identity
from tilewright.codegen.target import LLVMTarget, for_cpu
from tilewright.diagnostics import UnsupportedError
from tilewright.uarch.arm import AARCH64
from tilewright.uarch.cpu import Architecture
from tilewright.uarch.x86 import X86_64

ARCHITECTURES: Final = (X86_64, AARCH64)


@cache
def host_architecture() -> Architecture:
    """The table of the processor that executes this process; UnsupportedError where there is none."""
    machine = os.uname().machine
    for each in ARCHITECTURES:
        if machine in each.hosts:
            return each
    names = ", ".join(each.machine.name for each in ARCHITECTURES)
    raise UnsupportedError(
        f"there is no table of CPUs called {machine!r}", hint=f"there is {names}"
    )


@cache
def host_features() -> frozenset[str]:
    """LLVM names of the features that this processor and kernel have."""
    found = set(_told()[1])
    if sys.platform == "linux":
        words: Any = ctypes.pythonapi["getauxval"]
        words.restype, words.argtypes = ctypes.c_ulong, (ctypes.c_ulong,)
        told = host_architecture().auxiliary.items()
        found |= {name for name, (word, bit) in told if words(word) >> bit & 1}
    return frozenset(f for f in found if _allowed(f))


def _allowed(feature: str) -> bool:
    """Does the operating system let this process use a feature?"""
    found = host_architecture().leave.get(feature)
    if found is None or sys.platform != "linux":
        return found is None
    call, least, most = found
    return least <= ctypes.pythonapi["syscall"](*call) <= most


@cache
def host_core() -> str:
    """LLVM's name of the core, from CPUID's family and model: a key of tables of rates, never of abilities."""
    return _told()[0]


@cache
def _told() -> tuple[str, list[str]]:
    """LLVM's names of the core and of its features: from the disk cache, where it is in use."""

    def ask() -> dict[str, bytes]:
        import llvmlite.binding as llvm

        features: Any = llvm.get_host_cpu_features()
        names = sorted(name for name, on in features.items() if on)
        return {"host": json.dumps((llvm.get_host_cpu_name(), names)).encode()}

    if disk.current() is None:
        return json.loads(ask()["host"])
    names = ("host", identity(os.uname().machine))
    return json.loads(disk.kept(names, ask)["host"])


def host_level() -> str:
    """The highest level of its table that this machine has in full."""
    architecture, have = host_architecture(), host_features()
    return [n for n in architecture.levels if architecture.features(n) <= have][-1]


@cache
def native() -> LLVMTarget:
    """The target of this process for code that is not planned in tiles: without matrix units."""
    architecture, level = host_architecture(), host_level()
    level = architecture.levels[level].plain or level
    return for_cpu(architecture, level, architecture.conversions & host_features())


@cache
def baseline() -> LLVMTarget:
    """What every machine like this one executes."""
    architecture = host_architecture()
    return for_cpu(architecture, next(iter(architecture.levels)))
