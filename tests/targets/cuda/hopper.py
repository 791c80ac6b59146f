"""Runs the last stage of sm_90a code in numpy: roles, mbarriers, the copy engine, products in flight.

Every warpgroup of a workgroup is a `Warpgroup`, a thread of Python of its own; one runs at a time (`Crew`) and hands
over where it must wait. What is asynchronous is done as late as possible (all others wait), at once, or at random:
`schedule`. Until then a copy's place in shared memory is NaN (all bits set), and so are the sums of a product. A
deadlock names who waits for what. Threads of a warpgroup go in step: that they touch the same bytes of shared memory
between two barriers is a `Race`. Workgroups run one after the other, those of a cluster together; copies to several
workgroups at once (multicast) are not modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.ir import Operation, SSAValue

from tests.targets.cuda.crew import Barrier, Crew
from tests.targets.cuda.threads import (
    ThreadsExecutable,
    ThreadsTarget,
    entry_of,
    on_device,
    parameter,
    run_threads,
)
from tests.targets.cuda.threads_memory import Race
from tests.targets.cuda.threads_step import Threads
from tilewright.codegen.instructions import table
from tilewright.reference.numerics import round_tf32
from tilewright.targets.cuda.executable import launch_grid
from tilewright.targets.cuda.lowered import (
    Lowered,
    TensorMapOf,
    plan_of,
)

Array = Any
SHARED = 2048
"""Where shared memory begins: descriptors hold 18 bits of an address."""
WINDOW = 1 << 18
"""Each workgroup of a cluster has its shared memory in a window of its own."""
GLOBAL = 8 * WINDOW
CLUSTER = 1 << 40
"""Addresses of any workgroup's shared memory begin here, window after window."""
GROUP = 128
MULTIPROCESSORS = 2
"""Few, so that persistent workgroups take several programs."""


