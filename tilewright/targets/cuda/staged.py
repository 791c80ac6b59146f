"""What the lowering knows of multi-buffers: where slots and barriers stand in shared memory, and pipeline states as
numbers.

A multi-buffer has two mbarriers per slot. `full` completes a phase when the copies of a fill are done (one arrival, by
the thread that issues, and the bytes); `empty` when all readers have released it. A pipeline state is two words, so
that the slot can stay in uniform registers: the slot, and the parity of the fill's round. The first fill finds every
slot free because it waits for the phase before the first, which counts as complete.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from xdsl.dialects import arith, gpu, vector
from xdsl.dialects.builtin import VectorType, i1, i32
from xdsl.ir import Attribute, SSAValue

from tilewright.codegen.builder import Builder
from tilewright.dialects import mach, stage, xetile
from tilewright.dialects.stage.multi_buffers import buffer_type, is_by_threads
from tilewright.frozen import field, record
from tilewright.layout import Layout
from tilewright.layout.memory import strided
from tilewright.passes.integers import Ranges
from tilewright.targets.cuda import smem
from tilewright.targets.cuda.blocked import deinterleaved
from tilewright.targets.cuda.distribute import Distributor
from tilewright.targets.cuda.lowered import Slot
from tilewright.targets.cuda.narrow import Narrow, Word
from tilewright.targets.cuda.ownership import default_layout
from tilewright.targets.cuda.reach import MOST_EXTENT
from tilewright.targets.cuda.sync import MemoryRange
from tilewright.uarch.nvidia import LANES, WARPGROUP
from tilewright.uarch.sm90 import smem_tile

ALIGNMENT = 1024
"""Bytes: what the pattern of a 128-byte swizzle repeats after."""


@record
class BufferAddress:
    """One multi-buffer in shared memory; offsets in bytes from the workgroup's shared memory."""

    type: stage.MultiBufferType
    slots: int
    """Offset of slot 0; the others follow."""
    barriers: int
    """Offset of full[0]; then come the other full ones, then the empty ones. Where threads fill it, there are none."""
    parts: tuple[int, ...]
    """Offset of each part in a slot."""
    readers: int = 1
    """Arrivals that free a slot."""

    @property
    def count(self) -> int:
        return self.type.slots.data

    @property
    def range(self) -> MemoryRange:
        """Of all slots."""
        return MemoryRange(self.slots, self.slots + self.count * self.type.slot_bytes)


