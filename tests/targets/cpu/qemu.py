"""Launches of kernels that are compiled for Arm, in an emulator: qemu runs them on the pool, beside a driver in C.

`launches_in_qemu` makes launches of the cpu target do so, so that a test is written as for the machine at hand: the
object that the target made is linked with the pool's and the driver's, and gets copies of the arrays in a file.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import CheckError
from tilewright.arguments import Argument, ArrayArg, Grid
from tilewright.codegen.jit import compile_object
from tilewright.codegen.target import for_cpu
from tilewright.targets.base import PreparedLaunch
from tilewright.targets.cpu.machine import few_reads
from tilewright.targets.cpu.pool_ir import SLOTS, pool_ir
from tilewright.targets.cpu.target import CpuExecutable
from tilewright.uarch.arm import AARCH64

POOL = {"tw_pool_launch", "tw_pool_wait", "tw_program_failed"}
"""What objects of kernels find in the process."""
THREADS = 3
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"

needs_qemu = pytest.mark.skipif(
    not (shutil.which(COMPILER) and shutil.which(EMULATOR)),
    reason="needs Debian's gcc-aarch64-linux-gnu and qemu-user",
)


@cache
def _folder() -> Path:
    held = tempfile.TemporaryDirectory(prefix="tilewright-qemu-")
    _HELD.append(held)
    return Path(held.name)


_HELD: list[object] = []


def tool(*command: str | Path) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stderr}"
    return done.stdout


@cache
def _runtime() -> list[Path]:
    """The driver's object and the pool's."""
    driver, pool = _folder() / "driver.o", _folder() / "pool.o"
    tool(COMPILER, "-O1", "-c", Path(__file__).with_name("qemu_driver.c"), "-o", driver)
    pool.write_bytes(compile_object(pool_ir(AARCH64), for_cpu(AARCH64, "armv8")))
    return [driver, pool]


def program(data: bytes) -> Path:
    """An executable of the object of a kernel, the pool and the driver."""
    made = _folder() / f"{abs(hash(data)):x}"
    if not made.exists():
        kernel = made.with_suffix(".o")
        kernel.write_bytes(data)
        tool(COMPILER, "-static", kernel, *_runtime(), "-lm", "-lpthread", "-o", made)
    return made


def _extent(arg: ArrayArg, address: int) -> tuple[int, int]:
    """The bytes that an array covers."""
    size = arg.dtype.itemsize
    if 0 in arg.shape:
        return address, address
    steps = [(n - 1) * s * size for n, s in zip(arg.shape, arg.strides, strict=True)]
    low, high = sum(min(0, s) for s in steps), sum(max(0, s) for s in steps)
    return address + low, address + high + size


def _view(begin: int, end: int) -> np.ndarray:
    import ctypes

    return np.ctypeslib.as_array((ctypes.c_uint8 * (end - begin)).from_address(begin))


def _run(executable: Any, words: list[int], arrays: list[tuple[int, int, int]]) -> None:
    """`arrays`: the word that holds an address, and the bytes that may be reached through it."""
    regions: list[list[int]] = []
    for begin, end in sorted((begin, end) for _, begin, end in arrays):
        if regions and begin < regions[-1][1]:
            regions[-1][1] = max(regions[-1][1], end)
        else:
            regions.append([begin, end])
    at = executable._at
    words[at["few_reads"]] = few_reads(THREADS)
    words[at["tasks"]] = 1
    head = [len(words), at["grid"], executable._scratch, THREADS, SLOTS]
    parts = [np.array([*head, len(regions), len(arrays), *words], np.int64)]
    for begin, end in regions:  # at the same place in a line as here
        parts.append(np.array([end - begin, begin % 64], np.int64))
    for word, begin, _ in arrays:
        which = next(i for i, (low, high) in enumerate(regions) if low <= begin <= high)
        parts.append(np.array([word, which, words[word] - regions[which][0]], np.int64))
    given = _folder() / "in"
    given.write_bytes(
        b"".join([p.tobytes() for p in parts] + [_view(*r).tobytes() for r in regions])
    )
    got = _folder() / "out"
    got.unlink(missing_ok=True)
    said = tool(EMULATOR, "-cpu", "max", program(executable.linkable()), given, got)
    if said:
        raise CheckError(said)
    data, at = got.read_bytes(), 0
    for begin, end in regions:
        _view(begin, end)[:] = np.frombuffer(data[at : at + end - begin], np.uint8)
        at += end - begin


def _prepare(self: Any, args: Sequence[Argument]) -> PreparedLaunch:
    prepared: Any = _PREPARE(self, args)

    def launch(grid: Grid, values: Sequence[int | float | bool]) -> None:
        words = list(prepared._filled(grid, values))
        slots = [at for at, _ in prepared._slots]
        arrays = [
            (at, *_extent(arg, int(value)))
            for at, arg, value in zip(slots, args, values, strict=True)
            if isinstance(arg, ArrayArg)
        ]
        _run(self, words, arrays)

    return launch


_PREPARE = CpuExecutable.launches


@pytest.fixture
def launches_in_qemu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside a test: launches on the cpu target run in the emulator."""
    monkeypatch.setattr(CpuExecutable, "prepare", _prepare)
