"""C functions that printed code may call and no library has: printing, assertions, strided copies.

They are Python callbacks, found by `LoadedObject` when the caller gives no function of that name.
"""

from __future__ import annotations

import ctypes as C
import os
import sys
import threading
from collections.abc import Callable
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np

from tilewright.arguments import array_of_memref
from tilewright.frozen import field, record
from tilewright.printed import OPEN, PUNCTUATION, number, spelled


def _write(text: str) -> None:
    sys.stdout.write(text)


def _assert_failed(message: bytes) -> None:
    """Native code cannot be unwound: report and end the process."""
    sys.stdout.flush()
    os.write(2, b"tilewright: assertion failed: " + message + b"\n")
    os._exit(134)


def _copy(element_bytes: int, rank_a: int, a: int, rank_b: int, b: int) -> None:
    dtype = np.dtype(f"V{element_bytes}")
    array_of_memref(rank_b, b, dtype)[...] = array_of_memref(rank_a, a, dtype).copy()


@record
class _Line:
    """One tw.print on its way: the format, and what its values are made of."""

    text: str
    launch: int = 0
    """The number of the launch whose lines are counted with this one; 0 for a program of the host."""
    extents: list[int] = field(default_factory=list[int])
    numbers: list[float] = field(default_factory=list[float])
    values: list[str] = field(default_factory=list[str])


_LINES: dict[int, _Line] = {}
"""By native thread: Python forgets its thread-locals between two calls from a thread of the pool."""


def _print_launch(launch: int) -> None:
    _LINES[threading.get_native_id()] = _Line("", launch)


def _print_begin(text: bytes) -> None:
    thread = threading.get_native_id()
    begun = _LINES.get(thread)
    _LINES[thread] = _Line(text.decode(errors="replace"), begun.launch if begun is not None else 0)


def _print_extent(n: int) -> None:
    _LINES[threading.get_native_id()].extents.append(n)


def _print_number(x: float) -> None:
    """The next component; a value is complete when its extents are filled."""
    line = _LINES[threading.get_native_id()]
    line.numbers.append(x)
    if len(line.numbers) < prod(line.extents):
        return
    text, places = spelled(line.extents, "{}")
    array = np.array(line.numbers, object).reshape(line.extents)
    line.values.append(text.format(*(number(array[place]) for place in places)))
    line.extents, line.numbers = [], []


def _print_end() -> None:
    line = _LINES.pop(threading.get_native_id())
    text = line.text.format(*line.values)
    launch = OPEN.get(line.launch)
    if launch is None:
        _write(text + "\n")
    else:
        launch.write(text)


_FUNCTIONS = {
    "tw_print_begin": ((C.c_char_p,), _print_begin),
    "tw_print_launch": ((C.c_int64,), _print_launch),
    "tw_print_extent": ((C.c_int64,), _print_extent),
    "tw_print_int": ((C.c_int64,), _print_number),
    "tw_print_bool": ((C.c_int64,), lambda x: _print_number(bool(x))),
    "tw_print_float": ((C.c_double,), _print_number),
    "tw_print_end": ((), _print_end),
    "printI64": ((C.c_int64,), lambda x: _write(str(x))),
    "printU64": ((C.c_uint64,), lambda x: _write(str(x))),
    "printF32": ((C.c_float,), lambda x: _write(f"{x:g}")),
    "printF64": ((C.c_double,), lambda x: _write(f"{x:g}")),
    "printString": ((C.c_char_p,), lambda data: _write(data.decode(errors="replace"))),
    **{
        f"print{name.capitalize()}": ((), partial(_write, text))
        for name, text in PUNCTUATION.items()
    },
    "tw_assert_failed": ((C.c_char_p,), _assert_failed),
    "tw_memref_copy": ((C.c_int64, C.c_int64, C.c_void_p, C.c_int64, C.c_void_p), _copy),
}
_KEPT: list[object] = []


def guarded_callbacks(guard: Callable[[Any], Any]) -> dict[str, Any]:
    """The functions by name as C callbacks of a caller who hears of their exceptions: native code passes none on."""
    return {
        name: C.CFUNCTYPE(None, *parameters)(guard(function))
        for name, (parameters, function) in _FUNCTIONS.items()
    }


@cache
def support_address(name: str) -> int | None:
    """Address of a support function, which then lives as long as the process; None if unknown."""
    if name not in _FUNCTIONS:
        return None
    parameters, function = _FUNCTIONS[name]
    callback = C.CFUNCTYPE(None, *parameters)(function)
    _KEPT.append(callback)
    return C.cast(callback, C.c_void_p).value
