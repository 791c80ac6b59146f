"""Meaning of copies that run beside threads: each thread's own (cp.async), and boxes of arrays (TMA).

Until a copy is done its place in shared memory has all bits set. It is done when the run's schedule says (`engine.py`):
late is when somebody waits for it and nobody else can go on. In checking mode it is a party of its own (`agents.py`),
so that whoever touches what it reads or writes, and has not waited for it, races with it. That a product of a
warpgroup sees what cp.async wrote behind a fence only is not looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.ir import Operation

from tilewright.dialects.mach import InstrOp
from tilewright.dialects.stage.programs import cluster_size
from tilewright.reference import numerics
from tilewright.reference.batch import WARP
from tilewright.reference.machine import Executor, Group
from tilewright.reference.meanings.mach import check_alignment
from tilewright.reference.meanings.mbarriers import MBarrier, MBarriers
from tilewright.reference.pointers import TensorMapValue, addresses, inside_window, windows
from tilewright.reference.program import Segment, Successors, goes
from tilewright.reference.registry import meaning
from tilewright.reference.site import Site, first_of_equal
from tilewright.reference.values import Array, Index
from tilewright.reference.waits import Wait

WORD = np.dtype(np.uint32)
_LINE = 128
"""Bytes at whose multiples a box begins in shared memory."""

# Each thread's own --------------------------------------------------------------------------------


@dataclass(eq=False)
class OwnCopy:
    """What one op copies, a row for each thread."""

    instances: Index
    group: Index
    """The number of the group that each row is of."""
    land: Callable[[Array], None]
    """Does some rows."""
    done: Array

    def finish(self, rows: Array) -> None:
        rows = rows & ~self.done
        if rows.any():
            self.done |= rows
            self.land(rows)


class OwnCopies:
    """Copies that only their thread waits for."""

    def __init__(self, machine: Executor):
        self.committed = np.zeros(machine.batch.count, np.int64)
        """Groups that each thread has closed."""
        self.pending: list[OwnCopy] = []


@meaning("nvptx.cp.async")
def cp_async(site: Site, op: InstrOp, to: Index, source: Index, count: Index) -> None:
    """The first `count` bytes of the source, then zeros."""
    size = int(op.instruction.rsplit(".", 1)[1])
    machine, memory = site.machine, site.memory
    to, source, count = (np.broadcast_to(x, (site.count,)) for x in (to, source, count))
    check_alignment(site, to, np.ones(site.count, bool), size)
    check_alignment(site, source, count > 0, size)
    begin = addresses(site, op.operands[0].type, to)
    targets = begin[:, None] + WORD.itemsize * np.arange(size // WORD.itemsize)
    unit = int(np.gcd.reduce(count, initial=WORD.itemsize))
    places = source.astype(np.int64)[:, None] + unit * np.arange(size // unit)
    wanted = unit * np.arange(size // unit) < count[:, None]
    written = np.broadcast_to(
        site.accessible(np.ones(site.count, bool), begin, begin + size, writes=True)[:, None],
        targets.shape,
    )
    wanted = site.accessible(wanted, places, places + unit, writes=False)

    def data() -> Array:
        found = np.zeros(places.shape, f"u{unit}")
        found[wanted] = memory.read(places[wanted], found.dtype)
        return found

    if site.checking:
        parties = site.batch.parties[site.instances]
        own = machine.agents.own(site.instances)
        machine.shadow.clocks.follow(own, parties)
        _note(site, places, wanted, own, unit, "read")
        counted = np.array(written)
        counted[written] = first_of_equal(targets[written], data().view(WORD)[written])
        _note(site, targets, counted, own, WORD.itemsize, "write")
    memory.write(targets[written], np.full(int(written.sum()), 0xFFFFFFFF, WORD))

    def land(rows: Array) -> None:
        there = written & rows[:, None]
        memory.write(targets[there], data().view(WORD)[there])

    copies = machine.state(OwnCopies)
    group = copies.committed[site.instances]
    copy = OwnCopy(site.instances, group, land, np.zeros(site.count, bool))
    copies.pending.append(copy)
    if machine.engine.schedule != "late":  # who waits for nothing never sees it
        machine.engine.begin(lambda: copy.finish(np.ones_like(copy.done)))


def _note(
    site: Site,
    places: Index,
    wanted: Array,
    parties: Index,
    size: int,
    kind: Any,
    agent: bool = False,
) -> None:
    """Accesses by parties, a row for each."""
    who = np.broadcast_to(parties[:, None], places.shape)[wanted]
    if who.size:
        site.machine.shadow.note(site, places[wanted], who, size, kind, agent)


@meaning("nvptx.cp.async.commit_group")
def commit_own(site: Site, op: Operation) -> None:
    site.machine.state(OwnCopies).committed[site.instances] += 1
    if site.checking:
        site.machine.shadow.clocks.tick(site.machine.agents.own(site.instances))


@meaning("nvptx.cp.async.wait_group", "nvptx.cp.async.wait_all")
def wait_own(site: Site, op: InstrOp) -> None:
    """A thread waits for no other: its copies are done now."""
    copies = site.machine.state(OwnCopies)
    every = op.instruction.endswith("all")
    if every:
        commit_own(site, op)
    until = copies.committed.copy()
    until[site.instances] -= 0 if every else int(op.immediates().get("n", 0))
    waits = np.zeros(until.shape, bool)
    waits[site.instances] = True
    for copy in copies.pending:
        copy.finish(waits[copy.instances] & (copy.group < until[copy.instances]))
    copies.pending = [copy for copy in copies.pending if not copy.done.all()]
    if site.checking:
        # An agent's clock is one more than the groups that its thread has closed.
        own = site.machine.agents.own(site.instances)
        parties = site.batch.parties[site.instances]
        site.machine.shadow.clocks.learn(parties, own, until[site.instances])


@meaning("nvptx.cp.async.mbarrier.arrive")
def arrive_own(site: Site, op: InstrOp, pointer: Index) -> None:
    """When a thread's copies so far are done, one of the arrivals comes that a phase of the mbarrier takes."""
    machine, copies = site.machine, site.machine.state(OwnCopies)
    copies.pending = [copy for copy in copies.pending if not copy.done.all()]
    for barrier, rows in machine.state(MBarriers).each(site, op.operands[0]):
        mine = site.instances[rows]
        if site.checking:
            machine.shadow.clocks.publish(machine.agents.own(mine), barrier.token)

        def land(
            barrier: MBarrier = barrier, mine: Index = mine, begun: list[OwnCopy] = copies.pending
        ) -> None:
            for copy in begun:
                copy.finish(np.isin(copy.instances, mine))
            barrier.pending -= mine.size
            barrier.settle()

        machine.engine.begin(land)


