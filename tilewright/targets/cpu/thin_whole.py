"""Thin products of small tiles that lie wholly inside their array, of few rows by B: no loop along k, no mask.

A loop over pages of keys and values multiplies a tile of known sizes in every turn. What the general form (`thin`)
does for each block of it, the ends of its loops and what is copied to and from C, takes as long as its products. Here

    inner   blocks of x, each against some rows of A; all k of a block unrolled:
              SUMS sums in registers, added up across together
    outer   blocks of columns as wide as registers hold sums of; k in one loop, some at a time:
              C is written once

Each row of B is read from its start to its end wherever that leaves the sums in registers, as caches fetch it.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import arith
from xdsl.dialects.builtin import VectorType
from xdsl.ir import SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.codegen.tiles import Tile, itemsize
from tilewright.targets.cpu.dots import spread_group
from tilewright.targets.cpu.evaluate import Evaluator, Position
from tilewright.targets.cpu.family import Family, PanelOperand
from tilewright.targets.cpu.machine import CpuMachine, runs_of
from tilewright.targets.cpu.memory import Buffer
from tilewright.targets.cpu.reductions import across

BYTES = 1 << 17
"""Of a tile at most: longer ones amortise what loops cost."""
STEPS = 16
"""Vectors of k at most (inner), which all are unrolled."""
PRODUCTS = 64
"""Products of vectors at a time (inner), all unrolled, and half as many (outer): more take long to compile."""
WIDE = 8
"""Vectors of a row at a time (outer) at most."""
BLOCK = 4
"""Rows of A at a time (inner) at most: sums of as many rows of B fill a vector."""
ONE_BY_ONE = 2
"""Rows of A (inner) up to which rows of B are read one after the other; beside more, each vector of A is loaded once
for several of B."""


class WholeTiles:
    """The part of a `ThinProduct` that multiplies such tiles."""

    b: Builder
    e: Evaluator
    m: CpuMachine
    family: Family
    tile: Tile
    pitch: Idx
    c: Buffer
    type: VectorType
    factors: VectorType
    lanes: int
    per: int
    line: int
    place: Callable[[Idx, Idx, bool, bool], Position]
    read: Callable[[Position, bool], SSAValue]
    vectors: Callable[[Idx, Idx, int, bool], tuple[list[SSAValue], list[Position]]]
    add: Callable[[SSAValue | None, SSAValue, SSAValue], SSAValue]
    fetch: Callable[[Position, Idx, int], None]

    def sizes_fit(self, length: int) -> bool:
        """Are the sizes of a product of so many k, all one block, such as are meant here?"""
        cols = self.c.shape[1]
        if length * cols * itemsize(self.tile.element) > BYTES:
            return False
        if self.family.name == "outer":
            return cols % self.lanes == 0 and length % self.per == 0
        long = self.per * self.lanes
        return length % long == 0 and length <= STEPS * long and cols % 2 == 0

    def whole(self, a: PanelOperand, length: int, zero: bool) -> None:
        """C (+)= A B of all k and columns, where B's tile lies inside its array; `zero`: C holds nothing yet."""
        rows, cols = self.c.shape
        if self.family.name == "outer":
            most = max(1, min(WIDE, self.m.accumulators // rows))
            for at, vectors, times in runs_of(cols // self.lanes, most):
                step, start = vectors * self.lanes, at * self.lanes
                with self.b.loop(start, start + times * step, step) as x:
                    self.columns(a, x.iv, vectors, length, zero)
            return
        parts = parts_of(rows, min(BLOCK, self.lanes))
        few = parts[0][1]
        block = self.lanes // few
        steps = length // (self.per * self.lanes)
        while cols % block or (block > 1 and block * few * steps > PRODUCTS):
            block //= 2
        with self.b.loop(0, cols, block) as x:
            for part in parts:
                with self.e.scope():
                    self.sums(a, part, (x.iv, block), length, zero)

    def sums(
        self, a: PanelOperand, rows: tuple[int, int], xs: tuple[Idx, int], length: int, zero: bool
    ) -> None:
        """C[rows, xs] (inner); both (start, count)."""
        b, (row, few), (x, count), long = self.b, rows, xs, self.per * self.lanes
        steps = range(length // long)
        order = [(i, t) for i in range(count) for t in steps]
        if few > ONE_BY_ONE:
            order = [(i, t) for t in steps for i in range(count)]
        fixed: dict[tuple[int, int], SSAValue] = {}
        sums: dict[tuple[int, int], SSAValue] = {}
        for i, t in order:
            place = self.place(b.plus(x, i), t * long, True, True)
            begins = t * self.per % self.line == 0
            vector = self.read(place, row > 0 or not begins)
            if row == 0 and begins:
                self.fetch(
                    place, b.times(self.pitch, count), count * length * itemsize(self.tile.element)
                )
            for j in range(few):
                if (j, t) not in fixed:
                    at = b.ptr(a.pointer, b.times(row + j, a.x_bytes))
                    fixed[j, t] = b.load(b.ptr(at, b.times(t, a.k_bytes)), self.factors)
                sums[j, i] = self.add(sums.get((j, i)), fixed[j, t], vector)
        total = across(b, [sums[j, i] for j in range(few) for i in range(count)])
        for j in range(few):
            part = total
            if few > 1:
                part = b.shuffle(total, total, range(j * count, (j + 1) * count))
            target = self.c.address(b, row + j, x)
            if not zero:
                part = b.value(arith.AddfOp(b.load(target, part.type), part))
            b.store(part, target)

    def columns(self, a: PanelOperand, x: Idx, vectors: int, length: int, zero: bool) -> None:
        """C[all rows, so many vectors from x on] (outer)."""
        b, rows, size = self.b, range(self.c.shape[0]), itemsize(self.c.element)
        starts = [self.c.address(b, r, x) for r in rows]
        places = [b.ptr(start, v * self.lanes * size) for start in starts for v in range(vectors)]
        nothing = b.constant(self.type, 0)
        sums = [nothing if zero else b.load(place, self.type) for place in places]
        unrolled, groups = 1, length // self.per
        while unrolled * 2 * len(places) <= PRODUCTS // 2 and groups % (unrolled * 2) == 0:
            unrolled *= 2
        with b.loop(0, groups, unrolled, sums) as loop, self.e.scope():
            out = list(loop.carried)
            for u in range(unrolled):
                found, lines = self.vectors(x, b.times(b.plus(loop.iv, u), self.per), vectors, True)
                for line in lines:
                    self.fetch(line, b.times(self.pitch, unrolled * self.per), BYTES)
                group = b.ptr(b.ptr(a.pointer, b.times(loop.iv, a.k_bytes)), b.times(u, a.k_bytes))
                for r in rows:
                    place = b.ptr(group, b.times(r, a.x_bytes))
                    factor = spread_group(b, place, self.factors, self.per)
                    for v, vector in enumerate(found):
                        at = r * vectors + v
                        out[at] = self.add(out[at], factor, vector)
            loop.out = out
        for place, value in zip(places, loop.results, strict=True):
            b.store(value, place)


def parts_of(count: int, most: int) -> list[tuple[int, int]]:
    """Parts of 0 to `count`, (start, length) each, whose lengths are powers of two up to `most`."""
    runs = runs_of(count, most)
    return [(at + i * length, length) for at, length, times in runs for i in range(times)]
