"""Arrays between pages that nobody may touch: what reads or writes beside them ends the process at once."""

from __future__ import annotations

import ctypes as C
import mmap
from typing import Any

import numpy as np

PAGE = mmap.PAGESIZE
_libc = C.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [C.c_void_p, C.c_size_t, C.c_int]


class Fenced:
    """`size` bytes of memory that end (or, with `first`, begin) where a forbidden page begins (ends)."""

    def __init__(self, size: int, first: bool = False):
        inner = -(-max(size, 1) // PAGE) * PAGE
        self._map = mmap.mmap(-1, inner + 2 * PAGE)
        low = C.addressof(C.c_char.from_buffer(self._map))
        for fence in (low, low + PAGE + inner):
            if _libc.mprotect(fence, PAGE, 0):
                raise OSError(C.get_errno(), "mprotect")
        self.offset = PAGE if first else PAGE + inner - size
        self.address = low + self.offset
        self.size = size

    def view(self) -> np.ndarray[Any, Any]:
        return np.frombuffer(self._map, np.uint8, self.size, self.offset)


def fenced(array: np.ndarray[Any, Any], first: bool = False) -> np.ndarray[Any, Any]:
    """A copy of an array in C or Fortran order, fenced on one side closely."""
    flat = Fenced(array.nbytes, first).view().view(array.dtype)
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    copy = flat.reshape(array.shape, order=order)
    copy[...] = array
    return copy
