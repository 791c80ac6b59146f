"""Products of small tiles of arrays that nobody packs ahead: both operands are read where they lie, no loop has an end
that is cut off.

In a batch of small matrices each program multiplies two of them once. Copying them into panels, and the ends of loops
over panels and blocks of k, take longer than so few products. Where B's rows lie near one another:

    for rows, as many as registers hold sums of, and vectors of columns:
      for k, some at a time:  a row of B times an element of each row of A
      C is written once for each block of k

Instructions that take several k at once multiply as many rows of B, put together element by element in registers; what
is left of k stands beside zeros. Narrow floats that no instruction multiplies are widened where they are read. Of tiles
that do not lie wholly in their arrays there are as many k as both arrays have; B's columns behind the end are masked,
and of A's rows behind it the last row is read instead, whose sums are not kept. How many k there are may be known when
the product runs only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, VectorType
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.codegen.tiles import Tile, itemsize, plain
from tilewright.dialects import mach
from tilewright.dialects.fused import PackOp
from tilewright.dialects.movement import memref_type
from tilewright.frozen import frozen
from tilewright.passes.packing import chain_of
from tilewright.targets.cpu.dots import add_dot, spread, spread_group
from tilewright.targets.cpu.evaluate import Evaluator, Position
from tilewright.targets.cpu.family import Family
from tilewright.targets.cpu.lying_cost import NEAR, columns_of, rows_of
from tilewright.targets.cpu.machine import LONGEST, CpuMachine
from tilewright.targets.cpu.memory import Buffer
from tilewright.targets.cpu.operands import Operands
from tilewright.targets.cpu.packed_array import panel_of
from tilewright.targets.cpu.packing import is_verbatim
from tilewright.targets.cpu.panels import joined, widen
from tilewright.targets.cpu.reductions import power_of_two


@frozen
class Lying:
    """A tile of an array: the address of its first element, bytes to the next x and k, and how many of either the array
    has from there on."""

    pointer: SSAValue
    steps: tuple[Idx, Idx]
    x_count: Idx
    k_count: Idx
    there: SSAValue | None
    """May it be read where it lies? None: always."""
    ahead: SSAValue | None
    """Is it packed ahead? None: never."""
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
        if not is_verbatim(pack, array.format.element, replace(array.format, parts=1)):
            return None
        size, along = itemsize(element), _along(array.x_stride, array.k_stride)
        counts = placed.x_count, placed.k_count
        return Lying(
            placed.corner(b, size),
            placed.steps(b, size),
            *counts,
            None,
            array.ahead,
            element,
            along,
        )
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
    return Lying(
        begin, (x_bytes, k_bytes), x_count, k_count, there, None, plain(tile.element), along
    )


def _along(x_stride: Idx, k_stride: Idx) -> int | None:
    return 0 if x_stride == 1 else 1 if k_stride == 1 else None


@frozen
class LyingProduct(ABC):
    """C (+)= A B of such tiles, over `length` k."""

    b: Builder
    m: CpuMachine
    family: Family
    operands: tuple[Lying, Lying]
    c: Buffer
    length: Idx

    @property
    @abstractmethod
    def deepest(self) -> int | None:
        """Its k at most; None: any."""

    @property
    def known(self) -> bool:
        """Is its k known while compiling?"""
        return isinstance(self.length, int)

    @property
    def short(self) -> bool:
        """Is it small, as far as is known now?"""
        length = self.length if isinstance(self.length, int) else 1
        return max(self.c.shape) <= LONGEST and 0 < length <= (self.deepest or length)

    @property
    @abstractmethod
    def fits(self) -> bool:
        """Is it one of these, as far as is known now?"""

    def there(self) -> Idx:
        """k that both arrays have."""
        b = self.b
        return b.max(b.min(self.length, b.min(*(each.k_count for each in self.operands))), 0)

    def near(self, packed: bool) -> SSAValue:
        """Is it small, is there something to read, and are the arrays not packed? `packed`: or are they, for what would
        multiply otherwise adds up in another order, and a launch on more threads may not pack them."""
        b, found = self.b, None
        for operand in self.operands:
            found = b.both(found, operand.there)
            if operand.ahead is not None and not packed:
                found = b.both(found, b.negated(operand.ahead))
            found = b.both(found, b.cmp("sgt", operand.x_count, 0))
        length = self.length
        if not self.known:
            length = self.there()
            if self.deepest is not None:
                found = b.both(found, b.cmp("sle", length, self.deepest))
        reach = b.times(self.operands[1].steps[1], b.min(length, self.family.depth))
        found = b.both(found, b.cmp("sle", reach, NEAR))
        assert found is not None
        return found

    def inside(self) -> SSAValue | None:
        """Do the tiles lie in their arrays, with k that need no masks?"""
        b, found = self.b, None
        for operand, count in zip(self.operands, self.c.shape, strict=True):
            found = b.both(found, b.cmp("sge", operand.x_count, count))
            if self.known:
                found = b.both(found, b.cmp("sge", operand.k_count, self.length))
        return found

    def emit(self, zero: bool) -> None:
        """`zero`: C holds nothing yet."""
        inside = self.inside()
        assert inside is not None
        self.b.choose(
            inside,
            lambda: self.blocks(zero, True),
            lambda: self.blocks(zero, False),
        )

    @abstractmethod
    def blocks(self, zero: bool, whole: bool) -> None:
        """`whole`: the tiles lie `inside`."""


@frozen
class LyingVectors(LyingProduct):
    """By vectors, sums in registers."""

    @property
    def lanes(self) -> int:
        return min(self.m.vector_bytes // itemsize(self.c.element), power_of_two(self.c.shape[1]))

    @property
    def deepest(self) -> None:
        return None

    @property
    def fits(self) -> bool:
        family, c, per = self.family, self.c, self.family.group
        first, second = self.operands
        floats = isinstance(c.element, AnyFloat) and family.accumulator == c.element
        if per == 1:  # what is narrower is widened
            kinds = all(
                isinstance(o.element, AnyFloat) and itemsize(o.element) > 1 for o in self.operands
            )
        else:
            full = self.lanes * itemsize(c.element) == self.m.vector_bytes
            kinds = first.along == 1 and full
            kinds = kinds and all(o.element == family.a.element for o in self.operands)
        # Whole vectors of sums are stored: what lies behind a row's end is the buffer's own.
        padded = c.shape[1] % self.lanes == 0 or isinstance(c.ld, int)
        return self.short and second.along == 0 and floats and kinds and padded and not family.tiles

    def blocks(self, zero: bool, whole: bool) -> None:
        b, depth = self.b, self.family.depth
        length = self.length if whole and self.known else self.there()
        if isinstance(length, int) and length <= depth:
            self.deep((0, length), zero, whole)
            return
        with b.loop(0, b.max(length, 1), depth) as k:  # C is written where there is no k, too
            end = b.min(b.plus(k.iv, depth), length)
            self.deep((k.iv, end), b.cmp("eq", k.iv, 0) if zero else False, whole)

    def deep(self, ks: tuple[Idx, Idx], first: bool | SSAValue, whole: bool) -> None:
        """A block of k from one on to another; `first`: C holds nothing yet."""
        b, lanes, (rows, cols) = self.b, self.lanes, self.c.shape
        for at, vectors, times in columns_of(-(-cols // lanes)):
            step = vectors * lanes

            def some(x: Idx, vectors: int = vectors) -> None:
                for row, count, turns in rows_of(self.m, rows, vectors):
                    with b.loop(row, row + turns * count, count) as r:
                        self.block((r.iv, count), (x, vectors), ks, first, whole)

            if times == 1:
                some(at * lanes)
                continue
            with b.loop(at * lanes, at * lanes + times * step, step) as x:
                some(x.iv)

    def block(
        self,
        rows: tuple[Idx, int],
        columns: tuple[Idx, int],
        ks: tuple[Idx, Idx],
        first: bool | SSAValue,
        whole: bool,
    ) -> None:
        """C[rows, columns]: (start, count) of rows and of vectors of columns, over k from one on to another."""
        family, b, lanes = self.family, self.b, self.lanes
        size, per = itemsize(self.c.element), family.group
        type = VectorType(self.c.element, [lanes])  # pyright: ignore
        count, vectors = rows[1], range(columns[1])
        left, right = self.operands
        (a_row, a_k), (_, b_k) = left.steps, right.steps
        here = [b.plus(rows[0], r) for r in range(count)]
        a = b.ptr(left.pointer, b.times(rows[0], a_row))
        apart = [b.times(a_row, r) for r in range(count)]
        ends = self.c.shape[1] if whole else b.min(self.c.shape[1], right.x_count)
        if not whole:
            last = b.minus(b.minus(left.x_count, 1), rows[0])
            apart = [b.times(a_row, b.min(last, r)) for r in range(count)]
        b_lanes = lanes * itemsize(right.element)
        bb = b.ptr(right.pointer, b.times(columns[0], itemsize(right.element)))
        starts = [self.c.address(b, row, columns[0]) for row in here]
        places = [b.ptr(start, v * lanes * size) for start in starts for v in vectors]
        there = b.minus(ends, columns[0])
        cut = not whole or self.c.shape[1] % lanes != 0
        masks = [b.mask_first(b.minus(there, v * lanes), lanes) if cut else None for v in vectors]
        read = VectorType(right.element, [lanes])  # pyright: ignore
        factors = VectorType(family.b.element, [lanes * per])  # pyright: ignore
        nothing, empty = b.constant(type, 0), b.constant(read, 0)
        # As micro-kernels do from panels, of which a launch has the choice: C is added to what is summed from zero.
        sums: Sequence[SSAValue] = [nothing] * len(places)

        def part(place: SSAValue, mask: SSAValue | None) -> SSAValue:
            """Of a row of B."""
            if mask is None:
                return b.load(place, read)
            return b.value(mach.MaskedLoadOp(place, mask, empty))

        def added(k: Idx, have: int, sums: Sequence[SSAValue]) -> list[SSAValue]:
            """With the products of a group of k, `have` of it there."""
            lines = [b.ptr(bb, b.times(b.plus(k, g), b_k)) for g in range(have)]
            found: list[SSAValue] = []
            for v in vectors:
                parts = [part(b.ptr(line, v * b_lanes), masks[v]) for line in lines]
                if per == 1:
                    found.append(widen(b, parts[0], family.b.element))
                    continue
                group = joined(b, [*parts, *[empty] * (per - have)])
                beside = [g * lanes + i for i in range(lanes) for g in range(per)]
                found.append(b.shuffle(group, group, beside))
            column, out = b.ptr(a, b.times(k, a_k)), list(sums)
            for r in range(count):
                at = b.ptr(column, apart[r])
                if per == 1:
                    factor = b.splat(widen(b, b.load(at, left.element), family.a.element), lanes)
                elif have == per:
                    factor = spread_group(b, at, factors, per)
                else:
                    ones = [b.load(b.ptr(at, b.times(a_k, g)), left.element) for g in range(have)]
                    factor = spread(b, ones, factors, per)
                for v in vectors:
                    i = r * len(vectors) + v
                    if per == 1:
                        out[i] = b.value(math.FmaOp(factor, found[v], out[i]))
                    else:
                        out[i] = add_dot(b, family, out[i], factor, found[v])
            return out

        begin, length = ks[0], b.minus(ks[1], ks[0])
        main, rest = b.plus(begin, b.times(b.div(length, per), per)), b.rem(length, per)
        with b.loop(begin, main, per, sums) as loop:
            loop.out = added(loop.iv, per, loop.carried)
        sums = loop.results
        for have in range(1, per):
            if isinstance(rest, int) and rest != have:
                continue

            def ragged(have: int = have, sums: Sequence[SSAValue] = sums) -> list[SSAValue]:
                return added(main, have, sums)

            sums = b.choose(b.cmp("eq", rest, have), ragged, lambda sums=sums: list(sums))
        for i, (place, value) in enumerate(zip(places, sums, strict=True)):
            before = nothing
            if first is not True:
                before = b.load(place, type)
                if first is not False:
                    before = b.value(arith.SelectOp(first, nothing, before))
                value = b.value(arith.AddfOp(value, before))
            if not whole:
                inside = b.cmp("slt", here[i // len(vectors)], left.x_count)
                value = b.value(arith.SelectOp(inside, value, before))
            b.store(value, place)
