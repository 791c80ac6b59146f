"""From Python to loaded code on the GPU: cold, from our disk cache, and a second launch.

Each round is two fresh processes with a cache directory of their own, the driver's cache included.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tilewright import knobs
from tilewright.tools.measure import Row
from tilewright.tools.suites import Settings
from tilewright.tools.suites.gpu_timing import gpu_torch
from tilewright.tools.suites.overhead import row_of

_PROBE = Path(__file__).with_name("gpu_probe.py")


def gpu_compile(settings: Settings) -> Iterator[Row]:
    """The GEMM of 128 x 256 x 64 tiles, bf16, from call to return with the result there."""
    gpu_torch()
    times: dict[str, list[float]] = {"libraries": [], "cold": [], "disk": [], "memory": []}
    with tempfile.TemporaryDirectory() as directory:
        for i in range(max(2, min(settings.rounds, 5))):
            folder = str(Path(directory) / str(i))
            cold, warm = _probe(folder), _probe(folder)
            times["libraries"] += [cold["libraries"], warm["libraries"]]
            times["cold"].append(cold["compile"])
            times["disk"].append(warm["compile"])
            times["memory"].append(warm["again"])
    names = {
        "libraries": "modules that the first kernel imports",
        "cold": "first launch of a gemm, cold",
        "disk": "the same from the disk cache",
        "memory": "second launch",
    }
    for kind, label in names.items():
        yield row_of(label, times[kind])


def _probe(cache: str) -> dict[str, float]:
    environment = {
        **os.environ,
        knobs.variable("cache_dir"): cache,
        knobs.variable("cache"): "1",
        "CUDA_CACHE_PATH": str(Path(cache) / "driver"),
    }
    done = subprocess.run(
        [sys.executable, str(_PROBE)], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the probe of compile times failed: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout)
