"""The thread pool: every task runs exactly once, from any thread, again and again, and after a fork."""

from __future__ import annotations

import ctypes
import os
import threading

import llvmlite.binding as llvm
import numpy as np
import pytest

from tilewright.targets.cpu.pool import pool

COUNT_UP = """
define void @count_up(ptr %counts, i64 %task, i64 %thread) {
  %at = getelementptr i64, ptr %counts, i64 %task
  %old = atomicrmw add ptr %at, i64 1 monotonic
  ret void
}
"""


@pytest.fixture(scope="module")
def count_up():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(COUNT_UP)
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    yield engine.get_function_address("count_up")
    engine.close()


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("tasks", [0, 1, 2, 1000])
def test_every_task_runs_once(count_up, threads, tasks):
    counts = np.zeros(tasks + 1, np.int64)
    for _ in range(50):
        pool(threads).launch(count_up, counts.ctypes.data, tasks)
    assert (counts[:tasks] == 50).all()
    assert counts[tasks] == 0


def test_launches_from_several_python_threads_take_turns(count_up):
    counts = np.zeros(300, np.int64)

    def launch():
        for _ in range(100):
            pool(2).launch(count_up, counts.ctypes.data, 300)

    threads = [threading.Thread(target=launch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (counts == 400).all()


def test_a_forked_child_makes_its_own_threads(count_up):
    counts = np.zeros(100, np.int64)
    pool(2).launch(count_up, counts.ctypes.data, 100)
    child = os.fork()
    if child == 0:
        pool(2).launch(count_up, counts.ctypes.data, 100)
        os._exit(0 if (counts == 2).all() else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0


def test_addresses_serve_generated_code(count_up):
    """Generated code launches through the two addresses, as the phases of a kernel do."""
    counts = np.zeros(64, np.int64)
    own = pool(2)
    signature = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
    )
    signature(own.launch_address)(own.address, count_up, counts.ctypes.data, 64)
    assert (counts == 1).all()
