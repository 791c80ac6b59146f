"""Products of small tiles of arrays that nobody packs ahead: both operands are read where they lie, no loop has an end
that is cut off.

In a batch of small matrices each program multiplies two of them once. Copying them into panels, and the ends of loops
over panels and blocks of k, take longer than so few products. Where B's rows lie near one another:

    for rows, as many as registers hold sums of, and vectors of columns:
      for k, some at a time:  a row of B times an element of each row of A
      C is written once

Of tiles that do not lie wholly in their arrays there are as many k as both arrays have; B's columns behind the end are
masked, and of A's rows behind it the last row is read instead, whose sums are not kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, VectorType
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.codegen.tiles import Tile, itemsize, plain
from tilewright.dialects import mach
from tilewright.dialects.movement import memref_type
from tilewright.dialects.stage import PackOp
from tilewright.frozen import frozen
from tilewright.passes.packing import chain_of
from tilewright.targets.cpu.evaluate import Evaluator, Position
from tilewright.targets.cpu.family import Family
from tilewright.targets.cpu.machine import CpuMachine
from tilewright.targets.cpu.memory import Buffer
from tilewright.targets.cpu.operands import Operands
from tilewright.targets.cpu.packed_array import panel_of
from tilewright.targets.cpu.packing import is_verbatim
from tilewright.targets.cpu.reductions import power_of_two
from tilewright.targets.cpu.thin_whole import PRODUCTS, runs_of

LONGEST = 64
"""Rows, columns and k of such a product at most: longer ones amortise their panels."""
NEAR = 32 << 10
"""Bytes from B's first row to its last at most: the nearest cache keeps them for all rows of A."""
VECTORS = 4
"""Of a row of B at a time at most."""


@frozen
class Lying:
    """A tile of an array: the address of its first element, bytes to the next x and k, and how many of either the array
    has from there on."""

    pointer: SSAValue
    steps: tuple[Idx, Idx]
    x_count: Idx
    k_count: Idx
    there: SSAValue | None
    """Is it to be read where it lies? None: always."""
    element: Attribute
    along: int | None
    """Along what neighbours in memory lie: 0 is x, 1 is k."""


def lying(e: Evaluator, operands: Operands, value: SSAValue, x_axis: int) -> Lying | None:
    """An operand (A: x_axis 0) as such a tile, where nothing changes its elements; else None."""
    b, value = e.b, e.values.real(value)
    if (panel := panel_of(value)) is not None:
        placed = operands.placed(panel)
        array, pack = placed.array, panel.panels.owner
        assert isinstance(pack, PackOp)
        element = plain(memref_type(pack.source).element_type)
        if not is_verbatim(pack, element, replace(array.format, parts=1)):
            return None
        begin, there = placed.corner(b), b.negated(array.ahead)
        along, counts = _along(array.x_stride, array.k_stride), (placed.x_count, placed.k_count)
        return Lying(begin, placed.steps(b), *counts, there, element, along)
    block = value.owner.parent if isinstance(value.owner, Operation) else None
    chain = None if block is None else chain_of(value, block)
    if chain is None or chain.ops or chain.transposed or value in e.values.buffers:
        return None
    tile = e.values.tile(chain.load.tile)
    assert isinstance(tile, Tile)
    there = None
    for offset in tile.offsets:
        if not b.is_nonnegative(offset):
            there = b.both(there, b.cmp("sge", offset, 0))
    axes, size = (x_axis, 1 - x_axis), itemsize(tile.element)
    x_bytes, k_bytes = (b.times(tile.strides[axis], size) for axis in axes)
    x_count, k_count = (tile.limit(b, axis) for axis in axes)
    if chain.load.padding_value != 0:  # what lies behind the array multiplies, too
        for axis, count in zip(axes, (x_count, k_count), strict=True):
            there = b.both(there, b.cmp("sge", count, tile.shape[axis]))
    begin, along = e.address(tile, Position(0, 0)), _along(*(tile.strides[axis] for axis in axes))
    return Lying(begin, (x_bytes, k_bytes), x_count, k_count, there, plain(tile.element), along)


def _along(x_stride: Idx, k_stride: Idx) -> int | None:
    return 0 if x_stride == 1 else 1 if k_stride == 1 else None


@frozen
class LyingProduct(ABC):
    """C (+)= A B of such tiles, over `length` k."""

    b: Builder
    m: CpuMachine
    operands: tuple[Lying, Lying]
    c: Buffer
    length: int

    @property
    def short(self) -> bool:
        """Is it small?"""
        return max(*self.c.shape, self.length) <= LONGEST and self.length > 0

    @abstractmethod
    def fits(self, family: Family) -> bool:
        """Is it one of these, as far as is known now?"""

    def near(self) -> SSAValue:
        """Are the arrays not packed, and is there something to read?"""
        b, found = self.b, None
        for operand in self.operands:
            found = b.both(found, operand.there)
            found = b.both(found, b.cmp("sgt", operand.x_count, 0))
        reach = b.times(self.operands[1].steps[1], self.length)
        found = b.both(found, b.cmp("sle", reach, NEAR))
        assert found is not None
        return found

    def emit(self, family: Family, zero: bool) -> None:
        """`zero`: C holds nothing yet."""
        b, whole = self.b, None
        for operand, count in zip(self.operands, self.c.shape, strict=True):
            whole = b.both(whole, b.cmp("sge", operand.x_count, count))
            whole = b.both(whole, b.cmp("sge", operand.k_count, self.length))
        assert whole is not None
        b.choose(
            whole,
            lambda: self.blocks(family, zero, True),
            lambda: self.blocks(family, zero, False),
        )

    @abstractmethod
    def blocks(self, family: Family, zero: bool, whole: bool) -> None:
        """`whole`: the tiles lie in their arrays."""


