"""Real kernels in several processes: at once, from one cache, from a damaged one, after a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import knobs

PROGRAM = """
    import sys
    import numpy as np
    import tilewright as tw

    @tw.kernel
    def scaled(X, Y, F: tw.constexpr = 3.0):
        m = tw.program_id(0) * 16
        x = tw.load_tile(tw.init_tile(X, [m, 0], (16, 64)))
        tw.store_tile(x * F + 1, tw.init_tile(Y, [m, 0], (16, 64)))

    x = np.random.default_rng(int(sys.argv[1])).standard_normal((50, 60), np.float32)
    y = np.full_like(x, np.nan)
    kernel = scaled.options(target="cpu")
    kernel[4](x, y)
    np.testing.assert_allclose(y, x * np.float32(3) + 1, atol=1e-6)
    print("from cache" if kernel.compile(x, y).from_cache else "compiled")
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "scaled.py"
    path.write_text(textwrap.dedent(PROGRAM))
    return path


def start(program: Path, cache: Path, seed: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(program), str(seed)],
        env={**os.environ, knobs.variable("cache_dir"): str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output.strip()


def test_processes_that_compile_the_same_kernel_at_once(program, tmp_path):
    cache = tmp_path / "cache"
    together = [start(program, cache, seed) for seed in range(3)]
    assert {finish(p) for p in together} <= {"compiled", "from cache"}
    assert finish(start(program, cache, 9)) == "from cache"
    assert len(list(cache.rglob("*.kernel"))) == 1
    assert not list(cache.rglob("new-*"))


def test_a_kernel_on_disk_is_launched_without_the_compiler(program, tmp_path):
    """A second start costs a quarter of the first: neither the IR nor the front end is imported."""
    program.write_text(
        program.read_text().replace(
            'print("from',
            'print("xdsl" in sys.modules, "tilewright.lang.build" in sys.modules, "from',
        )
    )
    cache = tmp_path / "cache"
    assert finish(start(program, cache, 0)).startswith("True True")
    assert finish(start(program, cache, 0)) == "False False from cache"


def test_damaged_entries_are_rebuilt(program, tmp_path):
    cache = tmp_path / "cache"
    assert finish(start(program, cache, 0)) == "compiled"
    (entry,) = cache.rglob("*.kernel")
    whole = entry.read_bytes()
    middle = len(whole) // 2
    for damage in (
        b"",
        whole[:middle],
        whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
    ):
        entry.write_bytes(damage)
        assert finish(start(program, cache, 1)) == "compiled"
    assert finish(start(program, cache, 1)) == "from cache"


def test_a_change_of_the_source_is_compiled(program, tmp_path):
    cache = tmp_path / "cache"
    assert finish(start(program, cache, 0)) == "compiled"
    program.write_text(
        program.read_text().replace("x * F + 1", "x * F + 2").replace(") + 1", ") + 2")
    )
    assert finish(start(program, cache, 0)) == "compiled"


@tw.kernel
def doubled(X, Y):
    m = tw.program_id(0) * 16
    x = tw.load_tile(tw.init_tile(X, [m, 0], (16, 32)))
    tw.store_tile(x + x, tw.init_tile(Y, [m, 0], (16, 32)))


def in_child(work) -> int:
    """Runs ``work`` in a forked child; its exit status, or 100 when it raised."""
    child = os.fork()
    if child == 0:
        code = 100
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("compiled_before", [False, True])
def test_a_forked_process(compiled_before, target, tmp_path):
    """A child launches, whether or not its parent has compiled and started threads before."""
    x = np.random.default_rng().standard_normal((64, 32), np.float32)
    kernel = doubled.options(target=target, num_threads=2)

    def launch():
        y = np.full_like(x, np.nan)
        kernel[4](x, y)
        np.testing.assert_array_equal(y, x + x)

    with knobs.override(cache_dir=tmp_path):
        if compiled_before:
            launch()
        assert in_child(launch) == 0
        launch()
        assert in_child(launch) == 0