class Warpgroup(Threads):
    """Threads `first` to `first + 127` of the workgroup of this rank in its cluster."""

    def __init__(
        self, lowered: Lowered, crew: Crew, grid: Any, program: Any, first: int, rank: int
    ):
        super().__init__(lowered, crew.memory, grid, program)
        self.crew, self.first, self.me, self.rank = crew, first, crew.join(self), rank
        self.window = slice(rank * WINDOW, (rank + 1) * WINDOW)
        self.interval = 0
        """Barriers passed: they order what threads of a warpgroup do to shared memory."""
        self.wrote_at, self.read_at = (np.full((WINDOW, 2), -1) for _ in range(2))
        """When each byte was written and read by this warpgroup, and by which thread (-2: by several)."""
        self.n = min(GROUP, lowered.threads - first)
        self.site.count = self.n
        self.active = np.ones(self.n, bool)
        self.flying: list[list[Callable[[], None]]] = [[]]
        """Products not done yet, by group; the last is open."""
        self.sums: dict[int, list[Callable[[], None]]] = {}
        """By the identity of an array that a product will fill: its group."""
        self.stores: list[list[list[Callable[[bool], None]]]] = [[[]] for _ in range(self.n)]

    def end(self) -> None:
        self._finish(0)
        for store in (s for groups in self.stores for group in groups for s in group):
            store(False)
        self.crew.cluster.leave(self.n)

    # Memory: validity, and what the copy engine may see -------------------------------------------

    def _place(self, address: Array) -> Array:
        """Addresses as those of `Memory`."""
        address = np.where(address < WINDOW, address + self.window.start, address)
        return np.where(address >= CLUSTER, address - CLUSTER, address)

    def _span(self, address: Array, size: int, on: Array) -> Array:
        spots = self._place(address)[:, None] + np.arange(size)
        low = spots[on]
        if low.size:
            inside = low % WINDOW
            shared = (inside >= SHARED) & (inside < SHARED + self.lowered.shared_bytes)
            known = np.where(low < GLOBAL, shared, low < len(self.memory.bytes))
            assert known.all(), f"a wild access at {low[~known].flat[0]:#x}"
        return spots

    def load(self, address: Array, size: int, on: Array) -> Array:
        spots = self._span(address, size, on)
        out = np.zeros((self.n, size), np.uint8)
        if on.any():
            bad = ~self.memory.valid[spots[on]]
            assert not bad.any(), f"reads {spots[on][bad].flat[0]:#x}, which nothing wrote"
            out[on] = self.memory.bytes[spots[on]]
            self._note(spots[on], spots[on] * 0 + self._threads()[on][:, None], False)
        return out

    def _threads(self) -> Array:
        return np.arange(self.n) + self.first

    def _note(self, spots: Array, who: Array, writes: bool) -> None:
        """Shared memory between two barriers: what one thread of a warpgroup writes no other may touch."""
        near = (spots >= self.window.start) & (spots < self.window.stop)
        at, who = spots[near] - self.window.start, who[near]
        written, read = self.wrote_at, self.read_at
        clash = (written[at, 0] == self.interval) & (written[at, 1] != who)
        if writes:
            clash |= (read[at, 0] == self.interval) & (read[at, 1] != who)
        if clash.any():
            raise Race(f"two threads at {at[clash].flat[0]:#x} without a barrier between them")
        mine = written if writes else read
        mixed = (mine[at, 0] == self.interval) & (mine[at, 1] != who)
        mine[at, 0], mine[at, 1] = self.interval, np.where(mixed, -2, who)

    def store(self, address: Array, data: Array, on: Array) -> None:
        m, spots = self.memory, self._span(address, data.shape[1], on)
        if not on.any():
            return
        who = np.broadcast_to(self._threads()[:, None], spots.shape)[on]
        self._note(spots[on], who, True)
        m.bytes[spots[on]] = data[on]
        if not np.array_equal(m.bytes[spots[on]], data[on]):
            raise Race("two threads of one access write different values to one place")
        m.valid[spots[on]] = True
        m.writer[spots[on]] = who  # until a fence: the copy engine does not see it
        m.wrote[spots[on]] = 1

    def _seen_by_engine(self, spots: Array) -> Array:
        m = self.memory
        assert m.valid[spots].all(), "the copy engine reads what nothing wrote"
        assert not (m.wrote[spots] == 1).any(), "the copy engine reads what no fence made visible"
        return m.bytes[spots]

    def op_mach_shared_base(self, op: Operation) -> None:
        self.values[op.results[0]] = np.array([SHARED], np.int64)

    def op_gpu_thread_id(self, op: Operation) -> None:
        self.values[op.results[0]] = np.arange(self.first, self.first + self.n, dtype=np.int64)

    def op_gpu_barrier(self, op: Operation) -> None:
        self._meet(0, self.lowered.threads)

    # Instructions ---------------------------------------------------------------------------------

    def op_mach_instr(self, op: Any) -> None:
        name: str = op.instruction.data.removeprefix("nvptx.")
        head = name.split(".")[0]
        method = getattr(self, f"at_{head}", None)
        if method is not None:
            method(name, op)
        elif name.startswith("stmatrix"):
            self._stmatrix(op)
        else:
            super().op_mach_instr(op)

    def at_setmaxnreg(self, name: str, op: Any) -> None:
        pass

    at_griddepcontrol = at_prefetch = at_setmaxnreg

    def at_fence(self, name: str, op: Any) -> None:
        if name.startswith("fence.proxy.async"):
            m = self.memory
            mine = np.flatnonzero(self.active) + self.first
            wrote, writer = m.wrote[self.window], m.writer[self.window]
            wrote[(wrote == 1) & np.isin(writer, mine)] = -1

    def at_warp(self, name: str, op: Any) -> None:
        self.interval += 1

    def at_bar(self, name: str, op: Any) -> None:
        number, count = (self._uniform(v) for v in op.operands)
        assert self.active.all(), "a barrier that not all of a warpgroup reach"
        if name == "bar.arrive":
            at = self.rank, number
            self.crew.named[at] = self.crew.named.get(at, 0) + self.n
        else:
            self._meet(number, count)

    def _meet(self, number: int, count: int) -> None:
        named, at = self.crew.named, (self.rank, number)
        before = named.get(at, 0)
        goal = (before // count + 1) * count
        named[at] = before + self.n
        self.crew.wait(self.me, lambda: named[at] >= goal, f"is at barrier {number} of {count}")
        self.interval += 1

    def at_cluster(self, name: str, op: Any) -> None:
        meeting = self.crew.cluster
        if name.startswith("cluster.arrive"):
            self.phase = meeting.phase
            meeting.arrive(int(self.active.sum()))
        else:
            phase = self.phase
            self.crew.wait(self.me, lambda: meeting.phase > phase, "is at the cluster's barrier")
            self.interval += 1

    def at_mapa(self, name: str, op: Any) -> None:
        pointer, rank = (self.rows(v).astype(np.int64) for v in op.operands)
        self.values[op.results[0]] = CLUSTER + rank * WINDOW + pointer

    def _barrier(self, v: SSAValue) -> Barrier:
        at = int(self._place(np.array(self._uniform(v))))
        assert at in self.crew.barriers, f"no mbarrier at {at:#x}"
        return self.crew.barriers[at]

    def at_mbarrier(self, name: str, op: Any) -> None:
        assert "remote" not in name, name
        if name == "mbarrier.init":
            count = self._uniform(op.operands[1])
            at = int(self._place(np.array(self._uniform(op.operands[0]))))
            self.crew.barriers[at] = Barrier(count, count)
            return
        barrier = self._barrier(op.operands[0])
        if "wait" in name:
            parity = self._uniform(op.operands[1])
            why = f"waits for an mbarrier at phase {barrier.phase} with {barrier.pending} arrivals missing"
            self.crew.wait(self.me, lambda: barrier.phase & 1 != parity, why)
            for result in op.results:
                self.values[result] = np.array([True])
            return
        number, threads = self._uniform(op.operands[1]), int(self.active.sum())
        if "expect_tx" in name:
            barrier.bytes += number * threads
        if "arrive" in name:
            barrier.pending -= threads * (1 if "expect_tx" in name else number)
            assert barrier.pending >= 0, "more arrivals than a phase takes"
        barrier.settle()
        if self.crew.schedule == "random":
            self.crew.wait(self.me, lambda: True, "goes on")

    # The copy engine ------------------------------------------------------------------------------

    def _box(self, op: Any, at: int) -> tuple[Any, Array, Array, Array]:
        """The map, its array's bytes by address [box, size], where inside of it, and places in shared memory."""
        entry = self.crew.maps[self._uniform(op.operands[at])]
        slot, array, pointer = entry
        begin = [self._uniform(v) for v in op.operands[at + 1 :]]
        size, rank = array.dtype.itemsize, len(slot.box)
        index = np.indices(slot.box[::-1]).reshape(rank, -1)[::-1]
        inside = np.ones(index.shape[1], bool)
        address = np.full(index.shape[1], pointer, np.int64)
        for d, dimension in enumerate(slot.dimensions):
            extent, stride = (
                (array.shape[dimension], array.strides[dimension]) if dimension >= 0 else (1, 1)
            )
            x = index[d] + begin[d]
            inside &= (x >= 0) & (x < extent)
            address += x * stride * size
        shared = self._uniform(op.operands[0])
        span = max(16, slot.swizzle)
        assert shared % 128 == 0, "a box begins on no line of 128 bytes"
        to = shared + np.arange(index.shape[1]) * size
        to ^= ((to >> 7) & (span // 16 - 1)) << 4
        assert to.max() + size <= SHARED + self.lowered.shared_bytes, "a box beyond shared memory"
        return slot, address, inside, self._place(to)

    def at_tma(self, name: str, op: Any) -> None:
        assert int(self.active.sum()) == 1, "one thread asks for a copy"
        if "prefetch" in name:
            return
        assert "multicast" not in name and "hint" not in name, name
        if name.startswith("tma.load"):
            self._load_box(op)
        else:
            self._store_box(name, op)

    def _load_box(self, op: Any) -> None:
        m, barrier = self.memory, self._barrier(op.operands[1])
        slot, address, inside, to = self._box(op, 2)
        size = self.crew.maps[self._uniform(op.operands[2])][1].dtype.itemsize
        spots = to[:, None] + np.arange(size)
        m.bytes[spots], m.valid[spots], m.wrote[spots] = 0xFF, False, -1

        def copy() -> None:
            data = np.zeros(spots.shape, np.uint8)
            data[inside] = m.bytes[address[inside][:, None] + np.arange(size)]
            if slot.element == "tf32":
                data = round_tf32(data.view(np.float32)).view(np.uint8)
            m.bytes[spots], m.valid[spots] = data, True
            barrier.bytes -= spots.size
            barrier.settle()

        self.crew.begin(copy)

    def _store_box(self, name: str, op: Any) -> None:
        m = self.memory
        _, address, inside, to = self._box(op, 1)
        array = self.crew.maps[self._uniform(op.operands[1])][1]
        size, kind = array.dtype.itemsize, array.dtype.numpy
        spots, places = to[:, None] + np.arange(size), address[:, None] + np.arange(size)
        held: list[Array] = []
        thread = int(np.flatnonzero(self.active)[0])
        who = np.full(spots.shape, self.first + thread)
        self._note(spots, who, False)  # what other threads wrote there, a barrier has ordered

        def store(only_read: bool) -> None:
            if not held:
                held.append(self._seen_by_engine(spots).copy())
                self._note(spots, who, False)  # so that this thread's wait is followed by a barrier
            if only_read or len(held) > 1:
                return
            held.append(held[0])
            data = held[0][inside]
            if name.startswith("tma.reduce"):
                assert ".add." in name, name
                old = m.bytes[places[inside]].view(kind)
                data = (old + data.view(kind)).astype(kind).view(np.uint8)
            m.bytes[places[inside]], m.valid[places[inside]] = data, True

        if self.crew.schedule == "early":
            store(False)
        self.stores[thread][-1].append(store)

    def at_bulk(self, name: str, op: Any) -> None:
        for thread in np.flatnonzero(self.active):
            groups = self.stores[thread]
            if name == "bulk.commit_group":
                groups.append([])
                continue
            assert name.startswith("bulk.wait_group"), name
            read = name.endswith(".read")
            done = groups[: max(0, len(groups) - 1 - op.immediates()["n"])]
            for store in (s for group in done for s in group):
                store(read)
            if not read:
                del groups[: len(done)]

    # Products -------------------------------------------------------------------------------------

    def at_wgmma(self, name: str, op: Any) -> None:
        assert self.active.all() and self.n == GROUP, "a product of less than a warpgroup"
        if name == "wgmma.fence":
            return
        if name == "wgmma.commit":
            self.flying.append([])
            return
        if name.startswith("wgmma.wait"):
            self._finish(op.immediates()["n"])
            for r, v in zip(op.results, op.operands, strict=True):
                self.values[r] = self.get(v)
            return
        entry = table.find(op.instruction.data)
        assert entry is not None, name
        args = [self.rows(v) for v in op.operands]
        like = np.ascontiguousarray(args[-1])
        out = np.frombuffer(b"\xff" * like.nbytes, like.dtype).reshape(like.shape).copy()
        self.values[op.results[0]] = out
        unordered = self.wrote_at[:, 0] == self.interval

        def multiply() -> None:
            shared = self.memory.bytes[self.window]
            # Bytes that threads wrote, and no fence and barrier made visible, are not there yet.
            hidden = (self.memory.wrote[self.window] == 1) | unordered
            if hidden.any():
                shared = np.where(hidden, np.uint8(0xFF), shared)
            with np.errstate(all="ignore"):
                out[:] = entry.meaning(*args, **op.immediates(), shared=shared)[0]

        if self.crew.schedule == "early":
            multiply()
        else:
            self._later(multiply, out, self.flying[-1])

    def _later(self, fill: Callable[[], None], out: Array, group: list[Callable[[], None]]) -> None:
        group.append(fill)
        self.sums[id(out)] = group

    def op_mach_join(self, op: Any) -> None:
        """Sums in flight stay so: registers are only named together."""
        super().op_mach_join(op)
        parts, out = [self.rows(v) for v in op.operands], self.get(op.results[0])
        groups = [self.sums[id(x)] for v in op.operands if id(x := self.get(v)) in self.sums]
        if groups:

            def fill() -> None:
                out[:] = np.concatenate(parts, axis=1)

            self._later(fill, out, max(groups, key=self._age))

    def _age(self, group: list[Callable[[], None]]) -> int:
        return next(i for i, known in enumerate(self.flying) if known is group)

    def _finish(self, left: int) -> None:
        """All but the last `left` committed groups are done."""
        for group in self.flying[: max(0, len(self.flying) - 1 - left)]:
            for multiply in group:
                multiply()
            self.sums = {key: known for key, known in self.sums.items() if known is not group}
        del self.flying[: max(0, len(self.flying) - 1 - left)]

    def _stmatrix(self, op: Any) -> None:
        entry = table.find(op.instruction.data)
        assert entry is not None and self.active.all()
        words, pointer = (self.rows(v) for v in op.operands)
        count = words.shape[1]
        for w in range(self.n // 32):
            lanes = slice(32 * w, 32 * w + 32)
            rows = [np.zeros(16, np.uint8) for _ in range(32)]
            entry.meaning(words[lanes], rows)
            on = np.zeros(self.n, bool)
            on[32 * w : 32 * w + 8 * count] = True
            assert not (pointer[on] % 16).any(), "misaligned row of stmatrix"
            data = np.zeros((self.n, 16), np.uint8)
            data[lanes] = rows
            self.store(pointer, data, on)


def run_hopper(
    lowered: Lowered, args: Sequence[Any], grid: tuple[int, int, int], schedule: str, seed: int = 0
) -> None:
    """Launch on arrays of the host (`ArrayArg`) and scalars, in place; every cluster in turn."""
    entry = entry_of(lowered)
    programs = (grid[0] * lowered.split, grid[1], grid[2])
    # Clusters are launched only where each has one program (`sharing.choose`).
    room = MULTIPROCESSORS if lowered.cluster == (1, 1, 1) else 1 << 20
    launched = launch_grid(plan_of(lowered), programs, room)
    size = lowered.cluster[0]
    assert lowered.cluster[1:] == (1, 1)
    maps: list[Any] = []
    with on_device(args, GLOBAL) as (memory, addresses):
        values: list[Array] = []
        for arg, slot in zip(entry.args, lowered.slots, strict=True):
            if isinstance(slot, TensorMapOf):
                values.append(np.array([len(maps)], np.int64))
                maps.append((slot, args[slot.argument], addresses[slot.argument]))
            else:
                values.append(parameter(slot, args, addresses, programs, arg.type))
        clusters = np.ndindex(launched[2], launched[1], launched[0] // size)
        for number, (z, y, x) in enumerate(clusters):
            memory.valid[:GLOBAL] = False
            memory.bytes[:GLOBAL] = 0xFF
            memory.wrote[:GLOBAL] = -1
            crew = Crew(memory, maps, size * lowered.threads, schedule, seed + number)
            for rank in range(size):
                for first in range(0, lowered.threads, GROUP):
                    program = (x * size + rank, y, z)
                    group = Warpgroup(lowered, crew, launched, program, first, rank)
                    for arg, value in zip(entry.args, values, strict=True):
                        plain = not str(arg.type).startswith("!llvm")
                        group.values[arg] = value.astype(group.dtype(arg.type)) if plain else value
            crew.run()


class HopperExecutable(ThreadsExecutable):
    """Launches under one schedule. Code without the copy engine and wgmma runs in threads.py, which finds races."""

    schedule = "random"

    def launch(self, grid: tuple[int, int, int], args: Sequence[Any]) -> None:
        if "stage" in self.ir:
            run_hopper(self.lowered, args, grid, self.schedule)
        else:
            run_threads(self.lowered, args, grid)


class HopperTarget(ThreadsTarget):
    """The cuda target's passes for sm_90a, run in numpy."""

    executable = HopperExecutable

    def __init__(self) -> None:
        super().__init__("sm_90a")
