"""Rates of machines that were measured where they are (`tilewright tune --calibrate`), in the place of their tables'.

A calibration is a record (`records.py`) of numbers by name: fields of :class:`Rates`, and whatever else a target's cost
model reads. It is read once per process.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

from tilewright import knobs, records
from tilewright.cache import digest
from tilewright.uarch.base import Rates


def calibrated(machine: str) -> Mapping[str, float]:
    """What was measured on a machine (`Target.identity`); empty where nothing was."""
    settings = knobs.current()
    return _read(machine, settings.cache_path) if settings.cache else {}


@cache
def _read(machine: str, folder: Path) -> Mapping[str, float]:
    del folder  # it is the cache that is read
    record = records.find(_key(machine))
    try:
        content = record.content if record is not None else {}
        return {str(name): float(value) for name, value in content.items()}
    except (TypeError, ValueError):
        return {}


def with_calibration(rates: Rates, machine: str) -> Rates:
    """Rates with what was measured on a machine in their place."""
    found = calibrated(machine)
    known = {f.name for f in fields(Rates)}
    given = {name: value for name, value in found.items() if name in known}
    if not given:
        return rates
    by_size = [(size, found[name]) for size in (1, 2, 4, 8) if (name := of_size(size)) in found]
    return replace(rates, **given, by_size=tuple(by_size), origin="measured here")


def of_size(size: int) -> str:
    """The name of the rate of products of elements of so many bytes."""
    return f"flops of {size} bytes"


def keep(machine: str, found: Mapping[str, float]) -> bool:
    """Keeps a calibration; it replaces an older one. False where the cache is switched off."""
    about = time.strftime("rates, %Y-%m-%d")
    record = records.Record("calibration", machine, about, dict(found))
    _read.cache_clear()
    return records.keep(_key(machine), record)


def _key(machine: str) -> str:
    return digest("calibration", machine)
