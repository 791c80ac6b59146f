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
from xdsl.dialects.builtin import IntegerType, VectorType, i1
from xdsl.ir import Attribute, SSAValue

from tilewright import layout as ly
from tilewright.codegen.builder import Idx
from tilewright.codegen.tiles import itemsize
from tilewright.frozen import frozen
from tilewright.layout import Layout, LayoutError, Move
from tilewright.layout.digits import row_strides
from tilewright.layout.memory import row_major, run_of, staging, strided
from tilewright.targets.cuda.distribute import Distributor, Fragment
from tilewright.targets.cuda.sync import MemoryRange

VECTOR_BYTES = 16


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
    offset = d.shared.allocate(need, what)
    place = MemoryRange(offset, offset + need)
    d.hazards.write(d, place)
    store(offset)
    d.hazards.read(d, place)
    value = load(offset)
    d.shared.release(offset)
    return value


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
    """A fragment read from shared memory, from `origin` on, as many elements at a time as lie side by side."""
    if (found := _ascending(layout, memory, itemsize(element), origin)) is not None:
        return d.pick(load_at(d, found[0], base, element), found[1])
    return load_at(d, addresses(layout, memory, itemsize(element), origin), base, element)


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
