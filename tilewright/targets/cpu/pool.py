"""A persistent pool of native threads for the grids of the CPU target.

`pool(threads)` gives the process's pool of that size, made on first use.  Launching 2 tasks on 2 threads costs
about a microsecond.  Safe from several Python threads (launches take turns), after a fork (the child makes its
own threads) and at exit (threads are joined before their code is freed).
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from contextlib import suppress
from typing import Any

from tilewright import forks
from tilewright.codegen.loading import load
from tilewright.codegen.native import baseline, host_architecture
from tilewright.codegen.pyfunction import FAST, python_function
from tilewright.diagnostics import TilewrightError
from tilewright.targets.cpu.machine import chosen
from tilewright.targets.cpu.pool_ir import SLOTS, pool_ir

MOST_THREADS = 1 << 14
"""More than any machine has cores for; starting as many takes seconds."""

_pools: dict[int, Pool] = {}
_guard = forks.lock()
_code: tuple[Any, ...] | None = None


class Pool:
    """`threads` threads in all: the caller of `launch` is thread 0, the others sleep between launches."""

    def __init__(self, threads: int) -> None:
        if threads > MOST_THREADS:
            raise TilewrightError(
                f"a launch runs on at most {MOST_THREADS} threads, not on {threads}",
                hint="leave num_threads out: as many as there are cores for this process",
            )
        start, launch, wait, self._run, self._stop = _functions()
        self.threads = threads
        self._memory = ctypes.create_string_buffer(SLOTS + 64 * (threads + 1))
        # Processors fetch lines in pairs.
        self.address: int = (ctypes.addressof(self._memory) + 127) & ~127
        """Address of the pool's state: the first argument of `tw_pool_launch`."""
        self.launch_address: int = launch
        """Address of `tw_pool_launch(pool, function, argument, tasks)`, for generated code."""
        self.wait_address: int = wait
        """Of `tw_pool_wait(counter, least)`: returns once tasks drawn earlier have counted so far."""
        self._handles = (ctypes.c_int64 * max(1, threads - 1))()
        code = start(self.address, self._handles, threads - 1)
        if code:
            raise TilewrightError(
                f"could not start {threads - 1} threads: {os.strerror(code)}",
                hint="set TILEWRIGHT_NUM_THREADS to a smaller number",
            )

    def run(self, phases: int, argument: int) -> None:
        """Run `phases(argument)`, native code that calls `tw_pool_launch` with this argument, without the GIL.

        Raises what a handler of SIGINT raises (KeyboardInterrupt): no further task of this launch is begun then.
        """
        self._run(self.address, phases, argument)

    def stop(self) -> None:
        """End and join the threads; no launch may follow."""
        self._stop(self.address, self._handles, self.threads - 1)


def pool(threads: int) -> Pool:
    """The pool of `threads` threads (at least 1) of this process."""
    found = _pools.get(threads)
    if found is None:
        with _guard:
            found = _pools.get(threads)
            if found is None:
                found = _pools[threads] = Pool(threads)
    return found


def make_functions() -> None:
    """Has the pool's native functions made on a thread of its own, where nobody has, and LLVM made ready for what this
    machine executes: it lets Python run meanwhile."""
    if _code is None:
        threading.Thread(target=_make, name="tilewright-pool").start()


def _make() -> None:
    with suppress(Exception):  # whoever needs them is told why there are none
        with _guard:
            _functions()
        from tilewright.codegen.jit import target_machine

        with target_machine(chosen(None).target):
            pass


def _functions() -> tuple[Any, ...]:
    """The pool's native functions, compiled once per process (fork keeps them)."""
    global _code
    if _code is None:
        code = load(pool_ir(host_architecture()), baseline())
        # One prototype for both, for each takes as long to make as a launch: nobody reads what stop returns.
        call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        _code = (
            call(code.address("tw_pool_start")),
            code.address("tw_pool_launch"),
            code.address("tw_pool_wait"),
            python_function("run", code.address("tw_pool_run"), FAST, None),
            call(code.address("tw_pool_stop")),
            code,
        )
    return _code[:-1]


def _stop_all() -> None:
    for running in _pools.values():
        running.stop()
    _pools.clear()


def _forget() -> None:
    """In a forked child the threads do not exist: forget the pools, keep the code."""
    _pools.clear()


atexit.register(_stop_all)
os.register_at_fork(after_in_child=_forget)
