"""What the choices of tiles and of fusion need of a machine: rates (the planner's) and room for values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tilewright import uarch
from tilewright.passes.planner import GENERIC, Rates
from tilewright.targets.base import CompileOptions, get_target, split_name


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
    name = target or "cpu"
    found: Any = get_target(name)
    options = CompileOptions(target=name)
    family, chip = split_name(name)
    tables = [t for t in (name, chip, f"{family}-{chip}") if t in uarch.MACHINES]
    named = tables[0] if tables else None
    if named is None and hasattr(found, "machine"):
        named = found.machine(options)
    if named is None:
        host: Any = found if hasattr(found, "rates") else get_target("cpu")
        return Room(name, host.rates(options), 1 << 19, 1 << 20, 2e10, 5e-6, 1 << 20, False)
    machine = uarch.machine(named)
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
