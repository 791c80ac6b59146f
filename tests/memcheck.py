"""NVIDIA's memory checker over tests on the GPU: `python -m tests.memcheck [--tool TOOL] [TESTS ...]`.

Runs `pytest --target cuda tests/ops` (or the tests named) in several processes under compute-sanitizer
and exits with 0 only if the tool found nothing, every test passed, and kernels of ours really ran under
it: their launches are counted, and a store beyond the end of an array, planted on purpose, must be found
first. Tools: memcheck, and racecheck, synccheck, initcheck as far as they model the copy engine. Arrays
are allocated one by one and end where their memory ends (`tests.devices`), so that nothing beyond them is
anybody's. compute-sanitizer comes with CUDA's toolkit; without it, or without a GPU, the exit code is 3.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.acceptance.kernels import gemm
from tests.devices import copied
from tilewright.runtime.arrays import describe
from tilewright.targets.cuda import driver, executable

FOUND = 99
"""Exit code of the tool when it found something."""
MARK = "LAUNCHES "


@tw.kernel
def planted(X, Y):  # pyright: ignore[reportMissingParameterType]
    """Copies 64 x 64 elements."""
    tw.store_tile(
        tw.load_tile(tw.init_tile(X, [0, 0], (64, 64))), tw.init_tile(Y, [0, 0], (64, 64))
    )


class Shard:
    """Every `of`-th test, from number `index` on."""

    def __init__(self, index: int, of: int):
        self.index, self.of = index, of

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = items[self.index :: self.of]


def count_launches(counts: Counter[str]) -> None:
    """From here on every prepared launch is counted under its kernel's name."""
    plain = executable._Call.bind  # pyright: ignore[reportPrivateUsage]

    def bind(self: Any, grid: Any, values: Any, often: bool = False) -> Any:
        run = plain(self, grid, values, often)

        def counted() -> None:
            counts[self.function.name] += 1
            run()

        return counted

    executable._Call.bind = bind  # pyright: ignore[reportPrivateUsage]


def plant(engine: bool) -> None:
    """Copies 64 rows to an array of 40 that is said to have 64; or, for `engine`, lets the copy engine
    load 128 rows of an array of 100.
    """
    if not engine:
        x, short = np.ones((64, 64), np.float32), np.zeros((40, 64), np.float32)
        with copied([describe(x), describe(short)]) as (there, end):
            planted.options(target="cuda")[1](there, replace(end, shape=(64, 64)))
        return
    a, b = np.ones((100, 64), np.float16), np.ones((64, 128), np.float16)
    arrays = [describe(x) for x in (a, b, np.zeros((128, 128), np.float32))]
    with copied(arrays) as (short, there, c):
        launch = gemm.options(target="cuda")[1, 1]
        launch(replace(short, shape=(128, 64)), there, c, BM=128, BN=128, BK=64)


def inside(index: int, of: int, tests: Sequence[str]) -> int:
    """One process under the tool: a share of the tests, or a planted fault (`of` is 0)."""
    counts: Counter[str] = Counter()
    count_launches(counts)
    if of:
        arguments = [
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "--tb=short",
            "--target",
            "cuda",
        ]
        code = int(pytest.main([*arguments, *tests], plugins=[Shard(index, of)]))
    else:
        plant(index == 1)
        code = 0
    print(MARK + json.dumps(counts), flush=True)
    return code


def sanitizer() -> str | None:
    """compute-sanitizer's path."""
    homes = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    found = [shutil.which("compute-sanitizer"), *(f"{h}/bin/compute-sanitizer" for h in homes)]
    return next((p for p in found if p and Path(p).exists()), None)


def start(tool: str, name: str, log: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [tool, "--tool", name, "--error-exitcode", str(FOUND), "--print-limit", "20"]
    command += ["--target-processes", "application-only"]
    command += [sys.executable, "-m", "tests.memcheck", *words]
    with log.open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)


def launches(text: str) -> Counter[str]:
    return Counter(
        {
            name: n
            for line in text.splitlines()
            if line.startswith(MARK)
            for name, n in json.loads(line[len(MARK) :]).items()
        }
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", default=["tests/ops"])
    parser.add_argument("--tool", default="memcheck")
    parser.add_argument("--processes", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument(
        "--logs", type=Path, default=Path("memcheck-logs"), help="folder of the output"
    )
    parser.add_argument("--inside", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        index, of = options.inside
        return inside(index, of, options.tests)
    tool = sanitizer()
    if tool is None or not driver.available():
        missing = "an NVIDIA GPU" if tool else "compute-sanitizer (CUDA's toolkit)"
        print(f"this check needs {missing}")
        return 3
    options.logs.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    controls = [options.logs / f"planted{i}.txt" for i in range(2)]
    running = [
        (log, start(tool, options.tool, log, "--inside", str(i), "0"))
        for i, log in enumerate(controls)
    ]
    for i in range(options.processes):
        log = options.logs / f"{options.tool}{i}.txt"
        words = ("--inside", str(i), str(options.processes), *options.tests)
        running.append((log, start(tool, options.tool, log, *words)))
    codes = {log: process.wait() for log, process in running}
    texts = {log: log.read_text(errors="replace") for log in codes}
    seen = codes[controls[0]] == FOUND and "Invalid __global__ write" in texts[controls[0]]
    engine = codes[controls[1]] == FOUND
    total: Counter[str] = Counter()
    good = True
    for log, text in texts.items():
        if log in controls:
            continue
        total += launches(text)
        summary = re.findall(r"[A-Z]+ SUMMARY: .*|\d+ (?:passed|failed).*", text)
        print(f"{log.name}: exit {codes[log]}; {'; '.join(summary) or 'no summary'}")
        good &= codes[log] == 0 and re.search(r"SUMMARY: 0 (?:errors|hazards)", text) is not None
    print(f"planted store beyond an array: {'found' if seen else 'NOT found'}")
    print(f"planted load of the copy engine: {'found' if engine else 'not found'}")
    print(f"{sum(total.values())} launches of ours under the tool: {dict(total)}")
    print(f"{time.monotonic() - began:.0f} s; {'clean' if good else 'NOT CLEAN'}")
    needed = options.tool != "memcheck" or seen
    return 0 if good and needed and total else 1


if __name__ == "__main__":
    sys.exit(main())
