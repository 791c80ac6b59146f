"""Machine tables: pvc, bmg, dg2, sm80, sm90, x86, arm. Facts with their sources, one module per machine.

>>> from tilewright import uarch
>>> dpas = uarch.machine("xe-pvc").instruction("bf16", "bf16", "f32")
>>> (dpas.m, dpas.n, dpas.k)
((1, 2, 4, 8), (16,), 16)
>>> print(dpas.fragments(8).a)
8x16: register [8@1->d0*1], lane [16@1->d1*1]
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from tilewright.diagnostics import UnsupportedError
from tilewright.uarch.base import (
    Limit,
    Machine,
    MatrixFragments,
    MatrixInstruction,
    MemoryLevel,
    Rates,
)

_MODULES: Final = {
    "xe-pvc": ("pvc", "PVC"),
    "xe-bmg": ("bmg", "BMG"),
    "xe-dg2": ("dg2", "DG2"),
    "sm_80": ("sm80", "SM80"),
    "sm_90a": ("sm90", "SM90"),
    "x86-64": ("x86", "X86"),
    "aarch64": ("arm", "ARM64"),
}

MACHINES: Final = tuple(_MODULES)


def machine(name: str) -> Machine:
    """The table of a machine by its target name. UnsupportedError lists the names that there are."""
    if name not in _MODULES:
        raise UnsupportedError(
            f"there is no machine table '{name}'", hint=f"one of {', '.join(MACHINES)}"
        )
    module, constant = _MODULES[name]
    found = getattr(import_module(f"tilewright.uarch.{module}"), constant)
    assert isinstance(found, Machine)
    return found


__all__ = [
    "MACHINES",
    "Limit",
    "Machine",
    "MatrixFragments",
    "MatrixInstruction",
    "MemoryLevel",
    "Rates",
    "machine",
]
