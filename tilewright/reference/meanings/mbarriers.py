"""Meaning of the instructions by which threads wait for each other: mbarriers, named barriers, clusters, fences.

A phase of an mbarrier ends when all arrivals that it expects have come, and all bytes of copies. Who arrives releases
what it did to those who wait for the phase. Every access of an mbarrier also reads its bytes, so that one that was not
initialised before, as far as the thread knows, is found.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Operation, SSAValue

from tilewright.dialects.mach import InstrOp
from tilewright.dialects.stage.programs import cluster_size
from tilewright.reference.barriers import NamedBarrierState
from tilewright.reference.batch import WARP
from tilewright.reference.machine import Executor, Group
from tilewright.reference.pointers import RANK, addresses
from tilewright.reference.program import Segment, Successors, goes
from tilewright.reference.registry import meaning
from tilewright.reference.shadow import Kind
from tilewright.reference.site import Site
from tilewright.reference.values import Index, one_by_one
from tilewright.reference.waits import Wait

SIZE = np.dtype(np.int64)
"""An mbarrier's bytes."""


@dataclass(eq=False)
class MBarrier:
    """One mbarrier: phases completed, arrivals that a phase takes, and what the present one still lacks."""

    address: int
    count: int
    pending: int
    bytes: int = 0
    phase: int = 0
    visible: bool = False
    """Whether a fence has made its initialisation visible to the copy engine."""
    by: int = -1
    """The thread that initialised it."""

    @property
    def token(self) -> tuple[str, int, int]:
        """What the books call the present phase."""
        return "mbarrier", self.address, self.phase

    def settle(self) -> None:
        """The phase ends if it lacks nothing."""
        if self.pending == 0 and self.bytes == 0:
            self.phase, self.pending = self.phase + 1, self.count

    def __str__(self) -> str:
        return f"phase {self.phase}, {self.pending} of {self.count} arrivals and {self.bytes} bytes missing"


class MBarriers:
    """The mbarriers of a batch, by address."""

    def __init__(self, machine: Executor):
        self.machine = machine
        self.known: dict[int, MBarrier] = {}

    def each(self, site: Site, pointer: SSAValue) -> list[tuple[MBarrier, Index]]:
        """The mbarriers that threads name, with the positions of the threads in the group."""
        where, wanted = _places(site, pointer, site.group.get(pointer), "read")
        found: list[tuple[MBarrier, Index]] = []
        for address, rows in one_by_one(np.flatnonzero(wanted), where[wanted]):
            if (barrier := self.known.get(address)) is not None:
                found.append((barrier, rows))
                continue
            site.report("error", "barrier misuse", "there is no initialized mbarrier here")
        return found


def _places(site: Site, pointer: SSAValue, rows: Index, what: Kind) -> tuple[Index, Index]:
    """The address that each thread names, read or written, and whether it may."""
    where = np.broadcast_to(addresses(site, pointer.type, rows), (site.count,))
    wanted = site.accessible(np.ones(site.count, bool), where, where + SIZE.itemsize, writes=True)
    if site.checking:
        site.note_elements(where, wanted, SIZE.itemsize, what)
    return where, wanted


@meaning("nvptx.mbarrier.init")
def init(site: Site, op: InstrOp, pointer: Index, count: Index) -> None:
    where, wanted = _places(site, op.operands[0], pointer, "write")
    counts = np.broadcast_to(count, where.shape)
    known = site.machine.state(MBarriers).known
    for row in np.flatnonzero(wanted).tolist():
        address, number = int(where[row]), int(counts[row])
        known[address] = MBarrier(address, number, number, by=int(site.instances[row]))


@meaning(*(f"nvptx.mbarrier.{name}" for name in ("arrive", "arrive.expect_tx", "expect_tx")))
def arrive(site: Site, op: InstrOp, pointer: Index, number: Index) -> None:
    """`arrive.remote` too, whose pointer names any workgroup of the cluster."""
    words = op.instruction.split(".")
    site.machine.engine.stir()
    numbers = np.broadcast_to(number, (site.count,))
    for barrier, rows in site.machine.state(MBarriers).each(site, op.operands[0]):
        if "expect_tx" in words:
            barrier.bytes += int(numbers[rows].sum())
        if "arrive" in words:
            barrier.pending -= rows.size if "expect_tx" in words else int(numbers[rows].sum())
            if site.checking:
                parties = site.batch.parties[site.instances[rows]]
                site.machine.shadow.clocks.publish(parties, barrier.token)
        if barrier.pending < 0:
            what = f"more arrivals than a phase of the mbarrier takes, which is {barrier.count}"
            site.report("error", "barrier misuse", what)
            barrier.pending = 0
        barrier.settle()


@goes("nvptx.mbarrier.wait.parity", "nvptx.mbarrier.try_wait.parity")
def wait(group: Group, op: InstrOp, then: Segment) -> Successors:
    """A thread that tries waits too: it would try again."""
    group.machine.engine.stir()
    parities = np.broadcast_to(group.get(op.operands[1]), group.index.shape)
    for barrier, rows in group.machine.state(MBarriers).each(group.site, op.operands[0]):
        for odd, mine in one_by_one(rows, parities[rows]):
            _park(group, op, barrier, odd, group.index[mine], then)
    for result in op.results:
        group.set(result, np.ones(1, bool))
    return []


