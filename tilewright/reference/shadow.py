"""Checking mode's books: who accessed which element last, and which elements were ever written.

A *party* is whoever runs in program order: a workgroup at workgroup level, a subgroup at subgroup
level and at lane level, where the lanes of a subgroup run in lockstep as one hardware thread: a
collective block access is one access of the subgroup, and what a lane wrote another may read later on.
(Lanes that went separate ways are taken as ordered too; that lanes write different values to an
element in one op is seen by `Site.check_lanes_agree`.) Parties are unordered unless a barrier or an
atomic orders them; `clocks.py` keeps what each party knows of the others. Two accesses to an element race when they
are by different parties, one of them writes, not both are atomic, and neither party knows of the
other's access.

Of the parties that read an element at once two are kept, which is exact as long as nothing orders
some of them and not others.

At thread level every thread is a party, and so is each piece of work that runs beside them (a copy, a product: an
*agent*). What an agent reads of what a thread wrote, a fence of that thread must have made visible to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from xdsl.ir import Operation

from tilewright.diagnostics import location_of
from tilewright.frozen import field, record
from tilewright.reference.clocks import Clocks
from tilewright.reference.memory import Allocation, AllocationMap
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


@record
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


@record
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

    def __init__(self, memory: AllocationMap):
        self.memory = memory
        self.clocks = Clocks()
        self._books: dict[int, _Book] = {}
        self._ops: list[Operation] = []
        self._op_numbers: dict[Operation, int] = {}

    def order_all(self, team: int = 1) -> None:
        """A kernel starts or ends: everything before is ordered before everything after.

        `team`: parties that may meet at its barriers.
        """
        for book in self._books.values():
            book.histories.clear()
        self.clocks = Clocks(team)

    def traffic(self) -> tuple[int, int]:
        """Bytes loaded and stored in memory that all workgroups see: all, and each once for either."""
        books = self._books.values()
        once = (b.allocation.granule * int(t.sum()) for b in books for t in b.touched.values())
        return sum(b.moved for b in books), sum(once)

    # Accesses.
    def note(
        self,
        site: Site,
        address: Index,
        parties: Index,
        itemsize: int,
        kind: Kind,
        agent: bool = False,
    ) -> None:
        """Parties are about to access elements, each its own; races and uninitialised reads are reported.

        `agent`: the parties are work that runs beside the program's threads.
        """
        for allocation, mine, who in self._by_allocation(address, parties, itemsize):
            book = self._book(allocation)
            places = self._granules(book, mine, itemsize)
            who = np.repeat(who, places.size // who.size)
            if not allocation.shared:
                book.count_access(kind, places, mine.size * itemsize)
            if book.written is not None:
                self._initialised(site, book, places, kind)
            for _, rows in self.clocks.by_team(who):
                self._race(site, book, places[rows], who[rows], kind, agent)
                self._record(site, book, places[rows], who[rows], kind)
            if kind == "atomic" and not agent:
                self._signal(book, places, who)

    def written(self, address: Index, itemsize: int) -> None:
        """Elements have what they would be given."""
        if address.size:
            for allocation, mine, _ in self._by_allocation(address, address, itemsize):
                if (known := self._book(allocation).written) is not None:
                    known[self._granules(self._book(allocation), mine, itemsize)] = True

    def _signal(self, book: _Book, places: Index, who: Index) -> None:
        """An atomic tells others what its party did before, unless it is one of many that add up data."""
        _, inverse, counts = np.unique(who, return_inverse=True, return_counts=True)
        few = counts[inverse.reshape(-1)] <= _FLAG_ELEMENTS
        for place, party in zip(places[few].tolist(), who[few], strict=True):
            token = (book.allocation.start, place)
            self.clocks.publish(party[None], token)
            self.clocks.acquire(party[None], token)

    def _by_allocation(
        self, address: Index, parties: Index, itemsize: int
    ) -> Iterator[tuple[Allocation, Index, Index]]:
        """The addresses that lie in each allocation, and whose they are; mostly all lie in one."""
        ends = address.min(keepdims=True), address.max(keepdims=True) + itemsize
        if (number := int(self.memory.locate(*ends)[0])) >= 0:
            yield self.memory.allocations[number], address, parties
            return
        numbers = self.memory.locate(address, address + itemsize)
        for number in np.unique(numbers[numbers >= 0]).tolist():
            mine = numbers == number
            yield self.memory.allocations[number], address[mine], parties[mine]

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

    def _race(
        self, site: Site, book: _Book, places: Index, who: Index, kind: Kind, agent: bool
    ) -> None:
        """Reports an access to the same elements that is not ordered with this one; `who` is of one team."""
        for earlier in _CONFLICTS[kind]:
            if earlier not in book.histories:
                continue
            history = book.history(earlier)
            for slot in range(history.party.shape[0]):
                others, clocks = history.party[slot, places], history.clock[slot, places]
                open = (others >= 0) & (others != who)
                if not open.any():
                    continue
                seen = self.clocks.known(who, others, clocks)
                hidden = np.zeros_like(open)
                if agent and kind == "read" and earlier == "write":
                    by_threads = open & seen & ~site.batch.is_agent(others)
                    hidden = by_threads & ~self.clocks.fenced(others, clocks)
                open &= ~seen
                if (wrong := open | hidden).any():
                    at = int(np.flatnonzero(wrong)[0])
                    before = self._ops[int(history.op[slot, places[at]])]
                    why = "no fence made it visible" if hidden[at] else "nothing orders the two"
                    pair = int(who[at]), int(others[at])
                    self._report_race(site, book, int(places[at]), pair, kind, earlier, before, why)
                    return

    def end(self, site: Site, parties: Index, address: int) -> None:
        """The parties of a workgroup end, and its memory at an address goes: nobody else may be at it still."""
        self.clocks.synchronise(parties)
        number = int(self.memory.locate(np.array([address]), np.array([address]))[0])
        book = self._book(self.memory.allocations[number])
        places = np.arange(book.count)
        for kind, history in book.histories.items():
            for others, clocks, ops in zip(history.party, history.clock, history.op, strict=True):
                open = (others >= 0) & ~np.isin(others, parties)
                open &= ~self.clocks.known(np.full(places.shape, parties[0]), others, clocks)
                if open.any():
                    at = int(np.flatnonzero(open)[0])
                    site.op = self._ops[int(ops[at])]
                    name = site.machine.name_of_party
                    site.report(
                        "error",
                        "race",
                        f"race: {name(int(others[at]))} {_DOES[kind]} element {at} of {book.allocation.name}, whose "
                        "workgroup may have ended: nothing orders the two",
                    )

    @staticmethod
    def _report_race(
        site: Site,
        book: _Book,
        place: int,
        pair: tuple[int, int],
        kind: Kind,
        earlier: Kind,
        before: Operation,
        why: str = "nothing orders the two",
    ) -> None:
        party, other = map(site.machine.name_of_party, pair)
        where = location_of(before)
        by = f" ({before.name} at {where})" if where is not None else f" ({before.name})"
        site.report(
            "error",
            "race",
            f"race: {party} {_DOES[kind]} element {place} of {book.allocation.name}, which "
            f"{other} {_DONE[earlier]}{by}, and {why}",
        )

    def _record(self, site: Site, book: _Book, places: Index, who: Index, kind: Kind) -> None:
        history, clocks, op = book.history(kind), self.clocks.own(who), self._number(site.op)

        def enter(slot: int, mine: Any) -> None:
            history.party[slot, places[mine]] = who[mine]
            history.clock[slot, places[mine]] = clocks[mine]
            history.op[slot, places[mine]] = op

        if history.party.shape[0] == 1:
            enter(0, slice(None))
            twice = np.flatnonzero(history.party[0, places] != who)
            if twice.size:
                at = int(twice[0])
                pair = int(history.party[0, places[at]]), int(who[at])
                self._report_race(site, book, int(places[at]), pair, kind, kind, site.op)
            return
        # The first slot is replaced when it is empty, one's own, or known; else the second.
        others = history.party[0, places]
        free = (others < 0) | (others == who)
        if not free.all():
            free |= self.clocks.known(who, others, history.clock[0, places])
        enter(0, free)
        # Of several at once the first slot has the last.
        enter(1, history.party[0, places] != who)
