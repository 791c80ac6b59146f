"""Intel Data Center GPU Max (Ponte Vecchio), `xe-pvc`."""

from __future__ import annotations

from typing import Final

from tilewright.uarch.base import Limit, MemoryLevel, by_name, gpu_rates, table
from tilewright.uarch.xe import (
    COMMON_LIMITS,
    LSC_WORDS,
    SURFACE_LIMITS,
    XE2_BLOCKS,
    XE_ROWS,
    XE_SOURCE,
    XeMachine,
    dpas,
    integer_types,
)

LANES: Final = 16

# A's units are 16 bits, but for tf32; B's are 32 bits (XeGPU RFC, "A simple rule of thumb").
MATRIX: Final = (
    *(dpas(("f16", "f16", c), LANES, 16) for c in ("f32", "f16")),
    *(dpas(("bf16", "bf16", c), LANES, 16) for c in ("f32", "bf16")),
    dpas(("tf32", "tf32", "f32"), LANES, 32),
    *(dpas(t, LANES, 16) for t in integer_types("i8", "u8")),
    *(dpas(t, LANES, 16) for t in integer_types("i4", "u4")),
)

PVC: Final = XeMachine(
    name="xe-pvc",
    kind="xe",
    subgroup_sizes=(16, 32),
    matrix=MATRIX,
    memories=by_name(
        MemoryLevel("slm", 128 << 10, "workgroup", XE_SOURCE),
        MemoryLevel("l1", 512 << 10, "core", "upstream uArch table: L1 and SLM share one pool"),
    ),
    limits=table(
        COMMON_LIMITS
        | SURFACE_LIMITS
        | {
            "slm": Limit("shared local memory", XE_SOURCE, most=128 << 10, unit="bytes"),
            "subgroups": Limit(
                "workgroup",
                "64 hardware threads share SLM; 32 with 256 registers",
                least=1,
                most=64,
                unit="subgroups",
            ),
            "subgroups_large_grf": Limit(
                "workgroup with 256 registers", XE_SOURCE, least=1, most=32, unit="subgroups"
            ),
        }
    ),
    source=XE_SOURCE,
    # Max 1550 data sheet: 839 TFLOP/s of bf16 on 128 Xe cores, less a fifth; 3.2 TB/s.
    rates=gpu_rates(128, 2.6e12, 2.5e10, 5e10, 128 << 10),
    blocks=XE2_BLOCKS,
    rows=XE_ROWS,
    lane_words=LSC_WORDS,
    grf_bytes=64,
)
