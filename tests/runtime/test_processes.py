"""Real kernels in several processes: at once, from one cache, from a damaged one, after a fork."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tilewright import knobs, ops
from tilewright.targets.cpu import workspace

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
    # The kernel, the thread pool, and what LLVM calls the processor.
    assert len(list(cache.rglob("*.kernel"))) == 3
    assert not list(cache.rglob("new-*"))


def test_a_kernel_on_disk_is_launched_without_the_compiler(program, tmp_path):
    """A second start costs a quarter of the first: neither the IR, the front end nor LLVM is imported.

    The first imports no dialect that the kernel does not speak, nor expansions of ops that it has not.
    """
    names = (
        "xdsl",
        "tilewright.lang.build",
        "llvmlite",
        "tilewright.dialects.xegpu",
        "tilewright.passes.expand_ops",
        "tilewright.layout",
    )
    told = f"print(*(name in sys.modules for name in {names}), "
    program.write_text(program.read_text().replace('print("from', told + '"from'))
    cache = tmp_path / "cache"
    assert finish(start(program, cache, 0)).startswith("True True True False False")
    assert finish(start(program, cache, 0)) == "False False False False False False from cache"


MERGED = """
    import sys
    import numpy as np
    from tilewright.ops.softmax import softmax_rows
    from tilewright.runtime.arrays import describe

    x = np.random.default_rng(int(sys.argv[1])).standard_normal((515, 2056), np.float32)
    y = np.full_like(x, np.nan)
    kernel = softmax_rows.options(target="cpu", num_threads=2)
    kernel[258](x, y, BM=2, BN=2112)
    e = np.exp(x - x.max(1, keepdims=True), dtype=np.float64)
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), atol=1e-6)
    print(*(name in sys.modules for name in ("xdsl", "tilewright.lang.build", "llvmlite")))
    code = kernel.compile(x, y, BM=2, BN=2112).executable.merged((258, 1, 1), [describe(a, "") for a in (x, y)])[0]
    assert code._merged[0] > 1
"""


def test_merged_programs_on_disk_are_launched_without_the_compiler(tmp_path):
    """What was chosen for a grid and its code lie on disk as the kernel does."""
    path, cache = tmp_path / "merged.py", tmp_path / "cache"
    path.write_text(textwrap.dedent(MERGED))
    assert finish(start(path, cache, 0)).startswith("True True")
    assert finish(start(path, cache, 1)) == "False False False"


def test_damaged_entries_are_rebuilt(program, tmp_path):
    cache = tmp_path / "cache"
    assert finish(start(program, cache, 0)) == "compiled"
    entries = {entry: entry.read_bytes() for entry in cache.rglob("*.kernel")}
    for damage in (
        lambda whole, middle: b"",
        lambda whole, middle: whole[:middle],
        lambda whole, middle: whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
    ):
        for entry, whole in entries.items():
            entry.write_bytes(damage(whole, len(whole) // 2))
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
    x = fresh_rng().standard_normal((64, 32), np.float32)
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


def test_memory_of_launches_is_not_shared_with_a_forked_process():
    """What a child's launches compute is not seen by its parent's, nor by its siblings'."""
    block = workspace.acquire(1 << 16)
    memory = (ctypes.c_uint8 * block.size).from_address(block.address)
    ctypes.memset(block.address, 1, block.size)
    assert in_child(lambda: ctypes.memset(block.address, 2, block.size)) == 0
    assert set(memory) == {1}
    workspace.release(block)
    assert in_child(lambda: check(workspace.acquire(1 << 16) is not block)) == 0


def check(condition: bool) -> None:
    assert condition


def product(scale: int) -> bool:
    """Whether products that are packed into scratch memory are right, again and again."""
    r = np.random.default_rng(0)
    a, b = (r.integers(-4, 5, (128, 128)).astype(np.float32) for _ in "ab")
    return all(np.array_equal(ops.matmul(a * scale, b), a * scale @ b) for _ in range(40))


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_pools_of_processes(method):
    assert product(1)
    with get_context(method).Pool(2) as processes:
        assert processes.map(product, range(1, 5)) == [True] * 4


def test_a_data_loader_that_launches_in_its_workers():
    """Workers of PyTorch's loader are forks of a process that has launched."""
    torch = pytest.importorskip("torch")

    class Doubled(torch.utils.data.Dataset):
        def __len__(self):
            return 24

        def __getitem__(self, i):
            x = np.full((64, 32), i, np.float32)
            y = np.full_like(x, np.nan)
            doubled[4](x, y)
            return y

    whole = Doubled()
    assert (whole[3] == 6).all()
    batches = torch.utils.data.DataLoader(
        whole, batch_size=4, num_workers=2, multiprocessing_context="fork"
    )
    found = torch.cat(list(batches))
    assert found.shape == (24, 64, 32)
    assert (found == 2 * torch.arange(24.0)[:, None, None]).all()


HELD = """
    import os, signal, threading, time
    import llvmlite.binding as llvm
    from tilewright.codegen import jit
    from tilewright.codegen.native import native

    text = "define i64 @f() { ret i64 7 }"
    data = jit.compile_object(text, native())
    inside, forking = threading.Event(), threading.Event()

    def compiling():  # as a thread does that is inside of LLVM when another forks
        with llvm.ffi.lib._lock, jit._lock:
            inside.set()
            forking.wait()
            time.sleep(0.2)

    thread = threading.Thread(target=compiling)
    thread.start()
    inside.wait()
    os.register_at_fork(before=forking.set)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        jit.link(jit.compile_object(text, native()), native(), {})
        os._exit(0)
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_a_fork_while_another_thread_compiles(tmp_path):
    """The child compiles and loads: no lock of ours, nor llvmlite's, is copied held."""
    script = tmp_path / "held.py"
    script.write_text(textwrap.dedent(HELD))
    finish(start(script, tmp_path / "cache", 0))
