"""Intel Arc A-series (Alchemist, DG2), `xe-dg2`: subgroups of 8 for DPAS, no 2D block messages.

Decided here (DESIGN §2, slips in the RFCs): the RFC's int8 example with N = 16 is 8x32 by 32x8, and
its tf32 map names an instruction that the extension does not offer for subgroups of 8.
"""

from __future__ import annotations

from typing import Final

from tilewright.uarch.base import Limit, MemoryLevel, by_name, gpu_rates, table
from tilewright.uarch.xe import (
    COMMON_LIMITS,
    LSC_WORDS,
    XE_ROWS,
    XE_SOURCE,
    XeMachine,
    dpas,
    integer_types,
)

LANES: Final = 8

# All units are 32 bits, A's too.
MATRIX: Final = (
    dpas(("f16", "f16", "f32"), LANES, 32),
    dpas(("bf16", "bf16", "f32"), LANES, 32),
    *(dpas(t, LANES, 32) for t in integer_types("i8", "u8")),
)

DG2: Final = XeMachine(
    name="xe-dg2",
    kind="xe",
    subgroup_sizes=(8, 16, 32),
    matrix=MATRIX,
    memories=by_name(MemoryLevel("slm", 64 << 10, "workgroup", XE_SOURCE)),
    limits=table(
        COMMON_LIMITS
        | {
            "slm": Limit("shared local memory", XE_SOURCE, most=64 << 10, unit="bytes"),
            "named_barriers": Limit(
                "named barrier",
                "vISA nbarrier begins with Xe-HPC; 0 is the workgroup's own",
                least=0,
                most=0,
            ),
            "subgroups": Limit("workgroup", XE_SOURCE, least=1, most=64, unit="subgroups"),
        }
    ),
    source=XE_SOURCE,
    # Arc A770 data sheet: 138 TFLOP/s of f16 on 32 Xe cores, less a fifth; 560 GB/s.
    rates=gpu_rates(32, 1.7e12, 1.7e10, 4e10, 64 << 10),
    notes=("no 2D block messages: load_nd becomes 1-D block reads, or accesses of single lanes",),
    rows=XE_ROWS,
    lane_words=LSC_WORDS,
    grf_bytes=32,
)
