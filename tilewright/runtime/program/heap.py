"""The memory that a program allocates: each allocation has pages of its own with unmapped ones behind.

A program with a wrong index writes where it likes. In the C library's heap that damages what stands there, this
compiler's own objects too: the process aborts later, somewhere else, or goes on and is wrong. Between mappings of
their own such an access is stopped where it happens, and what is freed twice, or was never allocated, is reported.
"""

from __future__ import annotations

import ctypes as C
import mmap
from collections import defaultdict

from tilewright.diagnostics import TilewrightError

_PAGE = mmap.PAGESIZE
_HUGE = 2 << 20
_GUARD = 16 * _PAGE
"""Bytes that cannot be accessed behind an allocation, and so before the next one."""
_MOST = 8192
"""Allocations at a time that have mappings of their own: a process may have some 65,000 mappings."""
_KEPT = 256 << 20
"""Bytes of freed mappings that are kept for allocations of the same size."""


class Heap:
    """Allocations of one program. `allocate` and `release` are called by its native code, from any thread."""

    def __init__(self) -> None:
        self._libc = C.CDLL(None, use_errno=True)
        size, pointer = C.c_size_t, C.c_void_p
        for name, result, arguments in (
            ("mmap", pointer, [pointer, size, C.c_int, C.c_int, C.c_int, C.c_long]),
            ("mprotect", C.c_int, [pointer, size, C.c_int]),
            ("madvise", C.c_int, [pointer, size, C.c_int]),
            ("munmap", C.c_int, [pointer, size]),
            ("aligned_alloc", pointer, [size, size]),
            ("free", None, [pointer]),
        ):
            function = getattr(self._libc, name)
            function.restype, function.argtypes = result, arguments
        self._live: dict[int, int] = {}
        """Bytes of each allocation by its address; 0 of one from the C library's heap."""
        self._free: dict[int, list[int]] = defaultdict(list)
        self._kept = 0

    def allocate(self, align: int, size: int) -> int:
        """The address of `size` fresh bytes, a multiple of `align`, a power of two.

        Raises:
            MemoryError: the process has no room for them.
        """
        size = -(-size // _PAGE) * _PAGE
        if align > _PAGE or len(self._live) >= _MOST:
            address, size = self._libc.aligned_alloc(align, size), 0
        elif self._free[size]:
            address = self._free[size].pop()
            self._kept -= size
        else:
            address = self._map(size)
        if not address:
            raise MemoryError
        self._live[address] = size
        return address

    def _map(self, size: int) -> int | None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        start = self._libc.mmap(None, size + _GUARD, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        if start in (None, C.c_void_p(-1).value):
            return None
        self._libc.mprotect(start + size, _GUARD, 0)
        if size >= _HUGE:
            # Advice alone: a column of a large matrix would have a page of its own for every element.
            self._libc.madvise(start, size, mmap.MADV_HUGEPAGE)
        return start

    def release(self, address: int | None) -> None:
        """Give an allocation back.

        Raises:
            TilewrightError: no allocation starts there, or it was given back before.
        """
        if address is None:
            return  # as in C
        size = self._live.pop(address, None)
        if size is None:
            raise TilewrightError(
                "the program frees memory that is not allocated",
                hint="each allocation is freed once, by its own memref, not by a view of it or of a global",
            )
        if size == 0:
            self._libc.free(address)
        elif self._kept + size <= _KEPT:
            self._free[size].append(address)
            self._kept += size
        else:
            self._libc.munmap(address, size + _GUARD)