def _park(
    group: Group, op: InstrOp, barrier: MBarrier, parity: int, index: Index, then: Segment
) -> None:
    def learns() -> Iterable[Hashable]:
        return [("mbarrier", barrier.address, barrier.phase - 1)]

    def why() -> str:
        return f"waits for the end of a phase of parity {parity}: {barrier}"

    wait = Wait(index, op, lambda: barrier.phase & 1 != parity, then, why, learns)
    group.machine.waits.add(wait)


@meaning("nvptx.mapa")
def mapa(site: Site, op: InstrOp, pointer: Index, rank: Index) -> Index:
    """The rank stands above the bytes of the window."""
    return pointer + (rank.astype(np.int64) + 1 << RANK)


# Named barriers -----------------------------------------------------------------------------------


def _named(group: Group, op: InstrOp) -> NamedBarrierState:
    """PTX counts threads, the barrier warps."""
    number, count = (group.get(v).astype(np.int64) for v in op.operands)
    return NamedBarrierState(number, count // WARP)


@goes("nvptx.bar.arrive")
def bar_arrive(group: Group, op: InstrOp, then: Segment) -> Successors:
    released = group.machine.barriers.arrive(group, op, _named(group, op))
    return [(then, group.index), *released]


@goes("nvptx.bar.sync")
def bar_sync(group: Group, op: InstrOp, then: Segment) -> Successors:
    return _meet(group, op, _named(group, op), then)


@goes("nvptx.warp.sync")
def warp_sync(group: Group, op: InstrOp, then: Segment) -> Successors:
    """The threads of a warp meet as at a named barrier of their own."""
    warps = group.site.subgroup // WARP
    return _meet(group, op, NamedBarrierState(-1 - warps, np.ones_like(warps)), then)


def _meet(group: Group, op: InstrOp, barrier: NamedBarrierState, then: Segment) -> Successors:
    released = group.machine.barriers.arrive(group, op, barrier)
    return [*released, *group.machine.barriers.wait(group, op, barrier, then)]


# Clusters -----------------------------------------------------------------------------------------


class Clusters:
    """The barrier of every cluster of a batch: all threads that have not ended."""

    def __init__(self, machine: Executor):
        self.machine = machine
        size = cluster_size(machine.program.function)
        self.of = machine.batch.workgroup // size
        self.arrived = np.zeros(machine.batch.count, bool)
        self.entered = np.zeros(machine.batch.count, np.int64)
        """The phase in which each thread arrived last."""
        self.phase = dict.fromkeys(np.unique(self.of).tolist(), 0)

    def settle(self, cluster: int) -> int:
        """The phase of a cluster, which ends when nobody is missing."""
        members = self.of == cluster
        if (self.arrived | self.machine.ended)[members].all():
            self.arrived[members] = False
            self.phase[cluster] += 1
        return self.phase[cluster]


@meaning("nvptx.cluster.arrive")
def cluster_arrive(site: Site, op: InstrOp) -> None:
    clusters = site.machine.state(Clusters)
    clusters.arrived[site.instances] = True
    for cluster, index in one_by_one(site.instances, clusters.of[site.instances]):
        phase = clusters.entered[index] = clusters.phase[cluster]
        if site.checking and "relaxed" not in op.instruction:
            token = ("cluster", cluster, phase)
            site.machine.shadow.clocks.publish(site.batch.parties[index], token)


@goes("nvptx.cluster.wait")
def cluster_wait(group: Group, op: InstrOp, then: Segment) -> Successors:
    clusters = group.machine.state(Clusters)
    for cluster, index in one_by_one(group.index, clusters.of[group.index]):
        for phase, mine in one_by_one(index, clusters.entered[index]):
            _park_cluster(group.machine, op, cluster, phase, mine, then)
    return []


def _park_cluster(
    machine: Executor, op: InstrOp, cluster: int, phase: int, index: Index, then: Segment
) -> None:
    clusters = machine.state(Clusters)

    def why() -> str:
        missing = (clusters.of == cluster) & ~clusters.arrived & ~machine.ended
        return f"waits for {int(missing.sum())} threads of cluster {cluster}"

    def ready() -> bool:
        return clusters.settle(cluster) > phase

    machine.waits.add(Wait(index, op, ready, then, why, lambda: [("cluster", cluster, phase)]))


# Fences -------------------------------------------------------------------------------------------


@meaning("nvptx.fence.proxy.async")
def fence(site: Site, op: Operation) -> None:
    """What the threads wrote is seen by copies and products."""
    if site.checking:
        site.machine.shadow.clocks.fence(site.batch.parties[site.instances])


@meaning("nvptx.fence.mbarrier_init")
def fence_mbarriers(site: Site, op: Operation) -> None:
    """The copy engine, and the cluster, see the mbarriers that the threads initialised."""
    for barrier in site.machine.state(MBarriers).known.values():
        barrier.visible |= barrier.by in site.instances
