"""Intel Arc B-series (Battlemage), `xe-bmg`: the instructions and the shared local memory of PVC."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.uarch.base import MemoryLevel, by_name, gpu_rates
from tilewright.uarch.pvc import PVC

_SLM: Final = 128 << 10
_SOURCE: Final = (
    "maxProgrammableSlmSize of BMG in Intel's compute runtime, hw_info_bmg.cpp; not tried"
)

BMG: Final = replace(
    PVC,
    name="xe-bmg",
    memories=by_name(
        MemoryLevel("slm", _SLM, "workgroup", _SOURCE),
        MemoryLevel("l1", 256 << 10, "core", "upstream uArch table: L1 and SLM share one pool"),
    ),
    source="upstream uArch table gives PVC and BMG the same instructions",
    # Arc B580 data sheet: 117 TFLOP/s of bf16 on 20 Xe cores, less a fifth; 456 GB/s.
    rates=gpu_rates(20, 2.3e12, 2.3e10, 5e10, _SLM),
    notes=("no offline compiler for BMG is known here: ISA checks run for xe-pvc",),
)
