"""Programs that fail on the cpu: the error belongs to their launch, says who and where, and nothing else ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import tilewright as tw
from tilewright.diagnostics import CheckError
from tilewright.targets.cpu import workspace
from tilewright.targets.cpu.pool import pool
from tilewright.tools.cli import main


@tw.kernel
def checked(X, Y):
    x = tw.load_tile(tw.init_tile(X, [tw.program_id(0), 0], (1, 64)))
    tw.device_assert(x >= 0, "negative")
    tw.store_tile(x, tw.init_tile(Y, [tw.program_id(0), 0], (1, 64)))


checked_cpu = checked.options(target="cpu", num_threads=2)


def line_of(kernel, number: int) -> int:
    """Of the file, from that of the decorator."""
    return kernel.function.__code__.co_firstlineno + number


def test_the_first_program_that_failed_is_named():
    x, y = np.ones((9, 64), np.float32), np.zeros((9, 64), np.float32)
    x[3:7, 5] = -1
    with pytest.raises(
        CheckError, match=r"assertion failed in workgroup \(3, 0, 0\): negative"
    ) as e:
        checked_cpu[9](x, y)
    assert e.value.location is not None and e.value.location.line == line_of(checked, 3)
    assert (y.sum(1) == [64, 64, 64, 0, 0, 0, 0, 64, 64]).all()
    checked_cpu[9](abs(x), y)
    assert (y == 1).all()


def test_a_failure_belongs_to_its_launch(monkeypatch):
    """Another thread's launch, at the moment between a program's failure and its error, does not see it."""
    good, bad = np.ones((4, 64), np.float32), -np.ones((4, 64), np.float32)
    out = [np.zeros_like(good) for _ in range(2)]
    checked_cpu[4](good, out[0])
    release, errors = workspace.release, list[BaseException]()
    begun = threading.Event()

    def other():
        try:
            checked_cpu[4](good, out[1])
        except CheckError as error:
            errors.append(error)

    def delayed(block):
        if not begun.is_set():
            begun.set()
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        release(block)

    monkeypatch.setattr(workspace, "release", delayed)
    with pytest.raises(CheckError, match="negative"):
        checked_cpu[4](bad, out[0])
    assert begun.is_set() and not errors
    assert (out[1] == 1).all()


@tw.kernel
def divided(X, a, b, S: tw.constexpr = 0):
    if S:
        a, b = a.to(tw.i8), b.to(tw.i8)
    tw.store_tile(a // b, tw.init_tile(X, [0], (1, 1)))
    tw.store_tile(a % b, tw.init_tile(X, [1], (1, 1)))
    tw.store_tile(tw.cdiv(a, b), tw.init_tile(X, [2], (1, 1)))


@pytest.mark.parametrize("narrow", [0, 1])
def test_scalar_divisions(narrow):
    """Every pair of signs, and the quotient that does not fit: it wraps, as numpy's does."""
    least = -128 if narrow else -(1 << 63)
    x = np.zeros(3, np.int8 if narrow else np.int64)
    for a in (0, 1, 7, -7, 127, least):
        for b in (1, -1, 2, -3, least):
            divided.options(target="cpu")[1](x, a, b, S=narrow)
            want = np.array([a // b, a % b, -(-a // b)], object)
            wrapped = [(int(w) - least) % (-2 * least) + least for w in want]
            assert x.tolist() == wrapped, (a, b)


def test_a_scalar_division_by_zero_is_an_error_and_no_signal():
    x = np.full(3, 99, np.int64)
    with pytest.raises(CheckError, match=r"integer division by zero in workgroup \(0, 0, 0\)") as e:
        divided.options(target="cpu")[2](x, 5, 0)
    assert e.value.location is not None and e.value.location.line == line_of(divided, 4)
    assert (x == 99).all()


@tw.kernel
def unsigned(X, Y):
    a = tw.load_tile(tw.init_tile(X, [0], (1, 1))).item()
    b = tw.load_tile(tw.init_tile(X, [1], (1, 1))).item()
    tw.store_tile(a // b, tw.init_tile(Y, [0], (1, 1)))
    tw.store_tile(a % b, tw.init_tile(Y, [1], (1, 1)))


def test_scalar_divisions_of_unsigned_integers():
    x, y = np.array([250, 7], np.uint8), np.zeros(2, np.uint8)
    unsigned.options(target="cpu")[1](x, y)
    assert y.tolist() == [35, 5]
    x[1] = 0
    with pytest.raises(CheckError, match="integer division by zero"):
        unsigned.options(target="cpu")[1](x, y)


@tw.kernel
def guarded(A, B, C, g):
    if g != 0:
        row = tw.program_id(0) // g
        tw.store_tile(row, tw.init_tile(C, [tw.program_id(0), 0], (1, 1)))


def test_a_division_that_a_program_does_not_come_to_is_no_error():
    a, c = np.ones((4, 4), np.float32), np.zeros((4, 1), np.int64)
    guarded.options(target="cpu")[4](a, a, c, 0)
    assert not c.any()
    guarded.options(target="cpu")[4](a, a, c, 2)
    assert c.ravel().tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("division", ["index.divs", "index.remu"])
def test_a_division_in_a_loop_that_does_not_run_is_no_error(division, tmp_path, capsys):
    path = tmp_path / "loop.mlir"
    path.write_text(f"""gpu.module @m {{ gpu.func @k(%O: memref<16xindex>, %n: index) kernel
      attributes {{tilewright.level = "workgroup"}} {{
    %c0 = index.constant 0
    %c1 = index.constant 1
    %s = scf.for %i = %c0 to %n step %c1 iter_args(%a = %c1) -> (index) {{
      %q = {division} %c1, %n
      %m = arith.addi %a, %q : index
      scf.yield %m : index
    }}
    memref.store %s, %O[%c0] : memref<16xindex>
    gpu.return }} }}""")
    for n in "03":
        assert main(["check", str(path), "--args", "index[16]", n]) == 0
    assert "stages agree" in capsys.readouterr().out


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint16])
@pytest.mark.parametrize("columns", [1, 16])
def test_tiles_never_trap(dtype, columns):
    """Where the divisor is not 0 the quotient is numpy's, MIN // -1 included; where it is, anything."""

    @tw.kernel
    def tiles(X, Y, Q, R, N: tw.constexpr):
        x = tw.load_tile(tw.init_tile(X, [0, 0], (8, N)))
        y = tw.load_tile(tw.init_tile(Y, [0, 0], (8, N)))
        tw.store_tile(x // y, tw.init_tile(Q, [0, 0], (8, N)))
        tw.store_tile(x % y, tw.init_tile(R, [0, 0], (8, N)))

    i = np.iinfo(dtype)
    x = np.resize(np.array([7, i.min, i.max, 0, 5], dtype), (8, columns))
    y = np.resize(np.array([0, i.max if i.min == 0 else -1, 2], dtype), (8, columns))
    q, r = np.zeros_like(x), np.zeros_like(x)
    tiles.options(target="cpu")[1](x, y, q, r, columns)
    with np.errstate(all="ignore"):
        assert (q == x // y)[y != 0].all()
        assert (r == x % y)[y != 0].all()


class StopError(Exception):
    pass


@tw.kernel
def endless(X):
    tw.store_tile(1, tw.init_tile(X, [0], (1, 1)))


def test_ctrl_c_ends_a_launch_between_workgroups():
    """2^31 programs take minutes; the signal's handler raises, the next launch is whole."""
    x = np.zeros(1, np.int32)
    kernel = endless.options(target="cpu", num_threads=2)
    kernel[1](x)

    def handler(number, frame):
        raise StopError

    before = signal.signal(signal.SIGINT, handler)
    timer = threading.Timer(
        0.3, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)
    )
    try:
        timer.start()
        with pytest.raises(StopError):
            kernel[(1 << 31) - 1](x)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    y = np.zeros((9, 64), np.float32)
    checked_cpu[9](y + 1, y)
    assert (y == 1).all()


LIMITED = """
    import os, resource
    import numpy as np
    import tilewright as tw

    from tilewright.targets.cpu.pool import pool

    pool(2)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    before = len(os.listdir("/proc/self/task"))
    resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20),) * 2)
    try:
        pool(5000)
    except tw.TilewrightError as error:
        assert "could not start 4999 threads" in str(error), error
    else:
        raise AssertionError
    assert len(os.listdir("/proc/self/task")) == before
"""


@pytest.mark.parametrize("threads", [1 << 15, 10**12, 1 << 70])
def test_more_threads_than_any_machine_has_cores_for_are_refused(threads):
    with pytest.raises(tw.TilewrightError, match=f"at most 16384 threads, not on {threads}"):
        pool(threads)


def test_a_pool_that_cannot_start_leaves_no_threads(tmp_path):
    script = tmp_path / "limited.py"
    script.write_text(textwrap.dedent(LIMITED))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@tw.kernel
def floors(X, Y, n, D: tw.constexpr):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (1, 64)))
    tw.store_tile(x // D + n // D, tw.init_tile(Y, [0, 0], (1, 64)))


@pytest.mark.parametrize("divisor", [1, 2, 64, 1 << 30, 3, -2, -64])
def test_quotients_by_constants_are_rounded_down(rng: np.random.Generator, divisor: int):
    """By a power of two, too, which is a shift."""
    ends = np.iinfo(np.int32)
    x = rng.integers(ends.min, ends.max, (1, 64)).astype(np.int32)
    x[0, :6] = ends.min, ends.max, -1, 0, divisor, -divisor
    for n in (-65, -64, -1, 0, 63, 64):
        y = np.full_like(x, 99)
        floors.options(target="cpu")[1](x, y, n, D=divisor)
        assert (y == (x // divisor + n // divisor).astype(np.int32)).all()
