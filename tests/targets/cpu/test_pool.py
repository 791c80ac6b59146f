"""The thread pool: every task runs exactly once, from any thread, again and again, and after a fork."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from itertools import pairwise

import llvmlite.binding as llvm
import numpy as np
import pytest

from tilewright.targets.cpu import pool as module
from tilewright.targets.cpu import pool_ir
from tilewright.targets.cpu.pool import Pool, make_functions, pool
from tilewright.targets.cpu.pool_ir import OFFSETS

COUNT_UP = """
define void @slowly_up(ptr %counts, i64 %task, i64 %thread) {
  br label %wait
wait:
  %i = phi i64 [ 0, %0 ], [ %i1, %wait ]
  %i1 = add i64 %i, 1
  %spin = load volatile i64, ptr %counts
  %more = icmp slt i64 %i1, 2000
  br i1 %more, label %wait, label %up
up:
  %at = getelementptr i64, ptr %counts, i64 %task
  %old = atomicrmw add ptr %at, i64 1 monotonic
  ret void
}

define void @who(ptr %threads, i64 %task, i64 %thread) {
  %at = getelementptr i64, ptr %threads, i64 %task
  store i64 %thread, ptr %at
  ret void
}

define void @slowly_who(ptr %threads, i64 %task, i64 %thread) {
  br label %wait
wait:
  %i = phi i64 [ 0, %0 ], [ %i1, %wait ]
  %i1 = add i64 %i, 1
  %spin = load volatile i64, ptr %threads
  %more = icmp slt i64 %i1, 2000
  br i1 %more, label %wait, label %tell
tell:
  %at = getelementptr i64, ptr %threads, i64 %task
  store i64 %thread, ptr %at
  ret void
}

define void @keep_word(ptr %words, i64 %task, i64 %thread) {
  %word.at = load ptr, ptr %words
  %word = load atomic i64, ptr %word.at monotonic, align 8
  %number = add i64 %task, 1
  %at = getelementptr i64, ptr %words, i64 %number
  store i64 %word, ptr %at
  ret void
}

define void @count_up(ptr %counts, i64 %task, i64 %thread) {
  %at = getelementptr i64, ptr %counts, i64 %task
  %old = atomicrmw add ptr %at, i64 1 monotonic
  ret void
}
"""


@pytest.fixture(scope="module")
def functions():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(COUNT_UP)
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    names = ("count_up", "slowly_up", "who", "slowly_who", "keep_word")
    yield tuple(engine.get_function_address(name) for name in names)
    engine.close()


@pytest.fixture(scope="module")
def count_up(functions):
    return functions[0]


def launch(own: Pool, function: int, argument: int, tasks: int) -> None:
    """Launches through the addresses that generated code has, without Python's lock."""
    signature = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
    )
    signature(own.launch_address)(own.address, function, argument, tasks)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("tasks", [0, 1, 2, 1000])
def test_every_task_runs_once(count_up, threads, tasks):
    counts = np.zeros(tasks + 1, np.int64)
    for _ in range(50):
        launch(pool(threads), count_up, counts.ctypes.data, tasks)
    assert (counts[:tasks] == 50).all()
    assert counts[tasks] == 0


@pytest.mark.parametrize("threads", [1, 3])
def test_short_tasks_take_their_tickets_together(functions, threads):
    """Several of them see one word; the last ones, which are what threads may end apart by, do not."""
    own, tasks = Pool(threads), 20_000
    words = np.zeros(tasks + 1, np.int64)
    words[0] = own.address + OFFSETS["tickets"]
    try:
        launch(own, functions[4], words.ctypes.data, tasks)
    finally:
        own.stop()
    assert words[1:].all()
    assert len(np.unique(words[1:])) < tasks / 2
    assert threads > 1 or len(np.unique(words[-16:])) == 16


def rested(own: Pool, function: int, tasks: int) -> np.ndarray:
    """Which threads did the tasks of a launch that found all workers asleep."""
    threads = np.full(tasks, -1, np.int64)
    time.sleep(0.03)
    launch(own, function, threads.ctypes.data, tasks)
    assert (threads >= 0).all()
    return threads


def test_little_work_wakes_nobody(functions):
    own = Pool(3)
    try:
        first = rested(own, functions[2], 64)  # a function not seen before, which wakes
        alone = [not rested(own, functions[2], 64).any() for _ in range(20)]
    finally:
        own.stop()
    assert first.max() <= 2
    assert sum(alone) > 10  # but for launches in which the caller lost its core


def test_much_work_wakes_sleepers_though_its_tasks_are_short(functions):
    own = Pool(3)
    try:
        shared = [rested(own, functions[3], 20_000).any() for _ in range(5)]
    finally:
        own.stop()
    assert any(shared[1:])


