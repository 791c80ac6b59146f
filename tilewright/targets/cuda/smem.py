"""Shared memory of a workgroup: who has which bytes when, and how much a kernel needs in all.

The pass that distributes a kernel asks for memory in program order and gives it back when no later
op reads it, so that the same bytes serve many ops: liveness by construction. Reuse is safe because
accesses go through `sync.Hazards`, which inserts a barrier between the last reader and the next writer
of the same bytes. Memory that was allocated when a loop began and not given back lives through it.

What exceeds the machine is allocated too, so that the whole need is known; `check` refuses it at the end.
"""

from __future__ import annotations

from xdsl.ir import Operation

from tilewright.diagnostics import UnsupportedError, location_of
from tilewright.uarch.base import Machine

ALIGNMENT = 128
"""Bytes: a row of banks, and what bulk copies ask for at least."""

SPARE = 2 << 10
"""Bytes kept from multi-buffers at first, for barriers and what rounding the base up may cost."""


class SharedMemoryError(UnsupportedError):
    """A kernel needs more shared memory than a workgroup has."""

    excess = 0
    """By how many bytes."""


class SharedMemory:
    """A first-fit allocator over one workgroup's shared memory, with a ledger of its peak."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.peak = 0
        """Bytes that the kernel needs."""
        self.alignment = 16
        """Bytes: what the base must be aligned to for the offsets to be aligned as they were asked for."""
        self._taken: dict[int, int] = {}
        self._for: dict[int, str] = {}
        self._refusal: SharedMemoryError | None = None
        """Of the first allocation that exceeds the machine."""

    def allocate(
        self, size: int, what: str, *, align: int = ALIGNMENT, op: Operation | None = None
    ) -> int:
        """Offset of `size` free bytes. Beyond the machine's limit `check` will raise, with the ledger as it is now."""
        at = 0
        for start in sorted(self._taken):
            if at + size <= start:
                break
            at = max(at, -(-(start + self._taken[start]) // align) * align)
        if align > ALIGNMENT:
            self.alignment = max(self.alignment, align)
        limit = self.machine.memories["smem"].size
        need = max(self.peak, at + size) + self._rounding
        if need > limit and self._refusal is None:
            parts = [f"{self._for[s]} {self._taken[s]}" for s in sorted(self._taken)]
            held = f" beside {', '.join(parts)}" if parts else ""
            self._refusal = SharedMemoryError(
                f"{what} needs {size} bytes of shared memory{held}: {need} bytes in all, and"
                f" {self.machine.name} has {limit} for a workgroup",
                location=location_of(op) if op is not None else None,
                hint="smaller tiles need less",
                rule=self.machine.limits["smem"].source,
            )
        self._taken[at] = max(size, 1)
        self._for[at] = what
        self.peak = max(self.peak, at + size)
        return at

    @property
    def bytes(self) -> int:
        """What a launch must ask for: the peak, and what rounding the base up may cost."""
        return self.peak + self._rounding

    @property
    def _rounding(self) -> int:
        """Bytes that rounding the base up may cost."""
        return self.alignment if self.alignment > 16 else 0

    def check(self) -> None:
        """Raises SharedMemoryError where the kernel needs more than a workgroup has."""
        if self._refusal is not None:
            self._refusal.excess = self.bytes - self.machine.memories["smem"].size
            raise self._refusal

    def release(self, offset: int) -> None:
        """Give back what `allocate` gave."""
        del self._taken[offset]
        del self._for[offset]
