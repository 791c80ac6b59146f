"""Moving fragments between layouts: registers, shuffles, shared memory; and fragments in memory.

Every address is a table [threads, registers], computed by the layout algebra and then split into a
part of the thread and a constant of the register, joined by +, in swizzled memory by xor of a few bits. That
the split is right is checked on the table itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import IntegerType, VectorType, i1, i8, i32
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright import layout as ly
from tilewright.codegen.builder import Idx
from tilewright.codegen.tiles import itemsize
from tilewright.dialects import mach
from tilewright.frozen import frozen
from tilewright.layout import Layout, LayoutError, Move
from tilewright.layout.digits import row_strides
from tilewright.layout.memory import row_major, run_of, staging, strided
from tilewright.targets.cuda.distribute import Distributor, Fragment
from tilewright.targets.cuda.sync import MemoryRange
from tilewright.uarch.nvidia import LANES

VECTOR_BYTES = 16
WORD = 4


@frozen
class Addresses:
    """Addresses of a fragment's vectors in bytes: what threads and registers give is added, but for the bits in
    `mixed` (a swizzle's), which are combined by xor."""

    thread: tuple[int, ...]
    constants: tuple[int, ...]
    mixed: int
    vector: int
    """Elements of one access."""

    def table(self) -> np.ndarray:
        """The addresses [threads, vectors]."""
        return _joined(np.array(self.thread), np.array(self.constants), self.mixed)


def _joined(thread: np.ndarray, constants: np.ndarray, mixed: int) -> np.ndarray:
    x, y = thread[:, None], constants[None, :]
    return (x & ~mixed) + (y & ~mixed) + ((x ^ y) & mixed)


def is_linear(table: np.ndarray, op: str) -> bool:
    """Is `table` over thread numbers the combination of what the bits of the number give?"""
    bits = (len(table) - 1).bit_length()
    made = np.zeros(1, np.int64)
    for i in range(bits):
        part = table[1 << i]
        made = np.concatenate([made, made + part if op == "add" else made ^ part])
    return bool(np.array_equal(made[: len(table)], table))


@lru_cache(maxsize=4096)
def addresses(
    fragment: Layout, memory: Layout, size: int, origin: tuple[int, ...] = ()
) -> Addresses:
    """How a fragment lies in memory whose elements have `size` bytes; its first element at `origin` there.

    Raises LayoutError where thread and register do not part: another memory layout must be chosen.
    """
    found = accesses(_places(fragment, memory, origin), size)
    if found is None:
        raise LayoutError("addresses do not part into thread and register")
    return found


def _places(fragment: Layout, memory: Layout, origin: tuple[int, ...]) -> np.ndarray:
    """Where in memory the elements of a fragment are, [threads, registers]."""
    places = [x + at for x, at in zip(fragment.table(), origin or [0] * fragment.rank, strict=True)]
    return memory.address(*places).reshape(-1, fragment.registers)


@lru_cache(maxsize=1024)
def _ascending(
    fragment: Layout, memory: Layout, size: int, origin: tuple[int, ...]
) -> tuple[Addresses, tuple[int, ...]] | None:
    """Accesses of a fragment's registers in the order in which they lie in memory, and the place of each register
    there; None where that makes none of them longer."""
    places = _places(fragment, memory, origin)
    order = np.argsort(places[0], kind="stable")
    if run_of(places[:, order]) <= run_of(places):
        return None
    found = accesses(places[:, order], size)
    return None if found is None else (found, tuple(map(int, np.argsort(order))))


def accesses(places: np.ndarray, size: int, divisor: int = 0) -> Addresses | None:
    """How elements of `size` bytes at `places` [threads, registers], moved by a multiple of `divisor` (0: not at all),
    are accessed; None where thread and register do not part."""
    vector = min(run_of(places), max(1, VECTOR_BYTES // size))
    while divisor % vector:
        vector //= 2
    return parted(places[:, ::vector] * size, vector)


MIXED = (0, 0x10, 0x30, 0x70, -1)
"""Bits that may be combined by xor, tried in turn: none, those of swizzles of 32, 64 and 128 bytes, all."""


def parted(table: np.ndarray, vector: int) -> Addresses | None:
    """Addresses [threads, vectors] as what the thread's bits and the vector's number give; None if they do not part."""
    constants = table[0]
    for mixed in MIXED:
        thread = (table[:, 0] & ~mixed) - (constants[0] & ~mixed)
        thread += (table[:, 0] ^ constants[0]) & mixed
        if (
            np.array_equal(_joined(thread, constants, mixed), table)
            and is_linear(thread & ~mixed, "add")
            and is_linear(thread & mixed, "xor")
        ):
            return Addresses(tuple(map(int, thread)), tuple(map(int, constants)), mixed, vector)
    return None


@lru_cache(maxsize=1024)
def staging_memory(source: Layout, target: Layout, size: int) -> Layout:
    """Shared memory through which a tile goes from one layout to another."""
    best = staging(source, target, size)
    shape = source.shape
    pad = max(1, VECTOR_BYTES // size)
    steps = [s if i == len(shape) - 1 else s // max(1, shape[-1]) * (shape[-1] + pad)
             for i, s in enumerate(row_strides(shape))]  # fmt: skip
    for memory in (best, strided(shape, steps), row_major(shape)):
        try:
            addresses(source, memory, size)
            addresses(target, memory, size)
        except LayoutError:
            continue
        return memory
    raise LayoutError(f"no shared memory fits {source} and {target}")


def extent_bytes(memory: Layout, size: int) -> int:
    """Bytes that a memory layout takes, the swizzle included."""
    return memory.extent(ly.Axis.MEMORY) * size


# Conversion -------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def conversion(source: Layout, target: Layout) -> tuple[Move, tuple[int, ...] | None]:
    """(what moves, the registers' permutation if the move is inside of each lane)."""
    plan = ly.plan.convert(source, target)
    if plan.kind in (Move.NOTHING, Move.REGISTERS):
        found = plan.permutation
        if found is not None:
            return plan.kind, tuple(int(r) for r in found)
    return Move.SLM, None


def convert(d: Distributor, fragment: Fragment, layout: Layout) -> Fragment:
    """The same tile in another layout, by the cheapest means."""
    if fragment.layout == layout:
        return fragment
    _, registers = conversion(fragment.layout, layout)
    if registers is not None:
        return Fragment(d.pick(fragment.value, registers), layout)
    return through_shared(d, fragment, layout)


def through_shared(
    d: Distributor, fragment: Fragment, layout: Layout, *, first_only: bool = False
) -> Fragment:
    """Written in one layout, read in another. `first_only`: of replicas the first alone holds data."""
    size = itemsize(fragment.element)
    memory = staging_memory(fragment.layout, layout, size)

    def store(offset: int) -> None:
        if first_only and (first := d.first_replica(fragment.layout)) is not None:
            with d.b.when(first):
                store_fragment(d, fragment, memory, offset)
        else:
            store_fragment(d, fragment, memory, offset)

    def load(offset: int) -> SSAValue:
        return load_fragment(d, layout, memory, offset, fragment.element)

    need = extent_bytes(memory, size)
    return Fragment(exchanged(d, need, "a conversion of layouts", store, load), layout)


def exchanged(
    d: Distributor,
    need: int,
    what: str,
    store: Callable[[int], None],
    load: Callable[[int], SSAValue],
) -> SSAValue:
    """What threads `load` of `need` bytes of shared memory, from the given offset on, where others `store` before."""
    offset = free_place(d, need, what)
    place = MemoryRange(offset, offset + need)
    d.hazards.write(d, place)
    store(offset)
    d.hazards.read(d, place)
    value = load(offset)
    d.shared.release(offset)
    return value


ASIDE = 2 << 10
"""Bytes for which another place costs less than a barrier."""


def free_place(d: Distributor, need: int, what: str, op: Operation | None = None) -> int:
    """Memory that all are done with, where there is some within ASIDE bytes of the first free place; else that one."""
    offset = d.shared.allocate(need, what, op=op)
    if need <= ASIDE and not d.hazards.is_free(MemoryRange(offset, offset + need)):
        other = d.shared.allocate(need, what, op=op)
        better = d.hazards.is_free(MemoryRange(other, other + need))
        d.shared.release(offset if better else other)
        return other if better else offset
    return offset


# Fragments in shared memory ---------------------------------------------------------------------


def store_fragment(d: Distributor, fragment: Fragment, memory: Layout, base: Idx) -> None:
    """Every thread writes what it holds to shared memory laid out as `memory`, `base` bytes in."""
    size = itemsize(fragment.element)
    store_at(d, addresses(fragment.layout, memory, size), fragment, base)


def store_at(d: Distributor, at: Addresses, fragment: Fragment, base: Idx) -> None:
    """Every thread writes its registers to shared memory, `base` bytes beyond `at`."""
    size = itemsize(fragment.element)
    for i, pointer in enumerate(pointers_of(d, at, base)):
        part = d.pick(fragment.value, range(i * at.vector, (i + 1) * at.vector))
        d.b.store(part, pointer, align=at.vector * size)


def load_fragment(
    d: Distributor,
    layout: Layout,
    memory: Layout,
    base: Idx,
    element: Attribute,
    origin: tuple[int, ...] = (),
) -> SSAValue:
    """A fragment read from shared memory, from `origin` on, as many elements at a time as lie side by side; as matrices
    where that is no more than a word."""
    size = itemsize(element)
    if (by := _by_matrices(layout, memory, size, d.team.warps, origin)) is not None:
        words = d.concatenate([load_matrix(d, by, at) for at in pointers_of(d, by.at, base)])
        type = VectorType(element, [layout.registers])  # pyright: ignore[reportArgumentType]
        if element != i1:
            return d.b.value(vector.BitcastOp(words, type))
        held = d.b.value(vector.BitcastOp(words, VectorType(i8, [layout.registers])))
        # A truth value is a byte in memory.
        return d.b.value(arith.TruncIOp(held, type))  # pyright: ignore[reportArgumentType]
    if (found := _ascending(layout, memory, itemsize(element), origin)) is not None:
        return d.pick(load_at(d, found[0], base, element), found[1])
    return load_at(d, addresses(layout, memory, itemsize(element), origin), base, element)


@lru_cache(maxsize=1024)
def _by_matrices(
    layout: Layout, memory: Layout, size: int, warps: int, origin: tuple[int, ...]
) -> Matrices | None:
    if _ascending(layout, memory, size, origin) is not None:
        return None
    one = addresses(layout, memory, size, origin).vector * size
    return (
        matrices(layout, memory, size, warps, origin)
        if one <= WORD < layout.registers * size
        else None
    )


def load_at(d: Distributor, at: Addresses, base: Idx, element: Attribute) -> SSAValue:
    """Every thread's registers read from shared memory, `base` bytes beyond `at`."""
    size = itemsize(element)
    type = VectorType(element, [at.vector])  # pyright: ignore[reportArgumentType]
    loaded = type
    # Bytes as numbers: they would be taken apart, and put together by those who use words.
    if size == 1 and element != i1 and at.vector > 1:
        word = min(at.vector, 4)
        loaded = VectorType(IntegerType(8 * word), [at.vector // word])
    parts = [
        d.b.load(pointer, loaded, align=at.vector * size) for pointer in pointers_of(d, at, base)
    ]
    if loaded is not type:
        parts = [d.b.value(vector.BitcastOp(part, type)) for part in parts]
    return d.concatenate(parts)


def pointers_of(d: Distributor, at: Addresses, base: Idx) -> Sequence[SSAValue]:
    """The address of each vector, `base` bytes into shared memory: one pointer for each setting of the bits that
    are combined by xor, and constant offsets from it."""
    b = d.b
    added = d.from_thread([t & ~at.mixed for t in at.thread])
    turned = d.from_thread([t & at.mixed for t in at.thread], "xor")
    starts: dict[int, SSAValue] = {}
    found: list[SSAValue] = []
    for constant in at.constants:
        key = constant & at.mixed
        if key not in starts:
            low: Idx = turned
            if key:
                low = turned ^ key if isinstance(turned, int) else b.value(
                    arith.XOrIOp(turned, b.idx(key))
                )  # fmt: skip
            starts[key] = d.shared_pointer(b.plus(b.plus(added, low), base))
        found.append(b.ptr(starts[key], constant & ~at.mixed))
    return found


# Matrices in shared memory ----------------------------------------------------------------------


@frozen
class Matrices:
    """Loads of `count` matrices each, at these addresses (of the row that each lane names)."""

    count: int
    at: Addresses
    transposed: bool


@lru_cache(maxsize=512)
def matrices(
    want: Layout, memory: Layout, size: int, warps: int, origin: tuple[int, ...] = ()
) -> Matrices | None:
    """A fragment as 8 x 8 matrices of 16 bits for ldmatrix, in the order of its words; None where its
    rows of 16 bytes are not contiguous. The first element is at `origin` in memory.

    Word w of lane l holds elements `pack` w ...: matrix w has row l / 4 there. The row that lane 8 i + r
    names is row r of matrix i: its first element is what lane 4 r holds first (or, transposed, the
    elements that lanes r hold first along the other dimension).
    """
    pack = 4 // size
    total, rest = divmod(want.registers, max(1, pack))
    if not pack or rest or not total:
        return None
    count = next((n for n in (4, 2, 1) if total % n == 0), 1)
    table = _places(want, memory, origin).reshape(warps, LANES, total, pack) * size
    for transposed in (False, True):
        if transposed and size != 2:
            continue
        rows = np.empty((warps, LANES, total), np.int64)
        if not _rows(table, rows, transposed, size):
            continue
        thread = np.empty((warps, LANES, total // count), np.int64)
        for lane in range(LANES):
            matrix, row = (lane // 8) % count, lane % 8
            thread[:, lane, :] = rows[:, row, matrix::count]
        flat = thread.reshape(warps * LANES, -1)
        at = parted(flat, 16 // size)
        if at is not None:
            return Matrices(count, at, transposed)
    return None


def _rows(table: np.ndarray, rows: np.ndarray, transposed: bool, size: int) -> bool:
    """Fill rows[w, r, word] with the address of row r of each matrix; False where it is not contiguous."""
    *_, pack = table.shape
    for r in range(8):
        if not transposed:
            start = table[:, 4 * r, :, 0]
            for lane in range(4):
                for i in range(pack):
                    step = (lane * pack + i) * size
                    if not np.array_equal(table[:, 4 * r + lane, :, i], start + step):
                        return False
        else:
            # Row r of the stored matrix is element r along k: lane r / 2, its element r % 2.
            start = table[:, r // 2, :, r % 2]
            for other in range(8):
                if not np.array_equal(table[:, 4 * other + r // 2, :, r % 2], start + other * size):
                    return False
        if np.any(start % 16):
            return False
        rows[:, r, :] = start
    return True


def load_matrix(d: Distributor, how: Matrices, pointer: SSAValue) -> SSAValue:
    """The words of one load."""
    name = f"nvptx.ldmatrix.x{how.count}{'.trans' if how.transposed else ''}"
    return d.b.value(mach.InstrOp(name, [pointer], [VectorType(i32, [how.count])]))
