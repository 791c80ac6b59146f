"""Native code in a process whose address space has room for single pages only, gigabytes apart."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = r"""
import ctypes
import llvmlite.binding as llvm
from tilewright.codegen import jit
from tilewright.codegen.loading import LoadedObject
from tilewright.codegen.target import x86

GIB, NONE, PRIVATE_ANONYMOUS_NORESERVE = 1 << 30, 0, 0x4022
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 5]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def reserve(size):
    at = libc.mmap(None, size, NONE, PRIVATE_ANONYMOUS_NORESERVE, ctypes.c_size_t(-1).value, 0)
    return None if at == ctypes.c_void_p(-1).value else at


def crowd():
    ranges = [reserve(4 * GIB) for _ in range(32)]
    if None in ranges:
        raise SystemExit(77)  # not on this machine
    size = 1 << 40
    while size >= 4096:  # whatever is free above them
        at = reserve(size)
        if at is None or at < min(ranges):
            if at is not None:
                libc.munmap(at, size)
            size //= 2
    for at in ranges:  # a hole of one page in each
        libc.munmap(at + GIB, 4096)


text = "define double @f(double %x) {\n  %y = fmul double %x, 3.25\n  ret double %y\n}"
data = jit.compile_object(text, x86("x86-64"))
crowd()
code = LoadedObject(data, x86("x86-64"))
f = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(code.address("f"))
assert f(2.0) == 6.5, f(2.0)
"""


def test_code_reaches_its_constants() -> None:
    """Each section used to be mapped by itself: constants out of reach of relative addresses."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode in (0, 77), done.stderr[-2000:] or done.returncode
