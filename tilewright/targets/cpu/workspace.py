"""Memory for launches: packed arrays and the threads' scratch, in huge pages, kept and used again."""

from __future__ import annotations

import ctypes
import mmap
import os

from tilewright.diagnostics import LaunchError

_HUGE = 2 << 20
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_KEEP_BYTES = 1 << 30
"""Free blocks beyond this much are given back to the system."""


class MemoryBlock:
    """An anonymous mapping; `address` is aligned to a huge page if the block is that large."""

    def __init__(self, size: int):
        large = size >= _HUGE
        # Private: a child of a fork must not share what its parent's launches compute.
        self._map = mmap.mmap(-1, size + (_HUGE if large else 4096), flags=_PRIVATE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        align = _HUGE if large else 4096
        self.address = (start + align - 1) // align * align
        self.size = size
        if large and hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)


_free: list[MemoryBlock] = []
"""The last that was used, which caches still have, comes last. Threads share it by operations that none interrupts: a
lock would take a launch longer than all of them."""


def acquire(size: int) -> MemoryBlock:
    """A block of at least `size` bytes that nobody else uses; contents undefined.

    Raises LaunchError where the system has no room for it.
    """
    small: list[MemoryBlock] = []
    try:
        while (block := _free.pop()).size < size:
            small.append(block)
    except IndexError:
        block = None
    _free[:0] = small
    if block is not None:
        return block
    try:
        return MemoryBlock(-(-max(size, 4096) * 9 // 8 // 4096) * 4096)
    except OSError as error:
        raise LaunchError(
            f"the launch needs {size} bytes for packed arrays and its threads' tiles: {error.strerror}",
            hint="smaller tiles need less, and so do fewer threads (options(num_threads=n))",
        ) from None


def release(block: MemoryBlock) -> None:
    """Give a block back for the next launch."""
    _free.append(block)
    while len(_free) > 1 and sum(b.size for b in tuple(_free)) > _KEEP_BYTES:
        del _free[:1]


# A child starts with no blocks: those that its parent keeps would be copied page by page.
os.register_at_fork(after_in_child=_free.clear)
