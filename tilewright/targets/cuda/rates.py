"""Rates of the device at hand: its table's, or what was measured here (`tilewright tune --calibrate`).

They are asked for where a launch is costed, not where a kernel is compiled: what lies on disk was compiled before.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.targets.cuda import driver
from tilewright.targets.cuda.work_split import LoopWork
from tilewright.uarch.calibration import calibrated
from tilewright.uarch.sm90 import product_rates


def measured(work: LoopWork, machine: str) -> LoopWork:
    """A kernel's loop with the rates of the device at hand; as it is where there is none."""
    device = driver.named(machine)
    found = {**product_rates(device), **calibrated(device)}
    return replace(work, rates={name: found.get(name, rate) for name, rate in work.rates.items()})
