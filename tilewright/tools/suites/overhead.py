"""What a user waits for before any work is done: import, compile, launch."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import knobs
from tilewright.tools.measure import Case, Contender, Measured, Row, measure
from tilewright.tools.suites import Settings


@tw.kernel
def add_one_tile(X: Any, Y: Any, Z: Any, B: tw.constexpr = 16):
    """The smallest kernel with three arrays."""
    x = tw.load_tile(tw.init_tile(X, [0, 0], (B, B)))
    y = tw.load_tile(tw.init_tile(Y, [0, 0], (B, B)))
    tw.store_tile(x + y, tw.init_tile(Z, [0, 0], (B, B)))


def launch(settings: Settings) -> Iterator[Row]:
    """Host time of a launch with three arrays of shapes seen before, on one workgroup."""
    x, y, z = (np.ones((16, 16), np.float32) for _ in range(3))
    for threads in settings.threads:
        run = add_one_tile.options(target=settings.target, num_threads=threads)[1]
        contenders = [
            Contender("tilewright", lambda run=run: run(x, y, z)),
            Contender("numpy.add", lambda: np.add(x, y, out=z)),
        ]
        yield measure(Case("launch", contenders, 1, "us", threads), rounds=settings.rounds)


_PROBE = Path(__file__).with_name("probe.py")


def compile(settings: Settings) -> Iterator[Row]:
    """Import, cold compile and load from disk of the GEMM, until its first result is there."""
    rounds = max(3, min(settings.rounds, 7))
    with tempfile.TemporaryDirectory() as directory:
        times: dict[str, list[float]] = {
            "import": [],
            "libraries": [],
            "cold": [],
            "disk": [],
            "memory": [],
        }
        for i in range(rounds):
            fresh = str(Path(directory) / str(i))
            cold, warm = (_probe(fresh, settings.target) for _ in range(2))
            times["import"] += [cold["import"], warm["import"]]
            times["libraries"] += [cold["libraries"], warm["libraries"]]
            times["cold"].append(cold["compile"])
            times["disk"].append(warm["compile"])
            times["memory"].append(warm["again"])
    names = {
        "import": "import tilewright",
        "libraries": "modules that the first kernel imports",
        "cold": "first launch of a 256x256x32 gemm, cold",
        "disk": "the same from the disk cache",
        "memory": "second launch (one tile of work)",
    }
    for kind, label in names.items():
        yield row_of(label, times[kind])


def row_of(label: str, seconds: list[float]) -> Row:
    """A row of times that were measured elsewhere: median, least and most."""
    case = Case(label, [Contender("tilewright", lambda: None)], 1, "ms")
    low, high = min(seconds), max(seconds)
    median = statistics.median(seconds)
    return Row(case, [Measured("tilewright", median, low, high, median * 1e3, 1.0)])


def _probe(cache: str, target: str) -> dict[str, float]:
    environment = {**os.environ, knobs.variable("cache_dir"): cache, knobs.variable("cache"): "1"}
    done = subprocess.run(
        [sys.executable, str(_PROBE), target],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the probe of compile times failed: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout)
