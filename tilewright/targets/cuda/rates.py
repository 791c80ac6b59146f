"""Rates of the device at hand, where they were measured (`tilewright tune --calibrate`), in the place of the table's.

They are asked for where a launch is costed, not where a kernel is compiled: what lies on disk was compiled before.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.targets.cuda import driver
from tilewright.targets.cuda.work_split import LoopWork
from tilewright.uarch.calibration import calibrated


def measured(work: LoopWork, machine: str) -> LoopWork:
    """A kernel's loop with the rates of the device at hand; as it is where they were not measured."""
    found = calibrated(driver.named(machine))
    if not found:
        return work
    return replace(work, rates={name: found.get(name, rate) for name, rate in work.rates.items()})
