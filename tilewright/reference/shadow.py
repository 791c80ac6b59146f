"""Checking mode's books: who accessed which element last, and which elements were ever written.

A *party* is whoever runs in program order: a workgroup at workgroup level, a subgroup at subgroup
level and at lane level, where the lanes of a subgroup run in lockstep as one hardware thread: a
collective block access is one access of the subgroup, and what a lane wrote another may read later on.
(Lanes that went separate ways are taken as ordered too; that lanes write different values to an
element in one op is seen by `Site.check_lanes_agree`.) Parties are unordered unless a barrier or an
atomic orders them; that is kept as a vector clock per party. Two accesses to an element race when they
are by different parties, one of them writes, not both are atomic, and neither party knows of the
other's access.

Of the parties that read an element at once two are kept, which is exact as long as nothing orders
some of them and not others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from xdsl.ir import Operation

from tilewright.diagnostics import location_of
from tilewright.reference.memory import Allocation, Memory
from tilewright.reference.values import Array, Index

if TYPE_CHECKING:
    from tilewright.reference.machine import Site

Kind = Literal["read", "write", "atomic"]
_DONE = {"read": "read", "write": "wrote", "atomic": "updated atomically"}
_DOES = {"read": "reads", "write": "writes", "atomic": "updates atomically"}
_CONFLICTS: dict[Kind, tuple[Kind, ...]] = {
    "read": ("write", "atomic"),
    "write": ("write", "read", "atomic"),
    "atomic": ("write", "read"),
}
_FLAG_ELEMENTS = 1024
"""Atomics on more elements at once accumulate data; they are no signals to other parties."""


@dataclass
class _History:
    """For one kind of access: up to two parties per element, when, and by which op."""

    party: Array
    clock: Array
    op: Array

    @staticmethod
    def empty(slots: int, count: int) -> _History:
        shape = (slots, count)
        return _History(
            np.full(shape, -1, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        )


@dataclass
class _Book:
    """What is known of one allocation, per granule."""

    allocation: Allocation
    written: Array | None
    histories: dict[Kind, _History] = field(default_factory=dict[Kind, _History])
    moved: int = 0
    """Bytes that were loaded and stored."""
    touched: dict[str, Array] = field(default_factory=dict[str, Array])
    """Which granules were ever read, and which written."""

    def count_access(self, kind: Kind, places: Index, size: int) -> None:
        """Counts an access of ``size`` bytes at granules; an atomic loads and stores."""
        for way in ("read", "write"):
            if kind in (way, "atomic"):
                self.moved += size
                self.touched.setdefault(way, np.zeros(self.count, bool))[places] = True

    @property
    def count(self) -> int:
        a = self.allocation
        return -(-(a.end - a.start) // a.granule)

    def history(self, kind: Kind) -> _History:
        if kind not in self.histories:
            self.histories[kind] = _History.empty(1 if kind == "write" else 2, self.count)
        return self.histories[kind]


class Shadow:
    """The books of one run."""

    def __init__(self, memory: Memory):
        self.memory = memory
        self._books: dict[int, _Book] = {}
        self._clocks: dict[int, dict[int, int]] = {}
        self._signals: dict[Any, dict[int, int]] = {}
        self._ops: list[Operation] = []
        self._op_numbers: dict[Operation, int] = {}

    def order_all(self) -> None:
        """A kernel starts or ends: everything before is ordered before everything after."""
        for book in self._books.values():
            book.histories.clear()
        self._clocks.clear()
        self._signals.clear()

    def traffic(self) -> tuple[int, int]:
        """Bytes loaded and stored in memory that all workgroups see: all, and each once for either."""
        books = self._books.values()
        once = (b.allocation.granule * int(t.sum()) for b in books for t in b.touched.values())
        return sum(b.moved for b in books), sum(once)

    # Accesses.
    def note(self, site: Site, address: Index, party: int, itemsize: int, kind: Kind) -> None:
        """One party is about to access elements; races and uninitialised reads are reported."""
        for allocation, mine in self._by_allocation(address, itemsize):
            book = self._book(allocation)
            places = self._granules(book, mine, itemsize)
            if not allocation.shared:
                book.count_access(kind, places, mine.size * itemsize)
            if book.written is not None:
                self._initialised(site, book, places, kind)
            self._race(site, book, places, party, kind)
            self._record(book, places, party, kind, self._number(site.op))
            if kind == "atomic" and places.size <= _FLAG_ELEMENTS:
                for place in places.tolist():
                    self.publish(party, (book.allocation.start, place))
                    self.acquire(party, (book.allocation.start, place))

    def _by_allocation(self, address: Index, itemsize: int) -> Iterator[tuple[Allocation, Index]]:
        """The addresses that lie in each allocation; mostly all lie in one."""
        ends = address.min(keepdims=True), address.max(keepdims=True) + itemsize
        if (number := int(self.memory.locate(*ends)[0])) >= 0:
            yield self.memory.allocations[number], address
            return
        numbers = self.memory.locate(address, address + itemsize)
        for number in np.unique(numbers[numbers >= 0]).tolist():
            yield self.memory.allocations[number], address[numbers == number]

    def _book(self, allocation: Allocation) -> _Book:
        book = self._books.get(allocation.start)
        if book is None or book.allocation is not allocation:
            book = _Book(allocation, None)
            if not allocation.initialised:
                book.written = np.zeros(book.count, bool)
            self._books[allocation.start] = book
        return book

    @staticmethod
    def _granules(book: _Book, address: Index, itemsize: int) -> Index:
        granule = book.allocation.granule
        first = (address - book.allocation.start) // granule
        if itemsize <= granule:
            return first
        return (first[:, None] + np.arange(itemsize // granule)).ravel()

    def _number(self, op: Operation) -> int:
        if op not in self._op_numbers:
            self._op_numbers[op] = len(self._ops)
            self._ops.append(op)
        return self._op_numbers[op]

    @staticmethod
    def _initialised(site: Site, book: _Book, places: Index, kind: Kind) -> None:
        assert book.written is not None
        if kind != "write":
            unknown = ~book.written[places]
            if unknown.any():
                what = "SLM" if book.allocation.shared else "memory"
                element = int(places[unknown][0])
                site.report(
                    "error",
                    "uninitialised",
                    f"{site.op.name} reads uninitialised {what}: element {element} of "
                    f"{book.allocation.name} was never written",
                )
        if kind != "read":
            book.written[places] = True

    def _race(self, site: Site, book: _Book, places: Index, party: int, kind: Kind) -> None:
        for earlier in _CONFLICTS[kind]:
            if earlier not in book.histories:
                continue
            history = book.history(earlier)
            for slot in range(history.party.shape[0]):
                others = history.party[slot, places]
                open = (others >= 0) & (others != party)
                if open.any():
                    open &= ~self._known(party, others, history.clock[slot, places])
                if open.any():
                    at = int(np.flatnonzero(open)[0])
                    before = self._ops[int(history.op[slot, places[at]])]
                    self._report_race(
                        site, book, int(places[at]), party, kind, int(others[at]), earlier, before
                    )
                    return

    @staticmethod
    def _report_race(
        site: Site,
        book: _Book,
        place: int,
        party: int,
        kind: Kind,
        other: int,
        earlier: Kind,
        before: Operation,
    ) -> None:
        name = site.machine.name_of_party
        where = location_of(before)
        by = f" ({before.name} at {where})" if where is not None else f" ({before.name})"
        site.report(
            "error",
            "race",
            f"race: {name(party)} {_DOES[kind]} element {place} of {book.allocation.name}, which "
            f"{name(other)} {_DONE[earlier]}{by}, and nothing orders the two",
        )

    def _record(self, book: _Book, places: Index, party: int, kind: Kind, op: int) -> None:
        history = book.history(kind)
        slot: Any = 0
        if history.party.shape[0] == 2:
            # The first slot is replaced when it is empty, one's own, or known; else the second.
            others = history.party[0, places]
            free = (others < 0) | (others == party)
            if not free.all():
                free |= self._known(party, others, history.clock[0, places])
            slot = np.where(free, 0, 1)
        history.party[slot, places] = party
        history.clock[slot, places] = self._own(party)
        history.op[slot, places] = op

    # Order. A party's clock counts its releases; a missing entry means "knows nothing".
    def _own(self, party: int) -> int:
        return self._clocks.get(party, {}).get(party, 1)

    def _known(self, party: int, others: Index, clocks: Index) -> Array:
        """Which accesses by others, made at their clocks, happened before what `party` does now."""
        mine = self._clocks.get(party)
        if not mine:
            return np.zeros(others.shape, bool)
        known = np.zeros(max(int(others.max(initial=0)), max(mine)) + 1, np.int64)
        known[list(mine)] = list(mine.values())
        return clocks <= np.where(others >= 0, known[others], 0)

    def synchronise(self, parties: list[int]) -> None:
        """A barrier: everybody knows what everybody did."""
        if len(parties) < 2:
            return
        token = ("barrier", *parties)
        self._signals.pop(token, None)
        for party in parties:
            self.publish(party, token)
        for party in parties:
            self.acquire(party, token)

    def publish(self, party: int, token: Any) -> None:
        """Whoever acquires the token later knows what the party did until now."""
        clock = self._clocks.setdefault(party, {party: 1})
        _join(self._signals.setdefault(token, {}), clock)
        self._clocks[party] = {**clock, party: clock[party] + 1}

    def acquire(self, party: int, token: Any) -> None:
        """The party knows what was published under the token."""
        _join(self._clocks.setdefault(party, {party: 1}), self._signals.get(token, {}))


def _join(into: dict[int, int], other: dict[int, int]) -> None:
    for party, clock in other.items():
        into[party] = max(into.get(party, 0), clock)
