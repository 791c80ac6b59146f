"""What programs do, counted, and how long a machine takes for it, in as many rounds as its cores need."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from tilewright.frozen import record
from tilewright.uarch.base import Rates


@record
class Work:
    """What one program does, or several: what :func:`seconds` tells the time of."""

    product_flops: float = 0.0
    """Multiplications and additions of products, as many as would take as long at 4 bytes per element."""
    flops: float = 0.0
    """Operations on numbers, as many as there are."""
    near_bytes: float = 0.0
    """Results of ops on values, and operands of products."""
    shared_bytes: float = 0.0
    """Loads and stores that the cache of all cores answers."""
    memory_bytes: float = 0.0
    """Loads and stores that memory answers."""
    ops: float = 0.0
    rows: float = 0.0
    """Of tiles that are loaded, stored or computed."""
    waits: float = 0.0
    """Loads one after the other, for which a program waits."""

    def add(self, other: Work, times: float = 1.0) -> None:
        """Adds ``times`` another's work."""
        self.product_flops += times * other.product_flops
        self.flops += times * other.flops
        self.near_bytes += times * other.near_bytes
        self.shared_bytes += times * other.shared_bytes
        self.memory_bytes += times * other.memory_bytes
        self.ops += times * other.ops
        self.rows += times * other.rows
        self.waits += times * other.waits

    def product(self, m: int, n: int, k: int, size: int, rates: Rates, times: float = 1.0) -> None:
        """Adds [m, k] x [k, n] with elements of ``size`` bytes, accumulated in 4 bytes."""
        self.flops += times * 2 * m * n * k
        self.product_flops += times * 2 * m * n * k * (rates.product_flops / rates.flops(size))
        # Panels come from the near cache, so that a small product is bound by them.
        self.near_bytes += times * (m * k + k * n) * size
        if not rates.asynchronous:
            self.near_bytes += times * 2 * 4 * m * n / max(k / 16, 1)
        self.ops += times


def seconds(
    program: Work,
    programs: float,
    rates: Rates,
    least_bytes: float = 0.0,
    shared: bool = False,
    longest: float = 1.0,
) -> float:
    """Estimated time of a launch: ``program``'s work in as many rounds as the programs need on the cores.

    `least_bytes`: what the whole launch moves to and from memory at least, on all cores together. `shared`: may several
    cores do one program, its one loop with products in turn? `longest`: the work of the longest program, where they
    differ and the cores take them as they come, as a multiple of ``program``'s, the mean.
    """
    return together(causes(program, programs, rates, least_bytes, shared, longest), rates)


def causes(
    program: Work,
    programs: float,
    rates: Rates,
    least_bytes: float = 0.0,
    shared: bool = False,
    longest: float = 1.0,
    resident: int = 1,
) -> dict[str, float]:
    """What :func:`seconds` is made of: how long the launch would take for one cause alone. `resident`: programs that
    wait at the same time on a core."""
    rounds, meeting = float(ceil(programs / rates.cores)), 0.0
    if longest > 1:
        share = programs / rates.cores
        rounds = max(share, longest)
        if (
            not rates.asynchronous
        ):  # a core that is free takes the next: the last one to end began when others ended
            rounds = max(rounds, share + longest / 2 * (1 - 1 / rates.cores))
    parts = min(rates.parts, int(rates.cores // programs))
    if shared and parts > 1:  # a program's sums are added up in the end
        rounds, meeting = 1 / parts, rates.launch_seconds / 2
    return {
        "products": rounds * program.product_flops / rates.product_flops,
        "values": rounds * program.near_bytes / rates.elementwise_bytes,
        "ops": rounds * program.ops * rates.op_seconds / resident,
        "rows": rounds * program.rows * rates.row_seconds,
        "shared cache": rounds * program.shared_bytes / rates.shared_bytes,
        "memory": rounds * program.memory_bytes / rates.memory_bytes,
        "whole arrays": least_bytes / rates.memory_bytes / rates.cores,
        "sums of cores": meeting,
        "waiting": ceil(programs / rates.cores / resident)
        * rates.wait_seconds
        * (1 + program.waits),
        "start": rates.launch_seconds + rounds * rates.program_seconds,
    }


_BESIDE = (("products", "values", "ops"), ("shared cache", "memory"), ("whole arrays",))
"""Causes that run beside one another where copies do."""


def together(causes: Mapping[str, float], rates: Rates, alone: bool = False) -> float:
    """How long a launch takes for all its causes: where copies run beside the rest, the slowest decides. Programs that
    wait leave a core to others, the less so the longer it takes; one that is `alone` there does one thing after the
    other."""
    if not rates.asynchronous:
        return sum(causes.values())
    sums = [sum(causes[cause] for cause in each) for each in _BESIDE]
    waiting = causes["waiting"]
    beside = sum(sums) if alone and waiting else max(sums)
    done = beside + sum(causes.values()) - sum(sums) - waiting
    return (done**3 + waiting**3) ** (1 / 3) if waiting else done