@frozen
class LyingVectors(LyingProduct):
    """By vectors, sums in registers."""

    @property
    def lanes(self) -> int:
        return min(self.m.vector_bytes // itemsize(self.c.element), power_of_two(self.c.shape[1]))

    def fits(self, family: Family) -> bool:
        in_rows = self.operands[1].along == 0 and self.c.shape[1] % self.lanes == 0
        element = isinstance(self.c.element, AnyFloat) and family.accumulator == self.c.element
        same = all(f.element == self.c.element and f.group == 1 for f in (family.a, family.b))
        same = same and all(each.element == self.c.element for each in self.operands)
        return self.short and in_rows and element and same and not family.tiles

    def blocks(self, family: Family, zero: bool, whole: bool) -> None:
        b, lanes, (rows, cols) = self.b, self.lanes, self.c.shape
        for at, vectors, times in runs_of(cols // lanes, VECTORS):
            step, start = vectors * lanes, at * lanes
            with b.loop(start, start + times * step, step) as x:
                for row, count, turns in runs_of(rows, max(1, self.m.accumulators // vectors)):
                    with b.loop(row, row + turns * count, count) as r:
                        self.block((r.iv, count), (x.iv, vectors), zero, whole)

    def block(
        self, rows: tuple[Idx, int], columns: tuple[Idx, int], zero: bool, whole: bool
    ) -> None:
        """C[rows, columns]: (start, count) of rows and of vectors of columns."""
        b, lanes, size = self.b, self.lanes, itemsize(self.c.element)
        type = VectorType(self.c.element, [lanes])  # pyright: ignore
        count, vectors = rows[1], range(columns[1])
        (a_row, a_k), (_, b_k) = (operand.steps for operand in self.operands)
        first, second = self.operands
        here = [b.plus(rows[0], r) for r in range(count)]
        a = b.ptr(first.pointer, b.times(rows[0], a_row))
        apart = [b.times(a_row, r) for r in range(count)]
        if not whole:
            left = b.minus(b.minus(first.x_count, 1), rows[0])
            apart = [b.times(a_row, b.min(left, r)) for r in range(count)]
        bb = b.ptr(self.operands[1].pointer, b.times(columns[0], size))
        starts = [self.c.address(b, row, columns[0]) for row in here]
        places = [b.ptr(start, v * lanes * size) for start in starts for v in vectors]
        length: Idx = self.length
        masks: list[SSAValue | None] = [None for _ in vectors]
        if not whole:
            length = b.min(length, b.max(b.min(first.k_count, second.k_count), 0))
            left = b.minus(second.x_count, columns[0])
            masks = [b.mask_first(b.minus(left, v * lanes), lanes) for v in vectors]
        nothing = b.constant(type, 0)
        # As micro-kernels do from panels, of which a launch has the choice: C is added to what is summed from zero.
        sums = [nothing] * len(places)

        def part(place: SSAValue, mask: SSAValue | None) -> SSAValue:
            """Of a row of B."""
            if mask is None:
                return b.load(place, type)
            return b.value(mach.MaskedLoadOp(place, mask, nothing))

        unrolled = 1
        while (
            whole and unrolled * 2 * len(places) <= PRODUCTS and self.length % (unrolled * 2) == 0
        ):
            unrolled *= 2
        with b.loop(0, length, unrolled, sums) as loop:
            out = list(loop.carried)
            for u in range(unrolled):
                k = b.plus(loop.iv, u)
                row = b.ptr(bb, b.times(k, b_k))
                found = [part(b.ptr(row, v * lanes * size), masks[v]) for v in vectors]
                column = b.ptr(a, b.times(k, a_k))
                for r in range(count):
                    one = b.load(b.ptr(column, apart[r]), self.c.element)
                    factor = b.splat(one, lanes)
                    for v in vectors:
                        at = r * len(vectors) + v
                        out[at] = b.value(math.FmaOp(factor, found[v], out[at]))
            loop.out = out
        for i, (place, value) in enumerate(zip(places, loop.results, strict=True)):
            before = nothing if zero else b.load(place, type)
            if not zero:
                value = b.value(arith.AddfOp(value, before))
            if not whole:
                there = b.cmp("slt", here[i // len(vectors)], first.x_count)
                value = b.value(arith.SelectOp(there, value, before))
            b.store(value, place)