def test_all_that_sleep_are_woken_and_sleep_again(functions):
    own, threads = Pool(4), set[int]()
    asleep = ctypes.c_int32.from_address(own.address + OFFSETS["asleep"])
    try:
        for _ in range(20):
            end = time.monotonic() + 20
            while asleep.value != 3 and time.monotonic() < end:
                time.sleep(0.001)
            assert asleep.value == 3
            threads |= {*rested(own, functions[3], 20_000)}
            if len(threads) == 4:
                break
    finally:
        own.stop()
    assert threads == {0, 1, 2, 3}


def test_what_takes_no_time_is_not_posted_to_other_threads(functions):
    own, threads = Pool(3), np.zeros(8, np.int64)
    posted = ctypes.c_int64.from_address(own.address + OFFSETS["posted"])
    try:
        numbers = [posted.value]
        for _ in range(20):
            launch(own, functions[2], threads.ctypes.data, 8)
            numbers.append(posted.value)
        known = numbers[-1]
        launch(own, functions[3], threads.ctypes.data, 8)  # not seen before
        other = posted.value
    finally:
        own.stop()
    assert numbers[0] != numbers[1]  # the first one was not known
    assert (
        sum(a == b for a, b in pairwise(numbers)) > 10
    )  # but for those whose caller lost its core
    assert other != known


def test_many_launches_of_little_work_in_a_row_wake_sleepers(functions):
    """What each of them has is less than a wake-up takes, all of them together are much more."""
    own, threads = Pool(2), np.zeros(2, np.int64)
    try:
        rested(own, functions[3], 2)
        time.sleep(0.03)
        for _ in range(20_000):
            launch(own, functions[3], threads.ctypes.data, 2)
            if threads.any():
                break
    finally:
        own.stop()
    assert threads.any()


def test_launches_from_several_python_threads_take_turns(count_up):
    counts = np.zeros(300, np.int64)

    def launches():
        for _ in range(100):
            launch(pool(2), count_up, counts.ctypes.data, 300)

    threads = [threading.Thread(target=launches) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (counts == 400).all()


def test_a_forked_child_makes_its_own_threads(count_up):
    counts = np.zeros(100, np.int64)
    launch(pool(2), count_up, counts.ctypes.data, 100)
    child = os.fork()
    if child == 0:
        launch(pool(2), count_up, counts.ctypes.data, 100)
        os._exit(0 if (counts == 2).all() else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0


def test_a_signal_whose_handler_does_not_raise_loses_no_task(functions):
    """The handler runs in the middle of a launch, and may launch on the same pool."""
    count_up, slowly_up = functions[:2]
    counts, others, own = np.zeros(2_000_000, np.int64), np.zeros(50, np.int64), pool(2)
    handled: list[int] = []

    def handler(number: int, frame: object) -> None:
        launch(own, count_up, others.ctypes.data, 50)
        handled.append(int(counts.sum()))

    before = signal.signal(signal.SIGINT, handler)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT))
    try:
        timer.start()
        launch(own, slowly_up, counts.ctypes.data, len(counts))
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert (counts == 1).all() and (others == 1).all()
    assert handled[0] < len(counts)  # it did not wait for the end


def test_more_tasks_than_have_tickets_at_a_time(functions, monkeypatch):
    monkeypatch.setattr(module, "_code", None)
    monkeypatch.setattr(pool_ir, "MOST", 7)
    counts, own = np.zeros(101, np.int64), Pool(3)
    try:
        for function in functions[:2]:
            for _ in range(50):
                launch(own, function, counts.ctypes.data, 100)
    finally:
        own.stop()
    assert (counts[:100] == 100).all() and counts[100] == 0


def test_a_pool_that_ends_right_after_a_launch_ends(count_up):
    """A worker that saw the launch but came too late must not take the pool's end for another one."""
    counts = np.zeros(50, np.int64)

    def lives() -> None:
        for _ in range(2000):
            own = Pool(5)
            launch(own, count_up, counts.ctypes.data, 50)
            own.stop()

    life = threading.Thread(target=lives, daemon=True)
    life.start()
    life.join(60)
    assert not life.is_alive()
    assert (counts == 2000).all()


def test_functions_are_made_once_beside_what_else_is_done(monkeypatch):
    compiled: list[threading.Thread] = []
    real = module.load

    def load(*arguments):
        compiled.append(threading.current_thread())
        return real(*arguments)

    monkeypatch.setattr(module, "_code", None)
    monkeypatch.setattr(module, "_pools", {})
    monkeypatch.setattr(module, "load", load)
    make_functions()
    found = pool(2)  # waits for it, or is first
    found.stop()
    make_functions()
    for thread in threading.enumerate():
        if thread.name == "tilewright-pool":
            thread.join()
    assert len(compiled) == 1
