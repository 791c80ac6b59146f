"""How a fragment lies in an array: vectors, their addresses, and which of them are inside.

An access is a list of `Chunk`s, each `vector` consecutive elements of one thread. The address of a
chunk is that of the tile, plus the thread's part, plus a constant times a stride; it is inside if it
is so in each dimension that is not known to be.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from xdsl.dialects.builtin import VectorType, i1
from xdsl.dialects.vector import BroadcastOp
from xdsl.ir import Operation, SSAValue

from tilewright.codegen.builder import Idx
from tilewright.codegen.tiles import Tile, itemsize
from tilewright.dialects import stage
from tilewright.dialects.nesting import ops_around
from tilewright.frozen import frozen
from tilewright.layout import Layout
from tilewright.passes.carried import LOOPS
from tilewright.passes.tile_origin import WIDEST, tile_alignment, tile_divisors
from tilewright.targets.cuda import blocked as bl
from tilewright.targets.cuda.distribute import Distributor

VECTOR_BYTES = WIDEST


@frozen
class Chunk:
    """Registers `first` .. `first + vector` of a fragment: their address, and when they are inside."""

    first: int
    pointer: SSAValue
    inside: SSAValue | None


@frozen
class TileFacts:
    """What is known of a tile: what divides offsets and extents, how its address is aligned."""

    offsets: tuple[int, int]
    extents: tuple[int, int]
    alignment: int
    unit: tuple[bool, bool]
    """Which strides are 1 for certain."""


def facts_of(tile_value: SSAValue, tile: Tile) -> TileFacts:
    offsets, extents = tile_divisors(tile_value)
    alignment = tile_alignment(tile_value, itemsize(tile.element))
    unit = tuple(isinstance(s, int) and s == 1 for s in tile.strides)
    return TileFacts(offsets, extents, alignment, (unit[0], unit[1]))


def divides(n: int, value: int) -> bool:
    """Does n divide what `value` is known to be a multiple of (0: anything divides it)?"""
    return value % n == 0


def vector_width(layout: Layout, tile: Tile, facts: TileFacts) -> tuple[int, int]:
    """(dimension, elements) of the widest vector that alignment allows."""
    dim, run = bl.run_along(layout)
    size = itemsize(tile.element)
    width = min(run, max(1, VECTOR_BYTES // size))
    if not facts.unit[dim]:
        return dim, 1
    other = tile.strides[1 - dim]
    while width > 1 and not (
        facts.alignment % (width * size) == 0
        and divides(width, facts.offsets[dim])
        and (not isinstance(other, int) or other % width == 0)
    ):
        width //= 2
    return dim, width


class Boxes:
    """Which chunks are inside the matrix: one comparison per distinct constant and dimension."""

    def __init__(self, d: Distributor, layout: Layout, tile: Tile, facts: TileFacts):
        self.d = d
        self.tests: list[tuple[int, Idx | None, Idx | None]] = []
        self.uniform: SSAValue | None = None
        self.cache: dict[tuple[int, int], SSAValue] = {}
        b = d.b
        starts = d.coordinates(layout)
        for dim in range(2):
            offset, extent, size = tile.offsets[dim], tile.extents[dim], layout.shape[dim]
            if isinstance(offset, int) and isinstance(extent, int) and 0 <= offset <= extent - size:
                continue
            limit = b.minus(extent, offset)
            low = not b.is_nonnegative(offset)
            if divides(size, facts.offsets[dim]) and divides(size, facts.extents[dim]):
                # The tile is inside as a whole or not at all.
                self.uniform = b.both(self.uniform, b.cmp("sgt", limit, 0))
                if low:
                    self.uniform = b.both(self.uniform, b.cmp("sge", offset, 0))
                continue
            rest = b.minus(limit, starts[dim])
            below = b.plus(starts[dim], offset) if low else None
            self.tests.append((dim, rest, below))

    def inside(self, constants: Sequence[int]) -> SSAValue | None:
        """i1 of the element at these constants from register 0; None where it is always inside."""
        b = self.d.b
        result = self.uniform
        for dim, rest, below in self.tests:
            key = (dim, int(constants[dim]))
            if key not in self.cache:
                assert rest is not None
                test: SSAValue | None = b.cmp("sgt", rest, key[1])
                if below is not None:
                    test = b.both(test, b.cmp("sge", below, -key[1]))
                assert test is not None
                self.cache[key] = test
            result = b.both(result, self.cache[key])
        if result is not None and b.known_bool(result) is True:
            return None
        return result


MANY = 16
"""Accesses of a thread that are worth code of their own for tiles that are inside as a whole."""


def _is_innermost(op: Operation) -> bool:
    """Does an op stand in a loop, and beside no other loop of it?"""
    return isinstance(around := op.parent_op(), LOOPS) and not any(
        isinstance(each, LOOPS) for each in around.walk() if each is not around
    )


def interior(
    d: Distributor, op: Operation, tile: Tile, layout: Layout, width: int
) -> SSAValue | None:
    """Is the tile of an access inside as a whole? All threads agree. None where few accesses would ask, or a branch
    would keep apart what goes on side by side: products on their way (ptxas serialises them) and the iterations of an
    innermost loop, each of which would wait for its loads."""
    b, found = d.b, None
    if layout.registers < MANY * width or _is_innermost(op):
        return None
    blocks = [op.parent, *(around.parent for around in ops_around(op))]
    if any(isinstance(o, stage.ProductIssueOp) for block in blocks if block for o in block.ops):
        return None
    for offset, extent, size in zip(tile.offsets, tile.extents, layout.shape, strict=True):
        found = b.both(found, b.cmp("sle", b.plus(offset, size), extent))
        if not b.is_nonnegative(offset):
            found = b.both(found, b.cmp("sge", offset, 0))
    return None if found is None or b.known_bool(found) is not None else found


def chunks(
    d: Distributor, tile: Tile, layout: Layout, facts: TileFacts, width: int, inside: bool = False
) -> list[Chunk]:
    """The chunks of `width` elements of a fragment in a 2-D tile, which may be known to be `inside`."""
    b = d.b
    size = itemsize(tile.element)
    boxes = Boxes(d, layout, tile, facts)
    starts = d.coordinates(layout)
    at = [c[::width] for c in layout.register_steps]
    pointer = tile.pointer
    # What all threads share first, then the thread's part, then constants.
    for offset, stride in zip(tile.offsets, tile.strides, strict=True):
        pointer = b.ptr(pointer, b.times(b.times(offset, stride), size))
    for start, stride in zip(starts, tile.strides, strict=True):
        pointer = b.ptr(pointer, b.times(b.times(start, stride), size))
    steps: dict[tuple[int, int], Idx] = {}

    def step(dim: int, n: int) -> Idx:
        key = (dim, n)
        if key not in steps:
            steps[key] = b.times(b.times(tile.strides[dim], n), size)
        return steps[key]

    rows: dict[int, SSAValue] = {}
    result: list[Chunk] = []
    slow, fast = (0, 1) if isinstance(tile.strides[1], int) else (1, 0)
    for i in range(len(at[0])):
        constants = [int(at[0][i]), int(at[1][i])]
        if constants[slow] not in rows:
            rows[constants[slow]] = b.ptr(pointer, step(slow, constants[slow]))
        here = b.ptr(rows[constants[slow]], step(fast, constants[fast]))
        result.append(Chunk(i * width, here, None if inside else boxes.inside(constants)))
    return result


def straddles(layout: Layout, tile: Tile, facts: TileFacts, dim: int, width: int) -> Idx | None:
    """The extent along `dim` if a chunk of `width` may lie across its end, else None."""
    if width == 1 or divides(width, facts.extents[dim]):
        return None
    offset, extent = tile.offsets[dim], tile.extents[dim]
    known = isinstance(offset, int) and isinstance(extent, int)
    if known and (offset + layout.shape[dim] <= extent or extent % width == 0):  # pyright: ignore
        return None
    return extent


def splat_mask(d: Distributor, mask: SSAValue, width: int) -> SSAValue:
    """One condition for all elements of a chunk."""
    return d.b.value(BroadcastOp(mask, VectorType(i1, [width])))


@contextmanager
def guarded(d: Distributor, condition: SSAValue | None) -> Generator[None]:
    """`if condition:`, or nothing for None."""
    if condition is None:
        yield
        return
    with d.b.when(condition):
        yield
