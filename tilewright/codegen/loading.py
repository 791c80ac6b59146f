"""Object code -> callable addresses in this process. LLVM is loaded only where it is needed: a kernel of the disk cache
is launched without it.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import lru_cache, partial
from typing import Any

from tilewright import cache as disk
from tilewright import forks
from tilewright.codegen.elf import Image, Unplaceable, objects, undefined_symbols
from tilewright.codegen.support import support_address
from tilewright.codegen.target import TEXTS_AT_ONCE, LLVMTarget
from tilewright.diagnostics import CompileError
from tilewright.knobs import thread_count

LIBRARY = (
    "mem(cpy|move|set|cmp)|bcmp|aligned_alloc|free"
    "|(exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|sqrt|cbrt|sin|cos|sincos|tan|asin|acos|atan|atan2|sinh|cosh|tanh"
    "|erf|erfc|fma|fmod|remainder|fmin|fmax|fabs|copysign|floor|ceil|trunc|round|roundeven|rint|nearbyint|ldexp"
    "|lround|llround|lrint|llrint)f?"
    "|__(add|sub|mul|div|mod|udiv|umod|fix|fixuns|float|floatun|trunc|extend|pow|eq|ne|lt|le|gt|ge|unord)"
    "[bhsdxtf]*[dtsh]?[fi]?[0-9]?|__(ash[lr]|lshr|clz|ctz|popcount|parity)[sdt]i[0-9]"
)
"""Functions of the C library, of its mathematics and of compilers' run time that LLVM makes calls of: a pattern."""


def _process_address(name: str) -> int | None:
    """Where the dynamic linker of this process, or LLVM, has `name`."""
    try:
        at = ctypes.addressof(getattr(ctypes.pythonapi, name))  # of a word that holds it
        return ctypes.c_void_p.from_address(at).value
    except AttributeError:
        from tilewright.codegen.jit import exported

        return exported(name)


class LoadedObject:
    """Object code in executable memory; addresses are valid while this object lives."""

    def __init__(
        self,
        data: bytes,
        target: LLVMTarget,
        symbols: Mapping[str, int] | None = None,
        *,
        ours: bool = False,
    ):
        """`data`: an object, or several, of which later ones may call what earlier ones define.

        `symbols`: addresses of external functions by name, beyond those of `support` and those that code
        generators call by themselves (`LIBRARY`). Code made from a program's text reaches no others: whatever
        the text calls, it is not the shell. `ours`: the code is Tilewright's own, and all that the process
        exports is there for it.

        Raises CompileError when the object needs a symbol that none of them gives.
        """
        found: dict[str, int] = {}
        for name in undefined_symbols(data):
            if name == "_GLOBAL_OFFSET_TABLE_":  # the linker's own
                continue
            address = (symbols or {}).get(name) or support_address(name)
            if address is None and (ours or re.fullmatch(LIBRARY, name)):
                address = _process_address(name)
            if address is None:
                raise CompileError(
                    f"the object needs '{name}', which nothing here defines",
                    rule="code of a program reaches the functions of the runtime, and no others of this process",
                )
            found[name] = address
        self._code: Any
        try:
            self._code = Image(data, found)
            self._addresses = self._code.addresses
        except Unplaceable:
            from tilewright.codegen.jit import link

            self._code, self._addresses = [], dict[str, int]()
            for each in objects(data):
                code, defined = link(each, target, found)
                self._code.append(code)
                self._addresses |= defined
                found |= defined

    def address(self, name: str) -> int:
        """Address of a function; KeyError if the object does not define it."""
        return self._addresses[name]


def load(text: str, target: LLVMTarget, symbols: Mapping[str, int] | None = None) -> LoadedObject:
    """Code of our own in memory."""
    return LoadedObject(kept_object(text, target), target, symbols, ours=True)


@lru_cache(maxsize=64)
def kept_object(text: str, target: LLVMTarget) -> bytes:
    """The object of a text that is compiled more than once: compiled, or from the disk cache, where it lies beside the
    kernels that need it."""

    def make() -> dict[str, bytes]:
        from tilewright.codegen.jit import compile_object

        return {"object": compile_object(text, target)}

    return disk.kept((text, target.key()), make)["object"]


class Ahead:
    """Objects of texts, made by threads while others are printed: LLVM lets Python run meanwhile."""

    def __init__(self, target: LLVMTarget):
        self._target = target
        self._waiting: list[str] = []
        self._threads: list[threading.Thread] = []

    def begin(self, text: str) -> None:
        self._waiting.append(text)
        others = min(thread_count(), TEXTS_AT_ONCE) - 1  # beside this thread, which prints
        if sum(thread.is_alive() for thread in self._threads) < others:
            made = partial(copy_context().run, self._make_all)
            thread = threading.Thread(target=made, name="tilewright-objects")
            with suppress(RuntimeError):  # no more threads, or the process ends: `get` makes all
                thread.start()
                self._threads.append(thread)

    def _make_all(self) -> None:
        """Makes what nobody has begun yet."""
        with suppress(IndexError):
            while True:
                text = self._waiting.pop(0)
                with suppress(Exception):  # whoever needs it is told
                    kept_object(text, self._target)

    def get(self, texts: Sequence[str]) -> list[bytes]:
        """The objects of texts; this thread helps to make them."""
        self._make_all()
        for thread in self._threads:
            thread.join()
        return [kept_object(text, self._target) for text in texts]


_compiling: dict[object, float] = {}
"""For each that compiles now, the interval before any did."""
_counting = forks.lock()
PROMPT = 2e-4
"""Seconds that a thread which comes back from LLVM waits for Python at most."""


@contextmanager
def prompt() -> Generator[None]:
    """Threads take turns in Python often: those of `Ahead` come back from LLVM a dozen times each, and wait five
    milliseconds each time for a thread that computes (:func:`sys.setswitchinterval`)."""
    with _counting:
        usual = next(iter(_compiling.values()), sys.getswitchinterval())
        _compiling[me := object()] = usual
        sys.setswitchinterval(min(usual, PROMPT))
    try:
        yield
    finally:
        with _counting:
            if _compiling.pop(me, None) is not None and not _compiling:
                sys.setswitchinterval(usual)


def _as_usual() -> None:
    """In a forked child nobody compiles: those who did are threads of its parent."""
    for usual in _compiling.values():
        sys.setswitchinterval(usual)
    _compiling.clear()


os.register_at_fork(after_in_child=_as_usual)
