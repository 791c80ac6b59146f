"""What a user waits for before any work is done: import, compile, launch."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from benchmarks.suites import Settings
from benchmarks.suites.gpu_timing import gpu_torch
from tilewright import knobs
from tilewright.tools.measure import Case, Contender, Measured, MeasuredRow, measure, rate


@tw.kernel
def add_one_tile(X: Any, Y: Any, Z: Any, B: tw.constexpr = 16):
    """The smallest kernel with three arrays."""
    x = tw.load_tile(tw.init_tile(X, [0, 0], (B, B)))
    y = tw.load_tile(tw.init_tile(Y, [0, 0], (B, B)))
    tw.store_tile(x + y, tw.init_tile(Z, [0, 0], (B, B)))


def launch(settings: Settings) -> Iterator[MeasuredRow]:
    """Host time of a launch with three arrays of shapes seen before, on one workgroup."""
    x, y, z = (np.ones((16, 16), np.float32) for _ in range(3))
    for threads in settings.threads:
        run = add_one_tile.options(target=settings.target, num_threads=threads)[1]
        contenders = [
            Contender("tilewright", lambda run=run: run(x, y, z)),
            Contender("numpy.add", lambda: np.add(x, y, out=z)),
        ]
        yield measure(Case("launch", contenders, 1, "us", threads), rounds=settings.rounds)


EMPTY = """\
declare void @tw_pool_launch(ptr, ptr, ptr, i64)
define internal void @task(ptr %a, i64 %t, i64 %thread) {
  ret void
}
define void @phases(ptr %a) {
  %pool = load ptr, ptr %a
  %count.at = getelementptr i64, ptr %a, i64 1
  %count = load i64, ptr %count.at
  call void @tw_pool_launch(ptr %pool, ptr @task, ptr %a, i64 %count)
  ret void
}
"""


def pool(settings: Settings) -> Iterator[MeasuredRow]:
    """A launch of as many empty tasks as threads, right after another one and 5 ms after it."""
    from tilewright.codegen.loading import load
    from tilewright.codegen.target import x86
    from tilewright.targets.cpu.pool import pool as threads_of

    for threads in settings.threads:
        found = threads_of(threads)
        code = load(EMPTY, x86("x86-64"), {"tw_pool_launch": found.launch_address})
        phases, block = code.address("phases"), np.array([found.address, threads], np.int64)
        argument = block.ctypes.data  # looked up here: it takes longer than a launch
        for state, rest in (("awake", 0.0), ("asleep", 0.005)):
            seconds: list[float] = []
            for _ in range(200):
                if rest:
                    time.sleep(rest)
                start = time.perf_counter()
                found.run(phases, argument)
                seconds.append(time.perf_counter() - start)
            yield row_of(f"launch on the pool, {state}", seconds, "us", threads)


def compile(settings: Settings) -> Iterator[MeasuredRow]:
    """Import, cold compile and load from disk of the GEMM, until its first result is there."""
    names = {
        "import": "import tilewright",
        "libraries": "modules that the first kernel imports",
        "cold": "first launch of a 256x256x32 gemm, cold",
        "another": "another gemm compiled in the same process",
        "disk": "the same from the disk cache",
        "memory": "second launch (one tile of work)",
    }
    yield from first_launches(names, max(3, min(settings.rounds, 7)), "probe.py", settings.target)


def gpu_compile(settings: Settings) -> Iterator[MeasuredRow]:
    """The GEMM of 128 x 256 x 64 tiles on a GPU, bf16, from call to return with the result there."""
    gpu_torch()
    names = {
        "libraries": "modules that the first kernel imports",
        "cold": "first launch of a gemm, cold",
        "disk": "the same from the disk cache",
        "memory": "second launch",
    }
    yield from first_launches(names, max(2, min(settings.rounds, 5)), "gpu_probe.py")


def first_launches(names: Mapping[str, str], rounds: int, *probe: str) -> Iterator[MeasuredRow]:
    """What a process waits for until a kernel's first result is there, a row for each of `names`.

    A round is two fresh processes of the script `probe` with cache directories of their own, the driver's
    included; one before them leaves Python's bytecode, as an installation does. Kinds: import, libraries (of both),
    cold and another (of the first), disk and memory (of the second).
    """
    times: dict[str, list[float]] = {kind: [] for kind in names}
    with tempfile.TemporaryDirectory() as directory:
        bytecode = Path(directory) / "bytecode"
        _probe(Path(directory) / "unmeasured", bytecode, *probe)
        for i in range(rounds):
            fresh = Path(directory) / str(i)
            first, second = (_probe(fresh, bytecode, *probe) for _ in range(2))
            found = {"cold": [first["compile"]], "disk": [second["compile"]]}
            found["memory"] = [second["again"]]
            found["another"] = [first[kind] for kind in ("another",) if kind in first]
            for kind in names:
                times[kind] += found.get(kind) or [first[kind], second[kind]]
    for kind, label in names.items():
        yield row_of(label, times[kind])


def row_of(label: str, seconds: list[float], unit: str = "ms", threads: int = 1) -> MeasuredRow:
    """A row of times that were measured elsewhere: median, least and most."""
    case = Case(label, [Contender("tilewright", lambda: None)], 1, unit, threads)
    median = statistics.median(seconds)
    found = Measured("tilewright", median, min(seconds), max(seconds), rate(case, median), 1.0)
    return MeasuredRow(case, [found])


def _probe(cache: Path, bytecode: Path, script: str, *arguments: str) -> dict[str, float]:
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(bytecode),
        knobs.variable("cache_dir"): str(cache),
        knobs.variable("cache"): "1",
        "CUDA_CACHE_PATH": str(cache / "driver"),
    }
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the probe of compile times failed: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout)
