"""Native code as functions of Python: what an interpreter's frames cost is saved where microseconds count.

`python_function` gives a Python object that calls native code, whose functions have the signatures of
CPython's C API. `Functions(text)` compiles them from LLVM IR; `make` gives such an object of one of
them. The IR may use every function of the C API, and `@tw_none` and `@tw_true`, the addresses of None
and True. Only CPython with its lock is served: `available()`; `compiled(text)` is None elsewhere.
"""

from __future__ import annotations

import ctypes as C
import sys
from contextlib import suppress
from functools import cache
from typing import Any, Final

from tilewright.codegen.loading import load
from tilewright.codegen.native import baseline
from tilewright.codegen.target import LLVMTarget
from tilewright.diagnostics import TilewrightError

NO_ARGUMENTS: Final = 4
"""METH_NOARGS: `ptr (ptr self, ptr unused)`."""
FAST: Final = 0x80
"""METH_FASTCALL: `ptr (ptr self, ptr arguments, i64 count)`."""
VECTOR: Final = FAST | 2
"""METH_FASTCALL | METH_KEYWORDS: `ptr (ptr self, ptr arguments, i64 count, ptr keywords)`."""


class _MethodDef(C.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", C.c_char_p),
        ("function", C.c_void_p),
        ("flags", C.c_int),
        ("doc", C.c_char_p),
    )


def python_function(name: str, address: int, flags: int, state: object) -> Any:
    """A function of Python that calls the native one at an address, which lives on, with `state` as its self.

    Called as one of ctypes it takes half a microsecond more, and several after a rest.
    """
    return _new()(C.addressof(_method(name, address, flags)), state, None)


_METHODS: Final[dict[tuple[str, int, int], _MethodDef]] = {}
_COMPILED: Final[dict[str, Functions | None]] = {}
# No caches of functools: of two threads at once the second would replace, and free, what functions of the first run.


def _method(name: str, address: int, flags: int) -> _MethodDef:
    """Kept: Python reads it as long as its functions live."""
    made = _MethodDef(name.encode(), address, flags, None)
    return _METHODS.setdefault((name, address, flags), made)


@cache
def _new() -> Any:
    prototype = C.PYFUNCTYPE(C.py_object, C.c_void_p, C.py_object, C.c_void_p)
    return prototype(("PyCFunction_NewEx", C.pythonapi))


def available() -> bool:
    """Is this a Python that such code knows?"""
    with_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    x86_linux = sys.platform == "linux" and sys.maxsize > 1 << 32 and _machine() == "x86_64"
    return sys.implementation.name == "cpython" and with_lock and x86_linux


def _machine() -> str:
    import os

    return os.uname().machine


class Functions:
    """Compiled once, for the life of the process. CompileError where the C API lacks a function."""

    def __init__(self, text: str, target: LLVMTarget | None = None):
        symbols = {"tw_none": id(None), "tw_true": id(True)}
        self._code = load(text, target or baseline(), symbols)

    def make(self, name: str, flags: int, state: object) -> Any:
        """A function of Python that calls the native one with `state` as its self."""
        return python_function(name, self._code.address(name), flags, state)


def compiled(text: str) -> Functions | None:
    """The functions of a text, the same for all who ask; None where this Python or its C API has no place for them."""
    if text not in _COMPILED:
        made = None
        if available():
            with suppress(TilewrightError):  # a C API that lacks something
                made = Functions(text)
        _COMPILED.setdefault(text, made)
    return _COMPILED[text]
