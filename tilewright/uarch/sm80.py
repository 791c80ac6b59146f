"""NVIDIA Ampere (sm_80): mma.sync, ldmatrix, cp.async."""

from __future__ import annotations

from typing import Final

from tilewright.uarch.base import Limit, Machine, MemoryLevel, by_name, gpu_rates, table
from tilewright.uarch.nvidia import COMMON_LIMITS, LANES, MMA_SYNC, REGISTER_FILE

SMEM: Final = 163 << 10

SM80: Final = Machine(
    name="sm_80",
    kind="cuda",
    subgroup_sizes=(LANES,),
    matrix=MMA_SYNC,
    memories=by_name(
        MemoryLevel(
            "smem", SMEM, "workgroup", "CUDA programming guide, compute capability 8.0", 128
        ),
        MemoryLevel("registers", 4 * REGISTER_FILE, "core", "CUDA programming guide"),
        MemoryLevel("l2", 40 << 20, "device", "A100 data sheet", 128),
    ),
    limits=table(
        COMMON_LIMITS
        | {
            "smem": Limit("shared memory", "compute capability 8.0", most=SMEM, unit="bytes"),
            "cp_async_bytes": Limit("cp.async", "PTX ISA", values=(4, 8, 16), unit="bytes"),
        }
    ),
    source="CUDA programming guide, PTX ISA",
    # A100 data sheet: 312 TFLOP/s of bf16, less a fifth; 1.6 to 2.0 TB/s.
    rates=gpu_rates(108, 1.2e12, 1.4e10, 3e10, SMEM),
)
