"""Memory: the address space of this process, of which a program may touch what was registered.

Arrays of the caller are used in place, whatever their strides. Since pointers are real addresses,
integer pointers, views of another type and selected buffers need nothing special. Every access is
held against the table of allocations first: a wild address becomes a finding, never a crash.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.arguments import array_at
from tilewright.frozen import record
from tilewright.reference.values import Array, Index

_GUARD = 64
"""Bytes that no allocation of ours shares with the next one, so that overruns are seen."""


@record
class Allocation:
    """Bytes `start` .. `end` that a program may access."""

    start: int
    end: int
    granule: int
    """Bytes of its smallest element: what checking mode keeps its books by."""
    readonly: bool
    shared: bool
    """True for memory of one workgroup (SLM)."""
    initialised: bool
    owner: Any
    """Keeps the bytes alive."""
    name: str
    ours: bool = False
    """True for buffers that `allocate` made."""


class AllocationMap:
    """The allocations of a run, sorted by address and disjoint."""

    def __init__(self) -> None:
        self.allocations: list[Allocation] = []
        self._starts: Index = np.zeros(0, np.int64)
        self._ends: Index = np.zeros(0, np.int64)
        self._readonly = np.zeros(0, bool)

    def add(self, new: Allocation) -> Allocation:
        """Enters an allocation; overlapping ones (arrays that share memory) become one."""
        if new.end <= new.start:
            return new
        touching = [a for a in self.allocations if a.start < new.end and new.start < a.end]
        for old in touching:
            self.allocations.remove(old)
            new = Allocation(
                min(old.start, new.start),
                max(old.end, new.end),
                int(np.gcd(np.gcd(old.granule, new.granule), abs(old.start - new.start))),
                old.readonly and new.readonly,
                new.shared,
                old.initialised or new.initialised,
                (old.owner, new.owner),
                f"{old.name} and {new.name}",
            )
        self.allocations.append(new)
        self._index()
        return new

    def _index(self) -> None:
        self.allocations.sort(key=lambda a: a.start)
        self._starts = np.array([a.start for a in self.allocations], np.int64)
        self._ends = np.array([a.end for a in self.allocations], np.int64)
        self._readonly = np.array([a.readonly for a in self.allocations], bool)

    def add_array(self, array: Array, name: str) -> Allocation:
        """Enters the bytes that an array of the caller spans."""
        start, end = np.lib.array_utils.byte_bounds(array) if array.size else (0, 0)
        readonly = not array.flags.writeable
        return self.add(Allocation(start, end, array.itemsize, readonly, False, True, array, name))

    def allocate(self, count: int, size: int, granule: int, *, shared: bool, name: str) -> Index:
        """`count` buffers of `size` bytes for a program; the address of each.

        Filled with ones: NaN in every float type, -1 as integer, so that use before a write shows.
        """
        pitch = -(-size // _GUARD) * _GUARD + _GUARD
        raw = np.full(count * pitch + _GUARD, 0xFF, np.uint8)
        first = -(-raw.ctypes.data // _GUARD) * _GUARD
        addresses = first + pitch * np.arange(count, dtype=np.int64)
        self.allocations += (
            Allocation(address, address + size, granule, False, shared, False, raw, name, True)
            for address in addresses.tolist()
        )
        self._index()
        return addresses

    def release(self, address: int) -> bool:
        """Removes the buffer of ours that starts at an address; false when there is none."""
        for allocation in self.allocations:
            if allocation.start == address and allocation.ours:
                self.allocations.remove(allocation)
                self._index()
                return True
        return False

    def locate(self, low: Index, high: Index) -> Index:
        """Number of the allocation that holds bytes `low` .. `high` (exclusive), -1 for none."""
        if not self.allocations:
            return np.full(low.shape, -1, np.int64)
        number = np.searchsorted(self._starts, low, side="right") - 1
        inside = (number >= 0) & (high <= self._ends[number])
        return np.where(inside, number, -1)

    def read(self, address: Index, dtype: np.dtype[Any]) -> Array:
        """Elements at addresses that belong to allocations, one by one, however they are aligned."""
        raw, places = _bytes(address, dtype.itemsize)
        return np.ascontiguousarray(raw[places]).view(dtype)[:, 0]

    def write(self, address: Index, value: Array) -> None:
        """Elements to addresses that belong to allocations, one by one, however they are aligned."""
        raw, places = _bytes(address, value.itemsize)
        raw[places] = np.ascontiguousarray(value)[:, None].view(np.uint8)

    def writable(self, numbers: Index) -> Array:
        """Whether each allocation may be written to."""
        return ~self._readonly[numbers]


def _bytes(address: Index, size: int) -> tuple[Array, Index]:
    """Memory around addresses, byte by byte, and where in it the bytes of each element are."""
    first, last = (int(address.min()), int(address.max()) + size) if address.size else (0, 0)
    raw = array_at(first, (last - first,), (1,), np.dtype(np.uint8))
    return raw, (address - first)[:, None] + np.arange(size)