def memory_of(part: stage.PartAttr) -> Layout:
    """Where the elements of a part lie in its slot: in panels, or line by line."""
    lines, length = part.lines
    width = part.swizzle.data
    if width:
        memory = smem_tile(lines, length, part.itemsize, width)
    else:
        memory = strided((lines, length), (part.pitch // part.itemsize, 1))
    if part.deinterleaved:
        memory = deinterleaved(memory, 1)
    return memory if part.row_major else memory.permuted((1, 0))


def copied_layout(part: stage.PartAttr, warps: int, most: int = 16) -> Layout:
    """Who copies what of a part, where threads do: each what it holds in this layout, of vectors of `most` elements."""
    fast = 1 if part.row_major else 0
    return default_layout(part.get_shape(), fast, part.itemsize, warps, most)


@record
class StagedTile:
    """A value that lies in a slot: its multi-buffer, part, and the number of the slot."""

    place: BufferAddress
    part: int
    slot: Word

    @property
    def attr(self) -> stage.PartAttr:
        return self.place.type.parts.data[self.part]

    def offset(self, d: Distributor) -> Word:
        """Bytes from the start of shared memory."""
        n = Narrow(d.b)
        start = self.place.slots + self.place.parts[self.part]
        return n.plus(n.times(self.slot, self.place.type.slot_bytes), start)


@record
class KernelFacts:
    """What rules tell one another about a kernel, shared by all its roles."""

    slots: list[tuple[Slot, SSAValue]] = field(default_factory=list["tuple[Slot, SSAValue]"])
    """Parameters that rules asked for, beyond those of the kernel's arguments, in order."""
    single: bool = False
    """Does one thread alone run the code being made?"""
    persistent: bool = False
    cluster: int = 1
    """Workgroups of a cluster."""
    summed: bool = False
    """Has the cluster added something up: may others still read what each has?"""
    stores: bool = False
    """Are there stores by the copy engine?"""

    places: dict[SSAValue, BufferAddress] = field(default_factory=dict[SSAValue, BufferAddress])
    staged: dict[SSAValue, StagedTile] = field(default_factory=dict[SSAValue, StagedTile])
    registers: dict[str, int] = field(default_factory=dict[str, int])
    barriers: int = 1
    addresses: dict[Distributor, SSAValue] = field(default_factory=dict["Distributor", SSAValue])
    ranges: Ranges = field(default_factory=lambda: Ranges(_extent))
    """Of the integers of the kernel, which stays as it is."""
    clamped: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """By an index: what the copy engine counts from instead (`coordinates.py`)."""
    uniform: dict[tuple[Distributor, int], SSAValue] = field(
        default_factory=dict["tuple[Distributor, int]", SSAValue]
    )


def _extent(array: SSAValue) -> int | None:
    """A launch sees to the extents of the arrays that are copied, and of no others."""
    tiles = [use.operation for use in array.uses if isinstance(use.operation, xetile.InitTileOp)]
    users = [use.operation for op in tiles for use in op.result.uses]
    copied = any(
        isinstance(op, stage.CopyStoreOp)
        or (isinstance(op, stage.CopyIssueOp) and not is_by_threads(op.buffer))
        for op in users
    )
    return MOST_EXTENT if copied else None


_FACTS: WeakKeyDictionary[Builder, KernelFacts] = WeakKeyDictionary()


def facts_of(b: Builder) -> KernelFacts:
    """The facts of the kernel that is being built."""
    found = _FACTS.get(b)
    if found is None:
        found = _FACTS[b] = KernelFacts()
    return found


def facts(d: Distributor) -> KernelFacts:
    """The facts of the kernel that is being lowered."""
    return facts_of(d.b)


def parameter(d: Distributor, slot: Slot, type: Attribute) -> SSAValue:
    """A parameter of the function, added after all others; one for equal slots."""
    known = facts(d).slots
    for other, value in known:
        if other == slot:
            return value
    entry = d.b.entry
    value = entry.insert_arg(type, len(entry.args))
    known.append((slot, value))
    return value


def warpgroup(d: Distributor) -> Word:
    """The number of this thread's warpgroup in its team, in a form that is the same for the warp by construction.

    A branch on it is known to be taken by whole warps, in which uniform registers can be used.
    """
    if d.team.warps == WARPGROUP:
        return 0
    return _uniform(d, WARPGROUP * LANES)


def _uniform(d: Distributor, threads: int) -> SSAValue:
    """The number of this thread's group of so many of its team, all of a warp the same: what its first lane has."""
    known = facts(d).uniform
    if (d, threads) not in known:
        with d.preamble():
            b = d.b
            group = b.value(arith.IndexCastOp(b.idx(b.div(d.thread, threads)), i32))
            zero = b.constant(i32, 0)
            known[d, threads] = b.value(mach.InstrOp("nvptx.shfl.idx", [group, zero], [i32]))
    return known[d, threads]


@contextmanager
def elected(d: Distributor) -> Generator[None]:
    """What one thread of the team does. elect.sync tells ptxas that it is one: where it only sees a comparison of
    thread numbers, it puts a loop over a warp's lanes around each instruction of the copy engine.
    """
    b = d.b
    first = Narrow(b).compare(_uniform(d, LANES), "eq", 0)
    one = mach.InstrOp("nvptx.elect.sync", [], [i1])
    with b.when(first), b.when(b.value(one)):
        yield


def shared_address(d: Distributor) -> SSAValue:
    """The address of the workgroup's shared memory as a word."""
    known = facts(d).addresses
    if d not in known:
        with d.preamble():
            known[d] = d.b.value(mach.IntFromPtrOp(d.shared_pointer(0), i32))
    return known[d]


def pointer(d: Distributor, offset: Word) -> SSAValue:
    """The address so many bytes into the workgroup's shared memory."""
    n = Narrow(d.b)
    return n.pointer(n.plus(shared_address(d), offset))


def place_of(d: Distributor, buffer: SSAValue) -> BufferAddress:
    return facts(d).places[buffer]


def allocate(d: Distributor, op: stage.MultiBufferOp, readers: int) -> BufferAddress:
    """Shared memory for a multi-buffer and its barriers."""
    type = buffer_type(op.result)
    count = type.slots.data
    # Threads count from where a slot begins; the copy engine's pattern goes by addresses.
    align = smem.ALIGNMENT if op.by_threads else ALIGNMENT
    slots = d.shared.allocate(count * type.slot_bytes, "a multi-buffer", align=align, op=op)
    barriers = 0
    if not op.by_threads:
        barriers = d.shared.allocate(16 * count, "barriers of a multi-buffer", op=op)
    parts: list[int] = []
    at = 0
    for part in type.parts:
        parts.append(at)
        at += -(-part.bytes // ALIGNMENT) * ALIGNMENT
    place = BufferAddress(type, slots, barriers, tuple(parts), readers)
    facts(d).places[op.result] = place
    return place


def rank(d: Distributor) -> Word:
    """This workgroup's place in its cluster."""
    size = facts(d).cluster
    if size == 1:
        return 0
    n = Narrow(d.b)
    number = d.b.value(gpu.BlockIdOp(gpu.DimensionAttr(gpu.DimensionEnum.X)))
    return n.rem(n.of(number), size)


def state_of(d: Distributor, slot: SSAValue, parity: SSAValue) -> SSAValue:
    """A pipeline state of its two words."""
    made = d.b.constant(VectorType(i32, [2]), 0)
    for place, word in enumerate((slot, parity)):
        made = d.b.value(vector.InsertOp(word, made, [place]))
    return made


def slot_of(d: Distributor, state: SSAValue) -> Word:
    return d.b.extract(d.scalar(state), 0)


def parity_of(d: Distributor, state: SSAValue, flipped: bool = False) -> SSAValue:
    """The parity of a pipeline state's round, or its opposite, as i32."""
    n = Narrow(d.b)
    parity = d.b.extract(d.scalar(state), 1)
    return n.value(n.xor(parity, 1)) if flipped else parity


def advanced(d: Distributor, state: SSAValue, slots: int) -> SSAValue:
    """The pipeline state after this one: slot 0 of the next round comes after the last."""
    n, b = Narrow(d.b), d.b
    slot, parity = b.extract(d.scalar(state), 0), b.extract(d.scalar(state), 1)
    following = n.value(n.plus(slot, 1))
    wrapped = n.compare(following, "eq", slots)
    first = b.value(arith.SelectOp(wrapped, n.value(0), following))
    turned = b.value(arith.ExtUIOp(wrapped, i32))
    return state_of(d, first, b.value(arith.XOrIOp(parity, turned)))


def full(d: Distributor, place: BufferAddress, slot: Word) -> SSAValue:
    """The barrier of a slot that completes when its copies are done."""
    n = Narrow(d.b)
    return pointer(d, n.plus(n.times(slot, 8), place.barriers))


def empty(d: Distributor, place: BufferAddress, slot: Word) -> SSAValue:
    """The barrier of a slot that completes when its readers have released it."""
    n = Narrow(d.b)
    return pointer(d, n.plus(n.times(slot, 8), place.barriers + 8 * place.count))


def instr(d: Distributor, name: str, *operands: SSAValue, **immediates: int) -> None:
    """One machine instruction without a result."""
    d.b.op(mach.InstrOp(f"nvptx.{name}", list(operands), [], immediates))
