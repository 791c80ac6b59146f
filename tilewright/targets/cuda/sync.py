"""Which accesses of memory need a barrier between them.

At workgroup level memory ops take effect in program order. Spread over threads, an op may touch what
another thread's part of an earlier op wrote, or reads: then all threads must meet in between. The
tracker keeps the accesses since the last barrier, in program order, and inserts a barrier before an
access that conflicts with one of them. A loop's body begins with the accesses of a whole body before
it, for it follows itself.

Memory is named by a `MemoryRange`: bytes of shared memory, or the root of an array (`memory_root`), where
arrays are apart as their facts say. Two accesses of one place by the same threads element by element
(`owner` equal: the same tile distributed in the same layout) do not conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tilewright.frozen import frozen

if TYPE_CHECKING:
    from tilewright.targets.cuda.distribute import Distributor


@frozen
class MemoryRange:
    """Where an access goes: bytes [first, last) of shared memory, or an array by its root."""

    first: int = 0
    last: int = 0
    root: object = None
    """None for shared memory that the compiler allocates."""
    owner: object = None
    """What tells who touches which element; equal owners touch their own elements only."""
    tile: object = None
    """The tile that is accessed."""


MayAlias = Callable[[object, object], bool]


@frozen
class RangeAccess:
    place: MemoryRange
    writes: bool
    sums: str = ""
    """The kind of an atomic whose result nobody uses: of two such of a kind either may come first."""
    other: bool = False
    """It is another iteration's, whose elements this iteration does not touch through the same tile."""


def conflict(a: RangeAccess, b: RangeAccess, may_alias: MayAlias) -> bool:
    """Must `b` wait until all threads have done `a`?"""
    if not (a.writes or b.writes):
        return False
    if (a.place.root is None) != (b.place.root is None):
        return False
    if a.sums and a.sums == b.sums:
        return False
    if a.place.root is None:
        return a.place.first < b.place.last and b.place.first < a.place.last
    if a.place.owner is not None and a.place == b.place:
        return False
    if (a.other or b.other) and a.place.tile is b.place.tile:
        return False
    return may_alias(a.place.root, b.place.root)


class Hazards:
    """Accesses since the last barrier. `may_alias` says whether two roots may share bytes."""

    def __init__(self) -> None:
        self.pending: set[RangeAccess] = set()
        self.any_shared = False
        """Has any shared memory perhaps been touched since the last barrier?"""
        self.may_alias: MayAlias = lambda a, b: True

    def read(self, d: Distributor, *places: MemoryRange, lasts: bool = True) -> None:
        """This op reads `places`: a barrier before all of it if need be. Where reading does not last, what is done with
        says so."""
        self._meet(d, *(found := [RangeAccess(place, False) for place in places]))
        self.pending.update(found if lasts else ())

    def write(self, d: Distributor, place: MemoryRange, sums: str = "") -> None:
        """This op writes `place`."""
        self._meet(d, access := RangeAccess(place, True, sums))
        self.pending.add(access)

    def written(self, place: MemoryRange) -> None:
        """What threads wrote to `place` some time ago is there, for each of them its own part."""
        self.pending.add(RangeAccess(place, True))

    def reuse(self, d: Distributor, place: MemoryRange) -> None:
        """Shared memory that the compiler allocated before becomes an array or slot, named on its own."""
        self._meet(d, RangeAccess(place, True))

    def is_free(self, place: MemoryRange) -> bool:
        """May shared memory be written without a barrier before?"""
        return not self._conflicts(RangeAccess(place, True))

    def _meet(self, d: Distributor, *accesses: RangeAccess) -> None:
        if any(map(self._conflicts, accesses)):
            d.barrier()

    def _conflicts(self, access: RangeAccess) -> bool:
        unknown = self.any_shared and access.place.root is None
        return unknown or any(conflict(a, access, self.may_alias) for a in self.pending)

    def met(self) -> None:
        """All threads have met."""
        self.pending = set()
        self.any_shared = False

    @contextmanager
    def loop(
        self, d: Distributor, body: Sequence[RangeAccess], *, shared: bool = True
    ) -> Generator[None]:
        """Inside: a loop's body, which accesses arrays as `body` says, and shared memory. For what stands before it all
        meet once, and not in every iteration."""
        if any(conflict(a, b, self.may_alias) for a in self.pending for b in body):
            d.barrier()
        before, any_before = set(self.pending), self.any_shared
        self.pending |= set(body)
        self.any_shared = self.any_shared or shared
        yield
        self.pending |= before
        self.any_shared = self.any_shared or any_before

    @contextmanager
    def branch(self, results: list[tuple[set[RangeAccess], bool]]) -> Generator[None]:
        """Inside: one side of a branch; what it leaves is added to `results`, the state restored."""
        before, any_before = set(self.pending), self.any_shared
        yield
        results.append((self.pending, self.any_shared))
        self.pending, self.any_shared = before, any_before

    def join(self, results: list[tuple[set[RangeAccess], bool]]) -> None:
        """After a branch: what either side left."""
        self.pending = set().union(*(p for p, _ in results))
        self.any_shared = any(a for _, a in results)
