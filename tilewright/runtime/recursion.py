"""Room for long chains of ops: passes follow operands recursively, Python's default stack ends at a thousand.

Programs of ordinary size never come here. Where one does recurse deeper, the work is done again on a thread
whose stack is large; only what is too deep even for that is refused.
"""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from tilewright import forks
from tilewright.diagnostics import CompileError

T = TypeVar("T")

STACK_BYTES = 512 << 20
"""Address space of the thread's stack; memory is used only as deep as it goes."""
FRAMES = 200_000
"""Python frames that surely fit into it: frames with C code between them take about 1 KiB."""

_one_at_a_time = forks.lock()


def deeply(work: Callable[[], T]) -> T:
    """What ``work()`` gives. It may run twice, so it must start from its inputs each time.

    Raises what ``work`` raises, and CompileError where it recurses without end.
    """
    try:
        return work()
    except RecursionError:
        pass
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except RecursionError:
            errors.append(CompileError("the program is too deep to be compiled"))
        except BaseException as error:
            errors.append(error)

    with _one_at_a_time:
        frames, stack = sys.getrecursionlimit(), threading.stack_size(STACK_BYTES)
        try:
            thread = threading.Thread(target=contextvars.copy_context().run, args=(run,))
            sys.setrecursionlimit(FRAMES)
            thread.start()
            thread.join()
        finally:
            sys.setrecursionlimit(frames)
            threading.stack_size(stack)
    if errors:
        raise errors[0]
    return results[0]