# Boxes --------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Box:
    """A box of an array, element by element, and where it lies in shared memory."""

    map: TensorMapValue
    address: Index
    """Of each element in the array, where it has it."""
    inside: Array
    offset: Index
    """Of each element in the window of shared memory."""

    @property
    def size(self) -> int:
        return self.map.array.itemsize


def _box(site: Site, number: int, shared: int, begin: list[int]) -> _Box:
    """The box of a map at coordinates, the innermost first."""
    map = site.machine.context.maps[number]
    index = np.indices(map.box[::-1]).reshape(len(map.box), -1)[::-1]
    inside = np.ones(index.shape[1], bool)
    address = np.full(index.shape[1], map.array.__array_interface__["data"][0], np.int64)
    for along, first, (extent, stride) in zip(index, begin, map.sides, strict=True):
        place = along + first
        inside &= (place >= 0) & (place < extent)
        address += place * stride  # modulo 2^64
    check_alignment(site, np.array([shared]), np.ones(1, bool), _LINE)
    offset = inside_window(np.array(shared)) + np.arange(index.shape[1]) * map.array.itemsize
    chunks = max(16, map.swizzle) // 16
    offset ^= ((offset >> 7) & (chunks - 1)) << 4
    return _Box(map, address, inside, offset)


def _in_shared(box: _Box, window: int) -> tuple[Index, int]:
    """The words of shared memory that a box fills (its elements, where they are longer), and their size."""
    places = window + box.offset
    if box.size < WORD.itemsize:
        places = np.unique(places // WORD.itemsize) * WORD.itemsize
    return places, max(box.size, WORD.itemsize)


def _fits(site: Site, places: Index, size: int) -> bool:
    """Whether a box lies in shared memory; reports it where it does not."""
    wanted = np.ones(places.shape, bool)
    return bool(site.accessible(wanted, places, places + size, writes=True).all())


def _given(site: Site, operands: tuple[Index, ...]) -> Iterator[tuple[int, int, list[int]]]:
    """For each thread its place in the group and the batch, and the numbers that it gives."""
    if np.unique(site.instances // WARP).size < site.count:
        what = f"several threads of a warp do {site.op.name}: it would be done once for each"
        site.report("error", "not one thread", what)
    table = [np.broadcast_to(v, (site.count,)).tolist() for v in operands]
    for row, instance in enumerate(site.instances.tolist()):
        yield row, instance, [column[row] for column in table]


@meaning("nvptx.tma.load")
def tma_load(site: Site, op: InstrOp, *operands: Index) -> None:
    """`multicast`: to the same place of every workgroup of a mask, each of whose mbarriers gets the bytes."""
    words = op.instruction.split(".")
    known = site.machine.state(MBarriers)
    barriers = {row: b for b, rows in known.each(site, op.operands[1]) for row in rows.tolist()}
    for row, instance, (to, _, map, *rest) in _given(site, operands):
        if row not in barriers:
            continue
        rank = int(words[3][0])
        box = _box(site, map, to, rest[:rank])
        slot = int(site.batch.slots[instance])
        slots = [slot]
        if "multicast" in words:
            size = cluster_size(site.machine.program.function)
            slots = [slot - slot % size + n for n in range(size) if rest[rank] >> n & 1]
        bases = windows(site)
        targets: list[tuple[int, MBarrier]] = []
        for there in slots:
            barrier = known.known.get(barriers[row].address + int(bases[there] - bases[slot]))
            if barrier is None or not barrier.visible:
                what = "the copy engine does not see an mbarrier here: no fence follows its initialisation"
                site.report("error", "barrier misuse", what)
            if barrier is not None:
                targets.append((int(bases[there]), barrier))
        if targets:
            _load(site, instance, box, targets)


@meaning("nvptx.tma.leave")
def tma_leave(site: Site, op: InstrOp, *operands: Index) -> None:
    """As if a copy brought NaN (-1 of integers) to there."""
    machine, known = site.machine, site.machine.state(MBarriers)
    barriers = {row: b for b, rows in known.each(site, op.operands[1]) for row in rows.tolist()}
    for row, instance, (to, _, count) in _given(site, operands):
        if row not in barriers or not count:
            continue
        window = int(windows(site)[int(site.batch.slots[instance])])
        first = window + int(inside_window(np.array(to)))
        places = np.arange(first, first + count, WORD.itemsize)
        if not _fits(site, places, WORD.itemsize):
            continue
        party = np.array(
            [machine.agents.start(instance, ("mbarrier", barriers[row].address), "a copy")]
        )
        if site.checking:
            every = np.ones((1, places.size), bool)
            _note(site, places[None], every, party, WORD.itemsize, "write", True)
        machine.agents.publish(int(party[0]), barriers[row].token)
        site.memory.write(places, np.full(places.size, -1, "i4"))


def _load(site: Site, instance: int, box: _Box, targets: list[tuple[int, MBarrier]]) -> None:
    machine, memory = site.machine, site.memory
    queue = "mbarrier", targets[0][1].address
    party = np.array([machine.agents.start(instance, queue, "a copy")])
    source = box.address[box.inside]
    if site.checking:
        _note(site, source[None], np.ones((1, source.size), bool), party, box.size, "read", True)
    for window, barrier in targets:
        places, size = _in_shared(box, window)
        if not _fits(site, places, size):
            return
        if site.checking:
            _note(site, places[None], np.ones((1, places.size), bool), party, size, "write", True)
        machine.agents.publish(int(party[0]), barrier.token)
        memory.write(places, np.full(places.size, -1, f"i{size}"))

    def land() -> None:
        data = np.zeros(box.offset.shape, f"u{box.size}")
        data[box.inside] = memory.read(source, data.dtype)
        if box.map.element == "tf32":
            data = numerics.round_tf32(data.view(np.float32))
        for window, barrier in targets:
            memory.write(window + box.offset, data)
            barrier.bytes -= data.nbytes
            barrier.settle()

    machine.engine.begin(land)


# Stores of boxes ----------------------------------------------------------------------------------

_REDUCTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@dataclass(eq=False)
class Store:
    """A box on its way to an array."""

    read: bool = False
    """Whether it has left shared memory."""
    done: bool = False


class Stores:
    """The stores of every thread, by group; the last group is open."""

    def __init__(self, machine: Executor):
        self.groups: dict[int, list[list[Store]]] = defaultdict(lambda: [[]])


@meaning("nvptx.tma.store", "nvptx.tma.reduce")
def tma_store(site: Site, op: InstrOp, *operands: Index) -> None:
    words = op.instruction.split(".")
    combine = _REDUCTIONS[words[3]] if words[2] == "reduce" else None
    machine = site.machine
    for _, instance, (source, map, *rest) in _given(site, operands):
        count = len(machine.context.maps[map].box)
        box = _box(site, map, source, rest[:count])
        groups = machine.state(Stores).groups[instance]
        window = int(windows(site)[site.batch.slots[instance]])
        places, size = _in_shared(box, window)
        if not _fits(site, places, size):
            continue
        party = np.array([machine.agents.start(instance, ("stores", instance), "a copy")])
        to = box.address[box.inside]
        if site.checking:
            kind = "write" if combine is None else "atomic"
            _note(site, places[None], np.ones((1, places.size), bool), party, size, "read", True)
            _note(site, to[None], np.ones((1, to.size), bool), party, box.size, kind, True)
        machine.agents.publish(int(party[0]), ("stores", instance, len(groups)))
        store = Store()
        groups[-1].append(store)
        _begin_store(machine, box, window, to, store, combine)


def _begin_store(
    machine: Executor, box: _Box, window: int, to: Index, store: Store, combine: Any
) -> None:
    """Reads shared memory, then writes the array, whenever the schedule has it."""
    memory, dtype = machine.memory, box.map.array.dtype

    def read() -> None:
        data = memory.read((window + box.offset)[box.inside], dtype)
        store.read = True
        machine.engine.begin(lambda: write(data))

    def write(data: Array) -> None:
        if combine is not None:
            with np.errstate(all="ignore"):
                data = combine(memory.read(to, dtype), data).astype(dtype)
        memory.write(to, data)
        store.done = True

    machine.engine.begin(read)


@meaning("nvptx.bulk.commit_group")
def commit_stores(site: Site, op: Operation) -> None:
    for instance in site.instances.tolist():
        site.machine.state(Stores).groups[instance].append([])


@goes("nvptx.bulk.wait_group")
def wait_stores(group: Group, op: InstrOp, then: Segment) -> Successors:
    """`read`: until the groups have left shared memory."""
    read, pending = op.instruction.endswith("read"), int(op.immediates().get("n", 0))
    for instance in group.index.tolist():
        _park(group.machine, op, instance, pending, read, then)
    return []


def _park(
    machine: Executor, op: InstrOp, instance: int, pending: int, read: bool, then: Segment
) -> None:
    groups = machine.state(Stores).groups[instance]
    until = max(0, len(groups) - 1 - pending)

    def left() -> int:
        return sum(not (s.read if read else s.done) for group in groups[:until] for s in group)

    def why() -> str:
        return f"waits for {left()} copies out of shared memory"

    index = np.array([instance], np.int64)
    learns = [("stores", instance, number + 1) for number in range(until)]
    machine.waits.add(Wait(index, op, lambda: not left(), then, why, lambda: learns))
