"""What the choices of tiles and of fusion need of a machine: rates (the planner's) and room for values."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cache

from tilewright import uarch
from tilewright.passes.planner import GENERIC, Rates


@dataclass(frozen=True)
class Room:
    """Rates per core, and how many bytes of values one workgroup holds near."""

    name: str
    rates: Rates
    accumulators: int
    """Bytes of all results of products that live at once."""
    value: int
    """Bytes of the largest value."""
    cache_rate: float
    """Bytes per second and core from the cache that the cores share."""
    launch: float
    """Seconds that one more kernel costs."""
    stage: int
    """Bytes of the operands of one step of a product: several steps are under way at once."""
    registers: bool
    """Do accumulators stay in registers from step to step?"""


@cache
def room(target: str | None) -> Room:
    """The numbers of a target: a name as of ``kernel.options(target=...)``, the CPU by default."""
    if target in (None, "cpu", "reference"):
        cores = os.cpu_count() or 1
        rates = replace(GENERIC, cores=cores, product_flops=1.2e11, elementwise_bytes=2e10)
        return Room("cpu", rates, 1 << 19, 1 << 20, 2e10, 5e-6, 1 << 20, False)
    if target == "cuda":
        target = "sm_90a"
    machine = uarch.machine(target)
    registers = machine.memories.get("registers")
    room = (registers.size if registers is not None else 256 << 10) // 2
    fast = machine.name.startswith("sm_90")
    # Per multiprocessor or Xe core: f32 products at half the rate of 2-byte ones, of data-sheet peaks.
    rates = replace(
        GENERIC,
        cores=132 if fast else 108,
        product_flops=3e12 if fast else 1.2e12,
        elementwise_bytes=4e11,
        memory_bytes=3e10 if fast else 1.4e10,
        op_seconds=2e-8,
    )
    shared = machine.memories.get("smem") or machine.memories.get("slm")
    stage = shared.size // 4 if shared is not None else 32 << 10
    return Room(machine.name, rates, room, room, 6e10 if fast else 3e10, 3e-6, stage, True)
