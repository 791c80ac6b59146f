"""Intel Arc B-series (Battlemage), `xe-bmg`: the instructions of PVC, less shared local memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.uarch.base import Limit, MemoryLevel, by_name, gpu_rates, table
from tilewright.uarch.pvc import PVC

_SLM: Final = 64 << 10
_SOURCE: Final = "unverified: the least that any Xe machine offers, of a pool of 256 KiB"

BMG: Final = replace(
    PVC,
    name="xe-bmg",
    memories=by_name(
        MemoryLevel("slm", _SLM, "workgroup", _SOURCE),
        MemoryLevel("l1", 256 << 10, "core", "upstream uArch table: L1 and SLM share one pool"),
    ),
    limits=table(
        dict(PVC.limits) | {"slm": Limit("shared local memory", _SOURCE, most=_SLM, unit="bytes")}
    ),
    source="upstream uArch table gives PVC and BMG the same instructions",
    # Arc B580 data sheet: 117 TFLOP/s of bf16 on 20 Xe cores, less a fifth; 456 GB/s.
    rates=gpu_rates(20, 2.3e12, 2.3e10, 5e10, _SLM),
    notes=("no offline compiler for BMG is known here: ISA checks run for xe-pvc",),
)
