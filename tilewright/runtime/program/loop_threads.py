"""Threads for the loops of host code that `host-parallel` outlined.

Compiled code calls `tw_parallel_N(lo, hi, captured...)`, which calls the compiled `tw_rounds_N` for parts of the
range, in as many threads as there are cores: a call of native code through ctypes leaves the interpreter to others.
"""

from __future__ import annotations

import ctypes as C
import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from tilewright.codegen.registers import Representation
from tilewright.passes.host.parallel import SharedLoop

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_KINDS: Final = {
    "ptr": C.c_void_p,
    "i64": C.c_int64,
    "i32": C.c_int32,
    "i16": C.c_int16,
    "i8": C.c_int8,
    "i1": C.c_bool,
    "float": C.c_float,
    "double": C.c_double,
}
"""C types of the registers that a captured value may be in."""

PARTS = 4
"""Parts of a range for each thread, so that one that is held up holds up little."""


def can_pass(types: Sequence[Any], representation: Representation) -> bool:
    """Whether every register of values of these types has a C type."""
    return all(r in _KINDS for t in types for r in representation.registers(t))


class Sharing:
    """The callbacks of a program's shared loops; `address_of` finds compiled functions, once they are loaded."""

    def __init__(self, representation: Representation, address_of: Callable[[str], int]) -> None:
        self._representation = representation
        self._address_of = address_of
        self._threads = max(1, len(os.sched_getaffinity(0)))
        self._pool: ThreadPoolExecutor | None = None

    def callback(self, loop: SharedLoop, guarded: Callable[[Any], Any]) -> Any:
        """The C function `tw_parallel_N`."""
        kinds = [_KINDS[r] for t in loop.captured for r in self._representation.registers(t)]
        prototype = C.CFUNCTYPE(None, C.c_int64, C.c_int64, *kinds)

        def run(lo: int, hi: int, *captured: Any) -> None:
            rounds = prototype(self._address_of(loop.rounds))
            count = max(0, hi - lo)
            parts = min(count, PARTS * self._threads) if self._threads > 1 else 1
            edges = [lo + count * i // max(1, parts) for i in range(parts + 1)]
            if parts <= 1:
                rounds(lo, hi, *captured)
                return
            if self._pool is None:
                from concurrent.futures import ThreadPoolExecutor

                self._pool = ThreadPoolExecutor(self._threads)
            work = [self._pool.submit(rounds, a, b, *captured) for a, b in pairwise(edges)]
            for part in work:
                part.result()

        return prototype(guarded(run))
